"""Metrics of classes: curves, counts and their averages, beside scikit-learn and by hand."""

import math
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as theirs

import medimg_eval
from medimg_eval.metrics import ScoreTable, available, parse
from medimg_eval.metrics.classification.metrics import (
    Classified,
    exact_match_ratio,
    probability,
    probability_error,
    top1_accuracy,
)

PAGE = Path(medimg_eval.__file__).parents[1] / "docs" / "definitions" / "classification.md"
COUNTS = ("f1_score", "ppv", "class_sensitivity", "class_specificity", "class_accuracy")


def rows(truth, said, names=None, **facts):
    """Rows of `probability`: truth and said (case, class), truth NaN where it is not known."""
    truth, said = np.atleast_2d(np.asarray(truth, float)), np.atleast_2d(np.asarray(said, float))
    cases, classes = truth.shape
    names = [f"c{place}" for place in range(classes)] if names is None else names
    known = ~np.isnan(truth).ravel()
    return ScoreTable(
        case=np.repeat(np.arange(cases), classes)[known],
        metric=np.full(known.sum(), "probability"),
        label=np.tile(np.array(names), cases)[known],
        value=said.ravel()[known],
        status=np.where(truth.ravel()[known] == 1, "present", "absent"),
        attributes={},
        cases=cases,
        facts=facts,
    )


def value(name, given_rows):
    found, parameter = parse(name)
    return found.function(given_rows, parameter)


def column(*numbers):
    return np.array(numbers, float)[:, None]


def made(cases=200, classes=4, seed=0, digits=2):
    rng = np.random.default_rng(seed)
    truth = (rng.random((cases, classes)) < np.linspace(0.1, 0.6, classes)).astype(float)
    return truth, np.round(np.clip(0.3 * truth + 0.7 * rng.random((cases, classes)), 0, 1), digits)


def test_the_docs_example_by_hand():
    three = rows(column(1, 1, 0), column(0.9, 0.4, 0.4), ["edema"])
    assert value("auroc@macro", three) == 0.75
    assert value("auprc@edema", three) == pytest.approx(1 / 2 + 1 / 3)
    assert value("f1_score@edema", three) == pytest.approx(2 / 3)
    text = PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    exec(compile(text, str(PAGE), "exec"), {})  # noqa: S102 - the page's own example


def test_each_metric_has_a_row_with_its_definition():
    text = PAGE.read_text(encoding="utf-8")
    own = [
        one for one in available().values() if one.function.__module__ == "medimg_eval.metrics.classification.metrics"
    ]
    assert len(own) == 14
    for one in own:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{one.name}"))
        assert one.definition in row


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("digits", [1, 6])
def test_scikit_learn_agrees_on_many_labels(average, digits):
    truth, said = made(digits=digits)
    ours, cut = rows(truth, said), said > 0.5
    expected = {
        "auroc": theirs.roc_auc_score(truth, said, average=average),
        "auprc": theirs.average_precision_score(truth, said, average=average),
        "f1_score": theirs.f1_score(truth, cut, average=average),
        "ppv": theirs.precision_score(truth, cut, average=average, zero_division=0),
        "class_sensitivity": theirs.recall_score(truth, cut, average=average),
    }
    assert {name: value(f"{name}@{average}", ours) for name in expected} == pytest.approx(expected, rel=1e-12)


def test_scikit_learn_agrees_on_one_label():
    truth, said = made(classes=1)
    ours, cut = rows(truth, said), said[:, 0] > 0.5
    assert value("class_balanced_accuracy@c0", ours) == pytest.approx(theirs.balanced_accuracy_score(truth[:, 0], cut))
    assert value("class_accuracy@c0", ours) == pytest.approx(theirs.accuracy_score(truth[:, 0], cut))
    absent = theirs.recall_score(1 - truth[:, 0], ~cut)
    assert value("class_specificity@macro", ours) == pytest.approx(absent)


