"""A model of ours as inspect asks it: its agents then use it, and what waits is asked together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from medimg_eval.errors import import_optional
from medimg_eval.evidence import one_each
from medimg_eval.metrics.answers import split_thought
from medimg_eval.models.inspect.messages import as_prompt
from medimg_eval.question import Decoding, Message, Turn
from medimg_eval.tools.protocols import PROTOCOLS

GATHER_S = 0.01
"""Seconds in which requests come together before they are asked as one batch."""


def wrapped_model(wrapper: Any, decoding: Decoding) -> Any:
    """A model of inspect that asks a wrapper of ours.

    Args:
        wrapper: has `generate`; tools are put into words for one that does not call them itself.
        decoding: how it writes, where inspect's agents do not say.
    """
    library, anyio = import_optional("inspect_ai.model"), import_optional("anyio")
    protocol = None if getattr(wrapper, "calls_tools", False) else PROTOCOLS["hermes"]

    base: Any = library.ModelAPI

    class Wrapped(base):
        """Asks the wrapper; the optional library provides its base class."""

        def __init__(self, model_name: str, base_url: Any = None, api_key: Any = None, config: Any = None) -> None:
            super().__init__(model_name, base_url, api_key, [], config or library.GenerateConfig())
            self._lock: Any = anyio.Lock()
            self._waiting: list[dict[str, Any]] = []

        async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:  # noqa: A002
            """Asks about one conversation, beside others that wait."""
            entry = {"prompt": _in_words(as_prompt("", input, tools), protocol), "turn": None}
            self._waiting.append(entry)
            await anyio.sleep(GATHER_S)
            async with self._lock:
                if entry["turn"] is None:
                    batch, self._waiting = self._waiting, []
                    how = decoding if not config.max_tokens else Decoding(config.max_tokens, config.temperature or 0.0)
                    prompts = [request["prompt"] for request in batch]
                    turns = await anyio.to_thread.run_sync(wrapper.generate, prompts, how)
                    for request, turn in zip(batch, one_each(turns, prompts), strict=True):
                        request["turn"] = turn
            earlier = sum(message.role == "tool" for message in input)
            return _model_output(entry["turn"], protocol if tools else None, library, earlier)

        async def count_text_tokens(self, text: str) -> int:
            """Approximate token count, without inspect's tokenizer, which needs the network."""
            return len(text) // 4 + 1

        def max_connections(self) -> int:
            """Requests at once: a batch of the wrapper, at least 10."""
            return max(10, int(getattr(wrapper, "preferred_batch", 1)))

    library.modelapi(name="medimg_eval")(Wrapped)
    return library.get_model(f"medimg_eval/{type(wrapper).__name__}", memoize=False)


def _in_words(prompt: Any, protocol: Any) -> Any:
    """Conversation with tools, calls and results as plain text."""
    if protocol is None:
        return prompt
    messages = [Message("system", (protocol.instructions(prompt.tools),))] if prompt.tools else []
    for message in prompt.messages:
        if message.role == "tool":
            words = protocol.result(message.name, message.text)
            images = tuple(part for part in message.parts if isinstance(part, int))
            messages.append(Message("user", (words, *images)))
        elif message.calls:
            calls = [protocol.written(call.name, call.arguments) for call in message.calls]
            messages.append(Message("assistant", ("\n".join([message.text, *calls]).strip(),)))
        else:
            messages.append(message)
    return replace(prompt, messages=tuple(messages), tools=())


def _model_output(turn: Any, protocol: Any, library: Any, earlier: int) -> Any:
    """Reply in inspect's form; calls without ids are numbered on."""
    reply = turn if isinstance(turn, Turn) else Turn(str(turn))
    parted = split_thought(reply, reply.thought)
    answer, calls = parted.answer, list(reply.calls)
    if protocol is not None:
        answer, calls = protocol.read(answer)
    tools = import_optional("inspect_ai.tool")
    written = [
        tools.ToolCall(
            call.id or f"call_{earlier + index}", call.name, dict(call.arguments), parse_error=call.error or None
        )
        for index, call in enumerate(calls)
    ]
    content: Any = answer
    if parted.thought:
        content = [library.ContentReasoning(reasoning=parted.thought), library.ContentText(text=answer)]
    message = library.ChatMessageAssistant(content=content, tool_calls=written or None, source="generate")
    reason = {"length": "max_tokens", "filter": "content_filter"}.get(reply.finish, "tool_calls" if written else "stop")
    output = library.ModelOutput(
        model="medimg_eval", choices=[library.ChatCompletionChoice(message=message, stop_reason=reason)]
    )
    read, written_tokens = reply.usage.input or 0, reply.usage.output or 0
    output.usage = library.ModelUsage(
        input_tokens=read - (reply.usage.cached or 0),
        input_tokens_cache_read=reply.usage.cached,
        output_tokens=written_tokens,
        total_tokens=read + written_tokens,
        reasoning_tokens=reply.usage.thought,
    )
    return output
