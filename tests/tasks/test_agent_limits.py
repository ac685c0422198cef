"""Costs, faults of tools by their kind, a kill after every step under every limit, and what a step costs."""

import json
import time

import numpy as np
import pytest
from agent_tools import Scripted, ask, timeless
from asking import Quiz

from medimg_eval.errors import UsageError, UserError
from medimg_eval.question import Turn, Usage
from medimg_eval.tasks import AgentQuestionTask
from medimg_eval.tools.journal import StepJournal

CALL = '<tool_call>{"name": "act", "arguments": {"what": "%s"}}</tool_call>'


def act(what: str):
    """Does what it is told, or fails so."""
    errors = {
        "forbidden": PermissionError("not yours"),
        "lost": FileNotFoundError("no such file"),
        "late": TimeoutError("no result"),
        "broken": ZeroDivisionError("by zero"),
        "full": MemoryError("no memory"),
    }
    if what in errors:
        raise errors[what]
    return {"text": "done", "long": "x" * 20_000, "nothing": None, "number": np.float32(2.5)}[what]


def agent(number=1, **settings):
    items = [{"id": f"q{n}", "text": "Which?", "options": {"A": "a", "B": "b"}, "right": "A"} for n in range(number)]
    settings = {"tools": {"act": act}, "metrics": ["accuracy", "tool_calls"]} | settings
    return AgentQuestionTask(name="agents", layout=Quiz(items), **settings)


@pytest.mark.parametrize(
    ("what", "kind", "told"),
    [
        ("forbidden", "permission", "not yours"),
        ("lost", "file_not_found", "no such file"),
        ("late", "timeout", "no result"),
        ("broken", "tool", "by zero"),
        ("full", "tool", "no memory"),
        ("text", None, "done"),
        ("nothing", None, "null"),
        ("number", None, "2.5"),
        ("long", None, "3616 further characters are left out"),
    ],
)
def test_each_fault_of_a_tool_is_told_by_its_kind(what, kind, told):
    (reply,) = ask(agent(), Scripted([CALL % what, "A"]))
    step = reply.trace[1]
    assert step.get("error", {}).get("type") == kind
    assert told in step["result"]
    assert reply.trace[-1]["reason"] == "answer"


class Paid(Scripted):
    """Each reply costs a half."""

    def generate(self, prompts, decoding):
        return [Turn(text, usage=Usage(cost=0.5)) for text in super().generate(prompts, decoding)]


def test_a_session_ends_when_its_money_is_spent():
    (reply,) = ask(agent(limits={"cost": 1.0, "repeated": None}), Paid(["B " + CALL % "text"]))
    assert (reply.trace[-1]["reason"], reply.text) == ("cost", "B")
    assert sum(step["kind"] == "model" for step in reply.trace) == 2


@pytest.mark.parametrize(
    ("said", "finish", "reason"), [("", "stop", "empty"), ("A and", "length", "length"), ("A", "stop", "answer")]
)
def test_how_a_reply_ended_is_why_the_session_did(said, finish, reason):
    class Ends(Scripted):
        def generate(self, prompts, decoding):
            return [Turn(said, finish=finish)] * len(prompts)

    (reply,) = ask(agent(), Ends([]))
    assert reply.trace[-1]["reason"] == reason


FAULTS = "".join(CALL % fault for fault in ("forbidden", "lost", "late", "broken", "full"))
EVERYTHING = [
    CALL % "text" + CALL % "broken",
    '<tool_call>{"nam',
    CALL.replace("act", "nobody") % "x",
    '<tool_call>{"name": "act", "arguments": {"when": 1}}</tool_call>',
    FAULTS,
    CALL % "long",
    "A",
]
STOPS = {
    "answer": {"turns": None},
    "turns": {"turns": 2},
    "calls": {"calls": 1},
    "repeated": {"turns": None, "repeated": 1},
    "tokens": {"turns": None, "tokens": 7},
    "cost": {"turns": None, "cost": 1.0},
    "seconds": {"turns": None, "seconds": 1e-9},
}


class Counted(Scripted):
    """Each reply has three tokens and costs a half; what is said at a limit is a call."""

    def generate(self, prompts, decoding):
        said = super().generate(prompts, decoding)
        return [Turn(text, usage=Usage(output=3, cost=0.5)) for text in said]


