"""`figure`: scores as figures for a paper, with the numbers they show."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from medimg_eval.commands.console import printer, runs_of, say, say_written
from medimg_eval.configs.overrides import plain
from medimg_eval.instantiate import build_task, stored_task
from medimg_eval.viewer import every_figure


def run(config: DictConfig) -> None:
    """Draws figures, writes them and prints their captions.

    Raises:
        UsageError: What is asked for does not exist.
        UserError: There is nothing to draw.
    """
    from medimg_eval.results.figures import write_figure

    wanted = plain(config)
    console, aside = printer(), Console(stderr=True)
    figures = every_figure(lambda: runs_of(wanted), wanted, lambda folder: build_task(stored_task(folder)))
    for stem, drawn in figures:
        files = write_figure(drawn, Path(str(wanted["out"])), stem)
        say(console, drawn.caption)
        for remark in drawn.remarks:
            say(aside, f"! {stem}: {remark}")
        say_written(files)
