"""Questions about images: choices, yes or no, free text, numbers and places, asked of models that write."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import yaml

from medimg_eval.case import Boxes, Case, Condition, Image, Points, Prompt, Prompts
from medimg_eval.codecs import Codec, Records
from medimg_eval.errors import CaseError, UsageError, UserError, nearest
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.answers import JUDGE, UNREAD, AnsweredQuestion, rules
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.panels import Extracted, Panel
from medimg_eval.question import Decoding, Key, Message, Question, Reply
from medimg_eval.tasks.base import Task, TrainsOnPrompts, baseline_configs, check_metrics, one_each
from medimg_eval.tasks.checks import Checked, count_questions
from medimg_eval.tasks.questions.confidence import confidence_of, status_of, with_confidence
from medimg_eval.tasks.questions.judge_questions import JudgeQuestion
from medimg_eval.tasks.questions.templates import Template, moved, without_images

log = logging.getLogger(__name__)

YES_NO = {"yes": "yes", "no": "no"}
"""What a yes-no question lets a model choose from that does not write."""

NO_IMAGE = "no_image"
BLIND: dict[str, Literal["remove", "grey"]] = {NO_IMAGE: "remove", "grey": "grey"}
"""Condition -> `QuestionTask.blind`: how much can be answered without images."""

JUDGING = "medimg_eval.configs"
"""Holds the questions that metrics have a judge asked."""

BASELINES = {
    "Chance": "Chance",
    "Majority answer": "Majority",
    "Longest option": "LongestOption",
    "Nearest question": "NearestQuestion",
}
"""What tables call them -> their classes in `medimg_eval.models`."""

PLACED = ("box", "point")
"""Kinds of questions whose answer is a place in the image."""

TRIED = 20
"""Questions of which one at least must fit the prompt template, or none will."""

IMAGE_LENGTH = 1000
"""Characters that an image counts as, where questions of like length are put into one batch."""


@dataclass(kw_only=True)
class QuestionTask(TrainsOnPrompts, Task):
    """Questions with an answer key.

    Attributes:
        template: how they are put; see `Template` and docs/questions.md.
        decoding: how models write, as in `Decoding`.
        answer_by: `generate`: models write, and one that cannot is asked to choose; `likelihood`: the option that a
            model finds most likely is its answer.
        blind: `remove` shows no images, `grey` shows grey ones of the same size: how much can be answered without.
        extraction: how answers are taken from what models write: `cascade` (docs/extraction.md), `authors` for the
            benchmark's own rule, or the name of a published rule; with `+judge` behind it, what it does not understand
            is left to the judge's question `option`, and with `judge` alone everything is.
        authors: the benchmark's own settings: `extraction`, a rule's name, or kind of answer -> such a name.
        judge: what a judge is asked about answers, when one is named on the command line: name -> `JudgeQuestion`.
        shots: exemplars shown before the question: `{split: dev, number: 3}`, or `{split: dev, ids: [...]}`.
        table: columns of the paper's own table; see docs/tables.md.
    """

    template: Mapping[str, Any] = field(default_factory=dict)
    decoding: Mapping[str, Any] = field(default_factory=dict)
    answer_by: Literal["generate", "likelihood"] = "generate"
    blind: Literal["", "remove", "grey"] = ""
    extraction: str = "cascade"
    authors: Mapping[str, Any] = field(default_factory=dict)
    judge: Mapping[str, Any] = field(default_factory=dict)
    shots: Mapping[str, Any] = field(default_factory=dict)
    table: Sequence[Mapping[str, Any]] = ()
    metrics: Sequence[str] = ("accuracy", "unanswered")
    monitor: str = "accuracy"
    judged_by: str = field(default="", init=False)
    """The judge whose verdicts count; the harness says."""
    corpus: Corpus | None = field(default=None, init=False)
    """All references of the cases."""
    readings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, init=False)
    """By case: what annotators made of it; the harness says."""
    annotated_by: Mapping[str, str] = field(default_factory=dict, init=False)
    """Annotator -> the weights that it read with; the harness says."""

    capability: ClassVar[str] = "generate"
    codec: ClassVar[Codec] = Records(Reply)
    sampled: ClassVar[bool] = True
    noun: ClassVar[str] = "questions"
    output: ClassVar[str] = "text, from which answers are extracted"
    judges: ClassVar[frozenset[str]] = frozenset({"answer"})
    scoring_fields: ClassVar[frozenset[str]] = Task.scoring_fields | {"extraction", "authors", "judge", "table"}

    def __post_init__(self) -> None:
        """Refuses settings that cannot be meant, and adds the questions that metrics have a judge asked."""
        check_metrics(self, "answers")
        for key, options in {"answer_by": ("generate", "likelihood"), "blind": ("", "remove", "grey")}.items():
            if getattr(self, key) not in options:
                raise UsageError(f"task.{key} is {getattr(self, key)!r}{nearest(str(getattr(self, key)), options)}")
        if self.shots and str(self.shots.get("split", "dev")) == self.splits.get("test"):
            raise UsageError(
                "task.shots: exemplars of the split that is asked about would give answers away; name another"
            )
        self._template = Template.of(self.template)
        asked = dict.fromkeys(question for name in self.case_metrics for question in parse(name)[0].asks)
        self.judge = {**{name: _judging(name) for name in asked if name not in self.judge}, **self.judge}
        self._judge = JudgeQuestion.all_of(self.judge)
        try:
            self._decoding = Decoding(**{**self.decoding, "stop": tuple(self.decoding.get("stop", ()))})
        except TypeError as error:
            raise UsageError(f"task.decoding: {error}") from error
        for named in self._rules.values():
            rule = named.removesuffix(f"+{JUDGE}")
            if rule not in ("cascade", JUDGE) and rule not in rules():
                raise UsageError(f"task {self.name!r}: there is no rule {rule!r}{nearest(rule, ['cascade', *rules()])}")

    def seeded(self, seed: int) -> Mapping[str, Any]:
        """The run's seed as that of decoding."""
        return {"decoding": {"seed": seed, **self.decoding}}

    @property
    def draws(self) -> bool:
        """Whether models draw what they write."""
        return self._decoding.temperature > 0

    def conditions(self) -> frozenset[str]:
        """Pixel conditions, and images that are not shown at all."""
        return super().conditions() | {NO_IMAGE}

    def variant(self, repeat: int, condition: Condition | None) -> QuestionTask:
        """With a seed of its own for each repeat; without images, its exemplars lose theirs, too."""
        changes: dict[str, Any] = {}
        if repeat:
            changes["decoding"] = {**self.decoding, "seed": self._decoding.seed + repeat}
        if condition is not None and condition.name in BLIND:
            changes["blind"] = BLIND[condition.name]
        return replace(self, **changes) if changes else self

    def show(self, images: tuple[Image, ...], condition: Condition) -> tuple[Image, ...]:
        """The images under a condition; the variant of one without content reads none, or grey ones."""
        return images if condition.name in BLIND else super().show(images, condition)

    @property
    def annotators(self) -> list[str]:
        """Names of the annotators whose readings the metrics need."""
        return list(dict.fromkeys(one for name in self.case_metrics for one in parse(name)[0].reads))

    def gather(self, cases: Sequence[Case]) -> None:
        """Takes note of all references."""
        self.corpus = Corpus([references for case in cases if (references := self._references(case))])

    def texts(self, case: Case, packed: Mapping[str, Any] | None) -> tuple[str, str]:
        """The reference and the prediction of a case, as annotators are given them; "" for no prediction.

        Raises:
            CaseError: the record cannot be read, or has several references, which annotators do not compare with.
        """
        pair = self._pair(case, packed or {"texts": [""]})
        if len(pair.references) > 1:
            raise CaseError(
                f"case {case.id!r} has {len(pair.references)} references, and {', '.join(self.annotators)} compare "
                "with one; leave such metrics out, or give one reference"
            )
        return (pair.references[0] if pair.references else ""), pair.text

    def serves(self, wrapper: type) -> bool:
        """Whether a model of this class can be asked: it writes, or it chooses."""
        writes, chooses = (callable(getattr(wrapper, name, None)) for name in ("generate", "choose"))
        return chooses if self.answer_by == "likelihood" else writes or chooses

    def size_hint(self, case: Case) -> int:
        """About how long the prompt will be: questions of like length are answered together."""
        question = case.question or Question("")
        return len(question.text) + sum(map(len, question.options.values())) + IMAGE_LENGTH * len(case.images)

    def read_images(self, case: Case) -> tuple[Image, ...]:
        """Reads what the model is shown: of a blind one nothing, or grey."""
        if self.blind == "remove":
            return ()
        images = super().read_images(case)
        return tuple(_grey(image) for image in images) if self.blind == "grey" else images

    def training_key(self, case: Case) -> tuple[Iterable[Path], str]:
        """The files of the images, and whether they are shown."""
        return super().training_key(case)[0], repr((case.images, self.blind))

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Puts the question, after exemplars if there are any.

        Raises:
            CaseError: the record of the case cannot be understood.
        """
        question = _question(case)
        shown, exemplars = self._exemplars
        if self.blind:
            shown = () if self.blind == "remove" else tuple(_grey(image) for image in shown)
            exemplars = exemplars if shown else tuple(without_images(message) for message in exemplars)
        messages, later = self._template.messages(question, case.attributes, len(images))
        system = tuple(message for message in messages if message.role == "system")
        asked = tuple(moved(message, len(shown)) for message in messages if message.role != "system")
        options = question.options or (YES_NO if question.kind == "yes_no" else {})
        said = (*system, *exemplars, *asked)
        return Prompt(case.id, (*shown, *images), messages=said, options=options, question=question.text, later=later)

    def ask(self, model: Any, prompts: Prompts) -> Sequence[Any]:
        """Has the model write, turn by turn, or choose where it cannot write or is asked for likelihoods."""
        choosing = self.answer_by == "likelihood" or not callable(getattr(model, "generate", None))
        if not choosing and not getattr(model, "chooses_first", False):
            return self._conversations(model, prompts)
        # A single option is nothing to choose from, but what a baseline is worth there is known.
        some = [prompt for prompt in prompts if len(prompt.options) > choosing]
        if choosing and len(some) < len(prompts):
            lost = next(prompt for prompt in prompts if len(prompt.options) < 2)
            raise CaseError(
                f"case {lost.case_id!r} has no options to choose from; leave such questions out by layout.only"
            )
        weighed = with_confidence(model, one_each(model.choose(some), some)) if some else ()
        chosen = dict(zip((prompt.case_id for prompt in some), weighed, strict=True))
        others = [prompt for prompt in prompts if prompt.case_id not in chosen]
        written = dict(zip((prompt.case_id for prompt in others), self._conversations(model, others), strict=True))
        return [chosen.get(prompt.case_id, written.get(prompt.case_id)) for prompt in prompts]

    def _conversations(self, model: Any, prompts: Prompts) -> list[Reply]:
        """Has the model answer the first turn of all, then the second of those that have one, and so on."""
        if not prompts:
            return []
        texts: list[list[str]] = [[] for _ in prompts]
        going = dict(enumerate(prompts))
        while going:
            answers = one_each(model.generate(list(going.values()), self._decoding), going)
            following = {}
            for (place, prompt), answer in zip(going.items(), answers, strict=True):
                texts[place].append(answer)
                turn = self.next_turn(prompts[place], texts[place])
                if turn is not None:
                    said = (*prompt.messages, Message("assistant", (answer,)), turn)
                    following[place] = replace(prompt, messages=said)
            going = following
        return [Reply(tuple(said)) for said in texts]

    def next_turn(self, prompt: Prompt, replies: Sequence[str]) -> Message | None:
        """What the user says after so many replies; None where the last one is the answer.

        Args:
            prompt: as it was first put.
            replies: what the model has said to it so far.
        """
        return prompt.later[len(replies) - 1] if len(replies) <= len(prompt.later) else None

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Reply:
        """Takes a text, a Reply, or a number for each option; raises CaseError for anything else."""
        where = f"case {case.id!r}: {what}"
        if isinstance(answer, str):
            return Reply((answer,))
        if isinstance(answer, Reply):
            if not all(isinstance(text, str) for text in answer.texts):
                strange = next(type(text).__name__ for text in answer.texts if not isinstance(text, str))
                raise CaseError(f"{where} is {strange}, expected a text")
            if answer.preferences is None:
                return answer
        weighed = answer.preferences if isinstance(answer, Reply) else answer
        if not isinstance(weighed, Mapping):
            raise CaseError(f"{where} is {type(weighed).__name__}, expected a text, or a number for each option")
        question = _question(case)
        options = question.options or YES_NO
        if set(weighed) != set(options):
            given = sorted(map(str, weighed))
            raise CaseError(f"{where} has numbers for {given}, expected them for {sorted(options)}")
        numbers = {letter: float(weighed[letter]) for letter in options}
        if not all(map(math.isfinite, numbers.values())):
            raise CaseError(f"{where} holds numbers that are not finite")
        return replace(answer, preferences=numbers) if isinstance(answer, Reply) else Reply(preferences=numbers)

    def score(self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None) -> list[LabelScore]:
        """Judges one reply.

        Args:
            case: the case.
            prediction: a Reply or its record, with the judge's verdicts under `judged` if there are any.
            metrics: by default those of the task.
        """
        packed: Any = prediction.as_record() if isinstance(prediction, Reply) else prediction
        pair = self._pair(case, packed)
        wanted = self.case_metrics if metrics is None else metrics
        values = ((name, label, value) for name in wanted for label, value in _values(name, pair).items())
        return [
            LabelScore(label, name, value, status_of(name, pair))
            for name, label, value in values
            if not math.isnan(value)
        ]

    def worst(self, case: Case) -> list[LabelScore]:
        """An empty answer at each metric's worst value; NaN when the record itself cannot be understood."""
        try:
            pair = self._pair(case, {"texts": [""]})
        except CaseError:
            return [LabelScore(UNREAD, name, math.nan, "failed") for name in self.case_metrics]
        # The judge is not asked about what was not answered; its verdicts would have been the worst.
        damned = replace(pair, judged=dict.fromkeys(self.judge, 0.0) if self.judged_by else {})
        return [row for name in self.case_metrics for row in _worst(name, pair, damned)]

    def reference_lines(self, cases: Sequence[Case]) -> Mapping[str, float]:
        """The expected `accuracy` of one who draws an option of each question; nothing where no question has any.

        Over the questions that `accuracy` judges: what must be written, such as a number, is not drawn and counts 0.
        """
        worth = [one for one in map(_worth_of_a_draw, cases) if one is not None]
        drawn = any(case.question and (case.question.options or case.question.kind == "yes_no") for case in cases)
        return {"accuracy": float(np.mean(worth))} if worth and drawn else {}

    def baselines(self) -> Mapping[str, Mapping[str, Any]]:
        """What answers without weights and without images."""
        return baseline_configs(BASELINES)

    def for_baselines(self) -> Mapping[str, Any]:
        """Without likelihoods, which baselines do not have."""
        return {"answer_by": "generate"}

    def check_data(self, cases: Sequence[Case]) -> None:
        """Raises UsageError when the first questions name a field of the template that none of them has."""
        found: UsageError | None = None
        for case in cases[:TRIED]:
            try:
                self.prompt(case, ())
            except UsageError as error:
                found = error
            except Exception as error:  # noqa: BLE001 - a case that cannot be read fails alone, when it is asked about
                log.debug("case %s cannot be tried: %s", case.id, error)
            else:
                return
        if found is not None:
            raise UsageError(f"task {self.name!r}: {found}") from found

    def alone(self, metric: str) -> Self:
        """The same task with one metric; without its judge, where that metric does not rest on verdicts."""
        one = super().alone(metric)
        found = [parse(name)[0] for name in one.case_metrics]
        if not self.judge_extracts and not any(
            each.asks or each.function.__module__.startswith("medimg_eval.metrics.judges.") for each in found
        ):
            one.judged_by = ""
        return one

    @property
    def judge_extracts(self) -> bool:
        """Whether a judge is asked for the option where no rule finds one."""
        return any(rule.rpartition("+")[2] == JUDGE for rule in self._rules.values())

    def signature(self) -> str:
        """What decides the numbers beside the questions themselves."""
        return ", ".join([*self._choices(), *self._read_by()])

    def _choices(self) -> list[str]:
        rule = ", ".join(f"{kind}: {name}" if kind else name for kind, name in self._rules.items())
        parts = [f"extraction: {rule}"]
        if self.answer_by == "likelihood":
            parts.append("the likeliest option is the answer")
        elif self._decoding.temperature > 0:
            parts.append(f"temperature {self._decoding.temperature:g}, seed {self._decoding.seed}")
        else:
            parts.append("greedy decoding")
        if self.blind:
            parts.append({"remove": "without images", "grey": "grey images"}[self.blind])
        if self.shots:
            parts.append(f"{len(self._exemplars[1]) // 2} exemplars")
        if self.judged_by:
            parts.append(f"judged by {self.judged_by}")
        elif self.judge_extracts:
            parts.append("which no judge was asked for")
        return parts

    def check_case(self, case: Case) -> Checked:
        """Whether the question can be put, and what is right be read."""
        try:
            self.prompt(case, self.read_images(case))
            case.target.read()
        except UserError as error:
            return Checked([str(error)])
        return Checked([])

    def describe(self, cases: Sequence[Case], grids: Mapping[str, int]) -> str:
        """How many questions of which kinds."""
        return count_questions(cases)

    def panels(self, case: Case) -> list[Panel]:
        """The prompt, the images, and what is right; of a question about a place, on the image."""
        # Templates ask for the number of images alone.
        blank = Image(np.zeros((1, 1, 1), np.uint8), np.eye(4), units="pixel")
        shown = () if self.blind == "remove" else (blank,) * len(case.images)
        placed = case.question is not None and case.question.kind in PLACED
        panels = [
            replace(one, read=lambda: marked(case.target.read().value)) if placed and one.kind == "overlay" else one
            for one in super().panels(case)
        ]
        return [Panel("prompt", "Prompt", lambda: self.prompt(case, shown).messages), *panels]

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """What was taken from a reply; of a place, also on the image."""
        if case.question is None or not isinstance(prediction, Mapping):
            return []

        def extracted() -> Extracted:
            if weighed := prediction.get("preferences"):
                return Extracted(max(weighed, key=weighed.get))
            extraction = self._pair(case, prediction).extraction
            return Extracted(extraction.value, extraction.rule)

        kind = case.question.kind
        taken = [Panel("extraction", "Answer", extracted)] if kind != "report" else []
        return taken + [Panel("overlay", "", lambda: marked(extracted().value))] * (kind in PLACED)

    def judge_prompts(self, case: Case, packed: Mapping[str, Any]) -> list[tuple[JudgeQuestion, Prompt]]:
        """What a judge is asked about a stored reply.

        Raises:
            CaseError: the record or an image cannot be read.
        """
        question, key = _question(case), case.target.read()
        wanted = self.judge_wanted(case, packed)
        images = super().read_images(case) if any(one.images for one in wanted) else ()
        reply = Reply(tuple(packed["texts"]))
        return [(one, one.prompt(case, question, key, reply, images)) for one in wanted]

    def judge_wanted(self, case: Case, packed: Mapping[str, Any]) -> list[JudgeQuestion]:
        """Which questions there are to a judge about a stored reply; raises CaseError as `judge_prompts` does."""
        if not self._judge or packed.get("preferences") is not None:
            return []
        pair = self._pair(case, packed)
        return [one for one in self._judge if one.when == "always" or pair.extraction.value is None]

    def _pair(self, case: Case, packed: Mapping[str, Any]) -> AnsweredQuestion:
        question = _question(case)
        key: Key = case.target.read()
        texts = tuple(packed.get("texts", ()))
        named = self._rules
        return AnsweredQuestion(
            kind=question.kind,
            output=texts[-1] if texts else "",
            value=key.value,
            question=question.text,
            options=question.options,
            preferences=packed.get("preferences"),
            rule=named.get(question.kind, named.get("", "cascade")),
            outputs=texts,
            more=key.more,
            judged=packed.get("judged", {}),
            readings=self.readings.get(case.id, {}),
            corpus=self.corpus,
            confidence=confidence_of(packed),
        )

    def _references(self, case: Case) -> tuple[str, ...]:
        try:
            return QuestionTask._pair(self, case, {"texts": [""]}).references
        except CaseError:  # the case says so itself, when it is asked or judged
            return ()

    def _read_by(self) -> list[str]:
        return [f"{name} by {self.annotated_by[name]}" for name in self.annotators if name in self.annotated_by]

    @cached_property
    def _rules(self) -> dict[str, str]:
        """Rule by kind of answer; under "" that of kinds that are not named."""
        if self.extraction != "authors":
            return {"": self.extraction}
        own = self.authors.get("extraction")
        if not own:
            raise UsageError(f"task {self.name!r}: its authors' rule is not known; use task.extraction=cascade")
        return {str(kind): str(rule) for kind, rule in own.items()} if isinstance(own, Mapping) else {"": str(own)}

    @cached_property
    def _exemplars(self) -> tuple[tuple[Image, ...], tuple[Message, ...]]:
        """Images and turns shown before every question."""
        if not self.shots:
            return (), ()
        cases = list(self.layout.cases(str(self.shots.get("split", "dev"))))
        ids = [str(one) for one in self.shots.get("ids", ())]
        known = {case.id: case for case in cases}
        lost = next((one for one in ids if one not in known), None)
        if lost is not None:
            raise UsageError(f"task.shots: there is no case {lost!r}{nearest(lost, known)}")
        chosen = [known[one] for one in ids] if ids else cases[: int(self.shots.get("number", 1))]
        images: list[Image] = []
        turns: list[Message] = []
        for case in chosen:
            read = tuple(reference.read() for reference in case.images)
            messages, _ = self._template.messages(_question(case), case.attributes, len(read))
            turns += [moved(message, len(images)) for message in messages if message.role != "system"]
            turns.append(Message("assistant", (_spelt(_question(case).kind, case.target.read().value),)))
            images += read
        return tuple(images), tuple(turns)


