"""What runs of several seeds are worth together: an interval that speaks of other patients and of other trainings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval import metrics
from medimg_eval.results.comparison import Together, shared_cases
from medimg_eval.results.runs import Part, is_known, is_summary
from medimg_eval.results.statistics import FEWEST, Estimate, Resamples, case_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medimg_eval.results.runs import RunScores

Floats = npt.NDArray[np.float64]


class Drawn(NamedTuple):
    """What runs are worth by one metric.

    Attributes:
        worth: (run,), NaN where it is undefined.
        resampled: (run, resample), on the same resamples of the same patients; NaN where it is undefined.
    """

    worth: Floats
    resampled: Floats


def resample_runs(runs: Sequence[RunScores], metric: str, *, resamples: int, seed: int) -> Drawn:
    """Returns what each of several runs on one test set is worth, and the same on resamples of its patients.

    As many patients as there are (or cases, where the data name none) get drawn with replacement; all runs meet the
    same draws, so that differences between them are paired. Only cases count that all runs were judged on. Of fewer
    than `FEWEST` patients there are no resamples, as in tables.

    Args:
        runs: finished runs of one task.
        metric: a metric of cases, or a summary.
        resamples: number of resamples; summaries take at most 1,000.
        seed: of the draws.
    """
    parts = [Part.whole(run) for run in runs]
    if is_summary(metric):
        together = Together(metric, parts)
        enough = together.patients >= FEWEST
        none = np.empty((len(parts), 0))
        return Drawn(together.worth, together.resampled(resamples=resamples, seed=seed) if enough else none)
    shared = shared_cases(parts)
    names = np.unique(shared.to_numpy(dtype=str))
    features = np.zeros((len(names), 2 * len(parts)))
    for place, part in enumerate(parts):
        cases = case_values(part.scores.loc[part.scores["metric"] == metric])["value"].dropna()
        cases = cases.loc[cases.index.isin(shared.index)]
        owner = np.searchsorted(names, shared.loc[cases.index].to_numpy(dtype=str))
        np.add.at(features[:, 2 * place], owner, cases.to_numpy(dtype=np.float64))
        np.add.at(features[:, 2 * place + 1], owner, 1.0)
    drawn = features[:0]
    if len(names) >= FEWEST:
        drawn = Resamples(len(names), resamples=resamples, seed=seed).sums(features)
    return Drawn(_means(features.sum(axis=0)[None])[:, 0], _means(drawn))


def _means(sums: Floats) -> Floats:
    """Returns (run, resample) of what holds the sum and the count of each run in turn, (resample, 2 * run)."""
    total, count = sums[:, ::2], sums[:, 1::2]
    found = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return np.asarray(found.T, dtype=np.float64)


def over_seeds(drawn: Drawn, *, level: float, seed: int) -> Estimate:
    """Returns the mean over seeds with an interval that speaks of other patients and of other seeds.

    To the mean over seeds on each resample of patients is added what other seeds could make of it: s / sqrt(S) times a
    value of Student's distribution with S - 1 degrees of freedom, s being the standard deviation over the S seeds.
    These values are spread evenly over the distribution, and put into an order drawn at random. The bounds are the
    (1 - level) / 2 and (1 + level) / 2 quantiles of the sums. To draw from three seeds with replacement instead would
    miss the truth in one interval out of six where training varies much. With one seed only patients are resampled.

    Args:
        drawn: of runs that differ in their seed alone, or differences of such runs.
        level: coverage of the interval.
        seed: of that order.

    Returns:
        NaN where no seed has a value; the bounds are NaN without resamples, and where most of them have no value.
    """
    known = ~np.isnan(drawn.worth)
    if not known.any():
        return Estimate()
    values = drawn.worth[known]
    value, count = float(values.mean()), len(values)
    means = drawn.resampled[known].mean(axis=0)
    if count > 1:
        from scipy.special import stdtrit

        order = np.random.default_rng(seed).permutation(means.size)
        means = means + stdtrit(count - 1, (order + 0.5) / means.size) * values.std(ddof=1) / math.sqrt(count)
    defined = means[~np.isnan(means)]
    if defined.size * 2 < means.size or not defined.size:
        return Estimate(value)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value, float(low), float(high))


def within_range(found: Estimate, metric: str) -> Estimate:
    """Returns it with no bound beyond the best value that a metric has, or the worst, where they are known."""
    known = metrics.get(metric) if is_known(metric) else None
    if known is None or known.higher_is_better is None:
        return found
    best, worst = known.best, math.nan if known.worst == "diagonal" else float(known.worst)
    least, most = (worst, best) if known.higher_is_better else (best, worst)
    # Of an end that is not known, fmin and fmax keep the bound itself.
    low, high = (float(np.fmin(np.fmax(bound, least), most)) for bound in (found.low, found.high))
    return found._replace(low=low, high=high) if not math.isnan(found.low) else found