def test_scikit_learn_agrees_on_classes_that_exclude_each_other():
    rng = np.random.default_rng(3)
    right = rng.integers(0, 5, 300)
    logits = rng.normal(size=(300, 5)) + 1.5 * np.eye(5)[right]
    said = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    ours, most = rows(np.eye(5)[right], said, classes="exclusive"), said.argmax(1)
    assert value("f1_score@macro", ours) == pytest.approx(theirs.f1_score(right, most, average="macro"))
    assert value("f1_score@weighted", ours) == pytest.approx(theirs.f1_score(right, most, average="weighted"))
    assert value("class_sensitivity@macro", ours) == pytest.approx(theirs.balanced_accuracy_score(right, most))
    assert value("f1_score@micro", ours) == pytest.approx(theirs.accuracy_score(right, most))
    assert value("auroc@macro", ours) == pytest.approx(theirs.roc_auc_score(right, said, multi_class="ovr"))


def test_equally_probable_classes_share_what_is_said():
    even = rows([[1, 0, 0]], [[0.5, 0.5, 0.0]], classes="exclusive")
    assert value("class_sensitivity@c0", even) == 0.5
    assert value("class_specificity@c1", even) == 0.5
    assert value("class_specificity@c2", even) == 1
    assert top1_accuracy(Classified({"a": 1, "b": 0}, {"a": 0.5, "b": 0.5}, True)) == {"a": 0.5}
    assert top1_accuracy(Classified({"a": 0, "b": 1}, {"a": 0.6, "b": 0.4}, True)) == {"b": 0.0}


def test_a_class_that_is_never_present_is_left_out_and_named():
    truth, said = made(classes=3)
    truth[:, 1], truth[:, 2] = 0, 1
    ours = rows(truth, said)
    only = rows(truth[:, :1], said[:, :1])
    for name in ("auroc", "auprc", "class_balanced_accuracy"):
        assert math.isnan(value(f"{name}@c1", ours))
        assert math.isnan(value(f"{name}@c2", ours))
        assert value(f"{name}@macro", ours) == value(f"{name}@macro", only)
    assert math.isnan(value("f1_score@c1", ours))
    assert not math.isnan(value("f1_score@c2", ours))
    assert math.isnan(value("class_specificity@c2", ours))
    said_of = parse("auroc@macro")[0].remark
    assert said_of(ours, "macro") == (
        "AUROC (macro): undefined, and in no average: c1 (never present), c2 (never absent)"
    )
    assert said_of(only, "macro") == said_of(ours, "micro") == ""


def test_nothing_said_to_be_present_is_a_precision_of_0_not_nothing():
    ours = rows(column(1, 0), column(0.2, 0.3))
    assert value("ppv@c0", ours) == 0
    assert value("f1_score@c0", ours) == 0


def test_exactly_half_is_absent():
    assert value("class_sensitivity@c0", rows(column(1, 1), column(0.5, 0.51))) == 0.5


def test_unknown_truths_leave_no_trace():
    truth, said = made(classes=2)
    truth[::3, 0] = np.nan
    kept = ~np.isnan(truth[:, 0])
    ours = rows(truth, said)
    for name in ("auroc", "auprc", "f1_score", "class_accuracy"):
        assert value(f"{name}@c0", ours) == value(f"{name}@c0", rows(truth[kept, :1], said[kept, :1]))


def test_sets_of_classes_are_averaged_by_their_name():
    truth, said = made(classes=4)
    ours = rows(truth, said, class_sets={"odd": ["c1", "c3"], "strange": ["c1", "c9"]})
    some = rows(truth[:, [1, 3]], said[:, [1, 3]])
    for name in ("auroc", "f1_score"):
        for average in ("macro", "micro", "weighted"):
            assert value(f"{name}@{average}-odd", ours) == pytest.approx(value(f"{name}@{average}", some))
    assert value("auroc@macro-strange", ours) == value("auroc@c1", ours)
    assert "c9 (not judged)" in parse("auroc@macro")[0].remark(ours, "macro-strange")


@pytest.mark.parametrize("name", ["auroc", "auprc", *COUNTS])
def test_what_is_not_there_has_no_value(name):
    some = rows(*made(classes=2))
    nothing = some.where(np.zeros(len(some.value), bool))
    assert math.isnan(value(f"{name}@macro", nothing))
    assert math.isnan(value(f"{name}@micro", nothing))
    assert math.isnan(value(f"{name}@marco", some))
    assert math.isnan(value(f"{name}@macro-none", some))


def test_one_case_has_no_curve():
    one = rows([[1, 0]], [[0.7, 0.2]])
    assert math.isnan(value("auroc@macro", one))
    assert value("auroc@micro", one) == 1
    assert value("f1_score@macro", one) == 1


