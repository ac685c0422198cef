"""The contract of a task: which cases, what is asked of a model, how an answer is stored and judged."""

from __future__ import annotations

import json
import math
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, cast

from medimg_eval.arguments import keep_arguments
from medimg_eval.case import Array, Case, Condition, Geometry, Image, Prompt, Prompts, Score
from medimg_eval.case_index import held, repeated_id
from medimg_eval.codecs import Codec, read_json
from medimg_eval.degradations import OF_IMAGES, DrawKey, conditions_on, degrade_case, part_conditions
from medimg_eval.errors import CaseError, MissingDataError, SplitError, UsageError, UserError, nearest
from medimg_eval.evidence import EMPTY, Context, Evidence, Subject, one_each
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.generation import SET
from medimg_eval.metrics.registry import Requirement, required
from medimg_eval.panels import Panel
from medimg_eval.published_numbers import PublishedNumber, published_numbers
from medimg_eval.tasks.checks import Checked, check_grids, count_grids, described
from medimg_eval.tasks.subsets import NUMBER, checked, numbers, subset

NOBODY: Mapping[str, str] = MappingProxyType({})
"""The provenance of a run that rests on no other model."""

MayLeave = Literal["yes", "no", "ask"]
"""Whether data may go to another machine; `ask` leaves it to the user's word on the command line."""


def permission(value: Any, where: str) -> MayLeave:
    """Permission of a config or command line; nothing is `ask`.

    Raises:
        UsageError: it is none of the three; the message says where it stands.
    """
    if value is None:
        return "ask"
    word = ("yes" if value else "no") if isinstance(value, bool) else value
    if word not in ("yes", "no", "ask"):
        raise UsageError(f"{where} is {value!r}; expected yes, no or ask")
    return cast("MayLeave", word)


SCORES = {"decides": "scores"}
"""Metadata of a task's field that decides scores alone: it can change without asking the model again."""


class SetScore(NamedTuple):
    """Value of a set of predictions by one metric.

    Attributes:
        metric: as it was asked for.
        label: the finding that its cases have, or `all`.
        value: a `SetValue`, or the reason why there is none, which begins with `RAISED` where the metric raised.
        where: attribute -> value of the cases, of a part of the set.
    """

    metric: str
    label: str
    value: Any
    where: Mapping[str, str]


class Layout(Protocol):
    """How one family of datasets lies on disk."""

    def cases(self, split: str) -> Sequence[Case]:
        """Cases of a split in fixed order; UserError for unknown splits."""

    def split_source(self) -> Mapping[str, str]:
        """Path -> SHA-256 of files that define splits."""
        return {}

    def left_out(self) -> Mapping[str, str]:
        """Case id -> missing parts, for cases that `cases` omitted."""
        return {}


def split_source(layout: Any) -> Mapping[str, str]:
    """Files defining a layout's splits; none where unstated."""
    return _said_by(layout, "split_source")


def left_out(layout: Any) -> Mapping[str, str]:
    """Omitted cases of a layout with reasons; none where unstated."""
    return _said_by(layout, "left_out")


def overlap_accepted(layout: Any) -> str:
    """Reason why splits may share patients; "" without."""
    return str(getattr(layout, "allow_overlap", ""))


def answered_elsewhere(layout: Any) -> bool:
    """Whether what a layout reads was asked, and answered, elsewhere."""
    return bool(getattr(layout, "answered", False))


def has_truth(layout: Any) -> bool:
    """Whether a layout knows references, so that answers can be scored."""
    return bool(getattr(layout, "has_truth", True))


