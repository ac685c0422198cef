"""Text protocols by which models that only write are told of tools and call them."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from medimg_eval.question import ToolCall, ToolSpec


class TextProtocol(ABC):
    """Puts tools into words and reads calls from what a model writes."""

    name: ClassVar[str]

    @abstractmethod
    def instructions(self, tools: Sequence[ToolSpec]) -> str:
        """Instructions before the first question."""

    @abstractmethod
    def read(self, text: str) -> tuple[str, list[ToolCall]]:
        """Answer without thinking, and calls; unreadable ones say why."""

    @abstractmethod
    def written(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call as a model would write it."""

    @abstractmethod
    def result(self, name: str, text: str) -> str:
        """Text that tells the model a call's result."""


class Hermes(TextProtocol):
    """Calls as JSON between `<tool_call>` marks, which many open models are trained on."""

    name = "hermes"
    _CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)

    def instructions(self, tools: Sequence[ToolSpec]) -> str:
        """Instructions before the first question."""
        listed = "\n".join(json.dumps(_as_function(tool), ensure_ascii=False) for tool in tools)
        return (
            "You may call one or more tools. They are described within <tools></tools> as JSON:\n"
            f"<tools>\n{listed}\n</tools>\n"
            "For each call write a JSON object with its name and arguments within <tool_call></tool_call>:\n"
            '<tool_call>\n{"name": "TOOL", "arguments": {"ARGUMENT": "VALUE"}}\n</tool_call>\n'
            "Results come back within <tool_response></tool_response>. When you know the answer, write it alone."
        )

    def read(self, text: str) -> tuple[str, list[ToolCall]]:
        """The answer in a reply, and its calls."""
        text = text.partition("<tool_response>")[0]  # results that the model made up, and what follows from them
        calls = [_call_in(match[1].strip()) for match in self._CALL.finditer(text)]
        return self._CALL.sub("", text).strip(), calls

    def written(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call as a model would write it."""
        return f"<tool_call>\n{json.dumps({'name': name, 'arguments': dict(arguments)})}\n</tool_call>"

    def result(self, name: str, text: str) -> str:
        """Text that tells the model a call's result."""
        return f"<tool_response>\n{text}\n</tool_response>"


class React(TextProtocol):
    """ReAct protocol: `Action:`, `Action Input:`, `Final Answer:`.

    Yao et al. 2023.
    """

    name = "react"
    _ACTION = re.compile(r"^[ \t*]*Action[ \t*]*:[ \t*]*(.*?)[ \t*]*$", re.MULTILINE | re.IGNORECASE)
    _INPUT = re.compile(r"^[ \t*]*Action[ _]Input[ \t*]*:(.*?)(?=^[ \t*]*Observation[ \t*]*:|\Z)", re.S | re.M | re.I)
    _FINAL = re.compile(r"^[ \t*]*Final[ _]Answer[ \t*]*:[ \t*]*", re.MULTILINE | re.IGNORECASE)
    _MADE_UP = re.compile(r"^[ \t*]*Observation[ \t*]*:", re.MULTILINE | re.IGNORECASE)

    def instructions(self, tools: Sequence[ToolSpec]) -> str:
        """Instructions before the first question."""
        listed = "\n".join(
            f"{tool.name}: {tool.description} Arguments: {json.dumps(dict(tool.parameters))}" for tool in tools
        )
        return (
            f"You may use these tools:\n{listed}\n\nUse this form:\nThought: what to do next\n"
            f"Action: one of {', '.join(tool.name for tool in tools)}\nAction Input: its arguments as a JSON object\n"
            "Observation: the result, which you are told; it may be followed by further thoughts and actions\n"
            "Final Answer: the answer to the question"
        )

    def read(self, text: str) -> tuple[str, list[ToolCall]]:
        """Answer and call of a reply, cutting invented observations."""
        if made_up := self._MADE_UP.search(text):
            text = text[: made_up.start()]
        final, action = self._FINAL.search(text), self._ACTION.search(text)
        if action is None or (final is not None and final.start() < action.start()):
            return text[final.end() :].strip() if final else text.strip(), []
        written = self._INPUT.search(text, action.end())
        raw = (written[1] if written else "").strip().removeprefix("```json").strip("` \n")
        name = action[1].strip("`\"' ")
        try:
            arguments = json.loads(raw or "{}")
        except (ValueError, RecursionError) as error:
            return "", [ToolCall(name, {}, raw=raw, error=f"its Action Input is no JSON ({error})")]
        if not isinstance(arguments, dict):
            return "", [ToolCall(name, {}, raw=raw, error="its Action Input is no JSON object")]
        return "", [ToolCall(name, arguments, raw=raw)]

    def written(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call as a model would write it."""
        return f"Action: {name}\nAction Input: {json.dumps(dict(arguments))}"

    def result(self, name: str, text: str) -> str:
        """Text that tells the model a call's result."""
        return f"Observation: {text}"


PROTOCOLS: Mapping[str, TextProtocol] = {protocol.name: protocol for protocol in (Hermes(), React())}


def _as_function(tool: ToolSpec) -> dict[str, Any]:
    about = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": about}


def _call_in(raw: str) -> ToolCall:
    """Call in JSON, also with text arguments or `parameters`."""
    written = raw.removeprefix("```json").strip("` \n")
    try:
        content, _ = json.JSONDecoder().raw_decode(written)
        if isinstance(content, dict) and isinstance(content.get("function"), dict):
            content = content["function"]
        name = str(content["name"])
        arguments = content.get("arguments", content.get("parameters", {}))
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        match = re.search(r'"name"\s*:\s*"([\w-]+)"', written)
        return ToolCall(match[1] if match else "", {}, raw=raw, error=f"the call is no JSON with a name ({error})")
    if not isinstance(arguments, dict):
        return ToolCall(name, {}, raw=raw, error="its arguments are no JSON object")
    return ToolCall(name, arguments, raw=raw)
