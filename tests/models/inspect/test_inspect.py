"""Inspect's agents as models of ours, our tasks as its own, and its log of them read again; skipped without inspect."""

import sys
import types

import pytest
from agent_tools import Scripted
from asking import Quiz

import medimg_eval as me
from medimg_eval.errors import UsageError
from medimg_eval.models import InspectAgent
from medimg_eval.tasks import AgentQuestionTask, QuestionTask
from medimg_eval.tasks.questions import TeamQuestionTask
from medimg_eval.tools.lookups import ResultLookup

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of inspect's own
assert ResultLookup


def quiz(number=4, **settings):
    items = [
        {"id": f"q{n}", "text": f"Which is item {n}?", "options": {"A": "a", "B": "b"}, "right": "AB"[n % 2]}
        | {"patient": f"p{n // 2}"}
        for n in range(number)
    ]
    return QuestionTask(name="quiz", layout=Quiz(items), **{"metrics": ["accuracy"]} | settings)


@pytest.fixture
def agents():
    """A module of factories, as a user of inspect writes one."""
    pytest.importorskip("inspect_ai")
    from inspect_ai.agent import react
    from inspect_ai.tool import tool

    @tool
    def look():
        async def execute(side: str) -> str:
            """Looks at a side of the image.

            Args:
                side: which.
            """
            if side == "back":
                raise FileNotFoundError("there is no back")
            return f"the {side} is bright"

        return execute

    module = types.ModuleType("agents_of_inspect")
    module.looking = lambda prompt="Look first.": react(prompt=prompt, tools=[look()], submit=False)
    sys.modules["agents_of_inspect"] = module
    yield "agents_of_inspect.looking"
    del sys.modules["agents_of_inspect"]


LOOK = '<think>Closer.</think><tool_call>{"name": "look", "arguments": {"side": "%s"}}</tool_call>'


def test_an_agent_of_inspect_answers_with_a_model_of_ours_and_its_steps_are_the_trace(agents, tmp_path):
    model = InspectAgent(agents, Scripted([LOOK % "left", LOOK % "back", "The answer is A."], tokens=5, batch=4))
    task = quiz(metrics=["accuracy", "tool_calls", "tool_error_rate", "recovery"])
    run = me.test(task, model, runs=tmp_path)
    assert run.summary.set_index("metric")["value"].to_dict() == pytest.approx(
        {"accuracy": 0.5, "tool_calls": 2.0, "tool_error_rate": 0.5, "recovery": 0.5}
    )
    (reply, *_) = run.predictions.values()
    assert [step["kind"] for step in reply["trace"]] == ["model", "tool", "model", "tool", "model", "stop"]
    assert reply["trace"][1] | {"seconds": 0, "call_id": ""} == {
        "kind": "tool", "name": "look", "call_id": "", "arguments": {"side": "left"},
        "result": "the left is bright", "seconds": 0,
    }  # fmt: skip
    assert reply["trace"][3]["error"]["type"] == "file_not_found"
    assert reply["turns"][0]["usage"]["output"] == 15
    assert model.model.sizes[0] == 4  # sessions that wait are asked together


def test_a_limit_of_inspect_ends_a_session_and_what_was_said_is_scored(agents, tmp_path):
    model = InspectAgent(agents, Scripted([LOOK % "left"]), message_limit=5)
    run = me.test(quiz(2), model, runs=tmp_path)
    assert {reply["trace"][-1]["reason"] for reply in run.predictions.values()} == {"message"}
    assert run.failures.empty


def test_a_session_that_fails_is_a_failure_of_its_case_alone(agents, tmp_path):
    class Fails(Scripted):
        def generate(self, prompts, decoding):
            if any("item 1" in prompt.text for prompt in prompts):
                raise ValueError("cannot")
            return super().generate(prompts, decoding)

    run = me.test(quiz(2), InspectAgent(agents, Fails(["A"])), runs=tmp_path, identity="fails")
    assert list(run.failures["case"]) == ["q1"]
    assert "cannot" in run.failures["message"].iloc[0]


def test_a_factory_that_is_not_there_is_refused():
    for agent, message in [("looking", "such as"), ("no_such_module.x", "no_such_module")]:
        with pytest.raises(UsageError, match=message):
            InspectAgent(agent, "openai/gpt-4o")


def test_what_inspect_scores_of_our_task_is_what_we_score(tmp_path, monkeypatch):
    inspect_ai = pytest.importorskip("inspect_ai")
    from medimg_eval.models.inspect.wrapped import wrapped_model
    from medimg_eval.question import Decoding

    monkeypatch.chdir(tmp_path)
    task = quiz(6, metrics=["accuracy", "unanswered"])
    model = Scripted(["The answer is (A)."])
    made = me.inspect_task(task)
    (log,) = inspect_ai.eval(made, model=wrapped_model(model, Decoding()), log_dir="logs", display="none")
    assert log.status == "success", log.error
    assert [(sample.id, sample.target, sample.metadata["patient"]) for sample in log.samples][:2] == [
        ("q0", ["A"], "p0"), ("q1", ["B"], "p0"),
    ]  # fmt: skip
    assert any(
        part.type == "image" and part.image.startswith("data:image/png;base64,")
        for message in made.dataset[0].input
        for part in message.content
    )
    ours = me.test(task, model, runs="runs").summary.set_index("metric")["value"]
    told = {
        (score.name, name.rpartition("/")[2]): metric.value
        for score in log.results.scores
        for name, metric in score.metrics.items()
    }
    assert {name: value for (name, of), value in told.items() if of == "mean"} == pytest.approx(ours.to_dict())
    assert {value for (_, of), value in told.items() if of == "stderr"} == {0.0}  # each patient is half right
    assert me.inspect_task(task, limit=2).dataset[1].id == "q1"


