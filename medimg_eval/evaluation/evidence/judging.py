"""Asks a judge, another model, about the answers of a run; what it says is kept with them."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from medimg_eval.case import Case, Prompt
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evaluation.evidence.providers import one_by_one
from medimg_eval.evaluation.run import Run, answered
from medimg_eval.evidence import one_each
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.question import Decoding, Reply
from medimg_eval.store import ContentStore, Stored, observation_store, prompt_key
from medimg_eval.tasks import QuestionTask, ReportTask
from medimg_eval.tasks.questions import MAX_NEW_TOKENS, JudgeQuestion, rounds

log = logging.getLogger(__name__)

DECODING = Decoding(max_new_tokens=MAX_NEW_TOKENS)
"""Greedy, so that a judge says the same again; a question may let it write longer, and `judge.extra` have it draw."""

NAMED = 100
"""Failed questions that the manifest names."""

TOGETHER = 256
"""Replies known from earlier runs that are written at once."""

UNASKED = "unasked"
"""What stands in the place of a prompt's id where nothing was asked: a verdict put together of others, or none."""

Lent = Callable[[], AbstractContextManager[Any]]
"""Lends the judge: loads it, if it is not, and puts it on its device until it is given back."""

Line = dict[str, Any]
"""One line of the run's judgements."""


class _Asked(NamedTuple):
    """One question to the judge.

    Attributes:
        name: the question's, with "/1" and so on behind it where it is put about several texts.
        case: whose answer it is about.
        question: what is asked.
        prompt: the words.
        key: hash of what the judge is shown.
    """

    name: str
    case: Case
    question: JudgeQuestion
    prompt: Prompt
    key: str


class _Whole(NamedTuple):
    """A question that is put about several texts, or about none.

    Attributes:
        case: whose answer it is about.
        question: what is asked.
        items: the texts; None where nothing is to be gathered.
        known: verdicts that need no judge, by place; without items the verdict, at 0.
    """

    case: Case
    question: JudgeQuestion
    items: list[str] | None
    known: Mapping[int, Any]


def refuse_unfit(task: QuestionTask, identity: Mapping[str, Any], name: str) -> None:
    """Raises UsageError when a question belongs to one model, and the judge is another.

    Args:
        task: whose questions to a judge.
        identity: of the judge: its `_target_`, and its `checkpoint` or `model`.
        name: what the judge is called.
    """
    called = " ".join(str(identity.get(key, "")) for key in ("_target_", "checkpoint", "model"))
    for question in JudgeQuestion.all_of(task.judge):
        if question.by and not re.search(question.by, called, re.IGNORECASE):
            raise UsageError(
                f"{question.name} is what a model of its own says, and judge {name!r} is another; add "
                f"model@judge={question.name}, or leave it out: {question.name}_prompt asks any judge the same"
            )


def judge_answers(task: QuestionTask, run: Run, cases: Sequence[Case], lent: Lent, judge_id: str) -> None:
    """Asks about every stored answer that this judge has not been asked about in these words.

    Each reply is kept word for word with the text it answers, and for other runs in the user's cache; one that says
    nothing that was asked for has no verdict and is counted. When the judge fails on a batch, its questions are asked
    one by one. A judge that has nothing left to say is not loaded. Questions that go on from others are asked when
    those of all answers have been.

    Args:
        task: what is asked about answers.
        run: whose answers.
        cases: the task's.
        lent: lends the judge, a wrapper that generates.
        judge_id: what identifies it: verdicts of another are not taken for its own.

    Raises:
        UsageError: a question belongs to another model.
        UserError: the judge cannot be asked at all, such as one whose key is refused.
    """
    noted = run.manifest.get("judge", {})
    refuse_unfit(task, noted.get("identity", {}), str(noted.get("name", judge_id)))
    kept, asked = observation_store("verdict", judge_id), 0
    with ExitStack() as stack:
        judge = cache(lambda: stack.enter_context(lent()))
        for some in rounds(JudgeQuestion.all_of(task.judge)):
            said = _said(run, judge_id)
            wholes: list[_Whole] = []
            asked += _ask_round(_questions(task, run, cases, some, said, wholes), run, kept, judge, judge_id)
            if wholes:
                said = _said(run, judge_id)
                lines = (_gathered(whole, said, judge_id) for whole in wholes)
                run.append_judgements([line for line in lines if _is_news(line, said)])
    _note(task, run, judge_id, asked)


