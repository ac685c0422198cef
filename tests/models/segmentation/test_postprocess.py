"""What is done to a label map before it is judged."""

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import nn

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import UsageError
from medimg_eval.models.segmentation.monai import MonaiSegmenter
from medimg_eval.models.segmentation.postprocess import DropSmall, FillHoles, KeepLargest, postprocessed

NAMES = {1: "a", 2: "b"}
MM = (1.0, 1.0)


def picture(*rows):
    return np.array([[int(letter) for letter in row.replace(".", "0")] for row in rows])


def test_the_largest_component_of_each_label_stays_and_corners_connect():
    mask = picture("11..2", "..1.2", ".....", "1...2")
    kept = KeepLargest()(mask, NAMES, MM)
    np.testing.assert_array_equal(kept, picture("11..2", "..1.2", ".....", "....."))
    np.testing.assert_array_equal(KeepLargest(["b"])(mask, NAMES, MM), picture("11..2", "..1.2", ".....", "1...."))


def test_labels_can_be_taken_together_as_one_foreground():
    mask = picture("12...", "...11", "....1")
    np.testing.assert_array_equal(KeepLargest(together=True)(mask, NAMES, MM), picture(".....", "...11", "....1"))


def test_the_first_of_equally_large_components_stays():
    np.testing.assert_array_equal(KeepLargest()(picture("1.1"), NAMES, MM), picture("1.."))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (DropSmall(voxels=2), "11.22"),
        (DropSmall(volume=6.0), "11.22"),  # two voxels of 3 mm2
        (DropSmall(volume=6.1), "....."),
        (DropSmall(["b"], volume=6.1), "11..."),
        (DropSmall(), "11.22"),
    ],
)
def test_components_below_a_size_go(step, expected):
    np.testing.assert_array_equal(step(picture("11.22"), NAMES, (1.5, 2.0)), picture(expected))


def test_holes_are_filled_but_other_labels_in_them_stay():
    mask = picture("1111.", "1.21.", "11112", ".....")
    np.testing.assert_array_equal(FillHoles()(mask, NAMES, MM), picture("1111.", "1121.", "11112", "....."))


@pytest.mark.parametrize("step", [KeepLargest(), DropSmall(voxels=9), FillHoles()])
def test_nothing_to_do_changes_nothing_and_the_answer_is_a_copy(step):
    for mask in (np.zeros((3, 4), int), np.ones((3, 4), int)):
        done = step(mask, NAMES, MM)
        np.testing.assert_array_equal(done, mask)
        assert done is not mask


def test_a_volume_keeps_what_counting_says():
    rng = np.random.default_rng(0)
    mask = (rng.random((9, 8, 7)) < 0.1).astype(int)
    parts, count = ndimage.label(mask, np.ones((3, 3, 3)))
    sizes = ndimage.sum_labels(mask, parts, range(1, count + 1))
    np.testing.assert_array_equal(KeepLargest()(mask, {1: "a"}, (1, 1, 1)), parts == 1 + sizes.argmax())
    np.testing.assert_array_equal(
        DropSmall(voxels=3)(mask, {1: "a"}, (1, 1, 1)), np.isin(parts, 1 + np.flatnonzero(sizes >= 3))
    )


def test_steps_follow_each_other_and_an_unknown_label_is_named():
    mask = picture("111.1", "1.1..", "111..")
    np.testing.assert_array_equal(
        postprocessed([FillHoles(), KeepLargest()], mask, NAMES, MM), picture("111..", "111..", "111..")
    )
    with pytest.raises(UsageError, match="the task has no label 'liver'"):
        KeepLargest(["liver"])(mask, NAMES, MM)


def test_a_network_postprocesses_its_answer():
    pixels = np.zeros((1, 6, 6, 6))
    pixels[0, 1:4, 1:4, 1:4] = 100
    pixels[0, 5, 5, 5] = 100
    network = nn.Conv3d(1, 2, 1)
    network.weight.data[:, 0, 0, 0, 0], network.bias.data[:] = torch.tensor([0.0, 1.0]), torch.tensor([50.0, 0.0])
    model = MonaiSegmenter(network=network, classes=[0, 1], roi_size=(6, 6, 6), postprocess=[KeepLargest()])
    with torch.inference_mode():
        (answer,) = model.segment([Prompt("case", (Image(pixels, np.eye(4)),), NAMES)])
    assert answer.sum() == 27
