"""What a judge is shown of stored answers, and what its replies to that are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from medimg_eval.case import Case, Image, Prompt
from medimg_eval.errors import CaseError
from medimg_eval.evidence import JUDGE, Evidence, Observation, Subject
from medimg_eval.metrics.judges import read_ballots
from medimg_eval.question import Reply
from medimg_eval.store import prompt_key
from medimg_eval.tasks.questions.judge_questions import MAX_NEW_TOKENS, JudgeQuestion

Verdicts = Mapping[str, Any]
"""Name of a question -> its verdict; None where the judge's reply holds none."""

NAMED = 100
"""Failed questions that the manifest names."""


def judge_subjects(
    question: JudgeQuestion, case: Case, reply: Reply, earlier: Verdicts, images: Callable[[], Sequence[Image]]
) -> Iterator[Subject]:
    """Yields a judge's prompts about one answer, for one question.

    The reply is given as the judge sees it. Nothing is asked that goes on from an earlier verdict which is missing.

    Raises:
        CaseError: the case cannot be put to a judge, such as one of several references.
    """
    if any(earlier.get(name) is None for name in question.before):
        return
    items = question.items(reply, earlier, case.target.read()) if question.each else [""]
    for index, item in enumerate(items, start=1):
        owner = f"{case.id}/{index}" if question.each else case.id
        fields = question.fields(case, reply, earlier, item)
        if fields is None:
            yield Subject(owner, "", str, needless="blank", value=question.blank[0])
            continue

        def put(fields: Mapping[str, str] = fields) -> Prompt:
            return question.put(case, fields, images() if question.images else ())

        if question.images:  # read when they are shown, and not kept until then
            yield Subject(owner, partial(_shown_key, question, put), partial(_shown_prompt, question, put))
            continue
        prompt = put()
        yield Subject(owner, _question_key(question, prompt), partial(_with_limit, question, prompt))


def _shown_key(question: JudgeQuestion, put: Callable[[], Prompt]) -> str:
    return _question_key(question, put())


def _shown_prompt(question: JudgeQuestion, put: Callable[[], Prompt]) -> tuple[Prompt, int]:
    return _with_limit(question, put())


def _with_limit(question: JudgeQuestion, prompt: Prompt) -> tuple[Prompt, int]:
    return prompt, question.max_new_tokens


def verdicts_on(
    questions: Iterable[JudgeQuestion], case: Case, reply: Callable[[], Reply], evidence: Evidence
) -> dict[str, Any]:
    """Verdicts on one answer, from replies; unasked questions are absent."""
    verdicts: dict[str, Any] = {}
    for question in questions:
        if question.before:
            if not verdicts.keys() >= set(question.before):
                continue
            if any(verdicts[name] is None for name in question.before):
                verdicts[question.name] = None
                continue
        if not question.each:
            observation = evidence.find(JUDGE, case.id, question.name)
            if observation is not None:
                verdicts[question.name] = verdict_of(question, observation)
            continue
        try:
            items = question.items(reply(), verdicts, case.target.read())
        except CaseError:
            continue
        parts = [evidence.find(JUDGE, f"{case.id}/{index}", question.name) for index in range(1, len(items) + 1)]
        verdicts_ = [verdict_of(question, part) for part in parts if part is not None]
        if len(verdicts_) == len(items):
            verdicts[question.name] = {"items": items, "verdicts": verdicts_}
    return verdicts


def verdict_of(question: JudgeQuestion, observation: Observation) -> Any:
    """Verdict of a reply; None without one."""
    if observation.status == "failed":
        return None
    return observation.value if observation.status == "unneeded" else question.verdict(observation.value)


def ballots_on(questions: Mapping[str, JudgeQuestion], evidence: Evidence) -> Iterator[dict[str, Any]]:
    """Yields a jury's ballots with verdict and cost; none for one judge."""
    for (provider, topic, owner), observation in evidence.observations.items():
        if provider != JUDGE or topic not in questions or not isinstance(observation.value, str):
            continue
        case, _, number = owner.rpartition("/") if questions[topic].each else (owner, "", "")
        name = f"{topic}/{number}" if number else topic
        for ballot in read_ballots(observation.value) or ():
            about = {"case": case, "question": name, "judge": ballot.judge, "repeat": ballot.repeat}
            yield {**about, "value": questions[topic].verdict(ballot.reply), "usage": dict(ballot.usage)}


def judge_facts(questions: Mapping[str, JudgeQuestion], evidence: Evidence) -> dict[str, Any]:
    """Questions to a judge: asked, unanswered, and without verdict."""
    observed = [
        (topic, owner, observation)
        for (provider, topic, owner), observation in evidence.observations.items()
        if provider == JUDGE and topic in questions and observation.status != "unneeded"
    ]
    every = Counter(topic for topic, _, _ in observed)
    unread = Counter(topic for topic, _, observation in observed if verdict_of(questions[topic], observation) is None)
    failures = []
    for topic, owner, observation in observed:
        if observation.status == "failed":
            case, _, number = owner.rpartition("/") if questions[topic].each else (owner, "", "")
            name = f"{topic}/{number}" if number else topic
            failures.append({"case": case, "question": name, "message": observation.message})
    return {
        "questions": len(observed),
        "without_verdict": unread.total(),
        "unread": {name: [unread[name], every[name]] for name in every},
        "failed": len(failures),
        "failures": failures[:NAMED],
    }


def judge_notes(facts: Mapping[str, Any], judge: str, unasked: int) -> list[str]:
    """Table notes on replies without verdict and unasked questions."""
    failed = Counter(failure["question"].partition("/")[0] for failure in facts["failures"])
    notes = [
        f"judge {judge}: {without - failed[name]:,} of {of:,} replies to {name} hold no verdict and are not judged"
        for name, (without, of) in facts["unread"].items()
        if without > failed[name]
    ]
    if unasked:
        notes.append(f"the judge has not been asked {unasked:,} of its questions; run test again with it")
    return notes


def _question_key(question: JudgeQuestion, prompt: Prompt) -> str:
    usual = question.max_new_tokens == MAX_NEW_TOKENS
    return prompt_key(prompt, None if usual else question.max_new_tokens)
