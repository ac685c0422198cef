"""The other distances: by hand, against brute force, MONAI, surface-distance and SimpleITK."""

import math

import numpy as np
import pytest
import SimpleITK
import surface_distance
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from monai.metrics import compute_average_surface_distance, compute_hausdorff_distance
from scipy.ndimage import binary_erosion, center_of_mass, gaussian_filter

from medimg_eval.errors import UsageError
from medimg_eval.metrics import LabelPair, get, parse, segmentation_scores
from medimg_eval.metrics.segmentation.surface_distance import (
    asd_pred_to_ref,
    asd_ref_to_pred,
    assd,
    centroid_distance,
    hd,
    hd95,
    hd95_definition_gap,
    hd95_pooled,
    hd_percentile,
    masd,
    rms,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:monai.metrics.utils get_mask_edges:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Please import `(correlate|distance_transform_edt)`:DeprecationWarning"),
]

KINDS = ["surfel", "voxel"]
NEW = ("asd_pred_to_ref", "asd_ref_to_pred", "centroid_distance", "hd95_pooled", "hd_percentile@50", "masd", "rms")
FLOAT32 = 1e-5

maps = hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=5).flatmap(
    lambda shape: st.tuples(hnp.arrays(bool, shape), hnp.arrays(bool, shape))
)
steps = st.sampled_from([0.3, 0.8, 1.0, 1.5, 5.0])


def blobs(shape, seed):
    random = np.random.default_rng(seed)
    one, other = (gaussian_filter(random.standard_normal(shape), 2) for _ in range(2))
    return one > 0.4 * one.std(), one + 0.6 * other > 0.6 * one.std()


def values(reference, prediction, spacing, kind="surfel", asked=NEW, **options):
    scores = segmentation_scores(
        reference.astype(int), prediction.astype(int), spacing, labels=[1], metrics=asked, surface=kind, **options
    )
    return [score.value for score in scores]


def test_distances_worked_out_by_hand():
    # A row of 2.5 mm voxels: the reference is 0 to 3, the prediction 2 and 7.
    reference, prediction = np.zeros((2, 1, 8), bool)
    reference[0, :4] = prediction[0, [2, 7]] = True
    pair = LabelPair(reference, prediction, (1, 2.5), "voxel")
    # Reference 2, 1, 0, 1 voxels away; prediction 0 and 4.
    assert asd_ref_to_pred(pair) == 2.5
    assert asd_pred_to_ref(pair) == 5
    assert masd(pair) == 3.75
    assert assd(pair) == pytest.approx(2.5 * 8 / 6)
    assert rms(pair) == pytest.approx(2.5 * math.sqrt((4 + 1 + 0 + 1 + 0 + 16) / 6))
    assert hd(pair) == 10
    # Percentile 50 of 0, 1, 1, 2 and of 0, 4.
    assert hd_percentile(pair, 50) == 5
    # Percentile 95 of 0, 0, 1, 1, 2, 4: rank 4.75; of 0 and 4: 3.8.
    assert hd95_pooled(pair) == pytest.approx(2.5 * 3.5)
    assert hd95(pair) == pytest.approx(2.5 * 3.8)
    assert hd95_definition_gap(pair) == pytest.approx(2.5 * 0.3)
    # Centres of mass at voxel 1.5 and 4.5.
    assert centroid_distance(pair) == 7.5


@pytest.mark.parametrize("kind", KINDS)
def test_a_far_false_positive_splits_the_definitions_of_hd95(kind):
    # 13 % of the predicted surface lies far off, but less than 5 % of both surfaces.
    reference = np.zeros((70, 20, 20), bool)
    reference[2:18, 2:18, 2:18] = True
    prediction = np.zeros_like(reference)
    prediction[2:18, 2:18, 2:18] = True
    prediction[60:63, 8:11, 8:12] = True
    reference[2:18, 9:11, 2:18] = False  # more surface on the reference's side
    prediction[2:18, 9:11, 2:18] = False
    pair = LabelPair(reference, prediction, (1, 1, 1), kind)
    area = pair.prediction_distances
    assert area.size - area.within(20) < 0.05 * (area.size + pair.reference_distances.size)
    assert hd95_pooled(pair) == 0
    assert hd95_definition_gap(pair) == hd95(pair)
    assert hd(pair) > 40


