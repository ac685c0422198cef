"""Commands that were asked for values and have none say so, and end with another code than 0."""

import math

import pytest

from medimg_eval import metrics
from medimg_eval.results import build_table, load_runs


def scored(value, metric="dice", cases=("c1", "c2")):
    return [(case, case, "a", metric, value, "present") for case in cases]


@pytest.fixture
def asked(program):
    def ask(*words):
        done = program(*words)
        return done.returncode, done.stderr

    return ask


def test_a_table_without_a_value_fails_after_it_is_printed(asked, write_run):
    write_run("one", scored(math.nan))
    assert asked("table") == (1, "medimg_eval: Dice (Organs): no run has a value; the notes below the table say why\n")
    write_run("two", [*scored(0.5), *scored(math.nan, "hd95")])
    assert asked("table") == (0, "")
    code, err = asked("table", "metrics=[dice,hd95]")
    assert (code, "HD95 (mm) (Organs): no run has a value" in err) == (1, True)


def test_nothing_is_compared_without_common_cases_and_no_groups_without_values(asked, write_run):
    write_run("one", scored(0.5, cases=("c1", "c2")))
    write_run("two", scored(0.6, cases=("c3", "c4")))
    for more in ([], ["baseline=One"]):
        code, err = asked("compare", "metric=dice", *more)
        assert (code, "No two models have a value of dice for the same case" in err) == (1, True)


def test_groups_without_a_value_are_refused(asked, write_run):
    sexes = {"c1": {"sex": "F"}, "c2": {"sex": "M"}}
    write_run("one", scored(math.nan), attributes=sexes)
    code, err = asked("fairness", "by=sex")
    assert code == 1
    assert "No case of One has a value of Dice (Organs), so it has no groups to compare" in err


def test_a_summary_that_raises_is_undefined_by_itself_and_named(write_run, monkeypatch):
    metrics.available()
    monkeypatch.setattr(metrics.registry, "_METRICS", dict(metrics.registry._METRICS))

    @metrics.summary(needs=("dice",), title="Broken", higher_is_better=True, best=1.0, source="a test")
    def broken(rows):
        """Raises."""
        raise KeyError("x")

    table = build_table(load_runs([write_run("one", scored(0.5), metrics=["dice", "broken"])]))
    dice, lost = table.rows[0].cells
    assert (dice.mean, math.isnan(lost.mean)) == (0.5, True)
    assert any("Broken undefined: it raised KeyError: 'x'" in note for note in table.footnotes)


def test_a_metric_of_the_task_that_no_case_has_is_told_below_the_table(write_run):
    runs = load_runs([write_run("one", scored(0.5), metrics=["dice", "box_iou", "judged@right"])])
    notes = build_table(runs).footnotes
    assert any("no Box IoU scores: it judges none of the cases" in note for note in notes)
    assert any("no Judged (right) scores: no judge was asked" in note for note in notes)
    both = load_runs([write_run("two", [*scored(0.5), *scored(1.0, "iou")], metrics=["dice", "iou", "box_iou"])])
    assert not any("box" in note.lower() for note in build_table(both, metrics=["dice"]).footnotes)
