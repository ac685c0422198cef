"""From prompts to the tensors of a Hugging Face model."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from medimg_eval.case import Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging import VideoPrompt
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.question import Message

log = logging.getLogger(__name__)

Turns = list[dict[str, Any]]


class ChatTemplate:
    """Puts conversations into the form that a checkpoint was trained on.

    Templates differ in what they take: contents as lists of parts or as one text, a system turn or none. Each form is
    tried, and a form counts only if every text of the system and the user stands in what comes out, and a mark for each
    image: some templates leave out in silence what they do not know.

    Args:
        processor: or tokenizer, of the checkpoint.
        file: with a Jinja template to be used instead of the checkpoint's own.
        arguments: of the template, such as `enable_thinking`.

    Raises:
        UserError: there is no template, or no such file, or the template knows no such argument.
    """

    def __init__(
        self, name: str, processor: Any, file: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> None:
        self.arguments = dict(arguments or {})
        self.name, self.processor, self.warned = name, processor, False
        tokenizer = getattr(processor, "tokenizer", processor)
        self.template: Any = getattr(processor, "chat_template", None) or getattr(tokenizer, "chat_template", None)
        if file is not None:
            path = Path(file).expanduser()
            if not path.is_file():
                raise UserError(f"{path}: no such file; model.chat_template names one with a Jinja template")
            try:
                self.template = path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise UserError(f"{path}: is no UTF-8 text; model.chat_template names a Jinja template") from error
        if not self.template:
            raise UserError(f"{name}: has no chat template; name a file with one in model.chat_template")
        self._check_arguments()
        image_token = getattr(processor, "image_token", None)
        self.image_token = image_token if isinstance(image_token, str) else ""
        video_token = getattr(processor, "video_token", None)
        self.video_token = video_token if isinstance(video_token, str) else ""
        self.parts_first = processor is not tokenizer

    def render(self, prompt: Prompt) -> str:
        """Returns a conversation as text up to the model's turn.

        Raises:
            CaseError: a text of the case holds the mark of an image, or the template refuses the conversation.
        """
        from jinja2 import TemplateError

        texts = [part for message in prompt.messages for part in message.parts if isinstance(part, str)]
        for token, what in ((self.image_token, "an image"), (self.video_token, "a video")):
            if token and any(token in part for part in texts):
                raise CaseError(f"case {prompt.case_id!r}: the text holds {token}, which this model takes for {what}")
        refused = ""
        for turns, moved in self._conversation_forms(prompt):
            try:
                text = self._apply_template(turns)
            except (TemplateError, TypeError, ValueError, KeyError) as error:
                refused = refused or f" ({error})"
                continue
            if self._is_complete(text, prompt):
                if moved and not self.warned:
                    log.warning(
                        "%s: its chat template has no system turn; it is put before the user's first", self.name
                    )
                    self.warned = True
                return text
        raise CaseError(
            f"case {prompt.case_id!r}: the chat template of {self.name} leaves out a part of the conversation or "
            f"refuses it{refused}; name a file with another in model.chat_template"
        )

    def _apply_template(self, turns: Turns) -> str:
        template = None if isinstance(self.template, dict) else self.template
        text = self.processor.apply_chat_template(
            turns, chat_template=template, add_generation_prompt=True, tokenize=False, **self.arguments
        )
        return str(text)

    def _check_arguments(self) -> None:
        """Refuses arguments that the template would pass over in silence."""
        written = self.template if isinstance(self.template, str) else " ".join(map(str, dict(self.template).values()))
        for argument in self.arguments:
            if not re.search(rf"\b{re.escape(argument)}\b", written):
                switches = sorted(set(re.findall(r"\b\w*(?:think|reason)\w*\b", written)) - {"think", "thinking"})
                raise UserError(
                    f"{self.name}: its chat template knows no {argument!r}, which model.chat_template_kwargs sets"
                    + (f"; it names {', '.join(switches[:5])}" if switches else "; leave it out")
                )

    def _conversation_forms(self, prompt: Prompt) -> Iterator[tuple[Turns, bool]]:
        messages = prompt.messages
        conversations: list[tuple[Sequence[Message], bool]] = [(messages, False)]
        if any(message.role == "system" for message in messages):
            conversations.append((_merge_system_turn(messages), True))
        for conversation, moved in conversations:
            forms = [
                [_split_parts(message, prompt) for message in conversation],
                [self._flatten_message(message, prompt) for message in conversation],
            ]
            for turns in forms if self.parts_first else reversed(forms):
                yield turns, moved

    def _flatten_message(self, message: Message, prompt: Prompt) -> dict[str, Any]:
        tokens = {False: self.image_token, True: self.video_token}
        parts = (part if isinstance(part, str) else f"{tokens[_is_video(prompt, part)]}\n" for part in message.parts)
        return {"role": message.role, "content": "".join(parts)}

    def _is_complete(self, text: str, prompt: Prompt) -> bool:
        if "'type': 'text'" in text:  # a list that was written out as one
            return False
        are_videos = [_is_video(prompt, index) for index in _image_indices(prompt)]
        if self.image_token and text.count(self.image_token) != are_videos.count(False):
            return False
        if self.video_token and text.count(self.video_token) != are_videos.count(True):
            return False
        written = [message for message in prompt.messages if message.role != "assistant"]
        return all(part.strip() in text for message in written for part in message.parts if isinstance(part, str))


def _split_parts(message: Message, prompt: Prompt) -> dict[str, Any]:
    kinds = {False: "image", True: "video"}
    parts = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": kinds[_is_video(prompt, part)]}
        for part in message.parts
    ]
    return {"role": message.role, "content": parts}


def _merge_system_turn(messages: Sequence[Message]) -> list[Message]:
    """Conversation with the system text moved into the first user turn."""
    system_texts = tuple(f"{message.text}\n\n" for message in messages if message.role == "system")
    remaining = [message for message in messages if message.role != "system"]
    first = next((index for index, message in enumerate(remaining) if message.role == "user"), 0)
    return [
        Message(message.role, (*system_texts, *message.parts) if index == first else message.parts)
        for index, message in enumerate(remaining)
    ]


class Reader:
    """Renders, tokenizes and resizes prompts; pads on the left.

    A model that goes on at the right needs it.

    Args:
        processor: of texts and images; of a model of text alone its tokenizer.
        template: the checkpoint's words for a conversation.
        reads_images: whether the model takes images.
        context_length: the longest sequence that it can read; None where it does not say.
    """

    def __init__(
        self, name: str, processor: Any, template: ChatTemplate, reads_images: bool, context_length: int | None
    ) -> None:
        self.name, self.processor, self.template = name, processor, template
        self.reads_images, self.context_length = reads_images, context_length
        self.tokenizer: Any = getattr(processor, "tokenizer", processor)

    def group_prompts(self, prompts: Prompts) -> list[tuple[list[int], list[str]]]:
        """Indices and texts of prompts with images, and of those without."""
        shows_images = [bool(_image_indices(prompt)) for prompt in prompts]
        groups = [[index for index, shows in enumerate(shows_images) if shows is kind] for kind in (True, False)]
        return [(indices, [self.template.render(prompts[index]) for index in indices]) for indices in groups if indices]

    def encode(self, texts: Sequence[str], prompts: Prompts, model: Any) -> dict[str, Any]:
        """Model inputs on its device and precision, one row per text.

        Raises:
            CaseError: a prompt fills the model's context, or shows images to a model of text alone.
        """
        images_of = [[prompt.images[index] for index in _image_indices(prompt)] for prompt in prompts]
        videos = [image for images in images_of for image in images if isinstance(image, VideoPrompt)]
        pictures = [
            [as_picture(image) for image in images if not isinstance(image, VideoPrompt)] for images in images_of
        ]
        self.tokenizer.padding_side = "left"  # whatever the checkpoint says, or was set since
        options: dict[str, Any] = {"return_tensors": "pt", "padding": True}
        if self.tokenizer.bos_token and texts[0].startswith(self.tokenizer.bos_token):
            options["add_special_tokens"] = False
        if not self.reads_images:
            if any(images_of):
                raise CaseError(f"{self.name} reads text alone and was shown an image; ask it with task.blind=remove")
            inputs = self.processor(list(texts), return_token_type_ids=False, **options)
        else:
            options |= self._video_options(videos, prompts[0].case_id)
            inputs = self.processor(text=list(texts), images=pictures if any(pictures) else None, **options)
        mask: Tensor = inputs["attention_mask"]
        if not bool(mask[:, -1].all()):
            raise UserError(
                f"{self.name}: its {type(self.processor).__name__} pads on the right, which changes answers"
            )
        self._check_lengths(mask.sum(1), prompts)
        if not self.reads_images:  # with padding, the library counts positions itself only when it generates
            inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
        return {key: _move_to_model(value, model) for key, value in inputs.items()}

    def _video_options(self, videos: Sequence[VideoPrompt], case: str) -> dict[str, Any]:
        """The frames with their times, which the processor neither chooses anew nor drops."""
        if not videos:
            return {}
        if not self.template.video_token or getattr(self.processor, "video_processor", None) is None:
            raise CaseError(f"{self.name} takes no video; set task.view=pictures to show frames as pictures")
        if any(video.fps is None for video in videos):
            raise CaseError(f"case {case!r}: its video states no times; set task.view=pictures to show frames alone")
        metadata = [
            {
                "total_num_frames": video.frames_total,
                "fps": video.fps,
                "duration": video.frames_total / float(video.fps or 1),
                "frames_indices": list(video.indices),
            }
            for video in videos
        ]
        arrays = [torch.from_numpy(video.array).movedim(0, 1).contiguous() for video in videos]
        return {"videos": arrays, "video_metadata": metadata, "do_sample_frames": False}

    def _check_lengths(self, lengths: Tensor, prompts: Sequence[Prompt]) -> None:
        for length, prompt in zip(lengths.tolist(), prompts, strict=True):
            if self.context_length is not None and length >= self.context_length:
                raise CaseError(
                    f"case {prompt.case_id!r}: the prompt is {length} tokens long, {self.name} reads "
                    f"{self.context_length} with its answer; show fewer or smaller images (model.processor), or leave "
                    "exemplars out"
                )


def _is_video(prompt: Prompt, place: int) -> bool:
    return isinstance(prompt.images[place], VideoPrompt)


def _image_indices(prompt: Prompt) -> list[int]:
    """Which images a prompt shows, in order."""
    return [part for message in prompt.messages for part in message.parts if isinstance(part, int)]


def _move_to_model(value: Any, model: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(model.device, model.dtype if torch.is_floating_point(value) else None)
