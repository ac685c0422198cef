"""Vertebrae as they would be were they healthy: how much height the real ones have lost, and how they are graded."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from medimg_eval.case import Case, Image, Mask, Prompt
from medimg_eval.codecs import Codec, Records
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evidence import EMPTY, Context, Evidence
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.measurement import (
    GENANT,
    LEAST,
    HeightLoss,
    genant_by_loss,
    relative_height_loss,
    vertebra_scores,
)
from medimg_eval.store import digest
from medimg_eval.tasks.base import NOBODY, SCORES, Task, TrainsOnPrompts, same_grid
from medimg_eval.tasks.checks import check_metrics


@dataclass(frozen=True, kw_only=True)
class VertebraTask(TrainsOnPrompts, Task):
    """Healthy-made vertebra masks, judged by the height that real ones lost.

    A case is one vertebra; its id ends in its number, as `sub-verse012_20`. Its target is the label map of the real
    spine, an answer that of the spine with the vertebra made anew, on the same straightened grid, whose stored axes run
    from top to bottom, front to back and side to side.

    Attributes:
        grades: JSON file that has part -> {case: Genant grade, 0 to 3}; only its cases are asked. Attributes of a case
            are then `part` and `grade`.
        grader: `thresholds`, by the greatest loss of the three thirds; or `svm`: a linear support vector machine of the
            three losses, each grade weighing as much, that is fitted on the cases of the parts `fitted_on`, of which
            none is then judged.
        least: of `thresholds`: loss from which a vertebra has the grades 1, 2 and 3.
        fitted_on: parts.
        lowest: share of the height in the middle below which a column is no part of the body. A third of which all
            columns are lower, as where it is crushed, is measured by all of them.
    """

    grades: str = ""
    grader: Literal["thresholds", "svm"] = field(default="thresholds", metadata=SCORES)
    least: Sequence[float] = field(default=LEAST, metadata=SCORES)
    fitted_on: Sequence[str] = field(default=("train",), metadata=SCORES)
    lowest: float = 0.7
    metrics: Sequence[str] = ("rhlv",)
    monitor: str = "rhlv"

    capability: ClassVar[str] = "segment"
    codec: ClassVar[Codec] = Records(HeightLoss)
    judges: ClassVar[frozenset[str]] = frozenset({"vertebra"})

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        check_metrics(self, "vertebrae")
        UsageError.refuse_invalid("task.grader", ("thresholds", "svm"), self.grader)
        if len(self.least) != len(GENANT) - 1 or list(self.least) != sorted(self.least):
            raise UsageError(f"task.least: expected three losses, the least first, got {list(self.least)}")
        if not self.grades and (self.grader == "svm" or "genant_grade" in self.case_metrics):
            raise UsageError(f"task {self.name!r}: grading needs task.grades, a JSON file of part -> {{case: grade}}")

    def cases(self, part: str) -> Sequence[Case]:
        """The vertebrae; those that `grades` names, where it is set."""
        cases = super().cases(part)
        if not self.grades:
            return cases
        graded = self._read_grades(Path(self.grades).expanduser())
        return [replace(case, attributes={**case.attributes, **graded[case.id]}) for case in cases if case.id in graded]

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Asks for the vertebra of the case's number."""
        return Prompt(case.id, images, {_vertebra_number(case): "vertebra"})

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> HeightLoss:
        """Measures height loss from a label map on the target's grid.

        Raises:
            CaseError: it lies on another grid, or holds other labels but not the case's; or the target lacks it.
        """
        number, grid = _vertebra_number(case), case.target.geometry()
        mask = answer if isinstance(answer, Mask) else Mask(np.asarray(answer), grid.affine, units=grid.units)
        same_grid(mask.geometry, grid, what=f"case {case.id!r}: {what}", than="the target")
        predicted_mask, real = mask.labels == number, case.target.read().labels == number
        if not predicted_mask.any() and mask.labels.any():
            held = np.unique(mask.labels[mask.labels != 0])[:5].tolist()
            raise CaseError(f"case {case.id!r}: {what} holds the labels {held}, and not {number}, the vertebra's")
        if not real.any():
            raise CaseError(f"case {case.id!r}: the target ({case.target.files[0]}) holds no label {number}")
        losses, of_all = (relative_height_loss(predicted_mask, real, lowest=lowest) for lowest in (self.lowest, 0.0))
        return HeightLoss(
            *(full_loss if math.isnan(loss) else loss for loss, full_loss in zip(losses, of_all, strict=True))
        )

    def context(self, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence) -> Context:
        """Grades all stored predictions; UserError where no support vector machine can be fitted."""
        cases_by_id = {case.id: case for case in cases}
        losses = {
            name: _height_loss(prediction)
            for name, prediction in predictions.items()
            if name in cases_by_id and _is_stored(prediction)
        }
        grades: dict[str, float] = {}
        if self.grader == "thresholds":
            grades = {name: genant_by_loss(loss, self.least) for name, loss in losses.items()}
        elif "genant_grade" in self.case_metrics:
            grades = self._by_machine(cases_by_id, {name: loss[1:] for name, loss in losses.items()})
        return Context(evidence, grades, digest([list(grades.items()), self.signature()], 16))

    def score(
        self, case: Case, prediction: Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Loss of a vertebra and its thirds, and its grade."""
        if not self._judged(case):
            return []
        wanted = self.case_metrics if metrics is None else metrics
        grade = (context.shared or {}).get(case.id, math.nan)
        return vertebra_scores(_height_loss(prediction), grade, _true_grade(case), wanted)

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """No loss, and no grade, which counts as a wrong one."""
        if not self._judged(case):
            return []
        nothing = HeightLoss(math.nan, math.nan, math.nan, math.nan)
        return vertebra_scores(nothing, math.nan, _true_grade(case), self.case_metrics, status="failed")

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """How heights are measured, and how they are graded."""
        how = f"columns from {self.lowest:g} of the middle one's height on, in the middle 2/5 of slices; signed"
        if "genant_grade" not in self.case_metrics:
            return how
        if self.grader == "svm":
            return f"{how}; graded by a linear SVM of the three thirds, fitted on {' and '.join(self.fitted_on)}"
        return f"{how}; graded by the greatest loss of the thirds, from {', '.join(map(str, self.least))} on"

    def _judged(self, case: Case) -> bool:
        return self.grader != "svm" or case.attributes.get("part") not in self.fitted_on

    def _by_machine(self, known: Mapping[str, Case], losses: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Grades of judged cases, by a machine fitted on the others."""
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVC

        complete = {name: loss for name, loss in losses.items() if not any(map(math.isnan, loss))}
        fitted = [name for name in complete if not self._judged(known[name])]
        grades = [_true_grade(known[name]) for name in fitted]
        if len(set(grades)) < 2:
            raise UserError(
                f"task {self.name!r}: the SVM needs vertebrae of at least two grades in {' and '.join(self.fitted_on)} "
                f"to be fitted on, {len(fitted)} are there; make those as well, or set task.grader=thresholds"
            )
        machine = make_pipeline(StandardScaler(), SVC(kernel="linear", class_weight="balanced"))
        machine.fit([complete[name] for name in fitted], grades)
        judged = [name for name in complete if self._judged(known[name])]
        grades_ = machine.predict([complete[name] for name in judged]) if judged else []
        return dict(zip(judged, map(float, grades_), strict=True))

    def _read_grades(self, path: Path) -> dict[str, dict[str, str]]:
        try:
            parts = json.loads(path.read_text(encoding="utf-8"))
            return {
                str(case): {"part": str(part), "grade": str(GENANT[GENANT.index(int(grade))])}
                for part, held in parts.items()
                for case, grade in held.items()
            }
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: expected JSON of part -> {{case: grade from 0 to 3}} ({error})") from error


def _vertebra_number(case: Case) -> int:
    match = re.search(r"_(\d+)$", case.id)
    if match is None:
        raise CaseError(f"case {case.id!r}: expected an id that ends in the vertebra's number, as sub-verse012_20")
    return int(match[1])


def _true_grade(case: Case) -> int | None:
    grade = case.attributes.get("grade", "")
    return int(grade) if grade else None


def _is_stored(prediction: Any) -> bool:
    return isinstance(prediction, HeightLoss) or (isinstance(prediction, Mapping) and "loss" in prediction)


def _height_loss(prediction: Any) -> HeightLoss:
    if isinstance(prediction, HeightLoss):
        return prediction
    return HeightLoss.from_record(prediction)
