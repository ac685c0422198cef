"""Detection: findings in an image are marked with points or boxes, each with a confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from medimg_eval.case import Array, Boxes, Case, Geometry, Image, Mask, Points, Prompt
from medimg_eval.codecs import Codec, Places
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.coco import CocoDetections, coco_scores, judged_coco
from medimg_eval.metrics.detection import (
    DetectionRule,
    Detections,
    box_ious,
    detection_scores,
    judged_boxes,
    judged_points,
    judged_regions,
)
from medimg_eval.metrics.run_lengths import areas_of_runs, box_of_runs, mask_overlaps, objects_as_runs
from medimg_eval.panels import Panel
from medimg_eval.tasks.base import NOBODY, SCORES, Task
from medimg_eval.tasks.checks import check_metrics


@dataclass(frozen=True, kw_only=True)
class DetectionTask(Task):
    """Points or boxes with confidences, judged by which findings they hit.

    A reference is `Points`, whose `values` are the findings' diameters in mm, or `Boxes`; matched by "region" a `Mask`,
    whose label 1 is the first of `labels`, and so on; by COCO's protocol for masks also one whose objects are numbered.
    A model answers with `Points` or `Boxes` and `scores`; where points are matched, a box is taken for its centre.

    Attributes:
        labels: the classes of findings to be found, each judged by itself.
        excluded: names of findings in the reference that need not be found; candidates of any class on them are
            neither hits nor false, as LUNA16 treats what few readers marked.
        unscored: names of findings in the reference that play no part, such as look-alikes: candidates on them are as
            false as any.
        um_per_px: micrometres per pixel where pictures state no physical size, or another than the stated.
        matching: which candidates hit: `luna16`, `iou`, `coco`, `coco-masks`, `midog`, `tupac16`, `camelyon16` or a
            mapping (`{preset: iou, threshold: 0.1}`); see docs/definitions/lesions.md.
    """

    labels: Sequence[str]
    excluded: Sequence[str] = field(default=(), metadata=SCORES)
    unscored: Sequence[str] = field(default=(), metadata=SCORES)
    um_per_px: float | None = field(default=None, metadata=SCORES)
    matching: str | Mapping[str, Any] = field(default="luna16", metadata=SCORES)
    metrics: Sequence[str] = ("cpm", "froc@1", "detection_recall")
    monitor: str = "detection_recall"

    capability: ClassVar[str] = "detect"
    codec: ClassVar[Codec] = Places()
    output: ClassVar[str] = "boxes or points with scores"
    judges: ClassVar[frozenset[str]] = frozenset({"detection"})

    def __post_init__(self) -> None:
        """Refuses invalid labels, metrics and rules, before anything is loaded."""
        for key, names in (("labels", self.labels), ("excluded", self.excluded), ("unscored", self.unscored)):
            self.complete(**{key: [names] if isinstance(names, str) else [str(name) for name in names]})
        named = [*self.labels, *self.excluded, *self.unscored]
        if not self.labels or len(set(named)) < len(named):
            raise UsageError(f"task {self.name!r}: expected `labels` and `excluded` to be different names, got {named}")
        if self.um_per_px is not None and not self.um_per_px > 0:
            raise UsageError(
                f"task {self.name!r}: expected um_per_px to be micrometres above 0, got {self.um_per_px!r}"
            )
        check_metrics(self, "detections")
        for name in self.metrics:
            if self._rule.matching != "coco" and any(need.startswith("coco_") for need in parse(name)[0].needs):
                raise UsageError(
                    f"task {self.name!r}: {name} is of COCO's protocol; set task.matching=coco or coco-masks"
                )

    @cached_property
    def _rule(self) -> DetectionRule:
        return DetectionRule.of(self.matching)

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Asks for the task's labels, numbered from 1 in their order."""
        return Prompt(case.id, images, self.numbered_labels())

    def numbered_labels(self) -> dict[int, str]:
        """The labels, from 1 on."""
        return dict(enumerate(self.labels, start=1))

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Points | Boxes:
        """Checks kind, shapes, names and numbers; references must be matchable."""
        if what == "reference":
            reference: Points | Boxes = answer
            self._reference(case)
            return reference
        where = f"case {case.id!r}: {what}"
        if not isinstance(answer, Points | Boxes):
            raise CaseError(f"{where} is {type(answer).__name__}, expected Points or Boxes")
        if self._rule.of_boxes and not isinstance(answer, Boxes):
            raise CaseError(f"{where} is Points, which have no IoU; answer with Boxes, or set task.matching=luna16")
        axes = len(case.images[0].geometry().shape)
        numbers = axes if isinstance(answer, Points) else 2 * axes
        if not answer.names:
            return type(answer)(np.zeros((0, numbers)), (), scores=np.zeros(0))
        positions, scores = _split_marks(answer)
        if positions.shape != (len(answer.names), numbers):
            raise CaseError(
                f"{where} has shape {positions.shape} for {len(answer.names)} names; expected {numbers} numbers each"
            )
        if scores is None or scores.shape != (len(answer.names),):
            held = "no confidences" if scores is None else f"{scores.shape} confidences for {len(answer.names)} names"
            raise CaseError(f"{where} holds {held}; give each candidate one in `scores`")
        if not (np.isfinite(positions).all() and np.isfinite(scores).all()):
            raise CaseError(f"{where} holds numbers that are not finite")
        # COCO's results hold boxes without any width, which hit nothing.
        least = -1e-9 if self._rule.matching == "coco" else 1
        if isinstance(answer, Boxes) and (positions[:, axes:] - positions[:, :axes] + 1 < least).any():
            raise CaseError(f"{where} holds a box whose opposite corner lies before its first one")
        CaseError.refuse_unknown(f"{where} names", self.labels, *sorted(set(answer.names)))
        self._check_masks(case, answer, where)
        return answer

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """Panel that shows where the answer lies."""
        return [Panel("overlay", "", lambda: self.codec.read(prediction))] if isinstance(prediction, Path) else []

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges the candidates of every label of one case."""
        answer = self.codec.read(prediction) if isinstance(prediction, Path) else prediction
        answer = self.accept(case, answer)
        wanted = tuple(self.case_metrics if metrics is None else metrics)
        reference = self._reference(case)
        return self._scores(answer, reference, case, wanted)

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """No candidates, missing all findings; NaN for unreadable references."""
        try:
            reference = self._reference(case)
        except CaseError:
            metrics = [name for name in self.case_metrics if name not in ("detection_score", "coco_candidate")]
            return [LabelScore(label, name, float("nan"), "failed") for label in self.labels for name in metrics]
        axes, none = len(case.images[0].geometry().shape), np.zeros(0)
        silence: Points | Boxes = Points(np.zeros((0, axes)), (), scores=none)
        if isinstance(reference, Boxes):
            silence = Boxes(np.zeros((0, 2 * axes)), (), none)
        return self._scores(silence, reference, case, tuple(self.case_metrics), "failed")

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Which candidates hit, and what need not be found."""
        parts = [self._rule.describe()]
        if self._rule.matching in ("radius", "region"):
            parts.append("further candidates on a finding ignored")
        if self.excluded:
            parts.append(f"candidates on {', '.join(self.excluded)} ignored")
        if self.um_per_px is not None:
            parts.append(f"{self.um_per_px:g} µm per pixel")
        return ", ".join(parts)

    def _reference(self, case: Case) -> Points | Boxes | Mask:
        """Reads the findings; raises CaseError when they cannot be matched."""
        reference = case.target.read()
        where = f"case {case.id!r}: the reference ({', '.join(str(path) for path in case.target.files)})"
        if isinstance(reference, Boxes) and not self._rule.of_boxes and self._rule.radius_um is not None:
            reference = Points(_box_centres(_split_marks(reference)[0]), reference.names)
        if isinstance(reference, Mask) and self._rule.masks and reference.instances is not None:
            reference = self._objects(reference, reference.instances)
        wanted: type[Points | Boxes | Mask] = {"iou": Boxes, "coco": Boxes, "region": Mask}.get(
            self._rule.matching, Points
        )
        if not isinstance(reference, wanted):
            raise CaseError(
                f"{where} is {type(reference).__name__}, and matching by {self._rule.matching} needs {wanted.__name__}"
            )
        if self._rule.measures_um:
            self._um_per_px(case)
        if isinstance(reference, Mask):
            return reference
        self._check_masks(case, reference, where)
        sized = isinstance(reference, Boxes) or reference.values is not None or self._rule.radius_um is not None
        if reference.names and not sized:
            raise CaseError(f"{where} has no diameters; give the layout the column that holds them")
        unknown = sorted(set(reference.names) - {*self.labels, *self.excluded, *self.unscored})
        if unknown:
            raise CaseError(f"{where} names {unknown[0]!r}; add it to the task's `labels`, `excluded` or `unscored`")
        return reference

    def _um_per_px(self, case: Case) -> tuple[float, ...]:
        """Returns micrometres per voxel by axis; CaseError where unstated."""
        grid = case.images[0].geometry()
        if self.um_per_px is not None:
            return (float(self.um_per_px),) * len(grid.shape)
        if grid.units == "pixel":
            raise CaseError(
                f"case {case.id!r}: {case.images[0].files[0]} states no physical size, and hits are measured in "
                "micrometres; set task.um_per_px"
            )
        return tuple(1000 * step for step in grid.spacing)

    def _in_mm(self, grid: Geometry, places: Array) -> Array:
        """Returns voxel indices as mm."""
        return grid.world(places) if self.um_per_px is None else places * (self.um_per_px / 1000)

    def _scores(
        self,
        answer: Points | Boxes,
        reference: Points | Boxes | Mask,
        case: Case,
        asked: Sequence[str],
        status: str = "",
    ) -> list[LabelScore]:
        """Returns rows of every label; `status` is a failed case's."""
        rows = []
        evidence = {"coco_candidate", "coco_object"}
        present = {*answer.names, *reference.names} if evidence.issuperset(asked) else self.labels
        for label in self.labels:
            if label not in present:
                continue  # It leaves no row, and there may be many such.
            if self._rule.matching == "coco" and isinstance(answer, Boxes) and isinstance(reference, Boxes):
                judged = self._judged_coco(label, answer, reference)
                rows += coco_scores(label, judged, asked, status or "present")
                if evidence.issuperset(asked):
                    continue
                detections = judged.at_half
            else:
                detections = self._judged(label, answer, reference, case)
            rows += detection_scores(label, detections, tuple(asked), status or None)
        if "coco_object" in asked and not any(row.metric.startswith("coco_") for row in rows):
            rows.append(LabelScore(self.labels[0], "coco_object", float("nan"), status or "absent"))
        return rows

    def _judged_coco(self, label: str, answer: Boxes, reference: Boxes) -> CocoDetections:
        chosen = np.array([at for at, name in enumerate(answer.names) if name == label], np.intp)
        indices = [at for at, name in enumerate(reference.names) if name == label or name in self.excluded]
        held, others_label = (
            np.array(indices, np.intp),
            np.array([reference.names[at] != label for at in indices], bool),
        )
        crowds, ignored = (
            np.zeros(len(held), bool) if flags is None else np.asarray(flags, bool)[held]
            for flags in (reference.crowds, reference.ignored)
        )
        if self._rule.masks:
            masks, objects = (
                [(of.masks or ())[at] for at in some] for of, some in ((answer, chosen), (reference, held))
            )
            overlaps = mask_overlaps(masks, objects, crowds)
            areas, object_areas = areas_of_runs(masks), areas_of_runs(objects)
        else:
            edges, reference_edges = (
                _box_edges(_split_marks(answer)[0][chosen]),
                _box_edges(_split_marks(reference)[0][held]),
            )
            some = len(edges) and len(reference_edges)
            overlaps = (
                box_ious(edges, reference_edges, crowds) if some else np.zeros((len(edges), len(reference_edges)))
            )
            areas, object_areas = _box_areas(edges), _box_areas(reference_edges)
            areas = areas if answer.areas is None else np.asarray(answer.areas, float)[chosen]
        if reference.areas is not None:
            object_areas = np.asarray(reference.areas, float)[held]
        confidences = np.asarray(answer.scores, float)[chosen]
        return judged_coco(confidences, areas, overlaps, object_areas, crowds, ignored | others_label)

    def _objects(self, mask: Mask, numbers: Array) -> Boxes:
        """Returns a label map's numbered objects as boxes with masks."""
        most = int(numbers.max(initial=0)) + 1
        held = (mask.labels > 0) & (mask.labels <= len(self.labels)) & (numbers > 0)
        keys, masks = objects_as_runs(np.where(held, mask.labels.astype(np.int64) * most + numbers, 0))
        boxes = np.array([box_of_runs(runs, len(numbers)) for runs in masks], float).reshape(-1, 4)
        left, top, width, height = boxes.T
        corners = np.stack([top, left, top + height - 1, left + width - 1], axis=1)
        return Boxes(corners, tuple(self.labels[key // most - 1] for key in keys), masks=tuple(masks))

    def _check_masks(self, case: Case, boxes: Points | Boxes, where: str) -> None:
        """Raises CaseError for boxes whose compared masks are missing or overrun."""
        if not (isinstance(boxes, Boxes) and self._rule.masks):
            return
        shape = case.images[0].geometry().shape
        if boxes.names and (boxes.masks is None or len(boxes.masks) != len(boxes.names) or len(shape) != 2):
            raise CaseError(
                f"{where} has no masks of a picture for its {len(boxes.names)} boxes, which COCO's protocol for masks "
                "compares; set layout.truth_kind=objects of the layout Coco, or task.matching=coco for boxes"
            )
        last = max((int(runs[-1, 1]) for runs in boxes.masks or () if len(runs)), default=0)
        if last > np.prod(shape):
            raise CaseError(f"{where} holds a mask of {last} pixels or more, the image has {shape} rows and columns")

    def _judged(self, label: str, answer: Points | Boxes, reference: Points | Boxes | Mask, case: Case) -> Detections:
        if isinstance(reference, Mask):
            return self._on_lesions(label, answer, reference, case)
        names = np.array(reference.names, dtype=str)
        counted = names == label
        held = counted | np.isin(names, list(self.excluded))
        chosen = np.array(answer.names, dtype=str) == label
        positions, scores = _split_marks(answer)
        confidences = np.asarray(scores, float)[chosen]
        if isinstance(reference, Boxes):
            edges, reference_edges = _box_edges(positions[chosen]), _box_edges(_split_marks(reference)[0][held])
            return judged_boxes(edges, confidences, reference_edges, counted[held], self._rule)
        positions = _box_centres(positions) if isinstance(answer, Boxes) else positions
        diameters = np.full(len(names), np.nan) if reference.values is None else np.asarray(reference.values, float)
        return judged_points(
            self._in_mm(case.images[0].geometry(), positions[chosen]),
            confidences,
            self._in_mm(case.target.geometry(), _split_marks(reference)[0][held]),
            diameters[held],
            counted[held],
            self._rule,
        )

    def _on_lesions(self, label: str, answer: Points | Boxes, reference: Mask, case: Case) -> Detections:
        positions, scores = _split_marks(answer)
        chosen = np.array(answer.names, dtype=str) == label
        positions = _box_centres(positions) if isinstance(answer, Boxes) else positions
        lesions, grid = reference.labels == 1 + list(self.labels).index(label), case.images[0].geometry()
        if lesions.shape != grid.shape or lesions.ndim != 2:
            raise CaseError(f"case {case.id!r}: the lesions' mask is {lesions.shape}, the image {grid.shape}")
        confidences = np.asarray(scores, float)[chosen]
        return judged_regions(positions[chosen], confidences, lesions, self._um_per_px(case), self._rule)


def _split_marks(marks: Points | Boxes) -> tuple[Array, Array | None]:
    """Returns where marks lie, (mark, numbers), and their confidences, (mark,)."""
    positions = np.asarray(marks.positions if isinstance(marks, Points) else marks.corners, float)
    return positions, None if marks.scores is None else np.asarray(marks.scores, float)


def _box_centres(corners: Array) -> Array:
    """Returns the middle of each box, (box, axes)."""
    axes = corners.shape[1] // 2
    return (corners[:, :axes] + corners[:, axes:]) / 2


def _box_areas(edges: Array) -> Array:
    """Returns the area of each box, (box,), from its edges."""
    axes = edges.shape[1] // 2
    sizes: Array = (edges[:, axes:] - edges[:, :axes]).prod(axis=1)
    return sizes


def _box_edges(corners: Array) -> Array:
    """Turns first and last voxels into edges; one voxel has width one."""
    axes = corners.shape[1] // 2
    return np.concatenate([corners[:, :axes] - 0.5, corners[:, axes:] + 0.5], axis=1)
