"""Tables of whole-slide images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from medimg_eval.case import Geometry, Image, Reference
from medimg_eval.data.layouts.table import Table
from medimg_eval.data.records import Row


@dataclass(kw_only=True)
class Slides(Table):
    """A table with one row per slide, in the columns of CLAM and its kin: `slide_id`, `case_id`, and the truth.

    A case is a slide; with `id: case_id` it is all slides of a patient.

    Args:
        image: pattern of the slide below the root.
        features: pattern of the file of features of its tiles, which then is the image: (1, tile, feature) in float32.
        coordinate_columns: columns of an .npy before the features (Phikon: 3).
        id: the column of the case id.
        patient: the column of the patient, or a pattern: `{slide_id:.12}` of TCGA's names.
        modality: DICOM code.
        options: passed to the reader of slides, such as `um_per_px`.
        others: see `Table`; the authors' splits are a `SplitColumns` with the key `{slide_id}`.
    """

    image: str | Sequence[str] = "slides/{slide_id}.svs"
    features: str = ""
    coordinate_columns: int = 0
    id: str = "slide_id"
    patient: str = "case_id"
    modality: str = "SM"

    def images(self, root: Path, row: Row, pattern: str) -> list[Reference[Image]]:
        """The slide, or the features of its tiles."""
        if not self.features:
            return super().images(root, row, pattern)
        return [FeatureFile(root / row.fill(self.features), self.coordinate_columns)]


@dataclass(frozen=True)
class FeatureFile:
    """Features of a slide's tiles, in the place of its pixels."""

    path: Path
    coordinate_columns: int = 0

    @property
    def files(self) -> tuple[Path, ...]:
        """The file."""
        return (self.path,)

    def read(self) -> Image:
        """Returns (1, tile, feature); raises CaseError naming the file."""
        from medimg_eval.imaging.slides import read_features

        features = read_features(self.path, coordinate_columns=self.coordinate_columns).features
        return Image(features[None], np.eye(4), modality="SM", units="pixel", attributes={"holds": "features"})

    def geometry(self) -> Geometry:
        """Tiles and features."""
        return self.read().geometry
