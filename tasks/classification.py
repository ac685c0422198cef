"""Classification: which of several classes an image, or a study of several images, shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from medimg_eval.case import Case, Findings, Image, LocatedFindings, Prompt
from medimg_eval.codecs import Codec, Records, Weighed
from medimg_eval.errors import CaseError, MissingDataError, UsageError, invalid, nearest
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.imaging import heat_image
from medimg_eval.metrics import LabelScore, localisation, parse
from medimg_eval.metrics.classification import ABSENT, AVERAGES, CLASSES, EXCLUSIVE, NAMES, PRESENT, SETS, Classified
from medimg_eval.panels import Panel
from medimg_eval.tasks.base import NOBODY, SCORES, Task, TrainsOnPrompts, baseline_configs
from medimg_eval.tasks.checks import check_metrics

KIND = "classification"

ERROR = "probability_error"
"""Left of every case, so that runs of summaries alone also say which cases failed."""

OF_EXCLUSIVE = ("top1_accuracy", "top_k_accuracy", "quadratic_kappa", "linear_kappa")
"""What is only defined where exactly one class is present in every case."""

SLACK = 1e-6
"""By so much a probability may leave 0 to 1."""

ROUNDED = 0.01
"""By so much the probabilities of classes that exclude each other may miss a sum of 1, as rounded ones do."""


class ClassProbabilities(Weighed):
    """Class -> probability, and the weight of each tile."""

    key = "probabilities"


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(TrainsOnPrompts, Task):
    """Classes whose probability a model says.

    A case's target is `Findings`: class -> 1 present, 0 absent, a probability between, or NaN where nothing is known.
    It may name further classes, which are not asked for. A class of which nothing is known is not judged in that case;
    a probability counts by the side of 0.5 that it lies on, and `fit` learns it as it is.

    Attributes:
        classes: names, in the order of a model's head; none where the layout's files name them.
        exclusive: whether exactly one class is present in every case: probabilities then sum to 1.
        half: `base` for the first half of the classes, the larger one of an odd number, and `novel` for the rest: only
            cases of these are fitted on or tested, with these as options. The name then ends in it. Of a model that was
            tuned on base, what is reported is b, n and 2 b n / (b + n) (base-to-novel, Zhou et al. 2022).
        all_classes: those that are halved.
        sets: names of sets of classes that metrics average over, such as `auroc@macro-competition` -> their classes.
    """

    classes: Sequence[str]
    exclusive: bool = False
    half: Literal["", "base", "novel"] = ""
    all_classes: Sequence[str] = ()
    sets: Mapping[str, Sequence[str]] = field(default_factory=dict, metadata=SCORES)
    metrics: Sequence[str] = ("auroc@macro", "auprc@macro", "f1_score@macro")
    monitor: str = ERROR

    capability: ClassVar[str] = "classify"
    output: ClassVar[str] = "probabilities of classes"
    codec: ClassVar[Codec] = Records(ClassProbabilities)
    judges: ClassVar[frozenset[str]] = frozenset({KIND, localisation.KIND})

    def __post_init__(self) -> None:
        """Refuses invalid classes and metrics, before anything is loaded."""
        self.complete(classes=[] if isinstance(self.classes, str) else [str(name) for name in self.classes])
        if not self.classes and hasattr(self.layout, "class_names"):
            try:
                self.complete(classes=self.layout.class_names())
            except MissingDataError:
                return  # the layout says so when it is asked for cases
        if self.half and not self.all_classes:
            self._take_half()
        self._check_classes()
        self.complete(sets={str(name): [str(name) for name in held] for name, held in self.sets.items()})
        for name, held in self.sets.items():
            UsageError.refuse_unknown(f"task.sets.{name} names", self.classes, *held)
        self.complete(
            facts={
                **self.facts,
                CLASSES: EXCLUSIVE if self.exclusive else "each",
                SETS: self.sets,
                NAMES: list(self.classes),
            }
        )
        check_metrics(self, "classes")
        for name in self.metrics:
            self._check_parameter(name)
        for name in (*self.metrics, self.monitor):
            if parse(name)[0].name in OF_EXCLUSIVE and not self.exclusive:
                raise UsageError(f"task {self.name!r}: {name} needs `exclusive: true`; use exact_match_ratio")
        if parse(self.monitor)[0].intermediate:
            raise UsageError(f"task {self.name!r}: monitor: {self.monitor!r} is no score; use {ERROR}")

    def _check_classes(self) -> None:
        """Refuses too few classes, equal names, and names of averages."""
        if len(self.classes) < 1 + self.exclusive or len(set(self.classes)) < len(self.classes):
            least = "two" if self.exclusive else "one"
            raise UsageError(f"task {self.name!r}: expected at least {least} classes of different names in `classes`")
        reserved = next((name for name in self.classes if name.partition("-")[0] in (*AVERAGES, "all")), None)
        if reserved is not None:
            raise UsageError(f"task {self.name!r}: a class {reserved!r} would be taken for an average; rename it")

    def _take_half(self) -> None:
        """Keeps one half of the classes, for derived tasks too."""
        UsageError.refuse_invalid(f"task {self.name!r}: half", ("base", "novel"), self.half)
        if not self.exclusive or len(self.classes) < 4:
            raise UsageError(f"task {self.name!r}: half needs four classes or more that exclude each other")
        middle = math.ceil(len(self.classes) / 2)
        classes = self.classes[:middle] if self.half == "base" else self.classes[middle:]
        self.complete(all_classes=list(self.classes), classes=list(classes), name=f"{self.name}_{self.half}")

    def cases(self, part: str) -> Sequence[Case]:
        """Cases of a part, restricted to a half's classes."""
        held = super().cases(part)
        return [case for case in held if any(self._truth(case).values())] if self.half else held

    @property
    def case_metrics(self) -> list[str]:
        """Metrics of single cases, always with the probability error."""
        return list(dict.fromkeys([*super().case_metrics, ERROR]))

    @property
    def labels(self) -> dict[int, str]:
        """The classes with their numbers, from 1 on."""
        return dict(enumerate(self.classes, 1))

    def baselines(self) -> Mapping[str, Mapping[str, Any]]:
        """How frequent each class is where models are fitted."""
        return baseline_configs({"Class frequency": "ClassFrequency"})

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Asks for the classes; those that exclude each other are the options, too."""
        options = {str(number): name for number, name in self.labels.items()} if self.exclusive else {}
        return Prompt(case.id, images, self.labels, options=options)

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> dict[str, float]:
        """Checks a probability per class; returns them in task order.

        Of a reference, which may leave classes open or name further ones, returns what is true of the task's classes.

        Raises:
            CaseError: it is something else, a class is missing or unknown, a value is not from 0 to 1, or classes that
                exclude each other do not sum to 1.
        """
        if what == "reference":
            return self._truth(case)
        where = f"case {case.id!r}: the {what}"
        probabilities = answer.values if isinstance(answer, Findings) else answer
        if not isinstance(probabilities, Mapping):
            raise CaseError(f"{where} is {type(answer).__name__}, expected a probability for each class")
        CaseError.refuse_unknown(f"{where} names a class", self.classes, *probabilities)
        missing = next((name for name in self.classes if name not in probabilities), None)
        if missing is not None:
            raise CaseError(f"{where} has no probability of {missing!r}; expected one for each of {len(self.classes)}")
        try:
            numbers = {name: float(probabilities[name]) for name in self.classes}
        except (TypeError, ValueError) as error:
            raise CaseError(f"{where} holds something that is no number ({error})") from error
        for name, value in numbers.items():
            if not -SLACK <= value <= 1 + SLACK:  # NaN neither
                raise CaseError(f"{where} holds {value:g} for {name!r}, expected a probability from 0 to 1")
        total = math.fsum(numbers.values())
        if self.exclusive and abs(total - 1) > ROUNDED:
            raise CaseError(
                f"{where} sums to {total:.4g} over classes that exclude each other, expected 1; use softmax"
            )
        held = {name: min(1.0, max(0.0, value)) for name, value in numbers.items()}
        return ClassProbabilities(held).weighed_as(answer)

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges the probabilities of one case."""
        record = prediction if isinstance(prediction, Mapping) and "probabilities" in prediction else None
        probabilities = self.accept(case, prediction if record is None else ClassProbabilities.from_record(record))
        pair = Classified(self._truth(case), probabilities, self.exclusive, case.target.read().readers)
        wanted = self.case_metrics if metrics is None else metrics
        return self._scores(pair, [name for name in wanted if not _of_maps(name)]) + _map_scores(
            case, probabilities, [name for name in wanted if _of_maps(name)]
        )

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """Worst scores: probability 1 of every wrong side.

        Rows of `probability` keep the truth as their status, so that curves count the case. NaN when the truth itself
        cannot be read, for then nobody is judged.
        """
        try:
            truth = self._truth(case)
        except CaseError:
            return [
                LabelScore(name, metric, math.nan, "failed") for name in self.classes for metric in self.case_metrics
            ]
        pair = Classified(truth, {name: float(not value > 0.5) for name, value in truth.items()}, self.exclusive)
        held: Any = case.target.read()
        maps = [name for name in self.case_metrics if _of_maps(name)]
        return [
            score
            if parse(score.metric)[0].intermediate
            else LabelScore(score.label, score.metric, float(parse(score.metric)[0].worst), "failed")
            for score in self._scores(pair, [name for name in self.case_metrics if name not in maps])
        ] + [LabelScore(name, metric, 0.0, "failed") for name in getattr(held, "outlines", ()) for metric in maps]

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """The model's map per located class, else of the likeliest."""
        held = prediction if isinstance(prediction, Mapping) and "places" in prediction else None
        if held is None or "probabilities" not in held:
            return super().answer_panels(case, prediction)
        probabilities, truth = ClassProbabilities.from_record(held), case.target.read()
        names = list(truth.outlines) if isinstance(truth, LocatedFindings) and truth.outlines else []
        names = [
            name
            for name in names or [max(probabilities, key=lambda one: probabilities[one])]
            if probabilities.map_of(name) is not None
        ]
        tile_places: Any = probabilities.places
        maps: dict[str, Any] = {name: probabilities.map_of(name) for name in names}
        return [
            Panel(
                "alone",
                f"Where it looked: {name}" if name in probabilities.maps else "Where it looked",
                partial(heat_image, case.images, maps[name], tile_places.corners, tile_places.edge),
            )
            for name in (names if probabilities.maps else names[:1])
        ]

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Settings that decide the numbers beside the probabilities."""
        kind = "of which exactly one is present" if self.exclusive else "each present or absent"
        parts = [f"{len(self.classes)} classes, {kind}"]
        parts += [f"{name}: {', '.join(held)}" for name, held in self.sets.items()]
        return "; ".join(parts)

    def _scores(self, pair: Classified, metrics: Sequence[str]) -> list[LabelScore]:
        is_known, probabilities, rows = pair.known, pair.said, []
        for name in metrics:
            definition, parameter = parse(name)
            values: Any = definition.function(pair) if parameter is None else definition.function(pair, parameter)
            for label, value in values.items():
                if definition.intermediate:
                    status = PRESENT if is_known[label] else ABSENT
                else:  # of a case as a whole the value itself says it
                    status = (
                        "right"
                        if (probabilities[label] == is_known[label] if label in is_known else value == 1)
                        else "wrong"
                    )
                rows.append(LabelScore(label, name, float(value), status))
        return rows

    def _truth(self, case: Case) -> dict[str, float]:
        """Truth of the task's classes; raises CaseError where the target does not fit."""
        held = case.target.read()
        if not isinstance(held, Findings):
            raise CaseError(f"case {case.id!r}: the reference is {type(held).__name__}, expected Findings")
        CaseError.refuse_unknown(f"case {case.id!r}: the reference has no class", held.values, *self.classes)
        truth = {name: float(held.values[name]) for name in self.classes}
        odd = next((name for name, value in truth.items() if not (math.isnan(value) or 0 <= value <= 1)), None)
        if odd is not None:
            raise CaseError(f"case {case.id!r}: the reference has {truth[odd]:g} for {odd!r}, expected 0 to 1 or NaN")
        present = [name for name, value in truth.items() if value > 0.5]
        if self.exclusive and len(present) > 1:
            raise CaseError(f"case {case.id!r}: {present[0]!r} and {present[1]!r} are present; the task is `exclusive`")
        return truth

    def _check_parameter(self, metric: str) -> None:
        """Refuses a summary over a class or set that there is none of."""
        definition, parameter = parse(metric)
        if definition.name == "aggregated":
            self._check_parameter(str(parameter).partition(":")[2])
            return
        if isinstance(parameter, str) and definition.name in ("ppv_at_prevalence", "npv_at_prevalence"):
            parameter = parameter.partition(":")[2] or "macro"
        if not isinstance(parameter, str) or "probability" not in definition.needs or parameter in self.classes:
            return
        average, dash, name = parameter.partition("-")
        if average not in AVERAGES:
            raise UsageError(f"task {self.name!r}: {metric!r}{nearest(parameter, [*AVERAGES, *self.classes])}")
        if dash and name not in self.sets:
            raise UsageError(invalid(f"task {self.name!r}: set of {metric!r}", name, self.sets))


