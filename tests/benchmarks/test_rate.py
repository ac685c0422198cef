"""RATE-Evals: its features and labels, its probe, and its mean AUROC with and without questions of one class."""

import json
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support, roc_auc_score

import medimg_eval as me
from medimg_eval.commands.cli import start
from medimg_eval.data.layouts import RateFindings
from medimg_eval.errors import UserError
from medimg_eval.models.heads import Targets, make_head
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import task
from tests.helpers.printed import said

QUESTIONS = ["Is there a cyst?", "Is there a nodule?", "Is there a stone?", "Is there a tube?"]
"""Of which nobody has a stone, and everybody has a tube."""

SIZES = {"train": 60, "valid": 8, "test": 40}


def write(root, form="qa_results", seed=0):
    """Features whose first two numbers tell the first two questions, and labels in one of RATE's forms."""
    rng, labels = np.random.default_rng(seed), {}
    for split, size in SIZES.items():
        (root / "embeddings" / split).mkdir(parents=True)
        for number in range(size):
            name = f"{split}{number:03d}"
            vector = rng.normal(size=6).astype(np.float32)
            np.savez_compressed(root / "embeddings" / split / f"{name}.npz", embedding=vector[None])
            yes = [vector[0] + rng.normal() > 0, vector[1] + rng.normal() > 0, False, True]
            answers = ["Yes" if one else "No" for one in yes]
            labels[name] = told(answers, form)
    (root / "final_results.json").write_text(json.dumps(labels))
    return labels


def told(answers, form):
    """Labels of one scan, in the form of RATE-Evals, of RATE's answers, or of its page."""
    pairs = list(zip(QUESTIONS, answers, strict=True))
    if form == "qa_results":
        return {"qa_results": {"abdomen": [{one: answer} for one, answer in pairs[:2]], "others": [dict(pairs[2:])]}}
    if form == "dictionary":
        return {"qa_results": {"abdomen": dict(pairs)}}
    return {"answers": {"abdomen": [{"question": one, "answer": answer} for one, answer in pairs]}}


def answers(root, **layout):
    made = task("rate_findings", root, **{"layout": layout} if layout else {})
    return {case.id: dict(case.target.read().values) for case in made.cases("test")}


@pytest.mark.parametrize("form", ["dictionary", "answers"])
def test_labels_are_the_same_in_each_of_their_three_forms(tmp_path, form):
    for name in ("first", "other"):
        (tmp_path / name).mkdir()
    write(tmp_path / "first")
    write(tmp_path / "other", form)
    first = task("rate_findings", tmp_path / "first")
    assert list(first.classes) == QUESTIONS
    assert {split: len(first.cases(part)) for part, split in first.splits.items()} == SIZES
    case = first.cases("test")[0]
    assert case.images[0].read().array.shape == (1, 1, 6)
    assert answers(tmp_path / "first") == answers(tmp_path / "other")
    assert {one["Is there a tube?"] for one in answers(tmp_path / "first").values()} == {1}


def test_what_is_neither_yes_nor_no_is_told_apart_unless_as_published(tmp_path):
    labels = write(tmp_path)
    labels["test000"] = told(["YES", "unclear", None, "no"], "qa_results")
    del labels["test001"]
    (tmp_path / "final_results.json").write_text(json.dumps(labels))
    with pytest.raises(UserError, match="no labels of scan 'test001'"):
        task("rate_findings", tmp_path).cases("test")
    published = task("rate_findings", tmp_path, protocol="published")
    held = {case.id: dict(case.target.read().values) for case in published.cases("test")}
    assert list(held["test000"].values()) == [1, 0, 0, 0]
    assert list(held["test001"].values()) == [0, 0, 0, 0]
    labels["test001"] = labels["test002"]
    (tmp_path / "final_results.json").write_text(json.dumps(labels))
    held = answers(tmp_path)["test000"]
    assert held["Is there a cyst?"] == 1
    assert np.isnan(held["Is there a nodule?"])
    assert held["Is there a stone?"] == 0
    labels["test001"] = told(["Perhaps", "No", "No", "No"], "qa_results")
    (tmp_path / "final_results.json").write_text(json.dumps(labels))
    with pytest.raises(UserError, match="has the answer 'Perhaps'"):
        task("rate_findings", tmp_path).cases("test")
    (tmp_path / "final_results.json").write_text(json.dumps({"test000": {"qa": {}}}))
    with pytest.raises(UserError, match="expected `qa_results` or `answers`"):
        RateFindings(root=str(tmp_path)).class_names()


def truths(root, part="test"):
    """Question -> answer of each scan."""
    return {case.id: dict(case.target.read().values) for case in task("rate_findings", root).cases(part)}


def probe(words, name, epochs):
    """Fits and tests a probe; the run."""
    own = ["model=rate_probe", f"model.name={name}", f"+model.head.epochs={epochs}", "+model.head.learning_rate=0.05"]
    assert start(["fit", *words, *own, f"run=FIT_{name}"]) == 0
    assert start(["test", *words, *own, f"model.checkpoint=FIT_{name}", "score_workers=0", f"run={name}"]) == 0
    return me.load_run(name)


def value(run, metric):
    """Value of a metric of a run."""
    return run.summary.set_index("metric")["value"][metric]


