"""Consistency between reports: whether studies that show the same are described alike, after ICON.

Every report is reduced to a set of attributes of its lesions: what is there, on which side, how it changed. Two reports
agree as far as the smaller set lies in the larger (the overlap coefficient). Of each study, the report that was written
is compared with those that were written of equivalent studies; studies whose own references disagree are not compared.

ICON's attributes are words of a list that goes with MIMIC-CXR, in sentences that CheXbert calls positive; it is not
published apart from the data. Here they are those of our own rules or of RadGraph, so that the numbers are not ICON's,
and bear other names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.arguments import grouped
from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.arrays import Floats, Ints
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import read_by
from medimg_eval.metrics.text import texts_of

Pairs = Ints

LEAST = 0.5
"""How much the references of two studies must agree for their reports to be compared, as in ICON's code."""

EQUIVALENT = 0.75
"""How much the positive observations of two references must overlap for their studies to be equivalent, as there."""

HELD = 1 << 18
"""Pairs of reports that are compared at once."""

SOURCE = "after Hou et al., ICON, Findings of EMNLP 2024; wjhou/ICon 51af68e"

_CLAIMED = frozenset(("OBS-DP", "OBS-U", "Observation::definitely present", "Observation::uncertain"))
"""RadGraph's labels of what is there or may be, in both ways of writing them."""

_PRESENT = (1, 3)
"""What rules say of something that is there or may be."""


class Consistency(NamedTuple):
    """Of each report, (report,).

    Attributes:
        overlap: mean overlap with the reports of equivalent studies, 0 to 1; NaN where there is none.
        own: overlap with its own reference, 0 to 1.
        weighted: the product of both, as in ICON's R-CON.
        compared: equivalent studies that it was compared with.
    """

    overlap: Floats
    own: Floats
    weighted: Floats
    compared: Pairs


class Written(NamedTuple):
    """Report of another study of the same set.

    Attributes:
        references: its reference reports.
        text: what was written; "" for nothing.
        readings: name of an annotator -> what it read in both, as in `AnsweredQuestion.readings`.
    """

    references: tuple[str, ...]
    text: str
    readings: Mapping[str, Any]


def overlap_coefficient(one: Set[Any], other: Set[Any]) -> float:
    """Returns the overlap coefficient of sets, 0 to 1; empty is 0.

    >>> overlap_coefficient({"edema", "left"}, {"edema", "right", "small"})
    0.5
    """
    return len(one & other) / min(len(one), len(other)) if one and other else 0.0


def equivalents_in_sets(sets: Sequence[Hashable]) -> Pairs:
    """Returns pairs within sets, int64, (pair, 2), in both orders.

    Args:
        sets: of each report what names its set; None or "" for a report of none.
    """
    members = grouped((name, number) for number, name in enumerate(sets) if name is not None and name != "")
    grids = [np.stack(np.meshgrid(some, some, indexing="ij"), -1).reshape(-1, 2) for some in members.values()]
    pairs = np.concatenate(grids) if grids else np.zeros((0, 2), dtype=np.int64)
    distinct: Pairs = pairs[pairs[:, 0] != pairs[:, 1]].astype(np.int64)
    return distinct


