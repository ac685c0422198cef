"""Retrieval: the report of an image is to be found among all reports of a set, and the image of a report."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from medimg_eval.case import Array, Case, Image, Prompt, Prompts, Text
from medimg_eval.codecs import Codec, Records
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evidence import EMPTY, Context, Evidence, one_each
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.retrieval import Placed, retrieval_places
from medimg_eval.question import Key, Message
from medimg_eval.store import digest
from medimg_eval.tasks.base import NOBODY, Task, TrainsOnPrompts
from medimg_eval.tasks.checks import check_metrics

PAIR = "pair"
"""The label of scores: an image, or the images of a study, with its report."""


@dataclass(frozen=True, eq=False)
class Embedded:
    """Vectors of a pair, float32, (feature,); `cut` if a report's end does not count."""

    image: Array
    report: Array
    cut: bool = False

    def as_record(self) -> dict[str, Any]:
        """The vectors in base64, as little-endian float32."""
        record = {"image": _pack_vector(self.image), "report": _pack_vector(self.report)}
        return {**record, "cut": True} if self.cut else record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Reads what `as_record` gave; raises ValueError for what is no base64."""
        return cls(_unpack_vector(record["image"]), _unpack_vector(record["report"]), bool(record.get("cut")))


@dataclass(frozen=True)
class Ranks:
    """The gallery of a run.

    Attributes:
        placed: by case, the ranks at which image and report find each other.
        reports: how many pairs there are, also those that could not be embedded.
    """

    placed: Mapping[str, Placed]
    reports: int


@dataclass(frozen=True, kw_only=True)
class RetrievalTask(TrainsOnPrompts, Task):
    """Retrieval of images by reports, and back, within a set.

    Cases are those of any layout whose target is a report. A model answers by `embed`. Vectors are kept with the run;
    ranks are taken once all cases are embedded, over all of them. Intervals resample the queries; what is searched
    stays the whole set.
    """

    metrics: Sequence[str] = (
        *(f"{direction}_recall@{k}" for direction in ("i2t", "t2i") for k in (1, 5, 10)),
        "i2t_mrr",
        "t2i_mrr",
        "i2t_median_rank",
        "t2i_median_rank",
    )
    monitor: str = "i2t_mrr"

    capability: ClassVar[str] = "embed"
    codec: ClassVar[Codec] = Records(Embedded)
    judges: ClassVar[frozenset[str]] = frozenset({"retrieval"})

    def __post_init__(self) -> None:
        """Refuses metrics that judge something else."""
        check_metrics(self, "retrieval")

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Shows the images, then the report; CaseError unless there are images and one report."""
        if not images:
            raise CaseError(f"case {case.id!r} shows no image, so there is nothing to find its report by")
        return Prompt(case.id, images, messages=(Message("user", (*range(len(images)), _single_report(case))),))

    def ask(self, model: Any, prompts: Prompts) -> Sequence[Any]:
        """Returns image and report vectors per pair; whether reports were cut."""
        texts = [prompt.text for prompt in prompts]
        pictured = [
            replace(prompt, messages=(Message("user", tuple(range(len(prompt.images)))),)) for prompt in prompts
        ]
        worded = [Prompt(prompt.case_id, (), messages=(Message("user", (prompt.text,)),)) for prompt in prompts]
        prompts_ = [*pictured, *worded]
        vectors = one_each(model.embed(prompts_), prompts_)
        cuts = getattr(model, "cuts", lambda texts: [False] * len(texts))(texts)
        return list(zip(vectors[: len(texts)], vectors[len(texts) :], cuts, strict=True))

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Embedded:
        """Checks `Embedded` or two vectors of equal length, not zero; CaseError for others."""
        if isinstance(answer, Embedded):
            answer = (answer.image, answer.report, answer.cut)
        if not isinstance(answer, Sequence) or len(answer) not in (2, 3):
            raise CaseError(f"case {case.id!r}: {what} is {type(answer).__name__}, expected two vectors")
        image, report = (_check_vector(vector, f"case {case.id!r}: {what}") for vector in answer[:2])
        if image.shape != report.shape:
            raise CaseError(
                f"case {case.id!r}: {what} has vectors of {image.size} and {report.size} features, which cannot be "
                "compared"
            )
        return Embedded(image, report, bool(answer[2]) if len(answer) == 3 else False)

    def context(self, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence) -> Context:
        """Ranks all stored predictions, without failures; UserError for vectors that do not fit."""
        reports: dict[str, str] = {}
        for case in cases:
            with suppress(CaseError):  # the case says so itself, when it is asked
                reports[case.id] = _single_report(case)
        stored = {
            case: prediction
            for case, prediction in predictions.items()
            if case in reports and isinstance(prediction, Mapping)
        }
        embedded = [self._read(case, prediction) for case, prediction in stored.items()]
        lengths = {embedding.image.size for embedding in embedded}
        if len(lengths) > 1:
            raise UserError(
                f"task {self.name!r}: the run holds vectors of {' and '.join(map(str, sorted(lengths)))} features; "
                "name a new folder with run=DIR"
            )
        texts = [reports[case] for case in stored]
        images, worded = ([getattr(embedding, side) for embedding in embedded] for side in ("image", "report"))
        placed = retrieval_places(np.stack(images), np.stack(worded), texts) if stored else []
        notes = []
        if missing := len(reports) - len(stored):
            notes.append(f"{missing} of {len(reports)} pairs could not be embedded: the gallery lacks them")
        if cut := sum(embedding.cut for embedding in embedded):
            notes.append(f"the model read only the beginning of {cut} of {len(stored)} reports")
        ranks = Ranks(dict(zip(stored, placed, strict=True)), len(reports))
        return Context(evidence, ranks, digest([list(stored.items()), reports], 16), tuple(notes))

    def _read(self, case: str, record: Mapping[str, Any]) -> Embedded:
        with UserError.about(f"case {case!r}", "the stored vectors cannot be read", CaseError):
            embedded: Embedded = self.codec.read(record)
        return embedded

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges one pair by its ranks among all stored ones; CaseError for others."""
        placed = context.shared.placed.get(case.id) if isinstance(context.shared, Ranks) else None
        if placed is None:
            raise CaseError(f"case {case.id!r} has no rank: it is not among the stored predictions that were ranked")
        wanted = self.case_metrics if metrics is None else metrics
        return [LabelScore(PAIR, name, _retrieval_value(name, placed), "present") for name in wanted]

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """Neither is found; a rank is the number of pairs."""
        last = (context.shared.reports if isinstance(context.shared, Ranks) else 0) or 1
        worst_values = {name: float(parse(name)[0].worst) for name in self.case_metrics}
        return [
            LabelScore(PAIR, name, float(last) if math.isnan(worst) else worst, "failed")
            for name, worst in worst_values.items()
        ]

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Pool that is searched."""
        return "the gallery is the whole split, the images of a study together"


def _retrieval_value(name: str, placed: Placed) -> float:
    definition, parameter = parse(name)
    return float(definition.function(placed) if parameter is None else definition.function(placed, parameter))


def _single_report(case: Case) -> str:
    """The case's report; raises CaseError where there is none, or several."""
    target = case.target.read()
    value = target.text if isinstance(target, Text) else target.value if isinstance(target, Key) else None
    texts = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []
    held = [str(text) for text in texts if str(text).strip()]
    if len(held) != 1:
        raise CaseError(f"case {case.id!r} has {len(held) or 'no'} reports, expected one to be found by its image")
    return held[0]


def _check_vector(given: Any, where: str) -> Array:
    try:
        vector = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise CaseError(f"{where} holds no vector of numbers ({error})") from error
    if vector.ndim != 1 or not vector.size:
        raise CaseError(f"{where} holds an array of shape {vector.shape}, expected a vector")
    if not np.isfinite(vector).all() or not vector.any():
        raise CaseError(f"{where} holds a vector without a direction (zeros, NaN or infinite)")
    return vector


def _pack_vector(vector: Array) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _unpack_vector(stored: str) -> Array:
    return np.frombuffer(base64.b64decode(stored, validate=True), dtype="<f4")
