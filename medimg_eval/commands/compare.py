"""`compare`: whether models differ by more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig
from rich.console import Console
from rich.text import Text

from medimg_eval.commands.common import plain, printer, runs_of
from medimg_eval.results import compare, to_rich, write_comparison
from medimg_eval.results.comparison import CompareSettings

if TYPE_CHECKING:
    from medimg_eval.results.table import Sheet


def run(config: DictConfig) -> None:
    """Prints the comparison and, when `out` is given, writes it."""
    wanted = plain(config)
    settings = ("test", "correction", "alpha", "margin", "resamples", "seed")
    comparison = compare(
        runs_of(wanted),
        wanted["metric"],
        by=None if wanted["by"] is None else str(wanted["by"]),
        baseline=None if wanted["baseline"] is None else str(wanted["baseline"]),
        how=CompareSettings(**{name: wanted[name] for name in settings}),
    )
    show_sheets(comparison.sheets)
    if wanted["out"] is not None:
        say_written(write_comparison(comparison, Path(wanted["out"])))


def show_sheets(sheets: Sequence[Sheet]) -> None:
    """Prints sheets with their footnotes; what stands below several of them is said once."""
    console = printer()
    printed: set[str] = set()
    for sheet in sheets:
        console.print(to_rich(sheet))
        for note in sheet.content.footnotes:
            if note not in printed:
                console.print(Text(note, style="dim"))
        printed.update(sheet.content.footnotes)


def say_written(files: Sequence[Path]) -> None:
    """Tells on standard error which files were written."""
    Console(stderr=True).print("wrote " + ", ".join(map(str, files)), style="dim", soft_wrap=True)
