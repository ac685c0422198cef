"""Which classes are present, and the boxes that say where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medimg_eval.case import Boxes, Findings, Image, LocatedFindings, Outline, Reference
from medimg_eval.data.records import Entry, Given, OnImage, Target
from medimg_eval.data.targets.masks import FilledMask
from medimg_eval.errors import CaseError


@dataclass
class LocatedClasses:
    """Findings with boxes of some, as NIH's radiologists drew.

    Args:
        findings: which classes are present.
        boxes: where; boxes of one class together are its outline.
        names: what boxes are called -> class, where that differs.
    """

    findings: Target
    boxes: Target
    names: Mapping[str, str] = field(default_factory=dict)

    def reference(self, entry: Entry) -> Reference[LocatedFindings]:
        """The findings, whose boxes are filled in when they are read."""
        image = entry.image_below("boxes")
        return _Located(self.findings.reference(entry), self.boxes.reference(entry), image, dict(self.names))


@dataclass(frozen=True)
class _Located(OnImage):
    findings: Reference[Findings]
    boxes: Reference[Boxes]
    image: Reference[Image]
    names: Mapping[str, str]

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that both are read from."""
        return tuple(dict.fromkeys((*self.findings.files, *self.boxes.files)))

    def read(self) -> LocatedFindings:
        """Joins boxes to findings; CaseError for unknown or absent classes."""
        findings, boxes = self.findings.read(), self.boxes.read()
        called = [self.names.get(name, name) for name in boxes.names]
        CaseError.refuse_unknown(f"{self.files[0]}: a box is called", findings.values, *called)
        absent = next((name for name in called if findings.values[name] == 0), None)
        if absent is not None:
            raise CaseError(f"{self.files[0]}: there is a box of {absent!r}, which is said to be absent")
        outlines = {name: Outline(self._filled(boxes, called, name)) for name in dict.fromkeys(called)}
        return LocatedFindings(findings.values, outlines, readers=findings.readers)

    def _filled(self, boxes: Boxes, called: list[str], name: str) -> Any:
        indices = [index for index, box_name in enumerate(called) if box_name == name]
        some = Boxes(boxes.corners[indices], (name,) * len(indices))
        return FilledMask(Given(some, self.files, self.image), self.image, {name: 1})
