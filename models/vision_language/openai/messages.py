"""Turns and tools as the chat-completions API writes them, and replies as its servers send them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from medimg_eval.question import Message, ToolCall, ToolSpec

FIELDS = (
    *("text", "finish", "model", "prompt_tokens", "completion_tokens"),
    *("thought", "cached_tokens", "thought_tokens", "calls"),
)
"""What is kept of a reply. Those from `thought` on are absent from replies that earlier versions kept."""

ANSWERING = ("text", "output_text", None)
"""Types of the parts of a reply that hold the answer."""

THINKING = ("reasoning", "reasoning_content", "thinking", "thoughts")
"""Fields of a message, and types of its parts, that hold thinking; the first that does counts."""


def written_turns(messages: Sequence[Message], urls: Sequence[str]) -> list[dict[str, Any]]:
    """Messages of a request; tool images follow as user turns."""
    turns: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []  # results of one turn stay together, before their images
    for message in messages:
        if message.role != "tool" and waiting:
            turns.append({"role": "user", "content": waiting})
            waiting = []
        images = [_image_part(urls[part]) for part in message.parts if isinstance(part, int)]
        if message.role == "tool":
            turns.append({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
            if images:
                waiting += [{"type": "text", "text": f"Images from {message.name}:"}, *images]
        elif message.calls:
            calls = [_written_call(call) for call in message.calls]
            turns.append({"role": message.role, "content": message.text or None, "tool_calls": calls})
        elif not images:  # plain strings, which every server reads
            turns.append({"role": message.role, "content": message.text})
        else:
            parts = [
                {"type": "text", "text": part} if isinstance(part, str) else _image_part(urls[part])
                for part in message.parts
            ]
            turns.append({"role": message.role, "content": parts})
    return [*turns, {"role": "user", "content": waiting}] if waiting else turns


def written_tools(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The tools of a request."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def read_reply(told: Any) -> dict[str, Any]:
    """Reply by `FIELDS`, None for omitted ones; ValueError where it holds no message."""
    choices = told.get("choices") if isinstance(told, dict) else None
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        raise ValueError("its reply holds no choices")
    message, usage, finish = choices[0].get("message"), told.get("usage"), choices[0].get("finish_reason")
    if message is None and finish not in (None, "stop", "length"):
        message = {}  # which some leave out where a filter withheld it
    if not isinstance(message, dict):
        raise ValueError("its reply holds a choice without a message")  # noqa: TRY004 - of what was read, no argument
    usage = usage if isinstance(usage, dict) else {}
    return {
        "text": _message_text(message),
        "finish": finish,
        "model": told.get("model"),
        "prompt_tokens": _token_count(usage, "prompt_tokens"),
        "completion_tokens": _token_count(usage, "completion_tokens"),
        "thought": _message_thought(message),
        "cached_tokens": _token_count(usage, "prompt_tokens_details", "cached_tokens"),
        "thought_tokens": _token_count(usage, "completion_tokens_details", "reasoning_tokens"),
        "calls": [call for call_ in message.get("tool_calls") or () if (call := _read_call(call_)) is not None],
    }


def calls_of(reply: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Tool calls of a reply; unreadable arguments give an error."""
    calls = []
    for call in reply.get("calls") or ():
        arguments, error = call["arguments"], ""
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except (ValueError, RecursionError) as trouble:
                error = f"its arguments are no JSON ({trouble})"
        if not error and not isinstance(arguments, dict):
            error = "its arguments are no JSON object"
        raw = call["arguments"] if isinstance(call["arguments"], str) else json.dumps(call["arguments"])
        calls.append(ToolCall(call["name"], {} if error else arguments, call["id"], raw, error))
    return tuple(calls)


def _image_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def _written_call(call: ToolCall) -> dict[str, Any]:
    arguments = json.dumps(dict(call.arguments), sort_keys=True)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _read_call(told: Any) -> dict[str, Any] | None:
    function = told.get("function") if isinstance(told, dict) else None
    if not isinstance(function, dict):
        return None
    name, arguments = str(function.get("name") or ""), function.get("arguments", "")
    return {"id": str(told.get("id") or ""), "name": name, "arguments": "" if arguments is None else arguments}


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):  # of which parts that hold reasoning are no answer
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") in ANSWERING]
        content = "".join(text for text in texts if isinstance(text, str))
    return _repair_surrogates(content if isinstance(content, str) and content else str(message.get("refusal") or ""))


def _message_thought(message: Mapping[str, Any]) -> str | None:
    """Thought sent apart: field, details (OpenRouter) or content parts (Anthropic)."""
    for field in THINKING:
        if isinstance(thought := message.get(field), str):
            return _repair_surrogates(thought)
    content = message.get("content")
    parts = [*(message.get("reasoning_details") or ()), *(content if isinstance(content, list) else ())]
    texts = [_thought_in(part) for part in parts if isinstance(part, dict)]
    texts_ = [text for text in texts if text]
    return _repair_surrogates("\n".join(texts_)) if texts_ else None


def _thought_in(part: Mapping[str, Any]) -> str:
    kind = str(part.get("type") or "")
    if not (kind in THINKING or kind.startswith("reasoning")):
        return ""
    text = next((part[key] for key in ("thinking", "text", "summary", "reasoning") if part.get(key)), "")
    if isinstance(text, list):  # Mistral: parts within the part
        text = "".join(str(item.get("text", "")) for item in text if isinstance(item, dict))
    return text if isinstance(text, str) else ""


def _token_count(usage: Mapping[str, Any], *path: str) -> int | None:
    value: Any = usage
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, int) and value >= 0 else None


def _repair_surrogates(text: str) -> str:
    # A reply that is cut off may end in half of a sign, which cannot be written.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