def equivalents_by_observations(
    observations: Sequence[Set[str]], studies: Sequence[Hashable] | None = None, least: float = EQUIVALENT
) -> Pairs:
    """Returns pairs with overlapping positive observations, int64, (pair, 2).

    Args:
        observations: of each reference, what it says is there; a report of none has no equivalents.
        studies: of each report its study; reports of the same are no pair. By default each is its own.
        least: overlap coefficient from which two are equivalent.
    """
    table = _membership_table([*observations])
    sizes = np.asarray(table.sum(axis=1)).ravel()
    study = (
        np.unique(np.array([str(study) for study in studies]), return_inverse=True)[1] if studies is not None else None
    )
    blocks = []
    step = max(1, HELD // max(1, len(observations)))
    for start in range(0, len(observations), step):
        shared = (table[start : start + step] @ table.T).toarray()
        smaller = np.minimum(sizes[start : start + step, None], sizes[None, :])
        is_equivalent = (smaller > 0) & (shared >= least * smaller)
        rows, columns = np.nonzero(is_equivalent)
        rows = rows + start
        is_allowed = rows != columns if study is None else study[rows] != study[columns]
        blocks.append(np.column_stack([rows[is_allowed], columns[is_allowed]]))
    return np.concatenate(blocks).astype(np.int64) if blocks else np.zeros((0, 2), dtype=np.int64)


def consistency(
    predictions: Sequence[Set[str]], references: Sequence[Set[str]], equivalents: npt.ArrayLike, least: float = LEAST
) -> Consistency:
    """Returns how consistent each report is with those of equivalent studies.

    The mean of `overlap` over reports that have an equivalent is ICON's CON, that of `weighted` its R-CON.

    Args:
        predictions: of each report, the attributes of what was written.
        references: of each report, those of its reference.
        equivalents: int, (pair, 2): report and a report of an equivalent study; see `equivalents_in_sets`.
        least: overlap that the references of both must have at least; where one has no attributes there is none.

    Raises:
        UsageError: Unequal lengths, or a pair names a report that is not there.
    """
    count = len(predictions)
    if len(references) != count:
        raise UsageError(f"Expected as many predictions as references, got {count} and {len(references)}")
    pairs = np.asarray(equivalents, dtype=np.int64).reshape(-1, 2)
    if pairs.size and not 0 <= pairs.min() <= pairs.max() < count:
        raise UsageError(f"Expected pairs of reports numbered from 0 to {count - 1}, got {pairs.min()}, {pairs.max()}")
    table = _membership_table([*predictions, *references])
    written, due = table[:count], table[count:]
    total, compared = np.zeros(count), np.zeros(count, dtype=np.int64)
    for start in range(0, len(pairs), HELD):
        some = pairs[start : start + HELD]
        some = some[_overlap_coefficients(due, due, some) >= least]
        np.add.at(total, some[:, 0], _overlap_coefficients(written, written, some))
        np.add.at(compared, some[:, 0], 1)
    own = _overlap_coefficients(written, due, np.repeat(np.arange(count)[:, None], 2, axis=1))
    overlap = quotient(total, compared)
    return Consistency(overlap, own, overlap * own, compared)


def _membership_table(sets: Sequence[Set[str]]) -> Any:
    """Membership of names in sets, sparse (set, name)."""
    from scipy.sparse import csr_array

    names: dict[str, int] = {}
    held = [sorted(names.setdefault(name, len(names)) for name in some) for some in sets]
    ends = np.cumsum([0, *map(len, held)])
    columns = np.fromiter((number for some in held for number in some), dtype=np.int64, count=int(ends[-1]))
    return csr_array((np.ones(len(columns)), columns, ends), shape=(len(held), max(1, len(names))))


def _overlap_coefficients(one: Any, other: Any, pairs: Pairs) -> Floats:
    """The overlap coefficient of each pair of rows: (pair,)."""
    first_rows, right = one[pairs[:, 0]], other[pairs[:, 1]]
    shared = np.asarray((first_rows * right).sum(axis=1)).ravel()
    smaller = np.minimum(np.asarray(first_rows.sum(axis=1)).ravel(), np.asarray(right.sum(axis=1)).ravel())
    return quotient(shared, smaller, 0.0)


@lru_cache(maxsize=1 << 16)
def rule_attributes(text: str) -> frozenset[str]:
    """Returns attributes of present or possible findings, by our rules.

    Each finding, each with its side, and each with its change: "Edema", "Edema: bilateral", "Edema: improved".
    """
    from medimg_eval.metrics.reports.labeler.labeler import mentions

    attributes = set()
    for mention in mentions(text):
        if mention.status in _PRESENT:
            attributes |= {mention.finding} | {
                f"{mention.finding}: {word}" for word in (mention.side, mention.trend) if word
            }
    return frozenset(attributes)


def graph_attributes(annotation: Mapping[str, Any]) -> frozenset[str]:
    """Returns RadGraph's lower-case words of present or possible findings.

    Attributes are an observation, what modifies it, and where it is located.

    Args:
        annotation: as RadGraph publishes it: `entities`: name -> `tokens`, `label`, `relations`.
    """
    entities = annotation["entities"]
    claimed = {name for name, entity in entities.items() if entity["label"] in _CLAIMED}
    near = set(claimed)
    for name, entity in entities.items():
        for kind, target in entity["relations"]:
            if kind == "modify" and target in claimed:
                near.add(name)
            elif kind == "located_at" and name in claimed:
                near.add(target)
    return frozenset(entities[name]["tokens"].lower() for name in near if name in entities)


def _set_consistency(
    pair: AnsweredQuestion, read: Callable[[Any], tuple[Set[str], Set[str]] | None], *, weighted: bool
) -> float:
    """The consistency of one report with those of its set."""
    if texts_of(pair) is None:
        return math.nan
    own = read(pair)
    if own is None:
        return math.nan
    reference, prediction = own
    overlaps = []
    for peer in pair.more.get("peers", ()):
        attributes = read(peer)
        if attributes is not None and overlap_coefficient(reference, attributes[0]) >= LEAST:
            overlaps.append(overlap_coefficient(prediction, attributes[1]))
    if not overlaps:
        return math.nan
    mean = math.fsum(overlaps) / len(overlaps)
    return mean * overlap_coefficient(prediction, reference) if weighted else mean


def _by_rules(one: AnsweredQuestion | Written) -> tuple[Set[str], Set[str]] | None:
    if not one.references:
        return None
    attributes = (rule_attributes(reference) for reference in one.references)
    return frozenset().union(*attributes), rule_attributes(one.text)


def _by_graph(one: AnsweredQuestion | Written) -> tuple[Set[str], Set[str]] | None:
    graph = one.read("radgraph") if isinstance(one, AnsweredQuestion) else one.readings.get("radgraph")
    return None if graph is None else (graph_attributes(graph.reference), graph_attributes(graph.prediction))


_consistent = partial(answer_share, scope="set", source=SOURCE)
_SETTINGS = "overlap coefficient with reports of the same set whose references overlap by half; attributes: {}"
_RULES = _SETTINGS.format("findings, sides and changes by our rules, not ICON's list of words")
_GRAPH = _SETTINGS.format("words of RadGraph's present and uncertain observations, their modifiers and places")


@_consistent(title="Consistency (rules)", settings=_RULES)
def consistency_rules(pair: AnsweredQuestion) -> float:
    """The mean overlap of the lesions' attributes, by our rules, with those in reports of equivalent studies.

    Equivalent are studies of the same `set` whose references agree by half or more. In [0, 1]; NaN for a study that has
    no equivalent one.
    """
    return _set_consistency(pair, _by_rules, weighted=False)


@_consistent(title="R-consistency (rules)", settings=_RULES)
def consistency_rules_weighted(pair: AnsweredQuestion) -> float:
    """The consistency by our rules, times the overlap of the report's attributes with those of its own reference.

    To describe all studies alike is consistent, but not right. In [0, 1]; NaN for a study that has no equivalent one.
    """
    return _set_consistency(pair, _by_rules, weighted=True)


@_consistent(title="Consistency (RadGraph)", settings=_GRAPH, requires=read_by("radgraph"))
def consistency_radgraph(pair: AnsweredQuestion) -> float:
    """The mean overlap of the lesions' attributes, by RadGraph, with those in reports of equivalent studies.

    It is `consistency_rules` with the words that RadGraph finds.
    """
    return _set_consistency(pair, _by_graph, weighted=False)


@_consistent(title="R-consistency (RadGraph)", settings=_GRAPH, requires=read_by("radgraph"))
def consistency_radgraph_weighted(pair: AnsweredQuestion) -> float:
    """The consistency by RadGraph, times the overlap of the report's attributes with those of its own reference.

    It is `consistency_rules_weighted` with the words that RadGraph finds.
    """
    return _set_consistency(pair, _by_graph, weighted=True)
