"""Segmentation: every voxel of an image is given one of the task's labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

from medimg_eval.case import Case, Image, Mask, Prompt, Prompts, Units
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.imaging import read_mask, write_mask
from medimg_eval.metrics import (
    EmptyPolicy,
    InstanceRule,
    LabelScore,
    LesionRule,
    Surface,
    parse,
    segmentation_scores,
    worst_scores,
)
from medimg_eval.metrics.segmentation import mask_metrics
from medimg_eval.tasks.base import Task, same_grid
from medimg_eval.tasks.prompting import guides_of


@dataclass(kw_only=True)
class SegmentationTask(Task):
    """Label maps, judged per case and per label.

    Attributes:
        labels: integer in the mask -> name; 0 is background and is not judged.
        regions: name -> the labels that make it up, such as a whole tumour; judged instead of the labels when given.
        surface: `surfel` (area-weighted, the default) or `voxel` (voxel centres); see docs/metrics.md.
        empty: what a label is worth that one side lacks, or each: a preset or a mapping; see docs/metrics.md.
        tolerances: in mm by the name of the label, of metrics asked for without one (`nsd`).
        ignore: a label of the reference whose voxels nobody is judged on.
        instances: how masks fall into instances and are matched; see docs/metrics.md.
        lesions: how lesion-wise metrics tell lesions apart: a preset or a mapping.
        units: of distances: `mm`, or `pixel` for pictures that state no physical size.
        guides: boxes or points that promptable models are told, taken from the reference; see docs/models.md.
    """

    labels: Mapping[int, str]
    regions: Mapping[str, Sequence[int]] = field(default_factory=dict)
    surface: Surface = "surfel"
    empty: str | Mapping[str, Any] = "worst"
    tolerances: Mapping[str, float] = field(default_factory=dict)
    ignore: int | None = None
    instances: Mapping[str, Any] = field(default_factory=dict)
    lesions: str | Mapping[str, Any] | None = None
    units: Units = "mm"
    guides: Mapping[str, Any] | None = None
    metrics: Sequence[str] = ("dice", "iou", "hd95", "assd", "nsd@1")
    monitor: str = "dice"

    capability: ClassVar[str] = "segment"
    prediction_suffix: ClassVar[str] = ".nii.gz"
    scoring_fields: ClassVar[frozenset[str]] = Task.scoring_fields | {
        *("regions", "surface", "empty", "tolerances", "ignore", "instances", "lesions", "units")
    }

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
        self._check_rules()
        self._guides = guides_of(self.guides)

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
        """Asks for the task's labels, with guides from the reference if the task gives them."""
        if self._guides is None or not images:
            return Prompt(case.id, images, self.labels)
        reference = case.target.read()
        same_grid(reference.geometry, images[0].geometry, what=f"case {case.id!r}: reference", than="the image")
        return Prompt(case.id, images, self.labels, self._guides.of(case.id, reference.labels, self.labels))

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
            labels=self._judged(),
            metrics=self.case_metrics if metrics is None else metrics,
            **self._rules(),
        )

    def worst(self, case: Case) -> list[LabelScore]:
        """Each metric's worst value; NaN when the reference itself cannot be read, for then nobody is judged."""
        try:
            reference = case.target.read()
            shape, spacing = reference.labels.shape, self._spacing(case, reference)
        except CaseError:
            return worst_scores(self._judged(), self.case_metrics, shape=None, spacing=None, empty=self.empty)
        worst = worst_scores(self._judged(), self.case_metrics, shape=shape, spacing=spacing, empty=self.empty)
        return worst if not self._evidence else self._counted(worst, reference, spacing)

    @property
    def _evidence(self) -> list[str]:
        return [name for name in self.case_metrics if parse(name)[0].evidence]

    def _counted(self, worst: Sequence[LabelScore], reference: Mask, spacing: tuple[float, ...]) -> list[LabelScore]:
        """What summaries count, such as missed lesions, is counted for a case without an answer as for an empty one."""
        counts = segmentation_scores(
            reference.labels,
            np.zeros_like(reference.labels),
            spacing,
            labels=self._judged(),
            metrics=self._evidence,
            **self._rules(),
        )
        values = {(score.label, score.metric): score.value for score in counts}
        return [score._replace(value=values.get((score.label, score.metric), score.value)) for score in worst]

    def _judged(self) -> Mapping[int, str] | Mapping[str, Sequence[int]]:
        return self.regions or self.labels

    def _rules(self) -> dict[str, Any]:
        """How `segmentation_scores` is to judge."""
        return {
            "surface": self.surface,
            "empty": self.empty,
            "tolerances": self.tolerances,
            "ignore": self.ignore,
            "instances": self.instances,
            "lesions": self.lesions,
        }

    def _check_rules(self) -> None:
        """Refuses what scoring would refuse, before anything is asked."""
        if len(set(self.metrics)) < len(self.metrics):
            raise UsageError(f"task {self.name!r}: expected `metrics` to name each metric once, got {self.metrics}")
        unknown = sorted({label for labels in self.regions.values() for label in labels} - set(self.labels))
        if unknown:
            raise UsageError(f"task {self.name!r}: regions hold labels {unknown} that `labels` does not name")
        nothing = np.zeros((1, 1, 1), np.uint8)
        try:
            segmentation_scores(
                nothing, nothing, (1.0, 1.0, 1.0), labels=self._judged(), metrics=self.case_metrics, **self._rules()
            )
        except (ValueError, TypeError) as error:
            raise UsageError(f"task {self.name!r}: {error}") from error

    def _spacing(self, case: Case, reference: Mask) -> tuple[float, ...]:
        """Of the reference, or of the image where the reference is a plain picture; 1 where pixels are counted."""
        if self.units == "pixel":
            return (1.0,) * reference.labels.ndim
        grid = reference.geometry if reference.units == "mm" else case.images[0].geometry()
        measured = [name for name in self.case_metrics if (found := parse(name)[0]).unit or found.parameter]
        if grid.units == "pixel" and measured:
            raise CaseError(
                f"case {case.id!r}: {', '.join(str(path) for path in case.images[0].files)} states no physical size; "
                "set task.units=pixel to judge distances in pixels"
            )
        return grid.spacing

    def signature(self) -> str:
        """Surface convention, percentile rule and empty-mask policy."""
        asked = mask_metrics(self.case_metrics)
        parts = [f"surface={self.surface}", "hd95=max of the two directed percentiles"]
        if "nsd" in asked and self.tolerances:
            limits = ", ".join(f"{name} {tolerance:g}" for name, tolerance in self.tolerances.items())
            parts.append(f"NSD tolerances {limits} {self.units}")
        if any("instances" in found.rules for found, _ in asked.values()):
            parts.append(InstanceRule.of(self.instances).describe())
        if any("lesions" in found.rules for found, _ in asked.values()):
            parts.append(LesionRule.of(self.lesions).describe())
        if self._guides is not None:
            parts.append(self._guides.describe())
        if self.ignore is not None:
            parts.append(f"voxels of label {self.ignore} ignored")
        parts.append(EmptyPolicy.of(self.empty).describe([found for found, _ in asked.values()], self.units))
        return ", ".join(parts) + (", distances in pixels" if self.units == "pixel" else "")


def _reference(case: Case) -> str:
    return f"the reference ({', '.join(str(path) for path in case.target.files)})"