def marked(value: Any) -> Points | Boxes | None:
    """A place, (x, y) or (x1, y1, x2, y2) with the far edges outside, as marks in voxels; None for anything else."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) not in (2, 4):
        return None
    if len(value) == 2:
        return Points(np.array([[value[1], value[0]]], float), ("",))
    left, top, right, bottom = value
    return Boxes(np.array([[top, left, bottom - 1, right - 1]], float), ("",))


def _question(case: Case) -> Question:
    if case.question is None:
        case.target.read()  # says what is wrong with the record
        raise CaseError(f"case {case.id!r} has no question; this task's layout must give one")
    return case.question


def _values(name: str, pair: AnsweredQuestion) -> Mapping[str, float]:
    """A metric's value, by the kind of question; of a metric that judges several things, by their names."""
    found, parameter = parse(name)
    value: Any = found.function(pair) if parameter is None else found.function(pair, parameter)
    return value if isinstance(value, Mapping) else {pair.kind: float(value)}


def _worst(name: str, pair: AnsweredQuestion, damned: AnsweredQuestion) -> list[LabelScore]:
    """What a metric leaves of a case that failed: NaN where it says that it cannot judge the case at all.

    Args:
        name: the metric.
        pair: an empty answer.
        damned: the same with the worst verdicts.
    """
    found, rows = parse(name)[0], []
    try:
        for label, given in _values(name, pair).items():  # NaN where the metric does not judge such questions
            asked = math.isnan(given) and found.name != "judge_failures"
            value = _values(name, damned).get(label, math.nan) if asked else given
            if not math.isnan(value):
                rows.append(LabelScore(label, name, value if found.intermediate else float(found.worst), "failed"))
    except Exception:  # noqa: BLE001 - whatever it raises, such as of several references, this is not judged by it
        return [LabelScore(UNREAD, name, math.nan, "failed")]
    return rows


