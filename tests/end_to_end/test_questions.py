"""Questions, asked by the program as its users run it: killed and resumed, failing, with baselines and blind."""

import json
import re

import pandas as pd
import pytest
from PIL import Image

pytestmark = pytest.mark.slow

TASK = """
_target_: medimg_eval.tasks.QuestionTask
name: quiz
title: Quiz
layout:
  _target_: medimg_eval.data.layouts.Questions
  root: {root}
  records: {{test: test.json}}
  id: id
  kind: choice
  question: question
  options: {{columns: [A, B, C, D]}}
  answer: {{letter: answer}}
  images: "{{image}}"
template: {{user: "{{question}}\\n{{options}}\\nAnswer with the option's letter."}}
splits: {{test: test}}
card: {{description: A quiz., download: copy it from the teacher, access: open}}
"""


@pytest.fixture
def quiz(tmp_path):
    """Writes a quiz of so many questions with its config; returns the words that name it."""

    def write(number, **changes):
        data, conf = tmp_path / "data", tmp_path / "conf" / "task"
        for folder in (data, conf):
            folder.mkdir(parents=True, exist_ok=True)
        for n in range(number):
            Image.new("RGB", (32, 32), (n % 256, 30, 30)).save(data / f"{n}.png")
        records = [
            {"id": f"q{n}", "question": f"What is {n}?", "answer": "ABCD"[n % 4], "image": f"{n}.png"}
            | {letter: f"{letter.lower()} {n}" for letter in "ABCD"}
            for n in range(number)
        ]
        for place, change in changes.items():
            records[int(place.removeprefix("q"))] |= change
        (data / "test.json").write_text(json.dumps(records))
        (conf / "quiz.yaml").write_text(TASK.format(root=data))
        return ["--config-dir", str(tmp_path / "conf"), "task=quiz", "trainer.accelerator=cpu"]

    return write


def one_run(folder):
    (manifest,) = folder.rglob("manifest.json")
    return manifest.parent


@pytest.mark.parametrize("batch", [8])
def test_killed_at_question_150_of_200_it_goes_on_and_ends_as_if_nothing_had_happened(program, quiz, tmp_path, batch):
    words = ["test", *quiz(200), "model._target_=asking.Killed", "+model.at=150", f"+model.batch={batch}"]
    log = tmp_path / "asked"
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    for place in (killed, whole):
        place.mkdir()
    first = program(*words, f"+model.log={log}", cwd=killed)
    assert first.returncode == -9
    again = program(*words, f"+model.log={log}", cwd=killed)
    assert again.returncode == 0, again.stderr
    assert len(log.read_text().split()) <= 200 + batch
    uninterrupted = program(*words, f"+model.log={log}", cwd=whole)
    assert uninterrupted.returncode == 0, uninterrupted.stderr
    # The footnote on the harness's share of the time is there on slow machines alone.
    share = re.compile(r" ?Quiz, Killed: harness overhead [\d.]+ % of [\d,]+ s\.")
    numbers = [share.sub("", " ".join(out.stdout.split())) for out in (again, uninterrupted)]
    assert numbers[0] == numbers[1]
    assert "0.250" in numbers[0]
    files = [one_run(place) / "scores.parquet" for place in (killed, whole)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_model_that_fails_and_records_that_are_wrong_are_named_and_the_rest_is_scored(program, quiz, tmp_path):
    wrong = {
        "q1": {"answer": "E"},
        "q2": {"image": "lost.png"},
        "q3": {"id": "q0"},
    }
    words = ["test", *quiz(8, **wrong), "model._target_=asking.Says", "+model.fails_on=[q5]"]
    ended = program(*words)
    assert ended.returncode == 1
    for case, said in {"q1": "'E'", "q2": "lost.png", "q5": "no answer to q5"}.items():
        assert re.search(rf"{case}.*{re.escape(said)}", ended.stderr + ended.stdout), (case, ended.stderr)
    assert "test.json" in ended.stderr
    scores = pd.read_parquet(one_run(tmp_path / "runs") / "scores.parquet").query("metric == 'accuracy'")
    assert len(scores) == 8
    assert scores.set_index("case")["value"].to_dict()["q4"] == 1
    checked = program("check", *quiz(8, **wrong)[:-1])
    assert checked.returncode == 1
    assert "lost.png" in checked.stdout
    assert "copy it from the teacher" in checked.stdout


def test_baselines_stand_beside_the_score_with_the_exact_chance(program, quiz, tmp_path):
    said = program("test", *quiz(8), "model._target_=asking.Says", "baselines=true")
    assert said.returncode == 0, said.stderr
    for line in ("Chance", "Longest option", r"Says \(blind\)"):
        assert re.search(rf"{line}.*0\.\d", said.stdout), line
    assert re.search(r"Chance.*0\.250", said.stdout)
    assert "Majority answer is left out of task quiz" in said.stderr  # it would learn from the test cases


def test_gibberish_is_worth_nothing_where_chance_is_a_quarter(program, quiz):
    said = program("test", *quiz(400), "model._target_=asking.Gibberish")
    assert said.returncode == 0, said.stderr
    accuracy = float(re.search(r"Gibberish[^0-9]*([0-9.]+)", said.stdout)[1])
    assert accuracy < 0.03
    assert "chance 25.0 %" in said.stdout
