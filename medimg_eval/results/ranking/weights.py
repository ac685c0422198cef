"""Rankings as challenges make them: ranks by several metrics weighed, tasks taken together as one data set."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.runs import SCORE_COLUMNS, RunScores, refuse_other_salts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from medimg_eval.results.ranking.columns import RankColumn


def check_weights(weights: Mapping[str, float], metrics: Sequence[str] | None) -> list[str]:
    """Returns the metrics that are weighed; raises UsageError where weights cannot be meant."""
    if metrics is not None:
        raise UsageError("weights= names the metrics that models are ranked by; leave metrics= out")
    if not weights:
        raise UsageError("weights= names no metric; write weights='{ssim: 0.5, psnr: 0.5}'")
    for metric, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise UsageError(f"weights: expected a number above 0 for {metric!r}, got {weight!r}")
    return list(weights)


def column_weights(columns: Sequence[RankColumn], weights: Mapping[str, float] | None) -> npt.NDArray[np.float64]:
    """Returns the weight of each column, that of its metric; 1 where nothing is weighed.

    Raises:
        UserError: A data set lacks one of the metrics, so that its sum of ranks would be of other metrics.
    """
    if weights is None:
        return np.ones(len(columns))
    held: dict[tuple[str, str], set[str]] = {}
    for column in columns:
        held.setdefault((column.field.task, column.field.label), set()).add(column.column.metric)
    for (task, label), found in held.items():
        if lacking := [metric for metric in weights if metric not in found]:
            where = f"{task}, {label}" if label else task
            raise UserError(
                f"{where} has no value of {lacking[0]} for every model, which weights= names; leave that task out"
            )
    return np.array([weights[column.column.metric] for column in columns], dtype=np.float64)


def pool(runs: Sequence[RunScores]) -> list[RunScores]:
    """Returns one run per model that holds the cases of all its tasks, each case counting the same.

    Patients keep their names, so that a patient of two tasks is drawn for both; where a task names none its case does,
    as the same scan with fewer samples has the same name. Unfinished runs are left out, and so are values of sets.

    Raises:
        UserError: No run is finished, or a model has two runs of one task.
    """
    finished = [run for run in runs if run.finished]
    if not finished:
        raise UserError("No run is finished, so there is nothing to rank")
    refuse_other_salts(finished)
    tasks = list(dict.fromkeys(run.task for run in finished))
    if len(tasks) == 1:
        return finished
    models: dict[str, dict[str, RunScores]] = {}
    for run in finished:
        own = models.setdefault(run.model, {})
        if run.task in own:
            raise UserError(
                f"{run.model} has two runs of {run.task}, {own[run.task].folder} and {run.folder}; name the one to pool"
            )
        own[run.task] = run
    return [_together([own[task] for task in tasks if task in own], tasks) for own in models.values()]


def _together(runs: Sequence[RunScores], tasks: Sequence[str]) -> RunScores:
    parts = []
    for run in runs:
        owners = run.scores["patient" if run.resampled == "patients" else "case"]
        rows = run.scores.assign(task=" + ".join(tasks), patient=owners)
        parts.append(rows.assign(case=f"{run.task}/" + rows["case"].astype(str)))
    return replace(
        runs[0],
        task=" + ".join(tasks),
        task_title=" + ".join(tasks),
        cases=sum(run.cases for run in runs),
        predicted=sum(run.predicted for run in runs),
        failed_cases=sum(run.failed_cases for run in runs),
        data_fingerprint=" ".join(run.data_fingerprint for run in runs),
        resampled="patients",
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        scores=pd.concat(parts, ignore_index=True),
        sets=pd.DataFrame(columns=list(SCORE_COLUMNS)),
    )
