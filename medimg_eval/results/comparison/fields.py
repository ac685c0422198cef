"""What models are compared on: their values by case, or the answers that a summary is computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval import metrics
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.results.comparison.summaries import Together
from medimg_eval.results.runs import Part, is_known, is_set, is_summary, needed_rows, refuse_other_salts
from medimg_eval.results.statistics import case_values, sorted_places
from medimg_eval.results.table import Column, make_column, named_runs, titles

if TYPE_CHECKING:
    import numpy.typing as npt

    from medimg_eval.results.runs import RunScores

EVERY_LABEL = ""
"""Stands for all labels, of which a case counts with the mean."""


@dataclass(frozen=True)
class Field:
    """Set on which models are compared: one task, or one label of it.

    Attributes:
        title: The task's title.
        task: Its name.
        label: The label; empty for all of them.
        column: The metric as it is printed.
        runs: The finished runs that have such scores, by model.
        scores: Of each model, the values by case: (case,), no NaN. Empty for a summary.
        parts: Of each model, what a summary is computed from. Empty for a metric of single cases.
        patients: Of each case the patient (or the case itself, where the run resamples cases).
        baselines: The rows that are not compared, because they are no models.
        left_out: The models that are not compared, each with the reason.
    """

    title: str
    task: str
    label: str
    column: Column
    runs: Mapping[str, RunScores]
    scores: Mapping[str, pd.Series[float]]
    parts: Mapping[str, Part] = field(default_factory=dict)
    patients: pd.Series[str] = field(default_factory=lambda: pd.Series(dtype=str))
    baselines: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The task and the label as a heading says them."""
        return f"{self.title}, {self.label}" if self.label else self.title

    @property
    def sign(self) -> int:
        """1 where higher is better, -1 where lower is."""
        return 1 if self.column.higher_is_better else -1

    @property
    def units(self) -> str:
        """Independent units, in words: patients, or cases where the data name none."""
        return next((run.unit for run in self.runs.values()), "cases")

    @property
    def unit(self) -> str:
        """Name of one case, for counts in sentences."""
        return {"groups of questions": "group of questions"}.get(self.units, self.units.removesuffix("s"))

    @property
    def models(self) -> list[str]:
        """The models, in no order of merit."""
        return list(self.parts or self.scores)

    def ordered(self, *, by_median: bool = True) -> list[str]:
        """Returns models best first, by median or mean, then name."""
        first, second = self.centres(median=by_median), self.centres(median=False)
        return sorted(self.models, key=lambda model: (-self.sign * first[model], -self.sign * second[model], model))

    def centres(self, *, median: bool) -> dict[str, float]:
        """Returns each model's median or mean, or summary value."""
        if self.parts:
            return self.summaries
        return {model: float(some.median() if median else some.mean()) for model, some in self.scores.items()}

    @cached_property
    def by_model(self) -> dict[str, npt.NDArray[np.float64]]:
        """Values of each model by all cases, (case,), missing as NaN."""
        together = pd.DataFrame(dict(self.scores))
        return {model: together[model].to_numpy(dtype=np.float64) for model in self.scores}

    @cached_property
    def owners(self) -> npt.NDArray[np.int64]:
        """Patient index of each case in `by_model`, (case,)."""
        cases = pd.DataFrame(dict(self.scores)).index
        return sorted_places(self.patients if cases.equals(self.patients.index) else self.patients.loc[cases])

    @cached_property
    def summaries(self) -> dict[str, float]:
        """Summary value of each model on all its cases."""
        return {model: float(Together(self.column.metric, [part]).worth[0]) for model, part in self.parts.items()}

    @cached_property
    def clustered(self) -> bool:
        """Whether a patient has several cases."""
        if self.parts:
            return any(part.clusters.nunique() < len(part.clusters) for part in self.parts.values())
        return len(np.unique(self.owners)) < len(self.owners)


def make_fields(runs: Sequence[RunScores], metric: str, *, by_label: bool, baseline: str | None = None) -> list[Field]:
    """Returns comparable values of `runs` by one metric, without baselines.

    Args:
        runs: As `load_runs` returns them.
        metric: A metric of single cases, or a summary.
        by_label: Whether every label is compared by itself.
        baseline: The one that models are to be tested against, which is kept.

    Raises:
        UsageError: If `metric` cannot be compared, or no finished run has scores of it.
        UserError: If only baselines have, it is undefined throughout, or runs name patients with different salts.
    """
    finished = [run for run in runs if run.finished]
    refuse_other_salts(finished)
    _check_metric(finished, metric)
    by_task: dict[str, dict[str, RunScores]] = {}
    for name, named in named_runs(finished).items():
        for task, run in named.items():
            if scored(run, metric):
                by_task.setdefault(task, {})[name] = run
    fields = []
    for task, title in titles(runs).items():
        runs_of_task = by_task.get(task, {})
        left_out = tuple(name for name, run in runs_of_task.items() if run.baseline and name != baseline)
        kept_runs = {name: run for name, run in runs_of_task.items() if name not in left_out}
        if kept_runs:
            of_task = _summary_fields if is_summary(metric) else _value_fields
            fields_ = of_task(title, metric, kept_runs, by_label=by_label, baselines=left_out)
            unfinished = [
                f"{run.name} (its run is not finished)" for run in runs if run.task == task and not run.finished
            ]
            valued = {model for field in fields_ for model in field.runs}
            empty = [f"{name} (it has no value of {metric})" for name in kept_runs if name not in valued]
            fields += [replace(field, left_out=(*unfinished, *empty)) for field in fields_]
    if not fields and all(run.baseline for runs_of_task in by_task.values() for run in runs_of_task.values()):
        raise UserError(f"Only baselines have scores of {metric}, and they are not compared; name runs of models")
    if not fields:
        raise UserError(f"No model has a value of {metric}, which is undefined on all that they were judged on")
    return fields


