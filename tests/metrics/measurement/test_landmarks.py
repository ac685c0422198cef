"""Landmark metrics against hand-worked cases, naive formulas and what must hold for any points."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rows import summarised

from medimg_eval.errors import UsageError
from medimg_eval.metrics.measurement.landmarks import landmark_scores, worst_landmark_scores

EVERY = ("landmark_distance", "sdr@5", "sdr@20", "identified")


def by_name(scores):
    return {(score.label, score.metric): score.value for score in scores}


# L1 to L4 along an axis, 30 mm apart.
SPINE = {"L1": (0, 0, 0), "L2": (0, 0, 30), "L3": (0, 0, 60), "L4": (0, 0, 90)}


def test_distances_rates_and_identification_worked_out_by_hand():
    # L1 is 3-4-0 off; L2 20 mm off exactly; L3 lies at L2's place and L4 at L3's: shifted by one level.
    answer = {"L1": (3, 4, 0), "L2": (20, 0, 30), "L3": (0, 0, 31), "L4": (0, 0, 61)}
    scores = by_name(landmark_scores(SPINE, answer, metrics=EVERY))
    assert [scores[name, "landmark_distance"] for name in SPINE] == pytest.approx([5, 20, 29, 29])
    assert [scores[name, "sdr@5"] for name in SPINE] == [1, 0, 0, 0]
    assert [scores[name, "sdr@20"] for name in SPINE] == [1, 1, 0, 0]
    assert [scores[name, "identified"] for name in SPINE] == [1, 1, 0, 0]


def test_the_nearest_reference_must_carry_the_same_label_even_within_20_mm():
    near = {"T1": (0.0, 0.0), "T2": (10.0, 0.0)}
    scores = by_name(landmark_scores(near, {"T1": (6, 0), "T2": (10, 0)}, metrics=["identified", "sdr@20"]))
    assert (scores["T1", "identified"], scores["T1", "sdr@20"]) == (0, 1)  # 6 from T1, 4 from T2
    # A tie is no loss: T1 lies halfway, and nothing is nearer than its own.
    assert (
        by_name(landmark_scores(near, {"T1": (5, 0), "T2": (10, 0)}, metrics=["identified"]))["T1", "identified"] == 1
    )


def test_only_vertebrae_that_both_lists_have_compete():
    near = {"T1": (0.0, 0.0), "T2": (10.0, 0.0)}
    scores = by_name(landmark_scores(near, {"T1": (6, 0), "T9": (0, 0)}, metrics=["identified"]))
    assert scores["T1", "identified"] == 1  # T2, which is nearer, is not in the prediction's list
    assert scores["T2", "identified"] == 0
    assert math.isnan(scores["T9", "identified"])


def test_statuses_and_what_a_missed_point_is_worth():
    answer = {"L1": (0, 0, 0), "L2": (math.nan, 0, 0), "T13": (0, 0, 0)}
    scores = landmark_scores(SPINE, answer, metrics=["landmark_distance", "sdr@5"], diagonal=200.0)
    assert [score.status for score in scores[::2]] == ["present", "missed", "missed", "missed", "hallucinated"]
    assert [score.label for score in scores[::2]] == ["L1", "L2", "L3", "L4", "T13"]
    np.testing.assert_array_equal([score.value for score in scores[::2]], [0, 200, 200, 200, math.nan])
    np.testing.assert_array_equal([score.value for score in scores[1::2]], [1, 0, 0, 0, math.nan])
    for missed, worth in (("skip", math.nan), (50, 50), ("diagonal", math.nan)):
        value = landmark_scores({"L1": (0, 0)}, {}, metrics=["landmark_distance"], missed=missed)[0].value
        np.testing.assert_equal(value, worth)


def test_the_verse_summaries_pool_the_vertebrae_of_the_test_set():
    metrics = ["landmark_distance", "identified"]
    one = landmark_scores(SPINE, SPINE, metrics=metrics)  # 4 of 4, 0 mm
    two = landmark_scores(
        {"L1": (0, 0), "L2": (0, 30)}, {"L1": (0, 12)}, metrics=metrics, diagonal=90.0
    )  # 1 of 2, 12 mm
    lost = worst_landmark_scores(["C1", "C2"], metrics, diagonal=100.0)  # 0 of 2
    assert summarised("id_rate", one, two, lost) == 5 / 8
    assert summarised("d_mean", one, two, lost) == pytest.approx(12 / 5)
    assert summarised("mre", one, two, lost) == pytest.approx((12 + 90 + 100 + 100) / 8)
    assert math.isnan(summarised("id_rate", landmark_scores({}, {"L1": (0, 0)}, metrics=metrics)))
    assert math.isnan(summarised("d_mean", lost))


def test_a_prediction_beside_the_reference_lowers_no_verse_number():
    metrics = ["landmark_distance", "identified"]
    plain = landmark_scores(SPINE, SPINE, metrics=metrics)
    more = landmark_scores(SPINE, SPINE | {"L6": (0, 0, 1)}, metrics=metrics)
    for name in ("id_rate", "d_mean"):
        assert summarised(name, plain) == summarised(name, more)


def authors_hits(truth, answer):
    """The identification rule of VerSe's evaluation notebook, written down anew: (vertebra, axis), NaN for none."""
    both = [i for i in range(len(truth)) if not (np.isnan(truth[i]).any() or np.isnan(answer[i]).any())]
    hits = 0
    for i in both:
        distances = [math.dist(answer[i], truth[j]) for j in both]
        own = math.dist(answer[i], truth[i])  # where it ties, theirs goes to the lower label
        hits += own <= min(distances) and own <= 20
    return hits


