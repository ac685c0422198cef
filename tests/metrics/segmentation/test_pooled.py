"""Overlap of all images of a run at once."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, parse
from medimg_eval.metrics.registry import get
from medimg_eval.metrics.segmentation import segmentation_scores

SIZES = ["voxels_shared", "voxels_reference", "voxels_prediction", "voxels_image"]


def rows_of(pairs, labels):
    """The rows of reference and prediction of each case."""
    found = []
    for case, (reference, prediction) in enumerate(pairs):
        scores = segmentation_scores(reference, prediction, (1, 1), labels=labels, metrics=SIZES)
        found += [(case, score.metric, score.label, score.value, score.status) for score in scores]
    case, metric, label, value, status = (np.array(column) for column in zip(*found, strict=True))
    return ScoreTable(case, metric, label, value.astype(float), status, {}, len(pairs), {})


def confusion(pairs, number):
    """mmsegmentation's way: areas of each class, background first, added over images, then divided."""
    both, said, true = np.zeros((3, number))
    for reference, prediction in pairs:
        both += np.bincount(reference[reference == prediction], minlength=number)
        said += np.bincount(prediction.ravel(), minlength=number)
        true += np.bincount(reference.ravel(), minlength=number)
    with np.errstate(invalid="ignore"):
        return 2 * both / (said + true), both / (said + true - both)


def pooled(name, rows):
    found, parameter = parse(name)
    return found.function(rows) if parameter is None else found.function(rows, parameter)


maps = arrays(np.uint8, (3, 4), elements=st.integers(0, 1))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(maps, maps), min_size=1, max_size=4))
def test_one_label_and_background_are_mmsegmentations_classes(pairs):
    rows = rows_of(pairs, [1])
    for name, expected in zip(("pooled_dice", "pooled_iou"), confusion(pairs, 2), strict=True):
        assert pooled(name, rows) == pytest.approx(expected[1], nan_ok=True)
        # A class that neither has in any image is NaN there, and left out of the mean.
        assert pooled(f"{name}@background", rows) == pytest.approx(np.nanmean(expected))


def test_several_labels_are_pooled_each_and_averaged():
    rng = np.random.default_rng(0)
    pairs = [tuple(rng.integers(0, 4, (2, 6, 6), dtype=np.uint8)) for _ in range(3)]
    rows = rows_of(pairs, [1, 2, 3])
    for name, expected in zip(("pooled_dice", "pooled_iou"), confusion(pairs, 4), strict=True):
        assert pooled(name, rows) == pytest.approx(expected[1:].mean())
        assert math.isnan(pooled(f"{name}@background", rows))


def test_it_is_no_mean_of_cases_and_a_failure_is_not_hidden():
    large, small, none = np.ones((10, 10), np.uint8), np.eye(10, dtype=np.uint8), np.zeros((10, 10), np.uint8)
    pairs = [(large, large), (small, none)]
    assert pooled("pooled_dice", rows_of(pairs, [1])) == pytest.approx(200 / 210)  # of cases: 0.5
    rows = rows_of(pairs, [1])
    rows.value[0] = math.nan
    assert math.isnan(pooled("pooled_dice", rows))


def test_only_the_background_can_be_added():
    with pytest.raises(UsageError, match="@background counts"):
        parse("pooled_dice@liver")


def test_sums_resample_as_cases_do():
    rng = np.random.default_rng(1)
    pairs = [tuple(rng.integers(0, 2, (2, 6, 6), dtype=np.uint8)) for _ in range(3)]
    found, rows = get("pooled_dice"), rows_of(pairs, [1])
    times = np.array([2.0, 0.0, 1.0])[rows.case]
    drawn = rows_of([pairs[0], pairs[0], pairs[2]], [1])
    assert float(found.total(times @ found.pieces(rows))) == pytest.approx(pooled("pooled_dice", drawn))
