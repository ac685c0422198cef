"""Agreement statistics against published tables, scipy, scikit-learn-free formulas and hand computations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rows import run_of, summarised
from scipy import stats

from medimg_eval.metrics.agreement.continuous import aligned, bland_altman, intraclass_correlation
from medimg_eval.metrics.measurement.measurements import measurement_scores, worst_measurement_scores

EVIDENCE = ["measured", "measured_reference", "measured_by_reader"]

# Shrout & Fleiss 1979, table 2: six targets, four judges. Their table 4: ICC(2,1) = .29, ICC(3,1) = .71.
SHROUT_FLEISS = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]


def case(reference, prediction):
    return measurement_scores(reference, prediction, metrics=EVIDENCE)


def cases_of(reference, prediction, name="a"):
    return [case({name: one}, {name: other}) for one, other in zip(reference, prediction, strict=True)]


def test_intraclass_correlations_are_those_of_shrout_and_fleiss():
    assert intraclass_correlation(SHROUT_FLEISS) == pytest.approx(0.29, abs=0.005)
    assert intraclass_correlation(SHROUT_FLEISS, "3,1") == pytest.approx(0.71, abs=0.005)


def test_an_offset_lowers_absolute_agreement_but_not_consistency():
    # (0, 10), (10, 20), (20, 30): MSR = 200, MSC = 150, MSE = 0; 200 / (200 + 2 * 150 / 3) = 2 / 3.
    shifted = [[0, 10], [10, 20], [20, 30]]
    assert intraclass_correlation(shifted) == pytest.approx(2 / 3)
    assert intraclass_correlation(shifted, "3,1") == pytest.approx(1)
    cases = cases_of([0, 10, 20], [10, 20, 30])
    assert summarised("icc", *cases) == pytest.approx(2 / 3)
    assert summarised("icc_consistency", *cases) == pytest.approx(1)


def naive_icc(ratings, form):
    """By sums of squares in loops, the terms as McGraw & Wong 1996 write them."""
    n, k = ratings.shape
    total = np.mean(ratings)
    ss_rows = sum(k * (np.mean(row) - total) ** 2 for row in ratings)
    ss_columns = sum(n * (np.mean(column) - total) ** 2 for column in ratings.T)
    ss_error = sum((value - total) ** 2 for value in ratings.flat) - ss_rows - ss_columns
    msr, msc, mse = ss_rows / (n - 1), ss_columns / (k - 1), ss_error / ((n - 1) * (k - 1))
    return (msr - mse) / (msr + (k - 1) * mse + (k / n * (msc - mse) if form == "2,1" else 0))


@settings(deadline=None, max_examples=30)
@given(arrays(np.float64, (5, 3), elements=st.integers(-50, 50).map(float)), st.sampled_from(["2,1", "3,1"]))
def test_intraclass_correlations_equal_the_sums_of_squares(ratings, form):
    found = intraclass_correlation(ratings, form)
    if math.isnan(found):
        return
    assert found == pytest.approx(naive_icc(ratings, form), abs=1e-9)
    assert found <= 1 + 1e-12
    assert intraclass_correlation(3 * ratings[::-1, ::-1] + 7, form) == pytest.approx(found, abs=1e-9)


def test_correlations_that_are_not_defined_are_nan():
    assert math.isnan(intraclass_correlation([[1, 2]]))
    assert math.isnan(intraclass_correlation([[3, 3], [3, 3]]))
    assert math.isnan(intraclass_correlation(np.empty((0, 2))))
    assert intraclass_correlation([[1, 1], [2, 2], [math.nan, 9]]) == 1
    assert math.isnan(summarised("pearson", *cases_of([5, 5, 5], [1, 2, 3])))
    assert math.isnan(summarised("pearson", *cases_of([0.1, 0.1, 0.1], [1, 2, 3])))
    for name in ("icc", "pearson", "smape", "bland_altman_bias", "inter_reader", "reader_deviation"):
        assert math.isnan(summarised(name, []))
    with pytest.raises(ValueError, match="'2,1' or '3,1', got '1,1'"):
        intraclass_correlation([[1, 2], [3, 4]], "1,1")
    with pytest.raises(ValueError, match=r"to be \(subject, rater\)"):
        intraclass_correlation([1, 2])


@settings(deadline=None, max_examples=20)
@given(arrays(np.float64, (6, 2), elements=st.floats(-90, 90, width=16)))
def test_pearson_is_scipys(pairs):
    found = summarised("pearson", *cases_of(*pairs.T))
    if (np.ptp(pairs, axis=0) < 1e-3).any():
        return
    assert found == pytest.approx(stats.pearsonr(*pairs.T).statistic, abs=1e-7)


def test_bland_altman_worked_out_by_hand():
    # Differences 1, 3, 5: mean 3, standard deviation 2.
    bias, low, high = bland_altman([10, 20, 30, math.nan], [11, 23, 35, 1])
    assert (bias, low, high) == pytest.approx((3, 3 - 3.92, 3 + 3.92))
    cases = cases_of([10, 20, 30], [9, 17, 25])
    assert summarised("bland_altman_bias", *cases) == pytest.approx(3)
    assert summarised("bland_altman_low", *cases) == pytest.approx(-6.92)
    assert summarised("bland_altman_high", *cases) == pytest.approx(0.92)
    assert math.isnan(bland_altman([1.0], [2.0]).low)
    with pytest.raises(ValueError, match="as many predictions"):
        bland_altman([1, 2], [1])


def test_smape_sums_within_an_image_before_it_divides():
    one = case({"MT": 40.0, "PT": 20.0, "TL": 0.0}, {"MT": 50.0, "PT": 20.0, "TL": 10.0})  # 20 of 140
    two = case({"MT": 10.0, "PT": 10.0, "TL": 0.0}, {"MT": 10.0, "PT": 10.0, "TL": 0.0})  # 0
    assert summarised("smape", one, two) == pytest.approx(100 * (20 / 140) / 2)
    single = np.mean([100 * 10 / 90 / 2, 0, 100 / 2])
    assert summarised("smape", one, two) != pytest.approx(single)  # the mean of three SMAPEs
    straight = case({"MT": 0.0, "PT": 0.0}, {"MT": 0.0, "PT": 0.0})
    assert summarised("smape", straight) == 0


def test_an_image_without_its_prediction_has_a_smape_of_100():
    good = case({"MT": 40.0}, {"MT": 40.0})
    lost = worst_measurement_scores({"MT": 40.0}, EVIDENCE)
    part = case({"MT": 40.0, "PT": 10.0}, {"MT": 40.0})
    assert summarised("smape", good, lost) == 50
    assert summarised("smape", good, part) == 50
    unknown = case({"MT": math.nan}, {"MT": 4.0})
    assert summarised("smape", good, unknown) == 0  # nobody knows what was to be measured


def test_several_measurements_have_the_mean_of_their_coefficients():
    # MT agrees in absolute terms, TL runs the other way; pooled, their different sizes would pass for agreement.
    truth, answer = [(50.0, 3.0), (60.0, 1.0), (70.0, 2.0)], [(50.0, 1.0), (60.0, 3.0), (70.0, 2.0)]
    cases = [case({"MT": a, "TL": b}, {"MT": c, "TL": d}) for (a, b), (c, d) in zip(truth, answer, strict=True)]
    expected = (1 + stats.pearsonr([3, 1, 2], [1, 3, 2]).statistic) / 2
    assert summarised("pearson", *cases) == pytest.approx(expected)
    assert summarised("icc", *cases) == pytest.approx((1 + intraclass_correlation([[3, 1], [1, 3], [2, 2]])) / 2)


def test_the_band_of_the_readers_worked_out_by_hand():
    one = case({"MT/anna/1": 10.0, "MT/anna/2": 12.0, "MT/bo": 16.0}, {"MT": 13.0})
    two = case({"MT/anna": 20.0, "MT/bo": 21.0, "MT/cy": 23.0}, {"MT": 20.0})
    # Between readers: |10-16|, |12-16| -> 5; |20-21|, |20-23|, |21-23| -> 2. Within: |10-12| = 2.
    assert summarised("inter_reader", one, two) == pytest.approx(3.5)
    assert summarised("intra_reader", one, two) == pytest.approx(2)
    # The model: |13-10|, |13-12|, |13-16| -> 7/3; 0, 1, 3 -> 4/3.
    assert summarised("reader_deviation", one, two) == pytest.approx((7 / 3 + 4 / 3) / 2)
    assert math.isnan(summarised("intra_reader", two))
    lost = worst_measurement_scores({"MT/anna": 1.0, "MT/bo": 4.0}, EVIDENCE)
    assert summarised("inter_reader", lost) == 3
    assert summarised("reader_deviation", one, lost) == pytest.approx(7 / 3)


def test_circular_values_enter_every_statistic_the_shorter_way_round():
    cases = [
        measurement_scores({"a": one}, {"a": other}, metrics=EVIDENCE, periods={"a": 360})
        for one, other in ((359.0, 1.0), (10.0, 12.0), (180.0, 182.0))
    ]
    assert summarised("bland_altman_bias", *cases) == pytest.approx(2)
    assert summarised("bland_altman_low", *cases) == pytest.approx(2)


def test_rows_are_put_side_by_side_whatever_their_order():
    rows = run_of(case({"b": 1.0, "a": 2.0}, {"a": 3.0, "b": 4.0}), case({"a": 5.0}, {}))
    mixed = rows.where(np.random.default_rng(0).permutation(len(rows.case)))
    for given_rows in (rows, mixed):
        cases, labels, values = aligned(given_rows, ("measured_reference", "measured"))
        assert cases.tolist() == [0, 0, 1]
        assert labels.tolist() == ["a", "b", "a"]
        np.testing.assert_array_equal(values, [[2, 3], [1, 4], [5, math.nan]])


def test_a_case_drawn_twice_counts_twice():
    one, two = case({"a": 1.0}, {"a": 1.0}), case({"a": 1.0}, {"a": 3.0})
    assert summarised("bland_altman_bias", one, two, two) == pytest.approx(4 / 3)
