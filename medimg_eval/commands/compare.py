"""`compare`: whether models differ by more than chance."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.text import Text

from medimg_eval.commands.common import plain, printer, runs_of
from medimg_eval.results import compare, to_rich, write_comparison


def run(config: DictConfig) -> None:
    """Prints the comparison and, when `out` is given, writes it."""
    wanted = plain(config)
    comparison = compare(
        runs_of(wanted),
        wanted["metric"],
        by=None if wanted["by"] is None else str(wanted["by"]),
        baseline=None if wanted["baseline"] is None else str(wanted["baseline"]),
        alpha=wanted["alpha"],
    )
    console = printer()
    printed: set[str] = set()
    for sheet in comparison.sheets:
        console.print(to_rich(sheet))
        # The maps of several labels share most of their footnotes.
        for note in sheet.content.footnotes:
            if note not in printed:
                console.print(Text(note, style="dim"))
        printed.update(sheet.content.footnotes)
    if wanted["out"] is not None:
        written = write_comparison(comparison, Path(wanted["out"]))
        Console(stderr=True).print("wrote " + ", ".join(str(path) for path in written), style="dim", soft_wrap=True)