def judge_remarks(task: QuestionTask, run: Run) -> list[str]:
    """What a table says below of a judge's replies that hold no verdict; nothing where every reply holds one."""
    noted = run.manifest.get("judge", {})
    return [
        f"judge {noted.get('name', '')}: {without:,} of {of:,} replies to {name} hold no verdict and are not judged"
        for name, (without, of) in noted.get("unread", {}).items()
        if without and name in task.judge
    ]


def _said(run: Run, judge_id: str) -> dict[tuple[str, str], Line]:
    """By case and name of a question the last line of this judge."""
    lines = (line for line in run.judgements() if line["judge"] == judge_id)
    return {(line["case"], line["question"]): line for line in lines}


def _is_news(line: Line, said: Mapping[tuple[str, str], Line]) -> bool:
    earlier = said.get((line["case"], line["question"]))
    return earlier is None or any(earlier[key] != line[key] for key in ("prompt_id", "value"))


def _ask_round(
    questions: Iterator[_Asked], run: Run, kept: ContentStore, judge: Callable[[], Any], judge_id: str
) -> int:
    """Asks what no earlier start and no other run has asked in the same words; returns how much that was."""
    lines = [line for line in run.judgements() if line["judge"] == judge_id]
    said = {(line["case"], line["question"], line["prompt_id"]): line for line in lines}
    known: list[Line] = []
    new: list[_Asked] = []
    asked = 0
    for one in questions:
        earlier = said.get((one.case.id, one.name, one.key))
        if earlier is not None:  # what its words are worth may have changed
            known += [line] if (line := _line(one, earlier["reply"], judge_id))["value"] != earlier["value"] else []
        elif found := kept.get([f"{judge_id}/{one.key}"]):
            known.append(_line(one, found[f"{judge_id}/{one.key}"].value, judge_id))
        else:
            new.append(one)
        if len(known) >= TOGETHER:
            run.append_judgements(known)
            known = []
        if new and len(new) >= max(1, getattr(judge(), "preferred_batch", 1)):
            asked += _settle(run, kept, judge(), new, judge_id)
            new = []
    if new:
        asked += _settle(run, kept, judge(), new, judge_id)
    run.append_judgements(known)
    return asked


def _settle(run: Run, kept: ContentStore, judge: Any, new: Sequence[_Asked], judge_id: str) -> int:
    """Asks each question once, however many of them are worded alike, and keeps what is replied."""
    lines = []
    different = {one.key: one for one in new}
    replies: dict[str, str | Exception] = {}
    seed = run.manifest.get("judge", {}).get("identity", {}).get("seed", 0)
    for most in dict.fromkeys(one.question.max_new_tokens for one in different.values()):
        alike = [one for one in different.values() if one.question.max_new_tokens == most]
        replies |= zip((one.key for one in alike), _ask(judge, alike, seed), strict=True)
    for one in new:
        reply = replies[one.key]
        if isinstance(reply, str):
            kept.put({f"{judge_id}/{one.key}": Stored(reply)})
        lines.append(_line(one, reply, judge_id))
    run.append_judgements(lines)
    return len(lines)


def _note(task: QuestionTask, run: Run, judge_id: str, asked: int) -> None:
    """Notes how many questions there were, and how many of them have no reply, or one that is no verdict."""
    latest = [line for line in _said(run, judge_id).values() if line["prompt_id"] != UNASKED]
    latest = [line for line in latest if _base(line["question"]) in task.judge]
    unread = Counter(_base(line["question"]) for line in latest if line["value"] is None)
    every = Counter(_base(line["question"]) for line in latest)
    failed = [line for line in latest if not line["prompt_id"]]
    log.info("judged: %d questions asked now, %d in all, %d without a verdict", asked, len(latest), unread.total())
    failures = [{"case": line["case"], "question": line["question"], "message": line["error"]} for line in failed]
    run.note(
        judge={
            **run.manifest.get("judge", {}),
            "questions": len(latest),
            "without_verdict": unread.total(),
            "unread": {name: [unread[name], every[name]] for name in every},
            "failed": len(failures),
            "failures": failures[:NAMED],
        }
    )


def _base(name: str) -> str:
    """The question that "NAME/3" is put for the third text of."""
    base, _, number = name.rpartition("/")
    return base if base and number.isdigit() else name


