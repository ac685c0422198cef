"""Images go to other libraries and come back with voxels, place, modality and units."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from medimg_eval.case import Image, Mask, Probabilities
from medimg_eval.errors import UsageError
from medimg_eval.imaging import read, reorient, write_image

DTYPES = ("uint8", "int8", "int16", "uint16", "int32", "float32", "float64")
LIBRARIES = ("sitk", "nibabel", "metatensor")


def affines(spatial):
    """Invertible affines: a rotation or shear, steps from 0.1 to 5 mm, an origin."""

    def make(parts):
        angles, steps, origin, shear = parts
        turn = np.eye(3)
        for axis, angle in enumerate(angles):
            one = np.eye(3)
            a, b = [other for other in range(3) if other != axis]
            one[a, a] = one[b, b] = np.cos(angle)
            one[a, b], one[b, a] = -np.sin(angle), np.sin(angle)
            turn = turn @ one
        affine = np.eye(4)
        affine[:3, :3] = turn @ (np.eye(3) + shear * np.eye(3, k=1)) * steps
        affine[:3, 3] = origin
        return affine

    angle, step = st.floats(-3, 3), st.floats(0.1, 5)
    origin = st.floats(-500, 500)
    return st.tuples(
        st.tuples(angle, angle, angle),
        st.tuples(step, step, step),
        st.tuples(origin, origin, origin),
        st.floats(0, 0.3),
    ).map(make)


@st.composite
def images(draw):
    axes = draw(st.sampled_from([2, 3]))
    channels = draw(st.sampled_from([1, 3, 5]))
    shape = (channels, *draw(array_shapes(min_dims=axes, max_dims=axes, max_side=4)))
    dtype = draw(st.sampled_from(DTYPES))
    elements = {"allow_nan": False, "allow_infinity": False} if dtype.startswith("float") else {}
    array = draw(arrays(dtype, shape, elements=elements or None))
    units, modality = draw(st.sampled_from(["mm", "pixel"])), draw(st.sampled_from(["", "CT", "MR"]))
    flat = units == "pixel" or draw(st.booleans())
    sense = draw(st.sampled_from([1, -1]))
    affine = np.diag([sense * 0.5, 0.75, 1.0 if axes == 2 else 2.0, 1.0]) if flat else draw(affines(axes))
    return Image(array, affine, modality, units)


def there_and_back(image, library):
    return getattr(Image, f"from_{library}")(getattr(image, f"to_{library}")())


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=30, deadline=None)
@given(images())
def test_what_comes_back_is_what_went(library, image):
    back = there_and_back(image, library)
    assert back.array.dtype == image.array.dtype
    np.testing.assert_array_equal(back.array, image.array)
    np.testing.assert_allclose(back.affine, image.affine, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(back.spacing, image.spacing)
    assert (back.modality, back.units) == (image.modality, image.units)


def volume():
    """2 x 3 x 4 voxels of 1, 2 and 4 mm; the first axis runs to the right, voxel 0, 0, 0 at (10, 20, 30) RAS."""
    affine = np.diag([1.0, 2.0, 4.0, 1.0])
    affine[:3, 3] = (10, 20, 30)
    return Image(np.arange(24, dtype=np.int16).reshape(1, 2, 3, 4), affine, "CT")


def test_simpleitk_gets_a_volume_in_its_own_axes_and_sense():
    image = volume().to_sitk()
    assert image.GetSize() == (2, 3, 4)
    assert image.GetSpacing() == (1, 2, 4)
    # RAS (10, 20, 30) is LPS (-10, -20, 30), and both first axes run against ITK's.
    assert image.GetOrigin() == (-10, -20, 30)
    assert np.diag(np.reshape(image.GetDirection(), (3, 3))).tolist() == [-1, -1, 1]
    assert image.GetPixel(1, 2, 3) == volume().array[0, 1, 2, 3]


def test_simpleitk_gets_a_picture_with_x_along_its_columns():
    image = Image.from_array(np.arange(6, dtype=np.uint8).reshape(2, 3), spacing=(0.5, 0.25)).to_sitk()
    assert (image.GetSize(), image.GetSpacing()) == ((3, 2), (0.25, 0.5))
    assert image.GetPixel(2, 0) == 2


def test_files_that_simpleitk_writes_lie_where_ours_do(tmp_path):
    import SimpleITK as sitk  # noqa: N813

    given = volume()
    for name in ("a.mha", "a.nrrd", "a.nii.gz"):
        sitk.WriteImage(given.to_sitk(), str(tmp_path / name))
        found = read(str(tmp_path / name))
        np.testing.assert_array_equal(found.array, given.array)
        assert found.geometry.difference(given.geometry) is None
        opened = Image.from_sitk(sitk.ReadImage(str(tmp_path / name)))
        np.testing.assert_allclose(opened.affine, given.affine)


def test_a_series_in_time_of_four_axes_comes_as_channels():
    import nibabel as nib
    import SimpleITK as sitk  # noqa: N813

    times = np.arange(5 * 24, dtype=np.int16).reshape(5, 4, 3, 2)  # t, z, y, x
    found = Image.from_sitk(sitk.GetImageFromArray(times, isVector=False))
    assert found.shape == (5, 2, 3, 4)
    assert found.array[4, 1, 2, 3] == times[4, 3, 2, 1]
    other = Image.from_nibabel(nib.Nifti1Image(times.T, np.diag([2.0, 2, 2, 1])))
    np.testing.assert_array_equal(other.array, found.array)
    assert other.spacing == (2, 2, 2)


def test_nibabel_writes_what_write_image_does(tmp_path):
    import nibabel as nib

    given = Image(np.random.default_rng(0).random((3, 4, 5, 6), np.float32), np.diag([1.0, 2, 3, 1]))
    write_image(str(tmp_path / "ours.nii"), given)
    nib.save(given.to_nibabel(), tmp_path / "theirs.nii")
    assert (tmp_path / "ours.nii").read_bytes() == (tmp_path / "theirs.nii").read_bytes()
    np.testing.assert_array_equal(Image.from_nibabel(nib.load(tmp_path / "ours.nii")).array, given.array)


def test_colours_of_nibabel_become_channels():
    import nibabel as nib

    colours = np.zeros((2, 2, 1), [("R", "u1"), ("G", "u1"), ("B", "u1")])
    colours["G"][1, 0, 0] = 7
    found = Image.from_nibabel(nib.Nifti1Image(colours, np.eye(4)))
    assert found.shape == (3, 2, 2, 1)
    assert found.array[:, 1, 0, 0].tolist() == [0, 7, 0]


def test_a_metatensor_in_lps_is_turned_to_ras():
    import torch
    from monai.data import MetaTensor

    affine = np.diag([1.0, 2, 3, 1])
    tensor = MetaTensor(torch.zeros(1, 2, 2, 2), affine=torch.from_numpy(affine), meta={"space": "LPS"})
    assert np.diag(Image.from_metatensor(tensor).affine).tolist() == [-1, -2, 3, 1]


def test_a_flipped_view_and_a_mapped_file_become_tensors(tmp_path):
    given = volume()
    turned = reorient(given, "LPS")
    np.testing.assert_array_equal(turned.to_metatensor().numpy(), turned.array)
    write_image(tmp_path / "a.nii", given)
    np.testing.assert_array_equal(read(tmp_path / "a.nii").to_metatensor().numpy(), given.array)
    frozen = np.arange(8, dtype=np.uint8).reshape(1, 2, 2, 2)
    frozen.flags.writeable = False
    assert Image(frozen, np.eye(4)).to_metatensor().sum() == 28


@pytest.mark.parametrize(
    ("array", "library", "words"),
    [
        (np.zeros((1, 2, 2, 2), bool), "sitk", "SimpleITK cannot hold bool"),
        (np.zeros((1, 2, 2, 2), np.float16), "sitk", "SimpleITK cannot hold float16"),
        (np.zeros((2, 2, 2, 2), np.complex64), "sitk", "2 channels of complex64"),
        (np.zeros((1, 2, 2, 2), bool), "nibabel", "NIfTI cannot store bool; convert it"),
    ],
)
def test_what_a_library_cannot_hold_is_refused(array, library, words):
    with pytest.raises(UsageError, match=words):
        getattr(Image(array, np.eye(4)), f"to_{library}")()


def test_a_batch_of_tensors_is_no_image():
    import torch
    from monai.data import MetaTensor

    with pytest.raises(UsageError, match="one by one"):
        Image.from_metatensor(MetaTensor(torch.zeros(2, 1, 2, 2, 2)))


def test_an_array_becomes_an_image():
    plain = Image.from_array(np.zeros((4, 5, 3)), channel_axis=-1)
    assert (plain.shape, plain.units, plain.spacing) == ((3, 4, 5), "pixel", (1, 1))
    placed = Image.from_array([[[1, 2]], [[3, 4]]], np.diag([1, 2, 3, 1]), modality="MR")
    assert (placed.shape, placed.units, placed.spacing) == ((1, 2, 1, 2), "mm", (1, 2, 3))
    assert placed.affine.dtype == np.float64
    for words in ({"affine": np.eye(3)}, {"spacing": (1, 1)}, {"affine": np.eye(4), "spacing": (1, 1, 1)}):
        with pytest.raises(UsageError, match="expected a"):
            Image.from_array(np.zeros((2, 2, 2)), **words)
    with pytest.raises(UsageError, match="two or three spatial axes"):
        Image.from_array(np.zeros((2, 2, 2, 2)))


def test_numpy_sees_the_array_itself():
    image = volume()
    assert np.asarray(image) is image.array
    assert np.array(image, copy=True) is not image.array
    assert np.asarray(image, np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="no copy"):
        np.array(image, np.float32, copy=False)
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":  # earlier ones copy where they please
        assert np.array(image, copy=False) is image.array
    assert np.mean(image) == 11.5
    labels = np.ones((2, 2), np.uint8)
    assert np.asarray(Mask(labels, np.eye(4))) is labels


def test_what_is_printed_is_one_line():
    assert repr(volume()) == "<Image CT, 1 x 2 x 3 x 4 int16, 1 x 2 x 4 mm>"
    assert repr(Image(np.zeros((3, 4, 5), np.uint8), np.eye(4), units="pixel", notes=("a", "b"))) == (
        "<Image 3 x 4 x 5 uint8, no physical size, 2 notes>"
    )
    assert repr(Mask(np.zeros((4, 5), np.uint8), np.eye(4))) == "<Mask 4 x 5 uint8, 1 x 1 mm>"
    soft = Probabilities(np.zeros((2, 4, 5), np.float32), (0, 1), np.eye(4))
    assert repr(soft) == "<Probabilities 2 x 4 x 5 float32, 1 x 1 mm>"
