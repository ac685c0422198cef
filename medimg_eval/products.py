"""What predictions become for people and other programs: DICOM-SEG on the source series, tables of what was said."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from medimg_eval.case import Boxes, Case, Mask, Points
from medimg_eval.codecs import Stored
from medimg_eval.data.logs import write_lines
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.progress import tracked
from medimg_eval.evaluation.run import Run, answered
from medimg_eval.results.runs import MANIFEST, read_manifest
from medimg_eval.system import whole
from medimg_eval.trust import guarded

if TYPE_CHECKING:
    from medimg_eval.tasks import Task

log = logging.getLogger(__name__)

SEGMENTATIONS = "dicom_seg"
"""Folder of DICOM-SEGs in a run's."""

AXES = {2: ("y", "x"), 3: ("x", "y", "z")}
"""What columns of places are called along an image's axes: of pictures (row, column), of volumes (i, j, k)."""

Row = dict[str, Any]


class Products(NamedTuple):
    """What was written: files or folders with how many things they hold; and what could not be, case -> why."""

    written: Mapping[Path, int]
    failures: Mapping[str, str]
    notes: Sequence[str] = ()


def write_products(folder: Path, task: Task, *, dicom_seg: bool | None = None) -> Products:
    """Writes what there is of a run without a truth, beside its predictions; what is there already stays.

    Args:
        folder: of the run.
        task: what was asked.
        dicom_seg: whether masks on DICOM series are also written as DICOM-SEG; None where highdicom is installed.

    Returns:
        Files, and the cases of which one could not be written.
    """
    run = Run(folder, "")
    stored = {trial: one for trial, one in run.predictions().items() if answered(one)}
    cases = {case.id: case for case in task.cases("test")}
    known = {name: (cases[name], one) for name, one in stored.items() if name in cases}
    files = {folder / "predictions": len(known)} if task.codec.heavy and known else {}
    if task.codec.form == "label map":
        products = _segmentations(folder, task, known, dicom_seg=dicom_seg)
        return products._replace(written={**files, **products.written})
    rows = [row for case, one in known.values() for row in _rows(task, case, one)]
    name = _named(task, known)
    return Products({**files, **(_tables(folder, name, rows) if name else {})}, {})


def refuse_without_highdicom(dicom_seg: bool | None) -> None:
    """Raises UserError, before a model is asked, where DICOM-SEG is wanted and cannot be written."""
    if dicom_seg and find_spec("highdicom") is None:
        raise UserError("dicom_seg=true needs highdicom, which is not installed: pip install 'medimg-eval[dicom]'")


def _segmentations(
    folder: Path, task: Task, known: Mapping[str, tuple[Case, Stored]], *, dicom_seg: bool | None
) -> Products:
    """DICOM-SEGs of masks on DICOM series."""
    from medimg_eval.imaging.dicom import write_segmentation

    series = {name: (case, Path(str(one))) for name, (case, one) in known.items() if _is_dicom(case)}
    if not series or dicom_seg is False:
        return Products({}, {})
    if find_spec("highdicom") is None:
        return Products({}, {}, ["DICOM-SEG needs highdicom: pip install 'medimg-eval[dicom]', then the same command"])
    model = str(read_manifest(folder / MANIFEST).get("model", ""))
    failures: dict[str, str] = {}
    done = 0
    for name, (case, file) in tracked(list(series.items()), "writing DICOM-SEG"):
        path = folder / SEGMENTATIONS / f"{file.name.removesuffix('.nii.gz')}.dcm"
        try:
            if not path.is_file():
                mask: Mask = task.codec.read(file)
                write_segmentation(path, mask, case.images[0].files, names=task.numbered_labels(), algorithm=model)
            done += 1
        except UserError as error:
            failures[name] = str(error)
        except Exception as error:
            log.debug("case %s", name, exc_info=True)
            failures[name] = (
                f"{case.images[0].files[0]}: cannot be written as DICOM-SEG ({type(error).__name__}: {error})"
            )
    return Products({folder / SEGMENTATIONS: done} if done else {}, failures)


def _is_dicom(case: Case) -> bool:
    from medimg_eval.imaging import identify

    try:
        return identify(case.images[0].files[0]) == "dicom"
    except CaseError:
        return False


def _named(task: Task, known: Mapping[str, tuple[Case, Stored]]) -> str:
    """What the table of answers is called; "" of what makes no table, such as probabilities of voxels."""
    if any(isinstance(one, Mapping) and "probabilities" in one for _, one in known.values()):
        return "classes"
    if not task.codec.heavy:
        return "answers"
    return "places" if task.codec.form == "places" else ""


def _rows(task: Task, case: Case, stored: Stored) -> list[Row]:
    """Rows of a table, as `score classes=`, `answers=` and `points=` read them."""
    if isinstance(stored, Mapping):
        if "probabilities" in stored:
            return [{"case": case.id, **stored["probabilities"]}]
        return [_answer(case, stored)]
    value = task.codec.read(stored) if task.codec.form == "places" else None
    if isinstance(value, Points):
        return _places(case.id, value.names, value.scores, _columns("", np.asarray(value.positions)))
    if isinstance(value, Boxes):
        corners = np.asarray(value.corners)
        axes = corners.shape[1] // 2
        ends = _columns("_min", corners[:, :axes]) | _columns("_max", corners[:, axes:])
        return _places(case.id, value.names, value.scores, ends)
    return []


def _answer(case: Case, stored: Mapping[str, Any]) -> Row:
    texts, weighed = stored.get("texts") or [], stored.get("preferences")
    row: Row = {"id": case.id, "image": case.images[0].files[0].name if case.images else ""}
    if case.question is not None and case.question.text:
        row["question"] = case.question.text
    if case.question is not None and case.question.options:
        row["options"] = dict(case.question.options)
    row["prediction"] = texts[-1] if texts else max(weighed, key=weighed.get) if weighed else ""
    return row | ({"confidence": stored["confidence"]} if "confidence" in stored else {})


def _columns(ending: str, numbers: Any) -> dict[str, Any]:
    named = AXES[numbers.shape[1]]
    return {f"{name}{ending}": numbers[:, place] for place, name in enumerate(named)}


def _places(case: str, names: Sequence[str], scores: Any, columns: Mapping[str, Any]) -> list[Row]:
    ordered = sorted(columns)
    rows = []
    for number, name in enumerate(names):
        row: Row = {"case": case, "label": name, **{key: float(columns[key][number]) for key in ordered}}
        rows.append(row | ({} if scores is None else {"score": float(scores[number])}))
    return rows


def _tables(folder: Path, name: str, rows: Sequence[Row]) -> dict[Path, int]:
    """The same rows as JSON lines and as CSV, whose texts no spreadsheet takes for formulas."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines, table = folder / f"{name}.jsonl", folder / f"{name}.csv"
    with whole(lines) as partial:
        write_lines(partial, rows)
    with whole(table) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns or ["case"], lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return {lines: len(rows), table: len(rows)}


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping) else guarded(value)
