"""Studies of utility as the command leaves them: models of real and synthetic cases, and what they are worth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from medimg_eval.errors import UserError
from medimg_eval.results.runs import RunScores, load_runs
from medimg_eval.results.statistics import Estimate
from medimg_eval.results.utility.seeds import Drawn, over_seeds, resample_runs, within_range

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

EMPTY = Drawn(np.empty(0), np.empty((0, 0)))


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
        """What messages call it."""
        return f"{self.setting}, {100 * self.fraction:g} %, seed {self.seed}"


@dataclass(frozen=True, eq=False)
class Study:
    """Models that were trained on real and on synthetic cases, and tested on the same real ones.

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
        return [one.run for one in self.trained if one.run is not None]


class Worth(NamedTuple):
    """What training on something is worth.

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
    """Reads the studies that `paths` are or contain, sorted by folder; folders that are not there hold none.

    Raises:
        UserError: a study, or a run of it, cannot be read.
    """
    files = {file.resolve() for path in paths for file in path.rglob(STUDY)}
    return [_study(file) for file in sorted(files)]


def _study(file: Path) -> Study:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        trained = tuple(_trained(file.parent, one) for one in told["cells"])
        names = {key: str(told[key]) for key in ("task", "title", "model", "metric")}
        return Study(file.parent, synthetic=told["synthetic"], trained=trained, **names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: cannot be read as a study of utility ({error}); run utility again") from error


def _trained(folder: Path, told: Mapping[str, Any]) -> Trained:
    run = None
    if told["status"] == "finished":
        (run,) = load_runs([folder / told["folder"] / "test"])
        run = run if run.finished else None
    cases = (int(told["cases"]["real"]), int(told["cases"]["synthetic"]))
    return Trained(told["setting"], float(told["fraction"]), int(told["seed"]), cases, run, str(told["failure"]))


def find_worths(study: Study, metric: str, *, resamples: int, level: float, seed: int) -> list[Worth]:
    """Returns what each setting and fraction is worth by one metric, in the order in which they first occur.

    Intervals speak of other patients (or cases, where the data name no patients) and of other seeds; see `over_seeds`.
    A gain pairs runs of one seed and fraction on the same patients.
    """
    done = [one for one in study.trained if one.run is not None]
    drawn = resample_runs(study.runs, metric, resamples=resamples, seed=seed) if done else EMPTY
    places = {(one.setting, one.fraction, one.seed): place for place, one in enumerate(done)}

    def estimate(at: Sequence[int], less: Sequence[int] = ()) -> Estimate:
        if not at:
            return Estimate()
        own, other = ([side[list(some)] for side in drawn] for some in (at, less or at))
        found = Drawn(own[0] - other[0], own[1] - other[1]) if less else Drawn(*own)
        return over_seeds(found, level=level, seed=seed)

    worths = []
    for setting, fraction in dict.fromkeys((one.setting, one.fraction) for one in study.trained):
        own = {one: place for (*which, one), place in places.items() if which == [setting, fraction]}
        paired = {} if setting == REAL else {one: places.get((REAL, fraction, one)) for one in own}
        rivals = [place for place in paired.values() if place is not None]
        value = within_range(estimate(list(own.values())), metric)
        gain = estimate([own[one] for one, place in paired.items() if place is not None], rivals)
        worths.append(Worth(setting, fraction, len(own), value, gain, len(rivals)))
    return worths
