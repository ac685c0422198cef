"""BCa against SciPy on the same resamples, and against a brute force where values come in clusters."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import scipy.stats

from medimg_eval.errors import UsageError
from medimg_eval.metrics import available, metric, registry, summary
from medimg_eval.results import build_table, load_runs, mean_interval
from medimg_eval.results.runs.subsets import Part
from medimg_eval.results.statistics import summaries
from medimg_eval.results.statistics.intervals import Bootstrap, Sample, acceleration, bca_bounds, bootstrap_intervals
from medimg_eval.results.statistics.resampling import Resamples
from medimg_eval.results.statistics.summaries import summarise

SKEWED = np.random.default_rng(7).lognormal(0, 1, size=25)
NORMAL = NormalDist()


def scipys(data, statistic, drawn, level=0.95):
    """SciPy's bounds from given resamples."""
    given = scipy.stats._resampling.BootstrapResult(None, np.asarray(drawn), 0.0)
    found = scipy.stats.bootstrap(
        data, statistic, method="BCa", n_resamples=0, bootstrap_result=given, confidence_level=level, vectorized=False
    )
    return found.confidence_interval.low, found.confidence_interval.high


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_mean_has_scipys_bounds_on_the_same_resamples(level):
    means = Resamples(25, resamples=2_000, seed=3).sums(SKEWED[:, None])[:, 0] / 25
    ours = mean_interval(SKEWED, np.arange(25), resamples=2_000, seed=3, level=level, method="bca")
    assert ours.method == "bca"
    assert ours[1:3] == pytest.approx(scipys((SKEWED,), np.mean, means, level))
    percentile = mean_interval(SKEWED, np.arange(25), resamples=2_000, seed=3, level=level)
    assert ours.low > percentile.low
    assert ours.high > percentile.high


def test_two_strata_have_scipys_bounds_of_two_samples():
    data, strata = SKEWED, np.repeat([0, 1], [9, 16])
    drawn = np.concatenate(list(Resamples(25, resamples=1_000, seed=1, strata=strata).drawn()))
    theirs = scipys((data[:9], data[9:]), lambda x, y: np.concatenate([x, y]).mean(), data[drawn].mean(axis=1))
    ours = mean_interval(data, np.arange(25), resamples=1_000, seed=1, method="bca", strata=strata)
    assert ours[1:3] == pytest.approx(theirs)


def brute_force(values, clusters, drawn, statistic, level=0.95):
    """BCa with loops over resamples and over clusters that are left out."""
    names = sorted(set(clusters))
    members = [np.flatnonzero(clusters == name) for name in names]
    whole = statistic(np.arange(len(values)))
    found = sorted(statistic(np.concatenate([members[cluster] for cluster in some])) for some in drawn)
    below = sum(int(one < whole - 1e-12) + int(one <= whole + 1e-12) for one in found) / 2 / len(found)
    left = [statistic(np.flatnonzero(clusters != name)) for name in names]
    apart = [np.mean(left) - one for one in left]
    speed = sum(one**3 for one in apart) / 6 / sum(one**2 for one in apart) ** 1.5
    bias = NORMAL.inv_cdf(below)
    ends = []
    for share in ((1 - level) / 2, (1 + level) / 2):
        tail = bias + NORMAL.inv_cdf(share)
        ends.append(float(np.quantile(found, NORMAL.cdf(bias + tail / (1 - speed * tail)))))
    return tuple(ends)


def clustered():
    rng = np.random.default_rng(4)
    clusters = np.repeat(np.arange(12), rng.integers(1, 6, size=12))
    return rng.lognormal(0, 0.8, size=12)[clusters] * rng.random(clusters.size), clusters


def test_clusters_of_unequal_size_have_the_bounds_of_a_brute_force():
    values, clusters = clustered()
    drawn = np.random.default_rng(2).integers(12, size=(400, 12))
    ours = mean_interval(values, clusters, resamples=400, seed=2, method="bca")
    assert ours[1:3] == pytest.approx(brute_force(values, clusters, drawn, lambda at: values[at].mean()))


def test_the_mean_over_labels_has_the_bounds_of_a_brute_force():
    values, clusters = clustered()
    labels = np.random.default_rng(5).integers(3, size=values.size)

    def statistic(at):
        return np.mean([values[at][labels[at] == label].mean() for label in set(labels[at].tolist())])

    drawn = np.random.default_rng(2).integers(12, size=(300, 12))
    how = Bootstrap(resamples=300, seed=2, method="bca")
    (ours,) = bootstrap_intervals([Sample(values, clusters, labels)], how)
    assert ours[1:3] == pytest.approx(brute_force(values, clusters, drawn, statistic))


