"""Tools that models call: a name, a JSON schema, and a function or a command that answers.

A function is a tool as it is: its schema comes from its signature, what the model is told from its docstring. Arguments
called `image`, `images`, `case` and `patient` are bound: the harness fills them in from the case, and the model never
sees them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import json
import os
import re
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, get_type_hints

from medimg_eval.errors import UsageError, error_in_words
from medimg_eval.image import Image
from medimg_eval.question import ToolSpec
from medimg_eval.tools.schemas import misfits, schema_of

BOUND = ("image", "images", "case", "patient")
"""Arguments that the harness fills in."""

OWN = ("description", "parameters", "version", "timeout_s")
"""Settings of a tool itself; any others are its function's."""

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
LONGEST_RESULT = 16_384
"""Characters of a result that a model is told; the rest is cut off, and said to be."""


class ToolResult(NamedTuple):
    """Result of a call.

    Attributes:
        text: what the model is told.
        images: that it is shown.
        error: `{type, message}` of a call that failed; empty of one that did not.
        seconds: that it took.
    """

    text: str
    images: tuple[Image, ...] = ()
    error: Mapping[str, str] = {}
    seconds: float = 0.0


@dataclass(frozen=True)
class Tool:
    """Something that a model may call.

    Attributes:
        name: letters, digits, `_` and `-`.
        function: called with the arguments by name; gives a text, numbers, anything that JSON holds, an `Image`, or
            several of these in a tuple.
        description: what it does, for the model.
        parameters: JSON schema of what the model may say.
        bound: arguments that the harness fills in.
        version: what decides its results; a function's source says it by itself.
        timeout_s: after which a call has failed.
    """

    name: str
    function: Callable[..., Any]
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    bound: tuple[str, ...] = ()
    version: str = ""
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuses a name that servers refuse."""
        if not NAME.fullmatch(self.name):
            raise UsageError(f"tool {self.name!r}: names are up to 64 letters, digits, _ and -")

    @property
    def spec(self) -> ToolSpec:
        """Description of the tool for models."""
        return ToolSpec(self.name, self.description, self.parameters)

    @classmethod
    def of(cls, name: str, given: Any) -> Tool:
        """Tool of a function, dotted name, command or settings.

        Args:
            name: what models call it.
            given: a `Tool`, a function, `package.module.function`, or a mapping with `function` or `command` and any of
                `description`, `parameters`, `version`, `timeout_s`; what else it holds are settings, which the function
                is called with.

        Raises:
            UsageError: there is no such function, or a setting that it does not take.
        """
        if isinstance(given, Tool):
            return given
        settings = dict(given) if isinstance(given, Mapping) else {"function": given}
        command = settings.pop("command", None)
        own = {
            key: settings.pop(key) for key in ("description", "parameters", "version", "timeout_s") if key in settings
        }
        if command is not None:
            settings.pop("function", None)
            if not own.get("parameters") or settings:
                raise UsageError(f"tool {name!r}: a command needs its `parameters`, and takes no {', '.join(settings)}")
            timeout = float(own.get("timeout_s", 60.0))
            return cls(name, CommandTool(tuple(map(str, command)), timeout), **own)
        function = _import_tool(name, settings.pop("function", None))
        tool = _of_function(name, function, settings)
        return replace(tool, **own)

    def check_ready(self) -> None:
        """Raises UserError where a tool says that something it needs is not there."""
        ready = getattr(getattr(self.function, "__self__", self.function), "check_ready", None)
        if callable(ready):
            ready()

    def check(self, arguments: Mapping[str, Any]) -> str:
        """Why arguments do not fit the schema; "" where they do."""
        return next(misfits(arguments, {"type": "object", **self.parameters}, "arguments"), "")


class CommandTool:
    """Program that reads `{"arguments": {...}}` and prints JSON or text.

    Args:
        command: the program and its arguments; no shell reads them.
        timeout_s: after which it is killed, with all processes that it started.
    """

    def __init__(self, command: Sequence[str], timeout_s: float = 60.0) -> None:
        self.command, self.timeout_s = tuple(command), timeout_s

    def __call__(self, **arguments: Any) -> Any:
        """Runs it once; raises RuntimeError with the last lines of its errors where it fails."""
        process = subprocess.Popen(  # noqa: S603 - a program that the user named
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(json.dumps({"arguments": arguments}).encode(), self.timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"no result within {self.timeout_s:g} s") from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode:
            last = " | ".join(errors.decode(errors="replace").strip().splitlines()[-3:])
            raise RuntimeError(f"{self.command[0]} ended with {process.returncode}: {last}")
        text = out.decode(errors="replace").strip()
        try:
            return json.loads(text)
        except ValueError:
            return text


def call_tool(tool: Tool, arguments: Mapping[str, Any]) -> ToolResult:
    """Carries out one call; whatever the tool raises is its result."""
    began = time.monotonic()
    try:
        value = tool.function(**arguments)
        text, images = _tool_reply(value)
    except Exception as error:  # noqa: BLE001 - a tool may raise whatever it likes, and the model is told
        kinds = {TimeoutError: "timeout", PermissionError: "permission", FileNotFoundError: "file_not_found"}
        kind = next((name for of, name in kinds.items() if isinstance(error, of)), "tool")
        return failed_call(kind, error_in_words(error), time.monotonic() - began)
    return ToolResult(text, images, {}, time.monotonic() - began)


def failed_call(kind: str, message: str, seconds: float = 0.0) -> ToolResult:
    """Result of a failed call, or of an unknown tool."""
    return ToolResult(f"Error ({kind}): {message}", (), {"type": kind, "message": message}, seconds)


def recording_key(tool: str, version: str, arguments: Mapping[str, Any], bound: str = "") -> str:
    """Recording key: tool, version, unordered arguments and bound values."""
    written = json.dumps([tool, version, arguments, bound], sort_keys=True, default=repr)
    return hashlib.sha256(written.encode()).hexdigest()


def _tool_reply(value: Any) -> tuple[str, tuple[Image, ...]]:
    parts = value if isinstance(value, tuple) and not hasattr(value, "_fields") else (value,)
    images = tuple(part for part in parts if isinstance(part, Image))
    plain_parts = [part for part in parts if not isinstance(part, Image)]
    texts = [
        part if isinstance(part, str) else json.dumps(part, default=_plain_value, allow_nan=True)
        for part in plain_parts
    ]
    text = "\n".join(texts)
    if not text and images:
        text = "One image." if len(images) == 1 else f"{len(images)} images."
    if len(text) > LONGEST_RESULT:
        text = f"{text[:LONGEST_RESULT]}\n[{len(text) - LONGEST_RESULT} further characters are left out]"
    return text, images


def _plain_value(value: Any) -> Any:
    """A number or list of NumPy or torch as JSON has it."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "_asdict"):
        return value._asdict()
    return str(value)


