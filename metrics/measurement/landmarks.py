"""Landmarks: how far predicted points lie from where they should, and which are recognised."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.arrays import Array
from medimg_eval.metrics.declarations import error_metric, error_summary, share_metric, share_summary
from medimg_eval.metrics.proportions import known_mean
from medimg_eval.metrics.registry import ScoreTable, asked_metrics
from medimg_eval.metrics.scores import LabelScore

Positions: TypeAlias = Mapping[str, npt.ArrayLike]
Missed: TypeAlias = float | Literal["diagonal", "skip"]

VERSE_LIMIT = 20.0
"""mm within which VerSe takes a vertebra for identified."""

SLACK = 1e-6
"""Relative: 3 x 0.8 mm is a little more than 2.4 mm in floating point, and lies within it all the same."""

landmark_metrics = partial(asked_metrics, kind="landmark", what="landmarks")


@dataclass(frozen=True, eq=False)
class LandmarkPair:
    """One landmark of one case.

    Attributes:
        name: Which landmark.
        reference: Position in mm (or pixels), (axis,); None where the reference lacks it.
        prediction: The same of the prediction.
        shared: Reference positions, (landmark, axis), of all landmarks of the case that both sides hold.
        penalty: What a distance is worth where the prediction lacks the landmark; NaN to leave it out.
    """

    name: str
    reference: Array | None
    prediction: Array | None
    shared: Array
    penalty: float = math.nan

    @property
    def status(self) -> str:
        """Landmark status: "present", "missed" (reference) or "hallucinated" (prediction only)."""
        if self.reference is None:
            return "hallucinated"
        return "missed" if self.prediction is None else "present"

    @cached_property
    def distance(self) -> float:
        """Distance to the reference; penalty if missed, NaN if hallucinated."""
        if self.reference is None:
            return math.nan
        return self.penalty if self.prediction is None else float(np.linalg.norm(self.prediction - self.reference))

    def within(self, tolerance: float) -> bool:
        """Whether both sides have it, at most `tolerance` apart."""
        return self.status == "present" and self.distance <= tolerance * (1 + SLACK)


_share = partial(share_metric, kind="landmark")
_distance = partial(error_summary, needs=("landmark_distance",), unit="mm")


@error_metric(
    kind="landmark",
    title="Landmark distance",
    unit="mm",
    worst="diagonal",
    source="point-to-point distance; the mean is the mean radial error",
)
def landmark_distance(pair: LandmarkPair) -> float:
    """The distance from the predicted to the reference position of a landmark.

    In mm, at least 0. A landmark that the prediction lacks counts with the penalty that `landmark_scores` is given; one
    that the reference lacks has no value.
    """
    return pair.distance


@_share(
    title="SDR",
    parameter="tolerance in mm, or pixels",
    source="Wang et al., ISBI 2015 challenge on cephalometric landmarks; in pixels, PCK",
    value_kind="proportion",
)
def sdr(pair: LandmarkPair, tolerance: float) -> float:
    """The successful detection rate: the share of reference landmarks that the prediction has within a tolerance.

    One landmark has 1 or 0: 0 where the prediction lacks it; NaN where the reference does. A distance d counts as
    within t when d <= t (1 + 1e-6).
    """
    return math.nan if pair.reference is None else float(pair.within(tolerance))


@_share(
    title="Identified",
    intermediate=True,
    source="VerSe (Sekuboyina et al., Medical Image Analysis 73, 2021)",
    value_kind="proportion",
)
def identified(pair: LandmarkPair) -> float:
    """Whether a landmark is identified: no other reference point is nearer to it, and its own lies within 20 mm.

    1 or 0; NaN for a landmark that the reference lacks. Nearer means: among the landmarks that both sides have, of
    whatever label, no reference position is nearer to the predicted one than that of its own label. Exactly 20 mm
    counts as within. A landmark that the prediction lacks is 0.
    """
    if pair.reference is None or pair.prediction is None:
        return math.nan if pair.reference is None else 0.0
    # Both distances are of the same rounding: the own point must not come out farther than itself.
    own, *other_distances = np.linalg.norm(np.vstack([pair.reference, pair.shared]) - pair.prediction, axis=1).tolist()
    return float(own <= min(other_distances, default=own) and own <= VERSE_LIMIT)


@share_summary(
    needs=("identified",), title="id rate", source="VerSe (Sekuboyina et al., Medical Image Analysis 73, 2021)"
)
def id_rate(rows: ScoreTable) -> float:
    """The identification rate: identified landmarks over all reference landmarks of the test set.

    In [0, 1]; NaN without reference landmarks. Landmarks of a case that has no prediction count as not identified.
    """
    return known_mean(rows.value)


@_distance(title="d mean", source="VerSe (Sekuboyina et al., Medical Image Analysis 73, 2021)")
def d_mean(rows: ScoreTable) -> float:
    """The mean distance over all landmarks of the test set that both sides have, whatever they are near to.

    In mm; NaN without such landmarks. Missed ones do not enter: read it beside `id_rate`.
    """
    return known_mean(rows.value[rows.status == "present"])


@_distance(title="MRE", source="Wang et al., ISBI 2015 challenge on cephalometric landmarks")
def mre(rows: ScoreTable) -> float:
    """The mean radial error: the mean distance over all landmarks of the test set, missed ones with their penalty.

    In mm; NaN without landmarks. Each landmark weighs the same, however many its case has; the mean of
    `landmark_distance` in a table weighs each case the same.
    """
    return known_mean(rows.value)


def landmark_scores(
    reference: Positions,
    prediction: Positions,
    *,
    metrics: Sequence[str] = ("landmark_distance", "sdr@2"),
    missed: Missed = "diagonal",
    diagonal: float = math.nan,
) -> list[LabelScore]:
    """Returns scores of every landmark of either side.

    Landmark by landmark, the reference's first.

    Args:
        reference: Name -> position in mm (or pixels), (axis,); a position with NaN is an absent landmark.
        prediction: The same.
        metrics: Names of metrics of kind "landmark"; "sdr@2" is a tolerance of 2 mm.
        missed: The distance of a landmark that the prediction lacks: the "diagonal" of the image, a
            number of mm, or "skip" for NaN.
        diagonal: Of the image in mm; needed for `missed="diagonal"`, else such distances are NaN.

    Raises:
        ValueError: If a position is infinite, or two have different numbers of axes.
        UsageError: If there is no such metric of landmarks.

    >>> for score in landmark_scores({"L1": (0, 0, 0), "L2": (0, 0, 30)}, {"L1": (3, 4, 0)}, diagonal=100.0):
    ...     print(*score)
    L1 landmark_distance 5.0 present
    L1 sdr@2 0.0 present
    L2 landmark_distance 100.0 missed
    L2 sdr@2 0.0 missed
    """
    wanted = landmark_metrics(metrics)
    truth, answer = _check_positions(reference), _check_positions(prediction)
    if len({len(position) for position in (*truth.values(), *answer.values())}) > 1:
        raise ValueError("Expected all positions to have as many axes, got different numbers")
    names = dict.fromkeys((*truth, *answer))
    both = [truth[name] for name in names if name in truth and name in answer]
    penalty = _missing_penalty(missed, diagonal)
    pairs = [LandmarkPair(name, truth.get(name), answer.get(name), np.array(both), penalty) for name in names]
    return [
        LabelScore(
            pair.name,
            name,
            float(definition.function(pair) if parameter is None else definition.function(pair, parameter)),
            pair.status,
        )
        for pair in pairs
        for name, (definition, parameter) in wanted.items()
    ]


def worst_landmark_scores(
    names: Sequence[str], metrics: Sequence[str], *, missed: Missed = "diagonal", diagonal: float | None
) -> list[LabelScore]:
    """Returns "failed" scores of a case without an answer.

    The model gave none. Names are the landmarks of the reference. The diagonal of the image is None where
    even the image is not known: every value is then NaN. The rest is as for `landmark_scores`.

    Raises:
        UsageError: If there is no such metric of landmarks.
    """
    values = {}
    for name, (definition, _) in landmark_metrics(metrics).items():
        if diagonal is None:
            values[name] = math.nan
        else:
            values[name] = (
                _missing_penalty(missed, diagonal) if definition.worst == "diagonal" else float(definition.worst)
            )
    return [LabelScore(label, name, value, "failed") for label in names for name, value in values.items()]


def _check_positions(positions: Positions) -> dict[str, Array]:
    """Returns the positions that are there."""
    checked = {}
    for name, stated in positions.items():
        position = np.asarray(stated, dtype=np.float64)
        if np.isinf(position).any():
            raise ValueError(f"Expected the position of {name!r} to be finite, got {position}")
        if not np.isnan(position).any():
            checked[name] = position
    return checked


def _missing_penalty(missed: Missed, diagonal: float) -> float:
    if missed == "skip":
        return math.nan
    return diagonal if missed == "diagonal" else float(missed)
