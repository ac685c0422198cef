"""A vision-language model that is asked about the frames of a film."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

import numpy as np

from medimg_eval.arguments import make_model
from medimg_eval.case import Image, Prompt, Prompts
from medimg_eval.errors import UsageError
from medimg_eval.imaging.video import FilmPrompt
from medimg_eval.metrics.answers import extract_choice
from medimg_eval.models.base import Example, FrameLabeler
from medimg_eval.question import Decoding, Message

PHASE = "The last image is the frame in question. What does it show?\n{options}\nAnswer with the letter alone."
PRESENCE = (
    "The last image is the frame in question. Which of these does it show?\n{names}\nAnswer with their names, "
    "separated by semicolons, or with none."
)


class AskedFrames(FrameLabeler):
    """Asks a vision-language model about each frame, shown alone or after those before it.

    Of classes that exclude each other it chooses one by its letter, of the others it names those that it sees. A frame
    whose answer holds no letter has no phase, and a name that is none of the task's is left out.

    Args:
        vlm: a model with `generate`, such as `HuggingFaceVLM`; or a `functools.partial` of its class, as Hydra makes of
            a config with `_partial_: true`.
        window: how many frames it is shown, the one in question last.
        every: of so many frames one is asked about; those up to the next have its answer.
        phase: what is asked about classes of which a frame has one; `{options}` stands for them.
        presence: what is asked about the others; `{names}` stands for them, a line each.
        max_new_tokens: of an answer.

    Raises:
        UsageError: window or every is below 1, or a question has no place for the classes.
    """

    def __init__(
        self,
        vlm: Any,
        window: int = 1,
        every: int = 1,
        phase: str = PHASE,
        presence: str = PRESENCE,
        max_new_tokens: int = 128,
    ) -> None:
        for name, value in (("window", window), ("every", every)):
            if value < 1:
                raise UsageError(f"expected model.{name} from 1 on, got {value}")
        for name, text, field in (("phase", phase, "{options}"), ("presence", presence, "{names}")):
            if field not in text:
                raise UsageError(f"model.{name} is {text!r:.60}, expected {field} where the classes are to stand")
        self.vlm, self.window, self.every = make_model(vlm), window, every
        self.phase, self.presence = phase, presence
        self.decoding = Decoding(max_new_tokens=max_new_tokens)
        self.uses_torch = bool(getattr(self.vlm, "uses_torch", True))

    @property
    def remote(self) -> bool:  # type: ignore[override]
        """Whether the model is asked on another machine."""
        return bool(getattr(self.vlm, "remote", False))

    def check_ready(self) -> None:
        """Asks the model that is asked."""
        self.vlm.check_ready()

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Has the model prepared for questions."""
        self.vlm.prepare({}, example)

    def label_frames(self, prompts: Prompts) -> Sequence[Iterator[Mapping[str, float]]]:
        """Returns a generator for each film, of class -> 1 or 0 of each frame before the next is taken.

        Taking from it raises UsageError where the film has more phases than there are letters.
        """
        return [self._labelled(prompt) for prompt in prompts if isinstance(prompt, FilmPrompt)]

    def _labelled(self, prompt: FilmPrompt) -> Iterator[dict[str, float]]:
        last: deque[Image] = deque(maxlen=self.window)
        labels: dict[str, float] = {}
        for number, frame in enumerate(prompt.film):
            last.append(Image(frame, np.eye(4), units="pixel"))
            if number % self.every == 0:
                labels = self._ask(prompt, f"{prompt.case_id}-{number}", tuple(last))
            yield labels

    def _ask(self, prompt: FilmPrompt, case_id: str, frames: tuple[Image, ...]) -> dict[str, float]:
        labels: dict[str, float] = {}
        if prompt.phases:
            options = _lettered(prompt)
            listed = "\n".join(f"{letter}. {name}" for letter, name in options.items())
            reply = self._reply(case_id, frames, self.phase.replace("{options}", listed), options)
            letter = extract_choice(reply, options).letter
            if letter is not None:
                labels |= {name: float(key == letter) for key, name in options.items()}
        if prompt.presence:
            reply = self._reply(case_id, frames, self.presence.replace("{names}", "\n".join(prompt.presence)), {})
            named = {part.strip(" .\"'").casefold() for part in reply.replace("\n", ";").split(";")}
            labels |= {name: float(name.casefold() in named) for name in prompt.presence}
        return labels

    def _reply(self, case_id: str, frames: tuple[Image, ...], text: str, options: Mapping[str, str]) -> str:
        message = Message("user", (*range(len(frames)), text))
        asked = Prompt(case_id, frames, messages=(message,), options=options, question=text)
        return str(self.vlm.generate([asked], self.decoding)[0])


def _lettered(prompt: FilmPrompt) -> dict[str, str]:
    """The phases behind letters; raises UsageError where there are more than letters."""
    if len(prompt.phases) > len(ascii_uppercase):
        raise UsageError(
            f"film {prompt.case_id!r} has {len(prompt.phases)} phases, expected at most {len(ascii_uppercase)}, for "
            "which there are letters; ask about fewer, or label its frames with another model"
        )
    return dict(zip(ascii_uppercase, prompt.phases, strict=False))
