"""What a leaderboard shows: values with intervals, ranks with their stability, and standings over tasks."""

from __future__ import annotations

import base64
import gzip
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import medimg_eval
from medimg_eval.arguments import grouped
from medimg_eval.errors import UserError
from medimg_eval.results.leaderboard.standings import Standings, find_standings
from medimg_eval.results.ranking import RankColumn, untested_columns
from medimg_eval.results.table import Column, Table, build_table, titles

if TYPE_CHECKING:
    from medimg_eval.results.runs import RunScores

FORMAT = 1
"""Version of `leaderboard.json`."""
MOST_RANK_RESAMPLES = 1_000
"""Resamples of the stability of ranks, as `rank` makes."""


class BoardTask(NamedTuple):
    """A task with its values and ranks.

    Attributes:
        task: Its name.
        title: As tables have it.
        family: Such as `vqa`; "" where it is unknown.
        modalities: Such as `ct`; may be empty.
        card: Its description, among other things.
        cases: The most that any of its runs has.
        table: Of this task alone.
        columns: Ranks by each metric that has a direction and two models.
    """

    task: str
    title: str
    family: str
    modalities: tuple[str, ...]
    card: Mapping[str, Any]
    cases: int
    table: Table
    columns: tuple[RankColumn, ...]

    @property
    def ranked_by(self) -> str:
        """Default ranking metric: the first with a direction."""
        return next((column.metric for column in self.table.columns if column.higher_is_better is not None), "")

    @property
    def first_column(self) -> RankColumn | None:
        """Ranks by that metric; None where fewer than two models have a value."""
        return next((column for column in self.columns if column.column.metric == self.ranked_by), None)


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """Models on many tasks.

    Attributes:
        title: What is shown.
        tasks: In the order of the runs.
        resamples: Of the intervals of values.
        level: Of those intervals; those of ranks and places are always of 95 %.
        seed: Of all resamples.
    """

    title: str
    tasks: tuple[BoardTask, ...]
    resamples: int
    level: float
    seed: int

    @cached_property
    def models(self) -> dict[str, bool]:
        """Models by name with baseline flags, baselines last."""
        baselines = {row.name: row.baseline for task in self.tasks for row in task.table.rows}
        return dict(sorted(baselines.items(), key=lambda item: item[1]))

    @cached_property
    def standings(self) -> list[Standings]:
        """Standings over tasks by first metrics, for connected groups."""
        return find_standings([column for task in self.tasks if (column := task.first_column) is not None])

    def content(self) -> dict[str, Any]:
        """Returns what `leaderboard.json` holds; NaN is not replaced yet."""
        return {
            "format": FORMAT,
            "made_by": f"medimg_eval {medimg_eval.__version__}",
            "title": self.title,
            "level": self.level,
            "resamples": self.resamples,
            "rank_resamples": min(self.resamples, MOST_RANK_RESAMPLES),
            "seed": self.seed,
            "models": [{"model": name, "baseline": baseline} for name, baseline in self.models.items()],
            "tasks": [_describe_task(task) for task in self.tasks],
            "values": [value for task in self.tasks for value in _task_values(task)],
            "ranks": [row for task in self.tasks for column in task.columns for row in _column_ranks(column)],
            "standings": [
                {
                    "order": group.order,
                    "tasks": [column.field.task for column in group.columns],
                    "not_resampled": [column.field.task for column in group.columns if column.resampled is None],
                    "rows": [row._asdict() | {"shares": _list_shares(row.shares)} for row in group.rows],
                }
                for group in self.standings
            ],
        }

    def resampled_ranks(self, task: BoardTask) -> list[dict[str, Any]]:
        """Returns resampled ranks by metric, from which pages compute.

        `packed` holds whole numbers of 16 bits (little-endian, gzip, base64): (resample, model), where equal values
        share the smaller rank; None without resamples. `models` are places in `models`.
        """
        numbers = {name: number for number, name in enumerate(self.models)}
        return [
            {
                "metric": column.column.metric,
                "models": [numbers[model] for model in column.worth],
                "ranks": list(column.ranks("min").values()),
                "packed": _pack_ranks(column),
            }
            for column in task.columns
            if len(column.worth) > 1
        ]


