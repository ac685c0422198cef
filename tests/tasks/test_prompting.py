"""Boxes and points from the reference: where they lie, that they are drawn alike twice, and that tables say so."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.tasks.segmentation import Guides, guides_of
from tests.conftest import LABELS, SHAPE, ellipsoid, ellipsoids


def two_squares():
    mask = np.zeros((12, 12), dtype=np.uint8)
    mask[1:4, 2:7] = 1
    mask[8:11, 8:11] = 1
    return mask


def test_a_box_holds_the_structure_from_its_first_to_its_last_voxel():
    (guide,) = Guides().of("case", two_squares(), {1: "a", 2: "b"})[1]
    assert guide.box.tolist() == [1, 2, 10, 10]
    assert guide.points.shape == (0, 2)


def test_each_component_can_have_its_own_box():
    guides = Guides(parts=True).of("case", two_squares(), {1: "a"})[1]
    assert [guide.box.tolist() for guide in guides] == [[1, 2, 3, 6], [8, 8, 10, 10]]


def test_each_slice_of_a_volume_can_have_its_own_box():
    mask = np.zeros((6, 6, 4), dtype=np.uint8)
    mask[1:3, 1:4, 1] = 1
    mask[2:5, 2:3, 3] = 1
    guides = Guides(per="slice").of("case", mask, {1: "a"})[1]
    assert [guide.box.tolist() for guide in guides] == [[1, 1, 1, 2, 3, 1], [2, 2, 3, 4, 2, 3]]
    moved = Guides(per="slice", jitter=3, kind="both", negatives=4).of("case", mask, {1: "a"})[1]
    assert [guide.box[[2, 5]].tolist() for guide in moved] == [[1, 1], [3, 3]]
    assert [set(guide.points[:, 2]) for guide in moved] == [{1}, {3}]


def test_labels_that_are_not_there_have_no_guide():
    assert Guides().of("case", two_squares(), {2: "b"}) == {}


def test_a_point_is_the_innermost_voxel_and_negatives_lie_outside():
    mask = two_squares()
    (guide,) = Guides(kind="point", points=3, negatives=5).of("case", mask, {1: "a"})[1]
    assert guide.box is None
    assert guide.points[0].tolist() in ([2, 3], [2, 4], [2, 5], [9, 9])
    assert guide.positive.tolist() == [True] * 3 + [False] * 5
    rows, columns = guide.points.astype(int).T
    assert (mask[rows, columns] == guide.positive).all()


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 99), jitter=st.integers(0, 30), per=st.sampled_from(["slice", "volume"]))
def test_guides_stay_in_the_image_within_the_jitter_and_are_drawn_alike_twice(seed, jitter, per):
    mask = ellipsoid(seed)
    rule = Guides(kind="both", per=per, jitter=jitter, points=2, negatives=2, seed=seed)
    drawn, again = (rule.of("case", mask, LABELS) for _ in range(2))
    still = Guides(per=per).of("case", mask, LABELS)
    for label, guides in drawn.items():
        for guide, other, exact in zip(guides, again[label], still[label], strict=True):
            assert np.array_equal(guide.box, other.box)
            assert np.array_equal(guide.points, other.points)
            low, high = guide.box.reshape(2, 3)
            assert (low >= 0).all()
            assert (low <= high).all()
            assert (high < SHAPE).all()
            assert np.abs(guide.box - exact.box).max() <= jitter or (np.sort(guide.box) != guide.box).any()
            there = mask[tuple(guide.points.astype(int).T)] == label
            assert (there == guide.positive).all()


def test_the_seed_the_case_and_the_label_decide_the_draw():
    mask = ellipsoid(0)
    boxes = [
        Guides(jitter=5, seed=seed).of(case, mask, LABELS)[1][0].box.tolist()
        for seed, case in [(0, "a"), (1, "a"), (0, "b")]
    ]
    assert len({tuple(box) for box in boxes}) == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "boxes"}, "got 'boxes'; did you mean 'box'"),
        ({"per": "image"}, "got 'image'"),
        ({"jiter": 3}, "got 'jiter'; did you mean 'jitter'"),
        ({"jitter": -1}, "expected task.guides.jitter to be a whole number of at least 0, got -1"),
        ({"points": 0}, "expected task.guides.points to be a whole number of at least 1, got 0"),
        ({"jitter": "far"}, "expected task.guides.jitter to be a whole number of at least 0, got 'far'"),
        ({"jitter": 1.5}, "expected task.guides.jitter to be a whole number of at least 0, got 1.5"),
        ("box", "expected task.guides to hold settings such as kind: box, got 'box'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given, words):
    with pytest.raises(UsageError, match=words):
        guides_of(given)


def test_a_task_hands_guides_to_the_model_and_says_so_in_its_footnote(write_dataset):
    task = ellipsoids(write_dataset(1), guides={"kind": "box", "jitter": 2})
    (case,) = task.cases("test")
    prompt = task.prompt(case, task.read_images(case))
    assert sorted(prompt.guides) == [1, 2]
    assert "prompted with boxes from the reference, per structure, jitter 2 voxels, seed 0" in task.signature()
    assert task.prompt(case, ()).guides is None  # of a model that reads no images, nothing else is read either
    plain = ellipsoids(write_dataset(1))
    assert plain.prompt(case, task.read_images(case)).guides is None
    assert "prompted" not in plain.signature()
