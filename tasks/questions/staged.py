"""Chains of questions, in which a right answer leads to the next one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from medimg_eval.arguments import grouped
from medimg_eval.case import Case, Image, Prompt, Score
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.registry import ALL, Requirement, required
from medimg_eval.question import Message, Reply
from medimg_eval.tasks.questions.answers import question_of, values_of
from medimg_eval.tasks.questions.task import QuestionTask

LETTER = re.compile(r"\(([A-Za-z])\)\s*")
"""What stands before an option within a question, and before the right one in the answer key."""

NUMBER = re.compile(r"[-+]?\d*\.\d+|\d+")

UNKNOWN = re.compile(r"\bI (?:do not|don['’]?t) know\b|\bIDK\b", re.IGNORECASE)
"""An option that says that the model does not know."""


@dataclass(frozen=True)
class Stage:
    """Step of a chain: questions that must all be right.

    Attributes:
        name: what tables call it.
        of: where the answer key's `more` holds its record: `question`, `answer` and `img_path`, each one or a list;
            empty for the question of the case itself.
        path: the part of the chain that it belongs to; its stages are a set.
        right: the stage that follows on a right answer; none ends the chain.
        wrong: the stage that follows on a wrong answer.
        unknown: the stage that follows where the model chooses to say that it does not know.
        other: whether it is about another case: the next one of the same group.
        any: whether one of several right options is a right answer; otherwise all must be named.
        range: the stage whose right answer is the range that the number in this one's reply must lie in.
    """

    name: str
    of: str = ""
    path: str = "chain"
    right: str = ""
    wrong: str = ""
    unknown: str = ""
    other: bool = False
    any: bool = False
    range: str = ""


@dataclass(frozen=True)
class Turn:
    """One question of a stage.

    Attributes:
        stage: which.
        text: the question, options and all.
        answer: what is right, such as `(a) Yes` or `(a) left, (c) right`.
        images: the names of the images that are shown with it.
    """

    stage: Stage
    text: str
    answer: str
    images: tuple[str, ...]

    def pair(self, output: str, rule: str) -> AnsweredQuestion:
        """A reply to it beside what is right.

        Raises:
            CaseError: the question holds no options.
        """
        options = _parse_options(self.text)
        right = tuple(dict.fromkeys(letter.upper() for letter in LETTER.findall(self.answer)))
        if len(options) < 2 or not right or not options.keys() >= set(right):
            raise CaseError(
                f"stage {self.stage.name!r}: the answer {self.answer!r:.60} is not among the options (a), (b), ... of "
                f"the question {self.text!r:.80}"
            )
        if len(right) == 1 or self.stage.any:
            return AnsweredQuestion("choice", output, right[0], self.text, options, rule=rule)
        return AnsweredQuestion("choices", output, right, self.text, options, rule=rule)


@dataclass(frozen=True)
class Step:
    """A turn that was answered."""

    turn: Turn
    pair: AnsweredQuestion

    @property
    def is_right(self) -> bool:
        """Whether the answer is right."""
        if self.turn.stage.any:
            right = {letter.upper() for letter in LETTER.findall(self.turn.answer)}
            return self.pair.extraction.value in right
        return self.pair.credit == 1

    @property
    def is_unknown(self) -> bool:
        """Whether the option that was chosen says that the model does not know."""
        value = self.pair.extraction.value
        return isinstance(value, str) and UNKNOWN.search(self.pair.options.get(value, "")) is not None


@dataclass(frozen=True)
class ChainPrompt(Prompt):
    """The first question of a chain, and the case that holds the others."""

    case: Case | None = None


@dataclass(frozen=True, kw_only=True)
class StagedQuestionTask(QuestionTask):
    """Chains of questions, each asked after a right answer before.

    Which stage follows is decided while the model is asked, by the answer that the task's rule of extraction takes from
    its reply. Every stage is a row of its own, called `case/stage`, with the attributes `stage`, `path`, `set` (case
    and path) and `member` (its number in the path): a stage that was not reached counts as wrong, those of a side path
    that was not entered do not count. So `group_accuracy` is the share of paths that were finished, and `step_hit_rate`
    how far they went.

    Attributes:
        stages: the chain, as `Stage`; the first one is asked first.
        main: paths that count for every case; by default that of the first stage.
        group: attribute within which cases are each other's, for stages about another case.
        ranged: attribute -> its values, of the cases whose stages with a `range` ask for a number.
    """

    stages: Sequence[Mapping[str, Any]] = ()
    main: Sequence[str] = ()
    group: str = ""
    ranged: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses invalid stages."""
        super().__post_init__()
        if missing := [name for name in self.case_metrics if any(need.topic != ALL for need in required(name))]:
            raise UsageError(
                f"task {self.name!r}: {', '.join(missing)}: chains of questions are judged by the rule of extraction "
                "alone, and neither an annotator nor a judge is asked about them; leave such metrics out"
            )
        for stage in self._stages.values():
            for name in (stage.right, stage.wrong, stage.unknown, stage.range):
                if name and name not in self._stages:
                    raise UsageError(f"task.stages: {stage.name!r} names {name!r}{nearest(name, self._stages)}")

    @cached_property
    def _stages(self) -> dict[str, Stage]:
        try:
            return {str(stage["name"]): Stage(**stage) for stage in self.stages}
        except (KeyError, TypeError) as error:
            raise UsageError(f"task.stages: {error}; a stage has a name and the keys of Stage") from error

    def requirements(self) -> tuple[Requirement, ...]:
        """None: the rule of extraction alone decides how a chain goes on."""
        return ()

    def serves(self, wrapper: type) -> bool:
        """Whether a model of this class can be asked: it writes."""
        return callable(getattr(wrapper, "generate", None))

    def cases(self, part: str) -> list[Case]:
        """Cases of a part, with images for their continuations."""
        cases = super().cases(part)
        if any(stage.other for stage in self._stages.values()):
            groups = grouped((case.attributes.get(self.group, ""), case) for case in cases)
            following = {
                case.id: following
                for some in groups.values()
                for case, following in zip(some, [*some[1:], some[0]], strict=True)
            }
            cases = [_link_case(case, following[case.id]) for case in cases]
        return cases

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Puts the first question; only its own images are shown with it."""
        prompt = super().prompt(case, images)
        (first,) = self._turns(case, next(iter(self._stages.values())))
        shown_indices = set(self._places(case, first, len(images)))
        *before, last = prompt.messages
        parts = tuple(part for part in last.parts if isinstance(part, str) or part in shown_indices)
        shown_alone = {**vars(prompt), "messages": (*before, replace(last, parts=parts))}
        return ChainPrompt(**shown_alone, case=case)

    def next_turn(self, prompt: Prompt, replies: Sequence[str]) -> Message | None:
        """The next question of the chain, with its images; None where it ends."""
        case = prompt.case  # type: ignore[attr-defined]
        _, turn = self._walk(case, replies)
        if turn is None:
            return None
        return Message("user", (*self._places(case, turn, len(prompt.images)), turn.text))

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Judges a conversation: one row per metric and stage."""
        packed: Any = prediction.as_record() if isinstance(prediction, Reply) else prediction
        wanted = self.case_metrics if metrics is None else metrics
        steps, _ = self._walk(case, list(packed["texts"]))
        reached = grouped((step.turn.stage.name, step) for step in steps)
        main = self.main or [stage.path for stage in self._stages.values()][:1]
        counted = {self._stages[name].path for name in reached} | set(main)
        return [
            score
            for stage in self._stages.values()
            if stage.path in counted and self._turns(case, stage)
            for score in self._judged(case, stage, reached.get(stage.name, []), wanted)
        ]

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """A conversation in which nothing was said."""
        try:
            rows = self.score(case, {"texts": [""]})
        except Exception:  # noqa: BLE001 - of a record that cannot be read, or whatever a metric raises over nothing
            return [LabelScore("unread", name, math.nan, "failed") for name in self.case_metrics]
        return [row._replace(status="failed") for row in rows]

    def rows(self, case: Case, scores: Sequence[LabelScore], *, run: str, model: str) -> list[Score]:
        """Puts each stage's scores into rows of their own case."""
        score_rows = []
        for score in scores:
            stage = self._stages.get(score.label)
            if stage is None:
                score_rows += super().rows(case, [score], run=run, model=model)
                continue
            path = [stage_.name for stage_ in self._stages.values() if stage_.path == stage.path]
            about = {"stage": stage.name, "path": stage.path, "set": f"{case.id}/{stage.path}"}
            about |= {"member": str(path.index(stage.name) + 1)}
            patient = case.id if case.patient is None else case.patient
            about = {**case.attributes, **about}
            of_stage = replace(case, id=f"{case.id}/{stage.name}", patient=patient, attributes=about)
            score_rows += super().rows(of_stage, [score], run=run, model=model)
        return score_rows

    def _judged(self, case: Case, stage: Stage, steps: Sequence[Step], metrics: Sequence[str]) -> Iterator[LabelScore]:
        """A stage's scores by its last turn; it ends unless right."""
        done = len(steps) == len(self._turns(case, stage)) and all(step.is_right for step in steps)
        status = "wrong" if not steps or (steps[-1].pair.status == "right" and not done) else steps[-1].pair.status
        for name in metrics:
            if name == "accuracy":
                value = float(done)
            elif not steps:
                continue
            elif name == "accuracy_of_answered":
                value = math.nan if steps[-1].pair.extraction.value is None else float(done)
            elif name == "accuracy_in_range":
                value = self._in_range(case, stage, steps[-1].pair.output)
            else:
                value = next(iter(values_of(name, steps[-1].pair).values()))
            if not math.isnan(value):
                yield LabelScore(stage.name, name, value, "right" if done else status)

    def _in_range(self, case: Case, stage: Stage, reply: str) -> float:
        """Whether a reply's numbers lie in range; NaN without ranges."""
        is_ranged = all(case.attributes.get(name) in values for name, values in self.ranged.items())
        if not stage.range or not is_ranged:
            return math.nan
        (turn,) = self._turns(case, self._stages[stage.range])
        limits = [float(number) for number in NUMBER.findall(LETTER.sub("", turn.answer))]
        numbers = [float(number) for number in NUMBER.findall(re.split(r"VALUE\s*:", reply, flags=re.IGNORECASE)[-1])]
        ranges = list(zip(limits[::2], limits[1::2], strict=False))
        within = [low <= number <= high for number, (low, high) in zip(numbers, ranges, strict=False)]
        return float(len(numbers) == len(ranges) and all(within))

    def _walk(self, case: Case, replies: Sequence[str]) -> tuple[list[Step], Turn | None]:
        """Follows the chain through stored replies; returns the next question."""
        rule = self._rules.get("choice", self._rules.get("", "cascade"))
        steps: list[Step] = []
        stage: Stage | None = next(iter(self._stages.values()))
        while stage is not None:
            verdict = "right"  # also of a stage that this case does not have
            for turn in self._turns(case, stage):
                if len(steps) == len(replies):
                    return steps, turn
                step = Step(turn, turn.pair(replies[len(steps)], rule))
                steps.append(step)
                if not step.is_right:
                    verdict = "unknown" if step.is_unknown else "wrong"
                    break
            stage = self._stages.get(getattr(stage, verdict))
        return steps, None

    def _turns(self, case: Case, stage: Stage) -> tuple[Turn, ...]:
        """The questions of a stage; none where the case does not have it."""
        about = case.related["other"] if stage.other else case
        key = about.target.read()
        own = {"question": question_of(about).text, "answer": key.value, "img_path": key.more.get("img_path")}
        record = key.more.get(stage.of) if stage.of else own
        if not record:
            return ()
        questions, answers, paths = (record.get(name) or [] for name in ("question", "answer", "img_path"))
        if isinstance(questions, str):
            questions, answers, paths = [questions], [answers], [paths]
        elif not all(isinstance(path, list) for path in paths):
            paths = [paths]  # shown with the first question, and remembered
        paths = [*paths, *([] for _ in questions[len(paths) :])]
        if not len(questions) == len(answers) == len(paths):
            raise CaseError(f"case {about.id!r}: stage {stage.name!r} has not as many answers as questions")
        return tuple(
            Turn(stage, str(text), str(answer), tuple(map(str, some)))
            for text, answer, some in zip(questions, answers, paths, strict=True)
        )

    def _places(self, case: Case, turn: Turn, there: int) -> tuple[int, ...]:
        """Positions of a turn's images in the case; none when blind."""
        if not there:
            return ()
        files = [reference.files[0].as_posix() for reference in case.images]
        indices = []
        for name in turn.images:
            ending = "/" + name.lstrip("/")
            index = next((index for index, file in enumerate(files) if file.endswith(ending)), None)
            if index is None:
                raise CaseError(f"case {case.id!r}: stage {turn.stage.name!r} shows {name!r}, which is no image of it")
            indices.append(index)
        return tuple(indices)


def _parse_options(text: str) -> dict[str, str]:
    """Options `(a) ... (b) ...` of a question: letter -> text."""
    marks: list[re.Match[str]] = []
    for mark in LETTER.finditer(text):
        letter = mark[1].upper()
        if letter == "A":
            marks = [mark]
        elif marks and letter == chr(ord("A") + len(marks)):
            marks.append(mark)
    ends = [*(mark.start() for mark in marks), len(text)][1:]
    return {mark[1].upper(): text[mark.end() : end].strip(" ,\n") for mark, end in zip(marks, ends, strict=True)}


def _link_case(case: Case, other: Case) -> Case:
    """A case that knows another one, and has its images too."""
    attributes = {**case.attributes, "other": other.id}
    return replace(case, images=(*case.images, *other.images), attributes=attributes, related={"other": other})