def _worth_of_a_draw(case: Case) -> float | None:
    """The expected `accuracy` of an option that is drawn; None where `accuracy` does not judge the question."""
    question = case.question
    if question is None or question.kind in ("number", "point"):
        return None if question is None else 0.0
    if question.kind not in ("choice", "choices", "yes_no"):
        return None
    count = len(question.options) or 2
    if question.kind == "choices" and len(case.target.read().value) > 1:
        return 0.0  # one option is never several
    return 1 / count


def _spelt(kind: str, value: Any) -> str:
    """What is right, as a model would write it: letters with commas, of several right texts the first."""
    if kind == "choices":
        return ", ".join(value)
    if isinstance(value, list | tuple) and value and isinstance(value[0], str):
        return value[0]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _grey(image: Image) -> Image:
    """An image of the same shape without content."""
    middle = 128 if image.array.dtype == np.uint8 else 0
    return replace(image, array=np.full_like(image.array, middle), notes=())


@cache
def _judging(name: str) -> Mapping[str, Any]:
    """The question to a judge that a metric asks, from `configs/judging`."""
    place = files(JUDGING) / "judging" / f"{name}.yaml"
    if not place.is_file():
        raise UsageError(f"task.judge.{name}: a metric needs the question {name!r} to a judge, which is not set")
    loaded: Mapping[str, Any] = yaml.safe_load(place.read_text(encoding="utf-8"))
    return loaded
