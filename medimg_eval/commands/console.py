"""What commands read from their configs, print, and the failures they end with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from medimg_eval.arguments import as_list, grouped
from medimg_eval.errors import UsageError, UserError, cause_of

if TYPE_CHECKING:
    from medimg_eval.results import RunScores, Table
    from medimg_eval.results.table import Layout, Sheet
    from medimg_eval.run_results import RunSet

SHOWN = 5
"""Causes of failures that are printed; all failures are in the run's summary.json."""


def runs_of(wanted: Mapping[str, Any]) -> list[RunScores]:
    """Runs of a command: `runs`, or those behind `scores`.

    Raises:
        UsageError: `direction` or `proportions` is set without `scores`.
        UserError: there are none, or they cannot be read.
    """
    from medimg_eval.results import load_runs, load_scores

    if wanted["scores"] is not None:
        proportions = as_list(wanted.get("proportions") or [])
        return load_scores(Path(wanted["scores"]), direction=wanted["direction"], proportions=proportions)
    for name in ("direction", "proportions"):
        if wanted.get(name) is not None:
            raise UsageError(f"{name}= is for the metrics of scores=FILE.csv; those of runs have their own")
    return load_runs([Path(path) for path in as_list(wanted["runs"])])


def printer() -> Console:
    """Standard output, wide enough for a table where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def say(console: Console, text: str) -> None:
    """Prints a plain line: no markup, colours or breaks."""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


def say_written(files: Iterable[Path]) -> None:
    """Tells on standard error which files were written."""
    text = "wrote " + ", ".join(map(str, files))
    Console(stderr=True).print(text, style="dim", soft_wrap=True, markup=False)


def show_sheets(sheets: Iterable[Sheet]) -> None:
    """Prints sheets with footnotes, shared ones once."""
    from medimg_eval.results import to_rich

    console = printer()
    printed: set[str] = set()
    for sheet in sheets:
        console.print(to_rich(sheet))
        for note in sheet.content.footnotes:
            if note not in printed:
                console.print(Text(note, style="dim"))
        printed.update(sheet.content.footnotes)


def fits(console: Console, layout: Layout) -> bool:
    """Whether a table is no wider than what it is printed to."""
    from medimg_eval.results.table import rich_table

    options = console.options.update(max_width=10_000)
    return Measurement.get(console, options, rich_table(layout)).maximum <= console.width


def show(table: Table) -> None:
    """Prints a table and its footnotes to standard output.

    A table that is too wide is printed task by task if these stand beside each other; columns that do not fit beside
    each other are printed one below the other.
    """
    from medimg_eval.results.table import rich_table

    console = printer()
    layout = table.layout()
    parts = [layout]
    if not fits(console, layout):
        of_tasks = table.by_task() if table.look.form == "wide" else [table]
        parts = [layout for part in of_tasks for layout in part.layout().wrapped(partial(fits, console))]
    for part in parts:
        console.print(rich_table(part))
    for note in layout.footnotes:
        console.print(Text(note, style="dim"))


def warn_in_yellow(text: str) -> None:
    """Prints what readers of the table below must know."""
    printer().print(text, style="yellow", soft_wrap=True, markup=False)


def show_scored(runs: RunSet) -> None:
    """Prints tables, comparison and ranks of runs, and score paths."""
    show(runs.table)
    show_sheets(runs.sheets)
    if runs.not_compared:
        warn_in_yellow(f"no comparison: {runs.not_compared}")
    for run in runs:
        printer().print(f"scores of every case: {run.folder / 'scores.parquet'}", style="dim", soft_wrap=True)


def fail_if_cases_failed(folders: Iterable[Path]) -> None:
    """Raises UserError for failed cases, lost values and empty metrics."""
    from medimg_eval.results.runs import read_manifest

    lines: list[str] = []
    for folder in folders:
        manifest = read_manifest(folder / "manifest.json")
        judge = manifest.get("judge", {})
        if judge.get("failed"):
            lines.append(f"{judge['failed']} questions to judge {judge['name']} failed in {folder}; run test again:")
            lines += by_cause(judge["failures"], "question")
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        for single, several, key, of in (
            ("case failed", "cases failed", "failures", "stage"),
            ("value is lost to errors", "values are lost to errors", "raised", "metric"),
        ):
            if failures := summary.get(key, []):
                lines += [
                    f"{len(failures)} {single if len(failures) == 1 else several} in {folder}:",
                    *by_cause(failures, of),
                ]
                lines.append(f"  {folder / 'summary.json'} has them all; debug=true shows tracebacks")
        for tracker, message in manifest.get("untracked", {}).items():
            mend = f"with logger=, python -m medimg_eval score run={folder} sends them again"
            lines.append(f"{tracker} did not take the scores ({message}); {mend}")
        if without := _without_value(manifest, summary):
            lines.append(f"{', '.join(without)}: no case has a value in {folder}; the notes below the table say why")
    if lines:
        raise UserError("\n".join(lines))


def by_cause(failures: Iterable[Mapping[str, str]], of: str) -> list[str]:
    """Line per cause with one case, most frequent first."""
    causes = grouped(((failure[of], cause_of(failure["message"], failure["case"])), failure) for failure in failures)
    lines = []
    for cause in sorted(causes.values(), key=len, reverse=True)[:SHOWN]:
        times = f"{len(cause)} times, such as " if len(cause) > 1 else ""
        lines.append(f"  {times}{cause[0]['case']} ({cause[0][of]}): {cause[0]['message']}")
    return [*lines, f"  ... and {len(causes) - SHOWN} further causes"] if len(causes) > SHOWN else lines


def _is_optional(name: str) -> bool:
    """Whether a metric may have no value: an optional one, and a ratio of those, such as tokens over right answers."""
    from medimg_eval.metrics import get

    found = get(name)
    return found.optional or any(get(need.partition("@")[0]).optional for need in getattr(found, "needs", ()))


def _without_value(manifest: Mapping[str, Any], summary: Mapping[str, Any]) -> list[str]:
    """Requested metrics of a run without any value.

    A baseline may lack what it cannot have, such as a confidence, a model what optional metrics judge, and a
    task's own questions to a judge need one only where one is named; but not all may be missing.
    """
    from medimg_eval.metrics import is_declared
    from medimg_eval.results.runs import is_evidence

    valued = {row["metric"] for row in summary["metrics"] if row["mean"] is not None}
    without = [name for name in manifest["metrics"] if name not in valued and not is_evidence(name)]
    if valued:
        unasked = "judge" not in manifest
        optional = {name for name in without if is_declared(named := name.partition("@")[0]) and _is_optional(named)}
        without = [
            name
            for name in without
            if not (manifest["baseline"] or (unasked and name.startswith("judge")) or name in optional)
        ]
    return without
