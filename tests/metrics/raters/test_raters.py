"""Several truths: masks, classes and texts of readers, by hand, by plain loops, and beside SimpleITK's STAPLE."""

import math
from itertools import permutations

import numpy as np
import pytest
import SimpleITK
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics import available, parse
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.classification import Classified
from medimg_eval.metrics.raters import (
    RaterPair,
    estimate_staple,
    fuse_masks,
    generalised_energy_distance,
    matched_iou,
    rater_scores,
    share_covered,
    worst_rater_scores,
)
from medimg_eval.metrics.raters.classes import (
    class_agreement_among_readers,
    class_agreement_with_readers,
    class_brier_to_readers,
)
from medimg_eval.metrics.raters.texts import against_readers, among_readers


def masks(*texts):
    return np.array([[character == "1" for character in text] for text in texts])


def value(name, raters, mask, probability=None):
    soft = mask.astype(float) if probability is None else np.asarray(probability)
    return parse(name)[0].function(RaterPair(raters, mask, soft))


THREE = masks("1100", "1110", "0000")


def test_energy_distance_of_two_samples_and_three_readers():
    samples = masks("1100", "1000")
    # IoU 1, 2/3, 0 and 1/2, 1/3, 0: cross 1 - 2.5 / 6 = .583333; within 1/2 * 1/2 = .25; readers 2 (1/3 + 1 + 1) / 9.
    assert generalised_energy_distance(samples, THREE) == pytest.approx(2 * 0.5833333 - 0.25 - 0.5185185)
    # Without masks against themselves: within 1/2, readers 2 (1/3 + 1 + 1) / 6.
    unbiased = generalised_energy_distance(samples, THREE, unbiased=True)
    assert unbiased == pytest.approx(2 * 0.5833333 - 0.5 - 0.7777778)
    assert generalised_energy_distance(THREE, THREE) == pytest.approx(0)
    assert math.isnan(generalised_energy_distance(samples[:0], THREE))


def test_samples_are_matched_with_readers_as_well_as_can_be():
    samples = masks("1000", "1110")
    found = matched_iou(samples, masks("1100", "1110"))
    assert found == pytest.approx((1 / 2 + 1) / 2)
    # Two samples and three readers: six of each; every assignment, walked through.
    overlap = np.array([[1 / 2, 1 / 3, 0], [2 / 3, 1, 0]])
    table = np.tile(overlap, (3, 2))
    best = max(sum(table[row, column] for row, column in enumerate(order)) for order in permutations(range(6)))
    assert matched_iou(samples, THREE) == pytest.approx(best / 6)
    assert share_covered(samples, THREE, 0.6) == pytest.approx(2 / 3)


def test_a_mask_against_each_reader_by_hand():
    mask = masks("1000")[0]
    # Dice 2/3, 1/2, 0; among readers 4/5, 0, 0: means 2/5, 2/5, 0.
    assert value("dice_to_raters", THREE, mask) == pytest.approx((2 / 3 + 1 / 2) / 3)
    assert value("dice_to_raters_min", THREE, mask) == 0
    assert value("rater_dice", THREE, mask) == pytest.approx((2 / 5 + 2 / 5) / 3)
    assert (value("rater_dice_min", THREE, mask), value("rater_dice_max", THREE, mask)) == (0, pytest.approx(2 / 5))
    assert value("within_rater_range", THREE, mask) == 1
    assert value("within_rater_range", THREE[:2], mask) == 0  # 7/12 against 4/5
    # The majority marks the first two.
    assert value("dice_to_majority", THREE, mask) == pytest.approx(2 / 3)
    # IoU 1/2, 1/3, 0 of one mask; readers as above.
    assert value("ged", THREE, mask) == pytest.approx(2 * (1 - (1 / 2 + 1 / 3) / 3) - 0.5185185)


def test_probabilities_against_the_share_of_readers():
    raters, p = masks("110", "100"), np.array([0.9, 0.4, 0.0])
    assert value("brier_to_raters", raters, p >= 0.5, p) == pytest.approx((0.01 + 0.01 + 0) / 3)
    # Shares 1, 1/2, 0. Cuts at .1 and .3 both mark two; at .5 one of two; at .7 and .9 one of one.
    assert value("qubiq_dice", raters, p >= 0.5, p) == pytest.approx((1 + 1 + 2 / 3 + 1 + 1) / 5)
    said, due = [0.09, 0.24, 0.0], [0.0, 0.25, 0.0]
    assert value("uncertainty_ncc", raters, p >= 0.5, p) == pytest.approx(np.corrcoef(said, due)[0, 1])
    assert math.isnan(value("uncertainty_ncc", raters, p >= 0.5))  # a mask has no variance


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4), st.data())
@settings(max_examples=40, deadline=None)
def test_values_stay_in_their_range_and_are_blind_to_the_order_of_readers(rows, data):
    raters = np.array(rows)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=5, max_size=5)))
    order = data.draw(st.permutations(range(len(raters))))
    for name, found in available("raters").items():
        one, two = value(name, raters, mask), value(name, raters[list(order)], mask)
        assert one == pytest.approx(two, nan_ok=True, abs=1e-6)
        low = min(found.worst, found.best, 0) if not math.isnan(found.worst) else 0
        high = max(found.worst, found.best, 1) if not math.isnan(found.worst) else 1
        assert math.isnan(one) or low - 1e-9 <= one <= high + 1e-9


