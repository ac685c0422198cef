"""The same numbers as independent implementations: MONAI's with voxel surfaces, DeepMind's with surfels."""

import math

import numpy as np
import pytest
import surface_distance
import torch
from monai.metrics import (
    compute_average_surface_distance,
    compute_dice,
    compute_hausdorff_distance,
    compute_iou,
    compute_surface_dice,
)
from scipy.ndimage import binary_erosion, gaussian_filter, shift

from medimg_eval.metrics import LabelPair, segmentation_scores
from medimg_eval.metrics.segmentation.overlap import dice, iou
from medimg_eval.metrics.segmentation.surface_distance import assd, hd, hd95, nsd

pytestmark = [
    # MONAI passes an argument that MONAI deprecates.
    pytest.mark.filterwarnings("ignore:monai.metrics.utils get_mask_edges:FutureWarning"),
    # surface-distance 0.1 calls SciPy by names that SciPy has moved.
    pytest.mark.filterwarnings("ignore:Please import `(correlate|distance_transform_edt)`:DeprecationWarning"),
]

# No distance between grid points comes near it: MONAI compares in float32 and surface-distance without the
# slack, so at a tolerance that is a multiple of the spacing each would answer by its rounding.
TOLERANCE = 1.337
# MONAI's distances are float32, and so is the rank at which it interpolates a percentile.
FLOAT32 = 1e-5

CASES = [
    ((24, 20, 22), (1.0, 1.0, 1.0)),
    ((20, 26, 18), (0.8, 0.8, 1.5)),
    ((12, 30, 26), (5.0, 1.0, 1.0)),
    ((40, 34), (1.0, 1.0)),
    ((30, 50), (0.7, 1.9)),
]
SEEDS = [0, 1, 2]


def blobs(shape, seed):
    """Two masks of several parts, with holes, often touching the border, that agree in part."""
    random = np.random.default_rng(seed)
    noise = random.standard_normal((3, *shape))
    smooth = [gaussian_filter(field, 2) for field in noise]
    reference = smooth[0] > 0.6 * smooth[0].std()
    prediction = smooth[0] + 0.5 * smooth[1] > 0.7 * smooth[0].std()
    if seed == 1:  # a rough boundary, with many of the rarer corner codes
        prediction ^= random.random(shape) < 0.03
    if seed == 2:  # the same object, moved
        prediction = shift(reference.astype(float), 1.4, order=1) > 0.5
    return reference, prediction


@pytest.fixture(params=[(*case, seed) for case in CASES for seed in SEEDS], ids=str)
def case(request):
    shape, spacing, seed = request.param
    reference, prediction = blobs(shape, seed)
    assert 0 < (reference & prediction).sum() < (reference | prediction).sum()
    return reference, prediction, spacing


def channels(mask):
    return torch.from_numpy(mask[None, None].astype(np.float32))


def test_voxel_metrics_equal_monai(case):
    reference, prediction, spacing = case
    pair = LabelPair(reference, prediction, spacing, "voxel")
    y, y_pred = channels(reference), channels(prediction)
    expected = {
        dice: compute_dice(y_pred, y),
        iou: compute_iou(y_pred, y),
        hd: compute_hausdorff_distance(y_pred, y, include_background=True, spacing=spacing),
        hd95: compute_hausdorff_distance(y_pred, y, include_background=True, percentile=95, spacing=spacing),
        assd: compute_average_surface_distance(y_pred, y, include_background=True, symmetric=True, spacing=spacing),
    }
    for function, value in expected.items():
        assert function(pair) == pytest.approx(value.item(), rel=FLOAT32), function.__name__
    surface_dice = compute_surface_dice(y_pred, y, [TOLERANCE], include_background=True, spacing=spacing)
    assert nsd(pair, TOLERANCE) == pytest.approx(surface_dice.item(), rel=FLOAT32)


def test_surfel_nsd_equals_monai(case):
    reference, prediction, spacing = case
    expected = compute_surface_dice(
        channels(prediction), channels(reference), [TOLERANCE],
        include_background=True, spacing=spacing, use_subvoxels=True,
    )  # fmt: skip
    pair = LabelPair(reference, prediction, spacing, "surfel")
    assert nsd(pair, TOLERANCE) == pytest.approx(expected.item(), rel=FLOAT32)


