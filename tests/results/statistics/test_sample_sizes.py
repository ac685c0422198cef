"""Numbers of cases: against statsmodels, closed forms, every outcome counted out, and simulated decisions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.power import TTestPower
from statsmodels.stats.proportion import proportion_confint, samplesize_confint_proportion

from medimg_eval.results.statistics import (
    Bootstrap,
    Design,
    Sample,
    cautious_sd,
    correlated_areas,
    largest_sd,
    sd_of_differences,
    table_intervals,
)


def counted_power(number, share, bound):
    """Power of the printed interval by each number of right answers that there can be."""
    counts = np.arange(number + 1)
    exact, wilson = (proportion_confint(counts, number, method=method)[0] for method in ("beta", "wilson"))
    low = np.where((number <= 10) | (counts == 0) | (counts == number), np.nan_to_num(exact), wilson)
    return scipy.stats.binom.pmf(counts, number, share)[low >= bound - 1e-12].sum()


@pytest.mark.parametrize("number", [5, 10, 11, 30, 107, 112])
@pytest.mark.parametrize(("share", "bound"), [(0.9, 0.8), (0.97, 0.7), (0.5, 0.3)])
def test_the_power_of_a_share_is_counted_out(number, share, bound):
    design = Design("proportion", share)
    assert design.power(number, bound) == pytest.approx(counted_power(number, share, bound), abs=1e-9)
    # An upper bound is the same of what is wrong.
    mirrored = Design("proportion", 1 - share).power(number, 1 - bound)
    assert mirrored == pytest.approx(design.power(number, bound), abs=1e-9)


def test_from_the_number_on_no_larger_one_is_too_few():
    number = Design("proportion", 0.9).cases_for_bound(0.8)
    assert all(counted_power(n, 0.9, 0.8) >= 0.8 for n in range(number, number + 60))
    assert counted_power(number - 1, 0.9, 0.8) < 0.8


def test_a_share_with_a_precision_needs_about_what_the_normal_interval_does():
    number = Design("proportion", 0.9).cases_for_precision(0.05)
    widths = [np.diff(proportion_confint(0.9 * n, n, method="wilson"))[0] / 2 for n in (number - 1, number)]
    assert widths[0] > 0.05 >= widths[1]
    assert number == pytest.approx(samplesize_confint_proportion(0.9, 0.05), rel=0.05)


@pytest.mark.parametrize(
    ("gap", "sd", "power", "level"), [(0.05, 0.1, 0.8, 0.95), (0.02, 0.2, 0.9, 0.9), (1, 3, 0.8, 0.99)]
)
def test_a_mean_needs_what_the_t_test_does(gap, sd, power, level):
    solved = TTestPower().solve_power(effect_size=gap / sd, alpha=(1 - level) / 2, power=power, alternative="larger")
    for bound in (5 - gap, 5 + gap):
        assert Design("mean", 5.0, sd=sd, level=level).cases_for_bound(bound, power) == math.ceil(solved)


def test_a_mean_with_a_precision_by_hand():
    # 1.96 * 0.1 / 0.02 = 9.8, so 96.04 by the normal distribution; Student's needs two more.
    number = Design("mean", 0.5, sd=0.1).cases_for_precision(0.02)
    assert number == 99
    half = [scipy.stats.t.ppf(0.975, n - 1) * 0.1 / math.sqrt(n) for n in (98, 99)]
    assert half[0] > 0.02 >= half[1]


def test_an_area_has_hanley_and_mcneils_error():
    # Of 0.8 with 50 cases of each: Q1 = 2/3, Q2 = 32/45, so (0.16 + 49 * 2/75 + 49 * 16/225) / 2500.
    design = Design("auroc", 0.8)
    assert design.error(100) == pytest.approx(math.sqrt((0.16 + 49 * 2 / 75 + 49 * 16 / 225) / 2500))
    z = scipy.stats.norm.isf(0.025) + scipy.stats.norm.ppf(0.8)
    number = design.cases_for_bound(0.7)
    assert 0.1 / design.error(number) >= z > 0.1 / design.error(number - 1)


def test_an_area_of_a_pilot_has_the_pilots_error():
    assert Design("auroc", 0.9, sd=0.5).error(100) == pytest.approx(0.05)


@settings(max_examples=40, deadline=None)
@given(
    expected=st.floats(0.3, 0.95),
    gap=st.floats(0.03, 0.2),
    power=st.floats(0.5, 0.95),
    value=st.sampled_from(["mean", "auroc", "difference"]),
)
def test_the_number_is_the_least_that_is_enough(expected, gap, power, value):
    design = Design(value, expected, sd=math.nan if value == "auroc" else 0.3)
    number = design.cases_for_bound(expected - gap, power)
    assert design.power(number, expected - gap) >= power
    assert number <= 9 or design.power(number - 1, expected - gap) < power


def test_means_are_shown_as_often_as_planned():
    """Dice-like values, decided by the bootstrap interval that tables print."""
    rng = np.random.default_rng(0)
    mean, sd = 0.85, 0.1
    shape = mean * (1 - mean) / sd**2 - 1
    number = Design("mean", mean, sd=sd).cases_for_bound(0.82, 0.8)
    drawn = rng.beta(mean * shape, (1 - mean) * shape, (300, number))
    samples = [Sample(values, np.arange(number)) for values in drawn]
    found = table_intervals(samples, Bootstrap(resamples=600))
    assert np.mean([one.low >= 0.82 for one in found]) == pytest.approx(0.8, abs=0.06)
    assert np.mean([one.low <= mean <= one.high for one in found]) == pytest.approx(0.95, abs=0.04)


def test_areas_are_shown_as_often_as_planned():
    rng = np.random.default_rng(1)
    area, bound, number = 0.85, 0.75, Design("auroc", 0.85, prevalence=0.4).cases_for_bound(0.75, 0.8)
    shift = math.sqrt(2) * scipy.stats.norm.ppf(area)
    truth = np.arange(number) < round(0.4 * number)
    shown = 0
    for _ in range(300):
        found = correlated_areas([rng.normal(size=number) + shift * truth], truth, np.arange(number))
        shown += found.areas[0] - 1.96 * math.sqrt(found.covariance[0, 0]) >= bound
    assert shown / 300 == pytest.approx(0.8, abs=0.08)


def test_spreads_that_are_not_known():
    assert largest_sd(0.9, 0, 1) == pytest.approx(0.3)
    # 0.18 of pairs one way, 0.08 the other: mean 0.1, mean square 0.26.
    values = np.repeat([1, -1, 0], [18, 8, 74])
    assert sd_of_differences(0.1, 0.26) == pytest.approx(values.std())
    # One lucky pilot in five is below: (n - 1) s^2 / sigma^2 is chi-square.
    pilots = np.random.default_rng(0).normal(0, 1, (4_000, 12)).std(axis=1, ddof=1)
    assert np.mean([cautious_sd(one, 12) >= 1 for one in pilots]) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: Design("proportion", 1.0), "between 0 and 1"),
        (lambda: Design("mean", 0.5), "sd of a mean"),
        (lambda: Design("auroc", 0.9, prevalence=0), "prevalence"),
        (lambda: Design("mean", 0.5, sd=1, level=1), "level"),
        (lambda: Design("mean", 0.5, sd=1).cases_for_bound(0.5), "bound itself"),
        (lambda: Design("mean", 0.5, sd=1).cases_for_bound(0.4, 1.0), "power"),
        (lambda: Design("mean", 0.5, sd=1).cases_for_bound(0.4999), "More than"),
        (lambda: Design("mean", 0.5, sd=1).cases_for_precision(0), "half width"),
        (lambda: largest_sd(1.2, 0, 1), "between 0 and 1"),
        (lambda: sd_of_differences(0.3, 0.2), "pairs that differ"),
    ],
)
def test_what_cannot_be_is_refused(made, told):
    with pytest.raises(ValueError, match=told):
        made()
