"""The task: a transform from a fixed to a moving image is asked for, and judged by labels, points and its Jacobian."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

from medimg_eval.case import Alignment, Array, Case, Correspondence, Geometry, Image, Mask, Prompt, Units
from medimg_eval.codecs import Alignments, Codec
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.metrics import LabelScore, Surface, parse, segmentation_scores, worst_scores
from medimg_eval.metrics.registration import (
    RegistrationPair,
    inverse_errors,
    registration_scores,
    sample_field,
    warp_labels,
    worst_registration_scores,
)
from medimg_eval.panels import Panel
from medimg_eval.tasks.base import NOBODY, SCORES, Task, baseline_configs, same_grid
from medimg_eval.tasks.checks import check_metrics


@dataclass(frozen=True, kw_only=True)
class RegistrationTask(Task):
    """Transforms from a fixed to a moving image, judged per case.

    A model answers by `register`: an `Alignment`, or its `forward` alone. Prompts show the fixed image first. Labels of
    the moving image are brought onto the fixed one by the nearest voxel; points of the fixed image are moved to the
    moving one, where their distances are measured. A label that either image lacks is judged in neither.

    Attributes:
        labels: integer in the label maps -> name; empty for a task without label maps.
        surface: of distances of warped labels: `surfel` or `voxel`; see docs/definitions/segmentation.md.
        units: of distances: `mm`, or `pixel` for pictures that state no physical size.
        surface_units: of distances between surfaces: `mm`, or `pixel` for voxels, as Learn2Reg's script counts them.
        spline: order of the spline by which a field is read at points: 1 linear, 3 cubic as in Learn2Reg's script.
    """

    labels: Mapping[int, str] = field(default_factory=dict, metadata=SCORES)
    surface: Surface = field(default="surfel", metadata=SCORES)
    units: Units = field(default="mm", metadata=SCORES)
    surface_units: Units = field(default="mm", metadata=SCORES)
    spline: int = field(default=1, metadata=SCORES)
    metrics: Sequence[str] = ("tre", "negative_jacobians", "sdlogj")
    monitor: str = "tre"

    capability: ClassVar[str] = "register"
    codec: ClassVar[Codec] = Alignments()
    judges: ClassVar[frozenset[str]] = frozenset({"mask", "registration"})
    noun: ClassVar[str] = "pairs"
    output: ClassVar[str] = "transforms"

    def __post_init__(self) -> None:
        """Refuses invalid labels and metrics, before anything is loaded."""
        self.complete(labels={int(label): str(name) for label, name in self.labels.items()})
        check_metrics(self, "transforms")
        UsageError.refuse_invalid(f"task {self.name!r}: surface", get_args(Surface), self.surface)
        UsageError.refuse_invalid(f"task {self.name!r}: units", get_args(Units), self.units, self.surface_units)
        if self.spline not in range(6):
            raise UsageError(f"task {self.name!r}: expected spline to be a whole number 0 to 5, got {self.spline!r}")
        if self._of_masks and not self.labels:
            raise UsageError(f"task {self.name!r}: {self._of_masks[0]!r} judges label maps; name their `labels`")

    @cached_property
    def _of_masks(self) -> list[str]:
        return [name for name in self.case_metrics if parse(name)[0].kind == "mask"]

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Shows the fixed image, then the moving one."""
        return Prompt(case.id, images, self.labels)

    def baselines(self) -> Mapping[str, Mapping[str, Any]]:
        """No registration: what images that stay where they are reach."""
        return baseline_configs({"identity": "Identity"})

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Alignment | Correspondence:
        """Checks shapes and numbers; references must lie on image grids."""
        if what == "reference":
            return checked_reference(case, answer)
        alignment = answer if isinstance(answer, Alignment) else Alignment(answer)
        fixed, moving = (image.geometry() for image in case.images)
        inverse = None if alignment.inverse is None else _check_transform(case, alignment.inverse, moving, "inverse")
        return Alignment(_check_transform(case, alignment.forward, fixed, what), inverse)

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges a transform by warped labels, then by points and its field."""
        wanted = list(self.case_metrics if metrics is None else metrics)
        answer: Any = self.codec.read(prediction) if isinstance(prediction, Path) else self.accept(case, prediction)
        correspondence: Correspondence = case.target.read()
        fixed, moving = (image.geometry() for image in case.images)
        self._refuse_unmeasured(case, fixed)
        forward = dense(answer.forward, fixed, moving)
        of_masks = [name for name in wanted if parse(name)[0].kind == "mask"]
        scores = self._label_scores(correspondence, forward, fixed, of_masks) if of_masks else []
        pair = RegistrationPair(
            forward,
            correspondence.region,
            *self._moved(correspondence, forward, moving),
            self._returned(answer, forward, fixed, moving),
            None if correspondence.forward is None else self._lengths(forward - correspondence.forward, moving),
        )
        return scores + registration_scores(pair, [name for name in wanted if name not in of_masks])

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """Worst scores; bounded distances are the fixed image's diagonal."""
        other_metrics = [name for name in self.case_metrics if name not in self._of_masks]
        try:
            fixed = case.images[0].geometry()
            spacing: Sequence[float] | None = self._surface_spacing(fixed)
            diagonal = math.hypot(*np.multiply(fixed.shape, fixed.spacing))
            shape: Sequence[int] | None = fixed.shape
        except CaseError:
            shape, spacing, diagonal = None, None, math.nan
        of_masks = worst_scores(self.labels, self._of_masks, shape=shape, spacing=spacing) if self._of_masks else []
        return of_masks + worst_registration_scores(other_metrics, diagonal)

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """The direction, how points are moved, and the units."""
        spline = {0: "the nearest voxel", 1: "linear interpolation"}.get(
            self.spline, f"a spline of order {self.spline}"
        )
        lines = ["points of the fixed image moved to the moving one, the field read by " + spline]
        if self._of_masks:
            lines.append(f"labels of the moving image on the fixed one by the nearest voxel, {self.surface} surfaces")
        if "pixel" in (self.units, self.surface_units):
            lines.append("distances in voxels" if self.units == "pixel" else "distances of surfaces in voxels")
        return "; ".join(lines)

    def panels(self, case: Case) -> list[Panel]:
        """Both images, and the fixed one's labels where there are any."""
        images = [
            Panel("image", name, image.read) for name, image in zip(("Fixed", "Moving"), case.images, strict=True)
        ]
        if not self.labels:
            return images
        return [*images, Panel("overlay", "Reference", lambda: case.target.read().fixed_labels, self.labels)]

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """The moving image's labels, warped onto the fixed one."""
        if not isinstance(prediction, Path) or not self.labels:
            return []

        def warped() -> Mask:
            (fixed, moving), correspondence = (image.geometry() for image in case.images), case.target.read()
            pulled = warp_labels(
                correspondence.moving_labels.labels, dense(self.codec.read(prediction).forward, fixed, moving)
            )
            return Mask(pulled, fixed.affine, units=fixed.units)

        return [Panel("overlay", "", warped, self.labels)]

    def _label_scores(
        self, known: Correspondence, forward: Array, fixed: Geometry, metrics: Sequence[str]
    ) -> list[LabelScore]:
        if known.fixed_labels is None or known.moving_labels is None:
            return [LabelScore(name, metric, math.nan, "absent") for name in self.labels.values() for metric in metrics]
        truth, moving = known.fixed_labels.labels, known.moving_labels.labels
        held = set(np.unique(truth).tolist()) & set(np.unique(moving).tolist())
        judged = {label: name for label, name in self.labels.items() if label in held}
        warped = warp_labels(moving, forward)
        scores = {
            (score.label, score.metric): score
            for score in (
                segmentation_scores(
                    truth, warped, self._surface_spacing(fixed), labels=judged, metrics=metrics, surface=self.surface
                )
                if judged
                else ()
            )
        }
        return [
            scores.get((name, metric), LabelScore(name, metric, math.nan, "absent"))
            for name in self.labels.values()
            for metric in metrics
        ]

    def _moved(self, known: Correspondence, forward: Array, moving: Geometry) -> tuple[Array | None, Array | None]:
        if known.fixed_points is None or known.moving_points is None:
            return None, None
        moved = known.fixed_points + sample_field(forward, known.fixed_points.T, self.spline).T
        return self._placed(moved, moving), self._placed(known.moving_points, moving)

    def _returned(self, answer: Alignment, forward: Array, fixed: Geometry, moving: Geometry) -> Array | None:
        if answer.inverse is None:
            return None
        return self._lengths(inverse_errors(forward, dense(answer.inverse, moving, fixed)), fixed)

    def _placed(self, positions: Array, grid: Geometry) -> Array:
        return positions if self.units == "pixel" else grid.world(positions)

    def _lengths(self, steps: Array, grid: Geometry) -> Array:
        """Lengths of steps in voxels, (axes, *spatial), in mm (or pixels), (*spatial)."""
        if self.units == "mm":
            steps = np.tensordot(grid.affine[:3, : len(steps)], steps, 1)
        lengths: Array = np.sqrt(np.square(steps).sum(axis=0))
        return lengths

    def _surface_spacing(self, grid: Geometry) -> tuple[float, ...]:
        in_mm = self.units == self.surface_units == "mm"
        return grid.spacing if in_mm else (1.0,) * len(grid.shape)

    def _refuse_unmeasured(self, case: Case, grid: Geometry) -> None:
        if self.units == "mm" and grid.units == "pixel":
            files = ", ".join(str(path) for path in case.images[0].files)
            raise CaseError(
                f"case {case.id!r}: {files} states no physical size; set task.units=pixel to measure in voxels"
            )


