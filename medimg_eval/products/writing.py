"""What there is of a run without a truth, written beside its predictions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from medimg_eval.case import Case, Mask
from medimg_eval.codecs import Stored
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.progress import tracked
from medimg_eval.evaluation.run import Run, answered
from medimg_eval.products.tables import rows_of, write_tables
from medimg_eval.results.runs import MANIFEST, read_manifest

if TYPE_CHECKING:
    from medimg_eval.tasks import Task

log = logging.getLogger(__name__)

SEGMENTATIONS = "dicom_seg"
"""Folder of DICOM-SEGs in a run's."""


class Products(NamedTuple):
    """Written products with counts, and failures by case."""

    written: Mapping[Path, int]
    failures: Mapping[str, str]
    notes: Sequence[str] = ()


def write_products(folder: Path, task: Task, *, dicom_seg: bool | None = None) -> Products:
    """Writes a run's products beside its predictions; existing ones stay.

    Args:
        folder: of the run.
        task: what was asked.
        dicom_seg: whether masks on DICOM series are also written as DICOM-SEG; None where highdicom is installed.

    Returns:
        Files, and the cases of which one could not be written.
    """
    run = Run(folder, "")
    stored = {trial: prediction for trial, prediction in run.predictions().items() if answered(prediction)}
    cases = {case.id: case for case in task.cases("test")}
    by_case = {name: (cases[name], prediction) for name, prediction in stored.items() if name in cases}
    files = {folder / "predictions": len(by_case)} if task.codec.heavy and by_case else {}
    if task.codec.form == "label map":
        products = _write_segmentations(folder, task, by_case, dicom_seg=dicom_seg)
        return products._replace(written={**files, **products.written})
    rows = [row for case, prediction in by_case.values() for row in rows_of(task, case, prediction)]
    name = _table_name(task, by_case)
    return Products({**files, **(write_tables(folder, name, rows) if name else {})}, {})


def refuse_without_highdicom(dicom_seg: bool | None) -> None:
    """Raises UserError early where DICOM-SEG cannot be written."""
    if dicom_seg and find_spec("highdicom") is None:
        raise UserError("dicom_seg=true needs highdicom, which is not installed: pip install 'medimg-eval[dicom]'")


def _write_segmentations(
    folder: Path, task: Task, known: Mapping[str, tuple[Case, Stored]], *, dicom_seg: bool | None
) -> Products:
    """DICOM-SEGs of masks on DICOM series."""
    from medimg_eval.imaging.dicom import write_segmentation

    series = {name: (case, Path(str(prediction))) for name, (case, prediction) in known.items() if _is_dicom(case)}
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


def _table_name(task: Task, known: Mapping[str, tuple[Case, Stored]]) -> str:
    """Name of the answers' table; "" without, as for probabilities."""
    if any(isinstance(prediction, Mapping) and "probabilities" in prediction for _, prediction in known.values()):
        return "classes"
    if not task.codec.heavy:
        return "answers"
    return "places" if task.codec.form == "places" else ""
