"""The bootstrap against enumeration, SciPy, and what must hold for any numbers."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.results import Interval, mean_interval
from medimg_eval.results.statistics.intervals import Bootstrap, Sample, bootstrap_intervals

NAN = float("nan")


@pytest.mark.parametrize(
    ("level", "low", "high"),
    [(0.95, 0.0, 1.0), (0.6, 0.0, 1.0), (0.4, 0.5, 0.5)],
)
def test_two_clusters_enumerated(level, low, high):
    # The resampled mean is 0, 0.5 or 1 with probability 1/4, 1/2, 1/4, so its quantiles are known.
    interval = mean_interval([1.0, 0.0], ["a", "b"], level=level)
    assert interval == Interval(0.5, low, high, 2, 2)


def test_clusters_of_unequal_size_enumerated():
    # a is (0, 0, 0), b is (1): aa -> 0, ab and ba -> 1/4, bb -> 1. Values are pooled, not cluster means.
    values, clusters = [0.0, 0.0, 0.0, 1.0], ["a", "a", "a", "b"]
    assert mean_interval(values, clusters, level=0.95) == Interval(0.25, 0.0, 1.0, 4, 2)
    assert mean_interval(values, clusters, level=0.4) == Interval(0.25, 0.25, 0.25, 4, 2)


def test_agrees_with_scipy_without_clusters():
    values = np.random.default_rng(3).beta(8, 2, size=60)
    ours = mean_interval(values, np.arange(60), resamples=20_000)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    spread = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * spread)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * spread)


def test_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    patients = np.repeat(np.arange(40), 3)
    hits = 0
    for trial in range(200):
        values = rng.normal(size=40)[patients] + 0.3 * rng.normal(size=120)
        interval = mean_interval(values, patients, resamples=500, seed=trial)
        hits += interval.low <= 0 <= interval.high
    assert 0.88 <= hits / 200 <= 0.99


def test_wider_than_without_clusters_on_clustered_data():
    patients = np.repeat(np.arange(20), 10)
    values = np.random.default_rng(5).normal(size=20)[patients]
    clustered = mean_interval(values, patients)
    naive = mean_interval(values, np.arange(200))
    assert clustered.mean == naive.mean
    assert clustered.high - clustered.low > 2 * (naive.high - naive.low)
    assert (clustered.n, clustered.n_clusters) == (200, 20)


def test_same_for_any_row_order_and_only_for_the_same_seed():
    rng = np.random.default_rng(9)
    values, patients = rng.random(50), rng.integers(12, size=50).astype(str)
    shuffled = rng.permutation(50)
    interval = mean_interval(values, patients)
    assert interval == mean_interval(values[shuffled], patients[shuffled])
    assert interval == mean_interval(values, patients, seed=0)
    assert interval != mean_interval(values, patients, seed=1)


def test_undefined_values_are_dropped_and_their_clusters_too():
    interval = mean_interval([1.0, NAN, 0.0, NAN], ["a", "a", "b", "c"])
    assert interval == mean_interval([1.0, 0.0], ["a", "b"])
    assert (interval.n, interval.n_clusters) == (2, 2)


@pytest.mark.parametrize(("values", "n"), [([0.4], 1), ([0.4, NAN], 1), ([0.5, 0.3], 2)])
def test_one_cluster_has_a_mean_without_an_interval(values, n):
    interval = mean_interval(values, ["a"] * len(values))
    assert interval.mean == pytest.approx(0.4)
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)
    assert (interval.n, interval.n_clusters) == (n, 1)


@pytest.mark.parametrize("values", [[], [NAN, NAN]])
def test_nothing_to_average(values):
    interval = mean_interval(values, ["a", "b"][: len(values)])
    assert all(map(math.isnan, interval[:3]))
    assert interval[3:5] == (0, 0)


def test_memory_stays_bounded():
    values = np.random.default_rng(0).random(5_000)
    tracemalloc.start()
    mean_interval(values, np.arange(5_000), resamples=2_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20  # all draws at once would take 80 MB of indices and as much for each look-up


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [1.0], "clusters": ["a", "b"]}, "one length"),
        ({"values": [[1.0]], "clusters": [["a"]]}, "one length"),
        ({"values": [math.inf, 1.0], "clusters": ["a", "b"]}, "finite"),
        ({"values": [1.0], "clusters": ["a"], "resamples": 0}, "`resamples`"),
        ({"values": [1.0], "clusters": ["a"], "level": 95}, "`level`"),
    ],
)
def test_refuses_what_has_no_answer(arguments, message):
    with pytest.raises(ValueError, match=message):
        mean_interval(**arguments)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.floats(-1e3, 1e3) | st.just(NAN), st.integers(0, 6)),
        min_size=1,
        max_size=30,
    )
)
def test_bounds_enclose_the_mean_and_stay_within_the_data(rows):
    values, clusters = zip(*rows, strict=True)
    interval = mean_interval(values, clusters, resamples=1_000)
    kept = [value for value in values if not math.isnan(value)]
    assert interval.n == len(kept)
    if interval.n_clusters < 2:
        assert math.isnan(interval.low)
        return
    slack = 1e-9
    assert min(kept) - slack <= interval.low <= interval.mean + slack
    assert interval.mean - slack <= interval.high <= max(kept) + slack


def class_mean_interval(values, labels, clusters, **how):
    return bootstrap_intervals([Sample(values, clusters, labels)], Bootstrap(**how))[0]


def naive_class_means(values, labels, clusters, resamples, seed):
    """The mean over labels of each label's mean, resample by resample."""
    values, labels, clusters = map(np.asarray, (values, labels, clusters))
    names = sorted(set(clusters[~np.isnan(values)]))
    found = []
    for drawn in np.random.default_rng(seed).integers(len(names), size=(resamples, len(names))):
        rows = [i for name in drawn for i in np.flatnonzero((clusters == names[name]) & ~np.isnan(values))]
        found.append(np.mean([np.mean(values[rows][labels[rows] == label]) for label in sorted(set(labels[rows]))]))
    return found


