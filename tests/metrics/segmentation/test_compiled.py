"""Contours of pictures by compiled functions: the same scores as by NumPy, with Numba and as plain Python."""

import sys
import types

import numpy as np
import pytest

from medimg_eval.metrics import segmentation_scores
from medimg_eval.metrics.segmentation import compiled, label_maps

METRICS = ("dice", "hd", "hd95", "hd95_pooled", "assd", "masd", "rms", "nsd@2", "asd_pred_to_ref")
PLAIN = compiled.Kernels(*compiled._FUNCTIONS)


def scores(monkeypatch, kernels, *maps, labels=1, **options):
    monkeypatch.setattr(label_maps, "kernels", lambda longest: kernels)
    found = segmentation_scores(*maps, labels=range(1, labels + 1), metrics=METRICS, **options)
    return np.array([score.value for score in found])


def draw(random, labels, shape, share):
    return random.integers(0, labels + 1, shape) * (random.random(shape) < share)


def check(monkeypatch, kernels, examples):
    random = np.random.default_rng(examples)
    for _ in range(examples):
        labels = int(random.choice([1, 2, 6]))
        shape, spacing = tuple(random.integers(1, 30, 2)), tuple(random.choice([0.31, 0.7, 1.0, 2.9], 2))
        kind = random.choice(["uint8", "int64"])
        pair = [draw(random, labels, shape, random.choice([0.02, 0.3, 0.9])).astype(kind) for _ in range(2)]
        for surface in ("voxel", "surfel"):
            options = {"spacing": spacing, "labels": labels, "surface": surface}
            expected = scores(monkeypatch, None, *pair, **options)
            np.testing.assert_allclose(scores(monkeypatch, kernels, *pair, **options), expected, rtol=1e-12, atol=1e-12)


def test_uncompiled_functions_give_the_same_scores(monkeypatch):
    check(monkeypatch, PLAIN, 25)


def test_compiled_functions_give_the_same_scores(monkeypatch):
    pytest.importorskip("numba", reason="numba is not installed: pip install 'medimg-eval[fast]'")
    check(monkeypatch, compiled._compile_kernels(), 60)


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int16, np.int64])
def test_maps_of_any_kind_and_order_in_memory(monkeypatch, dtype):
    one, other = (draw(np.random.default_rng(seed), 1, (20, 33), 0.4).astype(dtype).T for seed in (1, 2))
    one, other = one[::-1], other[::-1]
    if dtype is bool:
        one, other = one.astype(np.uint8), other.astype(np.uint8)
    expected = scores(monkeypatch, None, one, other, spacing=(1.0, 0.5))
    np.testing.assert_allclose(scores(monkeypatch, PLAIN, one, other, spacing=(1.0, 0.5)), expected, rtol=1e-12)


@pytest.mark.parametrize("value", [0, 1, 3, 255])
def test_masks_beside_other_labels_of_a_picture_and_without(monkeypatch, value):
    one, other = (draw(np.random.default_rng(seed), 1, (20, 33), 0.4).astype(np.uint8) for seed in (1, 2))
    one[:3, :4] = value
    for ignore in (None, 1, value):
        options = {"spacing": (1.0, 0.5), "ignore": ignore}
        expected = scores(monkeypatch, None, one, other, **options)
        np.testing.assert_allclose(scores(monkeypatch, PLAIN, one, other, **options), expected, rtol=1e-12)


def test_parts_far_off_are_added_up_without_a_table(monkeypatch):
    one, other = np.zeros((2, 40, 50), np.uint8)
    one[:9, :9], other[30:, 40:] = 1, 1
    expected = scores(monkeypatch, None, one, other, spacing=(1.0, 0.5))
    monkeypatch.setattr(compiled, "LONGEST_TABLE", 10)
    np.testing.assert_allclose(scores(monkeypatch, PLAIN, one, other, spacing=(1.0, 0.5)), expected, rtol=1e-12)


@pytest.mark.parametrize("labels", [3, 60])
def test_labels_of_a_picture_score_as_they_do_alone(monkeypatch, labels):
    one, other = (draw(np.random.default_rng(seed), labels, (40, 60), 0.5) for seed in (3, 4))
    together = scores(monkeypatch, None, one, other, labels=labels, spacing=(0.5, 1.0))
    for label in range(1, labels + 1):
        masks = ((some == label).astype(np.uint8) for some in (one, other))
        expected = scores(monkeypatch, None, *masks, spacing=(0.5, 1.0))
        mine = together[(label - 1) * len(METRICS) : label * len(METRICS)]
        np.testing.assert_allclose(mine, expected, rtol=1e-12, atol=1e-12)


def test_pictures_with_too_many_lines_and_places_without_numba_take_numpy(monkeypatch):
    assert compiled.kernels(compiled.LONGEST) is None
    monkeypatch.setitem(sys.modules, "numba", None)
    assert compiled._compile_kernels.__wrapped__() is None


def test_tasks_leave_their_first_pictures_to_numpy(monkeypatch):
    for name, value in (("SPARED", 2), ("_spared", iter(())), ("_compile_kernels", lambda: PLAIN)):
        monkeypatch.setattr(compiled, name, value)
    assert compiled.kernels(1) == PLAIN
    compiled.spare_loading.__wrapped__()
    assert [compiled.kernels(1) for _ in range(3)] == [None, None, PLAIN]


def test_where_no_cache_can_be_written_functions_are_compiled_without(monkeypatch):
    asked = []

    def njit(function=None, *, cache=False):
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return function

    extending = types.SimpleNamespace(register_jitable=lambda function: function)
    monkeypatch.setitem(sys.modules, "numba", types.SimpleNamespace(njit=njit, extending=extending))
    assert compiled._compile_kernels.__wrapped__() == PLAIN
    assert asked == [True, *[False] * len(PLAIN)]
