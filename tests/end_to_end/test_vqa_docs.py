"""docs/evaluate/vqa.md: the model of one's own that it shows is short, runs, and answers as the wrapper does."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image

import medimg_eval
from medimg_eval.commands import COMMANDS
from tests.end_to_end.test_questions import TASK, one_run
from tests.helpers import tiny_vlm

TEXT = (Path(medimg_eval.__file__).parents[1] / "docs" / "evaluate" / "vqa.md").read_text()
(SOURCE,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def test_its_commands_are_commands():
    assert set(re.findall(r"python -m medimg_eval (\w+)", TEXT)) <= set(COMMANDS)


@pytest.mark.slow
def test_a_model_of_ones_own_takes_30_lines_and_answers_as_the_wrapper_does(program, tmp_path):
    assert len([line for line in SOURCE.splitlines() if line.strip()]) <= 30
    (tmp_path / "my_vlm.py").write_text(SOURCE)
    tiny_vlm.save(tmp_path / "tiny")
    conf, data = tmp_path / "conf" / "task", tmp_path / "data"
    for folder in (conf, data):
        folder.mkdir(parents=True)
    (conf / "quiz.yaml").write_text(TASK.format(root=data))
    records = []
    for n in range(6):
        Image.new("RGB", (56, 56), (40 * n, 90, 10)).save(data / f"{n}.png")
        options = {letter: f"{letter.lower()} {n}" for letter in "ABCD"}
        records.append(
            {"id": f"q{n}", "question": f"What is {'very ' * n}{n}?", "answer": "A", "image": f"{n}.png"} | options
        )
    (data / "test.json").write_text(json.dumps(records))
    words = ["test", "--config-dir", str(tmp_path / "conf"), "task=quiz", "trainer.accelerator=cpu"]
    words += ["task.decoding.max_new_tokens=12"]
    own = ["model._target_=my_vlm.MyVLM", f"+model.checkpoint={tmp_path / 'tiny'}"]
    theirs = ["model=huggingface_vlm", f"model.checkpoint={tmp_path / 'tiny'}", "model.name=Wrapper"]
    answers = []
    for place, model in (("own", own), ("theirs", theirs)):
        said = program(*words, *model, f"runs={tmp_path / place}", paths=[tmp_path])
        assert said.returncode == 0, said.stderr
        lines = (one_run(tmp_path / place) / "predictions-0.jsonl").read_text().splitlines()
        answers.append({line["case"]: line["answer"]["texts"] for line in map(json.loads, lines)})
    assert len(answers[0]) == 6
    assert answers[0] == answers[1]
