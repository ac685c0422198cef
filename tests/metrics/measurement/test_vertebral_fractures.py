"""Height loss and grading of vertebrae: by hand, and against scikit-learn."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

from medimg_eval.metrics import ScoreTable, parse
from medimg_eval.metrics.measurement.measurements import HeightLoss, relative_height_loss
from medimg_eval.metrics.measurement.vertebral_fractures import genant_by_loss, vertebra_scores

THREE = ("genant_precision", "genant_recall", "genant_f1")


def rows(true, given):
    many = len(true)
    return ScoreTable(
        np.arange(many),
        np.full(many, "genant_grade"),
        np.array([str(one) for one in true], dtype=str),
        np.asarray(given, float),
        np.full(many, "present"),
        {},
        many,
        {},
    )


def values(true, given):
    return [parse(name)[0].function(rows(true, given)) for name in THREE]


def test_grading_by_hand():
    # Grade 0: 2 of 3 found, 2 of 2 given right. 1: 1 of 1, 1 of 2. 3 has one, that is missed; 2 occurs nowhere.
    assert values([0, 0, 0, 1, 3], [0, 0, 1, 1, math.nan]) == pytest.approx(
        [(1 + 1 / 2 + 0) / 3, (2 / 3 + 1 + 0) / 3, (4 / 5 + 2 / 3 + 0) / 3]
    )
    assert values([0, 1, 2, 3], [0, 1, 2, 3]) == [1, 1, 1]
    assert values([2, 2], [math.nan, math.nan]) == [0, 0, 0]
    assert all(math.isnan(value) for value in values([], []))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
@settings(deadline=None, max_examples=30)
def test_grading_is_that_of_scikit_learn(pairs):
    true, given_ = zip(*pairs, strict=True)
    options = {"average": "macro", "zero_division": 0}
    expected = [score(true, given_, **options) for score in (precision_score, recall_score, f1_score)]
    assert values(true, given_) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("thirds", "grade"),
    [((0.19, 0, 0), 0), ((0.2, 0, 0), 1), ((0, 0.25, 0.1), 2), ((0.1, 0.1, 0.4), 3), ((-0.5, -0.1, -0.9), 0)],
)
def test_the_greatest_loss_of_the_thirds_is_the_grade(thirds, grade):
    assert genant_by_loss(HeightLoss(0.0, *thirds)) == grade
    assert genant_by_loss(HeightLoss(0.0, *thirds), (2, 3, 4)) == 0


def test_a_third_without_height_has_no_grade():
    assert math.isnan(genant_by_loss(HeightLoss(0.1, 0.5, math.nan, 0.1)))


def test_losses_keep_their_sign_where_the_authors_stretch_the_synthetic_vertebra():
    low, high = np.zeros((20, 12, 9), bool), np.zeros((20, 12, 9), bool)
    low[5:13, 1:11, 1:8] = True  # made 8 high
    high[4:14, 1:11, 1:8] = True  # where the real one is 10
    loss = relative_height_loss(low, high)
    assert loss == pytest.approx((-0.25,) * 4)
    scores = vertebra_scores(loss, 0, 0, ["rhlv", "genant_grade"])
    assert [(one.label, one.value, one.status) for one in scores] == [
        ("whole", -0.25, "present"),
        ("anterior", -0.25, "present"),
        ("middle", -0.25, "present"),
        ("posterior", -0.25, "present"),
        ("0", 0.0, "present"),
    ]


def test_what_is_not_there_is_missed_and_what_has_no_true_grade_is_not_graded():
    nothing = HeightLoss(*[math.nan] * 4)
    scores = vertebra_scores(nothing, math.nan, 2, ["rhlv", "genant_grade"])
    assert {one.status for one in scores} == {"missed"}
    assert [one.label for one in vertebra_scores(nothing, 1, None, ["genant_grade"])] == []
    assert {one.status for one in vertebra_scores(nothing, 1, 1, ["rhlv"], status="failed")} == {"failed"}
