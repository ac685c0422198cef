"""Screens for copies: planted copies are found, chance is called chance, and no hold-out set means no number."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics.privacy import (
    SetError,
    authenticity,
    closest_pairs,
    dcr,
    dcr_share,
    memorisation_curve,
    memorised_fraction,
    near_copies,
    nnaa,
    nndr,
)
from tests.metrics.fidelity.test_frechet import normal

SCREENS = (dcr, dcr_share, nndr, nnaa, authenticity, memorised_fraction)


def lengths(one, other):
    return np.sqrt(((one[:, None].astype(float) - other[None]) ** 2).sum(-1))


def planted(copies=20, d=32, noise=1e-5):
    """400 training, 200 hold-out and 300 generated rows, some of which are training rows with a little noise."""
    train, holdout, made = normal(400, d, 1), normal(200, d, 2), normal(300, d, 3)
    made[:copies] = train[:copies] + noise * normal(copies, d, 4)
    return train, holdout, made


def test_planted_copies_are_found_where_the_median_sees_nothing():
    clean, found = dcr(*planted(0)), dcr(*planted(20))
    assert found.value == pytest.approx(clean.value, rel=0.02)
    assert found.details["below_holdout_p1"] >= 20 / 300
    assert clean.details["below_holdout_p1"] <= 0.04
    assert found.details["p1"] < 1e-3 < clean.details["p1"]
    assert found.details["closer_than_holdout"] > clean.details["closer_than_holdout"]
    assert abs(clean.details["closer_than_holdout"] - 0.5) < 0.06


def test_distances_are_those_of_all_pairs():
    train, holdout, made = planted()
    found = dcr(train, holdout, made)
    gaps = lengths(made, train).min(1)
    assert found.value == pytest.approx(np.median(gaps), rel=1e-12)
    assert found.details["p1"] == pytest.approx(np.percentile(gaps, 1), rel=1e-9)
    assert found.floor == pytest.approx(np.median(lengths(holdout, train).min(1)), rel=1e-12)
    assert found.low < found.value < found.high
    assert (found.n_real, found.n_generated, found.details["n_holdout"]) == (400, 300, 200)


def test_pixels_of_eight_bits_do_not_wrap_around():
    # A published pixel distance subtracts uint8 arrays: a copy three levels brighter is further than another image.
    rng = np.random.default_rng(0)
    train = rng.integers(10, 240, (60, 64)).astype(np.uint8)
    others = rng.integers(10, 240, (60, 64)).astype(np.uint8)
    brighter, darker = train + np.uint8(3), train - np.uint8(3)
    for copy in (brighter, darker):
        assert dcr(train, others, copy).value == pytest.approx(3 * 8, rel=1e-12)
    assert np.sqrt(((train - brighter).astype(float) ** 2).sum(1)).min() > 1000
    assert dcr(train, others, others).value > 300


def test_each_generated_row_has_its_own_distance():
    # A published loop scores the last generation for all, so that the least is the mean.
    found = dcr(*planted(30)).details
    assert found["p1"] < found["p5"] < found["p25"] < found["p50"]


def test_the_closest_pairs_are_the_copies():
    pairs = closest_pairs(*planted(5), count=6)
    assert {(one.generated, one.train) for one in pairs[:5]} == {(at, at) for at in range(5)}
    assert [one.nearer_than for one in pairs[:5]] == [0] * 5
    assert pairs[0].distance < 1e-4 < pairs[5].distance
    assert [one.distance for one in pairs] == sorted(one.distance for one in pairs)


def test_the_share_is_compared_with_the_sizes_of_both_references():
    # Another package calls anything above a half overfitting, also where training is twice the size.
    found = dcr_share(*planted(0))
    assert found.floor == pytest.approx(400 / 600)
    assert found.low < found.floor < found.high
    assert dcr_share(*planted(200)).low > found.floor


def test_ties_of_the_share_count_half():
    train, holdout = np.array([[0.0], [9]]), np.array([[2.0], [11]])
    found = dcr_share(train, holdout, np.array([[1.0], [0.5], [1.5], [10]]))
    assert found.value == pytest.approx((0.5 + 1 + 0 + 0.5) / 4)


def test_a_copy_has_a_ratio_of_0_exactly():
    train, holdout, made = planted(0)
    made[:200] = train[:200]
    found = nndr(train, holdout, made)
    assert found.value == 0
    assert found.flagged("shared_rows")
    assert nndr(*planted(0)).value == pytest.approx(found.floor, abs=0.02)
    twins = np.repeat(train, 2, axis=0)
    assert nndr(twins, holdout, made).value == 0


def test_two_images_of_a_patient_do_not_hide_a_copy():
    train, holdout, _ = planted(0)
    twins = np.repeat(train, 2, axis=0) + 1e-3 * normal(800, 32, 5)
    made = twins[::2] + 1e-3 * normal(400, 32, 6)
    patients = {"patients": np.repeat(np.arange(400), 2), "holdout_patients": 1000 + np.arange(200)}
    assert nndr(twins, holdout, made).value > 0.5
    assert nndr(twins, holdout, made, **patients).value < 0.01


def by_all_pairs(one, other):
    same, across = lengths(one, one), lengths(one, other)
    np.fill_diagonal(same, np.inf)
    back = lengths(other, other)
    np.fill_diagonal(back, np.inf)
    return ((across.min(1) > same.min(1)).mean() + (across.min(0) > back.min(1)).mean()) / 2


def test_adversarial_accuracy_is_that_of_all_pairs():
    train, holdout, made = (normal(90, 6, seed) for seed in (1, 2, 3))
    found = nnaa(train, holdout, made)
    assert found.value == pytest.approx(by_all_pairs(train, made))
    assert found.details["holdout"] == pytest.approx(by_all_pairs(holdout, made))
    assert found.details["privacy_loss"] == pytest.approx(by_all_pairs(holdout, made) - by_all_pairs(train, made))
    assert found.floor == pytest.approx(by_all_pairs(train, holdout))
    assert found.low < 0.5 < found.high


def test_copies_lower_the_adversarial_accuracy_and_strangers_raise_it():
    train, holdout, _ = planted(0)
    copies = train[:200] + 1e-4 * normal(200, 32, 7)
    found = nnaa(train[:200], holdout, copies)
    assert found.value < 0.05
    assert found.details["privacy_loss"] > 0.3
    assert nnaa(train, holdout, normal(200, 32, 8) + 3).value > 0.95


def test_sets_of_any_difference_in_size_are_cut_to_one():
    # SynthEval does so only where one is twice the other, so that a size of 1.9 biases its value.
    train, holdout, made = normal(190, 8, 1), normal(100, 8, 2), normal(150, 8, 3)
    found = nnaa(train, holdout, made)
    assert "subsampled: 100 rows of each set were compared" in found.flags
    assert (found.floor_n, abs(found.value - 0.5) < 0.12) == (100, True)


def test_authenticity_is_that_of_all_pairs_and_has_the_holdouts_beside_it():
    train, holdout, made = planted(60)
    found = authenticity(train, holdout, made)
    own = lengths(train, train)
    np.fill_diagonal(own, np.inf)
    gaps = lengths(made, train)
    assert found.value == pytest.approx((gaps.min(1) >= own.min(1)[gaps.argmin(1)]).mean())
    assert found.value < found.floor


def test_memorised_rows_are_counted_against_those_of_the_holdout():
    clean, found = memorised_fraction(*planted(0)), memorised_fraction(*planted(60))
    assert clean.low <= clean.floor + 0.03
    assert found.value >= 60 / 400
    assert found.value > found.floor + 0.1
    train = planted(0)[0]
    own = lengths(train, train)
    np.fill_diagonal(own, np.inf)
    assert found.details["threshold"] == pytest.approx(np.percentile(own.min(1) ** 2, 5) ** 0.5, rel=1e-9)
    with pytest.raises(SetError, match=r"in \(0, 100\), got 100"):
        memorised_fraction(*planted(0), percentile=100)


def test_memorisation_rises_with_how_often_a_row_was_seen():
    train, holdout, made = planted(0)
    seen = np.ones(400, dtype=int)
    seen[:40], seen[40:80] = 20, 4
    made[:36] = train[:36] + 1e-3
    made[36:46] = train[40:50] + 1e-3
    points = memorisation_curve(train, holdout, made, seen)
    assert [(one.least, one.most, one.n) for one in points] == [(1, 1, 320), (4, 4, 40), (20, 20, 40)]
    assert points[0].share < 0.1 < points[1].share < 0.5 < points[2].share
    assert all(one.low <= one.share <= one.high for one in points)
    for wrong in (seen[:-1], seen * 0.5, seen - 1):
        with pytest.raises(SetError, match="whole number above 0 per training row, 400"):
            memorisation_curve(train, holdout, made, wrong)
    with pytest.raises(SetError, match="to rise"):
        memorisation_curve(train, holdout, made, seen, edges=(2, 1))


@given(n=st.integers(1, 40), d=st.integers(1, 4), within=st.sampled_from([0.0, 1.0, 1.5]), seed=st.integers(0, 50))
@settings(deadline=None, max_examples=20)
def test_near_copies_are_those_of_all_pairs(n, d, within, seed):
    rows = np.round(np.random.default_rng(seed).standard_normal((n, d)) * 2)
    np.testing.assert_array_equal(near_copies(rows, within), (lengths(rows, rows) <= within).sum(1))


def test_near_copies_want_a_distance():
    with pytest.raises(SetError, match="distance, got -1"):
        near_copies(normal(4, 2), -1)
    assert near_copies(np.zeros((0, 3)), 1.0).shape == (0,)


@pytest.mark.parametrize("screen", SCREENS)
def test_no_screen_works_without_a_holdout_set(screen):
    train, holdout, made = planted()
    with pytest.raises(TypeError):
        screen(train, generated=made)
    with pytest.raises(SetError, match="needs a hold-out set"):
        screen(train, None, made)
    with pytest.raises(SetError, match=r"at least . rows in the hold-out set, got 1"):
        screen(train, holdout[:1], made)


@pytest.mark.parametrize("screen", SCREENS)
def test_bad_rows_are_named_or_counted_in_every_screen(screen):
    train, holdout, made = planted()
    made[3, 0] = np.nan
    with pytest.raises(SetError, match=r"generated set .*\(rows 3\)"):
        screen(train, holdout, made)
    found = screen(train, holdout, made, nan="drop", prompts=np.arange(300) // 3)
    assert "dropped_rows: 0 training, 0 hold-out and 1 generated rows were not finite" in found.flags
    with pytest.raises(SetError, match="got 32 in the training set and 31 in the hold-out set"):
        screen(train, holdout[:, 1:], made, nan="drop")
    with pytest.raises(TypeError, match="'patient'; did you mean 'patients'"):
        screen(train, holdout, made, patient=1)


@pytest.mark.parametrize("screen", SCREENS)
def test_every_screen_is_seeded_and_says_what_it_found(screen):
    one, again = (screen(*planted(), seed=3, extractor="siamese") for _ in range(2))
    assert one == again
    assert one.extractor == "siamese"
    assert one.low <= one.value <= one.high
    assert math.isfinite(one.floor)
    assert screen(*planted(), interval=False).interval == ""


def test_patients_in_training_and_holdout_are_refused():
    train, holdout, made = planted()
    with pytest.raises(SetError, match="3 patients have images in training and in the hold-out set"):
        dcr(train, holdout, made, patients=np.arange(400), holdout_patients=np.arange(397, 597))
    with pytest.raises(SetError, match="together, or neither"):
        dcr(train, holdout, made, patients=np.arange(400))
    with pytest.raises(SetError, match="needs `patients`"):
        dcr(train, holdout, made, prompt_patients=np.arange(300))


def test_distances_to_the_prompts_own_patient_stand_apart():
    train, holdout, made = planted(0)
    made = train[np.arange(300)] + 0.5 * normal(300, 32, 9)
    patients = np.array([f"p{at}" for at in range(400)])
    other = np.array([f"h{at}" for at in range(200)])
    options = {"patients": patients, "holdout_patients": other, "prompt_patients": patients[:300]}
    found = dcr(train, holdout, made, **options).details
    assert found["same_patient"] == pytest.approx(np.median(np.linalg.norm(made - train[:300], axis=1)), rel=1e-12)
    gaps = lengths(made, train)
    gaps[np.arange(300), np.arange(300)] = np.inf
    assert found["other_patients"] == pytest.approx(np.median(gaps.min(1)), rel=1e-12)
    assert found["same_patient"] < found["other_patients"]


def test_seeds_of_one_prompt_are_resampled_together():
    train, holdout, made = planted(0)
    prompts = np.repeat(np.arange(30), 10)
    alike = made[::10].repeat(10, axis=0) + 1e-3 * normal(300, 32, 4)
    alone, together = dcr(train, holdout, alike), dcr(train, holdout, alike, prompts=prompts)
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_holdout_rows_that_were_trained_on_are_flagged():
    train, holdout, made = planted()
    holdout[:7] = train[:7]
    assert "shared_rows: 7 of 200 hold-out rows are rows of the training set" in dcr(train, holdout, made).flags
