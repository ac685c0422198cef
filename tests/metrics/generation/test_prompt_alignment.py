"""Findings and views of generated pictures: values by hand, areas against scikit-learn, intervals by simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from medimg_eval.metrics.generation.image_sets import ImageSet, ImageSets
from medimg_eval.metrics.generation.prompt_alignment import (
    finding_agreement,
    finding_auroc,
    finding_sensitivity,
    finding_specificity,
    view_accuracy,
)

ALL = (finding_agreement, finding_sensitivity, finding_specificity, finding_auroc)


def sets(seen, said, *, patients=None, real=None, finding=None, names=None):
    seen, said = (np.asarray(one, float).reshape(len(seen), -1) for one in (seen, said))
    owners = np.array([f"p{n}" for n in range(len(seen))] if patients is None else patients, dtype=str)
    made = ImageSet(seen, owners, owners, said)
    reference = made if real is None else ImageSet(*real[:1], *(np.arange(len(real[0])).astype(str),) * 2, real[1])
    names = tuple(names or (f"f{n}" for n in range(seen.shape[1])))
    return ImageSets(
        {"generated": made, "reference": reference}, names=names, thresholds=(0.5,) * len(names), finding=finding
    )


SEEN = [0.9, 0.5, 0.4, 0.6, 0.1, 0.2]
SAID = [1, 1, 1, 0, 0, np.nan]


def test_values_by_hand():
    given_ = sets(SEEN, SAID, finding=0)
    # Of three with it two are seen (0.5 counts), of two without one is clean; the last is left open.
    assert finding_sensitivity(given_).value == pytest.approx(2 / 3)
    assert finding_specificity(given_).value == 1 / 2
    assert finding_agreement(given_).value == 3 / 5
    # 0.9 is above both, 0.5 and 0.4 above one of two.
    assert finding_auroc(given_).value == pytest.approx(4 / 6)
    found = finding_agreement(given_)
    assert (found.n_generated, found.floor, found.floor_n) == (6, 3 / 5, 6)
    assert found.flagged("small_n")
    assert found.flags[-1] == "left_open: 1 of 6 pictures, of which nothing certain is said"


def test_the_mean_is_over_findings_that_have_a_value():
    seen, said = np.c_[SEEN, SEEN, SEEN], np.c_[SAID, 1 - np.array(SAID), np.full(6, np.nan)]
    one, two = (finding_auroc(sets(seen, said, finding=at)).value for at in (0, 1))
    assert finding_auroc(sets(seen, said)).value == pytest.approx((one + two) / 2)
    with pytest.raises(ValueError, match="no prompt says anything certain of it"):
        finding_agreement(sets(seen, said, finding=2))


@pytest.mark.parametrize(
    ("metric", "said", "why"),
    [
        (finding_sensitivity, 0, "has it"),
        (finding_specificity, 1, "lacks it"),
        (finding_auroc, 0, "has it"),
        (finding_auroc, 1, "lacks it"),
    ],
)
def test_a_finding_that_no_prompt_has_or_lacks_has_no_value(metric, said, why):
    with pytest.raises(ValueError, match=f"no prompt {why}"):
        metric(sets(SEEN, [said] * 6, finding=0))


def test_a_generator_that_never_shows_it_is_right_often_and_sensitive_never():
    never = sets(np.zeros(100), np.arange(100) < 5, finding=0)
    assert [metric(never).value for metric in ALL] == [0.95, 0, 1, 0.5]


def test_the_floor_is_that_of_the_real_images():
    real = (np.array([[0.9], [0.1], [0.9], [0.9]]), np.array([[1.0], [0.0], [0.0], [1.0]]))
    found = finding_agreement(sets(SEEN, SAID, real=real))
    assert (found.floor, found.floor_n, found.n_real) == (0.75, 4, 4)
    assert math.isnan(finding_sensitivity(sets(SEEN, SAID, real=(real[0], np.zeros((4, 1))))).floor)


@given(n=st.integers(4, 40), seed=st.integers(0, 99), ties=st.booleans())
@settings(deadline=None, max_examples=25)
def test_areas_are_those_of_scikit_learn(n, seed, ties):
    rng = np.random.default_rng(seed)
    said = (np.arange(n) % 3 == 0).astype(float)
    seen = np.clip(said * 0.2 + rng.random(n) * 0.8, 0, 1)
    seen = np.round(seen, 1) if ties else seen
    assert finding_auroc(sets(seen, said, finding=0)).value == pytest.approx(roc_auc_score(said, seen), abs=1e-12)


def test_the_error_of_an_area_is_that_of_delong():
    rng = np.random.default_rng(0)
    said = (np.arange(60) % 3 == 0).astype(float)
    seen = said * 0.2 + rng.random(60) * 0.8
    there, absent = seen[said == 1], seen[said == 0]
    wins = (there[:, None] > absent) + 0.5 * (there[:, None] == absent)
    delong = wins.mean(axis=1).var(ddof=1) / len(there) + wins.mean(axis=0).var(ddof=1) / len(absent)
    found = finding_auroc(sets(seen, said, finding=0))
    assert found.standard_error == pytest.approx(math.sqrt(delong), rel=0.05)  # it divides by n and n - 1 otherwise


def test_pictures_of_one_patient_are_one_draw():
    rng = np.random.default_rng(0)
    said = np.repeat(rng.random(40) < 0.5, 5).astype(float)
    seen = np.repeat(rng.random(40), 5)
    patients = np.repeat(np.arange(40), 5)
    for metric in ALL:
        alone = metric(sets(seen[::5], said[::5], finding=0))
        many = metric(sets(seen, said, patients=patients, finding=0))
        assert (many.value, many.low, many.high) == pytest.approx((alone.value, alone.low, alone.high))


def test_all_right_is_no_certainty_where_few_were_asked_for():
    seen, said = np.r_[np.ones(3), np.zeros(97)], np.r_[np.ones(3), np.zeros(97)]
    found = finding_sensitivity(sets(seen, said, finding=0))
    assert (found.value, found.high) == (1, 1)
    assert found.low == pytest.approx(3 / (3 + 1.96**2), abs=1e-3)  # Wilson's of 3 in 3
    assert finding_auroc(sets(seen, said, finding=0)).low == found.low
    assert found.flagged("small_n")


def test_views_are_right_where_the_most_probable_is_the_one_asked_for():
    seen = [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4]]
    said = [[1, 0, 0], [1, 0, 0], [0, 1, 0], [np.nan] * 3]
    found = view_accuracy(sets(seen, said))
    assert found.value == pytest.approx(2 / 3)
    assert found.flagged("left_open")
    with pytest.raises(ValueError, match="no prompt asks for a known view"):
        view_accuracy(sets(seen, np.full((4, 3), np.nan)))


@pytest.mark.slow
@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("seeds", [1, 4])
def test_intervals_hold_the_truth_in_simulations(metric, seeds):
    def draw(seed, n):
        rng = np.random.default_rng(seed)
        said = np.repeat(rng.random(n) < 0.3, seeds).astype(float)
        strength = np.repeat(rng.normal(size=n), seeds) + 0.5 * rng.normal(size=n * seeds) + 1.2 * said
        return sets(1 / (1 + np.exp(0.6 - strength)), said, patients=np.repeat(np.arange(n), seeds), finding=0)

    truth = metric(draw(999, 20_000)).value
    found = [metric(draw(seed, 60)) for seed in range(200)]
    assert 0.89 <= np.mean([one.low <= truth <= one.high for one in found]) <= 1
