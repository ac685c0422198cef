"""Calibration errors less their bias, and with bins of each class.

Summaries over the rows of `probability` (classes) or `confidence` (answers) of a run; `statements` says what is judged.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.calibration.reliability import equal_mass, whole_number
from medimg_eval.metrics.calibration.statements import Levels, Stated, confidence_summary, every, levelled, said
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, Weighed

_KUMAR = "Kumar et al., NeurIPS 2019, arXiv 1909.10155"
_NIXON = "Nixon et al., CVPR workshops 2019, arXiv 1904.01685"

_binned = partial(confidence_summary, best=0.0, higher_is_better=False, at_once=True, parameter="number of bins")


@_binned(title="ECE (debiased)", source=_KUMAR)
def ece_debiased(rows: ScoreTable, bins: float) -> Weighed:
    """The root of the mean squared gap of share right and confidence in bins of equal numbers, less its bias.

    Of a bin of n statements with a share a of right ones, (a - confidence)^2 - a (1 - a) / (n - 1) counts; one of a
    single statement counts 0. Below 0 in sum, it is 0. It is a root mean square, so above `ece_mass` where gaps differ.

    Raises:
        UsageError: `bins` is not a whole number of 1 or more.
    """
    levels, number = levelled(said(rows)), whole_number(bins)

    def errors(times: Floats) -> Floats:
        counts, right, sure = equal_mass(times, levels, number)
        share = quotient(right, counts, 0.0)
        squared = (share - quotient(sure, counts, 0.0)) ** 2 - quotient(share * (1 - share), counts - 1, 0.0)
        mean = quotient(np.where(counts > 1, counts * squared, 0).sum(axis=1), counts.sum(axis=1))
        return np.asarray(np.sqrt(np.maximum(mean, 0)), dtype=np.float64)

    return errors


@_binned(title="ACE (adaptive)", source=_NIXON)
def ace_adaptive(rows: ScoreTable, bins: float) -> Weighed:
    """Adaptive calibration error: the mean over classes and bins of equal numbers of |share present - probability|.

    Every filled bin counts the same, however many statements it holds, and so does every class. Answers to questions
    are one class. netcal's ACE is another: the average over bins of equal width. In [0, 1].

    Raises:
        UsageError: `bins` is not a whole number of 1 or more.
    """
    stated, number = every(rows), whole_number(bins)
    names = rows.label[stated.place] if (rows.metric == "probability").any() else np.zeros(stated.place.size)
    classes = [levelled(Stated(*(values[names == name] for values in stated))) for name in np.unique(names)]

    def errors(times: Floats) -> Floats:
        if not classes:
            return np.full(len(times), np.nan)
        by_class = np.stack([_mean_of_bins(times, levels, number) for levels in classes])
        is_known = ~np.isnan(by_class)
        return quotient(np.where(is_known, by_class, 0).sum(axis=0), is_known.sum(axis=0))

    return errors


def _mean_of_bins(times: Floats, levels: Levels, bins: int) -> Floats:
    """Returns the mean gap over the filled bins of one class, (resample,)."""
    counts, right, sure = equal_mass(times, levels, bins)
    return quotient(np.abs(quotient(right - sure, counts, 0.0)).sum(axis=1), (counts > 0).sum(axis=1))
