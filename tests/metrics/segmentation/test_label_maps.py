"""All labels at once against each label by itself, done in the plainest way."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree

from medimg_eval.metrics import LabelPair, Settings, segmentation_scores
from medimg_eval.metrics.segmentation import label_maps as _joint
from medimg_eval.metrics.segmentation import nearest_surface as _near
from medimg_eval.metrics.segmentation.pairs import label_pairs
from medimg_eval.metrics.segmentation.surfaces import surfel_measures

KINDS = ["surfel", "voxel"]
SPACINGS = {2: [(1.0, 1.0), (0.7, 1.9)], 3: [(1.0, 1.0, 1.0), (0.8, 0.8, 1.5), (5.0, 1.0, 0.4)]}


def plain_surface(mask, spacing, kind):
    """Points in mm and weights of the surface of one mask, slowly."""
    padded = np.pad(mask, 1)
    if kind == "voxel":
        inside = np.pad(mask, 1)
        for axis, way in itertools.product(range(mask.ndim), (1, -1)):
            inside &= np.roll(padded, way, axis)
        points = np.argwhere(padded & ~inside)
        return points * np.asarray(spacing), np.ones(len(points))
    codes = np.zeros([size + 1 for size in mask.shape], int)
    for bit, offset in enumerate(itertools.product((0, 1), repeat=mask.ndim)):
        part = tuple(slice(o, o + size) for o, size in zip(offset, codes.shape, strict=True))
        codes |= padded[part].astype(int) << bit
    found = np.nonzero((codes > 0) & (codes < codes.dtype.type(2**2**mask.ndim - 1)))
    points = (np.stack(found, axis=1) + 0.5) * np.asarray(spacing)
    return points, surfel_measures(tuple(spacing))[codes[found]]


def plain_distances(start, target):
    points, weights = start
    if not len(target[0]):
        return np.full(len(points), np.inf), weights
    return cKDTree(target[0]).query(points)[0], weights


def assert_same(found, values, weights, kind):
    """That a profile says of a surface what every one of its points does."""
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    assert (np.diff(found.values) > 0).all()
    assert found.size == pytest.approx(weights.sum(), rel=1e-12)
    if not len(values):
        assert math.isnan(found.largest)
        return
    assert found.largest == pytest.approx(values[-1], rel=1e-12)
    if math.isinf(values[-1]):
        assert np.isinf(values).all()
        return
    assert found.total == pytest.approx(values @ weights, rel=1e-12)
    assert found.total_of_squares == pytest.approx(values**2 @ weights, rel=1e-12)
    for tolerance in (0, 0.35, 1.01, 2.93, 8.03):
        assert found.within(tolerance) == pytest.approx(weights[values <= tolerance].sum(), rel=1e-12)
    for percent in (0, 13, 50, 95, 100):
        if kind == "voxel":
            expected = np.percentile(values, percent)
        else:
            reached = np.cumsum(weights)
            expected = values[np.searchsorted(reached, percent / 100 * reached[-1] * (1 - 1e-9))]
        assert found.percentile(percent) == pytest.approx(expected, rel=1e-12)


def assert_as_plain(pair, reference, prediction):
    """That a pair says of two masks, of the whole image, what is found slowly."""
    kind = pair.settings.surface
    assert pair.reference_size == reference.sum()
    assert pair.prediction_size == prediction.sum()
    assert pair.overlap_size == (reference & prediction).sum()
    one, other = (plain_surface(mask, pair.spacing, kind) for mask in (reference, prediction))
    assert_same(pair.reference_distances, *plain_distances(one, other), kind)
    assert_same(pair.prediction_distances, *plain_distances(other, one), kind)
    assert pair.shape == reference.shape
    assert_cut_from(pair, reference, prediction)


def assert_cut_from(pair, reference, prediction):
    """That the cropped masks are the whole ones, and no larger than they must be."""
    joint = np.argwhere(reference | prediction)
    if not len(joint):
        assert pair.reference.size == pair.prediction.size == 0
        return
    assert pair.offset == tuple(joint.min(axis=0))
    box = tuple(slice(low, high + 1) for low, high in zip(joint.min(axis=0), joint.max(axis=0), strict=True))
    np.testing.assert_array_equal(pair.reference, reference[box])
    np.testing.assert_array_equal(pair.prediction, prediction[box])


def organs(shape, labels, seed, rough=0.0):
    """Two label maps whose regions share borders and reach the image's; label 1 is missed, the last made up."""
    random = np.random.default_rng(seed)
    fields = random.standard_normal((labels + 1, *shape))
    smooth = gaussian_filter(fields, (0, *(2 for _ in shape)))
    moved = smooth + 0.4 * gaussian_filter(random.standard_normal(fields.shape), (0, *(1.5 for _ in shape)))
    reference, prediction = smooth.argmax(axis=0), moved.argmax(axis=0)
    prediction = np.where(random.random(shape) < rough, random.integers(0, labels + 1, shape), prediction)
    return np.where(reference == labels, 0, reference), np.where(prediction == 1, 0, prediction)


