"""Folds as the repeats of one run: which cases each tests, by which model, and what is averaged."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import medimg_eval as me
from medimg_eval.case import Findings
from medimg_eval.data.layouts import Table
from medimg_eval.data.splits import SplitColumns, SplitFolds, SplitJson, SplitLists, SplitTable
from medimg_eval.data.targets import ClassColumns, NumberColumns
from medimg_eval.errors import SplitError, UsageError, UserError
from medimg_eval.metrics.survival import harrell
from medimg_eval.models import PrecomputedClasses, PrecomputedValues
from medimg_eval.models.base import Regressor
from medimg_eval.tasks import ClassificationTask, RegressionTask

PARTS = {"fit": "train", "test": "val"}


@pytest.fixture
def cohort(tmp_path, monkeypatch):
    """24 cases of 12 patients, with a number and a class each."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    rows = [[f"c{at}", f"p{at // 2}", round(random.normal(), 3), int(random.random() < 0.5)] for at in range(24)]
    with Path("cohort.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["id", "patient", "size", "sick"], *rows])
    return {row[0]: row for row in rows}


def task_of(kind=RegressionTask, fold="all", folds=3, splits=None, **settings):
    target = NumberColumns(["size"]) if kind is RegressionTask else ClassColumns(["sick"])
    drawn = splits or SplitFolds(fold, folds)
    layout = Table(root=".", table="cohort.csv", id="id", patient="patient", target=target, splits=drawn)
    named = {"outputs": ["size"]} if kind is RegressionTask else {"classes": ["sick"]}
    return kind(**{"name": "cohort", "layout": layout, "splits": PARTS, **named, **settings})


def fold_of():
    return {case.id: number for number, task in task_of().folds().items() for case in task.cases("test")}


class Mean(Regressor):
    """Says the mean of what it studied, which differs by fold."""

    reads_images = uses_torch = False

    def study(self, cases):
        self.seen = {case.id for case in cases}
        self.mean = float(np.mean([case.target.read().values["size"] for case in cases]))

    def regress(self, prompts):
        assert not self.seen & {prompt.case_id for prompt in prompts}
        return [[self.mean + 1e-3 * len(prompt.case_id)] for prompt in prompts]


def test_each_case_is_tested_in_one_fold_apart_from_its_patient(cohort):
    task, held = task_of(), fold_of()
    assert {case.id for case in task.cases("test")} == set(cohort)
    assert all(held[f"c{at}"] == held[f"c{at + 1}"] for at in range(0, 24, 2))
    with pytest.raises(SplitError, match="nothing left to fit on; add folds=all to fit"):
        task.cases("fit")
    for number, fold in task.folds().items():
        assert fold.folds() == {}
        assert {case.id for case in fold.cases("fit")} == {name for name, at in held.items() if at != number}


def test_values_are_those_of_each_fold_and_then_their_mean(cohort):
    random = np.random.default_rng(1)
    # Each fold's numbers lie on a scale of their own, so that pooling them would say nothing.
    held = fold_of()
    said = {name: row[2] + random.normal(0, 0.5) + 100 * held[name] for name, row in cohort.items()}
    with Path("said.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["case", "size"], *said.items()])
    run = me.test(task_of(metrics=["pearson", "absolute_error"]), PrecomputedValues("said.csv"))
    each = [
        stats.pearsonr(*np.array([[cohort[name][2], said[name]] for name in cohort if held[name] == fold]).T).statistic
        for fold in range(3)
    ]
    values = {row.metric: row for row in run.summary.itertuples()}
    assert values["pearson"].value == pytest.approx(np.mean(each))
    assert values["pearson"].n == 24
    pooled = stats.pearsonr([row[2] for row in cohort.values()], [said[name] for name in cohort]).statistic
    assert abs(pooled) < 0.5 < np.mean(each)
    told = str(me.table([run.folder]))
    assert "summaries are of each of 3 folds by itself, then their mean; SD (n - 1), which is no interval" in told
    assert f"{np.std(each, ddof=1):.3f} between folds" in told
    # Judged again without the model, and asked again: nothing is missing.
    again = me.score(run.folder, metrics=["spearman"])
    assert {"pearson", "spearman"} <= {row.metric for row in again.summary.itertuples()}
    assert me.test(task_of(metrics=["pearson", "absolute_error"]), PrecomputedValues("said.csv")).folder == run.folder


def test_what_learns_from_the_fit_cases_learns_in_each_fold_anew(cohort):
    run = me.test(task_of(metrics=["absolute_error"]), Mean)
    assert run.failures.empty
    said = {trial.case: value["values"]["size"] for trial, value in run.predictions.items()}
    held = fold_of()
    for name, value in said.items():
        others = [row[2] for other, row in cohort.items() if held[other] != held[name]]
        assert value == pytest.approx(np.mean(others) + 1e-3 * len(name))
    baseline = me.test(task_of(metrics=["absolute_error"]), Mean, baselines=True).baselines[0]
    assert len(baseline.predictions) == 24


def test_each_fold_is_asked_of_the_files_of_its_own(cohort):
    held = fold_of()
    for fold in range(3):
        own = {name: 0.1 + 0.8 * row[3] if held[name] == fold else 0.5 for name, row in cohort.items()}
        with Path(f"said_{fold}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([["case", "sick"], *own.items()])
    task = task_of(ClassificationTask, fold=0, metrics=["auroc@macro"])
    config = {"_target_": "medimg_eval.models.PrecomputedClasses", "root": "said_{fold}.csv"}
    run = me.test(task, config, folds="all")
    assert run.summary["value"].tolist() == [1.0]
    single = me.test(task, PrecomputedClasses("said_0.csv"))
    assert len(single.predictions) == sum(at == 0 for at in held.values())
    assert single.folder != run.folder
    Path("said_2.csv").unlink()
    with pytest.raises(UserError, match=r"said_2\.csv: no such file"):
        me.test(task, config, folds="all", runs="others")


def test_what_cannot_be_meant_is_refused(cohort):
    model = Mean
    with pytest.raises(UsageError, match="folds=2: expected all; a single one is task.layout.splits.fold=0"):
        me.test(task_of(fold=0), model, folds=2)
    with pytest.raises(UsageError, match="its folds are the repeats; leave repeats=2 out"):
        me.test(task_of(), model, repeats=2)
    bare = Table(root=".", table="cohort.csv", id="id", target=NumberColumns(["size"]))
    with pytest.raises(UsageError, match="folds=all needs splits with folds; draw them by"):
        me.test(RegressionTask(name="bare", layout=bare, outputs=["size"]), model, folds="all")
    Path("one.json").write_text(json.dumps({"train": ["c0"], "val": ["c2"]}))
    with pytest.raises(UserError, match=r"one.json: knows of no folds; in names of files write \{fold\}"):
        task_of(splits=SplitJson("one.json", "all")).folds()


def test_folds_of_the_authors_files_are_found(cohort):
    Path("splits").mkdir()
    for fold in (0, 1, 10):
        ids = {"train": [f"c{at}" for at in range(12)], "val": [f"c{12 + fold}"]}
        for split, names in ids.items():
            Path(f"splits/{split}_{fold}.txt").write_text("\n".join(names))
        with Path(f"splits/{fold}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["train", "val"])
            writer.writerows([name, ids["val"][0] if at == 0 else ""] for at, name in enumerate(ids["train"]))
    with Path("k.tsv").open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter="\t")
        writer.writerow(["id", "fold_0", "fold_1", "fold_10"])
        for at in range(24):
            writer.writerow(
                [f"c{at}", *("train" if at < 12 else "val" if at == 12 + fold else "" for fold in (0, 1, 10))]
            )
    Path("list.json").write_text(json.dumps([{"train": ["c0"], "val": [f"c{12 + fold}"]} for fold in range(2)]))
    for splits, numbers in (
        (SplitLists({"train": "splits/train_{fold}.txt", "val": "splits/val_{fold}.txt"}, fold="all"), [0, 1, 10]),
        (SplitColumns("splits/{fold}.csv", ["train", "val"], fold="all"), [0, 1, 10]),
        (SplitTable("k.tsv", "id", "fold_{fold}", fold="all"), [0, 1, 10]),
        (SplitJson("list.json", "all"), [0, 1]),
    ):
        task = task_of(splits=splits)
        assert list(task.folds()) == numbers
        assert [case.id for case in task.cases("test")] == [f"c{12 + fold}" for fold in numbers]
        assert task.layout.split_source()


def test_c_indices_are_never_pooled(cohort):
    # Two folds that each order their own cases rightly, on scales that contradict each other.
    times, events = np.array([1.0, 2, 3, 4]), np.ones(4, bool)
    risks = np.array([2.0, 1, 20, 10])  # the first fold holds the early cases, and has the low numbers
    whole = float(harrell(times, events, risks).value)
    each = [float(harrell(times[part], events[part], risks[part]).value) for part in (slice(0, 2), slice(2, 4))]
    assert (each, whole) == ([1.0, 1.0], pytest.approx(2 / 6))
    from medimg_eval.data.targets import SurvivalColumns
    from medimg_eval.models import PrecomputedRisks
    from medimg_eval.tasks import SurvivalTask

    Path("s.csv").write_text("id,months,dead\n" + "".join(f"c{at},{at + 1},1\n" for at in range(4)))
    Path("r.csv").write_text("case,risk\n" + "".join(f"c{at},{risks[at]}\n" for at in range(4)))
    Path("f.json").write_text(
        json.dumps([{"train": ["c2", "c3"], "val": ["c0", "c1"]}, {"train": ["c0", "c1"], "val": ["c2", "c3"]}])
    )
    layout = Table(
        root=".",
        table="s.csv",
        id="id",
        target=SurvivalColumns("months", event="dead"),
        splits=SplitJson("f.json", "all"),
        patient="id",
    )
    task = SurvivalTask(name="s", layout=layout, splits=PARTS, metrics=["c_index"])
    run = me.test(task, PrecomputedRisks("r.csv"))
    assert run.summary["value"].tolist() == [1.0]
    assert "Events: 4 in 4 cases" in str(me.table([run.folder]))
    assert isinstance(task_of(ClassificationTask).cases("test")[0].target.read(), Findings)


class Bias(nn.Module, Regressor):
    """Says one learnt number of every case, by the checkpoint of a fit run."""

    reads_images = False

    def __init__(self, checkpoint=None):
        super().__init__()
        self.number = nn.Parameter(torch.zeros(1))
        if checkpoint is not None:
            held = torch.load(Path(checkpoint) / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
            self.number.data = held["model.number"]

    def training_samples(self, prompt, target, labels, *, seed):
        return [{"truth": torch.tensor([target.values["size"]])}]

    def training_loss(self, batch):
        return ((self.number - batch["truth"]) ** 2).mean()

    def regress(self, prompts):
        return [self.number.detach().cpu().numpy() for _ in prompts]


@pytest.mark.slow
def test_every_fold_is_fitted_from_the_start_and_tested_by_its_own_model(cohort):
    splits = {"fit": "train", "validate": "tune", "test": "val"}
    task = task_of(fold=0, folds=2, metrics=["absolute_error"])
    task = replace(task, layout=replace(task.layout, tuning="train"), splits=splits)
    settings = {"fit": {"lr": 0.1, "warmup": 0.0}, "trainer": {"max_epochs": 1, "accelerator": "cpu"}, "num_workers": 0}
    folder = me.fit(task, Bias, folds="all", **settings)
    assert sorted(path.name for path in folder.iterdir()) == ["fold-0", "fold-1"]
    # Ten steps of at most 0.1: what went on from the first fold would have gone further.
    learnt = [Bias(folder / f"fold-{fold}").number.item() for fold in range(2)]
    assert 0 < max(map(abs, learnt)) < 1.1
    assert learnt[0] != learnt[1]
    config = {"_target_": f"{__name__}.Bias", "checkpoint": str(folder)}
    run = me.test(task, config, folds="all", num_workers=0, trainer={"accelerator": "cpu"})
    held = {case.id: at for at, fold in task_of(folds=2).folds().items() for case in fold.cases("test")}
    said = {trial.case: value["values"]["size"] for trial, value in run.predictions.items()}
    assert said == {name: pytest.approx(learnt[held[name]]) for name in cohort}
    assert me.fit(task, Bias, folds="all", **settings) == folder  # and is not trained again
