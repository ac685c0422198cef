"""3D-RAD's released questions, and its count of right choices beside ours."""

import collections
import json
import math
import os
import re
from functools import lru_cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.text import text_scores
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


def test_open_questions_are_put_as_by_its_loader(tmp_path):
    clone = require_clone(REPOSITORY)
    cases = task("rad_3d_open", clone, protocol="published").cases("test")
    rows = pd.read_csv(clone / "3DRAD/test/Task3_Medical_Computation/Size.csv").head(20)
    rows["QuestionAspect"] = "Size"  # the released files lack it, so their loader would stop at every row
    torch = pytest.importorskip("torch")
    given = {"np": SimpleNamespace(load=lambda path: 0), "torch": torch, "Dataset": object, "random": None}
    script = clone / "M3D/Bench/dataset/multi_dataset.py"
    theirs = object.__new__(load_functions(script, "RADDataset", **given)["RADDataset"])
    numbers = {"input_ids": torch.ones(1, 4, dtype=int), "attention_mask": torch.ones(1, 4, dtype=int)}
    tokens = type("Tokenizer", (), {"pad_token_id": 0, "eos_token_id": 2, "__call__": lambda self, *a, **b: numbers})
    theirs.__dict__ |= {"data_list": rows, "image_tokens": "", "tokenizer": tokens(), "transform": lambda image: image}
    theirs.__dict__ |= {"data_root_df": SimpleNamespace(at={(name, "Path"): "" for name in rows["VolumeName"]})}
    theirs.__dict__ |= {"args": SimpleNamespace(max_length=4), "close_ended": False}
    ours = {case.id: case for case in cases}
    benchmark = task("rad_3d_open", clone, protocol="published")
    for number in range(len(rows)):
        case, asked = ours[f"Task3_Medical_Computation/Size-{number + 1}"], theirs[number]
        (message,) = benchmark.prompt(case, ()).messages
        assert (message.text, case.target.read().value) == (asked["question"].strip(), asked["answer"])


@pytest.mark.parametrize(("theirs", "ours"), [("bleu", "bleu_13a@1"), ("rouge1", "rouge_1")])
def test_open_answers_are_scored_as_by_its_script(theirs, ours, tmp_path, monkeypatch):
    clone = require_clone(REPOSITORY)
    rng = np.random.default_rng(1)
    texts = {}
    for kind in ("Diameter", "Size", "Thickness"):
        rows = pd.read_csv(clone / f"3DRAD/test/Task3_Medical_Computation/{kind}.csv").head(60)
        right = [f"-. {answer}" for answer in rows["Answer"]]
        texts[kind] = [
            [text[: rng.integers(4, 40)] for text in rng.permutation(right[:3] + right)[: len(right)]],
            right,
        ]
        (tmp_path / f"results/task3/{kind}").mkdir(parents=True)
        table = pd.DataFrame(dict(zip(("Pred", "Answer"), texts[kind], strict=True)))
        table.to_csv(tmp_path / f"results/task3/{kind}/eval_open_vqa.csv")
    monkeypatch.chdir(tmp_path)
    scorers = {"bleu": lambda **asked: {"bleu": 0.0}, "rouge": lambda **asked: {"rouge1": 0.0}}
    scorers["bertscore"] = lambda **asked: {"f1": [0.0]}  # its weights are not here
    scorers |= {"bleu": hub_bleu} if theirs == "bleu" else {"rouge": hub_rouge}
    loaded = SimpleNamespace(load=lambda name: SimpleNamespace(compute=scorers[name]))
    given = {"np": np, "pd": pd, "json": json, "evaluate": loaded, "path_dir": "results"}
    names = ("TASK", "evaluate_open_subtask", "evaluate_open_task")
    load_functions(clone / "evaluate_result.py", *names, **given)["evaluate_open_task"]("task3")
    expected = json.loads((tmp_path / "results/task3/result.json").read_text())[theirs]
    scored = [text_scores(right, [text.strip() for text in said], [ours]) for said, right in texts.values()]
    by_file = [file.values[ours] for file in scored]  # noqa: PD011
    # The hub's ROUGE is the median of a thousand means of drawn answers, by no seed.
    assert np.mean(by_file) == pytest.approx(expected, abs=1e-12 if theirs == "bleu" else 0.01)
    assert 0.1 < expected < 0.9


def hub_bleu(predictions, references, max_order):
    """BLEU of `evaluate`: words by its file tokenizer_13a.py, counts by TensorFlow's nmt, which it downloads."""
    script = require_clone("huggingface/evaluate") / "metrics/bleu/tokenizer_13a.py"
    names = ("BaseTokenizer", "TokenizerRegexp", "Tokenizer13a")
    words = load_functions(script, *names, re=re, lru_cache=lru_cache)["Tokenizer13a"]()
    script = require_clone("tensorflow/nmt") / "nmt/scripts/bleu.py"
    count = load_functions(script, "_get_ngrams", "compute_bleu", collections=collections, math=math)["compute_bleu"]
    right = [[words(text) for text in several] for several in references]
    return {"bleu": count(right, [words(text) for text in predictions], max_order)[0]}


def hub_rouge(predictions, references, rouge_types):
    """ROUGE of `evaluate`, which asks rouge_score of each pair and draws pairs."""
    rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer")
    from rouge_score.scoring import BootstrapAggregator

    scorer, drawn = rouge_scorer.RougeScorer(rouge_types), BootstrapAggregator()
    for right, text in zip(references, predictions, strict=True):
        drawn.add_scores(scorer.score_multi(right, text))
    return {name: score.mid.fmeasure for name, score in drawn.aggregate().items()}


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