POINTS = arrays(np.float64, (6, 3), elements=st.one_of(st.integers(-20, 20).map(float), st.just(math.nan)))


@settings(deadline=None, max_examples=60)
@given(truth=POINTS, answer=POINTS)
def test_identification_is_the_authors_rule(truth, answer):
    names = [f"V{i}" for i in range(6)]
    scores = landmark_scores(
        dict(zip(names, truth, strict=True)), dict(zip(names, answer, strict=True)), metrics=["identified"]
    )
    assert sum(score.value == 1 for score in scores) == authors_hits(truth, answer)
    assert sum(not math.isnan(score.value) for score in scores) == (~np.isnan(truth).any(axis=1)).sum()


@settings(deadline=None, max_examples=20)
@given(
    truth=arrays(np.float64, (4, 3), elements=st.floats(-50, 50)),
    answer=arrays(np.float64, (4, 3), elements=st.floats(-50, 50)),
    shift=arrays(np.float64, 3, elements=st.floats(-50, 50)),
    order=st.permutations(range(4)),
)
def test_moving_both_sides_swapping_them_or_renumbering_changes_no_distance(truth, answer, shift, order):
    def distances(one, other):
        scores = landmark_scores(dict(zip("abcd", one, strict=True)), dict(zip("abcd", other, strict=True)))
        return [score.value for score in scores if score.metric == "landmark_distance"]

    found = distances(truth, answer)
    np.testing.assert_allclose(found, np.linalg.norm(truth - answer, axis=1), atol=1e-9)
    np.testing.assert_allclose(distances(answer, truth), found, atol=1e-9)
    np.testing.assert_allclose(distances(truth + shift, answer + shift), found, atol=1e-6)
    np.testing.assert_allclose(distances(truth[order], answer[order]), np.array(found)[order], atol=1e-9)


def test_a_point_is_never_farther_than_itself_by_rounding():
    rng = np.random.default_rng(0)
    for _ in range(200):
        truth = {str(number): rng.normal(size=3) * 50 + 200 * number for number in range(3)}
        answer = {name: position + rng.normal(size=3) for name, position in truth.items()}
        assert {score.value for score in landmark_scores(truth, answer, metrics=["identified"])} == {1}


def test_a_tolerance_has_the_slack_of_floating_point():
    scores = landmark_scores({"a": (0.0,)}, {"a": (3 * 0.8,)}, metrics=["sdr@2.4", "sdr@2.3"])
    assert [score.value for score in scores] == [1, 0]


def test_a_failed_case_has_every_metrics_worst_value():
    scores = worst_landmark_scores(["L1"], EVERY, diagonal=80.0)
    assert [(score.value, score.status) for score in scores] == [(80, "failed"), *[(0, "failed")] * 3]
    skipped = worst_landmark_scores(["L1"], EVERY, missed="skip", diagonal=80.0)
    np.testing.assert_array_equal([score.value for score in skipped], [math.nan, 0, 0, 0])
    assert all(math.isnan(score.value) for score in worst_landmark_scores(["L1"], EVERY, diagonal=None))


def test_what_cannot_be_meant_is_refused():
    with pytest.raises(ValueError, match="position of 'a' to be finite"):
        landmark_scores({"a": (0, math.inf)}, {})
    with pytest.raises(ValueError, match="as many axes"):
        landmark_scores({"a": (0, 1)}, {"b": (0, 1, 2)})
    with pytest.raises(UsageError, match="'dice' judges mask, not landmarks"):
        landmark_scores({}, {}, metrics=["dice"])
    assert landmark_scores({}, {}) == []