def _questions(
    task: QuestionTask,
    run: Run,
    cases: Sequence[Case],
    wanted: Sequence[JudgeQuestion],
    said: Mapping[tuple[str, str], Line],
    wholes: list[_Whole],
) -> Iterator[_Asked]:
    """Yields what is to be asked, and lists what is to be put together of it afterwards."""
    predictions, names = run.predictions(), {one.name for one in wanted}
    for case in cases:
        stored = predictions.get(case.id)
        if not answered(stored) or not isinstance(stored, dict):
            continue
        try:
            shown = _shown(task, case, stored)
            prompts = [(one, prompt) for one, prompt in task.judge_prompts(case, shown) if one.name in names]
            for question, prompt in prompts:
                if question.plain:
                    yield _Asked(question.name, case, question, prompt, _key(question, prompt))
                    continue
                reply = Reply(tuple(shown["texts"]))
                yield from _further(case, question, prompt, reply, said, wholes)
        except CaseError as error:
            log.warning("case %s is not judged: %s", case.id, error)


def _further(
    case: Case,
    question: JudgeQuestion,
    shown: Prompt,
    reply: Reply,
    said: Mapping[tuple[str, str], Line],
    wholes: list[_Whole],
) -> Iterator[_Asked]:
    """A question that goes on from verdicts, is put about several texts, or may need no judge."""
    earlier = {name: said[case.id, name]["value"] if (case.id, name) in said else None for name in question.before}
    if None in earlier.values():  # which is counted where it is missing
        wholes.append(_Whole(case, question, None, {0: None}))
        return
    items = question.items(reply, earlier) if question.each else [""]
    known: dict[int, Any] = {}
    for place, item in enumerate(items):
        prompt = question.prompt_of(case, reply, shown.images, earlier, item)
        if prompt is None:
            known[place] = question.blank[0]
            continue
        name = f"{question.name}/{place + 1}" if question.each else question.name
        yield _Asked(name, case, question, prompt, _key(question, prompt))
    if question.each:
        wholes.append(_Whole(case, question, items, known))
    elif known:
        wholes.append(_Whole(case, question, None, known))


def _gathered(whole: _Whole, said: Mapping[tuple[str, str], Line], judge_id: str) -> Line:
    """The verdict of a question as a whole."""
    value = whole.known.get(0)
    if whole.items is not None:
        names = (f"{whole.question.name}/{place + 1}" for place in range(len(whole.items)))
        verdicts = [
            whole.known[place] if place in whole.known else said[whole.case.id, name]["value"]
            for place, name in enumerate(names)
        ]
        value = {"items": whole.items, "verdicts": verdicts}
    about = {"case": whole.case.id, "question": whole.question.name, "judge": judge_id}
    return about | {"prompt": "", "prompt_id": UNASKED, "reply": "", "value": value}


def _shown(task: QuestionTask, case: Case, stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """A stored answer as a judge sees it: of a report what metrics see too, without thinking and other sections."""
    if not isinstance(task, ReportTask) or case.question is None:
        return stored
    texts = stored.get("texts") or [""]
    pair = AnsweredQuestion(case.question.kind, texts[-1], None, more={"sections": tuple(task.sections)})
    return {**stored, "texts": [pair.text]}


def _key(question: JudgeQuestion, prompt: Prompt) -> str:
    return prompt_key(prompt, None if question.max_new_tokens == MAX_NEW_TOKENS else question.max_new_tokens)


def _ask(judge: Any, asked: Sequence[_Asked], seed: int) -> list[str | Exception]:
    """Asks questions whose replies may be equally long."""
    decoding = replace(DECODING, max_new_tokens=asked[0].question.max_new_tokens, seed=seed)

    def ask(some: Sequence[_Asked]) -> list[str | Exception]:
        return _texts(one_each(judge.generate([one.prompt for one in some], decoding), some, "the judge"))

    def failed(one: _Asked, error: Exception) -> Exception:
        log.debug("case %s", one.case.id, exc_info=error)
        log.warning("case %s: the judge failed (%s: %s)", one.case.id, type(error).__name__, error)
        return error

    return one_by_one(ask, asked, failed)


def _texts(replies: list[Any]) -> list[str | Exception]:
    """The replies, if they are texts: `None` written out could pass for a verdict."""
    strange = next((type(reply).__name__ for reply in replies if not isinstance(reply, str)), "")
    if strange:
        raise CaseError(f"the judge's reply is {strange}, expected a text")
    return replies


def _line(asked: _Asked, reply: str | Exception, judge_id: str) -> dict[str, Any]:
    line = {"case": asked.case.id, "question": asked.name, "judge": judge_id, "prompt": asked.prompt.text}
    if isinstance(reply, Exception):  # one that failed is asked again by the next start
        message = str(reply) if isinstance(reply, CaseError) else f"{type(reply).__name__}: {reply}"
        return line | {"prompt_id": "", "reply": "", "value": None, "error": message}
    return line | {"prompt_id": asked.key, "reply": reply, "value": asked.question.verdict(reply)}
