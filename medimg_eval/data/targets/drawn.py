"""What is drawn on slides and pictures, in QuPath, ASAP or ImageScope, as masks, instances and points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from medimg_eval.case import Image, Mask, OneFile, Points, Reference
from medimg_eval.data.records import Entry, OnImage
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.imaging import ImageFile, identify
from medimg_eval.imaging.annotations import Annotation, Frame, draw, read_annotations

Others = Literal["raise", "ignore"]
Absent = Literal["raise", "empty"]


@dataclass
class DrawnAreas:
    """Label map of drawn areas, numbered.

    Args:
        path: pattern below the root of the GeoJSON or XML, such as `annotations/{case}.geojson`.
        labels: class or group -> label, in the order of drawing: where areas overlap the later wins, and 0 erases, as
            `{_0: 1, _1: 1, _2: 0}` of CAMELYON16.
        others: what other classes are: a mistake (`raise`), or nothing (`ignore`).
        absent: what a missing file is: a mistake (`raise`), or a slide on which nothing is drawn (`empty`).
    """

    path: str
    labels: Mapping[str, int]
    others: Others = "raise"
    absent: Absent = "raise"

    def __post_init__(self) -> None:
        """Refuses settings that are none."""
        self.labels = {str(name): int(label) for name, label in self.labels.items()}
        _check_policies(self.others, self.absent)

    def reference(self, entry: Entry) -> Reference[Mask]:
        """The areas, drawn on the grid of the case's image when read."""
        return AreasOnImage(entry.path(self.path), _first_image(entry), self.others, self.absent, self.labels)


@dataclass
class DrawnPoints:
    """The points that are drawn, and the centres of areas.

    `names` says class or group -> what the task calls it; None takes the classes themselves. Path, others (of no effect
    without names) and absent are as of `DrawnAreas`.
    """

    path: str
    names: Mapping[str, str] | None = None
    others: Others = "raise"
    absent: Absent = "raise"

    def __post_init__(self) -> None:
        """Refuses settings that are none."""
        _check_policies(self.others, self.absent)

    def reference(self, entry: Entry) -> Reference[Points]:
        """The points, put onto the grid of the case's image when read."""
        names = None if self.names is None else {str(name): str(class_name) for name, class_name in self.names.items()}
        return PointsOnImage(entry.path(self.path), _first_image(entry), self.others, self.absent, names)


def _check_policies(others: str, absent: str) -> None:
    for what, value, options in (("others", others, ("raise", "ignore")), ("absent", absent, ("raise", "empty"))):
        UsageError.refuse_invalid(what, options, value)


def _first_image(entry: Entry) -> Reference[Image]:
    if not entry.images:
        raise entry.row.error("annotations need the image they are drawn on")
    return entry.images[0]


@dataclass(frozen=True, eq=False)
class _Drawn(OneFile, OnImage):
    image: Reference[Image]
    others: Others
    absent: Absent

    @property
    def files(self) -> tuple[Path, ...]:
        """The file, or the image where there may be none."""
        return self.image.files if self.absent == "empty" and not self.path.exists() else (self.path,)

    def _annotations(self, known: Sequence[str] | None) -> list[Annotation]:
        """Returns drawn annotations; CaseError for unknown classes or missing files."""
        if self.absent == "empty" and not self.path.exists():
            return []
        annotations = read_annotations(self.path)
        strange = next(
            (annotation.name for annotation in annotations if known is not None and annotation.name not in known), None
        )
        if strange is not None and self.others == "raise":
            raise CaseError(
                f"{self.path}: holds the class {strange!r}{nearest(strange, known or ())}; name it, or others=ignore"
            )
        return [annotation for annotation in annotations if known is None or annotation.name in known]

    def _frame(self) -> Frame:
        if not isinstance(self.image, ImageFile):
            raise CaseError(f"{self.path}: annotations are drawn on files, and {self.image.files[0]} is changed first")
        if identify(self.image.files[0]) != "slide":
            return Frame()
        from medimg_eval.imaging.slides import placement

        region = {} if self.image.region is None else {"region": self.image.region}
        return Frame(*placement(self.image.files, **{**self.image.options, **region}))


@dataclass(frozen=True, eq=False)
class AreasOnImage(_Drawn):
    """Areas drawn on an image."""

    labels: Mapping[str, int]

    def read(self) -> Mask:
        """Draws them; raises CaseError for a class without a label."""
        grid = self.geometry()
        if len(grid.shape) != 2:
            raise CaseError(f"{self.path}: areas are drawn on pictures and slides, not on a grid of {grid.shape}")
        areas = [annotation for annotation in self._annotations(list(self.labels)) if annotation.kind == "area"]
        labels, numbers = draw(areas, self.labels, (grid.shape[0], grid.shape[1]), self._frame())
        drawn = sum(self.labels[area.name] > 0 for area in areas)
        covered = drawn - np.count_nonzero(np.unique(numbers))
        notes = (f"{covered} of {drawn} areas hold no pixel's centre, or are covered by others",) if covered else ()
        return Mask(labels, grid.affine, notes=notes, units=grid.units, instances=numbers)


@dataclass(frozen=True, eq=False)
class PointsOnImage(_Drawn):
    """Points drawn on an image, and the centres of areas."""

    names: Mapping[str, str] | None

    def read(self) -> Points:
        """Returns rows and columns; raises CaseError for a class without a name."""
        annotations = self._annotations(None if self.names is None else list(self.names))
        frame = self._frame()
        positions, names = [np.zeros((0, 2))], []
        for annotation in annotations:
            if annotation.kind == "line":
                raise CaseError(f"{self.path}: holds a line of class {annotation.name!r}, which is no point")
            positions.append(frame.indices(annotation.centres()))
            names += [annotation.name if self.names is None else self.names[annotation.name]] * len(positions[-1])
        return Points(np.concatenate(positions), tuple(names))
