"""Studies of utility as the command leaves them, and what their models of several seeds are worth together."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval import metrics
from medimg_eval.errors import UserError
from medimg_eval.results.comparison import Together, shared_cases
from medimg_eval.results.runs import Part, RunScores, is_known, is_summary, load_runs
from medimg_eval.results.statistics import FEWEST, Estimate, Resamples, case_values, quantiles

if TYPE_CHECKING:
    from pathlib import Path

STUDY = "utility.json"
"""The file that tells what was trained, in the study's folder."""

SCHEMA = 1
"""Of that file."""

REAL, SYNTHETIC, AUGMENTED = "real", "synthetic", "augmented"
TSTR, GAIN = "tstr", "augmentation_gain"
"""Trained on synthetic cases and tested on real ones; and what synthetic cases add to real ones."""

FEW_SEEDS = 3


@dataclass(frozen=True, eq=False)
class Trained:
    """One model of a study.

    Attributes:
        setting: what it was trained on: `real`, `synthetic`, `mixed` or `augmented`.
        fraction: of the patients.
        seed: of the training, and of the order in which patients are taken.
        cases: real and synthetic cases it was trained on.
        run: its test on the real test cases; None where there is none.
        failure: why, where something went wrong.
    """

    setting: str
    fraction: float
    seed: int
    cases: tuple[int, int] = (0, 0)
    run: RunScores | None = None
    failure: str = ""

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"{self.setting}, {100 * self.fraction:g} %, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class Study:
    """Models trained on real and synthetic cases, tested on the same real.

    Attributes:
        folder: where it lies.
        task: that they were trained for.
        title: of the task.
        model: what they are called.
        synthetic: where the synthetic cases are from: of a synthesis run `run`, `task`, `model` and `settings`.
        metric: the task's metric that a card shows.
        trained: the models.
    """

    folder: Path
    task: str
    title: str
    model: str
    synthetic: Mapping[str, str]
    metric: str
    trained: tuple[Trained, ...]

    @property
    def runs(self) -> list[RunScores]:
        """The tests that are finished."""
        return [trained.run for trained in self.trained if trained.run is not None]


class Worth(NamedTuple):
    """Value of training on something.

    Attributes:
        setting: what was trained on.
        fraction: of the patients.
        seeds: that were trained.
        value: mean over seeds.
        gain: the same less that of training on real cases alone, with the same fraction and seeds.
        paired: seeds that the gain rests on.
    """

    setting: str
    fraction: float
    seeds: int
    value: Estimate
    gain: Estimate
    paired: int


def load_utility(paths: Sequence[Path]) -> list[Study]:
    """Reads studies at or below `paths`, sorted by folder.

    Raises:
        UserError: a study, or a run of it, cannot be read.
    """
    files = {file.resolve() for path in paths for file in path.rglob(STUDY)}
    return [_read_study(file) for file in sorted(files)]


