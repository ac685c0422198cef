"""Measurements: numbers taken of an image, such as angles, lengths and ratios; and angles of joints over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from medimg_eval.case import Case, Findings, Image, Points, Prompt, Units
from medimg_eval.codecs import Codec, Places, Records
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.imaging.motions import Motion
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.measurement import (
    cobb_angles,
    measured_between,
    measurement_metrics,
    measurement_scores,
    motion_metrics,
    motion_scores,
    worst_measurement_scores,
    worst_motion_scores,
)
from medimg_eval.metrics.scores import BETWEEN
from medimg_eval.panels import Panel
from medimg_eval.tasks.base import NOBODY, SCORES, Task
from medimg_eval.tasks.checks import check_metrics
from medimg_eval.tasks.landmarks import check_points_task, checked_points, measured_grid, placed

COBB = ("MT", "PT", "TL")


@dataclass(frozen=True, kw_only=True)
class MeasurementTask(Task):
    """Numbers with names, judged per case and per measurement.

    A model answers by `detect`: `Points`, of which the numbers are measured by the code that measures the reference's
    points, or the numbers themselves, name -> value (NaN where it found none).

    The reference is Points too, or Findings whose values are numbers; several readers' values stand there as
    `name/reader` or, read more than once, `name/reader/1`, `name/reader/2`, ...

    Attributes:
        measures: `cobb`: the angles MT, PT and TL of the corners of vertebrae, four after each other (see
            docs/definitions/landmarks.md); name -> the points that are measured: two for a distance, three for the
            angle at the second, four for the angle between the first two's and the last two's direction; or a list of
            names, for numbers only.
        periods: of circular measurements: after how much they begin anew, such as 360.
        units: of distances: `mm`, or `pixel` for pictures that state no physical size; angles in pixels hold only for
            square ones.
    """

    measures: str | Sequence[str] | Mapping[str, Sequence[str]]
    periods: Mapping[str, float] = field(default_factory=dict, metadata=SCORES)
    units: Units = field(default="mm", metadata=SCORES)
    metrics: Sequence[str] = ("absolute_error", "icc", "pearson", "bland_altman_low", "bland_altman_high")
    monitor: str = "absolute_error"

    capability: ClassVar[str] = "detect"
    codec: ClassVar[Codec] = Places()
    judges: ClassVar[frozenset[str]] = frozenset({"measurement"})

    def __post_init__(self) -> None:
        """Refuses invalid measurements and metrics, before anything is loaded."""
        if isinstance(self.measures, str):
            UsageError.refuse_invalid(f"task {self.name!r}: way to measure", ["cobb"], self.measures)
        if isinstance(self.measures, Mapping):
            for name, points in self.measures.items():
                if isinstance(points, str) or len(points) not in (2, 3, 4):
                    raise UsageError(f"task {self.name!r}: expected 2, 3 or 4 points for {name!r}, got {points!r}")
        if wrong := [name for name in self.names if BETWEEN in name]:
            raise UsageError(f"task {self.name!r}: expected names without {BETWEEN!r}, got {wrong[0]!r}")
        for name, period in self.periods.items():
            UsageError.refuse_invalid(f"task {self.name!r}: periods: measurement", self.names, name)
            if not 0 < period < math.inf:
                raise UsageError(f"task {self.name!r}: expected the period of {name!r} to be above 0, got {period!r}")
        check_points_task(self)
        measurement_metrics([*self.case_metrics, self.monitor])

    @property
    def names(self) -> list[str]:
        """Names of the measurements, in the order of the config."""
        return list(COBB) if isinstance(self.measures, str) else list(self.measures)

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Asks for the measurements; of those made of points, for these points."""
        wanted: Sequence[str] = self.names
        if isinstance(self.measures, Mapping):
            wanted = list(dict.fromkeys(point for points in self.measures.values() for point in points))
        return Prompt(case.id, images, dict(enumerate(wanted, 1)))

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Points | dict[str, float]:
        """Checks that an answer yields the task's measurements."""
        if isinstance(answer, Points):
            points = checked_points(case, answer, len(case.target.geometry().shape), what)
            self._measure(case, points, what)
            return points
        numbers = answer.values if isinstance(answer, Findings) else answer
        if not isinstance(numbers, Mapping):
            raise CaseError(
                f"case {case.id!r}: expected {what} to be Points or numbers by name, got {type(answer).__name__}"
            )
        with CaseError.about(f"case {case.id!r}", f"{what} holds something that is no number", TypeError, ValueError):
            held = {str(name): float(value) for name, value in numbers.items()}
        for name, value in held.items():
            own = name.split(BETWEEN)[0] if what == "reference" else name
            if own not in self.names:
                raise CaseError(f"case {case.id!r}: {what} holds a number {name!r}{nearest(own, self.names)}")
            if math.isinf(value):
                raise CaseError(f"case {case.id!r}: {what} holds {value} for {name!r}, expected a finite number")
        return held

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """Where the points of the answer lie; numbers as they are stored."""
        if isinstance(prediction, Path) and isinstance(self.codec.read(prediction), Points):
            return [Panel("overlay", "", lambda: self.codec.read(prediction))]
        return super().answer_panels(case, prediction)

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges every measurement of one case."""
        answer = self.codec.read(prediction) if isinstance(prediction, Path) else prediction
        return measurement_scores(
            self._reference(case),
            self._numbers(case, answer, "prediction"),
            metrics=self.case_metrics if metrics is None else metrics,
            periods=self.periods,
        )

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """Worst scores; NaN where the reference is unreadable, for everyone."""
        try:
            return worst_measurement_scores(self._reference(case), self.case_metrics)
        except CaseError:
            return [LabelScore(label, name, math.nan, "failed") for label in self.names for name in self.case_metrics]

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """How is measured, and in which units."""
        if isinstance(self.measures, str):
            how = "Cobb angles between the lines midway between the endplates"
        elif isinstance(self.measures, Mapping):
            how = "distances and angles of points"
        else:
            how = "numbers as given"
        around = ", ".join(f"{name} circular at {period:g}" for name, period in self.periods.items())
        parts = [how, *([around] if around else []), *(["measured in pixels"] if self.units == "pixel" else [])]
        if any(parse(name)[0].kind == "run" for name in self.metrics):
            parts.append("several measurements: mean of their coefficients")
        return ", ".join(parts)

    def _reference(self, case: Case) -> dict[str, float]:
        numbers = self._numbers(case, case.target.read(), "reference")
        unread = [name for name in self.names if not any(key.split(BETWEEN)[0] == name for key in numbers)]
        return numbers | dict.fromkeys(unread, math.nan)

    def _numbers(self, case: Case, answer: Any, what: str) -> dict[str, float]:
        accepted = self.accept(case, answer, what=what)
        return self._measure(case, accepted, what) if isinstance(accepted, Points) else accepted

    def _measure(self, case: Case, points: Points, what: str) -> dict[str, float]:
        """Returns measurements from points; NaN where one is missing."""
        grid = measured_grid(case, self.units)
        if isinstance(self.measures, str):
            return self._cobb(case, points, what)
        if not isinstance(self.measures, Mapping):
            raise CaseError(f"case {case.id!r}: {what} holds points, but the task says not what to measure of them")
        if len(set(points.names)) < len(points.names):
            raise CaseError(f"case {case.id!r}: {what} holds a point more than once, got {points.names}")
        positions = {
            name: position
            for name, position in placed(points, grid, self.units).items()
            if not np.isnan(position).any()
        }
        return {
            name: measured_between([positions[name] for name in wanted]) if set(wanted) <= set(positions) else math.nan
            for name, wanted in self.measures.items()
        }

    def _cobb(self, case: Case, points: Points, what: str) -> dict[str, float]:
        grid = measured_grid(case, self.units)
        if len(grid.shape) != 2:
            raise CaseError(f"case {case.id!r}: Cobb angles are measured in a picture, got a grid of {grid.shape}")
        steps = np.array((1.0, 1.0) if self.units == "pixel" else grid.spacing)
        try:
            angles = cobb_angles(points.positions * steps, grid.shape[0] * steps[0])
        except ValueError as error:
            raise CaseError(f"case {case.id!r}: {what}: {error}") from error
        return dict(zip(COBB, angles, strict=True))


@dataclass(frozen=True, kw_only=True)
class MotionTask(Task):
    """Coordinates of a musculoskeletal model over time, judged per trial and per coordinate.

    A case's target is a `Motion`, and so is a model's answer, given by `regress`.

    Attributes:
        coordinates: what is judged, as the files name it, such as `knee_angle_r`; in degrees.
    """

    coordinates: Sequence[str] = field(metadata=SCORES)
    metrics: Sequence[str] = ("angle_rmse", "angle_mae", "angle_bias")
    monitor: str = "angle_rmse"

    capability: ClassVar[str] = "regress"
    output: ClassVar[str] = "motions"
    codec: ClassVar[Codec] = Records(Motion)
    judges: ClassVar[frozenset[str]] = frozenset({"motion"})

    def __post_init__(self) -> None:
        """Refuses coordinates and metrics that cannot be used, before anything is loaded."""
        self.complete(coordinates=[str(name) for name in self.coordinates])
        if not self.coordinates or len(set(self.coordinates)) < len(self.coordinates):
            raise UsageError(
                f"task {self.name!r}: coordinates is invalid: expected different names, got {list(self.coordinates)}"
            )
        check_metrics(self, "motions")
        motion_metrics([*self.case_metrics, self.monitor])

    @property
    def labels(self) -> dict[int, str]:
        """The coordinates with their numbers, from 1 on."""
        return dict(enumerate(self.coordinates, 1))

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Asks for the coordinates."""
        return Prompt(case.id, images, self.labels)

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Motion:
        """Checks that an answer is a motion with the task's coordinates."""
        where = f"case {case.id!r}: {what}"
        if not isinstance(answer, Motion):
            raise CaseError(f"{where} is invalid: expected a Motion, got {type(answer).__name__}")
        CaseError.refuse_unknown(f"{where} lacks the coordinate", answer.values, *self.coordinates)
        if not answer.degrees:
            raise CaseError(f"{where} is invalid: expected angles in degrees, got radians by its header")
        return answer

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges every coordinate of one trial."""
        stored = self.codec.read(prediction) if isinstance(prediction, Mapping) else prediction
        answer = self.accept(case, stored)
        reference = self.accept(case, case.target.read(), what="reference")
        return motion_scores(
            (reference.time, reference.values),
            (answer.time, answer.values),
            coordinates=self.coordinates,
            metrics=self.case_metrics if metrics is None else metrics,
        )

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """NaN of every coordinate: missing answers count as failed."""
        return worst_motion_scores(self.coordinates, self.case_metrics)

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Coordinates and frames, which decide the numbers."""
        return f"{len(self.coordinates)} coordinates, frames of equal time"
