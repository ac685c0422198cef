"""Budgets and calls of tools: by hand, and what holds for any trace."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics import get, parse
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.traces import lcs_length, same_arguments, shared_calls

NAMES = st.lists(st.sampled_from(["segment", "measure", "lookup"]), max_size=6)


def model(calls=(), **usage):
    return {"kind": "model", "text": "", "calls": list(calls), "finish": "stop", "usage": usage}


def tool(name, error="", **arguments):
    failed = {"error": {"type": error, "message": ""}} if error else {}
    return {"kind": "tool", "name": name, "arguments": arguments, "result": "", **failed}


def pair(*steps, output="A", right="A", stop="answer", turns=(), **more):
    trace = (*steps, {"kind": "stop", "reason": stop}) if steps else ()
    options = {"A": "a", "B": "b"}
    return AnsweredQuestion("choice", output, right, options=options, more=more, trace=trace, turns=turns)


def value(name, answered):
    found, parameter = parse(name)
    return found.function(answered) if parameter is None else found.function(answered, parameter)


# The worked case of the page on traces.
WORKED = pair(
    tool("segment", target="liver"),
    tool("segment", target="liver"),
    tool("measure", target="liver", kind="volume"),
    tool("foo", "unknown_tool"),
    model(),
    tools=["segment", "measure", "lookup"],
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tool_precision", 2 / 4),
        ("tool_recall", 2 / 3),
        ("tool_f1", 4 / 7),
        ("tool_order", 2 / 3),
        ("redundant_call_rate", 1 / 4),
        ("valid_call_rate", 3 / 4),
        ("tool_error_rate", 0),
        ("over_call", 1),
        ("under_call", 0),
        ("tool_calls", 4),
        ("model_steps", 1),
        ("protocol_failure", 0),
        ("recovery", 1),  # a call failed, and the answer is right
        ("argument_accuracy", math.nan),  # the reference holds none
    ],
)
def test_the_worked_case(name, expected):
    assert value(name, WORKED) == pytest.approx(expected, nan_ok=True)


def test_a_call_that_is_due_twice_is_due_twice():
    # GTA's end-to-end rule would give a precision of 2 here.
    twice = pair(tool("segment"), model(), tools=["segment", "segment"])
    assert [value(name, twice) for name in ("tool_precision", "tool_recall", "under_call")] == [1, 0.5, 1]
    once = pair(tool("segment"), tool("segment"), model(), tool_set=["segment"])
    assert [value(name, once) for name in ("tool_precision", "tool_recall", "over_call")] == [1, 1, 0]
    assert math.isnan(value("tool_order", once))


@pytest.mark.parametrize(
    ("steps", "due", "precision", "recall", "f1"),
    [
        ((model(),), [], 1, 1, 1),
        ((model(),), ["f"], 0, 0, 0),
        ((tool("f"), model()), [], 0, 1, 0),
    ],
)
def test_nothing_called_or_nothing_due(steps, due, precision, recall, f1):
    answered = pair(*steps, tools=due)
    assert [value(name, answered) for name in ("tool_precision", "tool_recall", "tool_f1")] == [precision, recall, f1]


def test_arguments_are_compared_by_what_they_are():
    due = [{"name": "f", "arguments": {"x": 1, "file": "a.png"}}, {"name": "f", "arguments": {"x": 2}}, {"name": "g"}]
    made = (tool("f", x=1.0, file="/data/A.PNG"), tool("g"), tool("f", x=3), model())
    assert value("argument_accuracy", pair(*made, tools=due)) == 0.5
    assert same_arguments([1, "Liver "], (1 + 1e-9, "liver"))
    assert not same_arguments(True, 1)
    assert not same_arguments({"x": 1}, {"x": 1, "y": 2})


def test_without_a_trace_or_a_reference_there_is_nothing_to_say():
    for name in ("tool_precision", "tool_calls", "protocol_failure", "valid_call_rate", "recovery"):
        assert math.isnan(value(name, pair(tools=["f"])))
    assert math.isnan(value("tool_recall", pair(tool("f"), model())))


def test_a_limit_is_a_failure_of_the_protocol():
    assert [value("protocol_failure", pair(model(), stop=stop)) for stop in ("answer", "turns", "length")] == [0, 1, 1]


def test_tokens_and_seconds_add_up_over_steps_and_are_not_known_where_one_is_not():
    steps = (model(output=10, seconds=1.5), tool("f"), model(output=5, seconds=0.5))
    assert (value("output_tokens", pair(*steps)), value("answer_seconds", pair(*steps))) == (15, 2)
    assert math.isnan(value("output_tokens", pair(model(output=10), model())))
    assert math.isnan(value("answer_cost", pair(*steps)))
    assert math.isnan(value("output_tokens", pair()))


@pytest.mark.parametrize(
    ("turn", "output", "whole", "thought"),
    [
        ({"finish": "stop"}, "A", 0, 0),
        ({"finish": "length"}, "<think>so", 1, 1),
        ({"finish": "length"}, "<think>so</think>It is", 1, 0),
        ({"finish": "length", "thought": "so"}, "", 1, 1),
        ({"finish": "length", "thought": "so"}, "It is", 1, 0),
        ({}, "A", math.nan, math.nan),
    ],
)
def test_what_was_cut_off(turn, output, whole, thought):
    answered = pair(output=output, turns=[turn])
    assert value("truncated", answered) == pytest.approx(whole, nan_ok=True)
    assert value("thought_truncated", answered) == pytest.approx(thought, nan_ok=True)


def test_what_is_right_within_a_budget():
    right = pair(turns=[{"usage": {"output": 100, "seconds": 2, "cost": 0.1}}])
    assert [value(f"right_within_tokens@{most}", right) for most in (99, 100)] == [0, 1]
    assert [value(f"right_within_seconds@{most}", right) for most in (1, 3)] == [0, 1]
    assert [value(f"right_within_cost@{most}", right) for most in (0.05, 0.2)] == [0, 1]
    assert value("right_within_tokens@100", pair(right="B", turns=right.turns)) == 0
    assert math.isnan(value("right_within_tokens@100", pair()))


def test_tokens_per_right_answer_are_a_ratio_of_sums():
    from numpy import array

    per_right = get("tokens_per_right").total
    assert per_right(array([300.0, 2.0])) == 150
    assert per_right(array([300.0, 0.0])) == math.inf
    assert math.isnan(per_right(array([0.0, 2.0])))


@settings(deadline=None)
@given(NAMES, NAMES)
def test_shares_lie_between_0_and_1_and_f1_between_precision_and_recall(made, due):
    answered = pair(*map(tool, made), model(), tools=due)
    precision, recall, f1 = (value(name, answered) for name in ("tool_precision", "tool_recall", "tool_f1"))
    assert 0 <= min(precision, recall) <= 1
    if made and due:
        assert min(precision, recall) - 1e-9 <= f1 <= max(precision, recall) + 1e-9
    assert lcs_length(made, due) <= shared_calls(made, due)
    assert shared_calls(made, due) == shared_calls(due, made)
    assert lcs_length(made, made) == len(made)
