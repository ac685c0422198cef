"""`check`: read every case of a task, or every image of a folder, and say what is wrong; or what metrics lack."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig
from rich.console import Console

from medimg_eval.commands.check_questions import check_questions
from medimg_eval.commands.console import printer, say
from medimg_eval.configs.overrides import plain
from medimg_eval.errors import SplitError, UserError

if TYPE_CHECKING:
    from medimg_eval.commands.describe_files import Description
    from medimg_eval.tasks import Task


SHOWN = 5
"""Like images of one folder that are shown one by one."""

VARIABLE = ("values", "labels", "series")
"""Facts in which like images may differ."""


def run(config: DictConfig) -> None:
    """Checks the metrics, the path, or else the task, that the config names.

    Raises:
        UserError: something is wrong with the data, or a metric that is named lacks something.
    """
    wanted = plain(config)
    if wanted["metrics"] is not None:
        from medimg_eval.commands.check_metrics import check_metrics

        check_metrics(wanted["metrics"], wanted["annotators"])
    elif wanted["path"] is None:
        from medimg_eval.instantiate import build_task  # reads tables, which a look at a file can do without

        task = build_task(wanted["task"])
        if task.sampled:
            check_questions(task, wanted["parts"], wanted["sample"])
        else:
            check_task(task, wanted["parts"])
    else:
        check_path(Path(wanted["path"]).expanduser())


def check_path(path: Path) -> None:
    """Prints what every image is and every doubt about it; like images of one folder are shown together.

    Raises:
        UserError: the path does not exist, or a file cannot be read.
    """
    from medimg_eval.commands.describe_files import describe

    console = printer()
    looked_at = unreadable = doubts = 0
    for _, folder in itertools.groupby(describe(path), key=lambda one: one.path.parent):
        found = list(folder)
        _print(console, found)
        looked_at += len(found)
        unreadable += sum(not one.readable for one in found)
        doubts += sum(len(one.doubts) for one in found if one.readable)
    console.print(f"{looked_at} things looked at, {unreadable} unreadable, {doubts} doubts", highlight=False)
    if unreadable:
        raise UserError(f"{path}: {unreadable} of {looked_at} cannot be read, listed above")


def _print(console: Console, found: Sequence[Description]) -> None:
    """Prints the images of one folder, those that are alike together."""
    like: dict[tuple[str, ...], list[Description]] = {}
    for one in found:
        same = [f"{name} {text}" for name, text in one.facts.items() if name not in VARIABLE]
        like.setdefault((one.kind, *same), []).append(one)
    for some in like.values():
        if len(some) <= SHOWN:
            for one in some:
                _show(console, one.path, one.kind, one.facts, one.doubts)
        else:
            doubts = Counter(doubt for one in some for doubt in one.doubts)
            facts = {name: text for name, text in some[0].facts.items() if name not in VARIABLE}
            counted = (doubt if count == len(some) else f"{doubt} ({count} of them)" for doubt, count in doubts.items())
            _show(console, some[0].path.parent, f"{len(some)} x {some[0].kind}", facts, counted)


def _show(console: Console, path: Path, kind: str, facts: Mapping[str, str], doubts: Iterable[str]) -> None:
    for text in (f"{path}: {kind}", *(f"  {name}: {text}" for name, text in facts.items())):
        say(console, text)
    for doubt in doubts:
        say(console, f"  ! {doubt}")


def check_task(task: Task, parts: Iterable[str]) -> None:
    """Prints one line per doubt and a summary per part.

    Raises:
        UserError: something is wrong with the data.
    """
    from medimg_eval.evaluation.progress import tracked

    console = printer()
    doubts = 0
    for part in parts:
        try:
            cases = task.cases(part)
        except SplitError as error:  # many datasets hold no cases to fit on
            console.print(f"{part}: none; {error}", highlight=False, soft_wrap=True)
            doubts += part == "test"
            continue
        except UserError as error:
            console.print(f"{part}: {error}", highlight=False, soft_wrap=True)
            doubts += 1
            continue
        grids: Counter[str] = Counter()
        notes: Counter[str] = Counter()
        for case in tracked(cases, f"reading {part}"):
            found = task.check_case(case)
            grids.update([found.grid] if found.grid else [])
            notes.update(found.notes)
            for doubt in found.doubts:
                doubts += 1
                console.print(f"{part}: case {case.id}: {doubt}", highlight=False, soft_wrap=True)
        console.print(f"{part}: {task.describe(cases, grids)}", highlight=False)
        for note, count in notes.most_common():
            console.print(f"{part}: {count} cases were read so: {note}", highlight=False, soft_wrap=True, markup=False)
    if doubts:
        raise UserError(f"task {task.name!r}: {doubts} doubts, listed above")
