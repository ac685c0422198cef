"""Estimates of a mask's quality from probabilities alone, and volumes: by hand and by simulated masks."""

import math

import numpy as np
import pytest

from medimg_eval.errors import UsageError
from medimg_eval.metrics.segmentation import segmentation_scores
from medimg_eval.metrics.segmentation.probability_maps import ProbabilityPair
from medimg_eval.metrics.segmentation.quality_estimates import (
    expected_dice,
    missed_share,
    voxel_entropy,
)


def test_expected_dice_is_the_dice_that_honest_probabilities_give():
    rng = np.random.default_rng(0)
    p = rng.random(500) ** 3
    mask = p >= 0.5
    drawn = [rng.random(500) < p for _ in range(400)]
    dice = [2 * (one & mask).sum() / (one.sum() + mask.sum()) for one in drawn]
    assert expected_dice(ProbabilityPair(mask, p)) == pytest.approx(np.mean(dice), abs=0.005)
    assert math.isnan(expected_dice(ProbabilityPair(mask, p * 0.4)))  # no mask, nothing to estimate


@pytest.mark.parametrize(("p", "bits"), [([0.0, 1.0], 0), ([0.5, 0.5], 1), ([0.25, 1.0], 0.811278 / 2)])
def test_entropy_in_bits(p, bits):
    assert voxel_entropy(ProbabilityPair(np.zeros(2, bool), np.array(p))) == pytest.approx(bits, abs=1e-6)


def test_the_missed_share_by_hand():
    pair = ProbabilityPair(np.array([True, True, True, False]), np.array([0.9, 0.5, 0.2, 0.1]))
    assert missed_share(pair, 0.5) == pytest.approx(1 / 3)
    assert missed_share(pair, 0.2) == 0
    assert missed_share(pair, 1) == 1
    assert math.isnan(missed_share(ProbabilityPair(np.zeros(2, bool), np.array([0.2, 0.9])), 0.5))
    with pytest.raises(UsageError, match="above 0"):
        missed_share(pair, 0)


def test_volumes_are_in_ml():
    reference, prediction = np.zeros((4, 5, 5), int), np.zeros((4, 5, 5), int)
    reference[:2], prediction[:1] = 1, 1
    names = ["volume_reference", "volume_predicted"]
    found = segmentation_scores(reference, prediction, (10, 2, 5), labels={1: "liver"}, metrics=names)
    # 50 and 25 voxels of 100 mm3.
    assert [score.value for score in found] == pytest.approx([5.0, 2.5])