@pytest.mark.parametrize("kind", KINDS)
def test_single_voxels_have_one_distance(kind):
    reference, prediction = np.zeros((2, 4, 4, 4), bool)
    reference[0, 1, 2] = prediction[3, 1, 2] = True
    pair = LabelPair(reference, prediction, (2, 1, 1), kind)
    assert centroid_distance(pair) == 6
    if kind == "voxel":
        for function in (asd_pred_to_ref, asd_ref_to_pred, masd, rms, hd95_pooled):
            assert function(pair) == 6
        assert hd95_definition_gap(pair) == 0


def test_the_ends_of_the_percentiles():
    reference, prediction = blobs((12, 11, 10), 0)
    for kind in KINDS:
        pair = LabelPair(reference, prediction, (1, 1.2, 2), kind)
        assert hd_percentile(pair, 100) == hd(pair)
        assert hd_percentile(pair, 95) == hd95(pair)
        assert hd_percentile(pair, 0) == max(
            found.values.min() for found in (pair.reference_distances, pair.prediction_distances)
        )


def test_a_percentile_above_100_is_refused():
    mask = np.eye(3, dtype=bool)
    with pytest.raises(UsageError, match="'hd_percentile' needs a percentile from 0 to 100, got 250"):
        hd_percentile(LabelPair(mask, mask, (1, 1)), 250)
    # Known from the name alone, so before any case is judged.
    with pytest.raises(UsageError, match="'hd_percentile' needs a parameter of at most 100, got 'hd_percentile@250'"):
        parse("hd_percentile@250")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 5)])
def test_empty_masks(shape, kind):
    empty, full = np.zeros(shape, bool), np.ones(shape, bool)
    spacing = (2.0,) * len(shape)
    diagonal = 2 * math.hypot(*shape)
    for masks in ((full, empty), (empty, full)):
        assert values(*masks, spacing, kind) == pytest.approx([diagonal] * len(NEW))
        assert values(*masks, spacing, kind, empty={"distance": 374}) == [374] * len(NEW)
        pair = LabelPair(*masks, spacing, kind)
        assert masd(pair) == rms(pair) == hd95_pooled(pair) == centroid_distance(pair) == math.inf
        assert asd_pred_to_ref(pair) == asd_ref_to_pred(pair) == hd_percentile(pair, 5) == math.inf
        assert math.isnan(hd95_definition_gap(pair))
    assert np.isnan(values(empty, empty, spacing, kind)).all()
    assert values(full, full, spacing, kind) == [0] * len(NEW)


def test_every_distance_is_in_mm():
    for name in (*NEW, "hd95_definition_gap"):
        found = get(name)
        assert (found.unit, found.best, found.higher_is_better) == ("mm", 0, False)
        assert name == "hd95_definition_gap" or found.worst == "diagonal"


def test_the_spread_judges_no_answer():
    found = get("hd95_definition_gap")
    assert found.intermediate
    assert math.isnan(found.worst)


def directed(reference, prediction, spacing, kind):
    """Distances and weights of either direction, without our surfaces and our search."""
    if kind == "surfel":
        found = surface_distance.compute_surface_distances(reference, prediction, spacing)
        return (
            found["distances_gt_to_pred"], found["surfel_areas_gt"],
            found["distances_pred_to_gt"], found["surfel_areas_pred"],
        )  # fmt: skip
    points = [np.argwhere(mask & ~binary_erosion(mask)) * spacing for mask in (reference, prediction)]
    between = np.linalg.norm(points[0][:, None] - points[1], axis=2)
    there, back = between.min(axis=1), between.min(axis=0)
    return there, np.ones(len(there)), back, np.ones(len(back))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (2.0, 0.9, 1.1)])
def test_distances_equal_brute_force(kind, spacing):
    reference, prediction = blobs((9, 11, 10), 1)
    there, out, back, home = directed(reference, prediction, spacing, kind)
    pair = LabelPair(reference, prediction, spacing, kind)
    assert asd_ref_to_pred(pair) == pytest.approx(np.average(there, weights=out), rel=1e-12)
    assert asd_pred_to_ref(pair) == pytest.approx(np.average(back, weights=home), rel=1e-12)
    assert masd(pair) == pytest.approx((asd_ref_to_pred(pair) + asd_pred_to_ref(pair)) / 2, rel=1e-12)
    pooled, weights = np.concatenate([there, back]), np.concatenate([out, home])
    assert rms(pair) == pytest.approx(math.sqrt(np.average(pooled**2, weights=weights)), rel=1e-12)
    if kind == "voxel":
        expected = np.percentile(pooled, 95)
    else:
        order = np.argsort(pooled)
        reached = np.cumsum(weights[order]) >= 0.95 * weights.sum() * (1 - 1e-9)
        expected = pooled[order][reached][0]
    assert hd95_pooled(pair) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("shape", "spacing"), [((20, 24, 18), (0.8, 0.8, 1.5)), ((30, 44), (0.7, 1.9))])
