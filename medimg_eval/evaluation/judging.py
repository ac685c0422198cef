"""Asks a judge, another model, about the answers of a run; what it says is kept with them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from medimg_eval.case import Case, Prompt
from medimg_eval.errors import CaseError
from medimg_eval.evaluation.identity import digest
from medimg_eval.evaluation.run import Run, answered
from medimg_eval.models.reply_cache import ReplyCache
from medimg_eval.question import Decoding
from medimg_eval.tasks import QuestionTask
from medimg_eval.tasks.judging import JudgeQuestion

log = logging.getLogger(__name__)

DECODING = Decoding(max_new_tokens=1024)
"""Greedy, so that a judge says the same again; long enough for one that reasons first."""


class _Asked(NamedTuple):
    """One question to the judge."""

    case: Case
    question: JudgeQuestion
    prompt: Prompt
    key: str


def judge_answers(task: QuestionTask, run: Run, cases: Sequence[Case], judge: Any, judge_id: str) -> None:
    """Asks about every stored answer that this judge has not been asked about in these words.

    Each reply is kept word for word with the text it answers, and for other runs in the user's cache; one that says
    nothing that was asked for has no verdict and is counted. When the judge fails on a batch, its questions are asked
    one by one.

    Args:
        task: what is asked about answers.
        run: whose answers.
        cases: the task's.
        judge: a wrapper that generates.
        judge_id: what identifies it: verdicts of another are not taken for its own.
    """
    earlier = [line for line in run.judgements() if line["judge"] == judge_id]
    done = {(line["case"], line["question"], line["prompt_id"]) for line in earlier}
    waiting = (one for one in _questions(task, run, cases) if (one.case.id, one.question.name, one.key) not in done)
    asked, kept = 0, ReplyCache()
    while some := list(islice(waiting, max(1, getattr(judge, "preferred_batch", 1)))):
        known = {place: said["text"] for place, one in enumerate(some) if (said := kept.get(f"{judge_id}/{one.key}"))}
        new = [one for place, one in enumerate(some) if place not in known]
        replies = iter(_ask(judge, new) if new else [])
        lines = []
        for place, one in enumerate(some):
            reply = known[place] if place in known else next(replies)
            if place not in known and isinstance(reply, str):
                kept.put(f"{judge_id}/{one.key}", {"text": reply})
            lines.append(_line(one, reply, judge_id))
        run.append_judgements(lines)
        asked += len(new)
    lines = [line for line in run.judgements() if line["judge"] == judge_id]
    unread = sum(line["value"] is None for line in lines)
    log.info("judged: %d questions asked now, %d in all, %d replies without a verdict", asked, len(lines), unread)
    run.note(judge={**run.manifest.get("judge", {}), "questions": len(lines), "without_verdict": unread})


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
            pixels = [hashlib.blake2b(image.array.tobytes()).hexdigest() for image in prompt.images]
            said = [(message.role, message.parts) for message in prompt.messages]
            yield _Asked(case, question, prompt, digest([said, pixels], 32))


def _ask(judge: Any, asked: Sequence[_Asked]) -> list[str | Exception]:
    try:
        return list(judge.generate([one.prompt for one in asked], DECODING))
    except Exception as error:
        if len(asked) == 1:
            log.debug("case %s", asked[0].case.id, exc_info=True)
            log.warning("case %s: the judge failed (%s: %s)", asked[0].case.id, type(error).__name__, error)
            return [error]
        return [reply for one in asked for reply in _ask(judge, [one])]


def _line(asked: _Asked, reply: str | Exception, judge_id: str) -> dict[str, Any]:
    failed = isinstance(reply, Exception)
    return {
        "case": asked.case.id,
        "question": asked.question.name,
        "judge": judge_id,
        "prompt_id": "" if failed else asked.key,  # one that failed is asked again by the next start
        "prompt": asked.prompt.text,
        "reply": "" if failed else reply,
        "value": None if failed else asked.question.verdict(str(reply)),
    }
