"""What somebody, or a program, drew on slides: QuPath's GeoJSON, ASAP's XML, as answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from medimg_eval.case import Mask, Points, Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging.annotations import Annotation, Frame, draw, read_annotations
from medimg_eval.models.base import Detector, Segmenter
from medimg_eval.models.precomputed.files import FromFolder, result_folder


class PrecomputedAnnotations(FromFolder, Segmenter, Detector):
    """Folder of annotation files by case: areas, or detected points.

    Args:
        pattern: the file of a case in it, holding `{case}`: GeoJSON, also `.gz`, or XML.
        classes: class or group of the file -> label of the task, in the order of drawing; None where they are equal,
            and drawn in the order of the labels. Objects of other classes are left out.
        score: the measurement that is the confidence of a point, such as `Probability`; "" gives each 1.
        downsample: level-0 pixels to a pixel of the image that the task shows: 32 of level 5.

    Raises:
        UserError: the folder does not exist, or the pattern holds no `{case}`.
    """

    reads_images: ClassVar[bool] = True  # for their grids

    def __init__(
        self,
        root: str,
        pattern: str = "{case}.geojson",
        classes: Mapping[str, str] | None = None,
        score: str = "",
        downsample: float = 1.0,
    ) -> None:
        self.root = result_folder(root, "annotations", pattern)
        self.pattern, self.classes, self.score = pattern, classes, score
        self.frame = Frame(downsample=(float(downsample), float(downsample)))

    def segment(self, prompts: Prompts) -> Sequence[Mask]:
        """Draws areas on the image's grid as instances; CaseError names the file."""
        return [self._drawn(prompt) for prompt in prompts]

    def detect(self, prompts: Prompts) -> Sequence[Points]:
        """Reads the points; raises CaseError naming the file."""
        return [self._points(prompt) for prompt in prompts]

    def _drawn(self, prompt: Prompt) -> Mask:
        grid = prompt.image.geometry
        if len(grid.shape) != 2:
            raise CaseError(
                f"case {prompt.case_id!r}: areas are drawn on pictures and slides, not on {grid.shape} voxels"
            )
        numbered = {name: label for label, name in prompt.labels.items()}
        labels = {file_name: numbered[name] for file_name, name in self._known(prompt).items()}
        drawn, numbers = draw(read_annotations(self._path(prompt)), labels, (grid.shape[0], grid.shape[1]), self.frame)
        return Mask(drawn, grid.affine, units=grid.units, instances=numbers)

    def _points(self, prompt: Prompt) -> Points:
        name_of = self._known(prompt)
        centres, names, scores = [np.zeros((0, 2))], [], []
        for annotation in read_annotations(self._path(prompt)):
            if annotation.name in name_of and annotation.kind != "line":
                centres_ = annotation.centres()
                centres.append(self.frame.indices(centres_))
                names += [name_of[annotation.name]] * len(centres_)
                scores += [self._confidence(annotation, prompt)] * len(centres_)
        return Points(np.concatenate(centres), tuple(names), scores=np.array(scores, np.float64))

    def _known(self, prompt: Prompt) -> dict[str, str]:
        """Returns the label that each class of the file stands for."""
        names = {name: name for name in prompt.labels.values()} if self.classes is None else dict(self.classes)
        UserError.refuse_invalid("model.classes: label", prompt.labels.values(), *names.values())
        return names

    def _confidence(self, one: Annotation, prompt: Prompt) -> float:
        if not self.score:
            return 1.0
        CaseError.refuse_unknown(f"{self._path(prompt)}: an object has no measurement", one.values, self.score)
        return one.values[self.score]

    def _path(self, prompt: Prompt) -> Path:
        return self.root / self.pattern.replace("{case}", prompt.case_id)
