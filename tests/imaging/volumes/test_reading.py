"""Volumes in and out: masks, regions, pairs, Analyze, MGH, b2nd."""

import gzip

import nibabel as nib
import numpy as np
import pytest
import SimpleITK
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.case import Image, Mask
from medimg_eval.errors import CaseError
from medimg_eval.imaging import ImageFile, MaskFile, read, read_grid, read_mask, write_mask
from medimg_eval.imaging.volumes import reading as volumes
from medimg_eval.imaging.volumes.reading import VLMETA, write_image

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


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_a_region_equals_that_part_of_the_whole(tmp_path_factory, data):
    shape = data.draw(st.tuples(*[st.integers(1, 7)] * 3))
    channels = data.draw(st.sampled_from([(), (3,)]))
    path = tmp_path_factory.mktemp("region") / data.draw(st.sampled_from(["a.nii", "a.nii.gz", "a.nrrd", "a.mha"]))
    array = np.random.default_rng(0).integers(0, 99, (*shape, *channels)).astype(np.int16)
    if path.suffix in (".nii", ".gz"):
        stored = nib.Nifti1Image(array, AFFINE)
        slope = data.draw(st.sampled_from([1, 2.5]))
        stored.header.set_slope_inter(slope, 0)  # nibabel stores the values divided by it
        nib.save(stored, path)
    else:
        SimpleITK.WriteImage(SimpleITK.GetImageFromArray(array.T, isVector=False), path)
    region = []
    for n in shape:
        start = data.draw(st.integers(0, n - 1))
        region.append((start, data.draw(st.integers(start + 1, n))))
    whole, part = read(path), read(path, region=tuple(region))
    cut = tuple(slice(*ends) for ends in region)
    np.testing.assert_array_equal(part.array, whole.array[(slice(None), *cut)])
    np.testing.assert_allclose(part.affine[:, 3], whole.affine @ [*(start for start, _ in region), 1], atol=1e-6)
    assert read_grid(path, region=tuple(region)).difference(part.geometry) is None


def test_a_pair_is_named_by_either_file_or_both(tmp_path):
    array = np.arange(8, dtype=np.int16).reshape(2, 2, 2)
    nib.save(nib.Nifti1Pair(array, AFFINE), tmp_path / "a.hdr")
    header, voxels = tmp_path / "a.hdr", tmp_path / "a.img"
    for source in (header, voxels, [header, voxels], [voxels, header]):
        np.testing.assert_array_equal(read(source).array[0], array)
    with pytest.raises(CaseError, match="expected one volume, got 2 files"):
        read([header, header])
    voxels.rename(tmp_path / "b.img")
    with pytest.raises(CaseError, match=r"a\.hdr: its voxels lie in another file, which is missing"):
        read(header)
    with pytest.raises(CaseError, match=r"b\.img: its header is missing; expected b\.hdr"):
        read(tmp_path / "b.img")


def test_analyze_says_that_its_orientation_is_a_guess(tmp_path):
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    nib.save(nib.AnalyzeImage(array, np.diag([-2.0, 2, 3, 1])), tmp_path / "a.img")
    image = read(tmp_path / "a.img")
    np.testing.assert_array_equal(image.array[0], array)
    np.testing.assert_allclose(image.affine, nib.load(tmp_path / "a.img").affine)
    assert "Analyze stores no orientation" in image.notes[0]
    part = read(tmp_path / "a.img", region=((0, 1), (1, 3), (0, 4)))
    np.testing.assert_array_equal(part.array[0], array[0:1, 1:3])


def test_mgh_is_read(tmp_path):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    path = tmp_path / "a.mgz"
    nib.save(nib.MGHImage(array, AFFINE.astype(np.float32)), path)
    image = volumes.read([path])
    np.testing.assert_array_equal(image.array[0], array)
    np.testing.assert_allclose(image.affine, AFFINE, atol=1e-5)
    assert volumes.grid([path]).difference(image.geometry) is None


@pytest.mark.parametrize("kind", ["u1", "i2", "u4", "i8", "f4", "f8"])
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4, 5), (1, 6, 7)])
def test_images_come_back_as_they_were_written(tmp_path, kind, shape):
    shape = shape if len(shape) == 4 else (1, *shape)
    array = np.random.default_rng(0).integers(0, 99, shape).astype(kind)
    write_image(tmp_path / "a.nii.gz", Image(array, AFFINE))
    back = read(tmp_path / "a.nii.gz")
    assert back.array.dtype == array.dtype
    np.testing.assert_array_equal(back.array, array)
    np.testing.assert_allclose(back.affine, AFFINE)
    assert [one.name for one in tmp_path.iterdir()] == ["a.nii.gz"]


def test_pictures_are_written_flat_and_with_channels(tmp_path):
    picture = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
    write_image(tmp_path / "a.nii.gz", Image(picture, np.eye(4)))
    np.testing.assert_array_equal(read(tmp_path / "a.nii.gz").array, picture)
    write_image(tmp_path / "c.nii.gz", Image(np.repeat(picture, 3, axis=0), np.eye(4)))
    np.testing.assert_array_equal(read(tmp_path / "c.nii.gz").array, np.repeat(picture, 3, axis=0)[..., None])


@pytest.mark.parametrize("kind", ["?", "f2"])
def test_a_dtype_nifti_has_not_is_refused(tmp_path, kind):
    with pytest.raises(CaseError, match=r"a\.nii\.gz: NIfTI cannot store"):
        write_image(tmp_path / "a.nii.gz", Image(np.zeros((1, 2, 2, 2), kind), np.eye(4)))


def b2nd(path, array, affine=None):
    import blosc2

    stored = blosc2.asarray(array, urlpath=str(path), mode="w")
    if affine is not None:
        stored.schunk.vlmeta[VLMETA] = affine.ravel().tolist()
    return path


def test_b2nd_has_its_place_where_it_says_one(tmp_path):
    array = np.arange(48, dtype=np.float32).reshape(2, 2, 3, 4)
    image = read(b2nd(tmp_path / "a.b2nd", array))
    np.testing.assert_array_equal(image.array, array)
    assert image.units == "pixel"
    assert "neither voxel size nor orientation" in image.notes[0]
    placed = read(b2nd(tmp_path / "b.b2nd", array[0], AFFINE), region=((0, 2), (1, 3), (2, 4)))
    np.testing.assert_array_equal(placed.array, array[:1, :, 1:3, 2:4])
    np.testing.assert_allclose(placed.affine[:, 3], AFFINE @ [0, 1, 2, 1])
    assert (placed.units, placed.notes) == ("mm", ())
    assert read_grid(tmp_path / "a.b2nd").shape == (2, 3, 4)


def test_a_b2nd_that_cannot_be_is_named(tmp_path):
    path = b2nd(tmp_path / "a.b2nd", np.random.default_rng(0).normal(size=(2, 20, 20, 20)))
    with pytest.raises(CaseError, match=r"b\.b2nd: expected an array of"):
        read(b2nd(tmp_path / "b.b2nd", np.zeros(5)))
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(CaseError, match=r"a\.b2nd: is cut short"):
        read(path)
