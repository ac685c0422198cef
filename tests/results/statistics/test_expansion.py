"""Intervals of very many clusters from their moments, against the bootstrap's own distribution drawn by kind."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.results.statistics import MANY_CLUSTERS, Bootstrap, Resamples, Sample, effects, expand, table_intervals
from medimg_eval.results.statistics.effect_sizes import _rank_biserial, _rank_influence, _resampled_ranks
from medimg_eval.results.statistics.hypothesis_tests import _rows_of_bits, _sums_by_eights

SHARES = (0.025, 0.05, 0.5, 0.95, 0.975)
SIZE = MANY_CLUSTERS + 1


def drawn_by_kind(total, kinds, members, *, draws=400_000):
    """The distribution that resampling clusters of few kinds has: how many of each is multinomial."""
    rng = np.random.default_rng(7)
    parts = (rng.multinomial(members.sum(), members / members.sum(), size=draws // 4) @ kinds for _ in range(4))
    return np.concatenate([total(part) for part in parts])


def assert_close(found, drawn, within=0.006):
    """Quantiles agree within a share of half an interval's width; 400,000 draws are off by 0.2 % themselves."""
    there, here = np.quantile(drawn, SHARES), np.quantile(found, SHARES)
    half = (there[-1] - there[0]) / 2
    assert np.abs(here - there).max() < within * half


MEMBERS = np.array([9_000, 6_000, 3_000, 1_500, 501])


@pytest.mark.parametrize(
    ("total", "kinds"),
    [
        (lambda sums: sums[:, 0] / SIZE, np.array([[0.0], [0.1], [0.7], [4.0], [9.0]])),
        (lambda sums: sums[:, 0] / sums[:, 1], np.array([[0.9, 1], [0.2, 2], [4.0, 5], [1.0, 9], [7.0, 8]])),
        # A standard deviation: far from linear.
        (
            lambda sums: np.sqrt(sums[:, 1] / SIZE - (sums[:, 0] / SIZE) ** 2),
            np.array([[0.0, 0], [1, 1], [2, 4], [6, 36], [9, 81]]),
        ),
    ],
    ids=["mean", "ratio", "spread"],
)
def test_expanded_quantiles_are_those_of_resamples_without_end(total, kinds):
    sums = np.repeat(kinds, MEMBERS, axis=0)
    found = expand(total, sums)
    assert found is not None
    assert_close(found, drawn_by_kind(total, kinds, MEMBERS))
    shuffled = expand(total, np.random.default_rng(0).permutation(sums))
    np.testing.assert_allclose(shuffled, found, rtol=1e-9)


def test_strata_add_no_width_of_what_differs_between_them():
    rng = np.random.default_rng(0)
    strata = rng.integers(0, 3, SIZE)
    within = rng.normal(0, 1, (SIZE, 1))
    total = np.ravel
    apart, pooled = expand(total, within + 100 * strata[:, None], strata), expand(total, within, strata)
    np.testing.assert_allclose(apart - apart.mean(), pooled - pooled.mean(), atol=1e-6)
    drawn = Resamples(SIZE, resamples=300, seed=0, strata=strata).sums(within)[:, 0]
    assert pooled.std() == pytest.approx(drawn.std(), rel=0.2)


