"""Steps of sessions as inspect keeps them: messages with calls of tools, and events of models, tools and agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from medimg_eval.errors import import_optional
from medimg_eval.metrics.answers import split_thought

Step = Mapping[str, Any]

FINISHES = {"length": "max_tokens", "calls": "tool_calls", "filter": "content_filter"}
"""Why replies end, in our words -> in inspect's; anything else is a stop."""

LIMITS = {"turns": "turn", "tokens": "token", "seconds": "time", "cost": "cost", "message": "message"}
"""Why sessions end, in our words -> in inspect's; `calls` and `repeated` are none of its own."""

ENDS = ("answer", "length", "empty")
"""Ends of sessions that are no limit."""

ERRORS = ("parsing", "timeout", "permission", "file_not_found", "is_a_directory", "limit", "approval", "unknown")
"""Kinds of errors that inspect has too; any other is `unknown`, with our kind in the message."""


def session_messages(question: str, steps: Sequence[Step]) -> list[Any]:
    """Messages of a session: the question, then replies with their calls, and results of tools."""
    library, tools = import_optional("inspect_ai.model"), import_optional("inspect_ai.tool")
    messages: list[Any] = [library.ChatMessageUser(content=question)]
    for step in steps:
        if step["kind"] == "model":
            messages.append(_model_message(step))
        elif step["kind"] == "tool":
            error = _tool_error(step)
            messages.append(
                library.ChatMessageTool(
                    content=str(step.get("result", "")),
                    function=str(step["name"]),
                    tool_call_id=str(step.get("call_id", "")),
                    error=tools.ToolCallError(**error) if error else None,
                )
            )
        elif step["kind"] == "user":
            messages.append(library.ChatMessageUser(content=str(step["text"])))
    return messages


def session_events(model: str, question: str, steps: Sequence[Step]) -> list[Any]:
    """Events of a session: replies of models with what they had read, calls of tools, and spans of agents."""
    events, agent = import_optional("inspect_ai.event"), ""
    library, tools = import_optional("inspect_ai.model"), import_optional("inspect_ai.tool")
    messages, written, began, open_span = session_messages(question, steps), [], 0.0, ""
    before = 1  # the question
    for number, step in enumerate(steps):
        if step["kind"] not in ("model", "tool", "user"):
            continue
        seconds = _step_seconds(step)
        if (name := str(step.get("agent", ""))) != agent:
            written += [events.SpanEndEvent(id=open_span)] if open_span else []
            agent, open_span = name, f"{name}-{number}" if name else ""
            written += [events.SpanBeginEvent(id=open_span, name=name, type="agent")] if open_span else []
        timed = {"working_start": began, "working_time": seconds, "span_id": open_span or None}
        if step["kind"] == "model":
            written.append(
                events.ModelEvent(
                    model=model,
                    input=messages[:before],
                    tools=[],
                    tool_choice="auto",
                    config=library.GenerateConfig(),
                    output=_model_output(model, step, seconds),
                    metadata={"offered": step["offered"]} if step.get("offered") else None,
                    **timed,
                )
            )
        elif step["kind"] == "tool":
            error = _tool_error(step)
            written.append(
                events.ToolEvent(
                    id=str(step.get("call_id") or f"call_{number}"),
                    function=str(step["name"]),
                    arguments=dict(step.get("arguments") or {}),
                    result=str(step.get("result", "")),
                    error=tools.ToolCallError(**error) if error else None,
                    metadata={"version": step["version"]} if step.get("version") else None,
                    **timed,
                )
            )
        began += seconds or 0.0
        before += 1
    return [*written, *([events.SpanEndEvent(id=open_span)] if open_span else [])]


def session_limit(steps: Sequence[Step]) -> tuple[str, str] | None:
    """Inspect's name of the limit that ended a session, and ours; None where no limit did."""
    reasons = [str(step["reason"]) for step in steps if step["kind"] == "stop"]
    if not reasons or reasons[-1] in ENDS:
        return None
    return LIMITS.get(reasons[-1], "custom"), reasons[-1]


def total_usage(steps: Sequence[Step]) -> dict[str, Any] | None:
    """Tokens of all replies, as inspect counts them, without cached ones; None if unreported."""
    usages = [usage for step in steps if step["kind"] == "model" and (usage := step.get("usage"))]
    if not any(usage.get(name) is not None for usage in usages for name in ("input", "output")):
        return None
    return _usage_fields({name: _sum_of(usages, name) for name in ("input", "cached", "output", "thought", "cost")})


def _sum_of(usages: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [usage[name] for usage in usages if usage.get(name) is not None]
    return sum(values) if values else None


def _usage_fields(usage: Mapping[str, Any]) -> dict[str, Any]:
    cached = usage.get("cached") or 0
    read, output = (usage.get("input") or 0) - cached, usage.get("output") or 0
    fields = {"input_tokens": read, "output_tokens": output, "total_tokens": read + cached + output}
    optional = {
        "input_tokens_cache_read": usage.get("cached"),
        "reasoning_tokens": usage.get("thought"),
        "total_cost": usage.get("cost"),
    }
    return fields | {name: value for name, value in optional.items() if value is not None}


def _model_message(step: Step) -> Any:
    """A reply as a message: what was thought apart from the answer, and its calls."""
    library, tools = import_optional("inspect_ai.model"), import_optional("inspect_ai.tool")
    calls = [
        tools.ToolCall(
            id=str(call.get("id", "")),
            function=str(call["name"]),
            arguments=dict(call.get("arguments") or {}),
            parse_error=call.get("error") or None,
        )
        for call in step.get("calls") or ()
    ]
    text = str(step.get("answer", step.get("text", "")))
    thought = step.get("thought") or split_thought(str(step.get("text", ""))).thought
    content = [library.ContentReasoning(reasoning=str(thought)), library.ContentText(text=text)] if thought else text
    return library.ChatMessageAssistant(content=content, tool_calls=calls or None, source="generate")


def _model_output(model: str, step: Step, seconds: float | None) -> Any:
    library = import_optional("inspect_ai.model")
    usage = step.get("usage") or {}
    told = any(usage.get(name) is not None for name in ("input", "output"))
    finish = "calls" if step.get("calls") else str(step.get("finish") or "stop")
    choice = library.ChatCompletionChoice(message=_model_message(step), stop_reason=FINISHES.get(finish, "stop"))
    return library.ModelOutput(
        model=model,
        choices=[choice],
        usage=library.ModelUsage(**_usage_fields(usage)) if told else None,
        time=seconds,
    )


def _step_seconds(step: Step) -> float | None:
    seconds = step.get("seconds") if step["kind"] == "tool" else (step.get("usage") or {}).get("seconds")
    return None if seconds is None else float(seconds)


def _tool_error(step: Step) -> dict[str, str]:
    """Inspect's `{type, message}` of a call that failed; empty of one that did not."""
    error = step.get("error")
    if not error:
        return {}
    kind, message = str(error["type"]), str(error["message"])
    return (
        {"type": kind, "message": message} if kind in ERRORS else {"type": "unknown", "message": f"{kind}: {message}"}
    )
