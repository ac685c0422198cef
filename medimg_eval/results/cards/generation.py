"""The score card of pictures that were made: fidelity, privacy and utility side by side, and never one number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval import metrics
from medimg_eval.arguments import grouped
from medimg_eval.errors import UserError
from medimg_eval.metrics.generation import GROUPS
from medimg_eval.results.runs import is_set, listed
from medimg_eval.results.table import (
    Cell,
    Column,
    Row,
    Settings,
    Table,
    baselines_last,
    make_cell,
    make_column,
    named_runs,
    ranked,
    titles,
    write_footnotes,
)

if TYPE_CHECKING:
    from medimg_eval.metrics.fidelity import SetValue
    from medimg_eval.results.runs import RunScores

SIDES = ("fidelity", "privacy", "utility")
"""The sides of a card, in their order."""

RANK = "rank"
"""The metric of the columns of ranks."""

Utility = Mapping[str, Mapping[str, "SetValue"]] | Mapping[Column, Mapping[str, "SetValue"]]
"""By metric of utility, higher being better, or by the column of it; and by model, or the id of its run: its value."""


def mean_ranks(values: Sequence[Sequence[float]], higher: Sequence[bool]) -> list[float]:
    """Returns each model's mean rank over metrics, ties averaged, 1 first.

    Args:
        values: Of each metric, of each model; NaN where a model has none.
        higher: Whether more is better, of each metric.

    Returns:
        NaN for a model that lacks one of the metrics; they are ranked among those that have all.
    """
    table = np.array(values, dtype=np.float64).reshape(len(higher), -1)
    is_known = ~np.isnan(table).any(axis=0)
    ranks = np.full(table.shape[1], np.nan)
    if len(higher) and is_known.any():
        signed = np.where(np.array(higher)[:, None], -table, table)[:, is_known]
        before = (signed[:, None, :] < signed[:, :, None]).sum(axis=2)
        ties = (signed[:, None, :] == signed[:, :, None]).sum(axis=2)
        ranks[is_known] = (before + (ties + 1) / 2).mean(axis=0)
    return [float(rank) for rank in ranks]


def aggregate(ranks: Mapping[str, Sequence[float]]) -> list[float]:
    """Returns mean ranks averaged over a card's sides, equally weighted.

    Args:
        ranks: Side -> mean rank of each model, as `mean_ranks` returns them.

    Returns:
        NaN for a model that lacks a side.
    """
    return [float(rank) for rank in np.array(list(ranks.values()), dtype=np.float64).mean(axis=0)]


def build_cards(runs: Sequence[RunScores], utility: Mapping[str, Utility] | None = None) -> list[Table]:
    """Builds the score card of each task whose runs were judged as sets.

    Args:
        runs: As `load_runs` returns them.
        utility: By task, what models trained on the pictures are worth on real images; None where nothing was trained.

    Raises:
        UserError: If no run was judged as a set.
    """
    finished = [run for run in runs if run.finished and not run.sets.empty]
    if not finished:
        raise UserError("No run was judged as a set of pictures, so there is no score card")
    by_task = grouped((run.task, run) for run in finished)
    names = titles(finished)
    return [_score_card(names[task], members, (utility or {}).get(task, {})) for task, members in by_task.items()]


def _score_card(title: str, runs: Sequence[RunScores], utility: Utility) -> Table:
    task, settings = runs[0].task, Settings(1, 0.95, 0)
    metrics_shown = list(dict.fromkeys(metric for run in runs for metric in run.metrics if is_set(metric)))
    sides = [GROUPS.get(metrics.get(metric).name, "fidelity").capitalize() for metric in metrics_shown]
    columns = [make_column(task, side, metric, runs[0]) for side, metric in zip(sides, metrics_shown, strict=True)]
    columns.sort(key=lambda column: SIDES.index(column.group.lower()))
    named = named_runs(runs)
    rows = baselines_last(
        Row(name, tuple(make_cell(by_task[task], column.metric, settings) for column in columns))
        for name, by_task in named.items()
    )
    rows = ranked(columns, rows)
    notes = write_footnotes(
        [replace(column, group=title) for column in columns], rows, shown=rows, settings=settings, hidden=[], by=""
    )
    added: dict[Column, Mapping[str, SetValue]] = {
        _utility_column(task, key): of_model for key, of_model in utility.items()
    }
    columns += added
    rows = [
        replace(row, cells=(*row.cells, *(_utility_cell(row, of_model) for of_model in added.values()))) for row in rows
    ]
    columns, rows, notes_ = _with_ranks(columns, rows)
    notes_ += dict.fromkeys(_utility_notes(added))
    if not utility:
        notes_.insert(0, "Utility: nothing was trained on the pictures, so this side of the card is empty.")
    return Table(tuple(columns), tuple(rows), [f"Score card of {title}.", *notes_, *notes], own_columns=True)


def _utility_column(task: str, key: str | Column) -> Column:
    return Column(task, "Utility", key, key, True, 3) if isinstance(key, str) else replace(key, task=task)


def _utility_notes(added: Mapping[Column, Mapping[str, SetValue]]) -> Iterator[str]:
    """Yields the basis of a column's values, once where shared."""
    for column, of_model in added.items():
        for value in of_model.values():
            if value.interval:
                yield f"{column.title}: {value.interval}."
            yield from (f"{column.title}: {flag}." for flag in value.flags)


