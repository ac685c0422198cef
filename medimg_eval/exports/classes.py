"""Runs of classification as the table that the CheXpert competition takes."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from medimg_eval.case import Case
from medimg_eval.errors import UserError
from medimg_eval.run_results import RunResults
from medimg_eval.tasks import Task

COMPETITION = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")
DATA = "CheXpert-v1.0"


def export_chexpert(run: RunResults, task: Task, out: Path) -> list[Path]:
    """Writes probabilities of CheXpert's five competition classes by study.

    A study is called by the folder of its images from `CheXpert-v1.0` on, as the competition's input names them; by the
    case where its images lie elsewhere.

    Raises:
        UserError: the run gives no probabilities of one of the classes, a case has no answer, or two are one study.
    """
    rows: dict[str, list[float]] = {}
    for case in task.cases("test"):
        answer = run.predictions.first(case.id)
        probabilities = answer.get("probabilities") if isinstance(answer, Mapping) else None
        if answer is None:
            raise UserError(
                f"{run.folder}: case {case.id} has no answer, and the competition takes no gaps; run test again"
            )
        missing = [name for name in COMPETITION if name not in (probabilities or {})]
        if probabilities is None or missing:
            lack = "no probabilities of classes" if probabilities is None else f"no probability of {missing[0]!r}"
            raise UserError(f"{run.folder}: case {case.id} has {lack}, which the CheXpert competition judges")
        study = _study_name(case)
        if study in rows:
            raise UserError(f"{run.folder}: {study} is the study of several cases; test with model.several=largest")
        rows[study] = [float(probabilities[name]) for name in COMPETITION]
    out.mkdir(parents=True, exist_ok=True)
    file = out / f"{run.manifest['task']}-{run.folder.name}.csv"
    with file.open("w", newline="", encoding="utf-8") as opened:
        lines = [("Study", *COMPETITION), *((study, *values) for study, values in rows.items())]
        csv.writer(opened, lineterminator="\n").writerows(lines)
    return [file]


def _study_name(case: Case) -> str:
    for file in (file for image in case.images for file in image.files):
        index = next((at for at, part in enumerate(file.parts) if part.startswith(DATA)), None)
        if index is not None:
            return "/".join((DATA, *file.parts[index + 1 : -1]))
    return case.id
