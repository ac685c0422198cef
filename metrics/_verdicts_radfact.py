"""RadFact: phrases of a report that the other one says too, and whether their boxes lie where the other's do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics._verdicts import objects, verdict_reader

Box = tuple[float, float, float, float]
"""x1, y1, x2, y2 as shares of the image's width and height, in [0, 1]."""

GRID = 224
"""Cells along each side of the grid on which areas of boxes are counted."""

COVERED = 0.5
"""More than this share of a phrase's boxes must lie in those of its evidence."""


@dataclass(frozen=True)
class Phrase:
    """One phrase of a report, verified by the other report.

    Attributes:
        entailed: whether the other report says it too.
        boxes: where it is; empty for a phrase without a place.
        evidence: where the phrases are, all together, by which the other report says it.
    """

    entailed: bool
    boxes: Sequence[Box] = ()
    evidence: Sequence[Box] = ()


@dataclass(frozen=True)
class Fractions:
    """How much of one report the other one says too; each is NaN where there is no phrase of its kind.

    Attributes:
        logical: of its phrases, the share that is entailed.
        spatial: of its phrases with boxes, the share that is entailed and whose boxes are covered by the evidence's.
        grounding: the same of its entailed phrases with boxes.
    """

    logical: float
    spatial: float
    grounding: float


def radfact_fractions(phrases: Sequence[Phrase]) -> Fractions:
    """Returns the shares of a report's phrases that hold by the other report.

    Of the report that was written they are RadFact's precisions, of the reference its recalls. Boxes are covered if
    more than half of the cells of a grid of 224 by 224 that they fill are filled by boxes of the evidence.
    """
    boxed = [one for one in phrases if one.boxes]
    covered = sum(one.entailed and _covered(one) for one in boxed)
    return Fractions(
        _share(sum(one.entailed for one in phrases), len(phrases)),
        _share(covered, len(boxed)),
        _share(covered, sum(one.entailed for one in boxed)),
    )


def radfact_f1(precisions: Sequence[float], recalls: Sequence[float]) -> float:
    """Returns RadFact's F1 of a test set: the harmonic mean of the mean precision and the mean recall.

    Args:
        precisions: by report; NaN of a report without phrases, which is left out of the mean.
        recalls: the same.

    Returns:
        In [0, 1]; 0 where both means are 0, and where no report that was written has a phrase; NaN without a recall.
    """
    values = [[one for one in some if not math.isnan(one)] for some in (precisions, recalls)]
    sums = [quantity for some in values for quantity in (math.fsum(some), float(len(some)))]
    return float(f1_of_sums(np.array(sums)))


def f1_of_sums(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The same of sum and number of precisions, and of recalls: (..., 4) -> (...)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        precision = np.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], 0.0)
        recall = sums[..., 2] / sums[..., 3]
        f1 = 2 * precision * recall / (precision + recall)
    return np.where((precision + recall) == 0, 0.0, f1)


def entailed_share(verdicts: Sequence[Mapping[str, Any] | None], *, as_published: bool = False) -> float:
    """Returns the share of phrases that a judge found entailed.

    Args:
        verdicts: by phrase, with `entailed`; None where the judge's reply could not be read.
        as_published: such phrases count as not entailed; otherwise the share is NaN where there is one.

    Returns:
        In [0, 1]; NaN of a report without phrases.
    """
    if None in verdicts and not as_published:
        return math.nan
    return _share(sum(one is not None and bool(one["entailed"]) for one in verdicts), len(verdicts))


@verdict_reader("radfact_phrases")
def read_phrases(reply: str) -> list[str] | None:
    """Returns the phrases of a reply `{"sentence_list": [{"orig": sentence, "new": [phrases]}]}`; None for no such."""
    for found in objects(reply):
        listed = found.get("sentence_list")
        if not isinstance(listed, list):
            continue
        new = [one.get("new") if isinstance(one, Mapping) else None for one in listed]
        if all(isinstance(some, list) and all(isinstance(one, str) for one in some) for some in new):
            return [one.strip() for some in new for one in some or () if one.strip()]
    return None


@verdict_reader("radfact_entailment")
def read_entailment(reply: str) -> dict[str, Any] | None:
    """Returns whether a phrase is entailed, and by what, of a reply `{"status": "entailment", "evidence": [...]}`.

    The status may be any but `entailment` of `not_entailment`, `contradiction` and `neutral`. None for another one,
    and for an entailment without evidence, which its authors take for a failure too.
    """
    for found in objects(reply):
        status, evidence = found.get("status"), found.get("evidence", [])
        if status not in ("entailment", "not_entailment", "contradiction", "neutral"):
            continue
        if not isinstance(evidence, list) or (status == "entailment" and not evidence):
            return None
        return {"entailed": status == "entailment", "evidence": [str(one) for one in evidence]}
    return None


def _share(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _covered(phrase: Phrase) -> bool:
    own, other = _cells(phrase.boxes), _cells(phrase.evidence)
    return bool((own & other).sum() > COVERED * own.sum())


def _cells(boxes: Sequence[Box]) -> npt.NDArray[np.bool_]:
    """(GRID, GRID): which cells boxes fill."""
    cells = np.zeros((GRID, GRID), np.bool_)
    for box in boxes:
        left, top, right, bottom = (int(edge * GRID) for edge in box)
        cells[left:right, top:bottom] = True
    return cells
