"""What figures are drawn from: runs, or a tidy frame of scores, taken apart into models and groups of cases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from medimg_eval.arguments import grouped
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.results.figures.style import Look, look
from medimg_eval.results.runs import (
    LABEL,
    SCORE_COLUMNS,
    WHOLE,
    Part,
    RunScores,
    attribute_names,
    is_evidence,
    is_set,
    is_summary,
    needed_rows,
)
from medimg_eval.results.statistics import BCA, EQUAL, EXACT, EXPANSION, OWN, PERCENTILE, TOO_FEW, WILSON
from medimg_eval.results.table import make_column, named_runs, titles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from medimg_eval.results.statistics import Interval
    from medimg_eval.results.table import Cell, Column

Source = pd.DataFrame | Sequence[RunScores]
"""Runs, or a frame with the columns `model`, `case` and `value`, and as many of `metric`, `patient`, `task`, `label`
and `status` as there are; any further column is an attribute of the cases."""


@dataclass(frozen=True)
class Piece:
    """Model on a group of cases; `part` holds Score rows."""

    group: str
    model: str
    place: int
    part: Part

    @property
    def baseline(self) -> bool:
        """Whether it is no model to be ranked."""
        return self.part.run.baseline

    @property
    def look(self) -> Look:
        """Look that the member is drawn with."""
        return look(self.place, baseline=self.baseline)


@dataclass(frozen=True)
class Pieces:
    """All that one figure shows.

    Attributes:
        task: The task's name.
        title: The task's title.
        by: "label", an attribute, or "".
        models: Their names; baselines last.
        groups: Their names; one "" where cases are not divided.
        members: By group, then by model.
        left_out: Which runs are not drawn, and why.
    """

    task: str
    title: str
    by: str
    models: tuple[str, ...]
    groups: tuple[str, ...]
    members: tuple[Piece, ...]
    left_out: tuple[str, ...]

    @property
    def some(self) -> RunScores:
        """One of the runs."""
        return self.members[0].part.run

    def of(self, group: str) -> list[Piece]:
        """Returns the models of a group."""
        return [piece for piece in self.members if piece.group == group]

    @property
    def looks(self) -> list[Look]:
        """Look of each model."""
        baselines = {piece.model for piece in self.members if piece.baseline}
        return [look(index, baseline=model in baselines) for index, model in enumerate(self.models)]

    def sized(self, cases: Sequence[int], clusters: Sequence[int]) -> str:
        """Words for numbers of cases and patients drawn."""
        n = f"n = {named_range(cases)} case{'s' * (set(cases) != {1})}"
        return n if self.some.resampled == "cases" else f"{n} of {named_range(clusters)} {self.unit}"

    @property
    def unit(self) -> str:
        """Units that intervals resample."""
        return self.some.unit

    def end(self) -> str:
        """Says what is not drawn, for the end of a caption."""
        return "".join(f" Left out: {note}." for note in self.left_out)


_METHODS = {
    PERCENTILE: "{level} percentile bootstrap of {unit}",
    BCA: "{level} BCa bootstrap of {unit}",
    WILSON: "{level} Wilson",
    EXACT: "{level} exact (Clopper and Pearson)",
    EXPANSION: "{level} bootstrap of {unit}, from their moments",
    OWN: "{level}, of the set",
    TOO_FEW: "none: too few {unit}",
    EQUAL: "none: all values are equal",
}


def named_range(counts: Sequence[int]) -> str:
    """Returns a count, or the smallest and the largest of several, in words."""
    return f"{min(counts)}" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def interval_text(method: str, level: float, unit: str) -> str:
    """Words for an interval's method, level (0 to 1) and unit."""
    return _METHODS.get(method, "none").format(level=f"{100 * level:g} %", unit=unit)


def interval_numbers(interval: Interval | Cell, level: float, unit: str) -> dict[str, Any]:
    """Columns `mean`, `low`, `high`, `n`, `clusters`, `interval` of a figure's frame."""
    return {
        "mean": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
        "clusters": interval.n_clusters,
        "interval": interval_text(interval.method, level, unit),
    }


def interval_methods(frame: pd.DataFrame) -> str:
    """Words for the intervals that rows of a frame have; "" for none."""
    return " or ".join(dict.fromkeys(frame.loc[frame["low"].notna(), "interval"]))


def take_metric(source: Source, metric: str, *, by: str = "", label: str = "") -> tuple[Pieces, Column]:
    """Models with a metric that has a mean, as `take`, and its column of a table."""
    if is_evidence(metric):
        raise UsageError(f"{metric} is there for other metrics to be computed from, and has no mean; name one of those")
    pieces = take(as_runs(source, metric), [metric], by=by, label=label)
    return pieces, make_column(pieces.task, pieces.title, metric, pieces.some)


