"""Detection: findings in an image are marked with points or boxes, each with a confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from medimg_eval.case import Array, Boxes, Case, Image, Points, Prompt
from medimg_eval.codecs import Codec, Places
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.detection import (
    DetectionRule,
    Detections,
    detection_scores,
    judged_boxes,
    judged_points,
)
from medimg_eval.panels import Panel
from medimg_eval.tasks.base import NOBODY, SCORES, Task, check_metrics


@dataclass(frozen=True, kw_only=True)
class DetectionTask(Task):
    """Points or boxes with confidences, judged by which findings they hit.

    A reference is `Points`, whose `values` are the findings' diameters in mm, or `Boxes`. A model answers with
    `Points` or `Boxes` and their `scores`; matched by "radius", a box is taken for its centre.

    Attributes:
        labels: the classes of findings to be found, each judged by itself.
        excluded: names of findings in the reference that need not be found; candidates of any class on them are
            neither hits nor false, as LUNA16 treats what few readers marked.
        matching: which candidates hit: `luna16`, `iou` or a mapping (`{preset: iou, threshold: 0.1}`); see
            docs/metrics-lesions.md.
    """

    labels: Sequence[str]
    excluded: Sequence[str] = field(default=(), metadata=SCORES)
    matching: str | Mapping[str, Any] = field(default="luna16", metadata=SCORES)
    metrics: Sequence[str] = ("cpm", "froc@1", "detection_recall")
    monitor: str = "detection_recall"

    capability: ClassVar[str] = "detect"
    codec: ClassVar[Codec] = Places()
    output: ClassVar[str] = "boxes or points with scores"
    judges: ClassVar[frozenset[str]] = frozenset({"detection"})

    def __post_init__(self) -> None:
        """Refuses labels, metrics and rules that cannot be meant, before anything is loaded."""
        for key, names in (("labels", self.labels), ("excluded", self.excluded)):
            self.complete(**{key: [names] if isinstance(names, str) else [str(name) for name in names]})
        named = [*self.labels, *self.excluded]
        if not self.labels or len(set(named)) < len(named):
            raise UsageError(f"task {self.name!r}: expected `labels` and `excluded` to be different names, got {named}")
        check_metrics(self, "detections")
        _ = self._rule

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
        """Checks kind, shapes, names and numbers."""
        where = f"case {case.id!r}: {what}"
        if not isinstance(answer, Points | Boxes):
            raise CaseError(f"{where} is {type(answer).__name__}, expected Points or Boxes")
        if self._rule.matching == "iou" and not isinstance(answer, Boxes):
            raise CaseError(f"{where} is Points, which have no IoU; answer with Boxes, or set task.matching=luna16")
        axes = len(case.images[0].geometry().shape)
        numbers = axes if isinstance(answer, Points) else 2 * axes
        if not answer.names:
            return type(answer)(np.zeros((0, numbers)), (), scores=np.zeros(0))
        places, scores = _parts(answer)
        if places.shape != (len(answer.names), numbers):
            raise CaseError(
                f"{where} has shape {places.shape} for {len(answer.names)} names; expected {numbers} numbers each"
            )
        if scores is None or scores.shape != (len(answer.names),):
            held = "no confidences" if scores is None else f"{scores.shape} confidences for {len(answer.names)} names"
            raise CaseError(f"{where} holds {held}; give each candidate one in `scores`")
        if not (np.isfinite(places).all() and np.isfinite(scores).all()):
            raise CaseError(f"{where} holds numbers that are not finite")
        if isinstance(answer, Boxes) and (places[:, :axes] > places[:, axes:]).any():
            raise CaseError(f"{where} holds a box whose opposite corner lies before its first one")
        unknown = sorted(set(answer.names) - set(self.labels))
        if unknown:
            raise CaseError(f"{where} names {unknown[0]!r}{nearest(unknown[0], self.labels)}")
        return answer

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """Where the answer lies."""
        return [Panel("overlay", "", lambda: self.codec.read(prediction))] if isinstance(prediction, Path) else []

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges the candidates of every label of one case."""
        answer = self.codec.read(prediction) if isinstance(prediction, Path) else prediction
        answer = self.accept(case, answer)
        asked = tuple(self.case_metrics if metrics is None else metrics)
        reference = self._reference(case)
        return [
            score
            for label in self.labels
            for score in detection_scores(label, self._judged(label, answer, reference, case), asked)
        ]

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """No candidate, so that every finding is missed; NaN when the reference itself cannot be read."""
        try:
            names = self._reference(case).names
        except CaseError:
            known = [name for name in self.case_metrics if name != "detection_score"]
            return [LabelScore(label, name, float("nan"), "failed") for label in self.labels for name in known]
        return [
            score
            for label in self.labels
            for score in detection_scores(
                label, Detections(np.zeros(0), (), names.count(label)), tuple(self.case_metrics), "failed"
            )
        ]

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Which candidates hit, and what need not be found."""
        parts = [self._rule.describe()]
        if self._rule.matching == "radius":
            parts.append("further candidates on a finding ignored")
        if self.excluded:
            parts.append(f"candidates on {', '.join(self.excluded)} ignored")
        return ", ".join(parts)

    def _reference(self, case: Case) -> Points | Boxes:
        """Reads the findings; raises CaseError when they cannot be matched."""
        reference = case.target.read()
        where = f"case {case.id!r}: the reference ({', '.join(str(path) for path in case.target.files)})"
        wanted = Boxes if self._rule.matching == "iou" else Points
        if not isinstance(reference, wanted):
            raise CaseError(
                f"{where} is {type(reference).__name__}, and matching by {self._rule.matching} needs {wanted.__name__}"
            )
        if isinstance(reference, Points) and reference.names and reference.values is None:
            raise CaseError(f"{where} has no diameters; give the layout the column that holds them")
        unknown = sorted(set(reference.names) - {*self.labels, *self.excluded})
        if unknown:
            raise CaseError(f"{where} names {unknown[0]!r}; add it to the task's `labels` or `excluded`")
        return reference

    def _judged(self, label: str, answer: Points | Boxes, reference: Points | Boxes, case: Case) -> Detections:
        names = np.array(reference.names, dtype=str)
        counted = names == label
        held = counted | np.isin(names, list(self.excluded))
        chosen = np.array(answer.names, dtype=str) == label
        places, scores = _parts(answer)
        confidences = np.asarray(scores, float)[chosen]
        if isinstance(reference, Boxes):
            edges, found = _edges(places[chosen]), _edges(_parts(reference)[0][held])
            return judged_boxes(edges, confidences, found, counted[held], self._rule)
        if isinstance(answer, Boxes):
            axes = places.shape[1] // 2
            places = (places[:, :axes] + places[:, axes:]) / 2
        return judged_points(
            case.images[0].geometry().world(places[chosen]),
            confidences,
            case.target.geometry().world(_parts(reference)[0][held]),
            np.asarray(reference.values if reference.names else (), float)[held],
            counted[held],
            self._rule,
        )


def _parts(marks: Points | Boxes) -> tuple[Array, Array | None]:
    """Returns where marks lie, (mark, numbers), and their confidences, (mark,)."""
    places = np.asarray(marks.positions if isinstance(marks, Points) else marks.corners, float)
    return places, None if marks.scores is None else np.asarray(marks.scores, float)


def _edges(corners: Array) -> Array:
    """Turns first and last voxels into edges: a box of one voxel is one voxel wide."""
    axes = corners.shape[1] // 2
    return np.concatenate([corners[:, :axes] - 0.5, corners[:, axes:] + 0.5], axis=1)
