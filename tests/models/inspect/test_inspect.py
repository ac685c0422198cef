"""Inspect's agents as models of ours, our tasks as its own, and its log of them read again; skipped without inspect."""

import sys
import types

import pytest
from agent_tools import Scripted
from asking import Quiz

import medimg_eval as me
from medimg_eval.errors import UsageError
from medimg_eval.models import InspectAgent
from medimg_eval.tasks import QuestionTask
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