def _said_by(layout: Any, what: str) -> Mapping[str, str]:
    # Users' layouts need `cases` alone; `left_out` may be a mapping there.
    stated = getattr(layout, what, {})
    return stated() if callable(stated) else stated


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A benchmark.

    Attributes:
        name: short id; the folder its runs are kept in.
        layout: turns the dataset's folder into cases.
        metrics: names from the metric registry, such as `dice` or `nsd@2`, in the order of the table; also summaries
            of whole runs, such as `cpm`.
        facts: numbers that summaries need of a benchmark, such as the range of published scores.
        drawn_within: attribute within whose values intervals draw patients, such as the hospitals whose numbers of
            patients were fixed; "" where there are none.
        title: what tables call it; the name when empty.
        splits: which split of the layout serves `fit`, `validate` and `test`.
        expected: number of cases by split or by what it serves (`test`), compared with what is found.
        acceptance: what a run is to reach, metric -> bounds of its interval, such as `{dice: {lower: 0.85}}`; a config
            calls it `accept`.
        monitor: the metric that validation during `fit` follows.
        card: description, source, licence, access, split, for people; `may_leave`: whether the data may go to a server;
            `published`: numbers that papers print.
        protocol: `fixed`, ours; or `published`, the authors' own, whose settings `published` then holds.
        leaks: what to do where the parts to fit, validate and test on share cases, patients or images: `warn`, or
            `refuse` under our protocol; under the authors' own it is a warning.
        published: what the authors do otherwise: settings that `build_task` puts in the place of the task's own, at any
            depth, and `notes`, which tell readers of a table what differs.
        subsets: sizes of the subsets of the cases to fit on, `fraction` or `shots`, and how many `draws` of each; then
            `number` is the one that is meant, or each is a fold of its own. What `fit` and `test` set.
        config: what it was made of, recorded with a run and hashed into its id; set by whoever makes it.
    """

    name: str
    layout: Layout
    metrics: Sequence[str] = field(metadata=SCORES)
    title: str = field(default="", metadata=SCORES)
    splits: Mapping[str, str] = field(default_factory=lambda: {"fit": "fit", "validate": "validate", "test": "test"})
    expected: Mapping[str, int] = field(default_factory=dict, metadata=SCORES)
    acceptance: Mapping[str, Any] | Sequence[Mapping[str, Any]] = field(default_factory=dict, metadata=SCORES)
    monitor: str = field(default="", metadata=SCORES)
    facts: Mapping[str, Any] = field(default_factory=dict, metadata=SCORES)
    drawn_within: str = field(default="", metadata=SCORES)
    card: Mapping[str, Any] = field(default_factory=dict, metadata=SCORES)
    protocol: Literal["fixed", "published"] = field(default="fixed", metadata=SCORES)
    leaks: Literal["warn", "refuse"] = field(default="warn", metadata=SCORES)
    published: Mapping[str, Any] = field(default_factory=dict, metadata=SCORES)
    subsets: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    capability: ClassVar[str]
    """The method a model needs to be asked this."""

    codec: ClassVar[Codec]
    """How a prediction is kept with its run."""

    judges: ClassVar[frozenset[str]] = frozenset()
    """Kinds of metrics that judge its cases; of several that a summary may take, only these are."""

    sampled: ClassVar[bool] = False
    """Whether `check` looks at all records and opens the images of some, as of many questions about few images."""

    noun: ClassVar[str] = "cases"
    """What tables call its cases, such as questions."""

    output: ClassVar[str] = ""
    """What a model gives, in words, for the reporting checklist; "" for what the codec stores."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Records constructor arguments, which identify runs as configs do."""
        task = super().__new__(cls)
        keep_arguments(task, args, kwargs)
        return task

    @classmethod
    def scoring_fields(cls) -> frozenset[str]:
        """Fields of scoring alone, excluded from the run id."""
        # A class that gives a field another default need not say again what it decides.
        held = (vars(kind).get("__dataclass_fields__", {}) for kind in cls.__mro__)
        return frozenset(name for own in held for name, spec in own.items() if spec.metadata.get("decides") == "scores")

    def complete(self, **values: Any) -> None:
        """Settles fields from `__post_init__`; once made, a task never changes: `dataclasses.replace` makes another."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def requirements(self) -> tuple[Requirement, ...]:
        """Requirements of the metrics; each comes after those that it goes on from."""
        return tuple(dict.fromkeys(need for name in self.metrics for need in required(name)))

    def dispensable(self, need: Requirement) -> bool:
        """Whether scoring works without it; missing values then stay empty."""
        return need.topic == "*"

    def unfit(self, need: Requirement, config: Mapping[str, Any], name: str) -> str:
        """Reason why a config's model cannot meet a requirement; "" else."""
        return ""

    def shows(self, need: Requirement) -> tuple[str, ...]:
        """Data that a provider sees, in words."""
        return {"features": ("images", "questions"), "distance": ("images",)}.get(need.kind, ("answers",))

    def reads_as(self, need: Requirement) -> str:
        """Settings of reading a provider's words, which may change; "" without."""
        return ""

    def subjects(
        self, need: Requirement, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence
    ) -> Iterable[Subject]:
        """Returns what a provider is shown, by case in order.

        Predictions are by trial id: what is stored, or a Failure. Evidence is what is known by now.

        Raises:
            UsageError: this family shows nothing to such a provider.
        """
        raise UsageError(f"task {self.name!r}: nothing of its predictions can be shown to {need.provider!r}")

    def context(self, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence) -> Context:
        """Scoring context from all cases and predictions, by trial id."""
        return Context(evidence) if evidence.provenance or evidence.observations else EMPTY

    def notes(self, cases: Sequence[Case], context: Context) -> list[str]:
        """Notes on a run for table readers, such as provider failures."""
        return [*context.evidence.notes(), *context.notes]

    def artefacts(self, context: Context, folder: Path) -> None:  # noqa: B027 - most tasks have none
        """Writes what shows the scores, such as a gallery, into a run's folder."""

    def check_data(self, cases: Sequence[Case]) -> None:  # noqa: B027 - most data can be asked about
        """Raises UserError where data cannot serve the task, before loading models."""

    def reference_lines(self, cases: Sequence[Case]) -> Mapping[str, float]:
        """Metric -> what an uninformed answer reaches, such as chance."""
        return {}

    def baselines(self) -> Mapping[str, Mapping[str, Any]]:
        """Name -> config of image-blind models, run by `baselines=true`."""
        return {}

    def for_baselines(self) -> Mapping[str, Any]:
        """Task settings for baselines, where they differ."""
        return {}

    def numbered_labels(self) -> Mapping[int, str]:
        """Integer -> name of asked labels, from the family's `labels`."""
        return getattr(self, "labels", {})

    def training_images(self, case: Case) -> Mapping[str, Any]:
        """Training Images and Masks of a case by name, cached by `fit`."""
        image, target = self.read_images(case)[0], case.target.read()
        return {"image": image, "target": target}

    def training_pair(self, case: Case, images: Mapping[str, Any]) -> tuple[Any, Any]:
        """Input and target of a model, made of what `training_images` gave; raises CaseError."""
        image, target = images["image"], images["target"]
        same_grid(target.geometry, image.geometry, what=f"case {case.id!r}: reference", than="the image")
        return image, target

    def training_key(self, case: Case) -> tuple[Iterable[Path], str]:
        """Cache key of `training_images`: files and processing."""
        # How a case refers to its files says what is done to them: regions, channels, label names.
        return case.files, repr((case.images, case.target))

    def check_case(self, case: Case) -> Checked:
        """Findings of `check` on one case: its grid, and what is wrong."""
        return check_grids(self, case)

    def describe(self, cases: Sequence[Case], grids: Mapping[str, int]) -> str:
        """Findings of `check` on all cases together; `grids`: how often each was found."""
        return count_grids(cases, grids)

    def panels(self, case: Case) -> list[Panel]:
        """Panels of a case: images, reference overlay, a question's reference text."""
        names = [f"Image {number}" for number in range(1, len(case.images) + 1)]
        names = ["Image"] if len(names) == 1 else names
        images = [Panel("image", name, image.read) for name, image in zip(names, case.images, strict=True)]
        words = [] if case.question is None else [Panel("text", "Reference", case.target.read)]
        return [*images, Panel("overlay", "Reference", case.target.read), *words]

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """Panels of an answer.

        Args:
            case: whose answer it is.
            prediction: as it was stored; of one that is kept in the run, with a judge's verdicts under `judged`.
        """
        if isinstance(prediction, Path) and prediction.suffix == ".json":
            return [Panel("overlay", "", lambda: json.dumps(read_json(prediction), indent=1))]
        return []

    @property
    def draws(self) -> bool:
        """Whether repeats differ by themselves, as with temperature."""
        return False

    def conditions(self) -> frozenset[str]:
        """Named changes that can be made to cases."""
        return conditions_on(*OF_IMAGES) | part_conditions(
            getattr(self.layout, "image_parts", tuple)(), getattr(self.layout, "part_forms", dict)()
        )

    @property
    def shown_view(self) -> str:
        """View that its images are shown in: `volume`, `video`, or "" for pictures."""
        return ""

    def for_model(self, wrapper: type) -> Any:
        """The task as a class of models is asked it; mostly the same."""
        return self

    def with_view(self, view: Any) -> Any:
        """Task with a settled view; itself where there is one."""
        return self

    @property
    def phase_names(self) -> tuple[str, ...]:
        """Phases of its films' frames; () without."""
        return ()

    def phase_tracks(self, case: Case, answer: Any) -> tuple[Array, Array, Array]:
        """Frame seconds, and phases by truth and answer, (frame,); -1 without."""
        raise UsageError(f"task {self.name!r} has no films with phases; name one that has, such as cholec80")

    def variant(self, repeat: int, condition: Condition | None) -> Task:
        """Task of one repeat or condition, with its own seeds."""
        return self

    def under(self, case: Case, condition: Condition, key: DrawKey) -> Case:
        """Case as shown under a condition; the key decides draws."""
        return degrade_case(case, condition, key)

    def judged_under(self, case: Case, condition: Condition, key: DrawKey) -> Case:
        """Case as judged under a condition, mostly as published."""
        return self.under(case, condition, key) if condition.name in conditions_on("moves", "words") else case

    @cached_property
    def case_metrics(self) -> list[str]:
        """Metrics of single cases: its own, and those of summaries."""
        wanted: dict[str, None] = {}
        for name in self.metrics:
            definition = parse(name)[0]
            needed = definition.needs or (() if definition.over else (name,))
            judged = [metric for metric in needed if parse(metric)[0].kind in self.judges]
            wanted |= dict.fromkeys(judged or needed)
        return list(wanted)

    @property
    def may_leave(self) -> MayLeave:
        """Whether data may leave, by its card; UsageError where unstated."""
        return permission(self.card.get("may_leave"), f"task {self.name!r}: card.may_leave")

    @property
    def published_numbers(self) -> tuple[PublishedNumber, ...]:
        """Published numbers of its card; UsageError for unreadable entries."""
        return published_numbers(self.card.get("published"), self.name)

    @property
    def partners(self) -> Mapping[str, Any]:
        """Further models that the task asks, by role."""
        return {}

    @property
    def has_truth(self) -> bool:
        """Whether its answers can be scored; without, they are kept."""
        return has_truth(self.layout)

    def serves(self, wrapper: type) -> bool:
        """Whether a model of this class can be asked."""
        return callable(getattr(wrapper, self.capability, None))

    def size_hint(self, case: Case) -> int:
        """Work of a case; similar ones are batched."""
        return 0

    @property
    def asked(self) -> Mapping[str, Any]:
        """Questions of metrics to models beyond the settings; part of the run id."""
        return {}

    @property
    def shows_images(self) -> bool:
        """Whether the model is shown what the images of a case hold."""
        return True

    def seeded(self, seed: int) -> Mapping[str, Any]:
        """Settings whose sampling follows the run's seed, unless fixed."""
        return {}

    def folds(self) -> Mapping[int, Self]:
        """Fold number -> task, for `fold: all`; else none.

        Each subset of the cases to fit on that is drawn is a fold, too: it is fitted on by itself, and tested on all.
        """
        if self.subsets and NUMBER not in self.subsets:
            return {number: self._with_drawn({**self.subsets, NUMBER: number}) for number in numbers(self.subsets)}
        each_fold = getattr(self.layout, "each_fold", None)
        layouts: Mapping[int, Layout] = each_fold() if callable(each_fold) else {}
        return {number: self._with_fold(number, layout) for number, layout in layouts.items()}

    def in_subsets(self, drawn: Mapping[str, Any]) -> Self:
        """Task fitted on subsets: `fraction` or `shots`, with `draws`.

        Raises:
            UsageError: they are invalid, or its folds are repeats already.
        """
        if self.folds():
            raise UsageError(f"task {self.name!r}: folds=all and sizes of what is fitted on are two runs; name one")
        return self._with_drawn(checked(drawn))

    def _with_drawn(self, drawn: Mapping[str, Any]) -> Self:
        return replace(self, subsets=drawn, config={**self.config, "subsets": dict(drawn)})

    def _with_fold(self, number: int, layout: Layout) -> Self:
        config = dict(self.config)
        stated = config.get("layout")
        if isinstance(stated, Mapping) and isinstance(stated.get("splits"), Mapping):
            config["layout"] = {**stated, "splits": {**stated["splits"], "fold": number}}
        return replace(self, layout=layout, config=config, expected={})

    def cases(self, part: str) -> Sequence[Case]:
        """Cases of one part; of all folds, those tested in any.

        Args:
            part: `fit`, `validate` or `test`.

        Raises:
            SplitError: the task has no such part, or it holds no case.
            MissingDataError: they are not there; the message says how they are got.
            UserError: a case id occurs twice, or the count is not the expected one.
        """
        if part not in self.splits:
            raise SplitError(f"task {self.name!r} has no cases to {part}{nearest(part, self.splits)}")
        if not self.subsets and (folds := self.folds()):
            if part != "test":
                raise SplitError(
                    f"task {self.name!r}: of all folds together there is nothing left to {part} on; "
                    "add folds=all to fit, or name one by task.layout.splits.fold=0"
                )
            return list({case.id: case for fold in folds.values() for case in fold.cases("test")}.values())
        split = self.splits[part]
        try:
            cases = held(self.layout.cases(split))
        except UserError as error:
            if isinstance(error, MissingDataError) or isinstance(error.__cause__, FileNotFoundError):
                raise MissingDataError(f"{error}{self._how_to_get()}") from error
            raise
        if (twice := repeated_id(cases)) is not None:
            raise UserError(f"task {self.name!r}: case id {twice!r} occurs more than once in split {split!r}")
        if not cases:
            raise SplitError(f"task {self.name!r}: split {split!r} holds no case; check the layout's root and patterns")
        # A split of the data may be named as a part that another one serves: {validate: test, test: val}.
        key = split if part in self.splits.values() else part
        expected = self.expected.get(key, self.expected.get(split, len(cases)))
        if len(cases) != expected:
            raise UserError(
                f"task {self.name!r}: expected {expected} cases in split {split!r}, found {len(cases)}; complete the "
                f"data, or set task.expected.{key}={len(cases)} to go on with what is there"
            )
        return subset(self, cases) if part == "fit" and NUMBER in self.subsets else cases

    def _how_to_get(self) -> str:
        """Source of the data by its card, ending a sentence."""
        steps = self.card.get("download")
        command = f"python -m medimg_eval download task={self.name}"
        if isinstance(steps, Mapping):
            root = getattr(self.layout, "root", None)
            return f"; fetch it by: {command}" + (f" root={shlex.quote(str(root))}" if root else "")
        if steps:
            return f"; the steps by which it is got: {command}"
        source = self.card.get("source")
        return f"; it is had from {source} ({self.card.get('access') or 'access unknown'})" if source else ""

    def read_images(self, case: Case) -> tuple[Image, ...]:
        """Reads what the model is shown; raises CaseError naming the file."""
        return tuple(reference.read() for reference in case.images)

    @abstractmethod
    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Prompt of one case."""

    def ask(self, model: Any, prompts: Prompts) -> Sequence[Any]:
        """Calls the model's capability; returns one raw answer per prompt."""
        return one_each(getattr(model, self.capability)(prompts), prompts)

    def ask_recorded(self, model: Any, prompts: Prompts, journal: Any) -> Sequence[Any]:
        """Like `ask`, with each step in a `StepJournal`, for several-step answers."""
        return self.ask(model, prompts)

    @abstractmethod
    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Any:
        """Checks a raw answer into a prediction; CaseError says why not."""

    @abstractmethod
    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Scores a prediction, given or stored, by the task's metrics.

        The harness passes a context only to tasks whose `context` gives one.

        Raises:
            CaseError: prediction or reference cannot be read, or lie on different grids.
        """

    @abstractmethod
    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """Scores of a case without an answer."""

    @abstractmethod
    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """The choices behind the numbers, for the table's footnote; `provenance` as of `Evidence`."""

    def definitions(self, provenance: Mapping[str, str] = NOBODY) -> dict[str, str]:
        """Definitions of metrics by themselves, independent of others."""
        protocol_text = f", protocol: {self.protocol}" if self.protocol != "fixed" else ""
        return {name: self.definition(name, provenance) + protocol_text for name in self.metrics}

    @property
    def differences(self) -> list[str]:
        """Differences to a protocol that is not ours, for readers of a table."""
        return list(self.published.get("notes", ())) if self.protocol == "published" else []

    def definition(self, metric: str, provenance: Mapping[str, str] = NOBODY) -> str:
        """Definition of one metric; provenance is optional."""
        alone = self.alone(metric)
        return alone.signature(provenance) if provenance else alone.signature()

    def alone(self, metric: str) -> Self:
        """Task with one metric alone, as far as its signature goes."""
        return replace(self, metrics=[metric])

    def rows(self, case: Case, scores: Sequence[LabelScore], *, run: str, model: str) -> list[Score]:
        """Puts a case's scores into Score rows."""
        whose = (run, self.name, model, case.id, case.id if case.patient is None else case.patient)
        attributes = json.dumps(dict(case.attributes), sort_keys=True)
        return [
            Score(*whose, label, metric, float(value), status, attributes) for label, metric, value, status in scores
        ]

    def score_set(self, cases: Sequence[Case], predictions: Mapping[str, Any], context: Context) -> list[SetScore]:
        """Scores of all predictions together, which belong to no case.

        Args:
            cases: of the run, in order.
            predictions: by trial id: what is stored, or a Failure.
            context: of all of them.
        """
        return []

    def rows_of_all(self, scores: Sequence[SetScore], *, run: str, model: str) -> list[Score]:
        """Rows of set scores, with attributes from each value."""
        rows = []
        for score in scores:
            value = math.nan if isinstance(score.value, str) else float(score.value.value)
            attributes = json.dumps({**described(score.value), "where": dict(score.where)}, sort_keys=True)
            rows.append(Score(run, self.name, model, "", "", score.label, score.metric, value, SET, attributes))
        return rows


class TrainsOnPrompts:
    """Training on prompts with cached images and their answers."""

    def training_images(self: Any, case: Case) -> Mapping[str, Any]:
        """The images that a model is shown."""
        return {f"image{index}": image for index, image in enumerate(self.read_images(case))}

    def training_pair(self: Any, case: Case, images: Mapping[str, Any]) -> tuple[Any, Any]:
        """The prompt, and the target."""
        return self.prompt(case, tuple(images.values())), case.target.read()

    def training_key(self: Any, case: Case) -> tuple[Iterable[Path], str]:
        """The files of the images."""
        return (path for image in case.images for path in image.files), repr((case.images, ""))


def baseline_configs(classes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Name -> config of a model, from name -> its class in `medimg_eval.models`."""
    return {name: {"_target_": f"medimg_eval.models.{kind}"} for name, kind in classes.items()}


def same_grid(geometry: Geometry, expected: Geometry, *, what: str, than: str) -> None:
    """Raises CaseError when `geometry` is not the expected grid, naming both sides."""
    if difference := expected.difference(geometry):
        raise CaseError(f"{what}: {difference} of {than}; resample it onto that grid first")
