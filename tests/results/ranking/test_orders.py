"""Friedman, Nemenyi, cliques, Borda and Kemeny: by hand, from tables, against others and by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.results.ranking import orders as ranking_orders
from medimg_eval.results.ranking.orders import borda, cliques, friedman, kemeny, rank

counted = st.integers(2, 5).flatmap(
    lambda size: st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3)),
        min_size=size * (size - 1) // 2,
        max_size=size * (size - 1) // 2,
    ).map(lambda pairs: (size, pairs))
)


def test_ranks_by_hand():
    values = [[0.9, 0.7, 0.9, 0.1], [0.2, 0.3, 0.1, float("nan")]]
    assert rank(values[0], higher_is_better=True).tolist() == [1.5, 3, 1.5, 4]
    assert rank(values[0], higher_is_better=True, ties="min").tolist() == [1, 3, 1, 4]
    assert rank(values[0], higher_is_better=False).tolist() == [3.5, 2, 3.5, 1]
    assert rank(values, higher_is_better=True)[1, :3].tolist() == [2, 1, 3]
    assert math.isnan(rank(values, higher_is_better=True)[1, 3])


def test_friedman_by_hand():
    # Three data sets rank three models alike: chi-square is 12 * 3 / 12 * (1 + 4 + 9) - 3 * 3 * 4 = 6.
    found = friedman([[1, 2, 3]] * 3)
    assert found.p == pytest.approx(math.exp(-3))
    assert (found.p_f, found.data_sets) == (pytest.approx(1 / 36), 3)
    assert found.exact == pytest.approx(1 / 36)
    # Ranks 1 2 3, 1 3 2, 1 2 3: means 1, 7/3, 8/3, chi-square 14/3, F = 2 * 14/3 / (6 - 14/3) = 7.
    found = friedman([[1, 2, 3], [1, 3, 2], [1, 2, 3]])
    assert found.p == pytest.approx(math.exp(-7 / 3))
    assert found.p_f == pytest.approx(scipy.stats.f.sf(7, 2, 4))


@pytest.mark.parametrize("seed", range(4))
def test_friedman_is_scipys_also_with_ties(seed):
    values = np.random.default_rng(seed).integers(0, 5, (7, 5)).astype(float)
    found = friedman(rank(values, higher_is_better=True))
    assert found.p == pytest.approx(scipy.stats.friedmanchisquare(*values.T).pvalue)


@pytest.mark.parametrize(("models", "quantile"), [(3, 2.343), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_is_demsars(models, quantile):
    # His Table 5 (a): quantiles of the studentised range at 0.05 divided by the root of 2.
    ranks = np.array([np.roll(np.arange(1.0, models + 1), place) for place in range(14)])
    expected = quantile * math.sqrt(models * (models + 1) / (6 * 14))
    assert friedman(ranks).cd == pytest.approx(expected, abs=0.001)
    assert friedman(ranks, alpha=0.1).cd < friedman(ranks).cd


def test_pairs_differ_where_scikit_posthocs_finds_so():
    values = np.random.default_rng(2).normal(size=(12, 5)) + np.array([0, 0.5, 1.5, 3, 4])
    ranks = rank(values, higher_is_better=True)
    found, means = friedman(ranks), ranks.mean(axis=0)
    theirs = scikit_posthocs.posthoc_nemenyi_friedman(pd.DataFrame(values)).to_numpy()
    ours = np.abs(means[:, None] - means[None, :]) >= found.cd
    assert ours.any()
    assert (ours == (theirs < 0.05)).all()
    together = {pair for group in cliques(means.tolist(), found.cd) for pair in itertools.permutations(group, 2)}
    assert together == {(one, two) for one, two in itertools.permutations(range(5), 2) if theirs[one, two] >= 0.05}


def test_too_little_to_test():
    assert math.isnan(friedman([[1, 2], [2, 1]]).cd)
    assert math.isnan(friedman([[1, 2, 3]]).p)
    assert friedman([[2, 2, 2], [2, 2, 2]]).p == 1.0


def test_cliques_by_hand():
    assert cliques([3.2, 1.0, 1.9, 4.1], 1.0) == [(1, 2), (0, 3)]
    assert cliques([1.0, 2.0, 3.0], 1.0) == []  # a difference of the critical one is shown
    assert cliques([2.0, 2.0, 2.0], 0.5) == [(0, 1, 2)]


def test_borda_and_kemeny_by_hand():
    # Three data sets: A > B > C, A > B > C, C > A > B.
    wins = np.array([[0, 3, 2], [0, 0, 2], [1, 1, 0]], dtype=float)
    compared = np.full((3, 3), 3.0) - 3 * np.eye(3)
    assert borda(wins, compared).tolist() == pytest.approx([5 / 6, 2 / 6, 2 / 6])
    found = kemeny(wins, compared)
    assert found.order == (0, 1, 2)
    assert found.disagreement == pytest.approx(1 / 3 + 1 / 3)
    assert found.exact


def test_a_model_that_skipped_its_hard_data_set_does_not_gain_by_it():
    # B is worse than A wherever both were run, and has only its rank 1 of a data set without A.
    wins = np.array([[0, 2, 1], [0, 0, 3], [1, 0, 0]], dtype=float)
    compared = np.array([[0, 2, 2], [2, 0, 3], [2, 3, 0]], dtype=float)
    assert kemeny(wins, compared).order == (0, 1, 2)


def brute(share):
    return min(
        sum(share[order[j], order[i]] for i in range(len(share)) for j in range(i + 1, len(share)))
        for order in itertools.permutations(range(len(share)))
    )


@given(counted)
@settings(deadline=None, max_examples=30)
def test_no_order_disagrees_less_than_kemenys(drawn):
    size, pairs = drawn
    wins, compared = np.zeros((2, size, size))
    for (one, two), (first, second) in zip(itertools.combinations(range(size), 2), pairs, strict=True):
        wins[one, two], wins[two, one] = first, second
        compared[one, two] = compared[two, one] = first + second
    found = kemeny(wins, compared)
    share = np.divide(wins, compared, out=np.full(wins.shape, 0.5), where=compared > 0)
    assert sorted(found.order) == list(range(size))
    assert found.disagreement == pytest.approx(brute(share))


def test_many_models_are_ordered_by_moving_them(monkeypatch):
    rng = np.random.default_rng(0)
    share = rng.random((7, 7))
    wins = share / (share + share.T)
    compared = np.ones((7, 7)) - np.eye(7)
    exact = kemeny(wins, compared)
    monkeypatch.setattr(ranking_orders, "MOST_EXACT", 3)
    searched = kemeny(wins, compared)
    assert not searched.exact
    assert exact.disagreement <= searched.disagreement <= exact.disagreement * 1.1
    # A clear order is found however many there are.
    clear = np.triu(np.ones((40, 40)), 1)
    shuffled = rng.permutation(40)
    found = kemeny(clear[np.ix_(shuffled, shuffled)], np.ones((40, 40)) - np.eye(40))
    assert [int(shuffled[place]) for place in found.order] == list(range(40))
    assert found.disagreement == 0.0
