"""Comparisons and rankings on odd data: ties, one patient, outliers, certainty, few data sets, runs left out."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UserError
from medimg_eval.results import compare, load_runs, load_scores, rank_models
from medimg_eval.results.comparison.model_comparison import Comparison
from medimg_eval.results.comparison.pairwise import CompareSettings
from medimg_eval.results.ranking.orders import friedman, kemeny, rank
from medimg_eval.results.ranking.ranking import Ranking
from medimg_eval.results.statistics.hypothesis_tests import settled

EQUAL_STEPS = {"A": [0.7, 0.8, 0.9, 0.4, 0.5, 0.6, 0.3], "B": [0.6, 0.7, 0.8, 0.3, 0.4, 0.5, 0.4]}
"""Six times 0.1 more and once 0.1 less, which binary fractions hold as different numbers."""


@pytest.fixture
def scores(tmp_path):
    """Reads tasks: model -> one value per case, None where there is none, as runs."""

    def read(metric="dice", *, better=None, per_patient=1, **tasks):
        rows = [
            (task, f"c{case}", model, metric, value, f"p{case // per_patient}")
            for task, models in tasks.items()
            for model, values in models.items()
            for case, value in enumerate(values)
        ]
        file = tmp_path / "scores.csv"
        pd.DataFrame(rows, columns=["task", "case", "model", "metric", "value", "patient"]).to_csv(file, index=False)
        return load_scores(file, direction=better)

    return read


def noted(found: Comparison | Ranking) -> str:
    return " ".join(note for sheet in found.sheets for note in sheet.content.footnotes)


def test_equal_differences_share_a_rank_whatever_rounding_makes_of_them(scores):
    (row,) = compare(scores(t=EQUAL_STEPS), "dice", baseline="B").frame().to_dict("records")

    assert row["p"] == scipy.stats.wilcoxon([1, 1, 1, 1, 1, 1, -1]).pvalue
    # Seven differences of mid-rank 4: 24 for, 4 against, of 28.
    assert row["rank_biserial"] == pytest.approx(20 / 28)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=30), st.integers(-8, 8))
def test_settled_differences_of_whole_steps_are_as_many_as_the_steps(pairs, power):
    step = 0.1 * 10.0**power
    first, second = (np.array(side) * step for side in zip(*pairs, strict=True))

    found = settled(first, second)

    steps = np.subtract(*(np.array(side) for side in zip(*pairs, strict=True)))
    assert (found == 0).tolist() == (steps == 0).tolist()
    assert len(set(np.abs(found).tolist())) == len(set(np.abs(steps).tolist()))
    np.testing.assert_allclose(found, steps * step, rtol=1e-9, atol=0)


@pytest.mark.parametrize(("metric", "gap"), [("dice", 0.3), ("accuracy", 1)])
def test_no_p_value_is_zero(scores, metric, gap):
    lower = np.zeros(2200) if metric == "accuracy" else np.linspace(0.1, 0.2, 2200)
    higher = lower + gap * (1 if metric == "accuracy" else np.linspace(0.5, 1, 2200))

    found = compare(scores(metric, t={"A": higher, "B": lower}), metric, how=CompareSettings(resamples=20)).frame()

    assert (found[["p", "corrected_p"]] > 0).all(axis=None)
    assert found["p"].min() < 1e-300


def test_wilcoxon_on_cases_of_one_patient_has_the_least_p_of_cases(scores):
    rng = np.random.default_rng(0)
    better, worse = rng.uniform(0.6, 0.9, 30), rng.uniform(0.1, 0.4, 30)

    found = compare(scores(t={"A": better, "B": worse}, per_patient=30), "dice", how=CompareSettings(test="wilcoxon"))

    assert found.frame()["p"].min() == pytest.approx(0.5**30)
    assert "no p-value of this test can be below" not in noted(found)
    assert "some patients have several cases, which these tests take for independent" in noted(found)
    few = compare(
        scores(t={"A": better[:3], "B": worse[:3]}, per_patient=3), "dice", how=CompareSettings(test="wilcoxon")
    )
    assert "with 3 cases no p-value of this test can be below 0.125 before correction" in noted(few)


@pytest.mark.parametrize(("metric", "turn"), [("dice", 1), ("hd95", -1)])
def test_an_outlier_does_not_turn_a_significant_difference_of_ranks(scores, metric, turn):
    base = np.linspace(1, 2, 30)
    ours = base + turn * np.where(np.arange(30) < 29, 0.01 + np.arange(30) / 1e4, -0.95)

    found = compare(scores(metric, t={"A": ours, "B": base}), metric, baseline="B")

    (cell,) = found.sheets[0].content.lines[0].cells
    assert np.sign(found.frame()["mean_difference"][0]) == -turn
    assert cell[0].style == "best", "29 of 30 cases are better"
    assert cell[-1].text == "ranks of differences say better"


def test_labels_of_one_case_do_not_make_others_be_taken_for_independent(tmp_path):
    rng = np.random.default_rng(0)
    rows = [
        (f"c{case}", model, "dice", rng.uniform(), f"p{case // 2}", label)
        for case in range(20)
        for model in "AB"
        for label in ("liver", "rare")
        if label == "liver" or not case
    ]
    file = tmp_path / "labels.csv"
    pd.DataFrame(rows, columns=["case", "model", "metric", "value", "patient", "label"]).to_csv(file, index=False)

    found = compare(load_scores(file), "dice", by="label", baseline="B")

    assert "take for independent" not in noted(found)
    assert "(scores, liver); Wilcoxon" in noted(found)


def test_models_that_are_left_out_are_named(write_run):
    rows = [(f"c{case}", f"p{case}", "a", "dice", 0.5 + case / 50, "present") for case in range(8)]
    empty = [(*row[:4], float("nan"), row[5]) for row in rows]
    runs = load_runs(
        [write_run("one", rows), write_run("two", rows), write_run("three", empty), write_run("four", status="failed")]
    )

    for found in (compare(runs, "dice"), compare(runs, "dice", baseline="One"), rank_models(runs, resamples=20)):
        said = "Organs: left out: Four (its run is not finished), Three (it has no value of dice)."
        assert said in noted(found)


def test_few_data_sets_have_the_exact_test(scores):
    tasks = {f"t{place}": {"A": [0.9] * 5, "B": [0.8] * 5, "C": [0.7] * 5} for place in range(2)}

    found = rank_models(scores(**tasks), resamples=20)

    # The second data set orders three models as the first does in one of six ways.
    assert found.friedman.exact == pytest.approx(1 / 6)
    assert "Friedman's test over 2 data sets: p = 0.167 (exact, over all orders of the models)" in noted(found)
    assert "< 0.001" not in noted(found)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=2, max_size=4))
def test_the_exact_test_of_friedman_is_that_of_all_orders(values):
    table = rank(values, higher_is_better=True)
    middle = len(table) * 2.0

    def spread(rows):
        return ((np.sum(rows, axis=0) - middle) ** 2).sum()

    every = [spread(rows) for rows in itertools.product(*(itertools.permutations(row) for row in table))]

    assert friedman(table).exact == pytest.approx(np.mean(np.array(every) >= spread(table) - 1e-9))


def test_many_data_sets_have_the_approximate_test_alone():
    table = [np.random.default_rng(seed).permutation(5) + 1.0 for seed in range(12)]

    assert np.isnan(friedman(table).exact)
    assert friedman([[1.0, 2, 3, 4, 5]] * 12).p_f == pytest.approx(120.0**-11)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_equal_models_tie_in_every_count_whatever_the_size_of_values(scores, scale):
    values = np.array([0.1, 0.2, 0.3, 0.7, 0.9]) * scale
    table = {"A": values, "B": np.roll(values, 1), "C": values - 0.05 * scale}

    found = rank_models(scores("mine", better={"mine": "higher"}, t=table), resamples=20).overall.set_index("model")

    assert found["mean_rank"].tolist() == [1.5, 1.5, 3]
    assert found["place"].tolist() == [1, 1, 3]
    assert found["borda"].tolist() == [0.75, 0.75, 0]


def test_an_order_that_no_majority_is_against_is_certain_with_any_number_of_models():
    wins = np.triu(np.full((20, 20), 2.0), 1) + np.tril(np.full((20, 20), 1.0), -1)
    compared = 3 * (1 - np.eye(20))
    assert kemeny(wins, compared).exact
    # A against B, B against C, C against A: whatever stands first, one majority is overruled.
    wins[0, 2], wins[2, 0] = 1, 2
    assert not kemeny(wins, compared).exact


def test_many_data_sets_stand_below_each_other(scores):
    tasks = {f"t{place}": {"A": [0.9, 0.8], "B": [0.8, 0.7]} for place in range(7)}

    wide = rank_models(scores(**tasks), resamples=20)
    narrow = rank_models(scores(**dict(list(tasks.items())[:6])), resamples=20)

    assert [line.names for line in wide.sheets[1].content.lines] == [[f"t{place}"] for place in range(7)]
    assert [heading.text for heading in wide.sheets[1].content.headings] == ["A", "B"]
    assert [line.names for line in narrow.sheets[1].content.lines] == [["A"], ["B"]]


def test_what_no_model_has_a_value_of_is_said_to_be_undefined(tmp_path):
    rows = [(f"c{case}", model, "probability", case / 9, "x", "absent") for case in range(9) for model in "AB"]
    file = tmp_path / "absent.csv"
    columns = ["case", "model", "metric", "value", "label", "status"]
    pd.DataFrame(rows, columns=columns).to_csv(file, index=False)

    with pytest.raises(UserError, match=r"No model has a value of auroc@x, which is undefined"):
        compare(load_scores(file), "auroc@x")


def test_a_model_without_a_value_is_named_where_nothing_is_left_to_compare(scores):
    with pytest.raises(UserError, match=r"left out: B \(it has no value of dice\)"):
        compare(scores(t={"A": [0.1, 0.2], "B": [None, None]}), "dice")
