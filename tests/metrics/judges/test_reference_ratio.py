"""Answers beside reference answers: the ratio of two means is not the mean of ratios."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.metrics.scores import LabelScore
from tests.helpers.rows import summarised


def case(answer, reference):
    pairs = (("judged@answer", answer), ("judged@reference", reference))
    return [LabelScore("all", name, value, "present") for name, value in pairs]


def test_both_by_hand():
    cases = [case(4, 8), case(6, 2)]
    assert summarised("judge_ratio_of_means", *cases) == pytest.approx(100 * 5 / 5)
    assert summarised("judge_mean_of_ratios", *cases) == pytest.approx(100 * (0.5 + 3) / 2)


def test_what_lacks_is_left_out_of_its_own_mean():
    cases = [case(4, 8), case(math.nan, 2)]
    assert summarised("judge_ratio_of_means", *cases) == pytest.approx(100 * 4 / 5)
    assert summarised("judge_mean_of_ratios", *cases) == pytest.approx(50)
    for name in ("judge_ratio_of_means", "judge_mean_of_ratios"):
        assert math.isnan(summarised(name, case(math.nan, math.nan)))
    assert math.isnan(summarised("judge_mean_of_ratios", case(3, 0)))


@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 10)), min_size=1, max_size=8))
def test_they_are_what_numpy_makes_of_them(pairs):
    given_, due = np.array(pairs, float).T
    cases = [case(*pair) for pair in pairs]
    assert summarised("judge_ratio_of_means", *cases) == pytest.approx(100 * given_.mean() / due.mean())
    assert summarised("judge_mean_of_ratios", *cases) == pytest.approx(100 * (given_ / due).mean())
