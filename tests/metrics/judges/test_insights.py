"""Insights: a matrix by hand, what a judge may write, an answer without any, and matching one to one."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics import get
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.judges.insights import list_insights, read_insight_matrix

NAMES = ("insight_recall", "insight_precision", "insight_f1", "insight_matched")


def values(matrix, output="a\nb", due=("x", "y", "z")):
    pair = AnsweredQuestion("open", output, due, judged={"insights": matrix})
    return [get(name).function(pair) for name in NAMES]


def test_a_matrix_by_hand():
    # Matches 1 0 0 and 2/3 1/3 0: the best of each due one are 1, 1/3 and 0, of each found one 1 and 2/3.
    recall, precision = 4 / 9, 5 / 6
    found = values([[10, 1, 1], [7, 4, 1]])
    assert found == pytest.approx([recall, precision, 2 * recall * precision / (recall + precision), 1 / 3])


def test_a_vague_insight_matches_one_alone():
    assert values([[10, 10, 10]], output="a") == pytest.approx([1, 1, 1, 1 / 3])


def test_what_is_missing():
    assert values(None, output="") == [0, 0, 0, 0]
    assert all(math.isnan(value) for value in values(None))
    assert all(math.isnan(value) for value in values([[1, 2, 3]]))  # of another size
    assert values(0.0) == [0, 0, 0, 0]  # a case that failed
    assert values([[10]], output="a", due="x") == [1, 1, 1, 1]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_numbers_are_shares_and_the_matching_is_the_best(found, due, seed):
    matrix = np.random.default_rng(seed).integers(1, 11, (found, due))
    recall, precision, f1, matched = values(matrix.tolist(), "\n".join("abcd"[:found]), tuple("wxyz"[:due]))
    assert 0 <= min(recall, precision) <= f1 + 1e-12 <= max(recall, precision) + 2e-12 <= 1 + 2e-12
    turned = values(matrix.T.tolist(), "\n".join("abcd"[:due]), tuple("wxyz"[:found]))
    assert turned[:3] == pytest.approx([precision, recall, f1])
    shares = np.zeros((4, 4))
    shares[:found, :due] = (matrix - 1) / 9
    chosen = max(
        permutations(range(4)),
        key=lambda order: sum(s if (s := shares[row, at]) >= 0.5 else 0 for row, at in enumerate(order)),
    )
    assert matched == pytest.approx(sum(shares[row, at] >= 0.5 for row, at in enumerate(chosen)) / due)


@pytest.mark.parametrize(
    ("reply", "matrix"),
    [
        ("[[1, 10], [2.5, 3]]", [[1, 10], [2.5, 3]]),
        ("Here: ```json\n[[4]]\n```", [[4]]),
        ("[[1, 2], [3]]", None),
        ("[[0]]", None),
        ("[[11]]", None),
        ("[[true]]", None),
        ("[[1, 2]", None),
        ("[]", None),
        ("none", None),
    ],
)
def test_a_judges_matrix_is_read(reply, matrix):
    assert read_insight_matrix(reply) == matrix


def test_lines_are_insights():
    assert list_insights("<think>hm</think>1) A.\n\n(2) B.\n\N{BULLET} C.\n-5 HU") == ["A.", "B.", "C.", "-5 HU"]