@pytest.mark.parametrize("seed", [0, 1])
def test_distances_equal_the_peers(shape, spacing, seed):
    reference, prediction = blobs(shape, seed)
    voxel = LabelPair(reference, prediction, spacing, "voxel")
    y, y_pred = (torch.from_numpy(mask[None, None].astype(np.float32)) for mask in (reference, prediction))
    for function, one, other in ((asd_pred_to_ref, y_pred, y), (asd_ref_to_pred, y, y_pred)):
        expected = compute_average_surface_distance(one, other, include_background=True, spacing=spacing)
        assert function(voxel) == pytest.approx(expected.item(), rel=FLOAT32)
    for percent in (30, 75):
        expected = compute_hausdorff_distance(y_pred, y, include_background=True, percentile=percent, spacing=spacing)
        assert hd_percentile(voxel, percent) == pytest.approx(expected.item(), rel=FLOAT32)

    surfel = LabelPair(reference, prediction, spacing, "surfel")
    found = surface_distance.compute_surface_distances(reference, prediction, spacing)
    there, back = surface_distance.compute_average_surface_distance(found)
    assert asd_ref_to_pred(surfel) == pytest.approx(there, rel=1e-12)
    assert asd_pred_to_ref(surfel) == pytest.approx(back, rel=1e-12)
    assert masd(surfel) == pytest.approx((there + back) / 2, rel=1e-12)
    for percent in (30, 75):
        expected = surface_distance.compute_robust_hausdorff(found, percent)
        assert hd_percentile(surfel, percent) == pytest.approx(expected, rel=1e-12)

    centres = [np.multiply(center_of_mass(mask), spacing) for mask in (reference, prediction)]
    assert centroid_distance(voxel) == pytest.approx(np.linalg.norm(np.subtract(*centres)), rel=1e-9)


def test_the_centre_of_mass_equals_simpleitk():
    spacing = (2.0, 0.9, 1.1)
    masks = blobs((10, 14, 12), 3)
    centres = []
    for mask in masks:
        image = SimpleITK.GetImageFromArray(mask.astype(np.uint8))
        image.SetSpacing(spacing[::-1])
        shapes = SimpleITK.LabelShapeStatisticsImageFilter()
        shapes.Execute(image)
        centres.append(shapes.GetCentroid(1))
    assert centroid_distance(LabelPair(*masks, spacing)) == pytest.approx(math.dist(*centres), rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(maps, steps, steps, steps, st.sampled_from(KINDS))
def test_bounds_symmetry_and_scale(case, x, y, z, kind):
    reference, prediction = case
    assume(reference.any() and prediction.any())
    spacing = (x, y, z)[: reference.ndim]
    pair, swapped = LabelPair(reference, prediction, spacing, kind), LabelPair(prediction, reference, spacing, kind)
    for function in (masd, rms, hd95_pooled, hd95_definition_gap, centroid_distance):
        assert function(pair) == pytest.approx(function(swapped), rel=1e-9, abs=1e-12)
    assert asd_pred_to_ref(pair) == pytest.approx(asd_ref_to_pred(swapped))
    low, high = sorted([asd_pred_to_ref(pair), asd_ref_to_pred(pair)])
    slack = 1e-9
    assert low - slack <= assd(pair) <= high + slack
    assert low - slack <= masd(pair) <= high + slack
    assert assd(pair) - slack <= rms(pair) <= hd(pair) + slack
    assert 0 <= hd95_pooled(pair) <= hd(pair)
    assert hd_percentile(pair, 20) <= hd_percentile(pair, 80) <= hd(pair)
    assert centroid_distance(pair) <= pair.diagonal
    # Twice the spacing, elsewhere in a larger image: twice the distances.
    moved = [np.pad(mask, [(2, 1)] * mask.ndim) for mask in (reference, prediction)]
    larger = values(*moved, [2 * step for step in spacing], kind)
    assert larger == pytest.approx([2 * value for value in values(reference, prediction, spacing, kind)], abs=1e-9)
