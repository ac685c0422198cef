"""Semantic entropy: by hand, and by counting what a judge is asked."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.metrics.calibration import cluster_meanings, semantic_confidence, semantic_entropy


def test_answers_join_the_first_meaning_that_holds_both_ways():
    implied = {("a mass on the left", "a mass"), ("a mass", "there is a mass"), ("there is a mass", "a mass")}
    asked = []

    def alike(first, second):
        asked.append((first, second))
        return (first, second) in implied

    answers = ["a mass", "there is a mass", "a mass", "a mass on the left"]
    # The last says more than the first, so it does not mean the same.
    assert cluster_meanings(answers, alike) == [0, 0, 0, 1]
    assert asked == [
        ("there is a mass", "a mass"),
        ("a mass", "there is a mass"),
        ("a mass on the left", "a mass"),
        ("a mass", "a mass on the left"),
    ]


def test_entropy_of_meanings_by_hand():
    # Three of four and one of four.
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert semantic_entropy([0, 1, 0, 0]) == pytest.approx(expected)
    # Likelihoods 0.6, 0.2, 0.2: meanings 0.8 and 0.2.
    logs = [math.log(0.6), math.log(0.2), math.log(0.2)]
    expected = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))
    assert semantic_entropy([0, 0, 1], logs) == pytest.approx(expected)
    assert semantic_confidence([0, 0, 1], logs) == pytest.approx(1 - expected / math.log(3))


@given(st.lists(st.integers(0, 4), min_size=2, max_size=12))
def test_confidence_stays_in_its_range_and_is_blind_to_order(clusters):
    value = semantic_confidence(clusters)
    assert 0 <= value <= 1
    assert value == pytest.approx(semantic_confidence(sorted(clusters)))
    assert (value == 1) == (len(set(clusters)) == 1)


@pytest.mark.parametrize(("clusters", "logs"), [([], None), ([0, 1], [0.0]), ([0, 1], [0.0, -math.inf])])
def test_what_has_no_entropy_is_refused(clusters, logs):
    with pytest.raises(ValueError, match="log_likelihoods is invalid"):
        semantic_entropy(clusters, logs)
    with pytest.raises(ValueError, match="two answers or more"):
        semantic_confidence([0])
