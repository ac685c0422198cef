"""Regression: a vector of numbers with names for each case, such as the expression of genes in a tile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from medimg_eval.case import Case, Findings, Image, Prompt
from medimg_eval.codecs import Codec, Records
from medimg_eval.errors import CaseError, UsageError, UserError, invalid, nearest
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.imaging.matrices import read_names
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.agreement import AVERAGES, OUTPUT_SETS
from medimg_eval.metrics.measurement import measurement_metrics, measurement_scores, worst_measurement_scores
from medimg_eval.metrics.scores import BETWEEN
from medimg_eval.tasks.base import NOBODY, SCORES, Task, TrainsOnPrompts, baseline_configs
from medimg_eval.tasks.checks import check_metrics

ROWS = ("measured_reference", "measured")
"""Left of every case, so that any summary can be computed of a stored run."""


class Values(dict[str, float]):
    """Output -> number, as a model says it."""

    def as_record(self) -> dict[str, Any]:
        """Record of the numbers, as a run keeps it."""
        return {"values": dict(self)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Reads what `as_record` gave."""
        return cls(record["values"])


@dataclass(frozen=True, kw_only=True)
class RegressionTask(TrainsOnPrompts, Task):
    """Prediction of several named numbers per case.

    A case's target is `Findings` whose values are numbers, NaN where nothing was measured; it may name further ones. A
    model answers by `regress`: an array in the order of the outputs, or output -> number. What is measured of an image
    by its points, or by several readers, is a `MeasurementTask`; both leave the same rows, so each takes the other's
    metrics.

    Attributes:
        outputs: their names, in the order of a model's head; or a file of them, below the layout's root: text with one
            a line, or JSON with a list, or an object that holds one (HEST's `{"genes": [...]}`).
        sets: names of sets of outputs that metrics average over, such as `pearson@mean-stable` -> their outputs.
    """

    outputs: Sequence[str] | str
    sets: Mapping[str, Sequence[str]] = field(default_factory=dict, metadata=SCORES)
    metrics: Sequence[str] = ("pearson", "spearman", "r2", "r2@median", "rmse", "absolute_error")
    monitor: str = "absolute_error"

    capability: ClassVar[str] = "regress"
    output: ClassVar[str] = "numbers"
    codec: ClassVar[Codec] = Records(Values)
    judges: ClassVar[frozenset[str]] = frozenset({"measurement"})

    def __post_init__(self) -> None:
        """Refuses invalid outputs and metrics, before anything is loaded."""
        if not isinstance(self.outputs, str):
            self.complete(outputs=_check_names([str(name) for name in self.outputs], f"task {self.name!r}"))
        self.complete(sets={str(name): [str(name) for name in held] for name, held in self.sets.items()})
        for name, held in self.sets.items():
            if not isinstance(self.outputs, str):
                UsageError.refuse_unknown(f"task.sets.{name} names", self.outputs, *held)
        self.complete(facts={**self.facts, OUTPUT_SETS: self.sets})
        check_metrics(self, "numbers")
        measurement_metrics([*self.case_metrics, self.monitor])
        for name in self.metrics:
            self._check_parameter(name)

    @cached_property
    def names(self) -> list[str]:
        """Output names; MissingDataError where their file is absent, UserError for other faults."""
        if not isinstance(self.outputs, str):
            return list(self.outputs)
        return _check_names(
            read_names(Path(getattr(self.layout, "root", ".")).expanduser() / self.outputs), self.outputs
        )

    @property
    def case_metrics(self) -> list[str]:
        """Metrics of single cases, always with prediction and truth."""
        return list(dict.fromkeys([*ROWS, *super().case_metrics]))

    @property
    def labels(self) -> dict[int, str]:
        """The outputs with their numbers, from 1 on."""
        return dict(enumerate(self.names, 1))

    def baselines(self) -> Mapping[str, Mapping[str, Any]]:
        """The mean of each output where models are fitted."""
        return baseline_configs({"Mean": "MeanOfFit"})

    def check_data(self, cases: Sequence[Case]) -> None:
        """Raises UserError for outputs without any truth, probably misspelt."""
        names: set[str] = set()
        for case in cases:
            held = case.target.read()
            if not isinstance(held, Findings):
                return  # said of each case, when it is judged
            names |= {name for name in self.names if not math.isnan(held.values.get(name, math.nan))}
            if len(names) == len(self.names):
                return
        missing = next(name for name in self.names if name not in names)
        raise UserError(f"task {self.name!r}: none of {len(cases)} cases has a number for {missing!r}; leave it out")

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Asks for the outputs."""
        return Prompt(case.id, images, self.labels)

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> dict[str, float]:
        """Checks a finite number per output; returns them in task order.

        Of a reference, which may name further ones or leave some open, returns what is true of the task's outputs.

        Raises:
            CaseError: it is something else, an output is missing or unknown, or a value is no finite number.
        """
        if what == "reference":
            return self._truth(case)
        where = f"case {case.id!r}: the {what}"
        if not isinstance(answer, Mapping | Findings):
            return Values(zip(self.names, self._vector(answer, where), strict=True))
        values = answer.values if isinstance(answer, Findings) else answer
        CaseError.refuse_unknown(f"{where} names an output", self.names, *values)
        missing = next((name for name in self.names if name not in values), None)
        if missing is not None:
            raise CaseError(f"{where} has no number for {missing!r}; expected one for each of {len(self.names)}")
        return Values(zip(self.names, self._vector([values[name] for name in self.names], where), strict=True))

    def _vector(self, answer: Any, where: str) -> list[float]:
        with CaseError.about(where, "holds something that is no number", TypeError, ValueError):
            numbers = np.asarray(answer, dtype=np.float64)
        if numbers.shape != (len(self.names),):
            raise CaseError(f"{where} has shape {numbers.shape}, expected {len(self.names)} numbers, one each output")
        if len(odd := np.flatnonzero(~np.isfinite(numbers))):
            raise CaseError(f"{where} holds {numbers[odd[0]]} for {self.names[odd[0]]!r}, expected a finite number")
        vector: list[float] = numbers.tolist()
        return vector

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Puts each number beside the one that is true."""
        stored_values = prediction.get("values") if isinstance(prediction, Mapping) else None
        values = self.accept(case, stored_values if isinstance(stored_values, Mapping) else prediction)
        truth, wanted = self._truth(case), self.case_metrics if metrics is None else metrics
        status = ["absent" if math.isnan(value) else "present" for value in truth.values()]
        plain = {
            "measured_reference": truth.values(),
            "measured": values.values(),
            "absolute_error": (abs(values[name] - value) for name, value in truth.items()),
        }  # of thousands of cases with fifty outputs, without an object for each
        rows = [
            LabelScore(label, metric, value, what)
            for metric in wanted
            if metric in plain
            for label, value, what in zip(self.names, plain[metric], status, strict=True)
        ]
        other_metrics = [metric for metric in wanted if metric not in plain]
        return rows + (measurement_scores(truth, values, metrics=other_metrics) if other_metrics else [])

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """Truth without prediction; all NaN where truth is unknown."""
        try:
            return worst_measurement_scores(self._truth(case), self.case_metrics)
        except CaseError:
            return [LabelScore(label, name, math.nan, "failed") for name in self.case_metrics for label in self.names]

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """How many outputs there are, and which are averaged."""
        parts = [f"{len(self.names)} outputs, each by itself, then their mean"]
        parts += [f"{name}: {len(held)} of them" for name, held in self.sets.items()]
        return "; ".join(parts)

    def _truth(self, case: Case) -> dict[str, float]:
        """Truth of the task's outputs; raises CaseError where the target does not fit."""
        held = case.target.read()
        if not isinstance(held, Findings):
            raise CaseError(f"case {case.id!r}: the reference is {type(held).__name__}, expected Findings of numbers")
        CaseError.refuse_unknown(f"case {case.id!r}: the reference has no output", held.values, *self.names)
        truth = {name: float(held.values[name]) for name in self.names}
        odd = next((name for name, value in truth.items() if math.isinf(value)), None)
        if odd is not None:
            raise CaseError(f"case {case.id!r}: the reference holds {truth[odd]} for {odd!r}, expected a finite number")
        return truth

    def _check_parameter(self, metric: str) -> None:
        """Refuses a summary over an output or set that there is none of."""
        definition, parameter = parse(metric)
        average, dash, name = str(parameter).partition("-")
        if not isinstance(parameter, str) or definition.name == "pearson_within":
            return
        if average not in AVERAGES and isinstance(self.outputs, str):  # a file, which may not be here yet
            return
        if parameter in self.outputs:
            return
        if average not in AVERAGES:
            raise UsageError(f"task {self.name!r}: {metric!r}{nearest(parameter, [*AVERAGES, *self.outputs])}")
        if dash and name not in self.sets:
            raise UsageError(invalid(f"task {self.name!r}: set of {metric!r}", name, self.sets))


def _check_names(names: list[str], where: str) -> list[str]:
    if not names or len(set(names)) < len(names):
        raise UsageError(f"{where}: expected at least one output, and all of different names")
    for name in names:
        if BETWEEN in name or name.partition("-")[0] in AVERAGES:
            raise UsageError(f"{where}: an output cannot be called {name!r}; rename it")
    return names
