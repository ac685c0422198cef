"""Slides of TCGA with labels of patients, in the folders of Owkin's program HistoSSLscaling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from medimg_eval.case import Image, Reference
from medimg_eval.data.bags import stored_bag
from medimg_eval.data.layouts.table import Slides
from medimg_eval.data.records import Row
from medimg_eval.errors import MissingDataError

FEATURES = "preprocessed/slides_classification/features"


@dataclass(kw_only=True)
class OwkinSlides(Slides):
    """Slides found by their features, with the label of their patient.

    Features lie in `preprocessed/slides_classification/features/ENCODER/TCGA/COHORT/SLIDE.svs/features.npy`. A case is
    a slide; its patient is the first twelve letters of its name. Slides of patients without a label are left out.

    Args:
        encoder: the folder of its features.
        cohorts: folders such as TCGA_COAD, of which the cases are put together.
        table: of labels below the root, a row for each patient; `{cohort}` is the cohort in lower case.
        label_id: the column of the patient in it.
        others: see `Slides`; `where` names the labels that are meant.
    """

    encoder: str
    cohorts: Sequence[str]
    label_id: str = "patient_id"

    def rows(self, root: Path) -> list[tuple[Row, str | None]]:
        """The labelled slides by cohort and name; MissingDataError for a cohort without features."""
        return [(row, None) for cohort in self.cohorts for row in self._rows_of(root, cohort)]

    def split_files(self, root: Path) -> tuple[Path, ...]:
        """None: no table says which split a slide is in."""
        return ()

    def images(self, root: Path, row: Row, pattern: str) -> list[Reference[Image]]:
        """The bag of a slide's tiles."""
        return [stored_bag(self._features_of(root, row.text("cohort")), row.text("slide_id"), "owkin")]

    def _rows_of(self, root: Path, cohort: str) -> list[Row]:
        folder = self._features_of(root, cohort)
        slides = sorted(path.parent.name.removesuffix(".svs") for path in folder.glob("*.svs/features.npy"))
        if not slides:
            raise MissingDataError(
                f"{folder}: expected SLIDE.svs/features.npy of slides, got none; set task.layout.encoder and "
                "task.layout.cohorts"
            )
        labels = {
            row.text(self.label_id): row for row in self.rows_of(root / str(self.table).format(cohort=cohort.lower()))
        }
        labelled = [(slide, labels[slide[:12]]) for slide in slides if slide[:12] in labels]
        return [
            Row(row.path, row.place, {**row.values, "slide_id": slide, "case_id": slide[:12], "cohort": cohort})
            for slide, row in labelled
        ]

    def _features_of(self, root: Path, cohort: str) -> Path:
        return root / FEATURES / self.encoder / "TCGA" / cohort
