"""Synthesis: pictures made of prompts, judged as a set beside sets of real ones."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from medimg_eval.case import Array, Case, Condition, Image, Prompt, Prompts
from medimg_eval.codecs import Codec, GeneratedImages, Pictures
from medimg_eval.errors import CaseError, SplitError, UsageError, UserError
from medimg_eval.evidence import EMPTY, Context, Evidence, Subject, one_each
from medimg_eval.imaging import read
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.generation import ONE_PICTURE, SET, WHOLE, OnePrompt, requirement_of
from medimg_eval.metrics.registry import Requirement
from medimg_eval.panels import Panel
from medimg_eval.question import Message
from medimg_eval.store import sentence_key
from medimg_eval.tasks.base import NOBODY, SCORES, SetScore, Task
from medimg_eval.tasks.checks import Checked, check_metrics
from medimg_eval.tasks.nearest_images import write_gallery
from medimg_eval.tasks.synthesis_sets import (
    NAMED,
    PROMPT,
    Shown,
    SynthesisSets,
    made_pictures,
    real_pictures,
    subjects_of,
)

PARTS = ("reference", "train", "holdout")
"""Sets of real images -> what their splits are called in `splits`."""

EDGE = 512
"""Rows and columns that pictures are brought to before their pixels are compared."""

OPEN = ("-1", "-1.0", "uncertain", "unknown", "nan")
"""What it says, in lower case, of one of which that is not known."""

PRESENT = ("1", "1.0", "true", "yes", "present")
"""What an attribute says, in lower case, of a case that has the finding."""


@dataclass(frozen=True, kw_only=True)
class SynthesisTask(Task):
    """Pictures to be made of prompts.

    A case is a prompt: its target is the text, its attributes say which findings the text has. `splits` names, beside
    `test` (the prompts), the sets of real images that metrics compare with: `reference` (what fidelity is measured
    against), `train` (what the model was trained on) and `holdout` (real images that it was not trained on, of other
    patients). Their cases' first image counts.

    Attributes:
        pictures: how many are made of every prompt.
        seed: of all seeds; that of a picture depends on it, on the case and on the picture's number alone.
        shown: whether the model is shown the case's images, as for pictures of a patient after treatment. What became
            of them is then the image of the same id in the reference set.
        strata: attributes that name findings: the fidelity of the images that have each is measured as well.
        groups: attributes, such as `view`: it is measured of the images of each value.
        least: images of a stratum or group that must be there on both sides, or nothing is said of it.
        drawn: so many images of each side of a stratum or group are drawn, so that metrics that drift with the number
            of images can be compared across them; of fewer nothing is said. 0 takes all there are.
        unreadable: `error` stops at a real image that cannot be read; `skip` leaves it out and counts it.
    """

    metrics: Sequence[str] = ("generation_failure_rate",)
    splits: Mapping[str, str] = field(default_factory=lambda: {"test": "test", "reference": "test"}, metadata=SCORES)
    pictures: int = 1
    seed: int = 0
    shown: bool = False
    strata: Sequence[str] = field(default=(), metadata=SCORES)
    groups: Sequence[str] = field(default=(), metadata=SCORES)
    least: int = field(default=2, metadata=SCORES)
    drawn: int = field(default=0, metadata=SCORES)
    unreadable: Literal["error", "skip"] = field(default="error", metadata=SCORES)

    capability: ClassVar[str] = "synthesize"
    codec: ClassVar[Codec] = Pictures()
    output: ClassVar[str] = "pictures"
    judges: ClassVar[frozenset[str]] = frozenset({SET, ONE_PICTURE})

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        if self.protocol == "published":
            if not self.published:
                raise UsageError(f"task {self.name!r} has no protocol=published; leave task.protocol out")
            self.complete(metrics=self.published.get("metrics", self.metrics))
        check_metrics(self, "pictures that were made")
        if not isinstance(self.pictures, int) or self.pictures < 1:
            raise UsageError(f"task.pictures: expected a whole number of at least 1, got {self.pictures!r}")
        for key, allowed in (("unreadable", ("error", "skip")), ("protocol", ("fixed", "published"))):
            UsageError.refuse_invalid(f"task.{key}", allowed, getattr(self, key))
        missing = [part for part in self.parts if part not in self.splits]
        if missing:
            names = [name for name in self.set_metrics if missing[0] in requirement_of(name).sets]
            raise UsageError(
                f"task {self.name!r}: {', '.join(names)} compare with a set of real images that no split is named for; "
                f"set task.splits.{missing[0]}, or leave such metrics out"
            )

    @property
    def case_metrics(self) -> list[str]:
        """The metrics that the pictures of a single prompt are judged by."""
        return [name for name in super().case_metrics if parse(name)[0].kind != SET]

    @property
    def draws(self) -> bool:
        """Pictures are drawn, each from a seed of its own."""
        return True

    def conditions(self) -> frozenset[str]:
        """Conditions of the images shown; none where prompts are texts."""
        return super().conditions() if self.shown else frozenset()

    def variant(self, repeat: int, condition: Condition | None) -> SynthesisTask:
        """Task with a seed of its own for each repeat."""
        return replace(self, seed=self.seed + repeat) if repeat else self

    @property
    def set_metrics(self) -> list[str]:
        """The metrics that judge all pictures together."""
        return [name for name in self.metrics if parse(name)[0].kind == SET]

    @property
    def extractors(self) -> list[str]:
        """Names of the extractors whose features the set metrics compare."""
        return list(dict.fromkeys(requirement_of(name).provider for name in self.set_metrics))

    @property
    def parts(self) -> list[str]:
        """Parts of the real images that the set metrics need."""
        needed = {part for name in self.set_metrics for part in requirement_of(name).sets}
        return [part for part in PARTS if part in needed]

    def check_data(self, cases: Sequence[Case]) -> None:
        """Refuses sets of real images that metrics cannot use.

        Raises:
            UsageError: one is not there.
            UserError: one has a case without an image, or shares patients with another that must not.
        """
        real = {part: self._real(part) for part in self.parts}
        if {"train", "holdout"} <= real.keys():
            train, spare = ({case.patient for case in real[part]} - {None} for part in ("train", "holdout"))
            if shared := sorted(map(str, train & spare)):
                raise UserError(
                    f"task {self.name!r}: {len(shared)} patients lie both in train and in holdout, the first being "
                    f"{shared[:NAMED]}; privacy is measured against patients that the model has not seen"
                )

    def subjects(
        self, need: Requirement, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence
    ) -> Iterator[Subject]:
        """Pictures of sets that a metric compares, or prompts for texts."""
        if need.kind != "features":
            raise UsageError(f"task {self.name!r}: its pictures cannot be shown to {need.provider!r}")
        for part in need.sets:
            yield from subjects_of(self.real_set(part), need.provider, evidence)
        generated = self.made_set(cases, predictions)
        yield from subjects_of(generated, need.provider, evidence)
        if need.ability == "texts":
            for case in {picture.case.id: picture.case for picture in generated}.values():
                text = self.text(case)
                yield Subject(f"{PROMPT}/{case.id}", sentence_key(text), lambda text=text: text)  # type: ignore[misc]

    def context(self, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence) -> Context:
        """All pictures with extractors' results; reference sets in the provenance."""
        if not self.set_metrics:
            return super().context(cases, predictions, evidence)
        real = {part: self.real_set(part) for part in self.parts}
        sets = SynthesisSets(self, real, self.made_set(cases, predictions), evidence)
        provenance = sets.provenance()
        facts = {"extractors": dict(evidence.provenance), "sets": provenance}
        return Context(replace(evidence, provenance={**evidence.provenance, **provenance}), sets, facts=facts)

    def score_set(self, cases: Sequence[Case], predictions: Mapping[str, Any], context: Context) -> list[SetScore]:
        """Scores of the pictures as a set, by each metric, finding and group."""
        return context.shared.judged.scores if isinstance(context.shared, SynthesisSets) else []

    def notes(self, cases: Sequence[Case], context: Context) -> list[str]:
        """Notes on the pictures."""
        sets = context.shared
        return list(sets.judged.notes) if isinstance(sets, SynthesisSets) else []

    def artefacts(self, context: Context, folder: Path) -> None:
        """Writes the generated pictures nearest to training images, by extractor."""
        if isinstance(context.shared, SynthesisSets):
            for extractor, nearest_pictures in context.shared.judged.nearest.items():
                write_gallery(folder, extractor, nearest_pictures)

    def real_set(self, part: str) -> list[Shown]:
        """The pictures of a set of real images; raises as `check_data` does."""
        return real_pictures(part, self._real(part), optional=self.unreadable == "skip")

    def made_set(self, cases: Sequence[Case], predictions: Mapping[str, Any]) -> list[Shown]:
        """Generated pictures in case order, without failures."""
        return made_pictures(self, cases, predictions)

    def _real(self, part: str) -> Sequence[Case]:
        """The cases of a set of real images; raises as `check_data` does."""
        try:
            cases = self.cases(part)
        except SplitError as error:
            names = [name for name in self.set_metrics if part in requirement_of(name).sets]
            raise UsageError(f"{', '.join(names)}: compare with real images of {part!r}: {error}") from error
        bare = next((case for case in cases if not case.images), None)
        if bare is not None:
            raise UserError(
                f"task {self.name!r}: case {bare.id!r} of {part!r} has no image, which metrics of sets need"
            )
        return cases

    def seeded(self, seed: int) -> Mapping[str, Any]:
        """The run's seed as that of all pictures."""
        return {} if "seed" in self.config else {"seed": seed}

    def seeds(self, case_id: str) -> list[int]:
        """The seeds of a prompt's pictures, 0 to 2**31 - 1."""
        texts = (f"{self.seed}/{number}/{case_id}" for number in range(self.pictures))
        digests = (hashlib.blake2b(text.encode(), digest_size=4).digest() for text in texts)
        return [int.from_bytes(digest, "big") >> 1 for digest in digests]

    def text(self, case: Case) -> str:
        """The text of a prompt; raises CaseError when there is none."""
        text = str(case.target.read().text)
        if not text.strip():
            raise CaseError(f"case {case.id!r}: the prompt is empty; leave the case out, or give it a text")
        return text

    def has(self, case: Case, finding: str) -> bool:
        """Whether attributes state a finding as present."""
        return case.attributes.get(finding, "").strip().lower() in PRESENT

    def says(self, case: Case, names: Sequence[str], attribute: str = "") -> list[float]:
        """Finding values by attributes, or one attribute's choices: 1, 0, NaN.

        A finding that is not spoken of is taken to be absent. A value that is none of `names` leaves all of them open.
        """
        if attribute:
            value = case.attributes.get(attribute, "").strip().lower()
            lowered = [name.lower() for name in names]
            return [float(value == name) for name in lowered] if value in lowered else [math.nan] * len(lowered)
        stated = [case.attributes.get(name, "").strip().lower() for name in names]
        return [math.nan if value in OPEN else float(value in PRESENT) for value in stated]

    def read_images(self, case: Case) -> tuple[Image, ...]:
        """Reads what the model is shown: nothing, unless the task shows images."""
        return super().read_images(case) if self.shown else ()

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """The text."""
        return Prompt(case.id, images if self.shown else (), messages=(Message("user", (self.text(case),)),))

    def ask(self, model: Any, prompts: Prompts) -> Sequence[Any]:
        """Has the pictures made."""
        return one_each(model.synthesize(prompts, [self.seeds(prompt.case_id) for prompt in prompts]), prompts)

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> GeneratedImages:
        """Checks the number of pictures; raises CaseError for another."""
        if isinstance(answer, Image) or not isinstance(answer, Sequence) or len(answer) != self.pictures:
            count = len(answer) if isinstance(answer, Sequence) else 1
            raise CaseError(f"case {case.id!r}: the {what} holds {count} pictures, expected {self.pictures}")
        pictures = [
            picture_of(picture, f"case {case.id!r}, picture {number}") for number, picture in enumerate(answer, start=1)
        ]
        return GeneratedImages(pictures, self.seeds(case.id))

    def check_case(self, case: Case) -> Checked:
        """Whether the prompt has a text, and its real images can be read."""
        try:
            self.text(case)
            images = super().read_images(case)
        except UserError as error:
            return Checked([str(error)])
        return Checked(["the image is constant" for image in images if np.ptp(image.array) == 0])

    def panels(self, case: Case) -> list[Panel]:
        """The prompt, and the real images that it belongs to."""
        real = [
            replace(panel, title=f"Real {panel.title.lower()}")
            for panel in super().panels(case)
            if panel.kind == "image"
        ]
        return [Panel("prompt", "Prompt", lambda: self.prompt(case, ()).messages), *real]

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """The pictures that were made."""
        files = self.codec.read(prediction).pictures if isinstance(prediction, Path) else []
        return [Panel("alone", f"Picture {number}", partial(read, file)) for number, file in enumerate(files, 1)]

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges the pictures of one prompt by those metrics that need no others."""
        files = (self.codec.read(prediction) if isinstance(prediction, Path) else prediction).pictures
        wanted = self.case_metrics if metrics is None else metrics
        prompt_pictures = OnePrompt(
            len(files),
            self.pictures,
            lambda: [rgb(read(file).array if isinstance(file, Path) else _channels_first(file)) for file in files],
            lambda: rgb(case.images[0].read().array) if case.images and not self.shown else None,
        )
        return [LabelScore(WHOLE, name, float(parse(name)[0].function(prompt_pictures)), "present") for name in wanted]

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """None of the pictures was made."""
        return [LabelScore(WHOLE, name, float(parse(name)[0].worst), "failed") for name in self.case_metrics]

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Settings that decide the numbers beside the pictures themselves."""
        parts = [f"{self.pictures} picture{'s' * (self.pictures > 1)} of every prompt, seed {self.seed}"]
        parts += [f"{part}: {provenance[part]}" for part in self.parts if part in provenance]
        parts += [f"{name} is {provenance[name]}" for name in self.extractors if name in provenance]
        return ", ".join(parts)