def _read_study(file: Path) -> Study:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        trained = tuple(_read_trained(file.parent, cell) for cell in content["cells"])
        names = {key: str(content[key]) for key in ("task", "title", "model", "metric")}
        return Study(file.parent, synthetic=content["synthetic"], trained=trained, **names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: cannot be read as a study of utility ({error}); run utility again") from error


def _read_trained(folder: Path, told: Mapping[str, Any]) -> Trained:
    run = None
    if told["status"] == "finished":
        (run,) = load_runs([folder / told["folder"] / "test"])
        run = run if run.finished else None
    cases = (int(told["cases"]["real"]), int(told["cases"]["synthetic"]))
    return Trained(told["setting"], float(told["fraction"]), int(told["seed"]), cases, run, str(told["failure"]))


def find_worths(study: Study, metric: str, *, resamples: int, level: float, seed: int) -> list[Worth]:
    """Returns value by setting and fraction, under one metric.

    Settings and fractions are in the order of their first occurrence.

    Intervals speak of other patients (or cases, where the data name no patients) and of other seeds; see `over_seeds`.
    A gain pairs runs of one seed and fraction on the same patients.
    """
    done = [trained for trained in study.trained if trained.run is not None]
    drawn = resample_runs(study.runs, metric, resamples=resamples, seed=seed) if done else EMPTY
    index_of = {(trained.setting, trained.fraction, trained.seed): index for index, trained in enumerate(done)}

    def estimate(at: Sequence[int], less: Sequence[int] = ()) -> Estimate:
        if not at:
            return Estimate()
        own, second = ([side[list(some)] for side in drawn] for some in (at, less or at))
        difference = Drawn(own[0] - second[0], own[1] - second[1]) if less else Drawn(*own)
        return over_seeds(difference, level=level, seed=seed)

    worths = []
    for setting, fraction in dict.fromkeys((trained.setting, trained.fraction) for trained in study.trained):
        own = {seed: index for (*which, seed), index in index_of.items() if which == [setting, fraction]}
        paired = {} if setting == REAL else {seed: index_of.get((REAL, fraction, seed)) for seed in own}
        rivals = [index for index in paired.values() if index is not None]
        value = within_range(estimate(list(own.values())), metric)
        gain = estimate([own[seed] for seed, index in paired.items() if index is not None], rivals)
        worths.append(Worth(setting, fraction, len(own), value, gain, len(rivals)))
    return worths


Floats = npt.NDArray[np.float64]


class Drawn(NamedTuple):
    """Values of runs by one metric.

    Attributes:
        worth: (run,), NaN where it is undefined.
        resampled: (run, resample), on the same resamples of the same patients; NaN where it is undefined.
    """

    worth: Floats
    resampled: Floats


EMPTY = Drawn(np.empty(0), np.empty((0, 0)))


def resample_runs(runs: Sequence[RunScores], metric: str, *, resamples: int, seed: int) -> Drawn:
    """Returns values of runs on a test set, with shared resamples.

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
    for index, part in enumerate(parts):
        cases = case_values(part.scores.loc[part.scores["metric"] == metric])["value"].dropna()
        cases = cases.loc[cases.index.isin(shared.index)]
        owner = np.searchsorted(names, shared.loc[cases.index].to_numpy(dtype=str))
        np.add.at(features[:, 2 * index], owner, cases.to_numpy(dtype=np.float64))
        np.add.at(features[:, 2 * index + 1], owner, 1.0)
    drawn = features[:0]
    if len(names) >= FEWEST:
        drawn = Resamples(len(names), resamples=resamples, seed=seed).sums(features)
    return Drawn(_mean_ratios(features.sum(axis=0)[None])[:, 0], _mean_ratios(drawn))


def _mean_ratios(sums: Floats) -> Floats:
    """Returns (run, resample) ratios of sums and counts."""
    total, count = sums[:, ::2], sums[:, 1::2]
    means = np.divide(total, count, out=np.full(count.shape, np.nan), where=count > 0)
    return np.asarray(means.T, dtype=np.float64)


def over_seeds(drawn: Drawn, *, level: float, seed: int) -> Estimate:
    """Returns the mean over seeds, with patient and seed uncertainty.

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
    is_known = ~np.isnan(drawn.worth)
    if not is_known.any():
        return Estimate()
    values = drawn.worth[is_known]
    value, count = float(values.mean()), len(values)
    means = drawn.resampled[is_known].mean(axis=0)
    if count > 1:
        from scipy.special import stdtrit

        order = np.random.default_rng(seed).permutation(means.size)
        means = means + stdtrit(count - 1, (order + 0.5) / means.size) * values.std(ddof=1) / math.sqrt(count)
    return Estimate(value, *quantiles(means, (1 - level) / 2, (1 + level) / 2))


def within_range(found: Estimate, metric: str) -> Estimate:
    """Returns the interval clipped to the metric's range.

    A metric without a best and a worst value leaves it as it is.
    """
    definition = metrics.get(metric) if is_known(metric) else None
    if definition is None or definition.higher_is_better is None:
        return found
    best, worst = definition.best, math.nan if definition.worst == "diagonal" else float(definition.worst)
    least, most = (worst, best) if definition.higher_is_better else (best, worst)
    # Of an end that is not known, fmin and fmax keep the bound itself.
    low, high = (float(np.fmin(np.fmax(bound, least), most)) for bound in (found.low, found.high))
    return found._replace(low=low, high=high) if not math.isnan(found.low) else found