def build_leaderboard(
    runs: Sequence[RunScores],
    facts: Mapping[str, tuple[str, tuple[str, ...]]],
    *,
    title: str | None = None,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Leaderboard:
    """Builds the leaderboard of `runs`.

    Args:
        runs: As `load_runs` returns them; unfinished ones are shown, and not ranked.
        facts: By task, its family and its modalities; tasks may be missing.
        title: Of the board; None makes one.
        resamples: Of the intervals of values; ranks take at most 1,000.
        level: Of the intervals of values.
        seed: Of all resamples.

    Raises:
        UserError: No run has a value that a table shows.
    """
    runs = _told_apart(runs)
    named = titles(runs)
    tasks = []
    for task, members in grouped((run.task, run) for run in runs).items():
        table = build_table(members, resamples=resamples, level=level, seed=seed)
        if table.columns:
            family, modalities = facts.get(task, ("", ()))
            cards = (run.task_config.get("card") for run in members)
            card: Mapping[str, Any] = next((card for card in cards if card), {})
            cases = max(run.cases for run in members)
            tasks.append(BoardTask(task, named[task], family, modalities, card, cases, table, ()))
    if not any(run.finished for task in tasks for run in task.table.runs):
        raise UserError("No finished run has a value that a table shows, so there is no leaderboard to make")
    shown_columns: list[Column] = [column for task in tasks for column in task.table.columns]
    ranked = untested_columns(runs, shown_columns, resamples=min(resamples, MOST_RANK_RESAMPLES), seed=seed)
    of_task = grouped((column.field.task, column) for column in ranked)
    full = tuple(row._replace(columns=tuple(of_task.get(row.task, ()))) for row in tasks)
    models = {row.name for board_task in full for row in board_task.table.rows}
    usual = f"Leaderboard of {len(models)} model{'s' * (len(models) != 1)} on {len(full)} task{'s' * (len(full) != 1)}"
    return Leaderboard(usual if title is None else str(title), full, resamples, level, seed)


def _told_apart(runs: Sequence[RunScores]) -> list[RunScores]:
    """Returns runs, with ids where a model recurs on a task."""
    times = Counter((run.task, run.name) for run in runs)
    return [run if times[run.task, run.name] == 1 else replace(run, model=f"{run.model} ({run.run})") for run in runs]


def _describe_task(one: BoardTask) -> dict[str, Any]:
    ranked = {column.column.metric: column for column in one.columns}
    return {
        "task": one.task,
        "title": one.title,
        "family": one.family,
        "modalities": one.modalities,
        "cases": one.cases,
        "ranked_by": one.ranked_by,
        "description": str(one.card.get("description", "")),
        "access": str(one.card.get("access", "")),
        "licence": str(one.card.get("licence", "")),
        "metrics": [
            {
                "metric": column.metric,
                "title": column.title,
                "higher_is_better": column.higher_is_better,
                "decimals": column.decimals,
                "ranked": column.metric in ranked,
                "ranked_cases": ranked[column.metric].n if column.metric in ranked else 0,
            }
            for column in one.table.columns
        ],
        "notes": one.table.footnotes,
    }


def _task_values(one: BoardTask) -> list[dict[str, Any]]:
    return [
        {
            "task": one.task,
            "model": row.name,
            "metric": column.metric,
            "value": cell.mean,
            "low": cell.low,
            "high": cell.high,
            "n": cell.n,
            "patients": cell.n_clusters,
            "failed": cell.failed,
            "run": cell.run.run,
            "status": cell.run.status,
            "interval": cell.method if cell.n else "",
            "mark": cell.mark,
            "printed": cell.text(column),
            "printed_interval": cell.interval_text(column),
        }
        for row in one.table.rows
        for column, cell in zip(one.table.columns, row.cells, strict=True)
        if cell.run is not None
    ]


def _column_ranks(column: RankColumn) -> list[dict[str, Any]]:
    bounds, shares = column.bounds(), column.shares()
    return [
        {
            "task": column.field.task,
            "metric": column.column.metric,
            "model": model,
            "rank": int(rank),
            "low": bounds.get(model, (np.nan, np.nan))[0],
            "high": bounds.get(model, (np.nan, np.nan))[1],
            "shares": _list_shares(shares.get(model, {})),
        }
        for model, rank in column.ranks("min").items()
    ]


def _list_shares(shares: Mapping[int, float]) -> list[dict[str, float]]:
    return [{"rank": rank, "share": share} for rank, share in shares.items()]


def _pack_ranks(column: RankColumn) -> str | None:
    ranks = column.resampled_ranks("min")
    if ranks is None:
        return None
    packed = gzip.compress(ranks.astype("<u2").tobytes(), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii")