def picture_of(given: Any, what: str) -> Array:
    """Returns a picture for storage: uint8 or uint16, (row, column[, 3]).

    It is given as an `Image` or an array, (channel, row, column), of 1 or 3 channels: uint8, uint16, or floats from 0
    to 1, of which one channel is kept in 16 bits and three in 8.

    Raises:
        CaseError: it is something else, or holds values that are not finite or not between 0 and 1.
    """
    array = np.asarray(given.array if isinstance(given, Image) else given)
    if array.ndim != 3 or array.shape[0] not in (1, 3) or not array.size:
        raise CaseError(f"{what}: has shape {array.shape}, expected (1 or 3, rows, columns)")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all() or array.min() < 0 or array.max() > 1:
            raise CaseError(f"{what}: expected floats from 0 to 1, got values from {array.min():g} to {array.max():g}")
        kinds: Any = np.uint16 if array.shape[0] == 1 else np.uint8
        array = np.rint(array.astype(np.float64) * np.iinfo(kinds).max).astype(kinds)
    if array.dtype not in (np.uint8, np.uint16):
        raise CaseError(f"{what}: is {array.dtype}, expected uint8, uint16, or floats from 0 to 1")
    return array[0] if array.shape[0] == 1 else np.moveaxis(array, 0, -1)


def rgb(array: Array) -> Array:
    """Picture of 1 or 3 channels as 8-bit RGB, 512 x 512.

    Values of other types than uint8 are stretched from the smallest to the largest.
    """
    from PIL import Image as Pictures

    if array.dtype != np.uint8:
        low, high = float(array.min()), float(array.max())
        array = np.rint((array.astype(np.float64) - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)
    colours = np.moveaxis(np.broadcast_to(array, (3, *array.shape[1:])), 0, -1)
    return np.asarray(Pictures.fromarray(np.ascontiguousarray(colours)).resize((EDGE, EDGE)))


def _channels_first(picture: Array) -> Array:
    return picture[None] if picture.ndim == 2 else np.moveaxis(picture, -1, 0)