def pairs_of(reference, prediction, spacing, kind, labels, **options):
    regions = {str(label): (label,) for label in labels}
    return label_pairs(reference, prediction, spacing, regions, dict.fromkeys(regions, Settings(kind)), **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rough", [0, 0.2])
@pytest.mark.parametrize("shape", [(30, 41), (13, 17, 15)])
def test_every_label_is_judged_as_if_it_were_alone(shape, rough, kind):
    for seed, spacing in enumerate(SPACINGS[len(shape)]):
        reference, prediction = organs(shape, 6, seed, rough)
        pairs = pairs_of(reference.astype(np.uint8), prediction.astype(np.uint8), spacing, kind, range(1, 8))
        for label in range(1, 8):
            assert_as_plain(pairs[str(label)], reference == label, prediction == label)
            alone = LabelPair(reference == label, prediction == label, spacing, kind)
            assert_as_plain(alone, reference == label, prediction == label)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_small_maps(data):
    axes = data.draw(st.sampled_from([2, 3]))
    shape = data.draw(st.tuples(*(st.integers(1, 7) for _ in range(axes))))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    spacing = data.draw(st.tuples(*(st.sampled_from([0.1, 0.8, 1.0, 4.0]) for _ in range(axes))))
    maps = random.integers(0, 5, (2, *shape)) * (random.random((2, *shape)) < data.draw(st.floats(0.05, 1)))
    kind = data.draw(st.sampled_from(KINDS))
    for label, pair in enumerate(pairs_of(*maps, spacing, kind, range(1, 6)).values(), start=1):
        assert_as_plain(pair, maps[0] == label, maps[1] == label)


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "negative strides": lambda one: np.asfortranarray(one[::-1, :, ::-1])[::-1, :, ::-1],
    "axes in another order": lambda one: np.ascontiguousarray(one.transpose(1, 2, 0)).transpose(2, 0, 1),
    "every other voxel": lambda one: np.repeat(one, 2, axis=1)[:, ::2],
}


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", ">i2", "i4", "i8", "u8"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_layout_and_dtype(layout, dtype):
    reference, prediction = organs((9, 12, 10), 4, 0)
    spacing = (2.0, 0.9, 1.1)
    straight = pairs_of(reference, prediction, spacing, "surfel", range(1, 5))
    pairs = pairs_of(LAYOUTS[layout](reference.astype(dtype)), prediction.astype(dtype), spacing, "surfel", range(1, 5))
    for label, pair in enumerate(pairs.values(), start=1):
        assert_cut_from(pair, reference == label, prediction == label)
        for found, expected in zip(profiles(pair), profiles(straight[pair.name]), strict=True):
            np.testing.assert_allclose(found.values, expected.values, rtol=1e-12)
            np.testing.assert_allclose(found.weights, expected.weights, rtol=1e-12)


def profiles(pair):
    return pair.reference_distances, pair.prediction_distances


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 1, 2, 3, 4],
        [0, 3, 1, 9, 14],  # small enough to be kept
        [0, 255, 254, 1, 100],  # by a table
        [-5, 7, 3000, 2, 11],  # what is not listed may be negative
        [10**6, 1, 10**9, 5, 2**40],  # too far apart for a table
        [-(2**62), 2**62, 3, 2**31, 7],
    ],
)
def test_labels_may_be_any_numbers(numbers):
    reference, prediction = organs((9, 12, 10), 4, 1)
    renumber = np.array(numbers)
    maps = renumber[reference], renumber[prediction]
    listed = numbers[2:]  # label 1 becomes background, as 0 is
    pairs = pairs_of(*maps, (1.0, 1.0, 2.0), "voxel", listed)
    for label, pair in enumerate(pairs.values(), start=2):
        assert_as_plain(pair, reference == label, prediction == label)


def test_more_labels_than_a_byte_holds():
    random = np.random.default_rng(0)
    reference = np.kron(np.arange(1, 301).reshape(5, 60), np.ones((4, 3), int))
    prediction = np.where(random.random(reference.shape) < 0.1, 0, np.roll(reference, 1, axis=0))
    for kind in KINDS:
        pairs = pairs_of(reference.astype(np.uint16), prediction, (1.0, 1.5), kind, range(1, 302))
        for label in (1, 2, 150, 256, 300, 301):
            assert_as_plain(pairs[str(label)], reference == label, prediction == label)


