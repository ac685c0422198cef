"""The only label of a picture: distances of its contours by a search of its own, as by all pairs of points."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from medimg_eval.metrics import segmentation_scores
from medimg_eval.metrics.segmentation import nearest_surface
from medimg_eval.metrics.segmentation.pairs import LabelPair

SPACINGS = [(1.0, 1.0), (0.7, 0.7), (0.31, 2.9), (3.0, 0.2)]


def border(mask):
    """The pixels with a neighbour outside, worked out anew."""
    wide = np.pad(mask, 1)
    inner = wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]
    return np.argwhere(mask & ~inner)


def listed(distances):
    return np.repeat(distances.values, distances.weights.astype(int))


def check(one, other, spacing):
    found = LabelPair(one, other, spacing, "voxel")
    apart = cdist(border(one) * spacing, border(other) * spacing)
    np.testing.assert_allclose(listed(found.reference_distances), np.sort(apart.min(axis=1)), rtol=1e-12)
    np.testing.assert_allclose(listed(found.prediction_distances), np.sort(apart.min(axis=0)), rtol=1e-12)


@pytest.mark.parametrize("spacing", SPACINGS)
@pytest.mark.parametrize("share", [0.5, 0.05, 0.003])
def test_distances_are_the_least_of_all_pairs(spacing, share):
    random = np.random.default_rng(0)
    for shape in [(1, 40), (40, 1), (61, 83)]:
        one, other = random.random((2, *shape)) < share
        one.flat[0] = other.flat[-1] = True
        check(one, other, spacing)


@pytest.mark.parametrize("spacing", SPACINGS)
def test_a_part_far_off_is_as_far_as_it_is(spacing):
    one, other = np.zeros((2, 150, 170), bool)
    one[3:30, 4:50] = other[4:33, 4:50] = True
    other[140:150, 160:170] = True
    check(one, other, spacing)
    check(other, one, spacing)


def test_contours_too_long_for_all_pairs_are_searched_by_tree(monkeypatch):
    monkeypatch.setattr(nearest_surface, "LOOKUPS_AT_ONCE", 64)
    one, other = np.zeros((2, 90, 90), bool)
    one[:40, :40] = other[50:, 50:] = True
    check(one, other, (0.5, 2.0))


@pytest.mark.parametrize("surface", ["voxel", "surfel"])
@pytest.mark.parametrize("spacing", SPACINGS)
def test_a_label_alone_scores_as_it_does_beside_another(surface, spacing):
    random = np.random.default_rng(1)
    one, other = (random.random((2, 50, 60)) < 0.02).astype(np.uint8)
    one[10:30, 10:30] = other[12:35, 8:30] = 1
    metrics = ("dice", "hd", "hd95", "assd", "rms", "nsd@2")
    alone = segmentation_scores(one, other, spacing, labels=[1], metrics=metrics, surface=surface)
    wide = [np.pad(each, ((0, 0), (0, 60))) for each in (one, other)]
    for each in wide:
        each[20:30, 100:110] = 2
    beside = segmentation_scores(*wide, spacing, labels=[1, 2], metrics=metrics, surface=surface)
    assert [score.value for score in alone] == pytest.approx([s.value for s in beside if s.label == "1"], rel=1e-12)


def test_the_only_label_of_a_picture_asks_no_search_by_lookups(monkeypatch):
    def refuse(*_):
        raise AssertionError("looked up place by place")

    monkeypatch.setattr(nearest_surface._Search, "near_surface", refuse)
    mask = np.zeros((20, 20), bool)
    mask[5:9, 5:9] = True
    assert LabelPair(mask, np.roll(mask, 2, axis=0), (1, 1.5)).reference_distances.largest == pytest.approx(2)
