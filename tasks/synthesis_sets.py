"""What extractors are shown of pictures that were made and of real ones, and the sets that metrics compare."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from medimg_eval.case import Array, Case, Image
from medimg_eval.errors import CaseError, UserError, error_in_words
from medimg_eval.evidence import FACTS, Evidence, Observation, Subject
from medimg_eval.imaging import ImageFile
from medimg_eval.metrics import parse
from medimg_eval.metrics.fidelity import shuffled
from medimg_eval.metrics.generation import BY_PARTS, WHOLE, ImageSet, ImageSets, requirement_of
from medimg_eval.metrics.privacy import closest_pairs
from medimg_eval.metrics.scores import RAISED
from medimg_eval.store import content_key, digest, picture_key
from medimg_eval.tasks.base import SetScore
from medimg_eval.tasks.nearest_images import Neighbours

if TYPE_CHECKING:
    from medimg_eval.tasks.synthesis import SynthesisTask

log = logging.getLogger(__name__)

GENERATED = "generated"
"""What the set of pictures that were made is called, beside the sets of real ones."""

NAMED = 3
"""Pictures, or kinds of them, that a note names."""


@dataclass(frozen=True)
class Picture:
    """A picture of a set, of a file or a reader; optional ones may be unreadable."""

    name: str
    reference: Any
    optional: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """Source files; () where identity needs the content."""
        if isinstance(self.reference, Path):
            return (self.reference,)
        return self.reference.files if isinstance(self.reference, ImageFile) else ()

    def key(self) -> str:
        """Key of its content; raises as `read` does."""
        if not self.files:
            return picture_key(self.read().array)
        options = ""  # what decides, with the files, what is read
        if isinstance(self.reference, ImageFile):
            settings = [dict(self.reference.options), str(self.reference.region)]
            options = json.dumps(settings, default=str, sort_keys=True)
        try:
            return content_key(self.files, options)
        except CaseError as error:
            raise self._error(error) from error

    def read(self) -> Image:
        """Reads the image; UserError where it cannot be, CaseError where it is optional."""
        reference = ImageFile(self.reference) if isinstance(self.reference, Path) else self.reference
        try:
            image: Image = reference.read()
        except CaseError as error:
            raise self._error(error) from error
        return image

    def look_up(self, features_of: Callable[[tuple[Path, ...]], Array]) -> Array:
        """Features by its files; raises as `read` where unknown."""
        try:
            return features_of(self.files)
        except CaseError as error:
            raise self._error(error) from error

    def _error(self, error: CaseError) -> UserError:
        if self.optional:
            return CaseError(f"{self.name}: {error}")
        mend = "mend it, or leave such images out, counted, with task.unreadable=skip"
        return UserError(f"{self.name}: {error}; {mend}")


class Shown(NamedTuple):
    """A picture of a set, with its case and its owner among observations."""

    owner: str
    case: Case
    picture: Picture


def real_pictures(part: str, cases: Sequence[Case], *, optional: bool) -> list[Shown]:
    """The pictures of a set of real images."""
    return [
        Shown(f"{part}/{case.id}", case, Picture(f"case {case.id!r} of {part}", case.images[0], optional))
        for case in cases
    ]


def made_pictures(task: SynthesisTask, cases: Sequence[Case], predictions: Mapping[str, Any]) -> list[Shown]:
    """Generated pictures in case order, without failures."""
    shown_pictures: list[Shown] = []
    for case in cases:
        stored = predictions.get(case.id)
        if not isinstance(stored, Path):
            continue
        try:
            files = task.codec.read(stored).pictures
        except CaseError as error:
            log.warning("case %s: %s", case.id, error)
            continue
        shown_pictures += [
            Shown(f"{case.id}/{number}", case, Picture(f"case {case.id!r}, picture {number}", file))
            for number, file in enumerate(files, start=1)
        ]
    return shown_pictures


def subjects_of(shown: Sequence[Shown], provider: str, evidence: Evidence) -> Iterator[Subject]:
    """Pictures new to an extractor; keys known elsewhere are not recomputed."""
    keys = {key[2]: observation.key for key, observation in evidence.observations.items() if observation.key}
    for owner, _, picture in shown:
        if evidence.find(provider, owner) is None:
            yield Subject(owner, keys.get(owner) or picture.key, lambda picture=picture: picture)  # type: ignore[misc]


class JudgedSets(NamedTuple):
    """Scores of a run's pictures as a set, notes, and pictures nearest to training."""

    scores: list[SetScore]
    notes: list[str]
    nearest: dict[str, list[Neighbours]]


