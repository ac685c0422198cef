"""Krippendorff's alpha, unanimity and corrected shares: published and hand-worked numbers, properties, edges."""

import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.metrics.agreement import corrected_share, krippendorff_alpha, unanimous_share

NAN = math.nan
PUBLISHED = np.array(
    [  # four observers and twelve units of Krippendorff 2011
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
)


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("interval", 0.849)])
def test_the_published_example_comes_out(level, alpha):
    assert krippendorff_alpha(PUBLISHED, level) == pytest.approx(alpha, abs=5e-4)


def pairwise_alpha(ratings, level):
    """Alpha by its definition, pair by pair."""

    def apart(one, other):
        return float(one != other) if level == "nominal" else (one - other) ** 2

    items = [[value for value in column if not math.isnan(value)] for column in ratings.T]
    items = [values for values in items if len(values) > 1]
    every = [value for values in items for value in values]
    observed = sum(sum(apart(*pair) for pair in permutations(values, 2)) / (len(values) - 1) for values in items)
    expected = sum(apart(*pair) for pair in permutations(every, 2)) / (len(every) - 1) if len(every) > 1 else 0
    return 1 - observed / expected if expected else NAN


ratings = st.integers(1, 5).flatmap(
    lambda raters: st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, NAN]), min_size=raters, max_size=raters), min_size=1, max_size=8
    )
)


@given(ratings, st.sampled_from(["nominal", "interval"]))
def test_it_is_what_its_definition_says_pair_by_pair_and_knows_no_order(given_ratings, level):
    array = np.array(given_ratings, float).T
    alpha = krippendorff_alpha(array, level)
    assert alpha == pytest.approx(pairwise_alpha(array, level), nan_ok=True)
    assert krippendorff_alpha(array[::-1, ::-1], level) == pytest.approx(alpha, nan_ok=True)
    assert math.isnan(alpha) or alpha <= 1 + 1e-12


def test_nothing_to_compare_has_no_alpha():
    for empty in (np.zeros((3, 0)), np.full((3, 2), NAN), np.array([[1.0, 2.0]]), np.ones((2, 4))):
        assert math.isnan(krippendorff_alpha(empty))
    assert krippendorff_alpha(np.array([[1.0, 0.0], [1.0, 0.0]])) == 1.0


def test_unanimous_items_are_those_of_one_rating_only():
    assert unanimous_share(np.array([[1, 0, 1, NAN], [1, 1, NAN, NAN], [1, 0, 1, 1.0]])) == pytest.approx(2 / 3)
    assert math.isnan(unanimous_share(np.array([[1.0, 2.0]])))
    assert math.isnan(unanimous_share(np.zeros((2, 0))))


@given(st.floats(0, 1), st.floats(0.56, 1), st.floats(0.56, 1))
def test_a_share_seen_through_known_errors_is_given_back(share, sensitivity, specificity):
    seen = share * sensitivity + (1 - share) * (1 - specificity)
    assert corrected_share(seen, sensitivity, specificity) == pytest.approx(share, abs=1e-9)


def test_verdicts_that_say_next_to_nothing_correct_no_share():
    assert math.isnan(corrected_share(0.5, 0.6, 0.5))
    assert math.isnan(corrected_share(0.5, NAN, 0.9))
    assert corrected_share(0.05, 0.9, 0.9) == 0.0
    assert corrected_share(0.99, 0.9, 0.9) == 1.0
