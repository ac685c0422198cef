"""`check`: read every case of a task, or every image of a folder, and say what is wrong; or what metrics lack."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from rich.console import Console

from medimg_eval.commands.console import printer, say
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import UserError

if TYPE_CHECKING:
    from medimg_eval.checking import Description
    from medimg_eval.tasks import Task


SHOWN = 5
"""Like images of one folder, and doubts of one sort, that are shown one by one."""

VARIABLE = ("values", "labels", "series")
"""Facts in which like images may differ."""


def run(config: DictConfig) -> None:
    """Checks metrics, features, a path or the task of a config.

    Raises:
        UserError: something is wrong with the data, or a metric that is named lacks something.
    """
    wanted = plain(config)
    if wanted["metrics"] is not None:
        _check_metrics(wanted["metrics"], wanted["annotators"])
    elif wanted["features"] is not None:
        check_features(Path(wanted["features"]).expanduser())
    elif wanted["path"] is None:
        from medimg_eval.instantiate import build_task  # reads tables, which a look at a file can do without

        check_task(build_task(wanted["task"]), wanted["parts"], wanted["sample"], lookalikes=wanted["lookalikes"])
    else:
        check_path(Path(wanted["path"]).expanduser())


def check_features(path: Path) -> None:
    """Prints what a store of features holds, and every doubt about it.

    Raises:
        UserError: the folder is no store, or there are doubts.
    """
    from medimg_eval.checking import describe_features

    console = printer()
    description = describe_features(path)
    for line in (f"{path}: {description.kind}", *(f"  {name}: {text}" for name, text in description.facts.items())):
        say(console, line)
    for doubt in description.doubts:
        say(console, f"  ! {doubt}")
    if description.doubts:
        raise UserError(f"{path}: {len(description.doubts)} doubt{'s' * (len(description.doubts) > 1)}, listed above")


def check_path(path: Path) -> None:
    """Prints every image's description and doubts, grouping similar ones.

    Raises:
        UserError: the path does not exist, or a file cannot be read.
    """
    from medimg_eval.checking import describe

    console = printer()
    looked_at = unreadable = doubts = 0
    for _, folder in itertools.groupby(describe(path), key=lambda one: one.path.parent):
        descriptions = list(folder)
        _print_descriptions(console, descriptions)
        looked_at += len(descriptions)
        unreadable += sum(not description.readable for description in descriptions)
        doubts += sum(len(description.doubts) for description in descriptions if description.readable)
    console.print(f"{looked_at} things looked at, {unreadable} unreadable, {doubts} doubts", highlight=False)
    if unreadable:
        raise UserError(f"{path}: {unreadable} of {looked_at} cannot be read, listed above")


def _print_descriptions(console: Console, found: Sequence[Description]) -> None:
    """Prints the images of one folder, those that are alike together."""
    like: dict[tuple[str, ...], list[Description]] = {}
    for description in found:
        shared_facts = [f"{name} {text}" for name, text in description.facts.items() if name not in VARIABLE]
        like.setdefault((description.kind, *shared_facts), []).append(description)
    for some in like.values():
        if len(some) <= SHOWN:
            for description in some:
                _show_description(console, description.path, description.kind, description.facts, description.doubts)
        else:
            doubts = Counter(doubt for description in some for doubt in description.doubts)
            facts = {name: text for name, text in some[0].facts.items() if name not in VARIABLE}
            counted = (doubt if count == len(some) else f"{doubt} ({count} of them)" for doubt, count in doubts.items())
            _show_description(console, some[0].path.parent, f"{len(some)} x {some[0].kind}", facts, counted)


def _show_description(console: Console, path: Path, kind: str, facts: Mapping[str, str], doubts: Iterable[str]) -> None:
    for text in (f"{path}: {kind}", *(f"  {name}: {text}" for name, text in facts.items())):
        say(console, text)
    for doubt in doubts:
        say(console, f"  ! {doubt}")


def check_task(task: Task, parts: Iterable[str], sample: int = 100, *, lookalikes: bool = False) -> None:
    """Prints doubts, summaries and, with doubts, how to get data.

    Raises:
        UserError: something is wrong with the data.
    """
    from medimg_eval.checking import findings

    console = printer()
    doubts = 0
    findings_ = findings(task, parts, sample, lookalikes=lookalikes)
    for (part, sort), some in itertools.groupby(findings_, key=lambda one: (one.part, one.sort)):
        count = 0
        for finding in some:
            count += 1
            doubts += finding.doubt
            if not sort or count <= SHOWN:
                say(console, f"{part}: {finding.text}")
        if sort and count > SHOWN:
            say(console, f"{part}: {count - SHOWN} more {sort}")
    if doubts:
        if task.sampled:
            from medimg_eval.checking import how_to_get

            for line in how_to_get(task.name, task.card):
                say(console, line)
        raise UserError(f"task {task.name!r}: {doubts} doubt{'s' * (doubts > 1)}, listed above")


def _check_metrics(wanted: Any, annotators: Mapping[str, Any]) -> None:
    """Prints readiness by metric, then the details of what is missing.

    Raises:
        UserError: metrics were named, and not all are ready.
    """
    from medimg_eval.checking import ALL, check_metrics

    console = printer()
    rows, lacking = check_metrics(wanted, annotators)
    for row in rows:
        keys = ", ".join(dict.fromkeys(lack.key for lack in row.lacks))
        ready = "ready" if row.needs else "ready; needs no weights and no judge"
        say(console, f"{row.metric}: {f'lacks {keys}' if keys else ready}")
    for lack in lacking:
        say(console, f"- {lack.key}: {lack.message}")
    ready_ones = sum(not row.lacks for row in rows)
    console.print(f"{ready_ones} of {len(rows)} metrics are ready", highlight=False)
    if wanted != ALL and ready_ones < len(rows):
        raise UserError(f"{len(rows) - ready_ones} of {len(rows)} metrics are not ready; what they lack is told above")
