"""Questions about images: choices, yes or no, free text, numbers and places, asked of models that write."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from medimg_eval.case import NO_IMAGE, Case, Condition, Image, Prompt, Prompts
from medimg_eval.codecs import Codec, Records
from medimg_eval.degradations import DrawKey, conditions_on
from medimg_eval.errors import CaseError, UsageError, UserError, invalid
from medimg_eval.evidence import EMPTY, Context, Evidence, Subject, TextPair
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.answers import JUDGE, UNREAD, AnsweredQuestion, Read, rules, texts_among
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.metrics.registry import ALL, Requirement, judge_says, required
from medimg_eval.panels import Extracted, Panel
from medimg_eval.question import Decoding, Key, Message, Question, Reply
from medimg_eval.store import text_key
from medimg_eval.tasks.base import NOBODY, SCORES, Task, TrainsOnPrompts, baseline_configs
from medimg_eval.tasks.checks import Checked, check_metrics, count_questions
from medimg_eval.tasks.questions.answers import (
    accuracy_of_draw,
    as_shown,
    exemplars_of,
    failed_scores,
    is_judging,
    judging_question,
    marked,
    question_of,
    values_of,
)
from medimg_eval.tasks.questions.confidence import confidence_of, status_of
from medimg_eval.tasks.questions.conversation import choose_or_write, converse
from medimg_eval.tasks.questions.judge_questions import JudgeQuestion, rounds
from medimg_eval.tasks.questions.judge_subjects import ballots_on, judge_facts, judge_notes, judge_subjects, verdicts_on
from medimg_eval.tasks.questions.languages import InLanguage
from medimg_eval.tasks.questions.shared_texts import (
    REFERENCE,
    SharedTexts,
    pair_in_batch,
    write_ballots_of,
    write_verdicts,
)
from medimg_eval.tasks.questions.templates import Template, moved, without_images
from medimg_eval.tasks.questions.views import VIEWS, ShowsWhole

log = logging.getLogger(__name__)

YES_NO = {"yes": "yes", "no": "no"}
"""What a yes-no question lets a model choose from that does not write."""

BLIND: dict[str, Literal["remove", "grey"]] = {NO_IMAGE: "remove", "grey": "grey"}
BASELINES = {
    "Chance": "Chance",
    "Majority answer": "Majority",
    "Longest option": "LongestOption",
    "Nearest question": "NearestQuestion",
}
"""What tables call them -> their classes in `medimg_eval.models`."""

PLACED = ("box", "point")  # kinds of questions whose answer is a place in the image
TRIED = 20  # questions of which one at least must fit the prompt template, or none will
IMAGE_LENGTH = 1000  # characters that an image counts as, where questions of like length share a batch


@dataclass(frozen=True, kw_only=True)
class QuestionTask(InLanguage, ShowsWhole, TrainsOnPrompts, Task):
    """Questions with an answer key.

    Attributes:
        template: how they are put; see `Template` and docs/data/questions.md.
        decoding: how models write, as in `Decoding`.
        answer_by: `generate`: models write, and one that cannot is asked to choose; `likelihood`: the option that a
            model finds most likely is its answer.
        blind: `remove` shows no images, `grey` shows grey ones of the same size: how much can be answered without.
        extraction: how answers are taken from what models write: `cascade` (docs/definitions/extraction.md), `authors`
            for the benchmark's own rule, or the name of a published rule; with `+judge` behind it, what it does not
            understand is left to the judge's question `option`, and with `judge` alone everything is.
        authors: the benchmark's own settings: `extraction`, a rule's name, or kind of answer -> such a name.
        judge: what a judge is asked about answers, when one is named on the command line: name -> `JudgeQuestion`.
        shots: exemplars shown before the question: `{split: dev, number: 3}`, or `{split: dev, ids: [...]}`.
        table: columns of the paper's own table; see docs/publish/tables.md.
    """

    template: Mapping[str, Any] = field(default_factory=dict)
    decoding: Mapping[str, Any] = field(default_factory=dict)
    answer_by: Literal["generate", "likelihood"] = "generate"
    blind: Literal["", "remove", "grey"] = ""
    extraction: str = field(default="cascade", metadata=SCORES)
    authors: Mapping[str, Any] = field(default_factory=dict, metadata=SCORES)
    judge: Mapping[str, Any] = field(default_factory=dict, metadata=SCORES)
    shots: Mapping[str, Any] = field(default_factory=dict)
    table: Sequence[Mapping[str, Any]] = field(default=(), metadata=SCORES)
    metrics: Sequence[str] = ("accuracy", "unanswered")
    monitor: str = "accuracy"

    capability: ClassVar[str] = "generate"
    codec: ClassVar[Codec] = Records(Reply)
    sampled: ClassVar[bool] = True
    noun: ClassVar[str] = "questions"
    output: ClassVar[str] = "text, from which answers are extracted"
    judges: ClassVar[frozenset[str]] = frozenset({"answer"})

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        check_metrics(self, "answers")
        self.check_languages()
        allowed = {"answer_by": ("generate", "likelihood"), "blind": ("", *BLIND.values()), "view": VIEWS}
        for key, options in allowed.items():
            UsageError.refuse_invalid(f"task.{key}", options, getattr(self, key))
        if self.shots and str(self.shots.get("split", "dev")) == self.splits.get("test"):
            raise UsageError(
                "task.shots: exemplars of the split that is asked about would give answers away; name another"
            )
        _ = self._template, self._decoding
        _ = self.judge_questions
        for named in self._rules.values():
            rule = named.removesuffix(f"+{JUDGE}")
            if rule not in ("cascade", JUDGE) and rule not in rules():
                raise UsageError(invalid(f"task {self.name!r}: rule", rule, ["cascade", *rules()]))

    def seeded(self, seed: int) -> Mapping[str, Any]:
        """The run's seed as that of decoding."""
        return {"decoding": {"seed": seed, **self.decoding}}

    @property
    def draws(self) -> bool:
        """Whether models draw what they write."""
        return self._decoding.temperature > 0

    def conditions(self) -> frozenset[str]:
        """Conditions of images and words, and images withheld."""
        return super().conditions() | conditions_on("words") | (frozenset() if self.blind else {NO_IMAGE})

    def variant(self, repeat: int, condition: Condition | None) -> QuestionTask:
        """Variant with a seed per repeat; blind exemplars lose images."""
        changes: dict[str, Any] = {}
        if repeat:
            changes["decoding"] = {**self.decoding, "seed": self._decoding.seed + repeat}
        if condition is not None and condition.name in BLIND:
            changes["blind"] = BLIND[condition.name]
        return replace(self, **changes) if changes else self

    def under(self, case: Case, condition: Condition, key: DrawKey) -> Case:
        """Case under a condition; without content, images are missing or grey."""
        return case if condition.name in BLIND else super().under(case, condition, key)

    @cached_property
    def judge_questions(self) -> Mapping[str, JudgeQuestion]:
        """Judge questions by name, after those they need."""
        lookups: dict[str, Mapping[str, Any]] = {}
        for metric in self.case_metrics:
            _, topic = parse(metric)
            for need in required(metric):
                asks = need.kind == "verdict" and need.topic not in (ALL, *self.judge)
                if asks and (need.topic != topic or is_judging(need.topic)):
                    # A parameter may also name what no judge is asked, which then has no value.
                    lookups[need.topic] = judging_question(need.topic)
        stages = rounds(JudgeQuestion.all_of({**lookups, **self.judge}))
        return {question.name: question for stage in stages for question in stage}

    def requirements(self) -> tuple[Requirement, ...]:
        """Requirements of the metrics, and the task's own questions to a judge."""
        other_needs = (need for need in super().requirements() if need.kind != "verdict")
        return (*judge_says(*self.judge_questions), *other_needs)

    def reads_as(self, need: Requirement) -> str:
        """Judge questions with patterns by which verdicts are read."""
        return repr(self.judge_questions) if need.kind == "verdict" else ""

    def dispensable(self, need: Requirement) -> bool:
        """Whether other metrics keep values without this question's verdict."""
        return super().dispensable(need) or need.topic in self.judge

    def unfit(self, need: Requirement, config: Mapping[str, Any], name: str) -> str:
        """Why a judge is unfit: the question belongs to another model."""
        question = self.judge_questions.get(need.topic)
        called = " ".join(str(config.get(key, "")) for key in ("_target_", "checkpoint", "model"))
        if question is None or not question.by or re.search(question.by, called, re.IGNORECASE):
            return ""
        return (
            f"{question.name} is what a model of its own says, and judge {name!r} is another; add "
            f"model@judge={question.name}, or leave it out: {question.name}_prompt asks any judge the same"
        )

    def shows(self, need: Requirement) -> tuple[str, ...]:
        """Data that a provider sees, in words."""
        if need.kind != "verdict":
            return super().shows(need)
        pictures = ("images",) if self.judge_questions[need.topic].images else ()
        return (*pictures, "questions", "answers")

    def subjects(
        self, need: Requirement, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence
    ) -> Iterator[Subject]:
        """Subjects: answers for judges; references and answers for annotators.

        An answer that cannot be shown, such as one of several references, is left out, with a word in the log.
        """
        for case in cases:
            stored = predictions.get(case.id)
            packed = stored if isinstance(stored, Mapping) else None
            try:
                if need.kind == "verdict":
                    yield from self._shown_to_judge(need.topic, case, packed, evidence)
                else:
                    yield from self._shown_to_annotator(need, case, packed)
            except CaseError as error:
                log.warning("case %s is not shown to %s: %s", case.id, need.provider, error)

    def _shown_to_judge(
        self, topic: str, case: Case, packed: Mapping[str, Any] | None, evidence: Evidence
    ) -> Iterator[Subject]:
        question = self.judge_questions[topic]
        if packed is None or question not in self._wanted(case, packed):
            return
        reply = self.told_to_judge(case, packed)
        before = [judge_question for judge_question in self.judge_questions.values() if judge_question.name != topic]
        earlier = verdicts_on(before, case, lambda: reply, evidence) if question.before else {}
        yield from judge_subjects(question, case, reply, earlier, lambda: super(QuestionTask, self).read_images(case))

    def _shown_to_annotator(self, need: Requirement, case: Case, packed: Mapping[str, Any] | None) -> Iterator[Subject]:
        pair = self._pair(case, packed or {"texts": [""]})
        if len(pair.references) > 1:
            raise CaseError(
                f"case {case.id!r} has {len(pair.references)} references, and {need.provider} compares with one; leave "
                "such metrics out, or give one reference"
            )
        texts = TextPair(pair.references[0] if pair.references else "", pair.text)
        if need.kind == "comparison":
            yield Subject(case.id, text_key(*texts), lambda: texts, len(str(texts)))
            return
        for owner, text in ((f"{REFERENCE}/{case.id}", texts.reference), (case.id, texts.prediction)):
            yield Subject(owner, text_key(text), lambda text=text: text, len(text))  # type: ignore[misc]

    def told_to_judge(self, case: Case, packed: Mapping[str, Any]) -> Reply:
        """A stored answer as a judge sees it."""
        return Reply.from_record({**packed, "preferences": None})

    def context(self, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence) -> Context:
        """All references, and what the judge's replies are worth."""
        corpus = Corpus([references for case in cases if (references := self._references(case))])
        if JUDGE not in evidence.provenance:
            return Context(evidence, SharedTexts(corpus))
        verdicts, unasked = {}, 0
        for case in cases:
            stored = predictions.get(case.id)
            if isinstance(stored, Mapping):
                verdicts[case.id] = self._verdicts(case, stored, evidence)
                with suppress(CaseError):
                    unasked += sum(question.name not in verdicts[case.id] for question in self._wanted(case, stored))
        facts = judge_facts(self.judge_questions, evidence)
        judge = evidence.provenance[JUDGE].rpartition("-")[0]
        notes = tuple(judge_notes(facts, judge, unasked))
        return Context(evidence, SharedTexts(corpus, verdicts=verdicts), notes=notes, facts={JUDGE: facts})

    def artefacts(self, context: Context, folder: Path) -> None:
        """Writes the verdicts, as `read_verdicts` reads them; those of other judges stay."""
        verdicts = getattr(context.shared, "verdicts", {})
        if verdicts:
            judge = context.evidence.provenance[JUDGE]
            write_verdicts(folder, judge, verdicts)
            write_ballots_of(folder, judge, ballots_on(self.judge_questions, context.evidence))

    def _verdicts(self, case: Case, packed: Mapping[str, Any], evidence: Evidence) -> Mapping[str, Any]:
        questions = self.judge_questions.values()
        return verdicts_on(questions, case, lambda: self.told_to_judge(case, packed), evidence)

    def serves(self, wrapper: type) -> bool:
        """Whether a model class writes or chooses."""
        writes, chooses = (callable(getattr(wrapper, name, None)) for name in ("generate", "choose"))
        return chooses if self.answer_by == "likelihood" else writes or chooses

    def size_hint(self, case: Case) -> int:
        """Approximate prompt length, for batching similar questions."""
        question = case.question or Question("")
        return len(question.text) + sum(map(len, question.options.values())) + IMAGE_LENGTH * len(case.images)

    def read_images(self, case: Case) -> tuple[Image, ...]:
        """Reads what the model is shown: of a blind one nothing, or grey."""
        if self.blind == "remove":
            return ()
        return as_shown(tuple(reference.read() for reference in self.shown_references(case)), self.blind)

    @property
    def shows_images(self) -> bool:
        """Not to a blind model."""
        return not self.blind

    def training_key(self, case: Case) -> tuple[Iterable[Path], str]:
        """The files of the images, and whether they are shown."""
        return super().training_key(case)[0], repr((case.images, self.blind))

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Puts the question, after any exemplars; CaseError for a record that is not understood."""
        question = question_of(case)
        views, exemplars = self._exemplars
        views = as_shown(views, self.blind)
        exemplars = exemplars if views else tuple(map(without_images, exemplars))
        messages, later = self._template.messages(question, case.attributes, len(images))
        system = tuple(message for message in messages if message.role == "system")
        moved_messages = tuple(moved(message, len(views)) for message in messages if message.role != "system")
        options = question.options or (YES_NO if question.kind == "yes_no" else {})
        parts = (*system, *exemplars, *moved_messages)
        return Prompt(case.id, (*views, *images), messages=parts, options=options, question=question.text, later=later)

    def ask(self, model: Any, prompts: Prompts) -> Sequence[Any]:
        """Asks by turns, or chooses by likelihood."""
        choosing = self.answer_by == "likelihood" or not callable(getattr(model, "generate", None))
        if not choosing and not getattr(model, "chooses_first", False):
            return self._conversations(model, prompts)
        # A single option is nothing to choose from, but the score of a baseline there is known.
        return choose_or_write(model, prompts, 1 + choosing, self._conversations)

    def _conversations(self, model: Any, prompts: Prompts) -> list[Reply]:
        """Asks all first turns, then all second ones, and so on."""
        return converse(model, prompts, self._decoding, self.next_turn)

    def next_turn(self, prompt: Prompt, replies: Sequence[str]) -> Message | None:
        """User's words after earlier replies; None after the answer.

        Args:
            prompt: as it was first put.
            replies: what the model has said to it so far.
        """
        return prompt.later[len(replies) - 1] if len(replies) <= len(prompt.later) else None

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> Reply:
        """Checks text, Reply or option numbers; CaseError for others."""
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
        question = question_of(case)
        options = question.options or YES_NO
        if set(weighed) != set(options):
            letters = sorted(map(str, weighed))
            raise CaseError(f"{where} has numbers for {letters}, expected them for {sorted(options)}")
        numbers = {letter: float(weighed[letter]) for letter in options}
        if not all(map(math.isfinite, numbers.values())):
            raise CaseError(f"{where} holds numbers that are not finite")
        return replace(answer, preferences=numbers) if isinstance(answer, Reply) else Reply(preferences=numbers)

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges one reply, with the judge's verdicts if its record has any."""
        packed: Any = prediction.as_record() if isinstance(prediction, Reply) else prediction
        pair = pair_in_batch(self._pair, case, packed, context)
        wanted = self.case_metrics if metrics is None else metrics
        values = ((name, label, value) for name in wanted for label, value in values_of(name, pair).items())
        return [
            LabelScore(label, name, value, status_of(name, pair, label))
            for name, label, value in values
            if not math.isnan(value)
        ]

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """Worst scores of an empty answer; NaN for unreadable records."""
        try:
            pair = self._pair(case, {"texts": [""]}, context)
        except CaseError:
            return [LabelScore(UNREAD, name, math.nan, "failed") for name in self.case_metrics]
        # The judge is not asked about what was not answered; its verdicts would have been the worst.
        judged = JUDGE in context.evidence.provenance
        damned = replace(pair, judged=dict.fromkeys(self.judge_questions, 0.0) if judged else {})
        return [row for name in self.case_metrics for row in failed_scores(name, pair, damned)]

    def reference_lines(self, cases: Sequence[Case]) -> Mapping[str, float]:
        """Expected `accuracy` of random options; nothing without options.

        Over the questions that `accuracy` judges: what must be written, such as a number, is not drawn and counts 0.
        """
        return accuracy_of_draw(cases)

    def baselines(self) -> Mapping[str, Mapping[str, Any]]:
        """Baselines that answer without weights and without images."""
        return baseline_configs(BASELINES)

    def for_baselines(self) -> Mapping[str, Any]:
        """Without likelihoods, which baselines do not have."""
        return {"answer_by": "generate"}

    def check_data(self, cases: Sequence[Case]) -> None:
        """Raises UsageError where first questions lack a template's field."""
        failure: UsageError | None = None
        for case in cases[:TRIED]:
            try:
                self.prompt(case, ())
            except UsageError as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - a case that cannot be read fails alone, when it is asked about
                log.debug("case %s cannot be tried: %s", case.id, error)
            else:
                return
        if failure is not None:
            raise UsageError(f"task {self.name!r}: {failure}") from failure

    def definition(self, metric: str, provenance: Mapping[str, str] = NOBODY) -> str:
        """Definition of a metric; without the judge where verdicts are unused."""
        judged = self.judge_extracts or any(need.provider == JUDGE for need in required(metric))
        return super().definition(metric, {name: who for name, who in provenance.items() if judged or name != JUDGE})

    @property
    def judge_extracts(self) -> bool:
        """Whether a judge is asked for the option where no rule finds one."""
        return any(rule.rpartition("+")[2] == JUDGE for rule in self._rules.values())

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Settings that decide the numbers beside the questions themselves."""
        return ", ".join([*self._choices(provenance), *self._read_by(provenance)])

    def _choices(self, provenance: Mapping[str, str]) -> list[str]:
        rule = ", ".join(f"{kind}: {name}" if kind else name for kind, name in self._rules.items())
        parts = [f"extraction: {rule}", *self.told_language()]
        if self.answer_by == "likelihood":
            parts.append("the likeliest option is the answer")
        elif self._decoding.temperature > 0:
            parts.append(f"temperature {self._decoding.temperature:g}, seed {self._decoding.seed}")
        elif not getattr(self.layout, "answered", False):  # who asked elsewhere may have decoded in any way
            parts.append("greedy decoding")
        if self.blind:
            parts.append({"remove": "without images", "grey": "grey images"}[self.blind])
        if self.view not in ("", "pictures"):
            parts.append(f"{self.view} shown whole")
        if self.shots:
            parts.append(f"{len(self._exemplars[1]) // 2} exemplars")
        if provenance.get(JUDGE):
            parts.append(f"judged by {provenance[JUDGE]}")
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
        """Number of questions by kind, in words."""
        return count_questions(cases)

    def panels(self, case: Case) -> list[Panel]:
        """Prompt, images and right answer; a place is drawn on the image."""
        # Templates ask for the number of images alone.
        blank = Image(np.zeros((1, 1, 1), np.uint8), np.eye(4), units="pixel")
        case = replace(case, images=self.shown_references(case))
        shown_pictures = () if self.blind == "remove" else (blank,) * len(case.images)
        placed = case.question is not None and case.question.kind in PLACED
        panels = [
            replace(panel, read=lambda: marked(case.target.read().value))
            if placed and panel.kind == "overlay"
            else panel
            for panel in super().panels(case)
        ]
        return [Panel("prompt", "Prompt", lambda: self.prompt(case, shown_pictures).messages), *panels]

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """Answer taken from a reply; of a place, also on the image."""
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

    def _wanted(self, case: Case, packed: Mapping[str, Any]) -> list[JudgeQuestion]:
        """Judge questions about a stored reply; CaseError for unreadable ones."""
        if not self.judge_questions or packed.get("preferences") is not None:
            return []
        every = self.judge_questions.values()
        parsed = (
            all(question.when == "always" for question in every)
            or self._pair(case, packed).extraction.value is not None
        )
        return [question for question in every if question.when == "always" or not parsed]

    def _pair(self, case: Case, packed: Mapping[str, Any], context: Context = EMPTY) -> AnsweredQuestion:
        question = question_of(case)
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
            judged=self._verdicts_in(case, packed, context),
            readings=self._readings(case, context.evidence),
            corpus=getattr(context.shared, "corpus", None),
            confidence=confidence_of(packed),
            language=self.language_of(case),
            turns=packed.get("turns", ()),
            trace=packed.get("trace", ()),
            batch=context.batch,
        )

    def _verdicts_in(self, case: Case, packed: Mapping[str, Any], context: Context) -> Mapping[str, Any]:
        stored_verdicts = getattr(context.shared, "verdicts", {}).get(case.id)
        if stored_verdicts is not None or JUDGE not in context.evidence.provenance:
            judged: Mapping[str, Any] = stored_verdicts or packed.get("judged", {})
            return judged
        return self._verdicts(case, packed, context.evidence)

    def _readings(self, case: Case, evidence: Evidence) -> dict[str, Any]:
        """Annotator -> its reading of a case, such as `Read`; None after failure."""
        readings: dict[str, Any] = {}
        for provider in self._annotators:
            answer, reference = evidence.find(provider, case.id), evidence.find(provider, f"{REFERENCE}/{case.id}")
            if answer is not None:
                values = [observation.value for observation in (reference, answer) if observation is not None]
                readings[provider] = None if None in values else Read(*values) if reference is not None else values[0]
        return readings

    @cached_property
    def _annotators(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(need.provider for need in super().requirements() if need.kind != "verdict"))

    def _references(self, case: Case) -> tuple[str, ...]:
        try:
            question_of(case)
            self.language_of(case)
            return texts_among(case.target.read().value)
        except CaseError:  # the case says so itself, when it is asked or judged
            return ()

    def _read_by(self, provenance: Mapping[str, str]) -> list[str]:
        return [f"{name} by {provenance[name]}" for name in self._annotators if name in provenance]

    @cached_property
    def _template(self) -> Template:
        return Template.of(self.template)

    @cached_property
    def _decoding(self) -> Decoding:
        try:
            return Decoding(**{**self.decoding, "stop": tuple(self.decoding.get("stop", ()))})
        except TypeError as error:
            raise UsageError(f"task.decoding: {error}") from error

    @cached_property
    def _rules(self) -> dict[str, str]:
        """Rule by kind of answer; "" holds for the others."""
        if self.extraction != "authors":
            return {"": self.extraction}
        own = self.authors.get("extraction")
        if not own:
            raise UsageError(f"task {self.name!r}: its authors' rule is not known; use task.extraction=cascade")
        return {str(kind): str(rule) for kind, rule in own.items()} if isinstance(own, Mapping) else {"": str(own)}

    @cached_property
    def _exemplars(self) -> tuple[tuple[Image, ...], tuple[Message, ...]]:
        """Images and turns shown before every question."""
        return exemplars_of(self.shots, self.layout, self._template)
