"""Calibration and abstention: whether confidences mean what they say, and what is gained by leaving unsure answers out.

Summaries over the rows of `probability` (classes) or `confidence` (answers) of a run. A statement is that a class is
present, with its probability, or that an answer is right, with its confidence. Where exactly one class is present in
every case, it is that the most probable class is present, so that there is one of each case (`log_loss`, `brier_score`
and the two of Cox judge all classes there too).

Values of voxels are those of medimg_eval.metrics.segmentation.probability_maps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import ReplyPair
from medimg_eval.metrics.calibration import curves as arithmetic
from medimg_eval.metrics.calibration.curves import Floats, decided, every, levelled, said, whole_number
from medimg_eval.metrics.classification import Curve, roc_area
from medimg_eval.metrics.registry import Rows, metric, summary

Judge: TypeAlias = Callable[[Floats], Floats]

EVIDENCE = ("probability", "confidence")
"""Either is enough."""

BINS = 15
"""Of the parts of a Brier score."""

_GUO = "Guo et al., ICML 2017, arXiv 1706.04599"
_NAEINI = "Naeini et al., AAAI 2015, doi 10.1609/aaai.v29i1.9602"
_NGUYEN = "Nguyen and O'Connor, EMNLP 2015, doi 10.18653/v1/D15-1182"
_COX = "Cox, Biometrika 1958, doi 10.1093/biomet/45.3-4.562; Van Calster et al., BMC Medicine 2019"
_GEIFMAN = "Geifman et al., ICLR 2019, arXiv 1805.08206"
_ELYANIV = "El-Yaniv and Wiener, JMLR 2010"


@metric(
    kind="answer",
    title="Confidence",
    higher_is_better=None,
    best=math.nan,
    worst=math.nan,
    source="this package",
    evidence=True,
)
def confidence(pair: ReplyPair) -> float:
    """How sure a model was of its answer, 0 to 1; the row's status says whether it was right.

    Evidence: tables show the summaries that are computed from it. What the reply says of it: of a model that chooses by
    likelihood the probability of its choice among the options, of one that writes what it calls its confidence. NaN
    where it says nothing, where there is no answer or no preference, and of answers that `accuracy` does not judge.
    """
    if pair.confidence is None or pair.status in ("unparsed", "refused", "empty") or len(pair.preferred) > 1:
        return math.nan
    return pair.confidence if pair.kind in ("choice", "choices", "yes_no", "number", "point") else math.nan


def vote_confidence(votes: Sequence[int], options: int) -> float:
    """Returns how sure of its answer a model is that was asked several times: 1 - H / log K, 0 to 1.

    H is the entropy of the shares of its votes with the correction of Miller and Madow, (m - 1) / 2T for m answers that
    got a vote; without it, a guesser among 4 options would be 0.12 sure after 10 votes.

    Args:
        votes: how often each answer was given, T in all.
        options: K, how many there are to choose from, two or more.

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


def _once(judge: Judge, rows: Rows) -> float:
    """Returns the value of rows that each count once."""
    return float(judge(np.ones((1, rows.value.size)))[0]) if rows.value.size else math.nan


def _remarked(rows: Rows, *_: Any) -> str:
    """Says how many of the cases have a confidence, where not all have."""
    number = len(np.unique(rows.case[every(rows).place]))
    if number == rows.cases or not number or (rows.metric == EVIDENCE[0]).any():
        return ""
    return f"Confidences: {number} of {rows.cases} answers have one; the others count in no value computed from them."


def _calibration(
    title: str, source: str, *, best: float, better: bool | None, remark: Callable[..., str] = _remarked, **more: Any
) -> Callable[[Any], Any]:
    """Registers a summary of confidences; `more` is as for `summary`."""
    return summary(
        needs=EVIDENCE, title=title, source=source, best=best, higher_is_better=better, remark=remark, **more
    )


def _errors(rows: Rows, bins: float) -> Judge:
    levels, number = levelled(said(rows)), whole_number(bins)
    if not levels.order.size:
        return lambda times: np.full(len(times), math.nan)
    return lambda times: arithmetic.gap(*arithmetic.equal_mass(times, levels, number))


def _luck(title: str, places: Callable[[Floats, int], Any]) -> Callable[..., str]:
    """Makes the remark of what a calibration error would be by luck alone."""

    def remark(rows: Rows, bins: float) -> str:
        stated = said(rows)
        if not stated.sure.size:
            return ""
        expected = arithmetic.by_luck(stated.sure, places(stated.sure, whole_number(bins)))
        told = f"{title}@{bins:g}: confidences that mean exactly what they say would reach about {expected:.3f} here."
        return " ".join(filter(None, [told, _remarked(rows)]))

    return remark