def _import_tool(name: str, given: Any) -> Callable[..., Any]:
    if callable(given):
        return given  # type: ignore[no-any-return]
    module, dot, attribute = str(given).rpartition(".")
    if not dot:
        raise UsageError(f"tool {name!r}: {given!r} is no function; name one such as my_tools.measure")
    try:
        imported = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"tool {name!r}: there is no {given} ({error}); it must lie where Python looks") from error
    return imported  # type: ignore[no-any-return]


def _of_function(name: str, function: Callable[..., Any], settings: Mapping[str, Any]) -> Tool:
    """Tool of a function, or of a class built by settings."""
    version = _source_digest(function, settings)
    if inspect.isclass(function):
        tool: Any = function(**settings)
        doc = inspect.getdoc(tool.__call__) or inspect.getdoc(function) or ""
        called, settings = tool.__call__, {}
        if looked_into := getattr(tool, "version", ""):  # what it looks into decides, and not where that lies
            version = _source_digest(function, {"version": looked_into})
    else:
        called, doc = function, inspect.getdoc(function) or ""
    accepted = inspect.signature(called).parameters
    if strange := settings.keys() - accepted.keys():
        raise UsageError(f"tool {name!r}: {function.__name__} takes no {', '.join(sorted(strange))}")
    try:
        hints = get_type_hints(called)
    except NameError:
        hints = {}
    descriptions = _told_arguments(doc)
    properties, needed = {}, []
    for key, parameter in accepted.items():
        if key in (*BOUND, *settings) or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        properties[key] = schema_of(hints.get(key)) | (
            {"description": descriptions[key]} if key in descriptions else {}
        )
        if parameter.default is parameter.empty:
            needed.append(key)
        elif isinstance(parameter.default, str | int | float | bool):
            properties[key]["default"] = parameter.default
    parameters = {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
    bound = tuple(key for key in BOUND if key in accepted)
    function_of_model = _Partial(called, dict(settings)) if settings else called
    return Tool(name, function_of_model, doc.split("\n\n")[0].replace("\n", " "), parameters, bound, version)


@dataclass(frozen=True)
class _Partial:
    function: Callable[..., Any]
    settings: Mapping[str, Any]

    def __call__(self, **arguments: Any) -> Any:
        return self.function(**arguments, **self.settings)


def _source_digest(function: Callable[..., Any], settings: Mapping[str, Any]) -> str:
    """Digest of a function's source without comments, and settings."""
    try:
        source = ast.dump(ast.parse(textwrap.dedent(inspect.getsource(function))))
    except (OSError, TypeError, SyntaxError):
        source = getattr(function, "__qualname__", repr(type(function)))
    written = json.dumps([source, dict(settings)], sort_keys=True, default=str)
    return hashlib.sha256(written.encode()).hexdigest()[:12]


def _told_arguments(doc: str) -> dict[str, str]:
    """Descriptions in the section `Args:` of a docstring, by argument."""
    _, marker, after = doc.partition("Args:\n")
    descriptions: dict[str, str] = {}
    name = ""
    for line in after.splitlines() if marker else ():
        if line.strip() and not line.startswith(" "):
            break
        if heading := re.match(r"    (\w+)(?: \(.*?\))?: (.*)", line):
            name, descriptions[heading[1]] = heading[1], heading[2].strip()
        elif name and line.strip():
            descriptions[name] += f" {line.strip()}"
    return descriptions
