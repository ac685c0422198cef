"""What was said with which confidence, and whether it was so.

A statement is that a class is present, with its probability, or that an answer is right, with its confidence. Where
exactly one class is present in every case, it is that the most probable class is present, so that there is one of each
case (`log_loss`, `brier_score` and the two of Cox judge all classes there too). Rows of equal confidence always stand
together, so that no value depends on the order in which ties happen to lie.

Values of voxels are those of medimg_eval.metrics.segmentation.probability_maps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.arrays import Floats, Ints
from medimg_eval.metrics.classification import CLASSES, EXCLUSIVE, PRESENT, THRESHOLD
from medimg_eval.metrics.declarations import evidence_metric
from medimg_eval.metrics.registry import ScoreTable, summary

RIGHT, WRONG = "right", "wrong"
"""Statuses of rows of `confidence`."""

EVIDENCE = ("probability", "confidence")
"""Either is enough."""


ROUNDING = 1e-6
"""Confidences that differ by less are the same."""


class Stated(NamedTuple):
    """Confidence of a statement, and whether it was so.

    Attributes:
        place: (statement,), the row that it stands for.
        sure: (statement,), confidence, 0 to 1.
        right: (statement,), 1 where it was so, 0 elsewhere; of n classes equally probable, 1/n where one is present.
    """

    place: Ints
    sure: Floats
    right: Floats


class Levels(NamedTuple):
    """Statements in the order of their confidence, least sure first.

    Attributes:
        order: (statement,), the row of each.
        sure: (statement,).
        right: (statement,).
        starts: (level,), the first of each group of equal confidence.
    """

    order: Ints
    sure: Floats
    right: Floats
    starts: Ints

    def sums(self, times: Floats, values: Floats) -> Floats:
        """Returns sums over each level's statements, (resample, level)."""
        weighed = times[:, self.order] * values
        if len(self.starts) == len(self.order):
            return weighed
        return np.asarray(np.add.reduceat(weighed, self.starts, axis=1), dtype=np.float64)


def exclusive(rows: ScoreTable) -> bool:
    """Returns whether exactly one class is present in every case."""
    return rows.facts.get(CLASSES) == EXCLUSIVE


def every(rows: ScoreTable) -> Stated:
    """Returns a statement per row: class present or answer right."""
    indices = np.flatnonzero(np.isin(rows.status, (PRESENT, "absent", RIGHT, WRONG)) & ~np.isnan(rows.value))
    so = np.isin(rows.status[indices], (PRESENT, RIGHT)).astype(np.float64)
    return Stated(indices.astype(np.int64), rows.value[indices], so)


def top(rows: ScoreTable) -> Stated:
    """Returns a statement per case of exclusive classes: the top class is present."""
    stated = every(rows)
    if not stated.place.size:
        return stated
    case = rows.case[stated.place]
    order = np.lexsort((-stated.sure, case))
    first = order[np.flatnonzero(np.append(True, np.diff(case[order]) != 0))]
    owner = np.searchsorted(case[first], case)
    equal = stated.sure == stated.sure[first][owner]
    share = np.bincount(owner, weights=stated.right * equal) / np.bincount(owner, weights=equal)
    return Stated(stated.place[first], stated.sure[first], np.asarray(share, dtype=np.float64))


def said(rows: ScoreTable) -> Stated:
    """Returns statements for calibration errors: of exclusive classes the top, else all rows."""
    return top(rows) if exclusive(rows) else every(rows)


def decided(rows: ScoreTable) -> Stated:
    """Returns decisions for abstention, with confidence and correctness.

    A class that does not exclude others is predicted present above 0.5, and the confidence is then its
    probability, otherwise 1 minus that.
    """
    if exclusive(rows):
        return top(rows)
    stated = every(rows)
    classes = np.isin(rows.status[stated.place], (PRESENT, "absent"))
    present = stated.sure > THRESHOLD
    sure = np.where(classes & ~present, 1 - stated.sure, stated.sure)
    right = np.where(classes, present == (stated.right > 0), stated.right > 0)
    return Stated(stated.place, sure, right.astype(np.float64))


