"""The task of survival: settings, answers, failures, and a run from tables to the table."""

import csv
import math

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.case import Case, Prompt, Survival
from medimg_eval.data.layouts import Table
from medimg_eval.data.records import Given
from medimg_eval.data.targets import SurvivalColumns
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.metrics.survival import harrell, kaplan_meier
from medimg_eval.models import KaplanMeierEstimate, PrecomputedRisks
from medimg_eval.tasks import SurvivalTask

FULL = {"risk": 1.5, "S(12)": 0.9, "S(24)": 0.5}


def cohort(**settings):
    return SurvivalTask(**{"name": "cohort", "layout": None, "horizons": [12, 24], **settings})


def case(time=10.0, event=True, unit="months", target=None):
    return Case("c", (), Given(Survival(time, event, unit) if target is None else target, ()), "c")


def test_settings_that_cannot_be_meant_are_refused():
    for wrong, complaint in (
        ({"horizons": [24, 12]}, "ascending times above 0"),
        ({"horizons": [0, 12]}, "ascending times above 0"),
        ({"horizons": ["soon"]}, "list of times"),
        ({"metrics": ["survival_brier@36"]}, r"needs its time among `horizons`, got \[12.0, 24.0\]"),
        ({"metrics": ["integrated_brier"], "horizons": [12]}, "needs two `horizons`"),
        ({"metrics": ["mean_dynamic_auc"], "horizons": []}, "needs `horizons`"),
        ({"metrics": ["dice"]}, "'dice' does not judge survival"),
    ):
        with pytest.raises(UsageError, match=complaint):
            cohort(**wrong)


def test_answers_are_risks_or_survival_or_both():
    task = cohort()
    assert task.accept(case(), 3) == {"risk": 3}
    assert task.accept(case(), FULL) == FULL
    assert task.accept(case(), {"S(12)": 0.9, "S(24)": 0.5})["risk"] == pytest.approx(0.3)
    for wrong, complaint in (
        ({}, "neither `risk` nor survival"),
        ({"risk": math.nan}, "holds nan for 'risk'"),
        ({"risk": "high"}, "no number"),
        ({"hazard": 1}, "holds 'hazard'"),
        ({"risk": 1, "S(12)": 0.9}, r"has no S\(24\); expected survival at all 2 horizons"),
        (FULL | {"S(24)": 0.95}, "survival rises from 0.9 to 0.95"),
        (FULL | {"S(12)": 1.2}, "survival is 1.2"),
    ):
        with pytest.raises(CaseError, match=complaint):
            task.accept(case(), wrong)


def test_references_that_cannot_be_judged_are_refused():
    task = cohort()
    assert task.accept(case(), None, what="reference") == Survival(10.0, True)
    for wrong, complaint in (
        (case(unit="days"), "times are in days, the task's `unit` is months"),
        (case(time=0.0), "expected a time above 0, got 0 months"),
        (case(target="10"), "the reference is str, expected Survival"),
    ):
        with pytest.raises(CaseError, match=complaint):
            task.score(wrong, FULL)
        assert all(math.isnan(row.value) for row in task.worst(wrong))
    with pytest.raises(UserError, match="none of 2 cases has the event; .* count the other way"):
        task.check_data([case(event=False)] * 2)


def test_scores_are_what_became_of_the_case_beside_what_was_said():
    task = cohort()
    rows = [(row.label, row.metric, row.value, row.status) for row in task.score(case(), {"risk": FULL})]
    assert rows == [
        ("risk", "follow_up", 10, "event"),
        ("risk", "predicted_risk", 1.5, "event"),
        ("S(12)", "predicted_survival", 0.9, "event"),
        ("S(24)", "predicted_survival", 0.5, "event"),
    ]
    worst = [(row.metric, row.status) for row in task.worst(case(event=False))]
    assert worst[:2] == [("follow_up", "censored"), ("predicted_risk", "failed")]


def test_the_baseline_says_the_curve_of_those_it_studied():
    model = KaplanMeierEstimate()
    prompts = [Prompt("c", (), cohort().labels)]
    with pytest.raises(UserError, match="no cases to study"):
        model.estimate_risk(prompts)
    with pytest.raises(UserError, match="none of the cases has a time"):
        model.study([case(target="10")])
    model.study([case(time=10.0), case(time=20.0), case(time=30.0, event=False)])
    (answer,) = model.estimate_risk(prompts)
    assert answer == {"risk": 0, "S(12)": pytest.approx(2 / 3), "S(24)": pytest.approx(1 / 3)}


def test_risks_of_a_table_are_judged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    times, events, risks = random.exponential(20, 40).round(2) + 0.1, random.random(40) < 0.6, random.normal(size=40)
    with (tmp_path / "cohort.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "file", "split", "months", "dead"])
        for at in range(40):
            writer.writerow([f"p{at}", "none.png", "train" if at < 10 else "test", times[at], int(events[at])])
    with (tmp_path / "risks.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["case", "months", "one", "two"])
        writer.writerows([f"p{at}", risks[at], 0.8, 0.4] for at in range(10, 39))
        writer.writerow(["p39", "", 0.8, 0.4])
    target = SurvivalColumns("months", event="dead")
    layout = Table(root=".", table="cohort.csv", id="id", image="{file}", split="split", target=target)
    task = cohort(
        layout=layout,
        splits={"fit": "train", "test": "test"},
        metrics=["c_index", "survival_brier@12", "expected_to_observed@12"],
    )
    (tmp_path / "none.png").write_bytes(b"no picture is looked at")
    model = PrecomputedRisks("risks.csv", "months", {12: "one", 24: "two"}, lower_is_worse=True)
    run = me.test(task, model)
    assert run.failures["case"].tolist() == ["p39"]
    expected = harrell(times[10:], events[10:], np.r_[-risks[10:39], math.nan]).value
    values = {row.metric: row.value for row in run.summary.itertuples()}
    assert values["c_index"] == pytest.approx(float(expected))
    observed = 1 - kaplan_meier(times[10:39], events[10:39]).at([12])[0]
    assert values["expected_to_observed@12"] == pytest.approx(0.2 / observed)
