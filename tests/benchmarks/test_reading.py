"""What layouts and targets do for benchmarks: sizes, folds, parts, folders; and what they refuse."""

import cv2
import numpy as np
import pytest

from medimg_eval.case import Geometry, Image, Mask
from medimg_eval.data.layouts import PairedFolders, Volumes
from medimg_eval.data.resized import ResizedImage, ResizedMask
from medimg_eval.data.splits import SplitFolds
from medimg_eval.data.targets import MaskParts
from medimg_eval.errors import CaseError, SplitError, UsageError, UserError
from tests.helpers.benchmark_files import boxes, ids, picture, volume


class Given:
    """A reference to what is there already."""

    files = ("x.png",)

    def __init__(self, value):
        self.value = value

    def read(self):
        return self.value

    def geometry(self):
        return self.value.geometry


@pytest.mark.parametrize("shape", [(40, 60), (300, 300), (256, 256), (700, 131), (1, 2)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_sizes_are_opencvs(shape, dtype):
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (*shape, 3)).astype(dtype)
    labels = rng.integers(0, 5, shape).astype(np.uint8)
    image = ResizedImage(Given(Image(np.moveaxis(pixels, -1, 0), np.eye(4))), (256, 200)).read()
    mask = ResizedMask(Given(Mask(labels, np.eye(4))), (256, 200)).read()
    theirs = cv2.resize(pixels, (200, 256), interpolation=cv2.INTER_LINEAR)
    assert image.array.dtype == dtype
    assert np.abs(np.moveaxis(image.array, 0, -1).astype(float) - theirs).max() <= (1 if dtype == np.uint8 else 1e-2)
    np.testing.assert_array_equal(mask.labels, cv2.resize(labels, (200, 256), interpolation=cv2.INTER_NEAREST))
    assert image.geometry.difference(mask.geometry) is None


def test_volumes_have_no_size():
    one = ResizedMask(Given(Mask(np.zeros((2, 3, 4), np.uint8), np.eye(4))), (8, 8))
    assert one.geometry().shape == Geometry((8, 8), np.eye(4), "pixel").shape
    with pytest.raises(
        CaseError, match=r"x\.png: task\.layout\.size and crop are for pictures, and its shape is \(2, 3, 4\)"
    ):
        one.read()


@pytest.mark.parametrize("size", [[256], [256, 0], ["256", "256"], 256])
def test_a_size_that_is_none_is_refused(tmp_path, size):
    for folder in ("images", "masks"):
        picture(tmp_path / folder / "a.png", np.zeros((4, 4)))
    with pytest.raises(UsageError, match=r"task\.layout\.size is .*, expected \[rows, columns\]"):
        PairedFolders(root=str(tmp_path), size=size).cases("test")


def folder_of(root, count, split="train"):
    for number in range(count):
        volume(root / split / f"p{number // 2}/c{number}.nii.gz", boxes((2, 2, 2)))
    return Volumes(root=str(root), image="{split}/{folder}/{case}.nii.gz", patient="{folder}", target=NOTHING)


class Nothing:
    """No truth."""

    def reference(self, entry):
        return entry.images[0]


NOTHING = Nothing()


def test_folds_and_tuning_keep_patients_together_and_leave_test_cases_alone(tmp_path):
    layout = folder_of(tmp_path, 24)
    volume(tmp_path / "test/p99/c99.nii.gz", boxes((2, 2, 2)))
    layout.splits, layout.tuning = SplitFolds(fold=1, folds=4), "train"
    cases = {split: layout.cases(split) for split in ("train", "tune", "val", "test")}
    patients = [{case.patient for case in found} for found in cases.values()]
    assert [len(found) for found in patients] == [8, 1, 3, 1]
    assert len(set.union(*patients)) == 13
    assert layout.split_source() == {}
    again = [ids(layout.cases(split)) for split in cases]
    assert again == [ids(found) for found in cases.values()]


def test_of_one_patient_nobody_is_taken(tmp_path):
    layout = folder_of(tmp_path, 2)
    layout.tuning = "train"
    assert len(layout.cases("train")) == 2
    with pytest.raises(SplitError, match="no case of split 'tune'"):
        layout.cases("tune")


def test_ids_can_be_chosen_by_an_expression(tmp_path):
    layout = folder_of(tmp_path, 12)
    layout.only = "c1"
    assert ids(layout.cases("train")) == ["c1", "c10", "c11"]


def test_a_folder_that_the_cases_are_not_found_by_is_refused(tmp_path):
    volume(tmp_path / "masks/a.nii.gz", boxes((2, 2, 2)))
    layout = Volumes(root=str(tmp_path), image="{folder}/{case}.nii.gz", mask="masks/{case}.nii.gz")
    with pytest.raises(UserError, match=r"at most the fields of 'masks/\{case\}.nii.gz', in task.layout's pattern"):
        layout.cases("test")


def test_the_parts_of_a_mask_share_a_grid_and_one_at_least_is_there(tmp_path):
    picture(tmp_path / "a.png", np.zeros((4, 5)))
    for number in range(2):
        picture(tmp_path / f"a/{number}.png", np.eye(4, 5, number) * 255)
    layout = Volumes(root=str(tmp_path), image="{case}.png", target=MaskParts("{case}/*.png"))
    (case,) = layout.cases("test")
    np.testing.assert_array_equal(case.target.read().labels, np.eye(4, 5) + np.eye(4, 5, 1))
    assert case.target.geometry().shape == (4, 5)
    picture(tmp_path / "a/9.png", np.zeros((5, 5)))
    (case,) = layout.cases("test")
    with pytest.raises(CaseError, match=r"9\.png: shape \(5, 5\) instead of \(4, 5\) of .*0\.png; the objects"):
        case.target.read()
    layout.target = MaskParts("{case}/*.tif")
    with pytest.raises(UserError, match=r"case 'a': there is no file .*a/\*\.tif"):
        layout.cases("test")
    with pytest.raises(UsageError, match=r"expected \* in the file's name of the pattern '\{case\}\.png'"):
        MaskParts("{case}.png")
