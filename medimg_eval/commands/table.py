"""`table`: the paper table of any number of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from omegaconf import DictConfig

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import runs_of, say_written, show
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UserError
from medimg_eval.results import Table, write_all, write_card
from medimg_eval.results.cards import read_checklists
from medimg_eval.results.tables import tables_of


def run(config: DictConfig) -> None:
    """Prints the table, or each task's paper table; writes `out`.

    Raises:
        UsageError: before that, when there is no such checklist.
        UserError: after that, when no run has a value, or none has one of a metric that was named.
    """
    wanted = plain(config)
    names = [str(name) for name in as_list(wanted.get("checklists") or [])]
    read_checklists(names)
    tables = tables_of(runs_of(wanted), wanted)
    for table in tables.values():
        show(table)
    if wanted["out"] is not None:
        folder = Path(wanted["out"])
        written = [file for stem, table in tables.items() for file in write_all(table, folder, stem)]
        if wanted["card"]:
            cards = {stem.replace("table", "card", 1): table for stem, table in tables.items()}
            written += [file for stem, table in cards.items() for file in write_card(table, folder, stem, names)]
        say_written(written)
    _fail_without_values(tables.values(), named=wanted["metrics"] is not None)


def _fail_without_values(tables: Iterable[Table], *, named: bool) -> None:
    """Raises UserError without any value, or for an empty named metric."""
    for table in tables:
        columns = [
            f"{column.title} ({column.group})"
            for index, column in enumerate(table.columns)
            if all(math.isnan(row.cells[index].mean) for row in table.rows)
        ]
        if columns and (named or len(columns) == len(table.columns)):
            raise UserError(f"{', '.join(columns)}: no run has a value; the notes below the table say why")
