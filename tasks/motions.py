"""Motions: angles of joints over time, judged against motion capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from medimg_eval.case import Case, Image, Prompt
from medimg_eval.codecs import Codec, Records
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.imaging.motions import Motion
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.measurement import motion_metrics, motion_scores, worst_motion_scores
from medimg_eval.tasks.base import NOBODY, SCORES, Task, check_metrics


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
        """Checks that an answer is a motion in degrees that has the task's coordinates."""
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
        """NaN of every coordinate: an answer that is not there has no error, and is counted as failed."""
        return worst_motion_scores(self.coordinates, self.case_metrics)

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Coordinates and frames, which decide the numbers."""
        return f"{len(self.coordinates)} coordinates, frames of equal time"
