"""3D-RAD's released questions, and its count of right choices beside ours."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.vqa.m3d import m3d_letter_said
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import task

pytestmark = pytest.mark.slow

REPOSITORY = "Tang-xiaoxiao/3D-RAD"


@pytest.mark.parametrize(
    ("name", "count"), [("rad_3d_open", 4_692), ("rad_3d_existence", 23_472), ("rad_3d_temporal", 5_746)]
)
def test_all_released_questions_are_read(name, count):
    cases = task(name, require_clone(REPOSITORY)).cases("test")
    assert len(cases) == len({case.id for case in cases}) == count
    assert all(case.question.text.strip() for case in cases)
    right = [case.target.read().value for case in cases]
    if name == "rad_3d_open":
        assert all(right)
    else:
        assert {letter in case.question.options for letter, case in zip(right, cases, strict=True)} == {True}


def test_right_choices_are_counted_as_by_its_script(tmp_path, monkeypatch):
    clone = require_clone(REPOSITORY)
    cases = task("rad_3d_temporal", clone).cases("test")
    static = [case for case in cases if case.attributes["task"] == "Task5_Static_Temporal_Diagnosis"]
    aspects = sorted({case.attributes["aspect"] for case in static})
    rng = np.random.default_rng(0)
    kept = [
        case
        for aspect in aspects
        for case in [c for c in static if c.attributes["aspect"] == aspect][: rng.integers(5, 30)]
    ]
    replies = [rng.choice(["A", "B. x", "A. or C.", "C.", "D. No", "(B)"]) for _ in kept]
    monkeypatch.chdir(tmp_path)
    ours: dict[str, list[float]] = {}
    rows: dict[str, list[int]] = {}
    for case, reply in zip(kept, replies, strict=True):
        answer = case.target.read().value
        pair = AnsweredQuestion(kind="choice", output=reply, value=answer, options=case.question.options)
        ours.setdefault(case.attributes["aspect"], []).append(m3d_letter_said(pair))
        rows.setdefault(case.attributes["aspect"], []).append(int(f"{answer}." in reply))  # eval_3DRAD.py, line 123
    for aspect, correct in rows.items():
        (tmp_path / "results/task5" / aspect).mkdir(parents=True)
        pd.DataFrame({"Correct": correct}).to_csv(tmp_path / "results/task5" / aspect / "eval_close_vqa.csv")
    given = {"np": np, "pd": pd, "json": json, "os": os, "evaluate": SimpleNamespace(), "path_dir": "results"}
    script = load_functions(
        clone / "evaluate_result.py", "TASK", "evaluate_close_subtask", "evaluate_close_task", **given
    )
    script["TASK"]["task5"] = list(rows)
    script["evaluate_close_task"]("task5")
    (result,) = (tmp_path / "results/task5").glob("result.json")
    assert json.loads(result.read_text())["accuracy"] == pytest.approx(np.mean([np.mean(v) for v in ours.values()]))