def test_the_class_mean_equals_a_naive_bootstrap():
    rng = np.random.default_rng(1)
    values = np.where(rng.random(40) < 0.2, NAN, rng.random(40))
    labels, clusters = rng.choice(["a", "b", "c"], 40), rng.choice(["p", "q", "r", "s", "t"], 40)
    ours = class_mean_interval(values, labels, clusters, resamples=80, seed=3)
    means = naive_class_means(values, labels, clusters, 80, 3)
    assert (ours.low, ours.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))
    assert ours.mean == pytest.approx(np.mean([np.nanmean(values[labels == label]) for label in "abc"]))
    assert (ours.n, ours.n_clusters) == (int((~np.isnan(values)).sum()), 5)
    order = rng.permutation(40)
    assert class_mean_interval(values[order], labels[order], clusters[order], resamples=80, seed=3) == ours


def test_the_class_mean_counts_a_rare_label_like_a_frequent_one():
    # liver: 1, 1, 1; cyst: 0. Resamples of a and b: liver (1, 1) and cyst absent, or cyst 0 and liver 1.
    interval = class_mean_interval([1.0, 1.0, 1.0, 0.0], ["l", "l", "l", "c"], ["a", "a", "b", "b"], resamples=500)
    assert interval == Interval(0.5, 0.5, 1.0, 4, 2)
    assert mean_interval([1.0, 1.0, 1.0, 0.0], ["a", "a", "b", "b"]).mean == 0.75


def test_a_class_mean_of_nothing_or_of_one_cluster():
    assert class_mean_interval([1.0, 0.0], ["a", "b"], ["p", "p"])[:2] == pytest.approx((0.5, NAN), nan_ok=True)
    assert class_mean_interval([NAN], ["a"], ["p"])[3:5] == (0, 0)
    with pytest.raises(ValueError, match="infinite"):
        class_mean_interval([math.inf], ["a"], ["p"])
