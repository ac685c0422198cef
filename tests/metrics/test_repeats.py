"""Summaries over repeats and conditions against enumeration, scipy and worked numbers."""

from itertools import combinations
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, get, parse, title
from medimg_eval.tasks import QuestionTask

OUTCOMES = st.lists(st.lists(st.integers(0, 1), min_size=4, max_size=4), min_size=1, max_size=6)


def rows(values, conditions=None, metric="accuracy"):
    """Rows of values[case][repeat]; with conditions, of values[case][condition]."""
    case, place = np.indices(np.shape(values)).reshape(2, -1)
    value = np.ravel(values).astype(float)
    text = np.full(value.size, "")
    varied = {"repeat": place} if conditions is None else {"condition": np.array(conditions)[place]}
    of = np.full(value.size, metric)
    return ScoreTable(case, of, text, value, text, {}, len(values), {}, **varied)


def value(name, *args, **kwargs):
    found, parameter = parse(name)
    return found.function(rows(*args, **kwargs), *(() if parameter is None else (parameter,)))


def subsets(outcomes, k, judge):
    return mean(mean(judge(some) for some in combinations(one, k)) for one in outcomes)


def test_three_right_of_five():
    outcomes = [[1, 0, 1, 0, 1]]
    assert value("pass_at@2", outcomes) == pytest.approx(0.9)
    assert value("pass_all@2", outcomes) == pytest.approx(0.3)
    assert value("majority", outcomes) == 1
    assert value("flips", outcomes) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pass_at@1", 0.375),
        ("pass_at@2", 0.642857),
        ("pass_at@4", 0.928571),
        ("pass_all@2", 0.107143),
        ("g_pass@4-0.5", 0.5),
        ("mean_g_pass@4", 0.0357143),
    ],
)
def test_three_right_of_eight(name, expected):
    assert value(name, [[1, 1, 1, 0, 0, 0, 0, 0]]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("right", "n", "name", "expected"),
    [
        (6, 8, "g_pass@4-0.75", 0.785714),
        (6, 8, "mean_g_pass@4", 0.5),
        (12, 16, "g_pass@8-0.75", 0.715385),
        (12, 16, "mean_g_pass@8", 0.5),
    ],
)
def test_published_settings_of_g_pass(right, n, name, expected):
    assert value(name, [[1] * right + [0] * (n - right)]) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(OUTCOMES, st.integers(1, 4))
