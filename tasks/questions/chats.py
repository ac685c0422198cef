"""Questions at the end of a conversation that was held before, whose next turn the model writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from medimg_eval.case import Case, Image, Prompt
from medimg_eval.errors import CaseError
from medimg_eval.question import Key, Message, Role
from medimg_eval.tasks.questions.task import QuestionTask


@dataclass(frozen=True, kw_only=True)
class DialogueQuestionTask(QuestionTask):
    """The next turn of a conversation, as HealthBench asks for it.

    The answer key of a case holds `history`, its turns as `{role, content}`, of which the last is the user's; see
    `{conversation: ...}` of a layout's `expand`. The template puts the system turn alone; images stand before the first
    turn of the user.
    """

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """Puts the whole conversation; CaseError where it does not end with the user's turn."""
        key: Key = case.target.read()
        history = key.more.get("history")
        sound = isinstance(history, list | tuple) and all(
            isinstance(turn, Mapping) and turn.get("role") in get_args(Role) and isinstance(turn.get("content"), str)
            for turn in history
        )
        if not sound or not history or history[-1]["role"] != "user":
            raise CaseError(
                f"case {case.id!r}: expected its key to hold a `history` of turns that ends with the user's, got "
                f"{history!r:.80}; see {{conversation: ...}} of expand"
            )
        put = super().prompt(case, images)
        turns = [Message(turn["role"], (turn["content"],)) for turn in history]
        if images:
            first = next(index for index, turn in enumerate(turns) if turn.role == "user")
            turns[first] = Message("user", (*range(len(images)), *turns[first].parts))
        opening = [message for message in put.messages if message.role == "system"]
        return replace(put, messages=(*opening, *turns))
