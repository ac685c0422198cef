"""Courses of agents that argue: two that talk in turn, a network that is pruned, a round table, a discussion."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Sequence
from typing import NamedTuple

from medimg_eval.metrics.answers import last_object
from medimg_eval.question import Message
from medimg_eval.tasks.questions.meetings.meeting import Course, Meeting, Speech, meeting_course

TERMINATE = "TERMINATE"
"""What an agent says when it is done."""

_STATED = re.compile(r"(?:final|the|correct)\s+answer\s+is[:\s]*[(\[]?[a-e][)\]]?|[(\[][a-e][)\]]", re.IGNORECASE)
_FAREWELL = ("terminate", "thank you", "thanks", "i'm here to help")


@meeting_course(texts="assistant proxy", settings="turns")
def autogen(meeting: Meeting) -> Course:
    """An assistant and a user's proxy talk in turn until one says TERMINATE; the last stated answer counts.

    Source: methods/autogen of MedMASLab, after AutoGen. Images are shown with the first question alone.
    """
    system, question = meeting.say("assistant"), meeting.question
    (said,) = yield [Speech("assistant", question, system)]
    best = said
    assistant: tuple[Message, ...] = (Message("user", (question,)),)
    proxy: tuple[Message, ...] = (Message("assistant", (question,)),)
    if TERMINATE in said:
        return best
    for _ in range(meeting.number("turns") - 1):
        (heard,) = yield [Speech("proxy", said, meeting.say("proxy"), proxy, shows=False)]
        best = _better_answer(best, said)
        if TERMINATE in heard:
            return best
        assistant += (Message("assistant", (said,)),)
        proxy += (Message("user", (said,)), Message("assistant", (heard,)))
        (said,) = yield [Speech("assistant", heard, system, assistant, shows=False)]
        assistant += (Message("user", (heard,)),)
        best = _better_answer(best, said)
        if TERMINATE in said:
            return best
    return best


def _better_answer(best: str, said: str) -> str:
    """The later text where it states an answer, unless it only says good-bye to one that did."""
    if any(word in said.lower() for word in _FAREWELL) and _STATED.search(best):
        return best
    return said if _STATED.search(said) else best


@meeting_course(texts="heard solution rank ranked", settings="members rounds")
def dylan(meeting: Meeting) -> Course:
    """Layers of agents hear the layer before; from the third on only the two best speak; agreement ends it.

    Source: methods/dylan of MedMASLab, after DyLAN (Liu et al. 2023).
    """
    members, earlier = meeting.members, dict[int, str]()
    speaking = list(range(len(members)))
    for layer in range(meeting.number("rounds")):
        if layer > 1 and len(members) > 3:
            speaking = yield from _ranked_members(meeting, earlier)
        order, said = [*speaking], dict[int, str]()
        meeting.draw.shuffle(order)
        for index in order:
            heard = [text for _, text in sorted((earlier or said).items())]
            text = meeting.question
            if heard:
                told = "".join(
                    meeting.say("solution", number=number, text=text) for number, text in enumerate(heard, 1)
                )
                text = meeting.say("heard", solutions=told, count=len(heard))
            (said[index],) = yield [Speech(members[index]["name"], text, members[index]["role"], shows=not heard)]
            elected, count = meeting.most_frequent(list(said.values()))
            if count > 2 * len(speaking) // 3:
                return elected
        earlier = said
    return meeting.most_frequent(list(earlier.values()))[0]


def _ranked_members(meeting: Meeting, earlier: dict[int, str]) -> Generator[Sequence[Speech], Sequence[str], list[int]]:
    """Has the model choose the two best of the last replies; returns the indices of who gave them."""
    order = [*earlier]
    meeting.draw.shuffle(order)
    told = "".join(meeting.say("solution", number=number, text=earlier[index]) for number, index in enumerate(order, 1))
    (said,) = yield [Speech("ranker", meeting.say("rank", solutions=told), meeting.say("ranked"), shows=False)]
    pairs = re.findall(r"\[([1-7]),\s*([1-7])\]", said)
    places = (
        [min(int(place), len(order)) - 1 for place in pairs[-1]] if pairs else meeting.draw.sample(range(len(order)), 2)
    )
    return [order[place] for place in dict.fromkeys(places)]


class _Vote(NamedTuple):
    """An answer as it is counted and as it was said, why, and how sure its agent is."""

    counted: str
    answer: str
    reasoning: str
    confidence: float


@meeting_course(texts="system ask again group solution", settings="agents rounds")
def reconcile(meeting: Meeting) -> Course:
    """Agents answer with how sure they are, and hear each other grouped by answer until all agree.

    The answer with the largest sum of recalibrated confidences in the last round counts.

    Source: methods/Reconcile of MedMASLab, after ReConcile (Chen et al. 2023).
    """
    names = [f"agent {number}" for number in range(1, meeting.number("agents") + 1)]
    text, votes = meeting.say("ask"), list[_Vote]()
    for _ in range(meeting.number("rounds")):
        texts = yield [Speech(name, text, meeting.say("system")) for name in names]
        votes = [_read_vote(meeting, said) for said in texts]
        groups = Counter(vote.counted for vote in votes).most_common()
        if len(groups) == 1:
            break
        told = "".join(_told_group(meeting, [vote for vote in votes if vote.counted == group]) for group, _ in groups)
        text = meeting.say("again", asked=meeting.say("ask"), groups=told)
    weights: dict[str, float] = {}
    for vote in votes:
        weights[vote.counted] = weights.get(vote.counted, 1e-5) + recalibrated(vote.confidence)
    elected = max(weights, key=lambda answer: weights[answer])
    return next(vote.answer for vote in votes if vote.counted == elected)


def recalibrated(confidence: float) -> float:
    """Weight of a vote by how sure its agent says it is, as ReConcile has it.

    >>> [recalibrated(value) for value in (0.5, 0.7, 0.8, 0.95, 1.0, 7.0)]
    [0.1, 0.3, 0.5, 0.8, 1.0, 0.0]
    """
    if confidence <= 0.6:
        return 0.1
    steps = ((0.8, 0.3), (0.9, 0.5), (1.0, 0.8))
    return next((weight for below, weight in steps if confidence < below), 1.0 if confidence == 1 else 0.0)


def _read_vote(meeting: Meeting, said: str) -> _Vote:
    """The vote in a reply; one without JSON is an answer as a whole, without confidence."""
    held = last_object(said) or {}
    answer, level = held.get("answer", said), str(held.get("confidence_level", "")).strip()
    if isinstance(answer, list):
        answer = ",".join(map(str, answer)) or "Unknown"
    try:
        confidence = float(level.removesuffix("%")) / (100 if level.endswith("%") else 1)
    except ValueError:
        confidence = 0.0
    text = str(answer).strip()
    return _Vote(meeting.answer_in(text) or text.casefold(), text, str(held.get("reasoning", "")), confidence)


def _told_group(meeting: Meeting, votes: Sequence[_Vote]) -> str:
    told = "\n".join(
        meeting.say("solution", answer=vote.answer, reasoning=vote.reasoning, confidence=vote.confidence)
        for vote in votes
    )
    return meeting.say("group", count=len(votes), answer=votes[0].answer, solutions=told)


@meeting_course(texts="role first later last solution", settings="members rounds")
def discussion(meeting: Meeting) -> Course:
    """Agents with roles speak round after round, each hearing the others' last replies; the first one's last counts.

    Source: methods/Discussion of MedMASLab, after LLM-Discussion (Lu et al. 2024).
    """
    members, rounds = meeting.members, meeting.number("rounds")
    talks: dict[int, tuple[Message, ...]] = {}
    said: Sequence[str] = ()
    for number in range(rounds):
        speeches = []
        for index, member in enumerate(members):
            role = meeting.say("role", name=member["name"], role=member["role"])
            others = "".join(
                meeting.say("solution", name=members[place]["name"], text=text)
                for place, text in enumerate(said)
                if place != index
            )
            name = "first" if not number else "last" if number == rounds - 1 else "later"
            text = role + meeting.say(name, solutions=others)
            before = talks.get(index, ())
            speeches.append(Speech(member["name"], text, before=before))
            talks[index] = (*before, Message("user", (text,)))
        said = yield speeches
        for index, text in enumerate(said):
            talks[index] += (Message("assistant", (text,)),)
    return said[0]
