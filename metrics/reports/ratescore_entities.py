"""RaTEScore: the entities of two reports, matched by the similarity of what they are called.

An entity model finds findings, diagnoses and places, and says of the first two whether they are there or denied; a
model of medical names gives each a vector. Both are the annotator `ratescore`; what is here is arithmetic on their
types and similarities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.registry import comparisons
from medimg_eval.metrics.text import texts_of

TYPES = ("abnormality", "non-abnormality", "disease", "non-disease", "anatomy")
"""What an entity is: a finding that is there or is denied, a diagnosis that is there or is denied, or a place."""


class Affinity(NamedTuple):
    """One table.

    Attributes:
        weights: float64, (type, type): of an entity and of what it is matched with, in the order of `TYPES`.
        opposed: what the similarity is multiplied with where one says what the other denies.
    """

    weights: npt.NDArray[np.float64]
    opposed: float


AFFINITY: Mapping[str, Affinity] = MappingProxyType(
    {
        "long": Affinity(
            np.array(
                [
                    [
                        0.4276119164393705,
                        0.5431049700217344,
                        0.0034478181112993847,
                        0.27005425386213877,
                        0.6240929990607657,
                    ],
                    [
                        0.16546764653692908,
                        0.0009357166071730684,
                        0.719397354576018,
                        0.0927333564267591,
                        0.018670610691852826,
                    ],
                    [
                        0.8396510075734789,
                        0.9820689020512646,
                        0.8460555030578727,
                        0.3789136708096537,
                        0.9950209388542061,
                    ],
                    [
                        0.7759420231214385,
                        0.03860183811876373,
                        0.10073046076318157,
                        0.34065681486566446,
                        0.1839139293714062,
                    ],
                    [
                        0.7487824274337533,
                        0.02097055139911715,
                        0.4592143222158069,
                        0.00013736314126696204,
                        0.2856134859160784,
                    ],
                ]
            ),
            0.8716553966489615,
        ),
        "short": Affinity(
            np.array(
                [
                    [
                        0.4070293318365468,
                        0.9479148658006686,
                        0.28342529466226446,
                        0.23875064111146294,
                        0.6952639610605605,
                    ],
                    [
                        0.1712744286898638,
                        0.0007887930317199857,
                        0.00045065329822896076,
                        0.8555432840895761,
                        0.4485149671497294,
                    ],
                    [
                        0.8840397619834857,
                        0.6962283914800402,
                        0.19018958438059513,
                        0.943727057946997,
                        0.9637659445696822,
                    ],
                    [
                        0.9555801066212176,
                        0.05650711141169969,
                        0.6072996585919443,
                        0.3214769399791204,
                        0.13122106162635216,
                    ],
                    [
                        0.5829759950441763,
                        0.794672584951181,
                        0.0006059634829551632,
                        0.27982942400798977,
                        0.7709590751917746,
                    ],
                ]
            ),
            0.3611577852354489,
        ),
    }
)
"""By name: `long`, for reports, which is the authors' default, and `short`, for sentences."""


DIGITS = 6
"""Decimals of a similarity that count: what a batch changes comes after them."""

WITHOUT = 0.5
"""RaTEScore of a pair of which one report has no entity, by its authors' rule."""

SOURCE = "Zhao et al., EMNLP 2024; MAGIC-AI4Med/RaTEScore a970406"

_PLACE = {name: index for index, name in enumerate(TYPES)}
_DENIED = np.array([name.startswith("non-") for name in TYPES])
_ANATOMY = np.array([name == "anatomy" for name in TYPES])
_OPPOSED = (_DENIED[:, None] != _DENIED[None, :]) & ~_ANATOMY[:, None] & ~_ANATOMY[None, :]


class Match(NamedTuple):
    """An entity's type, that of its most similar one, and their cosine, -1 to 1."""

    kind: str
    other: str
    similarity: float


def top_matches(kinds: Sequence[str], others: Sequence[str], similarity: npt.ArrayLike) -> list[Match]:
    """Returns each entity's match; none where the other report lacks entities.

    Similarities are cosines, (entity, other); of entities that are as similar, the first counts.

    Raises:
        UsageError: `similarity` has another shape.
    """
    if not kinds or not others:
        return []
    table = np.asarray(similarity, dtype=np.float64).round(DIGITS)
    if table.shape != (len(kinds), len(others)):
        raise UsageError(f"Expected similarities of shape ({len(kinds)}, {len(others)}), got {table.shape}")
    best = table.argmax(axis=1)
    return [Match(kind, others[at], float(row[at])) for kind, at, row in zip(kinds, best, table, strict=True)]