def test_surfel_metrics_equal_surface_distance(case):
    reference, prediction, spacing = case
    pair = LabelPair(reference, prediction, spacing, "surfel")
    found = surface_distance.compute_surface_distances(reference, prediction, spacing)
    robust = surface_distance.compute_robust_hausdorff
    assert hd95(pair) == pytest.approx(robust(found, 95), rel=1e-12)
    assert hd(pair) == pytest.approx(robust(found, 100), rel=1e-12)
    expected = surface_distance.compute_surface_dice_at_tolerance(found, TOLERANCE)
    assert nsd(pair, TOLERANCE) == pytest.approx(expected, rel=1e-12)
    # It gives the mean of either direction; pooled, each counts by its area.
    means = surface_distance.compute_average_surface_distance(found)
    areas = found["surfel_areas_gt"].sum(), found["surfel_areas_pred"].sum()
    assert assd(pair) == pytest.approx(np.average(means, weights=areas), rel=1e-12)


# One case by definition alone: every distance of every border voxel of either mask, none left out.
def test_distances_equal_brute_force():
    spacing = (2.0, 0.9, 1.1)
    reference, prediction = blobs((9, 11, 10), 0)
    pair = LabelPair(reference, prediction, spacing, "voxel")
    a, b = (np.argwhere(mask & ~binary_erosion(mask)) * spacing for mask in (reference, prediction))
    between = np.linalg.norm(a[:, None] - b, axis=2)
    there, back = between.min(axis=1), between.min(axis=0)
    assert (pair.reference_distances.size, pair.prediction_distances.size) == (len(a), len(b))
    assert pair.reference_distances.total == pytest.approx(there.sum(), rel=1e-12)
    assert pair.prediction_distances.total_of_squares == pytest.approx((back**2).sum(), rel=1e-12)
    assert hd(pair) == pytest.approx(max(there.max(), back.max()), rel=1e-12)
    assert hd95(pair) == pytest.approx(max(np.percentile(there, 95), np.percentile(back, 95)), rel=1e-12)
    assert assd(pair) == pytest.approx((there.sum() + back.sum()) / (len(a) + len(b)), rel=1e-12)


def test_far_false_positive():
    # 5.1 % of the predicted surface but half that of both lies far off: a pooled percentile would be 0 or
    # small, the larger of the directed ones is not.
    reference = np.zeros((60, 30, 30), bool)
    reference[5:21, 5:21, 5:21] = True
    prediction = reference.copy()
    prediction[50:54, 20:23, 20:23] = True
    spacing = (1.0, 1.0, 1.0)
    found = surface_distance.compute_surface_distances(reference, prediction, spacing)
    value = hd95(LabelPair(reference, prediction, spacing))
    assert value == pytest.approx(surface_distance.compute_robust_hausdorff(found, 95), rel=1e-12)
    assert math.isclose(hd95(LabelPair(prediction, reference, spacing)), value)


def test_every_label_of_a_map_equals_monai():
    random = np.random.default_rng(3)
    fields = np.stack([gaussian_filter(random.standard_normal((20, 24, 22)), 3) for _ in range(4)])
    reference = fields.argmax(axis=0)
    prediction = (fields + 0.3 * gaussian_filter(random.standard_normal(fields.shape), (0, 2, 2, 2))).argmax(axis=0)
    spacing = (1.5, 0.9, 0.9)
    scores = segmentation_scores(
        reference, prediction, spacing, labels=[1, 2, 3], metrics=["dice", "hd95"], surface="voxel"
    )
    for label in (1, 2, 3):
        y, y_pred = channels(reference == label), channels(prediction == label)
        expected = [
            compute_dice(y_pred, y).item(),
            compute_hausdorff_distance(y_pred, y, include_background=True, percentile=95, spacing=spacing).item(),
        ]
        values = [score.value for score in scores if score.label == str(label)]
        assert values == pytest.approx(expected, rel=FLOAT32)


def test_every_label_of_a_map_equals_surface_distance():
    random = np.random.default_rng(4)
    fields = np.stack([gaussian_filter(random.standard_normal((20, 24, 22)), 3) for _ in range(4)])
    reference = fields.argmax(axis=0)
    prediction = (fields + 0.3 * gaussian_filter(random.standard_normal(fields.shape), (0, 2, 2, 2))).argmax(axis=0)
    spacing = (1.5, 0.9, 0.9)
    metrics = ["hd95", f"nsd@{TOLERANCE}", "assd"]
    scores = segmentation_scores(reference, prediction, spacing, labels=[1, 2, 3], metrics=metrics)
    for label in (1, 2, 3):
        found = surface_distance.compute_surface_distances(reference == label, prediction == label, spacing)
        means = surface_distance.compute_average_surface_distance(found)
        expected = [
            surface_distance.compute_robust_hausdorff(found, 95),
            surface_distance.compute_surface_dice_at_tolerance(found, TOLERANCE),
            np.average(means, weights=(found["surfel_areas_gt"].sum(), found["surfel_areas_pred"].sum())),
        ]
        values = [score.value for score in scores if score.label == str(label)]
        assert values == pytest.approx(expected, rel=1e-12)
