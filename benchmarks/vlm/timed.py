"""Models for `python -m medimg_eval test`, timed."""

from typing import Any

from clock import Clock

from medimg_eval.case import Prompts
from medimg_eval.models import VisionLanguageModel
from medimg_eval.models.vision_language.huggingface.model import HuggingFaceVLM
from medimg_eval.question import Decoding


class Timed(HuggingFaceVLM):
    """The wrapper itself."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.clock = Clock()

    def generate(self, prompts: Prompts, decoding: Decoding) -> list[str]:
        answer = super().generate
        return self.clock.call([prompt.case_id for prompt in prompts], lambda: answer(prompts, decoding))


class Instant(VisionLanguageModel):
    """Answers at once, so that all that is left is what the harness does.

    Args:
        batch: questions at once.
    """

    def __init__(self, batch: int) -> None:
        self.preferred_batch, self.clock = batch, Clock()

    def generate(self, prompts: Prompts, decoding: Decoding) -> list[str]:
        return self.clock.call([prompt.case_id for prompt in prompts], lambda: ["A"] * len(prompts))
