"""Classification by patients and of grades, from a table to the table."""

import csv
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, roc_auc_score

import medimg_eval as me
from medimg_eval.data.layouts import Table
from medimg_eval.data.targets import ClassColumns, ClassName
from medimg_eval.errors import UsageError
from medimg_eval.models import PrecomputedClasses
from medimg_eval.tasks import ClassificationTask


def write(path, rows):
    with Path(path).open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)


def task_of(target, **settings):
    layout = Table(root=".", table="truth.csv", id="id", patient="patient", target=target)
    return ClassificationTask(**{"name": "cohort", "layout": layout, **settings})


def test_patients_are_judged_by_their_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    ill = np.arange(12) < 6
    probability = np.clip(0.5 + 0.05 * (2 * ill - 1) + random.normal(0, 0.25, (3, 12)), 0, 1).round(3)
    write(
        "truth.csv",
        [["id", "patient", "ill"], *([f"c{at}{n}", f"p{at}", int(ill[at])] for at in range(12) for n in "abc")],
    )
    write(
        "said.csv",
        [["case", "ill"], *([f"c{at}{n}", probability[k, at]] for at in range(12) for k, n in enumerate("abc"))],
    )
    metrics = ["auroc@macro", "aggregated@mean-patient:auroc@macro", "aggregated@max-patient:ppv_at_prevalence@0.1"]
    run = me.test(task_of(ClassColumns(["ill"]), classes=["ill"], metrics=metrics), PrecomputedClasses("said.csv"))
    found = run.summary.set_index("metric")
    assert found["value"][metrics[0]] == pytest.approx(roc_auc_score(np.tile(ill, 3), probability.ravel()))
    assert found["value"][metrics[1]] == pytest.approx(roc_auc_score(ill, probability.mean(axis=0)))
    said = probability.max(axis=0) > 0.5
    sens, spec = said[ill].mean(), 1 - said[~ill].mean()
    assert found["value"][metrics[2]] == pytest.approx(sens * 0.1 / (sens * 0.1 + (1 - spec) * 0.9))
    assert found["low"][metrics[1]] < found["value"][metrics[1]] <= found["high"][metrics[1]]


def test_grades_have_kappas_and_others_are_refused_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grades = [f"g{at}" for at in range(4)]
    truth, said = np.random.default_rng(0).integers(0, 4, (2, 20))
    write(
        "truth.csv", [["id", "patient", "grade"], *([f"c{at}", f"p{at}", grades[one]] for at, one in enumerate(truth))]
    )
    write("said.csv", [["case", "grade"], *([f"c{at}", grades[one]] for at, one in enumerate(said))])
    settings = {
        "classes": grades,
        "exclusive": True,
        "metrics": ["quadratic_kappa", "balanced_accuracy", "top_k_accuracy@2"],
    }
    task = task_of(ClassName("grade", grades), **settings)
    found = me.test(task, PrecomputedClasses("said.csv", label="grade")).summary.set_index("metric")["value"]
    assert found["quadratic_kappa"] == pytest.approx(cohen_kappa_score(truth, said, weights="quadratic"))
    assert found["top_k_accuracy@2"] == pytest.approx(np.mean(np.where(truth == said, 1, 1 / 3)))
    with pytest.raises(UsageError, match="quadratic_kappa needs `exclusive: true`"):
        task_of(ClassColumns(grades), **settings | {"exclusive": False})
    with pytest.raises(UsageError, match="'auroc@g9'"):
        task_of(ClassName("grade", grades), **settings | {"metrics": ["aggregated@mean-patient:auroc@g9"]})
