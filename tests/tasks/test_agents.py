"""Sessions with tools: every limit, every fault of a call, and a kill at every step."""

import json
import subprocess
import sys
import time

import pytest
from agent_tools import Scripted, ask, crop, measure, sleep, timeless
from asking import Quiz

from medimg_eval.errors import UsageError
from medimg_eval.question import Turn
from medimg_eval.tasks import AgentQuestionTask
from medimg_eval.tools.journal import StepJournal
from medimg_eval.tools.protocols import PROTOCOLS

LIVER = '<tool_call>{"name": "measure", "arguments": {"structure": "liver"}}</tool_call>'
MOON = '<tool_call>{"name": "measure", "arguments": {"structure": "moon"}}</tool_call>'
METRICS = ["accuracy", "tool_calls", "model_steps"]


def agent(number=1, tools=None, **settings):
    items = [{"id": f"q{n}", "text": "Which?", "options": {"A": "a", "B": "b"}, "right": "A"} for n in range(number)]
    settings = {"metrics": METRICS} | settings
    return AgentQuestionTask(name="agents", layout=Quiz(items), tools=tools or {"measure": measure}, **settings)


def kinds(reply):
    return [step["kind"] for step in reply.trace]


def reason(reply):
    return reply.trace[-1]["reason"]


def test_a_call_is_carried_out_on_the_cases_image_and_its_result_is_told():
    model = Scripted(["<think>Let me see.</think>" + LIVER, "The answer is A."])
    (reply,) = ask(agent(), model)
    assert kinds(reply) == ["model", "tool", "model", "stop"]
    assert reply.trace[1]["result"] == '{"mean": 10.0}'  # the picture holds 10 everywhere
    assert reply.texts == ("The answer is A.",)
    assert reason(reply) == "answer"
    first, second = model.prompts
    told = json.loads(first.messages[0].text.split("<tools>\n")[1].split("\n")[0])["function"]
    assert list(told["parameters"]["properties"]) == ["structure", "scale"]  # the image is the harness's to give
    assert second.messages[-1].text == '<tool_response>\n{"mean": 10.0}\n</tool_response>'
    assert "Let me see" not in second.messages[-2].text  # earlier thinking is not shown


def test_earlier_thinking_is_shown_where_that_is_asked_for():
    model = Scripted(["<think>Let me see.</think>" + LIVER, "A"])
    ask(agent(thoughts_in_history="all"), model)
    assert "Let me see" in model.prompts[1].messages[-2].text


def test_an_image_that_a_tool_gives_is_shown_with_its_result():
    model = Scripted(['<tool_call>{"name": "crop", "arguments": {"x": 3}}</tool_call>', "A"])
    ask(agent(tools={"crop": crop}), model)
    shown = model.prompts[1]
    assert [image.array.shape for image in shown.images] == [(3, 8, 8), (3, 3, 3)]
    assert 1 in shown.messages[-1].parts


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ('<tool_call>{"name": "measure", "arg</tool_call>', "parsing", "no JSON"),
        ('<tool_call>{"name": "measure", "arguments": [1]}</tool_call>', "parsing", "no JSON object"),
        ('<tool_call>{"name": "x", "arguments": {}}</tool_call>', "unknown_tool", "there are measure"),
        ('<tool_call>{"name": "measure", "arguments": {}}</tool_call>', "arguments", "structure is missing"),
        (LIVER.replace("liver", "sun"), "arguments", "expected one of liver, moon"),
        (LIVER.replace('"liver"', '"liver", "image": 1'), "arguments", "no argument image"),
        (MOON, "tool", "nothing to be seen"),
    ],
)
def test_a_call_that_fails_is_told_and_the_session_goes_on(said, kind, message):
    (reply,) = ask(agent(), Scripted([said, "A"]))
    assert reply.trace[1]["error"]["type"] == kind
    assert message in reply.trace[1]["result"]
    assert reason(reply) == "answer"


