"""How often intervals hold the truth, by simulation: many data sets whose mean is known."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from medimg_eval.results.statistics.intervals import FEWEST, Bootstrap, Sample, bootstrap_intervals, table_intervals

pytestmark = pytest.mark.slow

PATIENTS, MOST_IMAGES, ICC = 60, 8, 0.5
DICE = scipy.stats.beta(8, 2)
"""Skewed to the left, with a mean of 0.8."""


def coverage(data, truth, clusters=None, method="percentile", resamples=1_000, make=bootstrap_intervals):
    """The share of the rows of `data`, (trial, value), whose interval holds the truth, and the two ways of missing."""
    clusters = np.arange(data.shape[1]) if clusters is None else clusters
    found = make([Sample(row, clusters) for row in data], Bootstrap(resamples, method=method))
    low, high = np.array([(one.low, one.high) for one in found]).T
    return ((low <= truth) & (truth <= high)).mean(), (truth < low).mean(), (truth > high).mean()


def images_of_patients(trials):
    """Values between 0 and 1 whose normal scores share half of their variance within a patient; and the patients."""
    rng = np.random.default_rng(11)
    patients = np.repeat(np.arange(PATIENTS), rng.integers(1, MOST_IMAGES + 1, size=PATIENTS))
    shared = rng.normal(size=(trials, PATIENTS))[:, patients]
    scores = np.sqrt(ICC) * shared + np.sqrt(1 - ICC) * rng.normal(size=(trials, patients.size))
    grid = np.linspace(0.0005, 0.9995, 1_000)
    return np.interp(scipy.stats.norm.cdf(scores), grid, DICE.ppf(grid)), patients


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_intervals_over_patients_hold_the_truth_where_those_over_images_fail(method):
    data, patients = images_of_patients(1_500)
    assert 0.93 <= coverage(data, DICE.mean(), patients, method)[0] <= 0.97
    assert coverage(data[:400], DICE.mean(), method=method)[0] < 0.9


def test_strata_are_worth_what_they_explain():
    rng = np.random.default_rng(5)
    strata = np.arange(60) % 2
    data = rng.normal(2.0 * strata, 1, size=(1_000, 60))
    hold = []
    for of in (None, strata):
        found = bootstrap_intervals([Sample(row, np.arange(60), strata=of) for row in data], Bootstrap(1_000))
        low, high = np.array([(one.low, one.high) for one in found]).T
        hold.append(((low <= 1) & (high >= 1)).mean())
    assert hold[0] > 0.985  # the sites are fixed by design, so that resampling them makes intervals too wide
    assert 0.92 <= hold[1] <= 0.965


def test_bca_is_nearer_to_what_it_says_on_few_skewed_values():
    data = np.random.default_rng(3).lognormal(0, 1, size=(1_500, 20))
    percentile, bca = (coverage(data, np.exp(0.5), method=method) for method in ("percentile", "bca"))
    assert percentile[0] + 0.01 < bca[0] < 0.95
    # What is missed lies above; BCa moves the interval there.
    assert bca[2] < percentile[2] - 0.01


def test_fewer_clusters_than_are_asked_for_would_cover_less_than_80_percent():
    data = DICE.rvs(size=(2_000, FEWEST), random_state=np.random.default_rng(1))
    assert coverage(data[:, :-1], DICE.mean(), resamples=400)[0] < 0.8
    assert 0.8 < coverage(data, DICE.mean(), resamples=400)[0] < 0.9


@pytest.mark.long
@pytest.mark.parametrize(("share", "n"), [(0.9, 40), (0.5, 12), (0.97, 30), (0.8, 8)])
def test_printed_intervals_of_shares_hold_the_truth_where_the_bootstrap_does_not(share, n):
    data = (np.random.default_rng(2).random((3_000, n)) < share).astype(float)

    def printed(samples, how):
        return table_intervals([one._replace(share=True) for one in samples], how)

    found = coverage(data, share, make=printed)[0]
    assert found >= 0.93
    assert found >= (bootstrap := coverage(data, share, resamples=300)[0])
    assert (bootstrap < 0.9) == (n * (1 - share) < 2)
