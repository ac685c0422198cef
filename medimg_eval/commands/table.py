"""`table`: the paper table of any number of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import plain, runs_of, say_written, show
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.results import Look, Table, build_authors_tables, build_cards, build_table, write_all, write_card
from medimg_eval.results.comparison import CompareSettings, marked
from medimg_eval.results.utility import Study, load_utility, utility_of_card

AUTHORS, CARD = "authors", "card"


def run(config: DictConfig) -> None:
    """Prints the table, or the paper's own of each task, and writes it in five formats when `out` is given.

    Raises:
        UserError: after that, when no run has a value, or none has one of a metric that was named.
    """
    wanted = plain(config)
    tables = _authors(wanted) if wanted["table"] is not None else {"table": _usual(wanted)}
    look = Look(**{key: wanted[key] for key in Look._fields})
    tables = {stem: _marked(table.looking(look), wanted) for stem, table in tables.items()}
    for table in tables.values():
        show(table)
    if wanted["out"] is not None:
        folder = Path(wanted["out"])
        written = [file for stem, table in tables.items() for file in write_all(table, folder, stem)]
        if wanted["card"]:
            cards = {stem.replace("table", "card", 1): table for stem, table in tables.items()}
            written += [file for stem, table in cards.items() for file in write_card(table, folder, stem)]
        say_written(written)
    _fail_without_values(tables.values(), named=wanted["metrics"] is not None)


def _fail_without_values(tables: Iterable[Table], *, named: bool) -> None:
    """Raises UserError when no run has a value, or none has one of a metric that was named."""
    for table in tables:
        columns = [
            f"{column.title} ({column.group})"
            for place, column in enumerate(table.columns)
            if all(math.isnan(row.cells[place].mean) for row in table.rows)
        ]
        if columns and (named or len(columns) == len(table.columns)):
            raise UserError(f"{', '.join(columns)}: no run has a value; the notes below the table say why")


def _usual(wanted: dict[str, Any]) -> Table:
    table = build_table(
        runs_of(wanted),
        metrics=_metrics(wanted["metrics"]),
        by=None if wanted["by"] is None else str(wanted["by"]),
        mean=wanted["mean"],
        resamples=wanted["resamples"],
        level=wanted["level"],
        seed=wanted["seed"],
        interval=wanted["interval"],
        strata=wanted["strata"],
    )
    if not table.columns:
        raise UserError(
            "There are no scores that a table shows by itself; name summaries that rest on those there are, such as "
            f"metrics=[auroc@macro] ({'; '.join(table.footnotes)})"
        )
    return table


def _marked(table: Table, wanted: dict[str, Any]) -> Table:
    """Returns a table with signs of significance if they are asked for."""
    if wanted["marks"] is None:
        return table
    if wanted["mean"] != "case":
        raise UsageError(f"marks come from tests of means over cases; leave out mean={wanted['mean']}")
    how = CompareSettings(resamples=wanted["resamples"], seed=wanted["seed"])
    return marked(table, str(wanted["marks"]), how)


def _metrics(said: Any) -> list[str] | dict[str, list[str]] | None:
    """Returns the metrics asked for, of all tasks or by task."""
    if isinstance(said, dict):
        return {str(task): as_list(names) for task, names in said.items()}
    return None if said is None else as_list(said)


def _authors(wanted: dict[str, Any]) -> dict[str, Table]:
    """Returns the tables by the name of their files."""
    if wanted["table"] not in (AUTHORS, CARD):
        raise UsageError(f"there is no table {wanted['table']!r}{nearest(str(wanted['table']), [AUTHORS, CARD])}")
    for key, usual in (("metrics", None), ("by", None), ("mean", "case")):
        if wanted[key] != usual:
            raise UsageError(f"table={wanted['table']} has columns of its own; leave out {key}={wanted[key]}")
    runs = runs_of(wanted)
    numbers = {key: wanted[key] for key in ("resamples", "level", "seed", "interval", "strata")}
    if wanted["table"] == CARD:
        bootstrap = {key: wanted[key] for key in ("resamples", "level", "seed")}
        tables = build_cards(runs, utility_of_card(runs, _studies(wanted), **bootstrap))
    else:
        tables = build_authors_tables(runs, **numbers)
    if len(tables) == 1:
        return {"table": tables[0]}
    return {f"table-{table.columns[0].task}": table for table in tables}


def _studies(wanted: dict[str, Any]) -> list[Study]:
    """Returns the studies of utility that lie where the runs do, or where `utility` puts them."""
    places = [*as_list(wanted["from"]), f"{wanted['runs']}/utility"]
    return load_utility([Path(place) for place in places])
