"""Checks of the metrics and cases of a task, and how what a set is worth is written down."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from medimg_eval.case import Case, Mask
from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics import parse
from medimg_eval.metrics.own_metrics import import_own
from medimg_eval.metrics.registry import canonical

if TYPE_CHECKING:
    from medimg_eval.tasks.base import Task


def check_metrics(task: Task, what: str = "") -> None:
    """Lists a task's metrics; summaries need a `judges` metric.

    `what` says what metrics of these kinds judge, for the message; "" leaves them to the task.

    Raises:
        UsageError: one is named twice, or judges something else.
    """
    metrics = [task.metrics] if isinstance(task.metrics, str) else task.metrics
    for name in (*map(str, metrics), task.monitor):
        import_own(name)
    held = [canonical(str(name), task.judges) for name in metrics]
    task.complete(metrics=held, monitor=canonical(task.monitor, task.judges) if task.monitor else "")
    if len(set(task.metrics)) < len(task.metrics):
        raise UsageError(f"task {task.name!r}: expected `metrics` to name each metric once, got {list(task.metrics)}")
    if not what:
        return
    single = [name for name in task.metrics if not parse(name)[0].over or parse(name)[0].needs]
    for needed in (*((parse(name)[0].needs or (name,)) for name in single), (task.monitor,)):
        if needed[0] and not any(parse(metric)[0].kind in task.judges for metric in needed):
            raise UsageError(f"task {task.name!r}: metric {needed[0]!r} does not judge {what}")


class Checked(NamedTuple):
    """Findings on one case.

    Attributes:
        doubts: what is wrong, in words.
        grid: of its first image, in words; "" where there is none to be read.
        notes: what readers mended.
    """

    doubts: list[str]
    grid: str = ""
    notes: frozenset[str] = frozenset()


def check_grids(task: Task, case: Case) -> Checked:
    """Reads images and reference; checks grid, content and target."""
    try:
        images = task.read_images(case)
        geometry = images[0].geometry if images else None
    except UserError as error:
        return Checked([str(error)])
    doubts = ["the image is constant" for image in images if np.ptp(image.array) == 0]
    try:
        target = case.target.read()
        apart = geometry.difference(case.target.geometry()) if geometry else ""
        if apart:
            doubts.append(f"image and reference lie on different grids: {apart}")
        task.accept(case, target, what="reference")
        if isinstance(target, Mask) and not target.labels.any():
            doubts.append("the reference is empty")
    except UserError as error:
        doubts.append(str(error))
    notes = frozenset(note for image in images for note in image.notes)
    if geometry is None:
        return Checked(doubts, notes=notes)
    spacing_text = "" if geometry.units == "pixel" else f" at {' x '.join(f'{step:g}' for step in geometry.spacing)} mm"
    return Checked(doubts, f"{geometry.shape}{spacing_text}", notes)


def count_grids(cases: Sequence[Case], grids: Mapping[str, int]) -> str:
    """Cases, patients and the most frequent grids, in words."""
    most = ", ".join(f"{count} x {grid}" for grid, count in Counter(grids).most_common(3))
    patients = len({case.patient for case in cases if case.patient is not None})
    return f"{len(cases)} cases, {patients or 'no'} patient ids; {most}"


def count_questions(cases: Sequence[Case]) -> str:
    """Questions, their kinds, options and images, in words."""
    questions = [case.question for case in cases if case.question is not None]
    kinds = Counter(question.kind for question in questions)
    options = Counter(len(question.options) for question in questions if question.options)
    images = Counter(len(case.images) for case in cases if case.question is not None)
    parts = [f"{len(cases)} question{'s' * (len(cases) != 1)}"]
    parts += [", ".join(f"{count} {kind}" for kind, count in kinds.most_common())] if kinds else []
    parts += [_count_text(options, "option")] if options else []
    parts += [_count_text(images, "image")] if images else []
    return "; ".join(parts)


def _count_text(counter: Counter[int], noun: str) -> str:
    some = [f"{count} with {number} {noun}{'s' * (number != 1)}" for number, count in sorted(counter.items())]
    return ", ".join(some)


def described(value: Any) -> dict[str, Any]:
    """A set's value as JSON holds it; NaN becomes null."""
    if isinstance(value, str):
        return {"flags": [value]}
    facts = {
        key: _finite_value(held) for key, held in asdict(value).items() if key not in ("metric", "value", "details")
    }
    return facts | {"details": {key: _finite_value(held) for key, held in value.details.items()}}


def _finite_value(held: Any) -> Any:
    return None if isinstance(held, float) and not math.isfinite(held) else held
