"""Resamples against drawing and adding by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.results.statistics import resampling
from medimg_eval.results.statistics.resampling import Resamples, draws

STRATA = np.array(["b", "a", "b", "c", "a", "b", "a", "b"])


def times(of):
    return np.concatenate(list(of.times())).astype(int)


def test_counts_are_those_of_the_draws():
    drawn = np.random.default_rng(5).integers(7, size=(40, 7))
    assert np.array_equal(np.concatenate(list(draws(7, resamples=40, seed=5))), drawn)
    assert np.array_equal(times(Resamples(7, resamples=40, seed=5)), [np.bincount(some, minlength=7) for some in drawn])


@pytest.mark.parametrize("strata", [None, STRATA])
def test_sums_are_those_of_adding_what_is_drawn(strata):
    resamples = Resamples(8, resamples=30, seed=1, strata=strata)
    features = np.random.default_rng(0).random((8, 3))
    drawn = np.concatenate(list(resamples.drawn()))
    assert resamples.sums(features) == pytest.approx(np.array([features[some].sum(axis=0) for some in drawn]))


def test_every_stratum_keeps_its_size_and_each_of_its_clusters_is_drawn_alike():
    resamples = Resamples(8, resamples=4_000, seed=2, strata=STRATA)
    assert resamples.stratified
    found = times(resamples)
    for name in "abc":
        members = np.isin(STRATA, name)
        assert (found[:, members].sum(axis=1) == members.sum()).all()
    assert found.mean(axis=0) == pytest.approx(np.ones(8), abs=0.06)
    # A stratum of k clusters has binomial counts: k draws of chance 1 / k.
    assert found.var(axis=0) == pytest.approx([1 - 1 / np.isin(STRATA, name).sum() for name in STRATA], abs=0.08)


def test_one_stratum_is_none():
    alone, together = Resamples(6, resamples=20, seed=3, strata=np.zeros(6)), Resamples(6, resamples=20, seed=3)
    assert not alone.stratified
    assert np.array_equal(times(alone), times(together))


@pytest.mark.parametrize("strata", [None, STRATA])
def test_what_is_held_in_memory_changes_nothing(monkeypatch, strata):
    before = times(Resamples(8, resamples=50, seed=4, strata=strata))
    monkeypatch.setattr(resampling, "_MOST_KEPT", 0)
    assert np.array_equal(times(Resamples(8, resamples=50, seed=4, strata=strata)), before)
    monkeypatch.setattr(resampling, "_CHUNK_DRAWS", 24)
    assert np.array_equal(times(Resamples(8, resamples=50, seed=4, strata=strata)), before)


def test_kinds_are_for_many_clusters_of_few_kinds_without_strata(monkeypatch):
    features = np.repeat([[0.0], [1.0]], 4, axis=0)
    assert Resamples(8, resamples=10, seed=0).sums_by_kind(features) is None
    monkeypatch.setattr(resampling, "_MANY_DRAWS", 0)
    assert Resamples(8, resamples=10, seed=0, strata=STRATA).sums_by_kind(features) is None
    found = Resamples(8, resamples=20_000, seed=0).sums_by_kind(features)
    assert found is not None
    assert (found.mean(), found.var()) == pytest.approx((4, 2), rel=0.05)
    monkeypatch.setattr(resampling, "_FEW_KINDS", 1)
    assert Resamples(8, resamples=10, seed=0).sums_by_kind(features) is None


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, 9))
def test_the_size_is_kept_for_any_strata(strata, seed):
    found = times(Resamples(len(strata), resamples=7, seed=seed, strata=np.array(strata)))
    assert found.shape == (7, len(strata))
    for name in set(strata):
        assert (found[:, np.array(strata) == name].sum(axis=1) == strata.count(name)).all()