@_calibration(
    "ECE (equal mass)",
    f"{_NGUYEN}; {_GUO}",
    best=0.0,
    better=False,
    parameter="number of bins",
    weighed=_errors,
    remark=_luck("ECE (equal mass)", arithmetic.mass_places),
)
def ece_mass(rows: Rows, bins: float) -> float:
    """The expected calibration error in bins of equal numbers: the mean of |share right - mean confidence| of the bin.

    Statements of equal confidence share the bin in which the middle of their ranks lies. Of few statements it is far
    above 0 even where all confidences are right; a note says how far. In [0, 1].

    Raises:
        UsageError: `bins` is not a whole number of 1 or more.
    """
    return _once(_errors(rows, bins), rows)


def _width_pieces(rows: Rows, bins: float) -> Floats:
    """What each row adds to the bins' sums of right less confidence, and to their number: (row, bin + 1)."""
    stated, number = said(rows), whole_number(bins)
    added = np.zeros((rows.value.size, number + 1))
    added[stated.place, arithmetic.equal_width(stated.sure, number)] = stated.right - stated.sure
    added[stated.place, number] = 1
    return added


@_calibration(
    "ECE (equal width)",
    f"{_NAEINI}; {_GUO}",
    best=0.0,
    better=False,
    parameter="number of bins",
    pieces=_width_pieces,
    remark=_luck("ECE (equal width)", arithmetic.equal_width),
)
def ece_width(sums: Floats, bins: float) -> Floats:
    """The expected calibration error in bins of equal width: the mean of |share right - mean confidence| of the bin.

    [l, r) holds its lower edge, and the last bin 1 too. The name `ece` is that of voxels. In [0, 1].

    Raises:
        UsageError: `bins` is not a whole number of 1 or more.
    """
    return arithmetic.share(np.abs(sums[..., :-1]).sum(axis=-1), sums[..., -1])


def _excess_pieces(rows: Rows) -> Floats:
    stated = decided(rows)
    added = np.zeros((rows.value.size, 2))
    added[stated.place] = np.stack([stated.sure - stated.right, np.ones_like(stated.sure)], axis=1)
    return added


@_calibration("Calibration shift", "MedQ-Deg, its calibration shift", best=0.0, better=None, pieces=_excess_pieces)
def calibration_shift(sums: Floats) -> Floats:
    """How much surer a model is than it is right: its mean confidence less the share of its decisions that are right.

    Above 0 it is too sure. A class that does not exclude others is decided at 0.5. In [-1, 1].
    """
    return arithmetic.share(sums[..., 0], sums[..., 1])


def _brier_pieces(rows: Rows) -> Floats:
    stated = every(rows)
    added = np.zeros((rows.value.size, 2))
    added[stated.place] = np.stack([(stated.sure - stated.right) ** 2, np.ones_like(stated.sure)], axis=1)
    return added


def _parts(rows: Rows) -> str:
    stated = every(rows)
    if not stated.sure.size:
        return ""
    place = arithmetic.mass_places(stated.sure, BINS)
    reliability, resolution, uncertainty, left = arithmetic.murphy(stated.sure, stated.right, place)
    told = (
        f"Brier score = reliability {reliability:.3f} - resolution {resolution:.3f} + uncertainty {uncertainty:.3f} "
        f"+ {left:.3f} within {BINS} bins of equal mass (Murphy 1973)."
    )
    return " ".join(filter(None, [told, _remarked(rows)]))


@_calibration("Brier score", "Brier 1950; Murphy 1973", best=0.0, better=False, pieces=_brier_pieces, remark=_parts)
def brier_score(sums: Floats) -> Floats:
    """The mean over statements of (confidence - right)^2, right being 1 or 0.

    Of classes that exclude each other it is over all of them: Brier's own score is their number times that. In [0, 1].
    """
    return arithmetic.share(sums[..., 0], sums[..., 1])


def _loss_pieces(rows: Rows) -> Floats:
    stated = every(rows)
    added = np.zeros((rows.value.size, 2))
    true = np.where(stated.right > 0, stated.sure, 1 - stated.sure)
    counted = stated.right if arithmetic.exclusive(rows) else np.ones_like(stated.sure)
    added[stated.place] = np.stack([-np.log(np.clip(true, arithmetic.CLIP, 1)) * counted, counted], axis=1)
    return added


@_calibration(
    "Log loss", "Good 1952; scikit-learn's log_loss", unit="nats", best=0.0, better=False, pieces=_loss_pieces
)
def log_loss(sums: Floats) -> Floats:
    """The mean negative log-likelihood, in nats: -log of the probability that was given to what is true.

    Of classes that exclude each other that of the class that is present, once a case. Probabilities are kept above
    1e-7, so that one that was called impossible costs 16.1. The name `nll` is that of voxels.
    """
    return arithmetic.share(sums[..., 0], sums[..., 1])


def _slope(rows: Rows) -> Judge:
    return partial(arithmetic.logistic, stated=every(rows), slope=True)