def test_chances_are_those_of_all_subsets(outcomes, k):
    assert value(f"pass_at@{k}", outcomes) == pytest.approx(subsets(outcomes, k, max))
    assert value(f"pass_all@{k}", outcomes) == pytest.approx(subsets(outcomes, k, min))
    voted = subsets(outcomes, k, lambda some: (np.sign(2 * sum(some) - k) + 1) / 2)
    assert value(f"majority@{k}", outcomes) == pytest.approx(voted)
    half = subsets(outcomes, k, lambda some: 2 * sum(some) >= k)
    assert value(f"g_pass@{k}-0.5", outcomes) == pytest.approx(half)
    excess = subsets(outcomes, k, lambda some: max(sum(some) - -(-k // 2), 0))
    assert value(f"mean_g_pass@{k}", outcomes) == pytest.approx(2 * excess / k)


@settings(max_examples=40, deadline=None)
@given(OUTCOMES)
def test_more_draws_pass_once_more_often_and_always_less_often(outcomes):
    once = [value(f"pass_at@{k}", outcomes) for k in range(1, 5)]
    always = [value(f"pass_all@{k}", outcomes) for k in range(1, 5)]
    assert np.all(np.diff(once) >= -1e-12)
    assert np.all(np.diff(always) <= 1e-12)
    assert 0 <= min(always) <= max(once) <= 1 + 1e-12
    assert once[0] == pytest.approx(always[0]) == pytest.approx(np.mean(outcomes))
    assert value("flips", outcomes) == np.mean([0 < sum(one) < 4 for one in outcomes])


def test_one_repeat_is_accuracy_and_lacks_the_rest():
    outcomes = [[1], [0], [1], [1]]
    assert [value(name, outcomes) for name in ("pass_at@1", "pass_all@1", "majority")] == [0.75, 0.75, 0.75]
    assert np.isnan([value(name, outcomes) for name in ("pass_at@2", "flips", "repeat_sd", "repeat_noise")]).all()


def test_the_hypergeometric_law_gives_the_same():
    assert value("g_pass@5-0.6", [[1] * 7 + [0] * 5]) == pytest.approx(hypergeom.sf(2, 12, 7, 5))


def test_a_share_of_draws_is_rounded_as_a_fraction():
    """0.28 of 25 are 7, and 8 in floating point."""
    assert value("g_pass@25-0.28", [[1] * 7 + [0] * 18]) == 1


def test_a_tie_counts_half():
    assert value("majority", [[1, 0], [1, 1]]) == 0.75


def test_a_case_with_too_few_repeats_is_left_out():
    assert value("pass_at@2", [[1, 0, np.nan], [0, np.nan, np.nan]]) == 1


def test_repeats_apart():
    values = [[0.2, 0.4], [0.6, 0.6], [0.7, 0.8]]
    assert value("repeat_sd", values) == pytest.approx(stdev([0.5, 0.6]))
    noise = mean([0.02 / 2, 0, 0.005 / 2])
    assert value("repeat_noise", values) == pytest.approx(noise / stdev([0.3, 0.6, 0.75]) ** 2)


def test_values_that_are_no_zero_or_one_are_refused():
    with pytest.raises(ValueError, match="values of 0 or 1, and accuracy has others"):
        value("pass_at@1", [[0.5]])


@pytest.mark.parametrize("name", ["pass_at", "pass_at@", "pass_at@0", "pass_at@x", "g_pass@4", "g_pass@4-2"])
def test_parameters_that_are_refused(name):
    with pytest.raises(UsageError):
        parse(name)


def test_titles_name_the_draws():
    assert [title(name) for name in ("pass_at@2", "g_pass@4-0.5", "flips")] == ["pass@2", "G-Pass@4-0.5", "Flips"]


LEVELS = ["", "blur-1", "blur-2", "blur-3", "blur-4", "blur-5"]
SWEEP = [0.90, 0.88, 0.86, 0.82, 0.75, 0.60]


def test_what_a_degradation_costs():
    assert value("drop@blur-5", [SWEEP], LEVELS) == pytest.approx(0.3)
    assert value("drop@blur", [SWEEP], LEVELS) == pytest.approx(0.9 - 0.782)
    assert value("drop@blur-5", [SWEEP], LEVELS, metric="hd95") == pytest.approx(-0.3)
    assert value("area_under_severity@blur", [SWEEP], LEVELS) == pytest.approx(0.812)
    assert np.isnan(value("drop@noise", [SWEEP], LEVELS))


def test_only_cases_under_both_are_compared():
    assert value("drop@grey", [[1, 0.5], [0, np.nan], [np.nan, 1]], ["", "grey"]) == 0.5


def test_severities_need_not_be_in_equal_steps():
    keys = ["", "blur-1", "blur-10"]
    assert value("area_under_severity@blur", [[1, 1, 0]], keys) == pytest.approx((1 + 9 / 2) / 10)


def test_drift_of_calibration():
    """Right and wrong at 0.8 sure as published; both wrong at 0.8 when degraded: 0.8 - 0 less 0.8 - 0.5."""
    text, value = np.full(4, "answer"), np.full(4, 0.8)
    status = np.array(["right", "wrong", "wrong", "wrong"])
    condition = np.array(["", "", "blur-1", "blur-1"])
    held = ScoreTable(
        np.array([0, 1, 0, 1]), np.full(4, "confidence"), text, value, status, {}, 2, {}, condition=condition
    )
    assert get("calibration_drift").function(held, "blur-1") == pytest.approx(0.5)


def test_a_task_may_ask_for_reliability_beside_its_metric():
    task = QuestionTask(name="q", layout=None, metrics=["accuracy", "pass_at@2", "drop@grey:accuracy"])
    assert task.case_metrics == ["accuracy"]