def _of_maps(metric: str) -> bool:
    return parse(metric)[0].kind == localisation.KIND


def _map_scores(case: Case, said: Mapping[str, float], metrics: Sequence[str]) -> list[LabelScore]:
    """Scores a case's maps, of each class or of all, against their outlines.

    NaN, as "no map", where the model gave none. Raises CaseError where the outline cannot be read or is empty.
    """
    held: Any = case.target.read() if metrics else None
    rows: list[LabelScore] = []
    for label, outline in held.outlines.items() if isinstance(held, LocatedFindings) else ():
        weights = said.map_of(label) if isinstance(said, Weighed) else None
        tile_places = getattr(said, "places", None)
        if weights is None or tile_places is None:
            rows += [LabelScore(label, name, math.nan, "no map") for name in metrics]
            continue
        mask = outline.mask.read().labels == outline.label
        try:
            pair = localisation.LocatedMap.of(weights, tile_places.corners, tile_places.edge, mask, outline.downsample)
        except ValueError as error:
            raise CaseError(f"case {case.id!r}: the map of {label!r} cannot be judged: {error}") from error
        for name in metrics:
            definition, parameter = parse(name)
            value = definition.function(pair) if parameter is None else definition.function(pair, parameter)
            rows.append(LabelScore(label, name, float(value), "present"))
    return rows
