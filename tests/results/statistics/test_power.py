"""The smallest difference that could have been found, against statsmodels and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.power import TTestPower

from medimg_eval.results.statistics.effect_sizes import detectable_difference, detectable_of_error


@pytest.mark.parametrize("number", [4, 12, 200])
def test_one_pair_per_patient_is_the_paired_t_tests_power(number):
    values = np.random.default_rng(number).normal(0.1, 0.3, number)
    solved = TTestPower().solve_power(nobs=number, alpha=0.05, power=0.8) * values.std(ddof=1)
    assert detectable_difference(values, np.arange(number)) == pytest.approx(solved, rel=1e-4)


def test_pairs_of_one_patient_are_no_further_evidence():
    rng = np.random.default_rng(0)
    values = rng.normal(0, 0.3, 30)
    alone = detectable_difference(values, np.arange(30))
    # Each pair seen four times tells no more than once.
    assert detectable_difference(np.repeat(values, 4), np.repeat(np.arange(30), 4)) == pytest.approx(alone)
    assert detectable_difference(np.repeat(values, 4), np.arange(120)) < 0.6 * alone


def test_such_a_difference_is_found_four_times_out_of_five():
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 1, (2_000, 20))
    unit = (noise[0] - noise[0].mean()) / noise[0].std(ddof=1)  # a standard deviation of exactly 1
    gap = detectable_difference(unit, np.arange(20))
    found = (scipy.stats.ttest_1samp(noise + gap, 0, axis=1).pvalue < 0.05).mean()
    assert found == pytest.approx(0.8, abs=0.03)


def test_of_too_few_and_of_a_normal_test():
    assert math.isnan(detectable_difference([], []))
    assert math.isnan(detectable_difference([0.1, 0.2], ["a", "a"]))
    assert detectable_difference([0.1, 0.1], ["a", "b"]) == 0.0
    # 1.959964 + 0.841621 standard errors.
    assert detectable_of_error(0.5) == pytest.approx(0.5 * 2.801585, rel=1e-6)
