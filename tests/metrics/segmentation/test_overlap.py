"""Precision, recall, specificity and volumes: by hand, and against SimpleITK and scikit-learn."""

import math

import numpy as np
import pytest
import SimpleITK
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import precision_score, recall_score

from medimg_eval.metrics import LabelPair, get, segmentation_scores
from medimg_eval.metrics.segmentation.overlap import (
    dice,
    precision,
    recall,
    specificity,
    volume_error,
    volume_error_abs,
    volume_similarity,
)

ASKED = ("precision", "recall", "specificity", "volume_error", "volume_error_abs", "volume_similarity")
FUNCTIONS = (precision, recall, specificity, volume_error, volume_error_abs, volume_similarity)

masks = hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=5).flatmap(
    lambda shape: st.tuples(hnp.arrays(bool, shape), hnp.arrays(bool, shape))
)


def pair_of(reference, prediction):
    return LabelPair(reference, prediction, (1,) * reference.ndim)


def values(reference, prediction, **options):
    spacing = (1,) * reference.ndim
    scores = segmentation_scores(
        reference.astype(int), prediction.astype(int), spacing, labels=[1], metrics=ASKED, **options
    )
    return {score.metric: score.value for score in scores}


def test_overlaps_worked_out_by_hand():
    # Of 20 pixels 6 are the reference, 4 are predicted, 3 are both.
    reference, prediction = np.zeros((2, 4, 5), bool)
    reference[1, :3] = reference[2, :3] = True
    prediction[1, :3] = prediction[3, 4] = True
    pair = pair_of(reference, prediction)
    assert precision(pair) == 3 / 4
    assert recall(pair) == 3 / 6
    assert specificity(pair) == 13 / 14
    assert volume_error(pair) == pytest.approx(-2 / 6)
    assert volume_error_abs(pair) == pytest.approx(2 / 6)
    assert volume_similarity(pair) == 1 - 2 / 10


def test_the_image_counts_for_specificity_alone():
    reference, prediction = np.eye(3, dtype=bool), np.eye(3, dtype=bool)[::-1]
    small = values(reference, prediction)
    large = values(np.pad(reference, 3), np.pad(prediction, 3))
    assert (small.pop("specificity"), large.pop("specificity")) == (4 / 6, 76 / 78)
    assert small == large


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5)])
def test_empty_and_full_masks(shape):
    empty, full = np.zeros(shape, bool), np.ones(shape, bool)
    nan = math.nan

    def found(reference, prediction):
        pair = pair_of(reference, prediction)
        return [function(pair) for function in FUNCTIONS]

    assert found(full, empty) == pytest.approx([nan, 0, nan, -1, 1, 0], nan_ok=True)
    assert found(empty, full) == pytest.approx([0, nan, 0, nan, nan, 0], nan_ok=True)
    assert found(empty, empty) == pytest.approx([nan] * 6, nan_ok=True)
    assert found(full, full) == pytest.approx([1, 1, nan, 0, 0, 1], nan_ok=True)


def test_what_a_missed_and_an_invented_label_are_worth():
    some, empty = np.eye(4, dtype=bool), np.zeros((4, 4), bool)
    nan = math.nan
    missed, invented = values(some, empty), values(empty, some)
    # A miss is right about everything outside, and 100 % too small.
    assert list(missed.values()) == pytest.approx([0, 0, 1, -1, 1, 0])
    # The relative error of a volume of 0 does not exist; without its sign, the worst value stands for it.
    assert list(invented.values()) == pytest.approx([0, 0, 12 / 16, nan, 1, 0], nan_ok=True)
    assert all(math.isnan(value) for value in values(empty, empty).values())


def test_a_policy_that_names_a_metric_goes_before_its_own_value():
    some, empty = np.eye(4, dtype=bool), np.zeros((4, 4), bool)
    named = values(some, empty, empty={"missed": {"specificity": "worst"}})
    assert named["specificity"] == 0


def test_errors_of_volume_are_not_better_the_higher():
    assert [name for name in ASKED if not get(name).higher_is_better] == ["volume_error", "volume_error_abs"]
    for name in ASKED:
        found = get(name)
        assert (found.unit, found.best) == ("", 1 if found.higher_is_better else 0)
    # A signed error is no ranking: it is there for summaries.
    assert [name for name in ASKED if get(name).intermediate] == ["volume_error"]


@pytest.mark.parametrize("shape", [(20, 30), (10, 12, 14)])
@pytest.mark.parametrize("seed", range(3))
def test_values_equal_simpleitk_and_scikit_learn(shape, seed):
    random = np.random.default_rng(seed)
    reference, prediction = random.random(shape) < 0.3, random.random(shape) < 0.4
    reference[tuple(size // 2 for size in shape)] = prediction[tuple(size // 2 for size in shape)] = True
    pair = pair_of(reference, prediction)
    truth, answer = reference.ravel(), prediction.ravel()
    assert precision(pair) == pytest.approx(precision_score(truth, answer), rel=1e-12)
    assert recall(pair) == pytest.approx(recall_score(truth, answer), rel=1e-12)
    assert specificity(pair) == pytest.approx(recall_score(truth, answer, pos_label=False), rel=1e-12)
    peer = SimpleITK.LabelOverlapMeasuresImageFilter()
    # What it takes for the truth is its second image.
    peer.Execute(*(SimpleITK.GetImageFromArray(mask.astype(np.uint8)) for mask in (prediction, reference)))
    assert recall(pair) == pytest.approx(1 - peer.GetFalseNegativeError(), rel=1e-12)
    assert precision(pair) == pytest.approx(1 - peer.GetFalseDiscoveryRate(), rel=1e-12)
    # SimpleITK's "volume similarity" is the signed 2 (R - P) / (R + P).
    assert volume_similarity(pair) == pytest.approx(1 - abs(peer.GetVolumeSimilarity()) / 2, rel=1e-12)


@settings(deadline=None, max_examples=30)
@given(masks)
def test_identities_and_bounds(case):
    reference, prediction = case
    pair, swapped = pair_of(reference, prediction), pair_of(prediction, reference)
    assert precision(pair) == pytest.approx(recall(swapped), nan_ok=True)
    assert volume_similarity(pair) == pytest.approx(volume_similarity(swapped), nan_ok=True)
    for function in (precision, recall, specificity, volume_similarity):
        assert math.isnan(function(pair)) or 0 <= function(pair) <= 1
    if pair.status != "present":
        return
    assert volume_error(pair) >= -1
    assert volume_similarity(pair) >= dice(pair) - 1e-12
    if pair.overlap_size:
        harmonic = 2 * precision(pair) * recall(pair) / (precision(pair) + recall(pair))
        assert dice(pair) == pytest.approx(harmonic)
    # P / R from either: (1 + e) = P / R, and 1 - |P - R| / (P + R).
    size = 1 + volume_error(pair)
    assert volume_similarity(pair) == pytest.approx(1 - abs(size - 1) / (size + 1))