def test_a_tool_that_hangs_fails_alone_and_other_sessions_do_not_wait_for_it():
    script = ['<tool_call>{"name": "sleep", "arguments": {"seconds": 30}}</tool_call>', "A"]
    began = time.monotonic()
    (reply,) = ask(agent(tools={"sleep": {"function": sleep, "timeout_s": 0.05}}), Scripted(script))
    assert reply.trace[1]["error"]["type"] == "timeout"
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("limits", "tokens", "script", "stop", "turns", "calls"),
    [
        ({"turns": 3}, None, [LIVER, MOON, "A"], "answer", 3, 2),  # the last turn answers, as it is told to
        ({"turns": 3}, None, [LIVER, MOON, LIVER], "turns", 3, 3),  # and where it calls again, that is not carried out
        ({"turns": 1}, None, [LIVER], "turns", 1, 1),
        ({"calls": 1}, None, [LIVER, MOON], "calls", 2, 2),
        ({"repeated": 2}, None, [LIVER], "repeated", 3, 3),
        ({"tokens": 15}, 10, ["B " + LIVER, LIVER], "tokens", 2, 2),
        ({"turns": None, "repeated": None, "seconds": 1e-9}, None, [LIVER], "seconds", 1, 1),
    ],
)
def test_each_limit_is_a_reason_of_its_own_to_stop(limits, tokens, script, stop, turns, calls):
    (reply,) = ask(agent(limits=limits), Scripted(script, tokens))
    assert (reason(reply), kinds(reply).count("model"), kinds(reply).count("tool")) == (stop, turns, calls)


def test_at_a_limit_what_was_said_last_is_the_answer():
    (reply,) = ask(agent(limits={"turns": 2}), Scripted(["It is A. " + LIVER, LIVER]))
    assert reply.texts == ("It is A.",)
    assert reply.trace[-2]["error"]["type"] == "withdrawn"
    (reply,) = ask(agent(limits={"turns": 2}), Scripted([LIVER]))
    assert reply.texts == ("",)


def test_the_last_turn_offers_no_tools_and_says_so():
    class Native(Scripted):
        calls_tools = True

    model = Native([LIVER])
    ask(agent(limits={"turns": 1}), model)
    assert model.prompts[0].tools == ()
    assert "no more tools" in model.prompts[0].messages[-1].text


def test_more_calls_than_a_turn_may_make_are_not_carried_out():
    (reply,) = ask(agent(limits={"calls_per_turn": 1}), Scripted([LIVER + MOON, "A"]))
    assert [step.get("error", {}).get("type") for step in reply.trace[1:3]] == [None, "limit"]


def test_sessions_of_a_batch_share_the_models_batches():
    model = Scripted([LIVER, LIVER.replace('"liver"', '"liver", "scale": 2'), "A"])
    replies = ask(agent(number=5), model)
    assert model.sizes == [5, 5, 5]
    assert {reason(reply) for reply in replies} == {"answer"}


def test_recorded_results_are_given_again_and_the_tool_is_not_called(tmp_path):
    made = []

    def count(n: int):
        """Counts."""
        made.append(n)
        return n, crop(Quiz(number=1).cases("test")[0].images[0].read(), 2)[1]

    script = ['<tool_call>{"name": "count", "arguments": {"n": 1}}</tool_call>', "A"]
    settings = {"tools": {"count": count}, "recordings": str(tmp_path)}
    first = ask(agent(**settings, replay="record"), Scripted(script))
    again = ask(agent(**settings, replay="record"), Scripted(script))
    only = ask(agent(**settings, replay="only"), Scripted(script))
    assert made == [1]
    assert timeless(first[0].trace) == timeless(again[0].trace) == timeless(only[0].trace)
    assert first[0].trace[1]["images"]
    script[0] = script[0].replace("1}", "2}")
    (reply,) = ask(agent(**settings, replay="only"), Scripted(script))
    assert reply.trace[1]["error"]["type"] == "not_recorded"