@pytest.mark.parametrize("reason", STOPS)
@pytest.mark.parametrize("more", [{}, {"calls_per_turn": 1}])
def test_for_every_end_a_session_killed_after_any_step_ends_alike(reason, more):
    script = EVERYTHING if reason == "answer" else EVERYTHING[:-1] * 3
    task = agent(number=2, limits=STOPS[reason] | more)
    whole = ask(task, Counted(script))
    assert {reply.trace[-1]["reason"] for reply in whole} == {reason}
    if reason == "answer" and not more:
        kinds = {step["error"]["type"] for step in whole[0].trace if step.get("error")}
        assert kinds == {"tool", "parsing", "unknown_tool", "arguments", "permission", "file_not_found", "timeout"}
    for done in range(max(len(reply.trace) for reply in whole)):
        kept = StepJournal({"q0": whole[0].trace[:done], "q1": whole[1].trace[: done // 2]})
        again = ask(task, Counted(script), kept)
        assert [timeless(reply.as_record()) for reply in again] == [timeless(reply.as_record()) for reply in whole]


def test_what_was_written_of_a_step_that_was_cut_is_done_again(tmp_path):
    lines = tmp_path / "steps.jsonl"

    def write(entries):
        with lines.open("a") as stream:
            stream.writelines(json.dumps(entry) + "\n" for entry in entries)

    task = agent()
    (whole,) = ask(task, Scripted(EVERYTHING), StepJournal(write=write))
    known = [json.loads(line)[1] for line in lines.read_text().splitlines()]
    assert timeless(known) == timeless(list(whole.trace))
    for kept in range(len(known)):
        (again,) = ask(task, Scripted(EVERYTHING), StepJournal({"q0": known[:kept]}))
        assert timeless(again.as_record()) == timeless(whole.as_record())


@pytest.mark.slow
def test_a_thousand_sessions_of_eight_steps_cost_little_beside_model_and_tool(tmp_path):
    script = [CALL % what for what in ("text", "number", "nothing")] + ["A"]  # 4 replies, 3 results and the end
    settings = {"recordings": str(tmp_path), "limits": {"repeated": None}}
    ask(agent(replay="record", **settings), Scripted(script))
    task = agent(number=1000, replay="only", **settings)
    began = time.process_time()
    replies = ask(task, Scripted(script))
    spent = time.process_time() - began
    steps = sum(len(reply.trace) for reply in replies)
    assert steps == 8000
    assert spent / steps < 0.005, f"{1000 * spent / steps:.2f} ms of CPU a step"


def test_a_tool_that_fails_in_every_call_is_told_once(caplog):
    task = agent(number=3)
    ask(task, Scripted([CALL % "broken", "A"]))
    ask(task, Scripted([CALL % "broken", "A"]))
    (told,) = [record.getMessage() for record in caplog.records if "failed in" in record.getMessage()]
    assert told.startswith("tool 'act' failed in 3 of 3 calls, such as of case q0: ZeroDivisionError: by zero")
    caplog.clear()
    ask(agent(number=2), Scripted([CALL % "text", CALL % "broken", "A"]))
    ask(agent(), Scripted([CALL.replace("act", "nobody") % "x", "A"]))
    assert not [record for record in caplog.records if "failed in" in record.getMessage()]


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ({"command": ["echo"]}, "a command needs its `parameters`"),
        ({"command": ["echo"], "parameters": {"type": "object"}, "zoom": 2}, "takes no zoom"),
        ({"function": act, "parameters": {"properties": {"what": {"type": "strng"}}}}, "the type 'strng'"),
        ({"function": act, "parameters": {"properties": {"x": {"items": {"type": ["int"]}}}}}, "the type 'int'"),
    ],
)
def test_tools_that_cannot_be_meant_are_refused(tool, message):
    with pytest.raises(UsageError, match=message):
        agent(tools={"act": tool})


def test_a_program_that_is_not_there_is_named_before_it_is_called():
    task = agent(tools={"act": {"command": ["no_such_program"], "parameters": {"type": "object"}}})
    with pytest.raises(UserError, match="there is no program no_such_program"):
        ask(task, Scripted(["A"]))
