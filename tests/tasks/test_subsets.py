"""Subsets of the cases to fit on: who is in them, and what is fitted and tested of them as one run."""

import csv
from pathlib import Path

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.data.layouts import FeatureVectors
from medimg_eval.data.targets import ClassColumns, ClassName
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models import ClassFrequency, Probe
from medimg_eval.results import load_runs
from medimg_eval.results.figures import data_fraction
from medimg_eval.results.figures.data_fraction_plot import median_bounds, spaced_labels
from medimg_eval.tasks import ClassificationTask
from medimg_eval.tasks.subsets import described

QUIET = {"debug": True, "num_workers": 0, "logger": {}}


@pytest.fixture
def cohort(tmp_path, monkeypatch):
    """48 cases of 24 patients to fit on, 4 of whom are sick; 20 cases to test."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    rows = []
    for at in range(68):
        patient = at // 2
        sick = patient % 6 == 0
        rows.append([f"c{at}", f"p{patient}", "sick" if sick else "well", "fit" if at < 48 else "test"])
        rows[-1] += [round(random.normal(2 * sick, 1), 3), round(random.normal(), 3), int(patient % 2), int(sick)]
    with Path("cohort.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["id", "patient", "state", "split", "x", "y", "odd", "ill"], *rows])
    return {row[0]: row for row in rows}


def task_of(**options):
    layout = FeatureVectors(
        root=".",
        table="cohort.csv",
        features=["x", "y"],
        split="split",
        patient="patient",
        target=options.pop("target", ClassName("state", ["sick", "well"])),
    )
    settings = {"classes": ["sick", "well"], "exclusive": True, "metrics": ["auroc@macro"], **options}
    return ClassificationTask(name="cohort", layout=layout, splits={"fit": "fit", "test": "test"}, **settings)


def held(task):
    return [[case.id for case in fold.cases("fit")] for fold in task.folds().values()]


def test_shares_are_nested_by_patient_and_hold_each_class(cohort):
    task = task_of().in_subsets({"fraction": [1, 0.01, 0.25, 0.5], "draws": 3})
    every = held(task)
    assert len(every) == 12
    for draw in range(3):
        sizes = [set(every[3 * place + draw]) for place in range(4)]
        assert sizes[0] < sizes[1] < sizes[2] < sizes[3]
        for some in sizes:
            patients = {cohort[name][1] for name in some}
            assert some == {name for name, row in cohort.items() if row[1] in patients}  # a patient is whole
        # One of each class; a quarter of 4 and of 20, a half, all.
        counts = [
            sorted(len({cohort[n][1] for n in some if cohort[n][2] == c}) for c in ("sick", "well")) for some in sizes
        ]
        assert counts == [[1, 1], [1, 5], [2, 10], [4, 20]]
    assert len({tuple(some) for some in every[:9]}) == 9  # draws differ
    assert every == held(task_of().in_subsets({"fraction": [0.01, 0.25, 0.5, 1], "draws": 3}))
    told = described(task)
    assert told[3] == {"repeat": 3, "kind": "fraction", "size": 0.25, "draw": 0, "patients": 6, "cases": 12}
    assert [case.id for case in task.cases("fit")] == list(cohort)[:48]
    assert len(task.cases("test")) == len(next(iter(task.folds().values())).cases("test")) == 20


def test_shots_are_so_many_patients_of_each_class_with_one_case_each(cohort):
    task = task_of().in_subsets({"shots": [1, 4], "draws": 2})
    one, _, four, _ = held(task)
    assert set(one) < set(four)
    for some, count in ((one, 1), (four, 4)):
        assert [sum(cohort[name][2] == state for name in some) for state in ("sick", "well")] == [count, count]
        assert len({cohort[name][1] for name in some}) == 2 * count
    with pytest.raises(UserError, match="shots=5 of class 'sick', and there are 4 patients of it to fit on"):
        held(task_of().in_subsets({"shots": 5}))


def test_classes_that_do_not_exclude_each_other_are_all_there(cohort):
    target = ClassColumns(["odd", "ill"])
    task = task_of(target=target, classes=["odd", "ill"], exclusive=False).in_subsets({"fraction": 0.01, "draws": 8})
    for some in held(task):
        assert any(cohort[name][6] for name in some)
        assert any(cohort[name][7] for name in some)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"fraction": [0, 1]}, r"fraction=\[0, 1\]: expected shares above 0, at most 1"),
        ({"shots": [1.5]}, "expected whole numbers from 1"),
        ({"shots": [1], "fraction": [1]}, "as one of fraction="),
        ({"fraction": [0.5], "draws": 0}, "expected draws to be a whole number of at least 1"),
        ({"fraction": [0.5], "folds": "all"}, "folds=all"),
    ],
)
def test_what_cannot_be_meant_is_refused(words, said, cohort):
    with pytest.raises(UsageError, match=said):
        me.fit(task_of(), Probe(), **words, **QUIET)


@pytest.mark.slow
def test_one_run_of_fits_on_subsets_is_a_curve(cohort, tmp_path):
    task, words = task_of(), {"fraction": [0.1, 1], "draws": 3}
    head = {"name": "logistic", "C": 1.0}
    folder = me.fit(task, Probe(head=head), **words, **QUIET)
    assert len(list(folder.glob("fold-*"))) == 6
    config = {"_target_": "medimg_eval.models.Probe", "head": head, "checkpoint": str(folder)}
    run = me.test(task, config, name="Probe", **words, **QUIET)
    assert len(run.predictions) == 6 * 20
    (scores,) = load_runs([run.folder])
    assert scores.conditions == ("fraction-0.1",)
    assert (scores.repeats, scores.under("fraction-0.1").repeats) == (3, 3)
    # The largest size is what a run without sizes is worth.
    plain = me.fit(task, Probe(head=head), **QUIET)
    alone = me.test(task, {**config, "checkpoint": str(plain)}, name="Whole", **QUIET)
    assert run.summary["value"].tolist() == pytest.approx(alone.summary["value"].tolist())
    told = str(me.table([run.folder], by="condition", resamples=50))
    assert "fraction-0.1" in told
    assert "mean over 3 draws of the largest size, fraction 1 (24 patients)" in told
    chance = me.test(task, ClassFrequency(), name="Prevalence", **QUIET)

    drawn = data_fraction(load_runs([run.folder, chance.folder]), "auroc@macro", target=0.5)
    means = drawn.frame.query("draw == 'mean'")
    assert means["patients"].tolist()[:2] == [3, 24]
    singles = drawn.frame.query("draw != 'mean' and size == 0.1")["mean"]
    assert len(singles) == 3
    assert means["mean"].iloc[0] == pytest.approx(singles.mean())
    assert "Horizontal lines are models that were fitted on no subset" in drawn.caption
    assert "Probe: 0.5 is reached with 3 patients (fraction 0.1), the median of 3 draws, 75 % interval" in drawn.caption
    with pytest.raises(UserError, match="No run was fitted on subsets"):
        data_fraction(load_runs([chance.folder]), "auroc@macro")

    again = me.score(run.folder, metrics=["balanced_accuracy"])
    assert "balanced_accuracy" in set(again.summary["metric"])
    with pytest.raises(UsageError, match="was fitted on"):
        me.test(task, config, fraction=[0.1, 1], draws=2, **QUIET)
    with pytest.raises(UserError, match="holds a model for each fold or size; test with folds, fraction, shots and"):
        me.test(task, config, **QUIET)
    with pytest.raises(UserError, match="fold-6: no such folder; fit with the folds, sizes and draws of the test"):
        me.test(task, config, fraction=[0.1, 1], draws=4, **QUIET)
    with pytest.raises(UsageError, match="is one model, and sizes of what is fitted on need one for each"):
        me.test(task, {**config, "checkpoint": str(plain)}, **words, **QUIET)


def test_sizes_that_nearly_coincide_share_a_label():
    assert spaced_labels([2, 4, 8, 9, 16, 19, 190]) == ["2", "4", "", "9", "", "19", "190"]
    assert spaced_labels([7]) == ["7"]


def test_bounds_of_a_median_come_from_order_statistics():
    # Of five, the smallest and largest hold the median in 1 - 2 / 2^5 of all cases; of eight, the second and seventh
    # in 1 - 2 * 9 / 2^8.
    assert median_bounds([5, 1, 4, 2, 3], 0.95) == (1, 5, 0.9375)
    assert median_bounds(range(8), 0.92) == (1, 6, 1 - 18 / 256)
    assert median_bounds(range(8), 0.95) == (0, 7, 1 - 2 / 256)
    assert np.isnan(median_bounds([1, 2], 0.95)[0])
