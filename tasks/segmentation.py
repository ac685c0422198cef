"""Segmentation: every voxel of an image is given one of the task's labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

from medimg_eval.case import Case, Image, Mask, Prompt, Prompts, Units
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.imaging import read_mask, write_mask
from medimg_eval.metrics import LabelScore, parse, segmentation_scores, worst_scores
from medimg_eval.metrics.segmentation import Penalty, Surface
from medimg_eval.tasks.base import Task, same_grid


@dataclass(kw_only=True)
class SegmentationTask(Task):
    """Label maps, judged per case and per label.

    Attributes:
        labels: integer in the mask -> name; 0 is background and is not judged.
        surface: `surfel` (area-weighted, the default) or `voxel` (voxel centres); see docs/metrics.md.
        penalty: what a distance is worth when one side is empty: `diagonal`, a number in mm, or `drop`.
        units: of distances: `mm`, or `pixel` for pictures that state no physical size.
    """

    labels: Mapping[int, str]
    surface: Surface = "surfel"
    penalty: Penalty = "diagonal"
    units: Units = "mm"
    metrics: Sequence[str] = ("dice", "iou", "hd95", "assd", "nsd@1")
    monitor: str = "dice"

    capability: ClassVar[str] = "segment"
    prediction_suffix: ClassVar[str] = ".nii.gz"
    scoring_fields: ClassVar[frozenset[str]] = Task.scoring_fields | {"surface", "penalty", "units"}

    def __post_init__(self) -> None:
        """Refuses labels and metrics that cannot be meant, before anything is loaded."""
        self.labels = {int(label): str(name) for label, name in self.labels.items()}
        if not self.labels or min(self.labels) < 1:
            raise UsageError(f"task {self.name!r}: expected labels of 1 and above, got {sorted(self.labels)}")
        self.metrics = [self.metrics] if isinstance(self.metrics, str) else list(self.metrics)
        for what, value, options in (("surface", self.surface, Surface), ("units", self.units, Units)):
            if value not in get_args(options):
                raise UsageError(f"task {self.name!r}: there is no {what} {value!r}{nearest(value, get_args(options))}")
        if parse(self.monitor)[0].kind != "mask":
            raise UsageError(f"task {self.name!r}: metric {self.monitor!r} does not judge masks")
        try:  # what scoring would refuse, before anything is asked
            worst_scores(self.labels, self.metrics, shape=(1, 1, 1), spacing=(1.0, 1.0, 1.0), penalty=self.penalty)
        except ValueError as error:
            raise UsageError(f"task {self.name!r}: {error}") from error

    def read_images(self, case: Case) -> tuple[Image, ...]:
        """Reads the images; several of one grid, such as MR sequences, become the channels of one."""
        images = super().read_images(case)
        if len(images) == 1:
            return images
        for reference, image in zip(case.images[1:], images[1:], strict=True):
            files = ", ".join(str(path) for path in reference.files)
            same_grid(image.geometry, images[0].geometry, what=f"case {case.id!r}: {files}", than="the first image")
        notes = tuple(dict.fromkeys(note for image in images for note in image.notes))
        return (replace(images[0], array=np.concatenate([image.array for image in images]), notes=notes),)

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Asks for the task's labels."""
        return Prompt(case.id, images, self.labels)

    def ask(self, model: Any, prompts: Prompts) -> Sequence[Any]:
        """Returns one label map per prompt: an integer array on the image's grid, or a Mask with its own."""
        answers: Sequence[Any] = model.segment(prompts)
        return answers

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Mask:
        """Checks grid, dtype and labels."""
        expected = case.target.geometry()
        if isinstance(answer, Mask):
            mask = answer
        else:
            array = np.asarray(answer)
            shown = case.images[0].geometry()
            if array.shape != shown.shape:
                raise CaseError(f"case {case.id!r}: the model's mask has shape {array.shape}, not {shown.shape}")
            # An array lies on the image's grid, which need not be the reference's.
            mask = Mask(array, shown.affine, units=shown.units)
        same_grid(mask.geometry, expected, what=f"case {case.id!r}: {what}", than=_reference(case))
        if mask.labels.dtype.kind not in "iub":
            raise CaseError(f"case {case.id!r}: the model's mask holds {mask.labels.dtype}, not integers")
        unknown = sorted(set(np.unique(mask.labels).tolist()) - {0, *self.labels})
        if unknown:
            known = ", ".join(f"{label} {name}" for label, name in self.labels.items())
            raise CaseError(
                f"case {case.id!r}: {what} holds unknown labels {unknown}; the task knows 0 background, {known}"
            )
        return mask

    def write(self, prediction: Mask, path: Path) -> None:
        """Stores the mask as NIfTI with the case's geometry."""
        write_mask(path, prediction)

    def score(self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None) -> list[LabelScore]:
        """Judges every label of one case."""
        mask = read_mask(prediction) if isinstance(prediction, Path) else self.accept(case, prediction)
        reference = case.target.read()
        same_grid(mask.geometry, reference.geometry, what=f"case {case.id!r}: prediction", than=_reference(case))
        return segmentation_scores(
            reference.labels,
            mask.labels,
            self._spacing(case, reference),
            labels=self.labels,
            metrics=self.metrics if metrics is None else metrics,
            surface=self.surface,
            penalty=self.penalty,
        )

    def worst(self, case: Case) -> list[LabelScore]:
        """Each metric's worst value; NaN when the reference itself cannot be read, for then nobody is judged."""
        try:
            reference = case.target.read()
            shape, spacing = reference.labels.shape, self._spacing(case, reference)
        except CaseError:
            return worst_scores(self.labels, self.metrics, shape=None, spacing=None, penalty=self.penalty)
        return worst_scores(self.labels, self.metrics, shape=shape, spacing=spacing, penalty=self.penalty)

    def _spacing(self, case: Case, reference: Mask) -> tuple[float, ...]:
        """Of the reference, or of the image where the reference is a plain picture; 1 where pixels are counted."""
        if self.units == "pixel":
            return (1.0,) * reference.labels.ndim
        grid = reference.geometry if reference.units == "mm" else case.images[0].geometry()
        measured = [name for name in self.metrics if (found := parse(name)[0]).unit or found.parameter]
        if grid.units == "pixel" and measured:
            raise CaseError(
                f"case {case.id!r}: {', '.join(str(path) for path in case.images[0].files)} states no physical size; "
                "set task.units=pixel to judge distances in pixels"
            )
        return grid.spacing

    def signature(self) -> str:
        """Surface convention, percentile rule and empty-mask policy."""
        penalty = f"{self.penalty:g} {self.units}" if isinstance(self.penalty, int | float) else self.penalty
        return (
            f"surface={self.surface}, hd95=max of the two directed percentiles, "
            f"one side empty=worst value (distances: {penalty}), both empty=not counted"
            + (", distances in pixels" if self.units == "pixel" else "")
        )


def _reference(case: Case) -> str:
    return f"the reference ({', '.join(str(path) for path in case.target.files)})"