def rate_of_matches(of_reference: Iterable[Match], of_prediction: Iterable[Match], table: str = "long") -> float:
    """Returns RaTEScore of two-way matches, by `long` or `short` table.

    In each direction, the mean similarity weighted by the types of the two entities (`AFFINITY`); a similarity counts
    less where one report says what the other denies. Then the harmonic mean of both. In [0, 1]; 0.5 where one report
    has no entity, or neither has. A mean similarity below 0 counts as 0.

    Raises:
        UsageError: An unknown table or type.
    """
    reference_matches, predicted_matches = list(of_reference), list(of_prediction)
    if not reference_matches or not predicted_matches:
        return WITHOUT
    recall, precision = (
        max(0.0, _weighted_mean(reference_matches, table)),
        max(0.0, _weighted_mean(predicted_matches, table)),
    )
    return 2 * recall * precision / (recall + precision) if recall + precision else 0.0


def rate_score(
    reference: Sequence[str], prediction: Sequence[str], similarity: npt.ArrayLike, table: str = "long"
) -> float:
    """Returns RaTEScore of a pair, from entity types and similarities.

    Args:
        reference: types of the reference's entities, of `TYPES`, in upper or lower case.
        prediction: types of the prediction's.
        similarity: float, (reference entity, predicted entity): cosines of the vectors of their names.
        table: `long` for reports, `short` for sentences.

    Returns:
        As `rate_of_matches`: 1 for equal entities, 0.5 where one report has none.

    Raises:
        UsageError: An unknown table or type, or similarities of another shape.

    >>> rate_score(["disease", "anatomy"], ["disease", "anatomy"], [[1, 0.2], [0.2, 1]])
    1.0
    """
    if not reference or not prediction:
        return WITHOUT
    cosines = np.asarray(similarity, dtype=np.float64)
    return rate_of_matches(
        top_matches(reference, prediction, cosines), top_matches(prediction, reference, cosines.T), table
    )


def _weighted_mean(matches: Sequence[Match], table: str) -> float:
    UsageError.refuse_unknown("RaTEScore has no weights", AFFINITY, table)
    kinds, other_kinds = _kind_indices(match.kind for match in matches), _kind_indices(match.other for match in matches)
    weights = AFFINITY[table].weights[kinds, other_kinds]
    worth = np.where(_OPPOSED[kinds, other_kinds], AFFINITY[table].opposed, 1.0)
    similarity = np.array([match.similarity for match in matches])
    return math.fsum(similarity * weights * worth) / math.fsum(weights)


def _kind_indices(kinds: Iterable[str]) -> npt.NDArray[np.int64]:
    indices = []
    for kind in kinds:
        if kind.lower() not in _PLACE:
            raise UsageError(f"RaTEScore knows no type of entity {kind!r}{nearest(kind.lower(), TYPES)}")
        indices.append(_PLACE[kind.lower()])
    return np.array(indices, dtype=np.int64)


def _read_matches(pair: AnsweredQuestion) -> tuple[list[Match], list[Match], Mapping[str, Any]] | None:
    if texts_of(pair) is None:
        return None
    read = pair.read("ratescore")
    if read is None:
        return None
    return [Match(*match) for match in read["reference"]], [Match(*match) for match in read["prediction"]], read


_rate = partial(
    answer_share,
    parameter="the weights, long or short",
    parameter_optional=True,
    parameter_is_text=True,
    requires=comparisons("ratescore"),
)


@_rate(
    title="RaTEScore",
    source=SOURCE,
    settings="weights: long unless named; 0.5 where a report has no entity; own sentence splitter, not medspacy's",
)
def ratescore(pair: AnsweredQuestion, table: str = "long") -> float:
    """The harmonic mean, over both directions, of the similarity of each entity to the nearest of the other report.

    Similarities are weighted by the types of both entities, with the authors' weights for reports; `ratescore@short`
    takes those for sentences. By the authors' rule a pair of which one report has no entity is worth 0.5, an empty
    answer too; `ratescore_strict` judges those. In [0, 1]; NaN where the annotator failed.
    """
    matches = _read_matches(pair)
    return math.nan if matches is None else rate_of_matches(matches[0], matches[1], table)


@_rate(
    title="RaTEScore (strict)",
    source=f"{SOURCE}, but for reports without entities",
    settings="weights: long unless named; 0 where one report has no entity, NaN where neither has",
)
def ratescore_strict(pair: AnsweredQuestion, table: str = "long") -> float:
    """RaTEScore, where a report without entities beside one that has some is worth 0.

    NaN where neither has any: there is nothing to compare. With the authors' rule, `ratescore`, an empty answer is
    worth more than a poor one.
    """
    matches = _read_matches(pair)
    if matches is None:
        return math.nan
    of_reference, of_prediction, read = matches
    if not of_reference or not of_prediction:
        return 0.0 if any(read["entities"]) else math.nan
    return rate_of_matches(of_reference, of_prediction, table)
