"""Asks a judge, another model, about the answers of a run; what it says is kept with them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from typing import Any, NamedTuple

from medimg_eval.case import Case, Prompt
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.identity import digest
from medimg_eval.evaluation.run import Run, answered
from medimg_eval.models.reply_cache import ReplyCache
from medimg_eval.question import Decoding
from medimg_eval.tasks import QuestionTask
from medimg_eval.tasks.base import one_each
from medimg_eval.tasks.judging import JudgeQuestion

log = logging.getLogger(__name__)

DECODING = Decoding(max_new_tokens=1024)
"""Greedy, so that a judge says the same again; long enough for one that reasons first."""


NAMED = 100
"""Failed questions that the manifest names."""

TOGETHER = 256
"""Replies known from earlier runs that are written at once."""

Lent = Callable[[], AbstractContextManager[Any]]
"""Lends the judge: loads it, if it is not, and puts it on its device until it is given back."""


class _Asked(NamedTuple):
    """One question to the judge."""

    case: Case
    question: JudgeQuestion
    prompt: Prompt
    key: str


def judge_answers(task: QuestionTask, run: Run, cases: Sequence[Case], lent: Lent, judge_id: str) -> None:
    """Asks about every stored answer that this judge has not been asked about in these words.

    Each reply is kept word for word with the text it answers, and for other runs in the user's cache; one that says
    nothing that was asked for has no verdict and is counted. When the judge fails on a batch, its questions are asked
    one by one. A judge that has nothing left to say is not loaded.

    Args:
        task: what is asked about answers.
        run: whose answers.
        cases: the task's.
        lent: lends the judge, a wrapper that generates.
        judge_id: what identifies it: verdicts of another are not taken for its own.

    Raises:
        UserError: the judge cannot be asked at all, such as one whose key is refused.
    """
    lines = [line for line in run.judgements() if line["judge"] == judge_id]
    said = {(line["case"], line["question"], line["prompt_id"]): line for line in lines}
    kept, known, new, asked = ReplyCache(), [], [], 0
    with ExitStack() as stack:
        judge = cache(lambda: stack.enter_context(lent()))
        for one in _questions(task, run, cases):
            earlier = said.get((one.case.id, one.question.name, one.key))
            if earlier is not None:  # what its words are worth may have changed
                known += [line] if (line := _line(one, earlier["reply"], judge_id))["value"] != earlier["value"] else []
            elif (found := kept.get(f"{judge_id}/{one.key}")) is not None:
                known.append(_line(one, found["text"], judge_id))
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
    _note(task, run, judge_id, asked)


def _settle(run: Run, kept: ReplyCache, judge: Any, new: Sequence[_Asked], judge_id: str) -> int:
    """Asks each question once, however many of them are worded alike, and keeps what is replied."""
    lines = []
    different = {one.key: one for one in new}
    replies = dict(zip(different, _ask(judge, list(different.values())), strict=True))
    for one in new:
        reply = replies[one.key]
        if isinstance(reply, str):
            kept.put(f"{judge_id}/{one.key}", {"text": reply})
        lines.append(_line(one, reply, judge_id))
    run.append_judgements(lines)
    return len(lines)


def _note(task: QuestionTask, run: Run, judge_id: str, asked: int) -> None:
    """Notes how many questions there were, and how many of them have no reply, or one that is no verdict."""
    lines = (line for line in run.judgements() if line["judge"] == judge_id and line["question"] in task.judge)
    latest = {(line["case"], line["question"]): line for line in lines}
    unread = sum(line["value"] is None for line in latest.values())
    failed = [line for line in latest.values() if not line["prompt_id"]]
    log.info("judged: %d questions asked now, %d in all, %d without a verdict", asked, len(latest), unread)
    failures = [{"case": line["case"], "question": line["question"], "message": line["error"]} for line in failed]
    run.note(
        judge={
            **run.manifest.get("judge", {}),
            "questions": len(latest),
            "without_verdict": unread,
            "failed": len(failures),
            "failures": failures[:NAMED],
        }
    )


def _questions(task: QuestionTask, run: Run, cases: Sequence[Case]) -> Iterator[_Asked]:
    predictions = run.predictions()
    for case in cases:
        stored = predictions.get(case.id)
        if not answered(stored) or not isinstance(stored, dict):
            continue
        try:
            prompts = task.judge_prompts(case, stored)
        except CaseError as error:
            log.warning("case %s is not judged: %s", case.id, error)
            continue
        for question, prompt in prompts:
            pixels = [
                (image.array.shape, hashlib.blake2b(image.array.tobytes()).hexdigest()) for image in prompt.images
            ]
            said = [(message.role, message.parts) for message in prompt.messages]
            yield _Asked(case, question, prompt, digest([said, pixels], 32))


def _ask(judge: Any, asked: Sequence[_Asked]) -> list[str | Exception]:
    try:
        return _texts(one_each(judge.generate([one.prompt for one in asked], DECODING), asked, "the judge"))
    except Exception as error:
        if isinstance(error, UserError) and not isinstance(error, CaseError):
            raise  # such as a key that is refused: no other question would fare better
        if len(asked) == 1:
            log.debug("case %s", asked[0].case.id, exc_info=True)
            log.warning("case %s: the judge failed (%s: %s)", asked[0].case.id, type(error).__name__, error)
            return [error]
    return [reply for one in asked for reply in _ask(judge, [one])]


def _texts(replies: list[Any]) -> list[str | Exception]:
    """The replies, if they are texts: `None` written out could pass for a verdict."""
    strange = next((type(reply).__name__ for reply in replies if not isinstance(reply, str)), "")
    if strange:
        raise CaseError(f"the judge's reply is {strange}, expected a text")
    return replies


def _line(asked: _Asked, reply: str | Exception, judge_id: str) -> dict[str, Any]:
    line = {"case": asked.case.id, "question": asked.question.name, "judge": judge_id, "prompt": asked.prompt.text}
    if isinstance(reply, Exception):  # one that failed is asked again by the next start
        message = str(reply) if isinstance(reply, CaseError) else f"{type(reply).__name__}: {reply}"
        return line | {"prompt_id": "", "reply": "", "value": None, "error": message}
    return line | {"prompt_id": asked.key, "reply": reply, "value": asked.question.verdict(reply)}
