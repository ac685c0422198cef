"""Corrections worked by hand, tests against enumeration and SciPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.results.statistics.hypothesis_tests import benjamini_hochberg, group_test, holm, signed_rank

NAN = float("nan")
p_values = st.lists(st.floats(0, 1), max_size=8)


def test_holm_by_hand():
    # Sorted .005, .01, .03, .04 times 4, 3, 2, 1: .02, .03, .06, .04, and the last is lifted to .06.
    assert holm([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]).tolist() == [1.0, 1.0]
    assert holm([]).tolist() == []


def test_benjamini_hochberg_by_hand():
    # Sorted .005, .01, .03, .04 times 4/1, 4/2, 4/3, 4/4: .02, .02, .04, .04.
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.005]).tolist() == pytest.approx([0.02, 0.04, 0.04, 0.02])
    # Times 3, 1.5, 1: .06, .075, .05, and the first two sink to .05.
    assert benjamini_hochberg([0.02, 0.05, 0.05]).tolist() == pytest.approx([0.05, 0.05, 0.05])


def test_tests_that_were_not_made_do_not_count():
    for correct in (holm, benjamini_hochberg):
        found = correct([0.01, NAN, 0.04])
        assert np.isnan(found[1])
        assert found[[0, 2]].tolist() == pytest.approx(correct([0.01, 0.04]).tolist())
        assert np.isnan(correct([NAN])).all()


@given(p_values)
@settings(deadline=None, max_examples=30)
def test_corrections_equal_slow_ones_and_keep_the_order(values):
    count = len(values)
    order = sorted(range(count), key=lambda i: values[i])
    slow = [0.0] * count
    for rank, i in enumerate(order):
        slow[i] = max(min(1.0, (count - k) * values[order[k]]) for k in range(rank + 1))
    ours = holm(values)
    assert ours.tolist() == pytest.approx(slow)
    assert all(ours >= np.array(values))
    if values:
        theirs = scipy.stats.false_discovery_control(values, method="bh")
        assert benjamini_hochberg(values).tolist() == pytest.approx(theirs.tolist())
    assert all(benjamini_hochberg(values) <= ours + 1e-12)


def exact(differences, side):
    """The p-value over all signs of the ranks."""
    ranks = scipy.stats.rankdata(np.abs(differences))
    seen = ranks[np.array(differences) > 0].sum()
    sums = [np.dot(signs, ranks) for signs in itertools.product([0, 1], repeat=len(ranks))]
    tail = np.mean([total >= seen - 1e-9 if side == "greater" else total <= seen + 1e-9 for total in sums])
    return float(tail)


@pytest.mark.parametrize("side", ["greater", "less"])
def test_the_signed_rank_test_by_enumeration(side):
    first, second = np.array([0.9, 0.8, 0.75, 0.7, 0.3]), np.array([0.5, 0.7, 0.7, 0.72, 0.1])
    assert signed_rank(first, second, side).p == pytest.approx(exact(first - second, side))
    # All of three differences positive: one of eight patterns of signs.
    assert signed_rank([3, 2, 4], [1, 1, 1], "greater").p == pytest.approx(1 / 8)
    assert signed_rank([3, 2, 4], [1, 1, 1], "less").p == pytest.approx(1)


def test_the_signed_rank_test_is_scipys():
    rng = np.random.default_rng(0)
    first, second = np.round(rng.random(80), 1), np.round(rng.random(80) * 0.9, 1)  # many ties and zeros
    found = signed_rank(first, second, "greater")
    assert found.p == scipy.stats.wilcoxon(np.round(first - second, 12), alternative="greater").pvalue
    assert (found.n, found.zeros) == (80, int((first == second).sum()))
    assert found.zeros > 0


def test_no_difference_and_no_pair():
    assert signed_rank([0.5, 0.7], [0.5, 0.7], "greater") == (1.0, 2, 2)
    assert signed_rank([], []).n == 0
    assert math.isnan(signed_rank([], []).p)
    assert signed_rank([0.5], [0.4], "greater").p == pytest.approx(0.5)
    assert signed_rank([0.5, 0.5, 0.5], [0.4, 0.5, 0.5], "greater")[1:] == (3, 2)


def test_groups_that_differ_and_the_pairs_that_do():
    low, high = np.arange(10) / 100, 0.5 + np.arange(10) / 100
    found = group_test({"a": low, "b": low + 0.001, "c": high})
    assert found.p == scipy.stats.kruskal(low, low + 0.001, high).pvalue
    raw = [
        scipy.stats.mannwhitneyu(one, two, alternative="two-sided").pvalue
        for one, two in ((low, low + 0.001), (low, high), (low + 0.001, high))
    ]
    assert list(found.pairs) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert list(found.pairs.values()) == pytest.approx(scipy.stats.false_discovery_control(raw).tolist())
    assert [pair for pair, p in found.pairs.items() if p < 0.05] == [("a", "c"), ("b", "c")]


def test_pairs_are_tested_only_where_all_groups_together_differ():
    same = group_test({"a": np.arange(10.0), "b": np.arange(10.0) + 0.1})
    assert same.p > 0.05
    assert same.pairs == {}


def test_groups_without_anything_to_compare():
    assert math.isnan(group_test({"a": [1.0, 2.0]}).p)
    assert group_test({"a": [1.0, 1.0], "b": [1.0]}) == (1.0, {})
    constant = group_test({"a": [1.0] * 8, "b": [1.0] * 8, "c": [0.0] * 8})
    assert constant.pairs["a", "b"] == 1.0
    assert constant.pairs["a", "c"] < 0.05
