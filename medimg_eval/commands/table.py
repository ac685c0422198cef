"""`table`: the paper table of any number of runs."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from medimg_eval.commands.showing import show
from medimg_eval.results import build_table, load_runs, write_all


def run(config: DictConfig) -> None:
    """Prints the table and, when `out` is given, writes it in four formats."""
    named = config["from"]
    paths = [Path(named)] if isinstance(named, str) else [Path(path) for path in named]
    table = build_table(
        load_runs(paths),
        metrics=None if config.metrics is None else list(config.metrics),
        resamples=config.resamples,
        level=config.level,
        seed=config.seed,
    )
    show(table)
    if config.out is not None:
        written = write_all(table, Path(config.out))
        Console(stderr=True).print("wrote " + ", ".join(str(path) for path in written), style="dim", soft_wrap=True)
