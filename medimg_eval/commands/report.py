"""`report`: a folder of pages to look at: tables, cases with images and answers; or a leaderboard of many tasks."""

from __future__ import annotations

from omegaconf import DictConfig
from rich.console import Console

from medimg_eval.catalogue import task_facts
from medimg_eval.commands.console import runs_of, say, say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.instantiate import build_task, stored_task
from medimg_eval.viewer import write_pages


def run(config: DictConfig) -> None:
    """Writes the report and says where it is."""
    wanted, console = plain(config), Console(stderr=True)
    written = write_pages(
        lambda: runs_of(wanted),
        wanted,
        lambda folder, root: build_task(stored_task(folder, root)),
        task_facts,
        lambda text: say(console, f"! {text}"),
    )
    show_sheets(comparison.sheet for comparison in written.compared)
    say_written([written.page])