@pytest.mark.parametrize("values", [[0.4] * 6, [0.0] * 6])
def test_equal_values_have_the_percentile_interval(values):
    found = mean_interval(values, np.arange(6), resamples=50, method="bca")
    assert found[:3] == pytest.approx((values[0],) * 3)
    assert found.method == "percentile"


def test_where_bca_has_no_bounds():
    assert bca_bounds(2.0, np.array([0.0, 1.0]), 0.1, 0.95) is None
    assert bca_bounds(0.5, np.array([0.0, 1.0]), math.nan, 0.95) is None
    assert bca_bounds(0.5, np.array([0.0, 1.0]), 0.6, 0.95) is None  # 1 - 0.6 * 1.96 is negative
    assert math.isnan(float(acceleration(np.full(4, 0.3))))
    # Influences of -1, -1 and 2: (-1 - 1 + 8) / 6 / 6^1.5.
    assert float(acceleration(np.array([1.0, 1.0, -2.0]))) == pytest.approx(6 / 6 / 6**1.5)


def test_refuses_a_kind_that_there_is_not(write_run):
    with pytest.raises(ValueError, match="`method` to be one of percentile, bca, got 'normal'"):
        mean_interval([1.0], ["a"], method="normal")
    with pytest.raises(UsageError, match=r"got 'bcaa'; did you mean 'bca'"):
        build_table(load_runs([write_run("m")]), interval="bcaa")


@pytest.fixture
def share(monkeypatch):
    """One statistic, the share of values above a half, told in three ways."""
    monkeypatch.setattr(registry, "_METRICS", available())
    fields = {"needs": ("odd",), "higher_is_better": True, "best": 1.0, "source": "this test"}

    @metric(kind="mask", title="Odd", higher_is_better=True, best=1.0, worst=0.0, intermediate=True, source="this test")
    def odd(pair):
        """Odd."""
        return 0.0

    @summary(title="Called", **fields)
    def called(rows):
        """Called."""
        return float(rows.value[rows.value > 1].sum() / rows.value.sum())

    @summary(title="Summed", pieces=lambda rows: np.column_stack([rows.value * (rows.value > 1), rows.value]), **fields)
    def summed(sums):
        """Summed."""
        return sums[..., 0] / sums[..., 1]

    def judge(rows):
        return lambda times: times @ (rows.value * (rows.value > 1)) / (times @ rows.value)

    @summary(title="Weighed", weighed=judge, **fields)
    def weighed(rows):
        """Weighed."""
        return float(judge(rows)(np.ones((1, rows.value.size)))[0])


def odd_rows():
    values, clusters = clustered()
    return [
        (f"c{i:02d}", f"p{owner:02d}", "a", "odd", 2 * value, "present")
        for i, (value, owner) in enumerate(zip(values, clusters, strict=True))
    ]


@pytest.mark.parametrize("method", ["percentile", "bca"])
@pytest.mark.parametrize("strata", [False, True])
def test_all_ways_of_telling_a_summary_have_one_interval(write_run, share, method, strata):
    (run,) = load_runs([write_run("m", odd_rows())])
    part = Part.whole(run)
    of_case = part.clusters.map(lambda name: "ab"[int(name[1:]) % 2]) if strata else None
    found = [
        summarise(name, part, resamples=200, level=0.9, seed=3, method=method, strata=of_case)
        for name in ("called", "summed", "weighed")
    ]
    assert found[0].method == method
    for other in found[1:]:
        assert other[:6] == pytest.approx(found[0][:6])
        assert other.method == method
    values, clusters = clustered()
    if method == "bca" and not strata:
        drawn = np.random.default_rng(3).integers(12, size=(200, 12))
        high = np.where(2 * values > 1, values, 0)
        expected = brute_force(values, clusters, drawn, lambda at: high[at].sum() / values[at].sum(), 0.9)
        assert found[0][1:3] == pytest.approx(expected)


def test_too_many_clusters_to_leave_out_have_the_percentile_interval_and_a_note(write_run, share, monkeypatch):
    runs = load_runs([write_run("m", odd_rows())])
    monkeypatch.setattr(summaries, "MOST_LEFT_OUT", 11)
    table = build_table(runs, metrics=["called", "summed", "odd"], resamples=100, interval="bca")
    assert table.frame()["interval"].tolist() == ["percentile", "bca", "bca"]
    assert table.footnotes[0].startswith("Mean over cases [95 % interval: BCa bootstrap, 100 resamples of patients")
    assert "Called and Summed: one value for all cases together [95 % interval: BCa bootstrap" in table.footnotes[1]
    assert [note for note in table.footnotes if note.startswith("Called: percentile interval where BCa has none")]
