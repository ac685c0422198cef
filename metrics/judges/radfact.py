"""RadFact: the phrases of a report that the other one says too, as a judge, another model, finds.

A judge first lists the phrases of both reports, and is then asked about each of them whether it holds by those of the
other. Shares of what it found are arithmetic, public here, also with boxes. A reply that cannot be read is no verdict;
what its authors make of it has a name of its own, `..._as_published`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share, share_summary
from medimg_eval.metrics.judges.verdicts import objects, verdict_reader, worth
from medimg_eval.metrics.registry import ScoreTable, judge_says

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
    """RadFact fractions: share of a report that the other entails.

    NaN each where there is no phrase of its kind.

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

    For the report that was written they are RadFact's precisions, for the reference its recalls. Boxes are covered if
    more than half of the cells of a grid of 224 by 224 that they fill are filled by boxes of the evidence.
    """
    boxed = [phrase for phrase in phrases if phrase.boxes]
    covered = sum(phrase.entailed and _is_covered(phrase) for phrase in boxed)
    return Fractions(
        _safe_ratio(sum(phrase.entailed for phrase in phrases), len(phrases)),
        _safe_ratio(covered, len(boxed)),
        _safe_ratio(covered, sum(phrase.entailed for phrase in boxed)),
    )


def radfact_f1(precisions: Sequence[float], recalls: Sequence[float]) -> float:
    """Returns RadFact's F1 of a test set: harmonic mean of mean precision and recall.

    Args:
        precisions: by report; NaN of a report without phrases, which is left out of the mean.
        recalls: the same.

    Returns:
        In [0, 1]; 0 where both means are 0, and where no report that was written has a phrase; NaN without a recall.
    """
    values = [[value for value in some if not math.isnan(value)] for some in (precisions, recalls)]
    sums = [quantity for some in values for quantity in (math.fsum(some), float(len(some)))]
    return float(f1_of_sums(np.array(sums)))


def f1_of_sums(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """RadFact's F1 of (..., 4) sums and numbers of both."""
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
    return _safe_ratio(sum(verdict is not None and bool(verdict["entailed"]) for verdict in verdicts), len(verdicts))


@verdict_reader("radfact_phrases")
def read_phrases(reply: str) -> list[str] | None:
    """Returns the phrases of a reply `{"sentence_list": [{"orig": sentence, "new": [phrases]}]}`; None for no such."""
    for content in objects(reply):
        listed = content.get("sentence_list")
        if not isinstance(listed, list):
            continue
        new = [item.get("new") if isinstance(item, Mapping) else None for item in listed]
        if all(isinstance(some, list) and all(isinstance(text, str) for text in some) for some in new):
            return [text.strip() for some in new for text in some or () if text.strip()]
    return None


@verdict_reader("radfact_entailment")
def read_entailment(reply: str) -> dict[str, Any] | None:
    """Returns whether a phrase is entailed, and by what, of a reply `{"status": "entailment", "evidence": [...]}`.

    The status may be any but `entailment` of `not_entailment`, `contradiction` and `neutral`. None for another one,
    and for an entailment without evidence, which its authors take for a failure too.
    """
    for content in objects(reply):
        status, evidence = content.get("status"), content.get("evidence", [])
        if status not in ("entailment", "not_entailment", "contradiction", "neutral"):
            continue
        if not isinstance(evidence, list) or (status == "entailment" and not evidence):
            return None
        return {"entailed": status == "entailment", "evidence": [str(item) for item in evidence]}
    return None


def _safe_ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _is_covered(phrase: Phrase) -> bool:
    own, evidence_cells = _box_cells(phrase.boxes), _box_cells(phrase.evidence)
    return bool((own & evidence_cells).sum() > COVERED * own.sum())


def _box_cells(boxes: Sequence[Box]) -> npt.NDArray[np.bool_]:
    """(GRID, GRID): which cells boxes fill."""
    cells = np.zeros((GRID, GRID), np.bool_)
    for box in boxes:
        left, top, right, bottom = (int(edge * GRID) for edge in box)
        cells[left:right, top:bottom] = True
    return cells


BANNUR = "Bannur et al. 2024, RadFact"
SETTINGS = "RadFact's published instructions without its examples, one phrase at a time"

_PHRASES = ("radfact_reference_phrases", "radfact_prediction_phrases")

_radfact = partial(answer_share, source=BANNUR, settings=SETTINGS)


def _entailed_value(pair: AnsweredQuestion, side: str, *, as_published: bool = False) -> float:
    return worth(pair, side, lambda found: entailed_share(found["verdicts"], as_published=as_published))


@_radfact(title="RadFact precision", requires=judge_says(*_PHRASES, "radfact_prediction"))
def radfact_precision(pair: AnsweredQuestion) -> float:
    """The share of the phrases that were written which the reference says too, by a judge (logical precision).

    NaN of a report without phrases, such as an empty one, which is left out of the mean; and where a reply about one
    of them cannot be read.
    """
    return _entailed_value(pair, "radfact_prediction")


@_radfact(title="RadFact recall", requires=judge_says(*_PHRASES, "radfact_reference"))
def radfact_recall(pair: AnsweredQuestion) -> float:
    """The share of the reference's phrases which the report that was written says too, by a judge (logical recall).

    0 of an empty report. NaN of a reference without phrases, and where a reply about one of them cannot be read.
    """
    return _entailed_value(pair, "radfact_reference")


@_radfact(title="RadFact precision (unread as not entailed)", requires=judge_says(*_PHRASES, "radfact_prediction"))
def radfact_precision_as_published(pair: AnsweredQuestion) -> float:
    """RadFact's precision with replies that cannot be read as not entailed, which is its authors' rule.

    NaN of a report without phrases, and where its phrases themselves cannot be read.
    """
    return _entailed_value(pair, "radfact_prediction", as_published=True)


@_radfact(title="RadFact recall (unread as not entailed)", requires=judge_says(*_PHRASES, "radfact_reference"))
def radfact_recall_as_published(pair: AnsweredQuestion) -> float:
    """RadFact's recall with replies that cannot be read as not entailed, which is its authors' rule.

    NaN of a reference without phrases, and where its phrases themselves cannot be read.
    """
    return _entailed_value(pair, "radfact_reference", as_published=True)


def _precisions_and_recalls(rows: ScoreTable) -> npt.NDArray[np.float64]:
    """Row contributions to precisions' and recalls' sums and counts."""
    is_known = ~np.isnan(rows.value)
    values = np.where(is_known, rows.value, 0.0)
    recall = np.char.startswith(rows.metric.astype(str), "radfact_recall")
    columns = [array * side for side in (~recall, recall) for array in (values, is_known)]
    return np.column_stack(columns).astype(np.float64)


_f1 = partial(share_summary, source=BANNUR, settings=SETTINGS, pieces=_precisions_and_recalls)


@_f1(needs=("radfact_precision", "radfact_recall"), title="RadFact F1", name="radfact_f1")
def _f1_of_shares(sums: npt.NDArray[np.float64]) -> Any:
    """The harmonic mean of RadFact's mean precision and mean recall over reports (logical F1).

    Reports without phrases on a side are left out of that side's mean. 0 where both means are, and where no report
    that was written has a phrase.
    """
    return f1_of_sums(sums)


@_f1(
    needs=("radfact_precision_as_published", "radfact_recall_as_published"),
    title="RadFact F1 (unread as not entailed)",
    name="radfact_f1_as_published",
)
def _f1_as_published(sums: npt.NDArray[np.float64]) -> Any:
    """RadFact's F1 with replies that cannot be read as not entailed, which is its authors' rule."""
    return f1_of_sums(sums)