def test_from_files_to_the_table_in_three_commands(tmp_path, monkeypatch, capsys):
    write(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    words = ["task=rate_findings", "task.layout.root=data", "trainer.accelerator=cpu", "num_workers=0"]
    run = probe(words, "long", 200)
    capsys.readouterr()
    assert start(["table", "runs=long"]) == 0
    assert "Is there a stone? (never present), Is there a tube? (never absent)" in said(capsys)[0]
    probe(words, "short", 1)
    capsys.readouterr()
    assert start(["rank", "runs=[long,short]", "by=label", "metrics=[auroc@macro]", "resamples=20"]) == 0
    assert "2 of 2" in said(capsys)[0]  # questions that a model is first on

    cases = truths(tmp_path / "data")
    stored = {name: run.predictions.first(name)["probabilities"] for name in cases}
    shown = np.array([[stored[name][one] for one in QUESTIONS] for name in cases])
    fixed, published = means(shown, np.array([list(one.values()) for one in cases.values()]))
    assert value(run, "auroc@macro") == pytest.approx(fixed)
    assert published == pytest.approx(fixed / 2)  # of four questions two have one class
    assert (
        start(
            [
                "test",
                *words,
                "task.protocol=published",
                "model=rate_probe",
                "model.checkpoint=FIT_long",
                "score_workers=0",
                "run=published",
            ]
        )
        == 0
    )
    assert value(me.load_run("published"), "auroc_rate@macro") == pytest.approx(published)


def means(probabilities, truth):
    """Mean AUROC over questions of both classes, and with 0 for the others."""
    each = [
        roc_auc_score(right, shown) if 0 < right.sum() < len(right) else np.nan
        for shown, right in zip(probabilities.T, truth.T, strict=True)
    ]
    return np.nanmean(each), np.mean(np.nan_to_num(each))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
def test_the_probe_and_its_numbers_are_rate_evals_own(tmp_path):
    source = require_clone("YalaLab/rate-evals") / "rate_eval/evaluation.py"
    write(tmp_path)
    given = {"torch": torch, "nn": torch.nn, "optim": torch.optim, "np": np, "pd": pd, "json": json}
    given |= {"Dataset": torch.utils.data.Dataset, "DataLoader": torch.utils.data.DataLoader}
    given |= {"tqdm": quiet, "logger": logging.getLogger("rate"), "get_config_value": setting}
    given |= {"wandb": None, "LogisticRegression": None}
    given |= {"roc_auc_score": roc_auc_score, "accuracy_score": accuracy_score}
    given |= {"precision_recall_fscore_support": precision_recall_fscore_support, "confusion_matrix": confusion_matrix}
    names = ("discover_questions_from_json", "EmbeddingDataset", "MultiTaskLinearClassifier", "ClassBalancedBCELoss")
    names += ("PyTorchClassifierTrainer", "PyTorchEvaluator", "EmbeddingEvaluator")
    theirs = load_functions(source, *names, **given)
    made = task("rate_findings", tmp_path)
    parts = {part: made.cases(part) for part in ("fit", "test")}
    vectors = {part: np.stack([case.images[0].read().array[0, 0] for case in cases]) for part, cases in parts.items()}
    truth = {part: np.array([list(one.values()) for one in truths(tmp_path, part).values()]) for part in parts}

    evaluator = object.__new__(theirs["EmbeddingEvaluator"])
    evaluator.questions, evaluator.treat_na_as_no = QUESTIONS, True
    assert theirs["discover_questions_from_json"](tmp_path / "final_results.json") == list(made.classes)
    labels = json.loads((tmp_path / "final_results.json").read_text())
    their_truth = {
        part: evaluator._extract_labels_for_accessions([case.id for case in cases], labels)
        for part, cases in parts.items()
    }
    for part, held in their_truth.items():
        np.testing.assert_array_equal(np.stack([held[one] for one in QUESTIONS], 1), truth[part])

    torch.manual_seed(0)
    model = theirs["PyTorchClassifierTrainer"]({}).train(vectors["fit"], their_truth["fit"], QUESTIONS)
    head = make_head({"name": "balanced_linear", "epochs": 100})
    head.fit(vectors["fit"], Targets("classes", tuple(QUESTIONS), truth["fit"]))
    with torch.no_grad():
        shown = torch.sigmoid(model(torch.from_numpy(vectors["test"]))).numpy()
    np.testing.assert_allclose(head.predict(vectors["test"]), shown, atol=1e-5)

    results = {
        name: {"true_labels": right, "predictions": (one > 0.5).astype(float), "probabilities": one}
        for name, one, right in zip(QUESTIONS, shown.T, truth["test"].T, strict=True)
    }
    accessions = [case.id for case in parts["test"]]
    stats = evaluator._convert_pytorch_results_to_sklearn_format(results, accessions, "m", "mean", [("drop_zeros", 0)])[
        "summary_stats"
    ]
    fixed, published = means(shown, truth["test"])
    assert stats["avg_auc"] == pytest.approx(published)
    assert stats["drop_zeros_common_auc"] == pytest.approx(fixed)


def quiet(iterable: Sequence[Any] = (), **_: Any) -> Any:
    """A bar that shows nothing."""
    return Bar(iterable)


class Bar(list):
    """What stands in the place of a bar."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def update(self, _):
        """Nothing."""

    def set_postfix(self, _):
        """Nothing."""


def setting(_, key):
    """The program's settings; fewer epochs, as both sides have."""
    held = {"batch_size": 8192, "learning_rate": 1e-3, "num_epochs": 100, "weight_decay": 0, "num_workers": 0}
    return held.get(key.rpartition(".")[2], False)
