"""NIfTI in and out, and each way a file can be wrong."""

import gzip

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.case import Mask
from medimg_eval.errors import CaseError
from medimg_eval.imaging import ImageFile, MaskFile, read_mask, write_mask

AFFINE = np.array([[0, -0.5, 0, 10], [0.5, 0, 0, -3], [0, 0, 2.5, 7], [0, 0, 0, 1.0]])


def save(path, array, affine=AFFINE):
    nib.save(nib.Nifti1Image(array, affine), path)
    return path


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 70_000), st.tuples(*[st.integers(1, 6)] * 3), st.integers(0, 2**32 - 1))
def test_masks_come_back_as_they_were_written(tmp_path_factory, high, shape, seed):
    path = tmp_path_factory.mktemp("masks") / "mask.nii.gz"
    labels = np.random.default_rng(seed).integers(0, high, shape, endpoint=True)
    write_mask(path, Mask(labels, AFFINE))
    back = read_mask(path)
    np.testing.assert_array_equal(back.labels, labels)
    np.testing.assert_allclose(back.affine, AFFINE)
    assert back.labels.dtype.kind == "u"
    assert [entry.name for entry in path.parent.iterdir()] == ["mask.nii.gz"]


def test_boolean_masks_are_written_as_integers(tmp_path):
    write_mask(tmp_path / "mask.nii.gz", Mask(np.ones((2, 2, 2), bool), AFFINE))
    assert read_mask(tmp_path / "mask.nii.gz").labels.sum() == 8


def test_a_failed_write_leaves_no_file(tmp_path):
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever nibabel raises
        write_mask(tmp_path / "mask.nii.gz", Mask(np.ones((2, 2, 2), np.uint8), np.eye(3)))
    assert not list(tmp_path.iterdir())


def test_images_keep_their_dtype_and_channels_come_first(tmp_path):
    volume = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    image = ImageFile(save(tmp_path / "a.nii.gz", volume), modality="CT").read()
    assert (image.array.dtype, image.array.shape, image.modality) == (np.int16, (1, 2, 3, 4), "CT")
    np.testing.assert_array_equal(image.array[0], volume)
    stacked = np.arange(48, dtype=np.float32).reshape(2, 3, 4, 2)
    image = ImageFile(save(tmp_path / "b.nii", stacked)).read()
    np.testing.assert_array_equal(image.array, np.moveaxis(stacked, 3, 0))


def test_a_region_is_cut_out_where_it_lies(tmp_path):
    volume = np.random.default_rng(0).integers(0, 99, (6, 7, 8)).astype(np.int16)
    part = ImageFile(save(tmp_path / "a.nii.gz", volume), region=((1, 4), (2, 7), (3, 5)))
    image = part.read()
    np.testing.assert_array_equal(image.array[0], volume[1:4, 2:7, 3:5])
    np.testing.assert_allclose(image.affine @ [0, 0, 0, 1], AFFINE @ [1, 2, 3, 1])
    assert part.geometry().difference(image.geometry) is None


def test_whole_numbers_stored_as_float_are_labels_and_others_are_not(tmp_path):
    assert read_mask(save(tmp_path / "a.nii", np.full((2, 2, 2), 3.0, np.float32))).labels.dtype == np.uint8
    with pytest.raises(CaseError, match=r"b\.nii: expected whole-number labels, got values such as 0\.4"):
        read_mask(save(tmp_path / "b.nii", np.full((2, 2, 2), 0.4, np.float32)))


def test_a_trailing_axis_of_one_is_dropped_from_a_mask(tmp_path):
    assert read_mask(save(tmp_path / "a.nii", np.ones((2, 3, 4, 1), np.uint8))).labels.shape == (2, 3, 4)
    with pytest.raises(CaseError, match="expected a 2-D or 3-D label map of one channel"):
        read_mask(save(tmp_path / "b.nii", np.ones((2, 3, 4, 2), np.uint8)))


def bad_files(folder):
    whole = save(folder / "whole.nii.gz", np.random.default_rng(0).integers(0, 9, (20, 20, 20)).astype(np.int16))
    content = whole.read_bytes()
    (folder / "cut.nii.gz").write_bytes(content[: len(content) // 2])
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 0xFF
    (folder / "flipped.nii.gz").write_bytes(bytes(flipped))
    (folder / "text.nii.gz").write_bytes(gzip.compress(b"not an image"))
    (folder / "empty.nii.gz").write_bytes(b"")
    (folder / "plain.nii").write_bytes(b"\0" * 1000)


@pytest.mark.parametrize("name", ["cut.nii.gz", "flipped.nii.gz", "text.nii.gz", "empty.nii.gz", "plain.nii", "no.nii"])
@pytest.mark.parametrize("read", [read_mask, lambda path: ImageFile(path).read()])
def test_files_that_cannot_be_read_are_named(tmp_path, name, read):
    bad_files(tmp_path)
    with pytest.raises(CaseError, match=name.replace(".", r"\.")):
        read(tmp_path / name)


def test_an_affine_without_spacing_is_refused(tmp_path):
    image = nib.Nifti1Image(np.zeros((2, 2, 2), np.uint8), np.eye(4))
    image.header["sform_code"] = 1
    image.header["srow_x"] = 0
    nib.save(image, tmp_path / "flat.nii")
    path = tmp_path / "flat.nii"
    raw = bytearray(path.read_bytes())
    raw[280:296] = b"\0" * 16  # srow_x, which nibabel fills in when it saves
    path.write_bytes(bytes(raw))
    with pytest.raises(CaseError, match="no usable affine"):
        MaskFile(path).geometry()


def test_infinite_labels_are_refused(tmp_path):
    with pytest.raises(CaseError, match=r"inf\.nii: holds NaN or infinite labels"):
        read_mask(save(tmp_path / "inf.nii", np.full((2, 2, 2), np.inf, np.float32)))


def test_a_header_of_no_known_type_is_named(tmp_path):
    path = save(tmp_path / "odd.nii", np.zeros((2, 2, 2), np.uint8))
    raw = bytearray(path.read_bytes())
    raw[70:72] = (9999).to_bytes(2, "little")
    path.write_bytes(bytes(raw))
    with pytest.raises(CaseError, match=r"odd\.nii"):
        read_mask(path)


def test_nan_voxels_are_refused(tmp_path):
    path = save(tmp_path / "nan.nii", np.full((2, 2, 2), np.nan, np.float32))
    with pytest.raises(CaseError, match=r"nan\.nii: holds NaN"):
        ImageFile(path).read()