@_calibration("Calibration slope", _COX, best=1.0, better=None, weighed=_slope)
def calibration_slope(rows: Rows) -> float:
    """The slope of a logistic regression of right on the log odds of the confidence.

    Below 1 confidences are too extreme, above 1 too timid. Maximum likelihood, without a penalty; log odds are those of
    confidences between 1e-7 and 1 - 1e-7. NaN where there is no estimate: all right, all wrong, or told apart wholly.
    """
    return _once(_slope(rows), rows)


def _intercept(rows: Rows) -> Judge:
    return partial(arithmetic.logistic, stated=every(rows), slope=False)


@_calibration("Calibration intercept", _COX, best=0.0, better=None, weighed=_intercept)
def calibration_intercept(rows: Rows) -> float:
    """What must be added to the log odds of all confidences for their mean to be the share that is right.

    The intercept of a logistic regression with a slope of 1: calibration in the large. Below 0 confidences are too
    high. NaN where all are right or all are wrong.
    """
    return _once(_intercept(rows), rows)


def _abstaining(rows: Rows, value: Callable[[arithmetic.Risks], Floats]) -> Judge:
    """Returns a judge of a curve of risk and coverage."""
    levels = levelled(decided(rows))
    if not levels.order.size:
        return lambda times: np.full(len(times), math.nan)
    return lambda times: value(arithmetic.risks(times, levels))


def _aurc(rows: Rows) -> Judge:
    return _abstaining(rows, arithmetic.area_under)


@_calibration("AURC", _GEIFMAN, best=0.0, better=False, weighed=_aurc)
def aurc(rows: Rows) -> float:
    """The area under the curve of risk over coverage: the mean over k of the share of wrong ones among the k surest.

    Decisions of equal confidence may stand in any order; the mean over orders is taken. It falls with the share of
    wrong decisions as well as with better confidences: see `eaurc`. In [0, 1].
    """
    return _once(_aurc(rows), rows)


def _eaurc(rows: Rows) -> Judge:
    return _abstaining(rows, lambda found: arithmetic.area_under(found) - arithmetic.least_area(found))


@_calibration("E-AURC", _GEIFMAN, best=0.0, better=False, weighed=_eaurc)
def eaurc(rows: Rows) -> float:
    """The AURC less that of the best order of the same decisions, in which every wrong one comes last.

    0 where confidences tell right from wrong. The least area is the exact one of so many wrong decisions, not the
    approximation r + (1 - r) log(1 - r). In [0, 1].
    """
    return _once(_eaurc(rows), rows)


def _risk(rows: Rows, coverage: float) -> Judge:
    if not 0 < coverage <= 1:
        raise UsageError(f"risk_at_coverage@{coverage:g}: expected a share of answers above 0, and 1 at most")
    return _abstaining(rows, lambda found: arithmetic.risk_of_surest(found, coverage))


@_calibration("Risk at coverage", _ELYANIV, best=0.0, better=False, parameter="share of answers", weighed=_risk)
def risk_at_coverage(rows: Rows, coverage: float) -> float:
    """The share of wrong decisions among the surest ones, which are so large a share of all, rounded up.

    At a level of equal confidence that is cut, its mean share of wrong ones counts. In [0, 1].

    Raises:
        UsageError: the share is not above 0, or above 1.
    """
    return _once(_risk(rows, coverage), rows)


def _coverage(rows: Rows, risk: float) -> Judge:
    if not 0 <= risk < 1:
        raise UsageError(f"coverage_at_risk@{risk:g}: expected a share of wrong answers below 1")
    return _abstaining(rows, lambda found: arithmetic.most_covered(found, risk))


@_calibration(
    "Coverage at risk", _GEIFMAN, best=1.0, better=True, parameter="share of wrong answers", weighed=_coverage
)
def coverage_at_risk(rows: Rows, risk: float) -> float:
    """The largest share of decisions above a threshold of confidence, of which at most so many are wrong.

    The threshold is chosen on these very decisions, which flatters it: on other data the risk will be higher. 0 where
    no threshold will do. In [0, 1].

    Raises:
        UsageError: the share of wrong ones is 1 or more.
    """
    return _once(_coverage(rows, risk), rows)


def _ranked(rows: Rows) -> Judge:
    levels = levelled(decided(rows))
    if not levels.order.size:
        return lambda times: np.full(len(times), math.nan)
    curve = Curve(levels.order, levels.right, levels.starts)
    return lambda times: roc_area(times[:, levels.order], curve)


@_calibration("Confidence AUROC", "Hendrycks and Gimpel, ICLR 2017", best=1.0, better=True, weighed=_ranked)
def confidence_auroc(rows: Rows) -> float:
    """How often a right decision is surer than a wrong one, ties counting one half.

    The area under the ROC curve of confidence for being right. NaN where all are right or all are wrong. In [0, 1].
    """
    return _once(_ranked(rows), rows)