def dense(transform: Array, start: Geometry, end: Geometry) -> Array:
    """Dense displacement in voxels, float64, (axes, *spatial), also of affines.

    Args:
        transform: as of `Alignment`.
        start: the grid that it is of.
        end: the grid that it leads to.
    """
    axes = len(start.shape)
    if transform.shape != (axes + 1, axes + 1):
        return np.asarray(transform, np.float64)
    matrix = transform if axes == 2 else np.linalg.inv(end.affine) @ transform @ start.affine
    coordinates = np.indices(start.shape, dtype=np.float64)
    laid: Array = np.tensordot(matrix[:axes, :axes] - np.eye(axes), coordinates, 1)
    laid += matrix[:axes, axes].reshape(-1, *[1] * axes)
    return laid


def checked_reference(case: Case, known: Correspondence) -> Correspondence:
    """Reference checked against its images' grids; CaseError names the case."""
    fixed, moving = (image.geometry() for image in case.images)
    for labels, grid, which in ((known.fixed_labels, fixed, "fixed"), (known.moving_labels, moving, "moving")):
        if labels is not None:
            same_grid(labels.geometry, grid, what=f"case {case.id!r}: labels of the {which} image", than="the image")
    counts = [None if some is None else len(some) for some in (known.fixed_points, known.moving_points)]
    if counts[0] != counts[1]:
        raise CaseError(f"case {case.id!r}: {counts[0]} points of the fixed image, and {counts[1]} of the moving one")
    if known.region is not None and known.region.shape != fixed.shape:
        raise CaseError(f"case {case.id!r}: the region has shape {known.region.shape}, the image {fixed.shape}")
    return known


def _check_transform(case: Case, transform: Any, start: Geometry, what: str) -> Array:
    """A displacement, float32, or an affine map, float64."""
    array, axes = np.asarray(transform), len(start.shape)
    shapes = (axes, *start.shape), (axes + 1, axes + 1)
    if array.dtype.kind not in "iuf" or array.shape not in shapes:
        raise CaseError(
            f"case {case.id!r}: expected {what} to be a displacement {shapes[0]} in voxels or an affine map "
            f"{shapes[1]}, got {array.dtype} {array.shape}"
        )
    if not np.isfinite(array).all():
        raise CaseError(f"case {case.id!r}: {what} holds NaN or an infinite number")
    return array.astype(np.float32 if array.shape == shapes[0] else np.float64)