def test_equal_probabilities_are_worth_a_half_and_the_frequency():
    ours = rows(column(1, 0, 0, 0), column(0.3, 0.3, 0.3, 0.3))
    assert value("auroc@c0", ours) == 0.5
    assert value("auprc@c0", ours) == 0.25


@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 3))
@settings(deadline=None, max_examples=30)
def test_an_auroc_is_the_share_of_pairs_that_are_in_order(seed, cases, digits):
    truth, said = made(cases, 1, seed, digits)
    up, down = said[truth == 1], said[truth == 0]
    found = value("auroc@c0", rows(truth, said))
    if not (up.size and down.size):
        assert math.isnan(found)
        return
    won = (up[:, None] > down).mean() + 0.5 * (up[:, None] == down).mean()
    assert found == pytest.approx(won, abs=1e-12)
    assert value("auroc@c0", rows(1 - truth, 1 - said)) == pytest.approx(found, abs=1e-12)
    assert value("auroc@c0", rows(truth, said**2)) == pytest.approx(found, abs=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert value("auprc@c0", rows(truth, said)) == pytest.approx(
            theirs.average_precision_score(truth, said), abs=1e-12
        )


@given(st.integers(0, 10_000), st.sampled_from(["auroc", "auprc"]), st.sampled_from(["macro", "micro", "weighted"]))
@settings(deadline=None, max_examples=30)
def test_a_row_that_counts_twice_is_two_rows(seed, name, average):
    rng = np.random.default_rng(seed)
    truth, said = made(25, 3, seed, 1)
    drawn = rng.integers(0, 25, 25)
    ours = rows(truth, said)
    times = np.bincount(drawn, minlength=25)[ours.case].astype(float)
    weighed = parse(f"{name}@{average}")[0].weighed(ours, average)
    both = np.stack([np.ones_like(times), times])
    expected = [value(f"{name}@{average}", ours), value(f"{name}@{average}", rows(truth[drawn], said[drawn]))]
    np.testing.assert_allclose(weighed(both), expected, rtol=1e-12)


@given(st.integers(0, 10_000), st.sampled_from(COUNTS), st.sampled_from(["macro", "micro", "weighted", "c1"]))
@settings(deadline=None, max_examples=30)
def test_counts_are_functions_of_sums_and_lie_in_0_to_1(seed, name, which):
    truth, said = made(12, 3, seed, 1)
    found = parse(f"{name}@{which}")[0]
    ours = rows(truth, said)
    sums = found.pieces(ours, which).sum(0)
    assert np.allclose(sums.reshape(4, -1).sum(), len(ours.value) if which != "c1" else 12)
    whole = found.function(ours, which)
    assert math.isnan(whole) or 0 <= whole <= 1
    twice = found.total(np.stack([sums, 2 * sums]), which)
    np.testing.assert_allclose(twice, [whole, whole])


def test_a_case_is_judged_class_by_class():
    pair = Classified({"a": 1, "b": 0, "c": math.nan, "d": 0.5, "e": 0.7}, dict.fromkeys("abcde", 0.8))
    assert probability(pair) == {"a": 0.8, "b": 0.8, "e": 0.8}
    assert probability_error(pair) == pytest.approx({"a": 0.04, "b": 0.64, "e": 0.04})
    assert exact_match_ratio(pair) == {"all": 0.0}
    assert exact_match_ratio(Classified({"a": 1, "c": math.nan}, {"a": 0.8, "c": 0.9})) == {"all": 1.0}
    assert exact_match_ratio(Classified({"c": math.nan}, {"c": 0.9})) == {}
    assert top1_accuracy(pair) == {}
    assert top1_accuracy(Classified({"a": math.nan, "b": 0}, {"a": 0.6, "b": 0.4}, True)) == {}


@pytest.mark.slow
def test_a_thousand_resamples_of_5000_cases_and_14_classes_take_seconds():
    truth, said = made(5000, 14, digits=6)
    ours = rows(truth, said)
    begun = time.process_time()
    weighed = parse("auroc@macro")[0].weighed(ours, "macro")
    rng = np.random.default_rng(0)
    for _ in range(5):
        drawn = np.stack([np.bincount(rng.integers(0, 5000, 5000), minlength=5000) for _ in range(20)])
        weighed(drawn[:, ours.case].astype(float))
    assert time.process_time() - begun < 2  # 100 of the 1,000