@dataclass(frozen=True, eq=False)
class SynthesisSets:
    """All pictures of a run with their features, for set scores."""

    task: SynthesisTask
    real: Mapping[str, Sequence[Shown]]
    made: Sequence[Shown]
    evidence: Evidence

    def provenance(self) -> dict[str, str]:
        """Real set -> its size and hash."""
        keys = {key[2]: observation.key for key, observation in self.evidence.observations.items() if observation.key}
        return {
            part: f"{len(pictures)} images ({digest([keys.get(owner, '') for owner, _, _ in pictures])})"
            for part, pictures in self.real.items()
        }

    @cached_property
    def judged(self) -> JudgedSets:
        """Scores by all extractors together, in the order of the task's metrics."""
        names = self.task.set_metrics
        scores: dict[str, list[SetScore]] = {}
        notes: list[str] = []
        nearest: dict[str, list[Neighbours]] = {}
        for name in self.task.extractors:  # one after the other: the features of a set may fill the memory
            sets = ExtractedSets(self, name)
            scores |= {metric: sets.scores(metric) for metric in names if requirement_of(metric).provider == name}
            notes += sets.notes
            if sets.screens:
                nearest[name] = sets.nearest()
                notes.append(f"{name}: the pictures nearest to training images are shown in nearest-{name}.html")
        return JudgedSets([score for metric in names for score in scores[metric]], notes, nearest)


