"""`monitor`: one metric over months or runs as a control chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from medimg_eval.arguments import as_list
from medimg_eval.commands.console import printer, runs_of, say, say_written, show_sheets
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import AcceptanceError
from medimg_eval.results.monitoring import monitor
from medimg_eval.results.runs import MANIFEST, read_manifest
from medimg_eval.results.table import Settings, check_interval, check_numbers


def run(config: DictConfig) -> None:
    """Prints the chart as a table, and draws it where `out` is given.

    Raises:
        UsageError: what is asked for does not exist.
        UserError: there are too few periods.
        AcceptanceError: a period after the baseline is out of control; exit code 3.
    """
    wanted = plain(config)
    check_numbers(wanted["resamples"], wanted["level"], wanted["seed"])
    check_interval(wanted["interval"])
    settings = Settings(wanted["resamples"], wanted["level"], wanted["seed"], interval=wanted["interval"])
    # Every run counts, also those that a table would leave out for newer ones of the same model.
    every = wanted if wanted["scores"] is not None else {**wanted, "runs": _every_run(wanted["runs"])}
    chart = monitor(
        runs_of(every),
        str(wanted["metric"]),
        by=str(wanted["by"] or ""),
        kind=str(wanted["kind"] or ""),
        baseline=wanted["baseline"],
        settings=settings,
    )
    show_sheets([chart.sheet()])
    if wanted["out"] is not None:
        from medimg_eval.results.figures import write_figure

        say_written(write_figure(chart.draw(wanted["width"]), Path(str(wanted["out"])), "control_chart"))
    if chart.violated:
        raise AcceptanceError("out of control:\n" + "\n".join(f"  - {violation}" for violation in chart.violated))
    say(printer(), "in control: no rule is violated")


def _every_run(runs: Any) -> list[str]:
    """The run folders that are named, and all below folders that are none."""
    folders: list[str] = []
    for path in (Path(str(folder)).expanduser() for folder in as_list(runs)):
        below = [] if (path / MANIFEST).is_file() else sorted(path.rglob(MANIFEST))
        tests = [str(file.parent) for file in below if read_manifest(file).get("command") == "test"]
        folders += tests or [str(path)]
    return folders
