"""What is gained by leaving unsure answers out: risk and coverage.

Summaries over the rows of `probability` (classes) or `confidence` (answers) of a run; `statements` says what is judged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.calibration.statements import Levels, confidence_summary, decided, levelled
from medimg_eval.metrics.classification import Curve, roc_area
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, Weighed

_GEIFMAN = "Geifman et al., ICLR 2019, arXiv 1805.08206"
_ELYANIV = "El-Yaniv and Wiener, JMLR 2010"

_risk_curve = partial(confidence_summary, best=0.0, higher_is_better=False, at_once=True)


class Risks(NamedTuple):
    """Statements and wrong ones by level, with running counts.

    (resample, level), the surest first; the running counts are of those before each level.
    """

    numbers: Floats
    wrong: Floats
    before: Floats
    wrong_before: Floats


def risks(times: Floats, levels: Levels) -> Risks:
    """Returns counts of statements and wrong ones, surest first."""
    numbers = levels.sums(times, np.ones_like(levels.sure))[:, ::-1]
    wrong = levels.sums(times, 1 - levels.right)[:, ::-1]
    return Risks(numbers, wrong, np.cumsum(numbers, axis=1) - numbers, np.cumsum(wrong, axis=1) - wrong)


def area_under(found: Risks) -> Floats:
    """Returns AURC: mean over k of the k surest's error.

    The error is the share of wrong ones; (resample,). Of a level of equal confidence any order is as likely,
    and the mean over orders is taken: its wrong ones are spread evenly.
    """
    rate = quotient(found.wrong, found.numbers, 0.0)
    added = harmonic(found.before + found.numbers) - harmonic(found.before)
    total = ((found.wrong_before - rate * found.before) * added + found.wrong).sum(axis=1)
    return quotient(total, found.numbers.sum(axis=1))


def least_area(found: Risks) -> Floats:
    """Returns AURC of the best order, its wrong answers least sure, (resample,)."""
    numbers, wrong = found.numbers.sum(axis=1), found.wrong.sum(axis=1)
    right = numbers - wrong
    return quotient(wrong - right * (harmonic(numbers) - harmonic(right)), numbers)


def generalised_area(found: Risks) -> Floats:
    """Returns AUGRC: area under wrong surest over all, (resample,).

    Wrong ones among the k surest over all, by trapezoids from coverage 0. The wrong ones of a level of equal
    confidence are spread evenly, as in `area_under`.
    """
    total = (found.numbers * (found.wrong_before + found.wrong / 2)).sum(axis=1)
    return quotient(total, found.numbers.sum(axis=1) ** 2)


def risk_of_surest(found: Risks, coverage: float) -> Floats:
    """Returns the error among the surest `coverage` share, (resample,)."""
    wanted = np.ceil(coverage * found.numbers.sum(axis=1, keepdims=True) - 1e-9)
    inside = np.clip(wanted - found.before, 0, found.numbers)
    wrong = (quotient(found.wrong, found.numbers, 0.0) * inside).sum(axis=1)
    return quotient(wrong, wanted[:, 0])


def most_covered(found: Risks, risk: float) -> Floats:
    """Returns the largest share answered at most `risk` wrong above a threshold, (resample,)."""
    numbers, total = found.before + found.numbers, found.numbers.sum(axis=1)
    fine = (found.wrong_before + found.wrong <= risk * numbers + 1e-9) & (found.numbers > 0)
    return quotient(np.where(fine, numbers, 0).max(axis=1, initial=0), total)


def harmonic(number: Floats) -> Floats:
    """Returns 1 + 1/2 + ... + 1/n, interpolated smoothly."""
    from scipy.special import digamma

    return np.asarray(digamma(number + 1) + np.euler_gamma, dtype=np.float64)


def _curve_judge(rows: ScoreTable, value: Callable[[Risks], Floats]) -> Weighed:
    """Returns a judge of a curve of risk and coverage."""
    levels = levelled(decided(rows))
    return lambda times: value(risks(times, levels))


@_risk_curve(title="AURC", source=_GEIFMAN)
def aurc(rows: ScoreTable) -> Weighed:
    """The area under the curve of risk over coverage: the mean over k of the share of wrong ones among the k surest.

    Decisions of equal confidence may stand in any order; the mean over orders is taken. It falls with the share of
    wrong decisions as well as with better confidences: see `eaurc`. In [0, 1].
    """
    return _curve_judge(rows, area_under)


@_risk_curve(title="E-AURC", source=_GEIFMAN)
def eaurc(rows: ScoreTable) -> Weighed:
    """The AURC less that of the best order of the same decisions, in which every wrong one comes last.

    0 where confidences tell right from wrong. The least area is the exact one of so many wrong decisions, not the
    approximation r + (1 - r) log(1 - r). In [0, 1].
    """
    return _curve_judge(rows, lambda found: area_under(found) - least_area(found))


@_risk_curve(title="AUGRC", source="Traub et al., NeurIPS 2024, arXiv 2407.01032")
def augrc(rows: ScoreTable) -> Weighed:
    """The area under wrong decisions among the surest, as a share of all decisions, over coverage.

    The mean risk of a wrong decision that is not left to a person. Unlike in `aurc` the surest do not weigh more. For
    right and wrong it is (1 - confidence AUROC) a e + e^2 / 2, of shares a of right and e of wrong ones. In [0, 0.5].
    """
    return _curve_judge(rows, generalised_area)


@_risk_curve(title="Risk at coverage", source=_ELYANIV, parameter="share of answers")
def risk_at_coverage(rows: ScoreTable, coverage: float) -> Weighed:
    """The share of wrong decisions among the surest ones, which are so large a share of all, rounded up.

    Where the cut divides answers of equal confidence, their mean share of wrong ones counts. In [0, 1].

    Raises:
        UsageError: the share is not above 0, or above 1.
    """
    if not 0 < coverage <= 1:
        raise UsageError(f"risk_at_coverage@{coverage:g}: expected a share of answers above 0, and 1 at most")
    return _curve_judge(rows, lambda found: risk_of_surest(found, coverage))


@_risk_curve(
    title="Coverage at risk", source=_GEIFMAN, best=1.0, higher_is_better=True, parameter="share of wrong answers"
)
def coverage_at_risk(rows: ScoreTable, risk: float) -> Weighed:
    """The largest share of decisions above a threshold of confidence, of which at most so many are wrong.

    The threshold is chosen on these very decisions, which flatters it: on other data the risk will be higher. 0 where
    no threshold will do. In [0, 1].

    Raises:
        UsageError: the share of wrong ones is 1 or more.
    """
    if not 0 <= risk < 1:
        raise UsageError(f"coverage_at_risk@{risk:g}: expected a share of wrong answers below 1")
    return _curve_judge(rows, lambda found: most_covered(found, risk))


@_risk_curve(title="Confidence AUROC", source="Hendrycks and Gimpel, ICLR 2017", best=1.0, higher_is_better=True)
def confidence_auroc(rows: ScoreTable) -> Weighed:
    """How often a right decision is surer than a wrong one, ties counting one half.

    The area under the ROC curve of confidence for being right. NaN where all are right or all are wrong. In [0, 1].
    """
    levels = levelled(decided(rows))
    curve = Curve(levels.order, levels.right, levels.starts)
    return lambda times: roc_area(times[:, levels.order], curve)
