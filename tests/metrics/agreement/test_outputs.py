"""Correlations, R² and errors of several outputs, against scipy, scikit-learn and numbers made by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rows import run_of
from scipy import stats
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_squared_error, r2_score
from sklearn.preprocessing import StandardScaler

from medimg_eval.metrics import parse
from medimg_eval.metrics.measurement.measurements import measurement_scores, worst_measurement_scores
from medimg_eval.metrics.weighing import OfRows

ROWS = ["measured_reference", "measured"]


def cases_of(reference, prediction, names=None):
    """Score rows of matrices (case, output); NaN where a side has nothing."""
    names = names or [f"g{number}" for number in range(np.shape(reference)[1])]
    return [
        measurement_scores(dict(zip(names, true, strict=True)), dict(zip(names, said, strict=True)), metrics=ROWS)
        for true, said in zip(reference, prediction, strict=True)
    ]


def summarised(name, *cases):
    found, parameter = parse(name)
    return found.function(run_of(*cases), *([] if parameter is None else [parameter]))


def test_hest_form_of_the_breast_cancer_table():
    # The last ten columns from the first twenty, as HEST's benchmark does it: PCA, then ridge without an intercept.
    table = load_breast_cancer().data
    test = np.arange(len(table)) % 3 == 0
    scaler = StandardScaler().fit(table[~test, :20])
    pca = PCA(8, random_state=1).fit(scaler.transform(table[~test, :20]))
    scores = pca.transform(scaler.transform(table[:, :20]))
    found = {}
    for intercept in (False, True):
        ridge = Ridge(alpha=100 / (8 * 10), solver="lsqr", max_iter=1000, fit_intercept=intercept)
        said = ridge.fit(scores[~test], table[~test, 20:]).predict(scores[test])
        cases = cases_of(table[test, 20:], said)
        found[intercept] = [summarised(name, *cases) for name in ("pearson", "r2@median")]
        if not intercept:
            each = [summarised(f"pearson@g{number}", *cases) for number in range(10)]
    assert found[False] == pytest.approx([0.919540, -9.4615], abs=5e-5)
    assert found[True] == pytest.approx([0.919559, 0.8226], abs=1e-4)
    expected = [0.9803, 0.9155, 0.9809, 0.9691, 0.8648, 0.8995, 0.9041, 0.9325, 0.8537, 0.8950]
    assert each == pytest.approx(expected, abs=5e-5)


def test_three_cases_by_hand():
    # Reference 1, 2, 3 and prediction 1, 2, 6: covariance 5, sums of squares 2 and 14; errors 0, 0, 9.
    cases = cases_of([[1], [2], [3]], [[1], [2], [6]])
    assert summarised("pearson", *cases) == pytest.approx(5 / math.sqrt(2 * 14))
    assert summarised("spearman", *cases) == 1
    assert summarised("r2", *cases) == pytest.approx(1 - 9 / 2)
    assert summarised("rmse", *cases) == pytest.approx(math.sqrt(3))


@settings(deadline=None, max_examples=25)
@given(arrays(np.float64, (2, 9, 3), elements=st.integers(-6, 6).map(float)))
def test_values_are_those_of_scipy_and_scikit_learn(pair):
    reference, prediction = pair
    cases = cases_of(reference, prediction)
    for at in range(3):
        true, said = reference[:, at], prediction[:, at]
        found = {name: summarised(f"{name}@g{at}", *cases) for name in ("pearson", "spearman", "r2", "rmse")}
        assert found["rmse"] == pytest.approx(math.sqrt(mean_squared_error(true, said)))
        if np.ptp(true) == 0:
            assert all(math.isnan(found[name]) for name in ("pearson", "spearman", "r2"))
            continue
        assert found["r2"] == pytest.approx(r2_score(true, said))
        if np.ptp(said) == 0:  # scipy has none; here it tells cases not apart
            assert found["pearson"] == found["spearman"] == 0
            continue
        assert found["pearson"] == pytest.approx(stats.pearsonr(true, said).statistic, abs=1e-9)
        assert found["spearman"] == pytest.approx(stats.spearmanr(true, said).statistic, abs=1e-9)


def test_constant_outputs_are_counted_and_in_no_average():
    reference = [[1, 5, 1], [2, 5, 2], [3, 5, 4]]
    prediction = [[2, 1, 7], [4, 2, 7], [6, 3, 7]]
    cases = cases_of(reference, prediction, ["a", "flat", "guessed"])
    assert math.isnan(summarised("pearson@flat", *cases))
    assert summarised("pearson@guessed", *cases) == 0
    assert summarised("pearson", *cases) == pytest.approx(0.5)  # of a, 1, and of guessed
    remark = parse("pearson")[0].remark(run_of(*cases))
    assert "undefined for 1 of 3 outputs, whose reference is constant, and in no average: flat" in remark
    assert "the prediction of 1 of 3 outputs is constant, which counts 0" in remark
    assert "counts 0" not in parse("r2")[0].remark(run_of(*cases))


def test_large_offsets_lose_nothing():
    random = np.random.default_rng(0)
    reference, prediction = random.normal(size=(2, 40, 2))
    near = cases_of(reference, prediction)
    far = cases_of(reference + 1e8, prediction + 1e8)
    for name in ("pearson", "spearman", "r2", "rmse"):
        assert summarised(name, *far) == pytest.approx(summarised(name, *near), rel=1e-6)


def test_cases_without_a_prediction_are_left_out_and_counted():
    cases = cases_of([[1, 2], [2, 1], [4, 3]], [[1, 1], [3, 2], [2, 5]])
    failed = worst_measurement_scores({"g0": 9.0, "g1": 9.0}, ROWS)
    assert summarised("rmse", *cases, failed) == summarised("rmse", *cases)
    assert "2 numbers without a prediction are left out" in parse("pearson")[0].remark(run_of(*cases, failed))
    uneven = [*cases, measurement_scores({"g0": 1.0}, {"g0": 0.0}, metrics=ROWS)]
    assert summarised("rmse@g0", *uneven) == pytest.approx(math.sqrt((0 + 1 + 4 + 1) / 4))
    assert summarised("rmse@g1", *uneven) == summarised("rmse@g1", *cases)


def test_weights_are_repeated_cases():
    random = np.random.default_rng(1)
    reference, prediction = random.integers(0, 4, (2, 12, 3)).astype(float)
    times = random.integers(0, 3, (5, 12))
    rows = run_of(*cases_of(reference, prediction))
    for name in ("pearson", "spearman", "r2", "r2@median", "rmse"):
        found, parameter = parse(name)
        judge = found.weighed(rows, *([parameter] if parameter else []))
        assert isinstance(judge, OfRows)
        values = judge(times[:, rows.case].astype(float))
        for row, value in zip(times, values, strict=True):
            again = cases_of(np.repeat(reference, row, axis=0), np.repeat(prediction, row, axis=0))
            assert value == pytest.approx(summarised(name, *again), nan_ok=True), name


def test_correlation_within_samples_ignores_what_differs_between_them():
    # In either sample the prediction falls as the reference rises; between samples both rise.
    reference, prediction = [[1], [2], [11], [12]], [[2], [1], [12], [11]]
    cases = cases_of(reference, prediction)
    rows = run_of(*cases)
    rows = replace(rows, attributes={"sample": np.array(["s", "s", "t", "t"])[rows.case]})
    assert summarised("pearson", *cases) > 0.9
    assert parse("pearson_within@sample")[0].function(rows, "sample") == pytest.approx(-1)
