"""Conversations and tools as inspect writes them, and the same in our words."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from medimg_eval.case import Prompt
from medimg_eval.errors import import_optional
from medimg_eval.image import Image
from medimg_eval.imaging.pictures import as_pictures
from medimg_eval.question import Message, ToolCall, ToolSpec, Usage

FINISHED = {"max_tokens": "length", "model_length": "length", "tool_calls": "calls", "content_filter": "filter"}
"""Why replies end, in inspect's words -> in ours; `stop` is the same."""


def as_chat_messages(prompt: Prompt) -> list[Any]:
    """A prompt as messages of inspect, its images as PNG within them."""
    library = import_optional("inspect_ai.model")
    urls = [_picture_url(picture) for picture in as_pictures(prompt)]
    kinds = {"system": library.ChatMessageSystem, "assistant": library.ChatMessageAssistant}
    return [
        kinds.get(message.role, library.ChatMessageUser)(
            content=[
                library.ContentText(text=part) if isinstance(part, str) else library.ContentImage(image=urls[part])
                for part in message.parts
            ]
        )
        for message in prompt.messages
    ]


def as_prompt(case_id: str, messages: Sequence[Any], tools: Sequence[Any]) -> Prompt:
    """Messages of inspect as a prompt; the images that they hold are read."""
    images: list[Image] = []
    converted = []
    for message in messages:
        parts: list[str | int] = []
        for part in [message.content] if isinstance(message.content, str) else message.content:
            if isinstance(part, str):
                parts.append(part)
            elif part.type == "text":
                parts.append(part.text)
            elif part.type == "image":
                parts.append(len(images))
                images.append(_image_of_url(part.image))
        calls = tuple(
            ToolCall(call.function, dict(call.arguments or {}), call.id)
            for call in getattr(message, "tool_calls", None) or ()
        )
        name, call_id = getattr(message, "function", None) or "", getattr(message, "tool_call_id", None) or ""
        converted.append(Message(message.role, tuple(parts), calls, call_id, name))
    specs = tuple(
        ToolSpec(tool.name, tool.description, tool.parameters.model_dump(exclude_none=True)) for tool in tools
    )
    return Prompt(case_id, tuple(images), messages=tuple(converted), tools=specs)


def steps_of(sample: Any) -> Iterator[dict[str, Any]]:
    """Yields a sample's steps in the form of our traces."""
    calls_ = {call.id: call for message in sample.messages for call in getattr(message, "tool_calls", None) or ()}
    seconds = {event.id: event.working_time for event in sample.events if event.event == "tool"}
    for message in sample.messages:
        if message.role == "assistant":
            calls = [
                {"name": call.function, "arguments": dict(call.arguments or {}), "id": call.id, "raw": "", "error": ""}
                for call in message.tool_calls or ()
            ]
            yield {"kind": "model", "text": message.text, "answer": message.text.strip(), "calls": calls}
        elif message.role == "tool":
            call = calls_.get(message.tool_call_id)
            step = {"kind": "tool", "name": message.function or "", "call_id": message.tool_call_id or ""}
            step |= {"arguments": dict(call.arguments or {}) if call else {}, "result": message.text}
            if message.error is not None:
                step["error"] = {"type": message.error.type, "message": message.error.message}
            if (taken := seconds.get(message.tool_call_id)) is not None:
                step["seconds"] = taken
            yield step
    yield {"kind": "stop", "reason": sample.limit.type if sample.limit else "answer"}


def usage_of(told: Mapping[str, Any]) -> Usage:
    """Tokens of a sample's models; cached ones are part of inputs."""
    every = list(told.values())
    if not every:
        return Usage()
    cached = sum(
        (model_usage.input_tokens_cache_read or 0) + (model_usage.input_tokens_cache_write or 0)
        for model_usage in every
    )
    read = sum((model_usage.input_tokens or 0) for model_usage in every) + cached
    thought = sum(model_usage.reasoning_tokens or 0 for model_usage in every)
    return Usage(read, cached or None, sum(model_usage.output_tokens or 0 for model_usage in every), thought or None)


def _picture_url(picture: Any) -> str:
    stream = io.BytesIO()
    picture.save(stream, "PNG", compress_level=1)
    return f"data:image/png;base64,{base64.b64encode(stream.getvalue()).decode()}"


def _image_of_url(url: str) -> Image:
    from PIL import Image as Pictures

    kind, _, data = url.partition(",")
    source: Any = io.BytesIO(base64.b64decode(data)) if kind.startswith("data:") else url
    with Pictures.open(source) as picture:
        array = np.asarray(picture.convert("L" if picture.mode in ("1", "L", "I;16") else "RGB"))
    return Image(np.atleast_3d(array).transpose(2, 0, 1), np.eye(4), units="pixel")