def as_runs(source: Source, metric: str = "") -> list[RunScores]:
    """Runs as they are, or a frame of scores as runs.

    `metric` says what the frame's values are where it has no column `metric`. Raises UsageError where the frame lacks a
    column, UserError where it is empty.
    """
    if not isinstance(source, pd.DataFrame):
        return list(source)
    needed = ["model", "case", "value"] + ([] if metric else ["metric"])
    UsageError.refuse_unknown("the frame has no column", source.columns, *needed)
    if source.empty:
        raise UserError("The frame holds no scores, so there is nothing to draw")
    patients = "patient" in source.columns
    usual = {"metric": metric, "patient": source["case"], "task": "scores", "label": WHOLE, "status": "present"}
    lacking: dict[str, Any] = {name: value for name, value in usual.items() if name not in source.columns}
    rows = source.assign(**lacking)
    attribute_columns = [name for name in source.columns if name not in SCORE_COLUMNS]
    attributes = [
        json.dumps({str(k): str(v) for k, v in record.items()}) for record in rows[attribute_columns].to_dict("records")
    ]
    texts = {name: rows[name].astype(str) for name in ("case", "patient", "label", "metric", "status", "task", "model")}
    rows = rows.assign(value=rows["value"].astype("float64"), attributes=attributes or "{}", run="", **texts)
    return [
        _make_run(str(task), str(model), task_rows[list(SCORE_COLUMNS)].reset_index(drop=True), patients=patients)
        for (task, model), task_rows in rows.groupby(["task", "model"], sort=False)
    ]


def _make_run(task: str, model: str, scores: pd.DataFrame, *, patients: bool) -> RunScores:
    cases = int(scores["case"].nunique())
    return RunScores(
        folder=Path(),
        run=f"{task}-{model}",
        task=task,
        task_title=task,
        model=model,
        cases=cases,
        predicted=cases,
        failed_cases=int(scores.loc[scores["status"] == "failed", "case"].nunique()),
        resampled="patients" if patients else "cases",
        started=datetime.fromtimestamp(0, UTC),
        scores=scores,
    )


def by_task(runs: Sequence[RunScores]) -> dict[str, list[RunScores]]:
    """Returns runs by task, in order of occurrence."""
    return grouped((run.task, run) for run in runs)


def take(runs: Sequence[RunScores], needed: Iterable[str], *, by: str = "", label: str = "") -> Pieces:
    """Models of one task, and of each the groups of cases to draw.

    `needed` are the metrics whose rows are drawn, or a summary of such; a model without any is left out. `by` is
    "label", an attribute of the cases, or "" for one group, `label` the only label to draw or "" for all.

    Raises:
        UsageError: The runs are of several tasks, or there is no such metric, label or attribute.
        UserError: No run is finished.
    """
    if len(tasks := by_task(runs)) > 1:
        raise UsageError(f"A figure shows one task, and these runs are of {len(tasks)}: {', '.join(tasks)}")
    left_out = [f"{run.name} (unfinished, {run.predicted} of {run.cases})" for run in runs if not run.finished]
    finished = [run for run in runs if run.finished]
    if not finished:
        raise UserError("None of the runs is finished, so there is nothing to draw; run their test to its end")
    wanted = _rows_of(finished, list(needed))
    _check_division(finished, by, label)
    named = {name: run for name, runs_by_task in named_runs(finished).items() for run in runs_by_task.values()}
    order = sorted(named, key=lambda name: named[name].baseline)
    parts: dict[str, dict[str, Part]] = {}
    for name in order:
        part = _of_label(Part.whole(named[name]), wanted, label)
        if part.scores.empty:
            left_out.append(f"{name} (no such scores)")
            continue
        parts[name] = {"": part} if not by else part.labels() if by == LABEL else part.groups(by)
    drawn = [name for name in parts if parts[name]]
    groups = list(dict.fromkeys(group for name in drawn for group in parts[name]))
    members = [
        Piece(group, name, index, parts[name][group])
        for group in groups
        for index, name in enumerate(drawn)
        if group in parts[name] and len(parts[name][group].scores)
    ]
    task = finished[0].task
    return Pieces(task, titles(finished)[task], by, tuple(drawn), tuple(groups), tuple(members), tuple(left_out))


def _rows_of(runs: Sequence[RunScores], needed: list[str]) -> list[str]:
    """Returns the drawn metrics, each in some run."""
    scored = {str(name) for run in runs for name in run.scores["metric"].unique()}
    listed = [name for run in runs for name in run.metrics or run.scores["metric"].unique()]
    for name in needed:
        if is_set(name):
            raise UsageError(f"{name} is one value for a whole set of images; it is shown in a table")
        rows = needed_rows(name, listed) if is_summary(name) else (name,)
        if not any(row in scored for row in rows):
            raise UsageError(f"No finished run has scores of {name!r}{nearest(name, scored)}")
    return [row for name in needed for row in (needed_rows(name, listed) if is_summary(name) else (name,))]


def _check_division(runs: Sequence[RunScores], by: str, label: str) -> None:
    labels = {str(label) for run in runs for label in run.scores["label"].unique()}
    if label:
        UsageError.refuse_unknown("No finished run has a label", labels, label)
    names = attribute_names(runs)
    if by and by != LABEL and by not in names:
        raise UsageError(f"No case has an attribute {by!r} to divide the figure by{nearest(by, names | {LABEL})}")


def _of_label(part: Part, wanted: Sequence[str], label: str) -> Part:
    """Returns rows of metrics, and of a label; all cases count."""
    chosen = part.scores["metric"].isin(wanted)
    if label:
        chosen &= part.scores["label"] == label
    return Part(part.run, part.scores.loc[chosen], part.clusters, part.of)
