"""RaTEScore's arithmetic, by hand and beside a plain reading of its rule."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.reports.ratescore_entities import (
    AFFINITY,
    TYPES,
    Match,
    rate_of_matches,
    rate_score,
    ratescore,
    ratescore_strict,
    top_matches,
)

fast = settings(deadline=None, max_examples=25)

LONG = {  # of the published table, those that the cases below need
    ("disease", "disease"): 0.8460555030578727,
    ("disease", "anatomy"): 0.9950209388542061,
    ("disease", "non-disease"): 0.3789136708096537,
    ("non-disease", "disease"): 0.10073046076318157,
    ("anatomy", "anatomy"): 0.2856134859160784,
    ("anatomy", "disease"): 0.4592143222158069,
}


def test_a_finding_that_is_denied_is_worth_less_by_hand():
    # One entity a side: weights cancel, and the similarity is multiplied with the weight of opposites.
    assert rate_score(["disease"], ["non-disease"], [[1.0]]) == pytest.approx(0.8716553966489615, abs=1e-12)
    assert rate_score(["disease"], ["non-disease"], [[1.0]], "short") == pytest.approx(0.3611577852354489, abs=1e-12)
    assert rate_score(["abnormality"], ["non-disease"], [[0.5]]) == pytest.approx(0.4358276983244808, abs=1e-12)
    assert rate_score(["abnormality"], ["disease"], [[0.5]]) == pytest.approx(0.5, abs=1e-12)
    assert rate_score(["anatomy"], ["non-disease"], [[0.5]]) == pytest.approx(0.5, abs=1e-12)


def test_two_entities_against_one_by_hand():
    # "effusion", "lung" against "effusion": the second is nearest to what is left, of another type.
    forth = (LONG["disease", "disease"] * 1.0 + LONG["anatomy", "disease"] * 0.2) / (
        LONG["disease", "disease"] + LONG["anatomy", "disease"]
    )
    assert rate_score(["disease", "anatomy"], ["disease"], [[1.0], [0.2]]) == pytest.approx(
        2 * forth * 1.0 / (forth + 1.0), abs=1e-12
    )


def test_weights_are_not_symmetric_but_the_score_of_swapped_reports_is():
    cosines = np.array([[0.9, 0.1], [0.3, 0.6]])
    one = rate_score(["disease", "anatomy"], ["non-disease", "anatomy"], cosines)
    other = rate_score(["non-disease", "anatomy"], ["disease", "anatomy"], cosines.T)
    assert one == pytest.approx(other, abs=1e-12)
    opposed = AFFINITY["long"].opposed
    forth = (LONG["disease", "non-disease"] * 0.9 * opposed + LONG["anatomy", "anatomy"] * 0.6) / (
        LONG["disease", "non-disease"] + LONG["anatomy", "anatomy"]
    )
    back = (LONG["non-disease", "disease"] * 0.9 * opposed + LONG["anatomy", "anatomy"] * 0.6) / (
        LONG["non-disease", "disease"] + LONG["anatomy", "anatomy"]
    )
    assert one == pytest.approx(2 * forth * back / (forth + back), abs=1e-12)


def test_a_report_without_entities_is_worth_a_half_by_the_authors_rule():
    assert rate_score([], ["disease"], []) == 0.5
    assert rate_score(["disease"], [], np.zeros((1, 0))) == 0.5
    assert rate_score([], [], []) == 0.5
    assert rate_of_matches([], [Match("disease", "disease", 1.0)]) == 0.5


def test_entities_without_any_similarity_are_worth_nothing():
    assert rate_score(["disease"], ["disease"], [[0.0]]) == 0.0
    assert rate_score(["disease"], ["disease"], [[-0.4]]) == 0.0


def test_of_entities_that_are_as_similar_the_first_counts():
    assert top_matches(["disease"], ["anatomy", "disease"], [[0.7, 0.7000000001]]) == [Match("disease", "anatomy", 0.7)]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: rate_score(["disease"], ["disease"], [[1.0]], "lang"), "no weights 'lang'; did you mean 'long'"),
        (
            lambda: rate_score(["diseases"], ["disease"], [[1.0]]),
            "entity 'diseases'; did you mean 'disease'",
        ),
        (lambda: rate_score(["disease"], ["disease"], [[1.0, 0.0]]), r"of shape \(1, 1\), got \(1, 2\)"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, complaint):
    with pytest.raises(UsageError, match=complaint):
        call()


def plain(given, said, cosines, table):
    """The rule, entity by entity."""
    weights, opposed = AFFINITY[table]

    def direction(kinds, others, rows):
        total = norm = 0.0
        for kind, row in zip(kinds, rows, strict=True):
            at = max(range(len(others)), key=lambda place: (round(row[place], 6), -place))
            weight = weights[TYPES.index(kind), TYPES.index(others[at])]
            pair = {kind.removeprefix("non-"), others[at].removeprefix("non-")}
            against = "anatomy" not in pair and kind.startswith("non-") != others[at].startswith("non-")
            total += weight * round(row[at], 6) * (opposed if against else 1)
            norm += weight
        return max(0, total / norm)

    one, other = direction(given, said, cosines), direction(said, given, cosines.T)
    return 2 * one * other / (one + other) if one + other else 0


kinds = st.lists(st.sampled_from(TYPES), min_size=1, max_size=6)


@fast
@given(kinds, kinds, st.integers(0, 2**32 - 1), st.sampled_from(["long", "short"]))
def test_any_pair_is_worth_what_the_plain_rule_says(given, said, seed, table):
    cosines = np.random.default_rng(seed).uniform(-1, 1, (len(given), len(said)))
    found = rate_score([kind.upper() for kind in given], said, cosines, table)
    assert found == pytest.approx(plain(given, said, cosines, table), abs=1e-9)
    assert 0 <= found <= 1


@fast
@given(kinds, st.integers(0, 2**32 - 1), st.sampled_from(["long", "short"]))
def test_equal_reports_have_the_best_score(given, seed, table):
    vectors = np.random.default_rng(seed).normal(size=(len(given), 5))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert rate_score(given, given, unit @ unit.T, table) == pytest.approx(1, abs=1e-6)


def pair(read, kind="report", value="Mild edema."):
    return AnsweredQuestion(kind, "Edema.", value, readings={"ratescore": read})


def test_the_metric_takes_what_the_annotator_read():
    read = {
        "reference": [["disease", "non-disease", 1.0]],
        "prediction": [["non-disease", "disease", 1.0]],
        "entities": [1, 1],
    }
    assert ratescore(pair(read)) == ratescore_strict(pair(read)) == pytest.approx(0.8716553966489615)
    assert ratescore(pair(read), "short") == ratescore_strict(pair(read), "short") == pytest.approx(0.3611577852354489)


def test_the_metric_is_not_judged_where_there_is_nothing_to_judge():
    nothing = {"reference": [], "prediction": [], "entities": [0, 0]}
    lacking = {"reference": [], "prediction": [], "entities": [2, 0]}
    assert ratescore(pair(nothing)) == ratescore(pair(lacking)) == 0.5
    assert math.isnan(ratescore_strict(pair(nothing)))
    assert ratescore_strict(pair(lacking)) == 0
    for judge in (ratescore, ratescore_strict):
        assert math.isnan(judge(pair(None)))
        assert math.isnan(judge(pair(nothing, value="")))
        assert math.isnan(judge(pair(nothing, value=" \n ")))
        assert math.isnan(judge(AnsweredQuestion("choice", "A", "A", options={"A": "x", "B": "y"})))