def test_resamples_are_drawn_where_clusters_are_few_alike_or_few_of_them_decide():
    rng = np.random.default_rng(0)
    assert expand(np.ravel, rng.normal(size=(MANY_CLUSTERS, 1))) is None
    assert expand(np.ravel, np.ones((SIZE, 1))) is None
    heavy = rng.normal(size=(SIZE, 1))
    heavy[0] = 100.0
    assert expand(np.ravel, heavy) is None, "one cluster decides on the skewness"
    heavy[1] = -100.0
    assert expand(np.ravel, heavy) is None, "two that cancel out decide on the kurtosis"
    held = np.arange(SIZE) < 4
    rare = np.column_stack([np.where(held, rng.random(SIZE), 0), held])
    assert expand(lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1), rare) is None, "a label of four clusters"
    some = rng.normal(size=(SIZE, 1))
    assert expand(lambda sums: np.where(sums[:, 0] > some.sum(), np.nan, sums[:, 0]), some) is None, "no derivative"


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_tables_of_very_many_patients_say_how_their_intervals_were_made(method):
    rng = np.random.default_rng(0)
    values, patients = rng.lognormal(0, 1, 3 * SIZE), np.repeat(np.arange(SIZE), 3)
    labels = np.tile(["liver", "spleen", "cyst"], SIZE)
    samples = [Sample(values[:many], patients[:many]) for many in (3 * SIZE, 3 * MANY_CLUSTERS)]
    by_label = Sample(values, patients, labels)
    how = Bootstrap(200, method=method)
    above, below, labelled = table_intervals([*samples, by_label], how)
    assert (above.method, below.method, labelled.method) == ("expansion", method, "expansion")
    assert above.high - above.low == pytest.approx(below.high - below.low, rel=0.2)
    # Each label has one value a patient, so that the mean over labels is that of all values.
    assert (labelled.low, labelled.high) == pytest.approx((above.low, above.high), rel=1e-6)


def test_sizes_of_effects_of_very_many_patients_are_those_of_resamples():
    rng = np.random.default_rng(0)
    patients = np.repeat(np.arange(SIZE), 2)
    differences = rng.normal(0.01, 0.05, 2 * SIZE) + np.repeat(rng.normal(0, 0.05, SIZE), 2)
    above = effects(differences, patients)
    fewer = effects(differences[:-2], patients[:-2], resamples=400)
    for name in ("mean", "d_z", "rank_biserial", "superiority"):
        here, there = getattr(above, name), getattr(fewer, name)
        assert here.value == pytest.approx(there.value, rel=0.01)
        assert here.high - here.low == pytest.approx(there.high - there.low, rel=0.15)
    assert above.mean.low < above.least < above.mean.value < above.most < above.mean.high


def test_rank_biserial_without_draws_is_that_of_draws_by_kind():
    kinds = np.array([-3.0, -1.0, 0.0, 1.0, 2.0])
    values, owner = np.repeat(kinds, MEMBERS), np.arange(SIZE)
    seen = float(_rank_biserial(values, owner, np.ones((1, SIZE)))[0])
    found = _resampled_ranks(values, owner, seen, SIZE, resamples=10, seed=0)
    assert len(found) == 10_000, "none are drawn"
    drawn = drawn_by_kind(lambda times: _rank_biserial(kinds, np.arange(5), times), np.eye(5), MEMBERS)
    assert_close(found, drawn)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=12), st.integers(0, 100))
def test_influence_on_ranks_is_the_derivative_by_how_often_a_patient_counts(values, seed):
    values = np.array(values, dtype=np.float64)
    owner = np.sort(np.random.default_rng(seed).integers(0, 4, values.size))
    step = 1e-5
    rows = 1 + step * np.concatenate([np.eye(4), -np.eye(4)])
    up, down = np.split(_rank_biserial(values, owner, rows), 2)
    slopes = (up - down) / (2 * step)
    np.testing.assert_allclose(_rank_influence(values, owner, 4), slopes - slopes.mean(), atol=1e-6)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 100))
def test_signs_looked_up_eight_at_a_time_add_up_as_one_by_one(number, size, seed):
    rng = np.random.default_rng(seed)
    signs, sizes = rng.integers(0, 256, -(-number * size // 8), dtype=np.uint8), rng.random(size)
    bits = np.unpackbits(signs)[: number * size].reshape(number, size)
    padded = np.zeros(-(-size // 8) * 8)
    padded[:size] = sizes
    found = _sums_by_eights(_rows_of_bits(signs, number, size), padded.reshape(-1, 8))
    np.testing.assert_allclose(found, bits @ sizes, atol=1e-12)