def _utility_cell(row: Row, of_model: Mapping[str, SetValue]) -> Cell:
    run = row.cells[0].run
    value = of_model.get(row.name) if run is None else of_model.get(run.run, of_model.get(row.name))
    if value is None:
        return Cell(run=run)
    return Cell(run=run, mean=value.value, low=value.low, high=value.high, n=value.n_generated, rows=1)


def _with_ranks(columns: Sequence[Column], rows: Sequence[Row]) -> tuple[list[Column], list[Row], list[str]]:
    """Returns the card with a rank column and its notes."""
    rivals = [row for row in rows if not row.baseline]
    if len(rivals) < 2:
        return list(columns), list(rows), ["Ranks: there are fewer than two models to rank."]
    usable = [index for index, column in enumerate(columns) if _are_comparable(rivals, index)]
    ranks: dict[str, list[float]] = {}
    for side in dict.fromkeys(columns[index].group for index in usable):
        indices = [index for index in usable if columns[index].group == side]
        values = [[row.cells[index].mean for row in rivals] for index in indices]
        ranks[side] = mean_ranks(values, [bool(columns[index].higher_is_better) for index in indices])
    together = {f"{side} rank": rank_values for side, rank_values in ranks.items()}
    if len(ranks) > 1:
        together["Rank"] = aggregate(ranks)
    task = columns[0].task
    rank_columns = [Column(task, "Mean rank", RANK, side, False, 2) for side in together]
    ranked_rows = []
    for row in rows:
        cells = [Cell(run=row.cells[0].run) for _ in rank_columns]
        if row in rivals:
            index = rivals.index(row)
            cells = [replace(cell, mean=rank[index], n=1) for cell, rank in zip(cells, together.values(), strict=True)]
        ranked_rows.append(replace(row, cells=(*row.cells, *cells)))
    how = (
        "Ranks: a side's is the mean of a model's ranks by its metrics; Rank is the mean over "
        f"{listed([side.lower() for side in ranks])}, each side counting as one. Intervals are not looked at: "
        "models whose intervals overlap may change places."
    )
    notes = [how]
    unused = [columns[index].title for index in range(len(columns)) if index not in usable]
    if unused:
        notes.append(
            f"Not ranked, because a model lacks it or sets of different sizes were compared: {listed(unused)}."
        )
    return [*columns, *rank_columns], ranked_rows, notes


def _are_comparable(rows: Sequence[Row], place: int) -> bool:
    cells = [row.cells[place] for row in rows]
    drifting = [cell.of_set.value for cell in cells if cell.of_set is not None and cell.of_set.value.depends_on_n]
    return len({(cell.n_real, cell.n_generated) for cell in drifting}) < 2 and not any(
        np.isnan(cell.mean) for cell in cells
    )
