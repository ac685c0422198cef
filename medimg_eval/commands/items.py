"""`items`: what models tell of the questions they were asked."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from medimg_eval.commands.console import runs_of, say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.results.items import analyse_items, write_items


def run(config: DictConfig) -> None:
    """Prints the analysis and, when `out` is given, writes it."""
    wanted = plain(config)
    settings = {name: wanted[name] for name in ("shown", "resamples", "level", "seed")}
    analysis = analyse_items(runs_of(wanted), str(wanted["metric"]), **settings)
    show_sheets(analysis.sheets)
    if wanted["out"] is not None:
        say_written(write_items(analysis, Path(wanted["out"])))
