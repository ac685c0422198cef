"""`compare`: whether models differ by more than chance."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from medimg_eval.commands.console import runs_of, say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.results import write_comparison
from medimg_eval.results.tables import comparison_of


def run(config: DictConfig) -> None:
    """Prints the comparison and, when `out` is given, writes it."""
    wanted = plain(config)
    comparison = comparison_of(runs_of(wanted), wanted)
    show_sheets(comparison.sheets)
    if wanted["out"] is not None:
        say_written(write_comparison(comparison, Path(wanted["out"])))