def levelled(stated: Stated) -> Levels:
    """Returns statements in the order of their confidence."""
    order = np.argsort(stated.sure, kind="stable")
    sure = stated.sure[order]
    starts = np.flatnonzero(np.append(True, np.diff(sure) != 0))[: sure.size] if sure.size else np.zeros(0, np.intp)
    return Levels(stated.place[order], sure, stated.right[order], starts.astype(np.int64))


@evidence_metric(kind="answer", title="Confidence", value_kind="bounded")
def confidence(pair: AnsweredQuestion) -> float:
    """How sure a model was of its answer, 0 to 1; the row's status says whether it was right.

    Evidence: tables show the summaries that are computed from it. What the reply says of it: of a model that chooses by
    likelihood the probability of its choice among the options, of one that writes what it calls its confidence. NaN
    where it says nothing, where there is no answer or no preference, and of answers that `accuracy` does not judge.
    """
    if pair.confidence is None or pair.status in ("unparsed", "refused", "empty") or len(pair.preferred) > 1:
        return math.nan
    return pair.confidence if pair.kind in ("choice", "choices", "yes_no", "number", "point") else math.nan


@evidence_metric(kind="answer", title="Probability of an option", value_kind="bounded")
def option_probability(pair: AnsweredQuestion) -> Mapping[str, float]:
    """The probability of each option of a question with one right option; the row's status says which is right.

    Evidence for conformal sets of options, which the command `confidence` makes. The softmax of the options'
    log-likelihoods, under their letters; none where the model's confidence is not that of such a softmax.
    """
    if pair.kind not in ("choice", "yes_no") or not pair.preferences or pair.confidence is None:
        return {}
    logits = np.array(list(pair.preferences.values()), dtype=np.float64)
    if not np.isfinite(logits).all() or right_option(pair) is None:
        return {}
    weights = np.exp(logits - logits.max())
    shares = weights / weights.sum()
    if abs(float(shares.max()) - pair.confidence) > ROUNDING:
        return {}
    return dict(zip(pair.preferences, shares.tolist(), strict=True))


def right_option(pair: AnsweredQuestion) -> str | None:
    """Returns the only right option with a preference, or None."""
    options = pair.preferences or {}
    right = [letter for letter in options if pair.value in (letter, [letter], pair.options.get(letter, letter).lower())]
    return right[0] if len(right) == 1 else None


def vote_confidence(votes: Sequence[int], options: int) -> float:
    """Returns vote confidence: 1 - H / log K.

    How sure of its answer a model is that was asked several times, 0 to 1. H is the entropy of the shares of
    its votes with the correction of Miller and Madow, (m - 1) / 2T for m of the K options, two or more, that
    got one of T votes; without it, a guesser among 4 options would be 0.12 sure after 10 votes.

    Raises:
        ValueError: there is no vote, or there are fewer than two options or fewer than answers.

    >>> vote_confidence([10, 0, 0, 0], 4)
    1.0
    """
    counts = np.array([count for count in votes if count], dtype=np.float64)
    if not counts.size or (counts < 0).any() or options < 2 or len(counts) > options:
        raise ValueError(f"Expected votes for at most `options` >= 2 answers, got {list(votes)} and {options}")
    shares = counts / counts.sum()
    entropy = float(-(shares @ np.log(shares))) + (len(counts) - 1) / (2 * float(counts.sum()))
    return float(np.clip(1 - entropy / math.log(options), 0, 1))


def remarked(rows: ScoreTable, *_: Any) -> str:
    """Says how many of the cases have a confidence, where not all have."""
    number = len(np.unique(rows.case[every(rows).place]))
    if number == rows.cases or not number or (rows.metric == EVIDENCE[0]).any():
        return ""
    return f"Confidences: {number} of {rows.cases} answers have one; the others count in no value computed from them."


confidence_summary = partial(summary, needs=EVIDENCE, remark=remarked)