def test_our_tasks_are_found_by_inspects_entry_point(monkeypatch):
    inspect_ai = pytest.importorskip("inspect_ai")
    from medimg_eval.api import inspect_registry

    asked = []
    made = inspect_ai.Task(dataset=[inspect_ai.dataset.Sample(input="x")])
    monkeypatch.setattr(inspect_registry, "inspect_task", lambda name, limit: asked.append((name, limit)) or made)
    assert isinstance(inspect_registry.medimg_eval("slake", limit=3), inspect_ai.Task)
    assert asked == [("slake", 3)]


CALL = '<tool_call>{"name": "measure", "arguments": {"structure": "%s"}}</tool_call>'


def agent_quiz(**settings):
    items = [
        {"id": f"q{n}", "text": f"Which is item {n}?", "options": {"A": "a", "B": "b"}, "right": "AB"[n % 2]}
        for n in range(3)
    ]
    tools = {"measure": "agent_tools.measure"}
    return AgentQuestionTask(name="sessions", layout=Quiz(items), tools=tools, metrics=["accuracy"], **settings)


def test_exported_sessions_hold_their_messages_events_limits_and_tokens(tmp_path):
    log_module = pytest.importorskip("inspect_ai.log")
    from medimg_eval.exports.replies import export_inspect
    from medimg_eval.models.inspect.messages import steps_of

    script = ["<think>Closer.</think>Let me see. " + CALL % "liver", CALL % "moon", "A"]
    task = agent_quiz(limits={"tokens": 15})
    run = me.test(task, Scripted(script, tokens=5), runs=tmp_path)
    (file,) = export_inspect(run, task, tmp_path / "given")
    sample = log_module.read_eval_log(str(file)).samples[0]
    assert [message.role for message in sample.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    first, result = sample.messages[1:3]
    assert (first.text, first.content[0].reasoning) == ("Let me see.", "Closer.")
    assert (first.tool_calls[0].function, first.tool_calls[0].arguments) == ("measure", {"structure": "liver"})
    assert (result.function, result.text, result.tool_call_id) == ("measure", '{"mean": 10.0}', first.tool_calls[0].id)
    assert sample.messages[4].error.message.startswith("tool: ValueError: nothing to be seen")
    assert [event.event for event in sample.events] == ["model", "tool", "model", "tool", "model"]
    assert sample.events[1].arguments == {"structure": "liver"}
    assert sample.events[0].output.stop_reason == "tool_calls"
    assert [message.role for message in sample.events[2].input] == ["user", "assistant", "tool"]
    assert sample.model_usage[run.manifest["model"]].output_tokens == 15
    ours = [step for step in run.predictions["q0"]["trace"] if step["kind"] != "stop"]
    sample.messages = sample.messages[1:]
    for step, again in zip(ours, steps_of(sample), strict=False):
        assert {key: again[key] for key in ("kind", "answer", "name", "arguments", "result") if key in again} == {
            key: step[key] for key in ("kind", "answer", "name", "arguments", "result") if key in step
        }
    assert sample.limit is None  # the third reply answers


def test_the_limit_that_ended_a_session_is_one_of_inspects(tmp_path):
    log_module = pytest.importorskip("inspect_ai.log")
    from medimg_eval.exports.replies import export_inspect

    for limits, kind, reason in [({"turns": 1}, "turn", "turns"), ({"repeated": 1}, "custom", "repeated")]:
        task = agent_quiz(limits=limits)
        run = me.test(task, Scripted([CALL % "liver"]), runs=tmp_path / reason)
        (file,) = export_inspect(run, task, tmp_path / "given")
        limit = log_module.read_eval_log(str(file)).samples[0].limit
        assert (limit.type, limit.reason) == (kind, reason)


def test_exported_teams_have_a_span_for_each_agent_that_speaks(tmp_path):
    log_module = pytest.importorskip("inspect_ai.log")
    from medimg_eval.exports.replies import export_inspect

    items = [{"id": "q", "text": "Which?", "options": {"A": "a", "B": "b"}, "right": "A"}]
    members = [{"name": "reader", "role": "You read."}, {"name": "doctor", "role": "You treat."}]
    task = TeamQuestionTask(name="team", layout=Quiz(items), members=members, order="in_turn", metrics=["accuracy"])
    run = me.test(task, Scripted(["A"]), runs=tmp_path)
    (file,) = export_inspect(run, task, tmp_path)
    events = log_module.read_eval_log(str(file)).samples[0].events
    assert [event.event for event in events] == ["span_begin", "model", "span_end"] * 2
    assert [event.name for event in events if event.event == "span_begin"] == ["reader", "doctor"]
