"""`check`: read every case of a task and say what is wrong with it, before a night is spent on it."""

from __future__ import annotations

from collections import Counter

import numpy as np
from omegaconf import DictConfig

from medimg_eval.case import Case
from medimg_eval.commands.building import build_tasks
from medimg_eval.commands.common import plain, printer
from medimg_eval.errors import SplitError, UserError
from medimg_eval.evaluation.progress import tracked
from medimg_eval.tasks import Task


def run(config: DictConfig) -> None:
    """Prints one line per doubt and a summary per part.

    Raises:
        UserError: something is wrong with the data.
    """
    wanted = plain(config)
    (task,) = build_tasks(wanted)
    console = printer()
    doubts = 0
    for part in wanted["parts"]:
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
        shapes: Counter[str] = Counter()
        for case in tracked(cases, f"reading {part}"):
            for doubt in look(task, case, shapes):
                doubts += 1
                console.print(f"{part}: case {case.id}: {doubt}", highlight=False, soft_wrap=True)
        grids = ", ".join(f"{count} x {shape}" for shape, count in shapes.most_common(3))
        patients = len({case.patient for case in cases if case.patient is not None})
        console.print(f"{part}: {len(cases)} cases, {patients or 'no'} patient ids; {grids}", highlight=False)
    if doubts:
        raise UserError(f"task {task.name!r}: {doubts} doubts, listed above")


def look(task: Task, case: Case, shapes: Counter[str]) -> list[str]:
    """What is wrong with one case, in words; counts its grid in `shapes`."""
    doubts = []
    try:
        images = task.read_images(case)
        grid = images[0].geometry
        shapes[f"{grid.shape} at {' x '.join(f'{step:g}' for step in grid.spacing)} mm"] += 1
        doubts += ["the image is constant" for image in images if np.ptp(image.array) == 0]
    except UserError as error:
        return [str(error)]
    try:
        target = case.target.read()
        apart = grid.difference(target.geometry)
        if apart:
            doubts.append(f"image and reference lie on different grids: {apart}")
        task.accept(case, target, what="reference")
        if not target.labels.any():
            doubts.append("the reference is empty")
    except UserError as error:
        doubts.append(str(error))
    return doubts
