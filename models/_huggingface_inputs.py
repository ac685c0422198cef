"""From prompts to the tensors of a Hugging Face model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models._huggingface_prompts import ChatTemplate
from medimg_eval.models.pictures import as_picture


class Reader:
    """Renders, tokenizes, resizes, and pads on the left, where a model that goes on at the right needs it.

    Args:
        name: of the checkpoint, for messages.
        processor: of texts and images; of a model of text alone its tokenizer.
        template: the checkpoint's words for a conversation.
        sees: whether the model takes images.
        context: the longest sequence that it can read; None where it does not say.
    """

    def __init__(self, name: str, processor: Any, template: ChatTemplate, sees: bool, context: int | None) -> None:
        self.name, self.processor, self.template = name, processor, template
        self.sees, self.context = sees, context
        self.tokenizer: Any = getattr(processor, "tokenizer", processor)

    def groups(self, prompts: Prompts) -> list[tuple[list[int], list[str]]]:
        """Prompts with images and prompts without, which processors do not take together: places, rendered texts."""
        shown = [bool(_shown(prompt)) for prompt in prompts]
        groups = [[place for place, one in enumerate(shown) if one is kind] for kind in (True, False)]
        return [(places, [self.template.render(prompts[place]) for place in places]) for places in groups if places]

    def inputs(self, texts: Sequence[str], prompts: Prompts, model: Any) -> dict[str, Any]:
        """The model's inputs, on its device and in its precision, one row a text.

        Raises:
            CaseError: a prompt fills the model's context, or shows images to a model of text alone.
        """
        pictures = [[as_picture(prompt.images[place]) for place in _shown(prompt)] for prompt in prompts]
        self.tokenizer.padding_side = "left"  # whatever the checkpoint says, or was set since
        options: dict[str, Any] = {"return_tensors": "pt", "padding": True}
        if self.tokenizer.bos_token and texts[0].startswith(self.tokenizer.bos_token):
            options["add_special_tokens"] = False
        if not self.sees:
            if any(pictures):
                raise CaseError(f"{self.name} reads text alone and was shown an image; ask it with blind=true")
            read = self.processor(list(texts), return_token_type_ids=False, **options)
        else:
            read = self.processor(text=list(texts), images=pictures if any(pictures) else None, **options)
        mask: Tensor = read["attention_mask"]
        if not bool(mask[:, -1].all()):
            raise UserError(
                f"{self.name}: its {type(self.processor).__name__} pads on the right, which changes answers"
            )
        self._check_lengths(mask.sum(1), prompts)
        if not self.sees:  # with padding, the library counts positions itself only when it generates
            read["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        return {key: _moved(value, model) for key, value in read.items()}

    def _check_lengths(self, lengths: Tensor, prompts: Sequence[Prompt]) -> None:
        for length, prompt in zip(lengths.tolist(), prompts, strict=True):
            if self.context is not None and length >= self.context:
                raise CaseError(
                    f"case {prompt.case_id!r}: the prompt is {length} tokens long, {self.name} reads {self.context} "
                    "with its answer; show fewer or smaller images (model.processor), or leave exemplars out"
                )


def _shown(prompt: Prompt) -> list[int]:
    """Which images a prompt shows, in order."""
    return [part for message in prompt.messages for part in message.parts if isinstance(part, int)]


def _moved(value: Any, model: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(model.device, model.dtype if torch.is_floating_point(value) else None)