def scored(run: RunScores, metric: str) -> bool:
    """Returns whether a run has a metric's scores or parts."""
    needs = needed_rows(metric, run.metrics or run.scores["metric"].unique()) if is_summary(metric) else (metric,)
    return bool(run.scores["metric"].isin(needs).any())


def _check_metric(finished: Sequence[RunScores], metric: str) -> None:
    """Raises UsageError for a metric that models cannot be compared by."""
    if is_set(metric):
        raise UsageError(
            f"{metric} judges all answers as one set, and has no values of cases to pair; its interval is in the table"
        )
    names = {name for run in finished for name in run.scores["metric"].unique()}
    if not any(scored(run, metric) for run in finished):
        if is_summary(metric):
            lacking = " and ".join(metrics.get(metric).needs)
            raise UsageError(f"No finished run has scores of {lacking}, which {metric} is computed from")
        raise UsageError(f"No finished run has scores of {metric!r}{nearest(metric, names)}")
    direction = next((run.directions[metric] for run in finished if metric in run.directions), None)
    if not is_known(metric) and direction is None:
        raise UsageError(
            f"{metric} is not a known metric: to compare models, say whether higher is better (with scores=FILE: "
            f"'direction={{{metric}: higher}}')"
        )
    if is_known(metric) and metrics.get(metric).higher_is_better is None:
        raise UsageError(f"{metric} is neither better nor worse for being higher, so models cannot be compared by it")


def _value_fields(
    title: str, metric: str, runs: Mapping[str, RunScores], *, by_label: bool, baselines: tuple[str, ...]
) -> list[Field]:
    """Returns the fields of one task by a metric of single cases."""
    rows = {name: _rows_of(run, metric) for name, run in runs.items()}
    labels = dict.fromkeys(str(label) for label_rows in rows.values() for label in label_rows["label"].unique())
    some = next(iter(runs.values()))
    fields = []
    for label in labels if by_label else [EVERY_LABEL]:
        cases = {
            name: case_values(label_rows if label == EVERY_LABEL else label_rows.loc[label_rows["label"] == label])
            for name, label_rows in rows.items()
        }
        values = {name: _defined_values(case["value"]) for name, case in cases.items()}
        values = {name: case_values for name, case_values in values.items() if len(case_values)}
        fields.append(
            Field(
                title,
                some.task,
                label,
                make_column(some.task, title, metric, some),
                {name: runs[name] for name in values},
                values,
                patients=_case_owners([_case_patients(runs[name], cases[name]) for name in values]),
                baselines=baselines,
            )
        )
    return fields


def _rows_of(run: RunScores, metric: str) -> pd.DataFrame:
    """Returns a metric's Score rows, uncopied where there are no others."""
    chosen = run.scores["metric"] == metric
    return run.scores if chosen.all() else run.scores.loc[chosen]


def _defined_values(values: pd.Series[float]) -> pd.Series[float]:
    """Returns defined values, uncopied where all are."""
    return values.dropna() if values.isna().any() else values


def _case_owners(of_each: Sequence[pd.Series[str]]) -> pd.Series[str]:
    """Returns the patient of each case that any model has, by case id."""
    if not of_each:
        return pd.Series(dtype=str)
    if all(some.index.equals(of_each[0].index) for some in of_each[1:]):
        return of_each[0]
    together = pd.concat(of_each)
    return together[~together.index.duplicated()]


def _case_patients(run: RunScores, cases: pd.DataFrame) -> pd.Series[str]:
    if run.resampled == "patients":
        return cases["patient"].astype(str)
    return pd.Series(cases.index.astype(str), index=cases.index)


def _summary_fields(
    title: str, metric: str, runs: Mapping[str, RunScores], *, by_label: bool, baselines: tuple[str, ...]
) -> list[Field]:
    """Returns a task's fields by a summary; undefined models are dropped."""
    whole_parts = {name: Part.whole(run) for name, run in runs.items()}
    divided = {name: part.labels() for name, part in whole_parts.items()} if by_label else {}
    labels = dict.fromkeys(label for parts in divided.values() for label in parts) if by_label else [EVERY_LABEL]
    some = next(iter(runs.values()))
    fields = []
    for label in labels:
        parts = (
            {name: divided[name][label] for name in whole_parts if label in divided[name]} if by_label else whole_parts
        )
        field = Field(title, some.task, label, make_column(some.task, title, metric, some), runs, {}, parts)
        defined = {name: part for name, part in parts.items() if not np.isnan(field.summaries[name])}
        if defined:
            defined_runs = {name: runs[name] for name in defined}
            fields.append(Field(title, some.task, label, field.column, defined_runs, {}, defined, baselines=baselines))
    return fields
