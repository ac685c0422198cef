"""Sliding windows: equal to MONAI's, and never holding more than a strip."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from monai.inferers import sliding_window_inference
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import UserError
from medimg_eval.models.segmentation.monai import MonaiSegmenter
from medimg_eval.models.segmentation.sliding_window import (
    Windows,
    all_probabilities,
    distinct_views,
    most_probable,
    strips,
)

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence for multidimensional indexing")


def cut(*size, overlap=0.5, batch=3, dtype=torch.float32):
    return Windows(size, (overlap,) * len(size), batch, CPU, CPU, dtype=dtype)


def network(axes, classes=3):
    """Something whose answer depends on where in its window a voxel lies, as real networks' do."""
    torch.manual_seed(0)
    layer = (nn.Conv2d if axes == 2 else nn.Conv3d)(1, classes, 3, padding=1).eval()
    return lambda windows: layer(windows).softmax(1)


@torch.inference_mode()
@settings(deadline=None, max_examples=15)
@given(
    shape=st.lists(st.integers(1, 9), min_size=2, max_size=3),
    size=st.integers(2, 5),
    overlap=st.sampled_from([0.0, 0.25, 0.5, 0.75]),
)
def test_probabilities_are_those_of_monai(shape, size, overlap):
    torch.manual_seed(1)
    pixels, predict = torch.randn(1, *shape), network(len(shape))
    window = (size, size + 1, size)[: len(shape)]
    expected = sliding_window_inference(pixels[None], window, 2, predict, overlap=overlap, mode="gaussian")[0]
    found = all_probabilities(pixels, predict, cut(*window, overlap=overlap))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    labels = most_probable(pixels, predict, cut(*window, overlap=overlap))
    first, second = found.topk(2, dim=0).values
    sure = first - second > 1e-5  # among equals rounding decides
    assert torch.equal(labels.long()[sure], found.argmax(0)[sure])


def test_strips_cover_the_image_once_and_in_order():
    covered = torch.zeros(20, 5, 6)
    for strip in strips(torch.randn(1, 20, 5, 6), network(3), cut(4, 4, 8)):
        assert strip.probabilities.shape[1:] == covered[strip.where].shape
        covered[strip.where] += 1
    assert covered.eq(1).all()


def test_half_precision_keeps_three_digits():
    pixels = torch.randn(1, 16, 9, 9)
    whole, half = (all_probabilities(pixels, network(3), cut(6, 6, 6, dtype=d)) for d in (torch.float32, torch.float16))
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), whole, rtol=0, atol=3e-3)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.size = max(self.size, made.untyped_storage().nbytes())
        return made


@pytest.mark.parametrize("stitch_half", [False, True])
def test_probabilities_of_a_whole_volume_are_never_held(stitch_half):
    classes, shape, window = 24, (20, 20, 160), (16, 16, 8)
    model = MonaiSegmenter(
        network=nn.Conv3d(1, classes, 1), roi_size=window, overlap=0.25, sw_batch_size=1, stitch_half=stitch_half
    )
    prompt = Prompt("case", (Image(np.zeros((1, *shape), np.float32), np.eye(4)),), {n: str(n) for n in range(1, 24)})
    with Largest() as watched, torch.inference_mode():
        (labels,) = model.segment([prompt])
    assert labels.shape == shape
    one_strip = classes * 20 * 20 * 8 * (2 if stitch_half else 4)
    one_window = classes * 16 * 16 * 8 * 4
    image = 20 * 20 * 160 * 4
    assert watched.size <= max(one_strip, one_window, image)
    assert watched.size < classes * 20 * 20 * 160 * 4 / 15


@pytest.mark.parametrize(
    ("axes", "flips", "rotations", "count"),
    [
        (3, (), False, 1),
        (3, (0, 1, 2), False, 8),
        (2, (), True, 4),
        (2, (0, 1), True, 8),
        (3, (2,), True, 8),
        (3, (0, 1, 2), True, 16),
    ],
)
def test_each_orientation_is_seen_once_and_undone(axes, flips, rotations, count):
    views = distinct_views(axes, flips, rotations)
    pixels = torch.randn(2, 1, *(4,) * axes)
    shown = [view.show(pixels) for view in views]
    assert len(views) == count == len({tuple(one.flatten().tolist()) for one in shown})
    assert all(torch.equal(view.undo(one), pixels) for view, one in zip(views, shown, strict=True))


def test_an_answer_with_every_view_turns_with_the_picture():
    torch.manual_seed(0)
    model = MonaiSegmenter(network=nn.Conv2d(1, 3, 3, padding=1), roi_size=(8, 8), flips=(0, 1), rotations=True)
    pixels = np.random.default_rng(0).normal(size=(1, 8, 8)).astype(np.float32)
    turned = np.rot90(pixels, axes=(1, 2)).copy()
    asked = [Prompt("case", (Image(array, np.eye(4)),), {1: "a", 2: "b"}) for array in (pixels, turned)]
    with torch.inference_mode():
        first, second = model.segment(asked)
    np.testing.assert_array_equal(np.rot90(first), second)


def test_views_that_do_not_fit_the_window_are_refused():
    asked = [Prompt("case", (Image(np.zeros((1, 8, 6)), np.eye(4)),), {1: "a"})]
    for options in ({"flips": (2,)}, {"rotations": True}):
        model = MonaiSegmenter(network=nn.Conv2d(1, 2, 1), roi_size=(8, 6), **options)
        with pytest.raises(UserError, match="do not fit windows of"):
            model.prepare(asked[0].labels, lambda: asked[0].image)


@pytest.mark.parametrize("depth", [1, 3, 5])
def test_a_network_of_pictures_segments_a_volume_slice_by_slice(depth):
    torch.manual_seed(0)
    layer = nn.Conv2d(1, 3, 3, padding=1).eval()
    pixels = np.random.default_rng(0).normal(size=(1, 10, 12, depth)).astype(np.float32)
    model = MonaiSegmenter(network=layer, spatial_dims=2, roi_size=(8, 8), sw_batch_size=2)
    flat = MonaiSegmenter(network=layer, roi_size=(8, 8))
    names = {1: "a", 2: "b"}
    with torch.inference_mode():
        (volume,) = model.segment([Prompt("case", (Image(pixels, np.eye(4)),), names)])
        slices = flat.segment([Prompt("s", (Image(pixels[..., k], np.eye(4)),), names) for k in range(depth)])
    np.testing.assert_array_equal(volume, np.stack(slices, axis=-1))