def test_readers_who_agree_are_matched_by_their_own_mask():
    agreed = masks("0110", "0110")
    for name in ("dice_to_raters", "dice_to_majority", "dice_to_staple", "rater_dice", "qubiq_dice"):
        assert value(name, agreed, agreed[0]) == pytest.approx(1)
    assert value("ged", agreed, agreed[0]) == pytest.approx(0)
    nothing = masks("0000", "0000")
    assert value("dice_to_raters", nothing, nothing[0]) == 1
    assert value("dice_to_staple", nothing, nothing[0]) == 1
    assert math.isnan(value("rater_dice", agreed[:1], agreed[0]))


def noisy(seed=0, shape=(12, 12, 6), errors=(0.02, 0.05, 0.1, 0.2)):
    rng = np.random.default_rng(seed)
    truth = np.zeros(shape, bool)
    truth[3:9, 2:9, 1:5] = True
    return truth, np.stack([truth ^ (rng.random(shape) < share) for share in errors])


def test_staple_is_that_of_simple_itk():
    _, raters = noisy()
    theirs = SimpleITK.STAPLEImageFilter()
    theirs.SetForegroundValue(1)
    theirs.SetConfidenceWeight(1.0)
    expected = SimpleITK.GetArrayFromImage(
        theirs.Execute([SimpleITK.GetImageFromArray(one.astype(np.uint8)) for one in raters])
    )
    found = estimate_staple(raters)
    assert found.probability == pytest.approx(expected, abs=1e-4)
    assert found.sensitivity == pytest.approx(theirs.GetSensitivity(), abs=1e-4)
    assert found.specificity == pytest.approx(theirs.GetSpecificity(), abs=1e-4)


def test_staple_trusts_the_better_readers():
    truth, raters = noisy(errors=(0.01, 0.01, 0.4, 0.4, 0.4))
    by = {how: (fuse_masks(raters, how) != truth).mean() for how in ("staple", "majority")}
    assert by["staple"] < by["majority"] / 3
    assert not estimate_staple(np.zeros((2, 4), bool)).probability.any()


def test_ways_to_fuse():
    three = masks("110", "100", "011")
    assert fuse_masks(three).tolist() == [True, True, False]
    assert fuse_masks(three, "first").tolist() == [True, True, False]
    assert fuse_masks(three[:2]).tolist() == [True, False, False]  # a tie is no majority
    with pytest.raises(ValueError, match="fusion is invalid"):
        fuse_masks(three, "mean")
    with pytest.raises(ValueError, match="masks is invalid"):
        estimate_staple(np.zeros((2, 3)))


def test_scores_of_labels_and_of_a_case_without_an_answer():
    raters = [np.array([[1, 2]]), np.array([[1, 0]])]
    rows = rater_scores(raters, np.array([[1, 0]]), regions={"liver": (1,), "tumour": (2,)}, metrics=["dice_to_raters"])
    assert [(row.label, row.value, row.status) for row in rows] == [
        ("liver", 1.0, "present"),
        ("tumour", 0.5, "missed"),  # one reader sees it, one agrees that it is not there
    ]
    worst = worst_rater_scores({"liver": (1,)}, ["ged", "rater_dice"])
    assert worst[0].value == 2
    assert math.isnan(worst[1].value)
    with pytest.raises(ValueError, match="raters is invalid"):
        rater_scores([], np.array([[1]]), regions={"liver": (1,)}, metrics=["ged"])


def test_classes_of_readers_by_hand():
    readers = {"anna": {"edema": 1, "mass": 0}, "ben": {"edema": 1, "mass": math.nan}, "cleo": {"edema": 0, "mass": 0}}
    pair = Classified({"edema": 1, "mass": 0}, {"edema": 0.8, "mass": 0.6}, readers=readers)
    assert class_agreement_with_readers(pair) == {"edema": pytest.approx(2 / 3), "mass": 0}
    # Of three pairs one agrees; both who judged the mass do.
    assert class_agreement_among_readers(pair) == {"edema": pytest.approx(1 / 3), "mass": 1}
    assert class_brier_to_readers(pair) == {"edema": pytest.approx((0.8 - 2 / 3) ** 2), "mass": pytest.approx(0.36)}
    assert class_agreement_with_readers(Classified({"edema": 1}, {"edema": 0.8})) == {}


def answered(output, truths, kind="open", **more):
    return AnsweredQuestion(kind=kind, output=output, value=truths, outputs=(output,), **more)


def test_texts_of_readers_by_hand():
    # F1 of words: the model's "left lung" against the others', each reader left out in turn.
    pair = answered("left lung", ["left lung", "lung", "heart"])
    # Left out: first -> best of lung, heart 2/3; second -> 1; third -> 1.
    assert against_readers(pair, "token_f1") == pytest.approx((2 / 3 + 1 + 1) / 3)
    # Readers: left lung against lung, heart 2/3; lung against left lung, heart 2/3; heart against the others 0.
    assert among_readers(pair, "token_f1") == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert math.isnan(against_readers(answered("left lung", ["left lung"]), "token_f1"))


def test_choices_of_readers_are_judged_one_by_one():
    options = {"A": "yes", "B": "no"}
    pair = answered("A", "A", kind="choice", options=options, more={"readers": ["A", "A", "B"]})
    # Left out A: A and B, 1/2; again; left out B: A and A, 1.
    assert against_readers(pair, "accuracy") == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    # A against A and B 1/2, again, B against A and A 0.
    assert among_readers(pair, "accuracy") == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", ["dice", "against_readers@accuracy", "judge_score"])
def test_a_metric_that_cannot_be_meant_is_refused(name):
    with pytest.raises(UsageError):
        parse(f"against_readers@{name}")