class ExtractedSets:
    """All sets of a run as one extractor sees them."""

    def __init__(self, sets: SynthesisSets, name: str) -> None:
        self.task, self.name, self.made = sets.task, name, sets.made
        self.evidence = sets.evidence
        self.real = {part: pictures for part, pictures in sets.real.items() if part in self._parts_of(name)}
        self.notes: list[str] = []
        self.raised = ""
        self._parts: dict[Any, ImageSets] = {}
        self.rows: dict[str, Array] = {}
        self.kept: dict[str, list[Shown]] = {}
        self.extractor: Any = self.evidence.of(name, "", FACTS)
        shapes = {part: self._take(part, pictures) for part, pictures in {**self.real, GENERATED: self.made}.items()}
        if not self.raised:
            self._compare_shapes(shapes)
            named = {key for pictures in self.kept.values() for _, case, _ in pictures for key in case.attributes}
            self.unknown = sorted(set(self.extractor.findings) - named)
            """Findings of a classifier that are an attribute of no case."""
            if self.unknown:
                self.notes.append(f"{name}: an attribute of no case, and not judged: {', '.join(self.unknown)}")

    def scores(self, metric: str) -> list[SetScore]:
        """Scores by one metric: all, each finding, each group.

        A classifier's findings are judged of all pictures, one after the other.
        """
        if self.raised:
            return [SetScore(metric, WHOLE, f"{RAISED}{self.raised}", {})]
        scores = [self._score(metric, WHOLE, {}, None)]
        if requirement_of(metric).ability == "findings":
            return scores + [
                self._score(metric, finding, {}, None, index)
                for index, finding in enumerate(self.extractor.findings)
                if finding not in self.unknown
            ]
        if parse(metric)[0].name not in BY_PARTS:
            return scores
        scores += [
            self._score(metric, finding, {}, lambda case, one=finding: self.task.has(case, one))
            for finding in self.task.strata
        ]
        cases = [case for part in ("reference", GENERATED) for _, case, _ in self._all(part)]
        for group in self.task.groups:
            for value in sorted({case.attributes.get(group, "") for case in cases} - {""}):
                chosen = lambda case, key=group, one=value: case.attributes.get(key) == one  # noqa: E731
                scores.append(self._score(metric, WHOLE, {group: value}, chosen))
        return scores

    @property
    def screens(self) -> bool:
        """Whether its features are used to look for copies."""
        return not self.raised and {"train", "holdout"} <= self.real.keys() and len(self.made) > 1

    def nearest(self) -> list[Neighbours]:
        """The pictures that come nearest to a training image, the nearest first."""
        sets = self._sets(None)
        neighbours = []
        for pair in closest_pairs(*sets.trio, **sets.screened):
            generated_picture, real = self.kept[GENERATED][pair.generated], self.kept["train"][pair.train]
            file, read = generated_picture.picture.files[0], (generated_picture.picture.read, real.picture.read)
            neighbours.append(
                Neighbours(generated_picture.case.id, file, real.case.id, pair.distance, pair.nearer_than, read)
            )
        return neighbours

    def _parts_of(self, name: str) -> set[str]:
        needs = (requirement_of(metric) for metric in self.task.set_metrics)
        return {part for need in needs if need.provider == name for part in need.sets}

    def _all(self, part: str) -> Sequence[Shown]:
        return self.made if part == GENERATED else self.real.get(part, ())

    def _take(self, part: str, shown: Sequence[Shown]) -> Counter[str]:
        """Stores a set's features in one block; returns pictures by type."""
        observed = [(picture, self.evidence.find(self.name, picture.owner)) for picture in shown]
        extracted: list[tuple[Shown, Observation]] = []
        missing: list[tuple[Shown, str]] = []
        for picture, observation in observed:
            if observation is not None and observation.status == "known":
                extracted.append((picture, observation))
            else:
                missing.append((picture, observation.message if observation else f"{self.name} was never shown it"))
        if missing and (not extracted or not missing[0][0].picture.optional):
            self.raised = self.raised or missing[0][1]
        rows = [observation.value for _, observation in extracted]
        self.rows[part] = np.stack(rows) if rows else np.zeros((0, 1), np.float32)
        self.kept[part] = [picture for picture, _ in extracted]
        if missing:
            some = ", ".join(picture.picture.name for picture, _ in missing[:NAMED]) + (
                ", ..." if len(missing) > NAMED else ""
            )
            self.notes.append(f"{len(missing)} images of {part} cannot be read and are left out: {some}")
        if constant := sum(bool(observation.meta.get("constant")) for _, observation in extracted):
            self.notes.append(f"{constant} of {len(extracted)} images of {part} are constant")
        return Counter(str(picture.meta["shape"]) for _, picture in extracted if "shape" in picture.meta)

    def _compare_shapes(self, shapes: Mapping[str, Counter[str]]) -> None:
        for what, position in (("sizes", 0), ("types", 2)):  # "256 x 256 uint8"
            kinds = {
                part: {shape.rpartition(" ")[position] for shape in shape} for part, shape in shapes.items() if shape
            }
            if len(set().union(*kinds.values())) > 1:
                parts = "; ".join(f"{part} {_shorten_names(values)}" for part, values in kinds.items())
                self.notes.append(f"images differ in {what}, which features may see: {parts}")

    def _score(
        self, metric: str, label: str, where: Mapping[str, str], chosen: Any, finding: int | None = None
    ) -> SetScore:
        key = (WHOLE if finding is not None else label, *where.items())
        if key not in self._parts:
            self._parts[key] = self._sets(chosen)
        sets = self._parts[key]
        compared = (*requirement_of(metric).sets, GENERATED)
        least = self.task.least if chosen is None else max(self.task.least, self.task.drawn)
        short = next((name for name in compared if len(sets.by_name[name].rows) < least), None)
        value: Any = None
        if short is not None:
            value = f"too_few: {len(sets.by_name[short].rows)} {short} images, expected at least {least}"
        else:
            function: Any = parse(metric)[0].function
            try:
                value = function(sets if finding is None else replace(sets, finding=finding))
            except ValueError as error:  # such as k neighbours of fewer images: this value's own matter
                value = f"undefined: {error}"
            except Exception as error:
                log.debug("%s, %s", metric, label, exc_info=True)
                value = f"{RAISED}{error_in_words(error)}"
        return SetScore(metric, label, value, where)

    def _sets(self, chosen: Callable[[Case], bool] | None) -> ImageSets:
        extractor = self.extractor
        return ImageSets(
            {part: self._set(part, chosen) for part in self.rows},
            extractor=f"{self.name} ({self.evidence.provenance[self.name]})",
            texts=self._texts(chosen),
            seed=self.task.seed,
            names=tuple(extractor.names),
            thresholds=tuple(extractor.thresholds),
            compare=extractor.compare if extractor.tells_patients else None,
        )

    def _set(self, part: str, chosen: Callable[[Case], bool] | None) -> ImageSet:
        cases = [case for _, case, _ in self.kept[part]]
        rows = np.array([index for index, case in enumerate(cases) if chosen is None or chosen(case)], dtype=np.intp)
        if chosen is not None and 0 < self.task.drawn < len(rows):
            owners = np.unique([cases[row].patient or cases[row].id for row in rows.tolist()], return_inverse=True)
            rng = np.random.default_rng(self.task.seed)
            rows = np.sort(rows[shuffled(rng, len(rows), owners[1])[: self.task.drawn]])
        drawn = [cases[row] for row in rows.tolist()]
        return ImageSet(
            self.rows[part][rows],
            np.array([case.patient or case.id for case in drawn], dtype=str),
            np.array([case.id for case in drawn], dtype=str),
            self._says(drawn),
        )

    def _texts(self, chosen: Callable[[Case], bool] | None) -> Array | None:
        """The features of the prompts of pictures, where a metric compares with them."""
        cases = [case for _, case, _ in self.kept[GENERATED] if chosen is None or chosen(case)]
        texts = [self.evidence.find(self.name, f"{PROMPT}/{case.id}") for case in cases]
        if not texts or texts[0] is None:
            return None
        return np.stack([self.evidence.of(self.name, f"{PROMPT}/{case.id}") for case in cases])

    def _says(self, cases: Sequence[Case]) -> Array | None:
        """Findings or choices by the extractor's probabilities."""
        extractor = self.extractor
        if not (extractor.findings or extractor.choices):
            return None
        statements = [
            self.task.says(case, extractor.findings or extractor.choices, extractor.chooses) for case in cases
        ]
        stated: Array = np.array(statements, np.float64).reshape(len(cases), len(extractor.names))
        stated[:, [index for index, name in enumerate(extractor.names) if name in self.unknown]] = np.nan
        return stated


PROMPT = "prompt"
"""How the owner of a prompt's features begins; the case follows."""


def _shorten_names(found: set[str]) -> str:
    some = sorted(found)
    return ", ".join(some[:NAMED]) + (f" and {len(some) - NAMED} more" if len(some) > NAMED else "")
