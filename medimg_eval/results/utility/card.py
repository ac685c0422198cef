"""The utility side of a score card: what models trained on a generator's pictures are worth on real ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.errors import UserError, nearest
from medimg_eval.metrics.fidelity import SetValue
from medimg_eval.results.statistics import Estimate
from medimg_eval.results.table import Column, make_column
from medimg_eval.results.utility.studies import AUGMENTED, FEW_SEEDS, GAIN, SYNTHETIC, TSTR, Study, Worth, find_worths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from medimg_eval.results.runs import RunScores

Side = dict[Column, dict[str, SetValue]]
"""By column, and by the id of a run of synthesis."""

TITLES = {TSTR: "TSTR", GAIN: "Augmentation gain"}


def utility_of_card(
    runs: Sequence[RunScores], studies: Sequence[Study], *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> dict[str, Side]:
    """Returns the utility side of the card of each task of synthesis.

    A study belongs to the run whose pictures were trained on, and to other runs of the same model with the same
    settings, such as one that answered other prompts. Of a study its largest fraction counts: its TSTR, and its
    augmentation gain, signed so that more is better.

    Args:
        runs: of synthesis, as `load_runs` returns them.
        studies: as `load_utility` returns them.
        resamples: of the bootstrap; summaries take at most 1,000.
        level: of the intervals.
        seed: of the bootstrap.

    Raises:
        UserError: two studies of one task and model were trained on the pictures of one run.
    """
    used = [study for study in studies if study.runs and any(_is_of(study, run) for run in runs)]
    pairs = {(study.task, study.model) for study in used}
    tasks = {task for task, _ in pairs}
    named = ["task"] * (len(tasks) > 1) + ["model"] * (len(tasks) < len(pairs))
    sides: dict[str, Side] = {}
    seen: dict[tuple[str, str, str], Study] = {}
    for study in used:
        shown = list(_sides(study, named, resamples=resamples, level=level, seed=seed))
        for run in (one for one in runs if _is_of(study, one)):
            first = seen.setdefault((run.run, study.task, study.model), study)
            if first is not study:
                raise UserError(
                    f"{first.folder} and {study.folder} both hold models called {study.model!r} that were trained on "
                    f"pictures of {run.model!r}; name one of them"
                )
            for column, value in shown:
                sides.setdefault(run.task, {}).setdefault(column, {})[run.run] = value
    return sides


def _is_of(study: Study, run: RunScores) -> bool:
    told = study.synthetic
    same = (told.get("task"), told.get("model"), told.get("settings")) == (run.task, run.model, run.settings)
    return same or told.get("run") == run.run


def _sides(
    study: Study, named: Sequence[str], *, resamples: int, level: float, seed: int
) -> Iterator[tuple[Column, SetValue]]:
    """Yields the columns of a study and their values; `named` says what tells it from the others on the card."""
    known = {metric for run in study.runs for metric in run.metrics}
    if study.metric not in known:
        raise UserError(f"{study.folder}: has no scores of {study.metric!r}{nearest(study.metric, known)}")
    column = make_column(study.task, "Utility", study.metric, study.runs[0])
    worths = find_worths(study, study.metric, resamples=resamples, level=level, seed=seed)
    largest = max(one.fraction for one in worths)
    better = column.higher_is_better is not False
    about = ", ".join([column.title, *(getattr(study, name) for name in named)])
    for worth in (one for one in worths if one.fraction == largest):
        if worth.setting == SYNTHETIC:
            found = Column(study.task, "Utility", TSTR, f"{TITLES[TSTR]}: {about}", better, column.decimals)
            yield found, _set_value(study, worth, worth.value)
        if worth.setting == AUGMENTED and worth.paired:
            gain = worth.gain if better else Estimate(-worth.gain.value, -worth.gain.high, -worth.gain.low)
            found = Column(study.task, "Utility", GAIN, f"{TITLES[GAIN]}: {about}", True, column.decimals)
            yield found, _set_value(study, worth, gain)


def _set_value(study: Study, worth: Worth, found: Estimate) -> SetValue:
    which = (worth.setting, worth.fraction)
    counts = [one.cases[1] for one in study.trained if one.run is not None and (one.setting, one.fraction) == which]
    over = f"bootstrap over {study.runs[0].unit}"
    over += f", Student's distribution over {worth.seeds} seeds" if worth.seeds > 1 else " alone, of one seed"
    return SetValue(
        metric=study.metric,
        value=found.value,
        n_real=study.runs[0].cases,
        n_generated=round(float(np.mean(counts))),
        d=0,
        low=found.low,
        high=found.high,
        interval=(
            f"{study.model} on {study.title}, {100 * worth.fraction:g} % of the data, tested on {study.runs[0].cases} "
            f"real cases; {over}"
        ),
        flags=(f"few_seeds: fewer than {FEW_SEEDS}",) if worth.seeds < FEW_SEEDS else (),
    )
