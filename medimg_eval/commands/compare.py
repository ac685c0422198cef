"""`compare`: whether models differ by more than chance."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from medimg_eval.commands.console import plain, runs_of, say_written, show_sheets
from medimg_eval.results import compare, write_comparison
from medimg_eval.results.comparison import CompareSettings


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
