"""Judges the pictures of a run as a set: their features beside those of real images, by every metric of sets."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from medimg_eval.case import Array, Case
from medimg_eval.codecs import Stored
from medimg_eval.errors import CaseError, SplitError, UsageError, UserError, nearest
from medimg_eval.evaluation.evidence.embedding import Embedded, Source, embed, embed_texts, pictures_digest, source_of
from medimg_eval.evaluation.evidence.nearest_images import Neighbours, write_gallery
from medimg_eval.evaluation.evidence.providers import NAMED, first_names, made_as, ready
from medimg_eval.evaluation.identity import digest
from medimg_eval.evaluation.run import Run, answered
from medimg_eval.evaluation.scoring import RAISED, error_in_words
from medimg_eval.metrics import parse
from medimg_eval.metrics.fidelity import shuffled
from medimg_eval.metrics.generation import ABILITIES, BY_FINDINGS, BY_PARTS, NEEDED, WHOLE, ImageSet, ImageSets
from medimg_eval.metrics.privacy import closest_pairs
from medimg_eval.models.extractors import FeatureExtractor
from medimg_eval.tasks.base import Task
from medimg_eval.tasks.synthesis import SetScore, SynthesisTask

if TYPE_CHECKING:
    from medimg_eval.case import Failure
    from medimg_eval.evaluation.model_spec import ModelSpec

log = logging.getLogger(__name__)


def refuse_unready_sets(task: Task, extractors: Mapping[str, ModelSpec]) -> None:
    """Takes note of the extractors and the real images that metrics of sets need, before a model is loaded.

    Raises:
        UsageError: there is no such extractor, or a metric needs a set of real images that is not there.
        UserError: an extractor's weights are not there, or two sets share patients that must not.
    """
    if not isinstance(task, SynthesisTask) or not task.set_metrics:
        return
    wanted = {name: [one for one in task.set_metrics if parse(one)[1] == name] for name in task.extractors}
    for name, metrics in wanted.items():
        if name not in extractors:
            raise UsageError(f"{', '.join(metrics)}: there is no extractor {name!r}{nearest(name, extractors)}")
    known = ready((FeatureExtractor,), "extractors", extractors, wanted, _unable)
    cases = _real_cases(task)
    _refuse_shared_patients(task, cases)
    task.extracted_by = known
    task.real = {
        part: f"{len(found)} images ({pictures_digest(_sources(part, found))})" for part, found in cases.items()
    }


def judge_sets(task: Task, run: Run, cases: Sequence[Case], extractors: Mapping[str, ModelSpec]) -> None:
    """Has a task know what its pictures are worth as a set.

    Args:
        task: any; only those of synthesis are judged so.
        run: whose pictures are read.
        cases: the prompts.
        extractors: name -> what it is made of; one that has nothing left to compute is not loaded.

    Raises:
        UserError: an extractor cannot be used, or a real image cannot be read.
    """
    if not isinstance(task, SynthesisTask):
        return
    task.of_sets, task.remarks = [], list(task.differences)
    if not task.set_metrics:
        return
    real = _real_cases(task)
    made = _made_pictures(task, cases, run.predictions())
    found: list[SetScore] = []
    for name in task.extractors:
        wanted = [one for one in task.set_metrics if parse(one)[1] == name]
        try:
            sets = _Embedded(task, name, extractors[name], real, made)
        except UserError:
            raise
        except Exception as error:
            log.debug("extractor %s", name, exc_info=True)
            found += [SetScore(metric, WHOLE, f"{RAISED}{error_in_words(error)}", {}) for metric in wanted]
            continue
        for metric in wanted:
            found += sets.scores(metric)
        if sets.screens:
            write_gallery(run.folder, name, sets.nearest(run.folder))
            sets.remarks.append(f"{name}: the pictures nearest to training images are shown in nearest-{name}.html")
        task.remarks += sets.remarks
    # In the order of the task's metrics, whatever extractors they share.
    order = {metric: place for place, metric in enumerate(task.set_metrics)}
    task.of_sets = sorted(found, key=lambda one: order[one.metric])
    run.note(extractors=dict(task.extracted_by), sets=dict(task.real))


class _Pictures(NamedTuple):
    """The pictures that were made, and the cases whose prompts they are of."""

    sources: list[Source]
    cases: list[Case]


class _Embedded:
    """All sets of a run as one extractor sees them."""

    def __init__(
        self,
        task: SynthesisTask,
        name: str,
        candidate: ModelSpec,
        real: Mapping[str, Sequence[Case]],
        made: _Pictures,
    ) -> None:
        self.task, self.name, self.real, self.made = task, name, real, made
        extractor: FeatureExtractor = made_as((FeatureExtractor,), "extractors", name, candidate.model)
        identity = f"{name}-{digest([candidate.identity, extractor.revision], 16)}"
        self.remarks: list[str] = []
        self._parts: dict[Any, ImageSets] = {}
        self.found: dict[str, Embedded] = {}
        for part, cases in real.items():
            skip = task.unreadable == "skip"
            self._take(part, embed(extractor, identity, _sources(part, cases), skip=skip, what=f"{name}: {part}"))
        self._take("generated", embed(extractor, identity, made.sources, skip=False, what=f"{name}: generated"))
        self._compare_shapes()
        self.extractor = extractor
        named = {name for cases in (*real.values(), made.cases) for case in cases for name in case.attributes}
        self.unknown = sorted(set(extractor.findings) - named)
        """Findings of a classifier that are an attribute of no case."""
        if self.unknown:
            self.remarks.append(f"{name}: an attribute of no case, and not judged: {', '.join(self.unknown)}")
        asks_texts = any(ABILITIES[parse(one)[0].name] == "texts" and parse(one)[1] == name for one in task.set_metrics)
        self.texts: Array | None = None
        if asks_texts and made.cases:
            self.texts = embed_texts(extractor, identity, [task.text(case) for case in made.cases])
        log.info("%s: %s", name, {part: (len(one.rows), one.computed) for part, one in self.found.items()})

    def scores(self, metric: str) -> list[SetScore]:
        """What the pictures are worth by one metric: all, those of each finding, and those of each group.

        A classifier's findings are judged of all pictures, one after the other.
        """
        scores = [self._score(metric, WHOLE, {}, None)]
        if parse(metric)[0].name in BY_FINDINGS:
            return scores + [
                self._score(metric, finding, {}, None, place)
                for place, finding in enumerate(self.extractor.findings)
                if finding not in self.unknown
            ]
        if parse(metric)[0].name not in BY_PARTS:
            return scores
        scores += [
            self._score(metric, finding, {}, lambda case, one=finding: self.task.has(case, one))
            for finding in self.task.strata
        ]
        for group in self.task.groups:
            there = (*self.real.get("reference", ()), *self.made.cases)
            for value in sorted({case.attributes.get(group, "") for case in there} - {""}):
                chosen = lambda case, key=group, one=value: case.attributes.get(key) == one  # noqa: E731
                scores.append(self._score(metric, WHOLE, {group: value}, chosen))
        return scores

    @property
    def screens(self) -> bool:
        """Whether its features are used to look for copies."""
        wanted = (parse(one) for one in self.task.set_metrics)
        compared = {part for found, name in wanted if name == self.name for part in NEEDED[found.name]}
        return {"train", "holdout"} <= compared and len(self.made.sources) > 1

    def nearest(self, folder: Path) -> list[Neighbours]:
        """The pictures that come nearest to a training image, the nearest first."""
        sets = self._sets(None)
        made, train = self.found["generated"].kept, self.found["train"].kept
        real = _sources("train", self.real["train"])
        found = []
        for pair in closest_pairs(*sets.trio, **sets.screened):
            source, other = self.made.sources[made[pair.generated]], train[pair.train]
            found.append(
                Neighbours(
                    self.made.cases[made[pair.generated]].id,
                    source.files[0].relative_to(folder).as_posix(),
                    self.real["train"][other].id,
                    pair.distance,
                    pair.nearer_than,
                    (source.read, real[other].read),
                )
            )
        return found

    def _score(
        self, metric: str, label: str, where: Mapping[str, str], chosen: Any, finding: int | None = None
    ) -> SetScore:
        found, _ = parse(metric)
        key = (WHOLE if finding is not None else label, *where.items())
        if key not in self._parts:
            self._parts[key] = self._sets(chosen)
        sets = self._parts[key]
        compared = (*NEEDED[found.name], "generated")
        least = self.task.least if chosen is None else max(self.task.least, self.task.drawn)
        short = next((name for name in compared if len(sets.by_name[name].rows) < least), None)
        value: Any = None
        if short is not None:
            value = f"too_few: {len(sets.by_name[short].rows)} {short} images, expected at least {least}"
        else:
            function: Any = found.function
            try:
                value = function(sets if finding is None else replace(sets, finding=finding))
            except ValueError as error:  # such as k neighbours of fewer images: this value's own matter
                value = f"undefined: {error}"
            except Exception as error:
                log.debug("%s, %s", metric, label, exc_info=True)
                value = f"{RAISED}{error_in_words(error)}"
        return SetScore(metric, label, value, where)

    def _sets(self, chosen: Any) -> ImageSets:
        by_name = {part: self._set(part, cases, chosen) for part, cases in self.real.items()}
        by_name["generated"] = self._set("generated", self.made.cases, chosen)
        texts = self.texts
        if texts is not None:
            texts = texts[_chosen([self.made.cases[place] for place in self.found["generated"].kept], chosen)]
        identity = f"{self.name} ({self.task.extracted_by[self.name]})"
        made = self.extractor
        return ImageSets(
            by_name,
            extractor=identity,
            texts=texts,
            seed=self.task.seed,
            names=tuple(made.names),
            thresholds=tuple(made.thresholds),
            compare=made.compare if made.tells_patients else None,
        )

    def _set(self, part: str, cases: Sequence[Case], chosen: Any) -> ImageSet:
        found = self.found[part]
        kept = [cases[place] for place in found.kept]
        rows = _chosen(kept, chosen)
        if chosen is not None and 0 < self.task.drawn < len(rows):
            owners = np.unique([kept[place].patient or kept[place].id for place in rows.tolist()], return_inverse=True)
            rng = np.random.default_rng(self.task.seed)
            rows = np.sort(rows[shuffled(rng, len(rows), owners[1])[: self.task.drawn]])
        return ImageSet(
            found.rows[rows],
            np.array([kept[place].patient or kept[place].id for place in rows.tolist()], dtype=str),
            np.array([kept[place].id for place in rows.tolist()], dtype=str),
            self._says([kept[place] for place in rows.tolist()]),
        )

    def _says(self, cases: Sequence[Case]) -> Array | None:
        """What attributes say of the findings, or of the choices, that the extractor gives probabilities of."""
        made = self.extractor
        if not (made.findings or made.choices):
            return None
        said = [self.task.says(case, made.findings or made.choices, made.chooses) for case in cases]
        found: Array = np.array(said, np.float64).reshape(len(cases), len(made.names))
        found[:, [place for place, name in enumerate(made.names) if name in self.unknown]] = np.nan
        return found

    def _take(self, part: str, found: Embedded) -> None:
        self.found[part] = found
        if found.skipped:
            some = first_names(found.skipped)
            self.remarks.append(f"{len(found.skipped)} images of {part} cannot be read and are left out: {some}")
        if found.constant:
            self.remarks.append(f"{found.constant} of {len(found.rows)} images of {part} are constant")

    def _compare_shapes(self) -> None:
        for what, place in (("sizes", 0), ("types", 2)):  # "256 x 256 uint8"
            kinds = {
                part: {shape.rpartition(" ")[place] for shape in one.shapes}
                for part, one in self.found.items()
                if one.shapes
            }
            if len(set().union(*kinds.values())) > 1:
                parts = "; ".join(f"{part} {_listed(found)}" for part, found in kinds.items())
                self.remarks.append(f"images differ in {what}, which features may see: {parts}")


def _unable(wanted: Sequence[str], made: FeatureExtractor) -> list[str]:
    """What metrics want of an extractor that it cannot do, in sentences."""
    able = {
        "texts": (made.reads_texts, "reads no texts; name one that does, as biomedclip"),
        "findings": (bool(made.findings), "tells no findings; name a classifier of them, as finding_classifier"),
        "choices": (bool(made.choices), "chooses no view; name a classifier of them, as view_classifier"),
        "identity": (made.tells_patients, "tells no patients apart; name one that does, as patient_reid"),
    }
    found = []
    for ability, (there, what) in able.items():
        names = [one for one in wanted if ABILITIES[parse(one)[0].name] == ability]
        if names and not there:
            found.append(f"{', '.join(names)}: extractor {made.name!r} {what}")
    return found


def _real_cases(task: SynthesisTask) -> dict[str, list[Case]]:
    """The cases of the real images that the metrics need, by set."""
    found: dict[str, list[Case]] = {}
    for part in task.parts:
        try:
            found[part] = task.cases(part)
        except SplitError as error:
            names = [one for one in task.set_metrics if part in NEEDED[parse(one)[0].name]]
            raise UsageError(f"{', '.join(names)}: compare with real images of {part!r}: {error}") from error
        bare = next((case for case in found[part] if not case.images), None)
        if bare is not None:
            raise UserError(
                f"task {task.name!r}: case {bare.id!r} of {part!r} has no image, which metrics of sets need"
            )
    return found


def _refuse_shared_patients(task: SynthesisTask, cases: Mapping[str, Sequence[Case]]) -> None:
    """Raises UserError when patients lie both in what was trained on and in what is held out."""
    if not {"train", "holdout"} <= cases.keys():
        return
    train, spare = ({case.patient for case in cases[part]} - {None} for part in ("train", "holdout"))
    if shared := sorted(map(str, train & spare)):
        raise UserError(
            f"task {task.name!r}: {len(shared)} patients lie both in train and in holdout, the first being "
            f"{shared[:NAMED]}; privacy is measured against patients that the model has not seen"
        )


def _sources(part: str, cases: Sequence[Case]) -> list[Source]:
    return [source_of(f"case {case.id!r} of {part}", case.images[0]) for case in cases]


def _made_pictures(
    task: SynthesisTask, cases: Sequence[Case], predictions: Mapping[str, Stored | Failure]
) -> _Pictures:
    sources: list[Source] = []
    owners: list[Case] = []
    for case in cases:
        stored = predictions.get(case.id)
        if not answered(stored) or isinstance(stored, Mapping):
            continue
        try:
            files = task.codec.read(stored).pictures
        except CaseError as error:
            log.warning("case %s: %s", case.id, error)
            continue
        sources += [source_of(f"case {case.id!r}, picture {n}", file) for n, file in enumerate(files, start=1)]
        owners += [case] * len(files)
    return _Pictures(sources, owners)


def _chosen(cases: Sequence[Case], chosen: Any) -> Array:
    return np.array([place for place, case in enumerate(cases) if chosen is None or chosen(case)], dtype=np.intp)


def _listed(found: set[str]) -> str:
    some = sorted(found)
    return ", ".join(some[:NAMED]) + (f" and {len(some) - NAMED} more" if len(some) > NAMED else "")
