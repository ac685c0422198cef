"""Landmarks: points that have names are to be found in an image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

from medimg_eval.case import Array, Case, Geometry, Image, Points, Prompt, Units
from medimg_eval.codecs import Codec, Places
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.measurement import Missed, landmark_metrics, landmark_scores, worst_landmark_scores
from medimg_eval.panels import Panel
from medimg_eval.tasks.base import NOBODY, SCORES, Task
from medimg_eval.tasks.checks import check_metrics

NOTHING = "landmarks"
"""The label of a case of which no landmark is known."""


@dataclass(frozen=True, kw_only=True)
class LandmarkTask(Task):
    """Points with names, judged per case and per point.

    A model answers by `detect`: `Points` in voxel indices along the axes of the image it was shown, each name at most
    once. A position of NaN, there or in the reference, is a point that was not found.

    Attributes:
        labels: what the file calls a point -> its name, such as `20: L1`; points of the reference that are not named
            here are not judged. Empty: all are, under the names they have.
        missed: what the distance of a point is worth that the prediction lacks: `diagonal` (of the image), a number
            of mm, or `skip`: not counted.
        units: of distances: `mm`, or `pixel` for pictures that state no physical size.
    """

    labels: Mapping[Any, str] = field(default_factory=dict)
    missed: Missed = field(default="diagonal", metadata=SCORES)
    units: Units = field(default="mm", metadata=SCORES)
    metrics: Sequence[str] = ("landmark_distance", "sdr@2")
    monitor: str = "landmark_distance"

    capability: ClassVar[str] = "detect"
    codec: ClassVar[Codec] = Places()
    judges: ClassVar[frozenset[str]] = frozenset({"landmark"})

    def __post_init__(self) -> None:
        """Refuses invalid labels and metrics, before anything is loaded."""
        self.complete(labels={str(label): str(name) for label, name in self.labels.items()})
        if len(set(self.labels.values())) < len(self.labels):
            raise UsageError(f"task {self.name!r}: expected `labels` to have different names, got {self.labels}")
        check_points_task(self)
        landmark_metrics([*self.case_metrics, self.monitor])
        number = isinstance(self.missed, int | float) and 0 <= self.missed < math.inf
        if self.missed not in ("diagonal", "skip") and not number:
            raise UsageError(
                f"task {self.name!r}: expected missed to be 'diagonal', 'skip' or a number, got {self.missed!r}"
            )

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Asks for the task's points."""
        return Prompt(case.id, images, self.numbered_labels())

    def numbered_labels(self) -> dict[int, str]:
        """Points by label number, or counted from 1."""
        numbered = all(label.isdecimal() for label in self.labels)
        keys = [int(label) for label in self.labels] if numbered else range(1, len(self.labels) + 1)
        return dict(zip(keys, self.labels.values(), strict=True))

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Points:
        """Checks names and positions; names may be the labels' keys or their values."""
        points = checked_points(case, answer, len(case.target.geometry().shape), what)
        names = [self.labels.get(name, name) for name in points.names]
        if self.labels and what == "prediction":
            CaseError.refuse_unknown(f"case {case.id!r}: {what} holds a point", self.labels.values(), *names)
        indices = [index for index, name in enumerate(names) if not self.labels or name in self.labels.values()]
        selected = Points(points.positions[indices], tuple(names[index] for index in indices))
        twice = next((name for name in selected.names if selected.names.count(name) > 1), None)
        if twice is not None:
            raise CaseError(f"case {case.id!r}: {what} holds the point {twice!r} more than once")
        return selected

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """Panel that shows where the answer lies."""
        return [Panel("overlay", "", lambda: self.codec.read(prediction))] if isinstance(prediction, Path) else []

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges every point of one case."""
        wanted = self.case_metrics if metrics is None else metrics
        answer = self.codec.read(prediction) if isinstance(prediction, Path) else prediction
        grid = measured_grid(case, self.units)
        scores = landmark_scores(
            self._reference(case, grid),
            placed(self.accept(case, answer), grid, self.units),
            metrics=wanted,
            missed=self.missed,
            diagonal=self._diagonal(grid),
        )
        return scores or [LabelScore(NOTHING, name, math.nan, "absent") for name in wanted]

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """Worst scores of every reference point; NaN for unreadable references."""
        try:
            grid = measured_grid(case, self.units)
            names: Sequence[str] = list(self._reference(case, grid))
        except CaseError:
            names = list(self.labels.values()) or [NOTHING]
            return worst_landmark_scores(names, self.case_metrics, diagonal=None)
        diagonal = self._diagonal(grid) if names else None
        return worst_landmark_scores(names or [NOTHING], self.case_metrics, missed=self.missed, diagonal=diagonal)

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Value of a missed point, and the units."""
        worth = {"diagonal": "counted with the image's diagonal", "skip": "not counted"}
        missed = worth.get(str(self.missed), f"counted with {self.missed} {self.units}")
        return f"distances of missed points {missed}" + (", distances in pixels" if self.units == "pixel" else "")

    def _reference(self, case: Case, grid: Geometry) -> dict[str, Array]:
        named = placed(self.accept(case, case.target.read(), what="reference"), grid, self.units)
        return {name: position for name, position in named.items() if not np.isnan(position).any()}

    def _diagonal(self, grid: Geometry) -> float:
        return math.hypot(*np.multiply(grid.shape, 1.0 if self.units == "pixel" else grid.spacing))


def check_points_task(task: Any) -> None:
    """Lists a task's metrics; UsageError for repeats or unknown units."""
    UsageError.refuse_invalid(f"task {task.name!r}: units", get_args(Units), task.units)
    check_metrics(task)
    if task.monitor and parse(task.monitor)[0].kind == "run":
        raise UsageError(f"task {task.name!r}: metric {task.monitor!r} judges whole runs, so fit cannot follow it")


def checked_points(case: Case, answer: Any, axes: int, what: str) -> Points:
    """Returns Points, finite or NaN where not found; CaseError names the case."""
    if not isinstance(answer, Points):
        raise CaseError(f"case {case.id!r}: expected {what} to be Points, got {type(answer).__name__}")
    positions = np.asarray(answer.positions)
    if not (answer.names or positions.size):
        positions = np.empty((0, axes))
    if positions.shape != (len(answer.names), axes) or positions.dtype.kind not in "iuf":
        raise CaseError(
            f"case {case.id!r}: expected the positions of {what} to be numbers ({len(answer.names)}, {axes}), "
            f"got {positions.dtype} {positions.shape}"
        )
    if np.isinf(positions).any():
        raise CaseError(f"case {case.id!r}: {what} holds an infinite position")
    return Points(positions.astype(np.float64), tuple(str(name) for name in answer.names))


def measured_grid(case: Case, units: Units) -> Geometry:
    """Returns the points' grid; CaseError where mm is asked but unknown."""
    grid = case.target.geometry()
    if grid.units == "pixel" and units == "mm":
        raise CaseError(
            f"case {case.id!r}: {', '.join(str(path) for path in case.images[0].files)} states no physical size; "
            "set task.units=pixel to measure in pixels"
        )
    return grid


def placed(points: Points, grid: Geometry, units: Units) -> dict[str, Array]:
    """Returns name -> position, (axis,), in patient mm or voxel indices."""
    positions = grid.world(points.positions) if units == "mm" else points.positions
    return dict(zip(points.names, positions, strict=True))
