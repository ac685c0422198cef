"""Conversations in turns of the user that are known beforehand, or follow from the replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import CaseError
from medimg_eval.evidence import one_each
from medimg_eval.question import Decoding, Message, Reply, Turn
from medimg_eval.tasks.questions.confidence import with_confidence

NextTurn = Callable[[Prompt, Sequence[str]], Message | None]
"""What the user says after so many replies to a prompt; None where the last one is the answer."""


def converse(model: Any, prompts: Prompts, decoding: Decoding, next_turn: NextTurn) -> list[Reply]:
    """Asks all first turns, then all second ones, and so on."""
    if not prompts:
        return []
    texts: list[list[str]] = [[] for _ in prompts]
    going = dict(enumerate(prompts))
    while going:
        answers = one_each(model.generate(list(going.values()), decoding), going)
        following = {}
        for (index, prompt), answer in zip(going.items(), answers, strict=True):
            texts[index].append(answer)
            turn = next_turn(prompts[index], texts[index])
            if turn is not None:
                messages = (*prompt.messages, Message("assistant", (answer,)), turn)
                following[index] = replace(prompt, messages=messages)
        going = following
    return [Reply(tuple(replies), trace=_steps_in(replies)) for replies in texts]


def choose_or_write(
    model: Any, prompts: Prompts, least: int, write: Callable[[Any, Prompts], Sequence[Any]]
) -> list[Any]:
    """Option weights or written replies, by prompt.

    Raises:
        CaseError: a prompt has fewer options than `least`, which is above 1.
    """
    choosable = [prompt for prompt in prompts if len(prompt.options) >= least]
    if least > 1 and len(choosable) < len(prompts):
        prompt = next(prompt for prompt in prompts if len(prompt.options) < least)
        raise CaseError(
            f"case {prompt.case_id!r} has no options to choose from; leave such questions out by layout.only"
        )
    weights = with_confidence(model, one_each(model.choose(choosable), choosable)) if choosable else ()
    chosen = dict(zip((prompt.case_id for prompt in choosable), weights, strict=True))
    remaining = [prompt for prompt in prompts if prompt.case_id not in chosen]
    written = dict(zip((prompt.case_id for prompt in remaining), write(model, remaining), strict=True))
    return [chosen.get(prompt.case_id, written.get(prompt.case_id)) for prompt in prompts]


def _steps_in(replies: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Steps of an agent's replies; none for writers."""
    return tuple(step for reply in replies if isinstance(reply, Turn) for step in reply.steps)
