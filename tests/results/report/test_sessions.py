"""Sessions on the page of a case: thoughts, calls, results, errors, and the images that tools gave."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from agent_tools import Scripted
from asking import Quiz
from PIL import Image as Pictures

import medimg_eval as me
from medimg_eval.results import load_runs
from medimg_eval.results.report import by_task
from medimg_eval.results.table.table import named_runs
from medimg_eval.tasks import AgentQuestionTask
from medimg_eval.viewer.scene import CaseView
from medimg_eval.viewer.sessions import list_steps

CROP = '<think>Closer.</think><tool_call>{"name": "crop", "arguments": {"x": 3}}</tool_call>'
MOON = '<tool_call>{"name": "measure", "arguments": {"structure": "moon"}}</tool_call>'


@pytest.mark.slow
def test_each_step_of_a_session_and_the_images_of_its_tools_are_shown(tmp_path):
    items = [{"id": "q0", "text": "Which?", "options": {"A": "a", "B": "b"}, "right": "A"}]
    task = AgentQuestionTask(
        name="agents", layout=Quiz(items), tools={"crop": "agent_tools.crop", "measure": "agent_tools.measure"}
    )
    me.test(task, Scripted([CROP, MOON, "It is A."], tokens=7), runs=tmp_path / "runs", run=tmp_path / "runs" / "r")
    runs = load_runs([tmp_path / "runs"])
    (cases,) = by_task(runs, named_runs(runs))
    view = CaseView(task, cases.runs)
    (answer,) = view.texts("q0")["answers"]
    steps = answer["session"]
    assert [step["kind"] for step in steps] == ["model", "tool", "model", "tool", "model", "stop"]
    assert (steps[0]["thought"], steps[0]["calls"], steps[0]["text"]) == ("Closer.", ['crop({"x": 3})'], "")
    assert (steps[1]["name"], steps[1]["arguments"], steps[1]["text"]) == ("crop", '{"x": 3}', "a part")
    assert steps[3]["error"] == "tool"
    assert (steps[4]["text"], steps[4]["usage"]["output"], steps[5]["text"]) == ("It is A.", 7, "answer")
    scene = view.scene("q0", tmp_path / "scene")
    assert not scene["problems"]
    (file,) = scene["sessions"][0].values()
    assert list(scene["sessions"][0]) == steps[1]["images"]
    assert np.asarray(Pictures.open(tmp_path / "scene" / file)).shape == (3, 3, 3)


def test_turns_are_steps_where_there_are_several_or_a_thought():
    assert list_steps({"texts": ["B"], "turns": [{"finish": "stop"}]}) == []
    assert list_steps({"texts": ["B"]}) == []
    (step,) = list_steps({"texts": ["B"], "turns": [{"thought": "Air."}]})
    assert (step["thought"], step["text"]) == ("Air.", "B")
    assert [step["text"] for step in list_steps({"texts": ["It is large.", "B"], "turns": [{}, {}]})] == [
        "It is large.",
        "B",
    ]


PAGE = """
const fs = require("fs");
const report = { h: (tag, attributes, ...inner) => ({ tag, attributes, inner: inner.flat(9).filter(Boolean) }) };
const sessions = eval(fs.readFileSync(process.argv[1], "utf8").replace('"use strict";', "") + "; sessions");
const shown = sessions.card(["M"], JSON.parse(process.argv[2]), [{ a: "step.png" }], "c/");
console.log(JSON.stringify([shown, sessions.card(["M"], [undefined], null, "c/")]));
"""


@pytest.mark.skipif(not shutil.which("node"), reason="node is not here")
def test_the_page_draws_steps_as_text_and_images_by_their_file():
    script = Path(me.__file__).parent / "results" / "report" / "static" / "sessions.js"
    steps = [[{"number": 1, "kind": "tool", "name": "crop", "text": "<b>x</b>", "images": ["a", "b"], "error": "tool"}]]
    done = subprocess.run(
        ["node", "-e", PAGE, str(script), json.dumps(steps)], capture_output=True, text=True, check=True
    )
    shown, empty = json.loads(done.stdout)
    written = json.dumps(shown)
    assert '"src": "c/step.png"' in written
    assert "<b>x</b>" in written  # as text, for `h` makes text nodes of strings
    assert "which was not drawn" in written
    assert empty == []
