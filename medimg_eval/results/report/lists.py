"""Score rows as the page takes them: one list of cases per task, and all scores of each case in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.runs import attributes, is_evidence, is_set, is_summary, judged_labels
from medimg_eval.results.statistics import case_values
from medimg_eval.results.table import Column, make_column

if TYPE_CHECKING:
    from medimg_eval.results.runs import RunScores

PIECE = 100
"""Cases whose scores and texts are loaded together when one of them is opened."""

WORST_FIRST = (
    *("failed", "empty", "refused", "unparsed", "missed", "hallucinated", "wrong", "chosen", "present", "right"),
    "absent",
)
"""Of the labels of a case, the first of these stands for it."""

PICKS = ("worst", "median", "best")


@dataclass(frozen=True, eq=False)
class TaskCases:
    """The cases of a task under every model that was run on it.

    Attributes:
        task: its name.
        runs: by the name that a table gives the model.
        cases: ids, in the order of the rows.
        columns: the metrics that a single case has, in the task's order.
        numbers: (model, metric, case), the mean over labels; NaN where there is none.
    """

    task: str
    runs: Mapping[str, RunScores]
    cases: tuple[str, ...]
    columns: tuple[Column, ...]
    numbers: np.ndarray[Any, np.dtype[np.float64]]

    @classmethod
    def of(cls, task: str, runs: Mapping[str, RunScores]) -> TaskCases:
        """Gathers the cases of a task from its runs."""
        together = pd.concat([run.scores[["case"]] for run in runs.values()], ignore_index=True)
        cases = tuple(together["case"].astype(str).drop_duplicates())
        columns = _metric_columns(task, list(runs.values()))
        values = np.full((len(runs), len(columns), len(cases)), np.nan)
        for index, run in enumerate(runs.values()):
            for number, column in enumerate(columns):
                rows = run.scores.loc[run.scores["metric"] == column.metric]
                if len(rows):
                    values[index, number] = case_values(rows)["value"].reindex(cases).to_numpy()
        return cls(task, runs, cases, columns, values)

    def listing(self) -> dict[str, Any]:
        """Returns what the page's list of cases needs, as JSON can hold it."""
        statuses, codes = self._statuses()
        attributes_ = pd.concat([run.scores for run in self.runs.values()], ignore_index=True).drop_duplicates("case")
        combinations, values = attributes(attributes_)
        patients = attributes_["patient"].astype(str)
        by_patient = any(run.resampled == "patients" for run in self.runs.values())
        return {
            "task": self.task,
            "models": [{"name": name, "baseline": run.baseline, "run": run.run} for name, run in self.runs.items()],
            "metrics": [
                {"title": column.title, "higher": column.higher_is_better, "decimals": column.decimals}
                for column in self.columns
            ],
            "cases": self.cases,
            "patients": patients.tolist() if by_patient else [],
            "attributes": [_code_values(name, of_each[combinations]) for name, of_each in values.items()],
            "statuses": statuses,
            "status": codes,
            "values": [
                [_round_values(row, column) for row, column in zip(of, self.columns, strict=True)]
                for of in self.numbers
            ],
            "piece": PIECE,
        }

    def _statuses(self) -> tuple[list[str], list[list[int]]]:
        statuses = []
        for run in self.runs.values():
            rows = judged_labels(run.scores)
            rank = rows["status"].astype(str).map({status: index for index, status in enumerate(WORST_FIRST)})
            worst = rank.groupby(rows["case"].astype(str)).min().reindex(self.cases)
            statuses.append(worst.fillna(-1).astype(int).tolist())
        return list(WORST_FIRST), statuses

    def pieces(self) -> Iterator[list[list[list[list[Any]]]]]:
        """Yields scores by piece: case, model, then row.

        A row is (label, metric, value, status, whether it is only evidence for summaries).
        """
        case_index = pd.Index(self.cases)
        starts = np.arange(0, len(self.cases) + PIECE, PIECE)
        of_models = []
        for run in self.runs.values():
            case = case_index.get_indexer(pd.Index(run.scores["case"].astype(str)))
            order = np.argsort(case, kind="stable")  # rows of a case in the order of the run
            rows = run.scores[["label", "metric", "value", "status"]].iloc[order]
            of_models.append((self._titles(run), case[order], rows, np.searchsorted(case[order], starts)))
        for piece, start in enumerate(starts[:-1].tolist()):
            size = min(PIECE, len(self.cases) - start)
            scores: list[list[list[list[Any]]]] = [[[] for _ in self.runs] for _ in range(size)]
            for model, (titles, case, rows, bounds) in enumerate(of_models):
                within = slice(bounds[piece], bounds[piece + 1])
                part = rows.iloc[within]
                for number_, label, metric, value, status in zip(
                    (case[within] - start).tolist(),
                    *(part[name].tolist() for name in ("label", "metric", "value", "status")),
                    strict=True,
                ):
                    number = None if np.isnan(value) else float(f"{value:.6g}")
                    title, evidence = titles[metric]
                    scores[number_][model].append([str(label), title, number, str(status), evidence])
            yield scores

    def _titles(self, run: RunScores) -> dict[str, tuple[str, int]]:
        """Returns metric titles, and whether they are mere evidence."""
        return {
            metric: (make_column(self.task, run.task_title, metric, run).title, int(is_evidence(metric)))
            for metric in run.scores["metric"].unique()
        }

    def places(self, cases: Iterable[str]) -> list[int]:
        """Returns the places of cases by their ids."""
        indices = {case: index for index, case in enumerate(self.cases)}
        return [indices[case] for case in cases]

    def chosen(self, wanted: Sequence[str]) -> list[int]:
        """Returns indices of chosen cases: `all`, `worst:50`, `median:5`, ids.

        `best:5`.

        The worst and the best are those of each model, by the first metric that has a direction; those without a value
        are neither.

        Raises:
            UsageError: There is no such case, or no such number.
        """
        indices = {case: index for index, case in enumerate(self.cases)}
        chosen_indices: list[int] = []
        for name in wanted:
            kind, _, number = str(name).partition(":")
            if name == "all":
                chosen_indices += range(len(self.cases))
            elif kind in PICKS and number.isdecimal():
                chosen_indices += self._extremes(kind, int(number))
            elif name in indices:
                chosen_indices.append(indices[name])
        return list(dict.fromkeys(chosen_indices))

    def _extremes(self, kind: str, count: int) -> list[int]:
        directed = [index for index, column in enumerate(self.columns) if column.higher_is_better is not None]
        if not directed:
            return list(range(min(count, len(self.cases))))
        extremes: list[int] = []
        for of_model in self.numbers:
            column = self.columns[directed[0]]
            goodness = of_model[directed[0]] if column.higher_is_better else -of_model[directed[0]]
            order = np.argsort(goodness, kind="stable")[: np.count_nonzero(~np.isnan(goodness))]
            start = {"worst": 0, "median": max(0, (len(order) - count) // 2), "best": max(0, len(order) - count)}[kind]
            extremes += order[start : start + count].tolist()
        return extremes


def by_task(runs: Sequence[RunScores], named: Mapping[str, Mapping[str, RunScores]]) -> list[TaskCases]:
    """Returns `runs`' cases by task, models named as in tables.

    Raises:
        UserError: No run has scores of cases.
    """
    finished = [run for run in runs if run.finished and len(run.scores)]
    if not finished:
        raise UserError("No finished run has scores of single cases, so there is nothing to report")
    tasks = []
    for task in dict.fromkeys(run.task for run in finished):
        members = {name: of[task] for name, of in named.items() if task in of and len(of[task].scores)}
        tasks.append(TaskCases.of(task, members))
    return tasks


def check_wanted(wanted: Sequence[str], tasks: Sequence[TaskCases]) -> None:
    """Raises UsageError for a choice of cases that can mean nothing."""
    cases = {case for task in tasks for case in task.cases}
    for name in map(str, wanted):
        kind, _, number = name.partition(":")
        if name in ("all", "none") or (kind in PICKS and number.isdecimal()) or name in cases:
            continue
        if kind in PICKS:
            raise UsageError(f"cases: {name!r} lacks a number; write it as {kind}:50")
        close = get_close_matches(name, ["all", "none", *PICKS, *sorted(cases)], n=1, cutoff=0.5)
        hint = f"; did you mean {close[0]!r}?" if close else ""  # there may be too many cases to name them all
        raise UsageError(
            f"cases: there is no {name!r}{hint}; expected all, none, worst:50, median:5, best:5, or ids of cases"
        )


def _metric_columns(task: str, runs: Sequence[RunScores]) -> tuple[Column, ...]:
    listed = [metric for run in runs for metric in run.metrics]
    there = {metric: None for run in runs for metric in run.scores["metric"].unique()}
    ordered = [metric for metric in dict.fromkeys([*listed, *there]) if metric in there]
    single = [metric for metric in ordered if not (is_summary(metric) or is_set(metric))]
    plain = [metric for metric in single if not is_evidence(metric)] or single
    return tuple(make_column(task, runs[0].task_title, metric, runs[0]) for metric in plain)


def _round_values(values: np.ndarray[Any, np.dtype[np.float64]], column: Column) -> list[float | None]:
    return [None if np.isnan(value) else round(value, column.decimals + 2) for value in values.tolist()]


def _code_values(name: str, values: np.ndarray[Any, np.dtype[np.str_]]) -> dict[str, Any]:
    """Returns an attribute with each of its values once."""
    unique_values, codes = np.unique(values, return_inverse=True)
    return {"name": name, "values": unique_values.tolist(), "codes": codes.tolist()}