@pytest.mark.parametrize(
    ("name", "text", "answer", "calls"),
    [
        ("hermes", "B", "B", []),
        ("hermes", 'So <tool_call>{"name":"f","arguments":{"x":1}}', "So", [("f", {"x": 1})]),
        ("hermes", '<tool_call>{"name":"f","parameters":{"x":1}}</tool_call>', "", [("f", {"x": 1})]),
        ("hermes", '<tool_call>{"name":"f","arguments":"{\\"x\\":1}"}</tool_call>', "", [("f", {"x": 1})]),
        ("hermes", '<tool_call>{"name":"f"}</tool_call><tool_response>9</tool_response> A', "", [("f", {})]),
        ("react", "Thought: yes\nFinal Answer: B", "B", []),
        ("react", "It is B.", "It is B.", []),
        ("react", 'Thought: so\nAction: f\nAction Input: {"x": 1}', "", [("f", {"x": 1})]),
        ("react", 'Action: f\nAction Input: ```json\n{"x": 1}\n```\nObservation: 9', "", [("f", {"x": 1})]),
        ("react", "Final Answer: B\nAction: f", "B\nAction: f", []),
        ("react", "Action: f\nAction Input: {x", "", [("f", {})]),
    ],
)
def test_text_protocols_read_calls_and_answers(name, text, answer, calls):
    said, found = PROTOCOLS[name].read(text)
    assert (said, [(call.name, call.arguments) for call in found]) == (answer, calls)


def test_settings_that_cannot_be_meant_are_refused():
    for settings, message in [
        ({"limits": {"rounds": 3}}, "rounds"),
        ({"limits": {"turns": 0}}, "above 0"),
        ({"calling": "telepathy"}, "telepathy"),
        ({"replay": "only"}, "task.recordings=DIR"),
        ({"tools": {"a b": measure}}, "letters"),
        ({"tools": {"x": "no_such_module.f"}}, "no_such_module"),
        ({"tools": {"x": {"function": measure, "zoom": 2}}}, "takes no zoom"),
    ]:
        with pytest.raises(UsageError, match=message):
            agent(**settings)
    with pytest.raises(UsageError, match="only in words"):
        ask(agent(calling="native"), Scripted(["A"]))


def test_a_session_of_a_journal_goes_on_after_its_last_step(tmp_path):
    whole = ask(agent(), Scripted([LIVER, LIVER + MOON, "A"]))[0]
    for done in range(len(whole.trace)):
        journal = StepJournal({"q0": whole.trace[:done]})
        (reply,) = ask(agent(), Scripted([LIVER, LIVER + MOON, "A"]), journal)
        assert timeless(reply.as_record()) == timeless(whole.as_record()), f"after {done} steps"
        assert timeless(journal.steps("q0")) == timeless(whole.trace)


def test_turns_keep_what_is_known_of_them():
    (reply,) = ask(agent(), Scripted(["A"], tokens=3))
    assert isinstance(reply.texts[0], Turn)
    record = json.loads(json.dumps(reply.as_record()))
    assert type(reply).from_record(record) == reply
    assert timeless(record["turns"]) == [{"finish": "stop", "usage": {"output": 3}}]


PROGRAM = """
import os, sys
import lightning, pandas, torch  # once for all starts
sys.path[:0] = {path!r}
from agent_tools import Scripted
from asking import Quiz
import medimg_eval as me
from medimg_eval.tasks import AgentQuestionTask
items = [dict(id=f"q{{n}}", text="Which?", options=dict(A="a", B="b"), right="A") for n in range(3)]
def start(folder, kill_at):
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    tools = dict(measure="agent_tools.measure")
    task = AgentQuestionTask(name="t", layout=Quiz(items), tools=tools, metrics={metrics!r})
    model = Scripted({script!r}, kill_at=kill_at, log=folder + "/log")
    me.test(task, model, runs=folder + "/runs", run=folder + "/run")
    os._exit(0)

for kill_at in range(7):
    folder = f"{{sys.argv[1]}}/{{kill_at}}"
    os.makedirs(folder)
    codes = [start(folder, kill_at)] + [start(folder, 0)] * (kill_at > 0)
    assert codes == ([-9, 0] if kill_at else [0]), codes
"""


@pytest.mark.long
def test_a_run_killed_at_any_turn_goes_on_and_ends_alike(tmp_path):
    program = PROGRAM.format(path=sys.path, metrics=METRICS, script=[LIVER, LIVER + MOON, "A"])
    words = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

    def predictions(folder):
        lines = (folder / "run" / "predictions-0.jsonl").read_text().splitlines()
        return timeless([json.loads(line) for line in lines])

    turns = (tmp_path / "0" / "log").stat().st_size
    assert turns == 6  # two batches, of two cases and of one, with three turns each
    for kill_at in range(1, turns + 1):
        folder = tmp_path / str(kill_at)
        assert predictions(folder) == predictions(tmp_path / "0")
        assert (folder / "log").stat().st_size == turns + 1, "a turn that was kept was asked again"
