"""Conversations in turns of the user that are known beforehand, or follow from the replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from medimg_eval.case import Prompt, Prompts
from medimg_eval.evidence import one_each
from medimg_eval.question import Decoding, Message, Reply, Turn

NextTurn = Callable[[Prompt, Sequence[str]], Message | None]
"""What the user says after so many replies to a prompt; None where the last one is the answer."""


def converse(model: Any, prompts: Prompts, decoding: Decoding, next_turn: NextTurn) -> list[Reply]:
    """Has a model answer the first turn of all prompts, then the second of those that have one, and so on."""
    if not prompts:
        return []
    texts: list[list[str]] = [[] for _ in prompts]
    going = dict(enumerate(prompts))
    while going:
        answers = one_each(model.generate(list(going.values()), decoding), going)
        following = {}
        for (place, prompt), answer in zip(going.items(), answers, strict=True):
            texts[place].append(answer)
            turn = next_turn(prompts[place], texts[place])
            if turn is not None:
                messages = (*prompt.messages, Message("assistant", (answer,)), turn)
                following[place] = replace(prompt, messages=messages)
        going = following
    return [Reply(tuple(replies), trace=_steps_in(replies)) for replies in texts]


def _steps_in(replies: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """Steps that an agent took for its replies; none of a model that only writes."""
    return tuple(step for reply in replies if isinstance(reply, Turn) for step in reply.steps)