@pytest.mark.parametrize("kind", KINDS)
def test_regions_may_overlap(kind):
    reference, prediction = organs((10, 12, 11), 4, 2)
    regions = {"whole": (1, 2, 3), "core": (2, 3), "rim": (4,), "part": (3,)}
    pairs = label_pairs(reference, prediction, (1.0, 2.0, 1.0), regions, dict.fromkeys(regions, Settings(kind)))
    assert list(pairs) == list(regions)
    for name, labels in regions.items():
        assert_as_plain(pairs[name], np.isin(reference, labels), np.isin(prediction, labels))


def test_ignored_voxels_are_background_in_both_maps():
    reference, prediction = organs((10, 12, 11), 4, 3)
    judged = reference != 3
    pairs = pairs_of(reference, prediction, (1.0, 1.0, 1.0), "surfel", [1, 2, 3], ignore=3)
    for label in (1, 2, 3):
        assert_as_plain(pairs[str(label)], (reference == label) & judged, (prediction == label) & judged)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (0.1, 3.0, 0.5)])
def test_what_lies_far_apart(spacing, kind):
    # Beyond what is looked up place by place: a blob far off, one label wholly elsewhere, and one close by.
    reference, prediction = np.zeros((2, 60, 40, 30), np.int16)
    reference[3:12, 4:13, 5:14] = 1
    prediction[4:12, 4:13, 5:14] = 1
    prediction[55:58, 35:38, 25:28] = 1
    reference[20:30, 2:9, 3:9], prediction[50:59, 20:30, 3:9] = 2, 2
    reference[40:45, 30:35, 3:9], prediction[41:45, 30:36, 3:9] = 3, 3
    for label, pair in enumerate(pairs_of(reference, prediction, spacing, kind, [1, 2, 3]).values(), start=1):
        assert_as_plain(pair, reference == label, prediction == label)


@pytest.mark.parametrize("changes", [{"QUERY": 0}, {"QUERY": 10**9}, {"PLACES": {2: 9, 3: 27}, "LONGEST_TABLE": 1}])
def test_where_the_tree_takes_over_changes_nothing(monkeypatch, changes):
    reference, prediction = organs((14, 17, 15), 5, 4, rough=0.02)
    before = pairs_of(reference, np.roll(prediction, 3, axis=0), (0.8, 0.8, 1.5), "surfel", range(1, 6))
    expected = {name: profiles(pair) for name, pair in before.items()}
    _near.ball.cache_clear()
    for name, value in ({"POINTS_AT_ONCE": 500, "LOOKUPS_AT_ONCE": 64, "BUILDING": 0} | changes).items():
        monkeypatch.setattr(_near, name, value)
    after = pairs_of(reference, np.roll(prediction, 3, axis=0), (0.8, 0.8, 1.5), "surfel", range(1, 6))
    for name, pair in after.items():
        for found, same in zip(profiles(pair), expected[name], strict=True):
            assert found.values.tolist() == same.values.tolist()
            np.testing.assert_allclose(found.weights, same.weights, rtol=1e-12)
    _near.ball.cache_clear()


def refuse(*_, **__):
    raise AssertionError("computed what nobody asked for")


def test_only_what_is_asked_for_is_computed(monkeypatch):
    reference, prediction = organs((9, 12, 10), 4, 5)
    labels = [1, 2, 3, 4]
    monkeypatch.setattr(_joint.LabelMapPair, "masks", refuse)
    segmentation_scores(reference, prediction, (1, 1, 1), labels=labels, metrics=["dice", "hd95", "assd"])
    for border in ("voxel_border", "surfel_border"):
        monkeypatch.setattr(_joint, border, refuse)
    segmentation_scores(reference, prediction, (1, 1, 1), labels=labels, metrics=["dice", "iou"])
    with pytest.raises(AssertionError, match="nobody asked"):
        segmentation_scores(reference, prediction, (1, 1, 1), labels=labels, metrics=["hd"])


def test_distances_of_all_labels_are_measured_once(monkeypatch):
    reference, prediction = organs((9, 12, 10), 4, 6)
    calls = []
    monkeypatch.setattr(_joint, "nearest", lambda *given: (calls.append(given), _near.nearest(*given))[1])
    segmentation_scores(reference, prediction, (1, 1, 1), labels=[1, 2, 3, 4], metrics=["hd", "hd95", "assd", "nsd@1"])
    assert len(calls) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_and_everything(kind):
    nothing, everything = np.zeros((4, 5, 6), np.uint8), np.ones((4, 5, 6), np.uint8)
    for maps in itertools.product((nothing, everything), repeat=2):
        (pair,) = pairs_of(*maps, (1.0, 1.0, 1.0), kind, [1]).values()
        assert_as_plain(pair, maps[0] > 0, maps[1] > 0)
