"""`table`: the paper table of any number of runs."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from medimg_eval.commands.common import as_list, plain, show
from medimg_eval.results import build_table, load_runs, write_all


def run(config: DictConfig) -> None:
    """Prints the table and, when `out` is given, writes it in four formats."""
    wanted = plain(config)
    table = build_table(
        load_runs([Path(path) for path in as_list(wanted["from"])]),
        metrics=None if wanted["metrics"] is None else as_list(wanted["metrics"]),
        by=None if wanted["by"] is None else str(wanted["by"]),
        mean=wanted["mean"],
        resamples=wanted["resamples"],
        level=wanted["level"],
        seed=wanted["seed"],
    )
    show(table)
    if wanted["out"] is not None:
        written = write_all(table, Path(wanted["out"]))
        Console(stderr=True).print("wrote " + ", ".join(str(path) for path in written), style="dim", soft_wrap=True)
