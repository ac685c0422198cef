"""Intervals of shares against statsmodels, and which interval a table prints."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from medimg_eval.metrics.proportions import exact_interval, proportion_interval, wilson_interval
from medimg_eval.results import mean_interval
from medimg_eval.results.statistics.intervals import Bootstrap, Sample, table_intervals

HOW = Bootstrap(300)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize(("count", "of"), [(0, 7), (1, 7), (7, 7), (5, 20), (199, 200), (123, 4_000)])
def test_wilson_is_that_of_statsmodels(count, of, level):
    theirs = proportion_confint(count, of, alpha=1 - level, method="wilson")
    assert wilson_interval(count, of, level) == pytest.approx(theirs, abs=1e-12)


def test_wilson_by_hand():
    # 1 of 4, z = 1.96: centre (0.25 + 0.4802) / 1.9604, half sqrt(3.8416 (0.046875 + 0.060025)) / 1.9604.
    assert wilson_interval(1, 4) == pytest.approx((0.0456, 0.6994), abs=1e-4)


@pytest.mark.parametrize(
    ("count", "of", "made"), [(3, 10, "exact"), (3, 11, "wilson"), (0, 50, "exact"), (50, 50, "exact")]
)
def test_few_and_equal_values_have_the_exact_interval(count, of, made):
    *bounds, method = proportion_interval(count, of, 0.95)
    assert method == made
    name = "beta" if made == "exact" else made
    assert bounds == pytest.approx(proportion_confint(count, of, method=name), abs=1e-12)


@pytest.mark.parametrize(("count", "of", "level"), [(-1, 3, 0.9), (4, 3, 0.9), (0, 0, 0.9), (1, 2, 1.0)])
def test_wilson_refuses_what_is_no_share(count, of, level):
    with pytest.raises(ValueError, match="Expected"):
        wilson_interval(count, of, level)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 500), st.floats(0, 1), st.floats(0.5, 0.999))
def test_bounds_hold_the_share_and_mirror_those_of_its_rest(of, share, level):
    count = round(share * of)
    low, high, _ = proportion_interval(count, of, level)
    assert 0 <= low <= count / of <= high <= 1
    assert proportion_interval(of - count, of, level)[:2] == pytest.approx((1 - high, 1 - low), abs=1e-9)


def usual(values, clusters=None, share=True, **more):
    clusters = np.arange(len(values)) if clusters is None else clusters
    return table_intervals([Sample(values, clusters, share=share, **more)], HOW)[0]


def test_which_interval_is_printed():
    right = [1.0] * 8 + [0.0] * 12
    assert usual(right).method == "wilson"
    assert usual(right)[1:3] == pytest.approx(proportion_confint(8, 20, method="wilson"))
    assert usual([1.0, 0.0, 1.0]).method == "exact"
    assert usual(right, np.arange(20) // 2) == mean_interval(right, np.arange(20) // 2, resamples=300)
    assert usual([0.5, *right]).method == "percentile"
    assert usual(right, share=False) == mean_interval(right, np.arange(20), resamples=300)
    assert usual(right, strata=["a", "b"] * 10).method == "percentile"


def test_clusters_that_are_all_right_count_once_each():
    found = usual([1.0] * 30, np.arange(30) // 5)
    assert found[1:3] == pytest.approx(proportion_confint(6, 6, method="beta"))
    assert (found.mean, *found[3:]) == (1.0, 30, 6, "exact")
    none = usual([0.0] * 30, np.arange(30) // 5)
    assert none[:3] == (0.0, 0.0, pytest.approx(1 - found.low))
    assert usual([1.0] * 30, np.arange(30) // 5, labels=["x", "y"] * 15).method == "exact"
    assert usual([1.0, 0.0] * 10, labels=["x", "y"] * 10).method == "percentile"


@pytest.mark.parametrize(("values", "method"), [([], ""), ([math.nan], ""), ([1.0], "too few"), ([0.3] * 4, "too few")])
def test_nothing_and_too_little_have_no_interval(values, method):
    found = usual(values)
    assert math.isnan(found.low)
    assert found.method == method


def test_exact_holds_the_share_at_least_as_often_as_it_says_and_wilson_about_as_often():
    for of in (5, 10, 40):
        counts = np.arange(of + 1)
        bounds = np.array([proportion_interval(count, of)[:2] for count in counts])
        shares = np.linspace(0.02, 0.98, 97)
        chances = scipy.stats.binom.pmf(counts, of, shares[:, None])
        held = (bounds[:, 0] <= shares[:, None] + 1e-12) & (shares[:, None] <= bounds[:, 1] + 1e-12)
        coverage = (chances * held).sum(axis=1)
        if of <= 10:
            assert coverage.min() >= 0.95
        else:
            assert coverage.mean() == pytest.approx(0.95, abs=0.01)
            assert coverage.min() > 0.91


@pytest.mark.parametrize("scale", [1, 0.37, 12.5])
def test_counts_may_be_no_whole_numbers(scale):
    count, of = 8 * scale, 20 * scale
    low, high = exact_interval(count, of)
    # Clopper and Pearson's ends are quantiles of beta distributions, whose parameters are real.
    assert scipy.stats.beta.cdf(low, count, of - count + 1) == pytest.approx(0.025)
    assert scipy.stats.beta.cdf(high, count + 1, of - count) == pytest.approx(0.975)
    # Wilson's are the shares whose score test is just not rejected.
    for end in wilson_interval(count, of):
        assert abs(0.4 - end) / math.sqrt(end * (1 - end) / of) == pytest.approx(scipy.stats.norm.isf(0.025))
