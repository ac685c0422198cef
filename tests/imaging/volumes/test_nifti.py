"""NIfTI: what is read is what nibabel reads, and each way a header or file can be wrong is named."""

import gzip
import tracemalloc

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import CaseError
from medimg_eval.imaging import read, read_grid
from medimg_eval.imaging.volumes.reading import read as read_volume

AFFINE = np.array([[0, -0.5, 0, 10], [0.5, 0, 0, -3], [0, 0, 2.5, 7], [0, 0, 0, 1.0]])


def save(path, array, affine=AFFINE):
    nib.save(nib.Nifti1Image(array, affine), path)
    return path


KINDS = ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "f4", "f8", "c8", "c16"]


def patched(path, **fields):
    """Rewrites header fields where nibabel would not let them be wrong."""
    raw = bytearray(path.read_bytes())
    header = np.frombuffer(raw, nib.Nifti1Header.template_dtype, 1)
    for name, value in fields.items():
        header[name][0] = value
    path.write_bytes(bytes(raw))
    return path


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_nifti_in_every_wrapping_is_what_nibabel_reads(tmp_path_factory, data):
    shape = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple))
    name = data.draw(st.sampled_from(["a.nii", "a.nii.gz", "a.img", "a.hdr"]))
    kind = np.dtype(data.draw(st.sampled_from(KINDS))).newbyteorder(data.draw(st.sampled_from("<>")))
    make = data.draw(st.sampled_from([nib.Nifti1Image, nib.Nifti2Image]))
    if name[-3:] in ("img", "hdr"):
        make = nib.Nifti1Pair if make is nib.Nifti1Image else nib.Nifti2Pair
    array = np.random.default_rng(0).integers(0, 99, shape).astype(kind)
    path = tmp_path_factory.mktemp("nifti") / name
    saved = make(array, AFFINE, header=make.header_class(endianness=kind.byteorder if kind.itemsize > 1 else "<"))
    saved.header.set_data_dtype(kind)
    nib.save(saved, path)
    image, theirs = read(path), nib.load(path)
    assert image.array.dtype == kind.newbyteorder("=")
    assert image.array.dtype.isnative
    expected = np.asanyarray(theirs.dataobj)
    np.testing.assert_array_equal(image.array, np.moveaxis(expected, 3, 0) if expected.ndim == 4 else expected[None])
    np.testing.assert_array_equal(image.affine, theirs.affine)
    assert read_grid(path).difference(image.geometry) is None
    image.array[...] = 0  # a private copy: the file stays as it is
    np.testing.assert_array_equal(np.asanyarray(nib.load(path).dataobj), expected)


@pytest.mark.parametrize(
    "region", [((0, 3), (0, 2), (0, 2)), ((1, 1), (0, 2), (0, 2)), ((-1, 1), (0, 2), (0, 2)), ((0, 1),)]
)
@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_a_region_that_sticks_out_is_refused(tmp_path, region, name):
    path = save(tmp_path / name, np.zeros((2, 2, 2), np.uint8))
    for reader in (read, read_grid):
        with pytest.raises(CaseError, match=r"a\.nii(\.gz)?: has no region"):
            reader(path, region=region)


@pytest.mark.parametrize(("kind", "slope", "inter", "expected"), [
    ("i2", 0.5, 3, "f4"), ("u1", 2, 0, "f4"), ("i2", 1, -1024, "f4"), ("i4", 0.5, 0, "f8"), ("f4", 2, 0, "f4"),
    ("f4", 2, 1, "f8"), ("i2", 1e-6, 1000, "f8"), ("i2", 1e36, 0, "f8"), ("f8", 2, 0, "f8"), ("c8", 2, 1, "c16"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_slope_and_intercept_are_applied_in_a_type_that_tells_values_apart(
    tmp_path, kind, slope, inter, expected, name
):
    stored = np.arange(24).reshape(2, 3, 4).astype(kind)
    path = patched(save(tmp_path / "a.nii", stored), scl_slope=slope, scl_inter=inter)
    if name.endswith("gz"):
        path = tmp_path / name
        path.write_bytes(gzip.compress((tmp_path / "a.nii").read_bytes()))
    image = read(path)
    assert image.array.dtype == expected
    exact = stored.astype(np.complex128 if kind == "c8" else np.float64) * np.float32(slope) + np.float32(inter)
    np.testing.assert_allclose(image.array[0], exact, rtol=1e-6)
    assert len(np.unique(image.array)) == 24


@pytest.mark.parametrize(("slope", "inter"), [(0, 5), (np.nan, 5), (1, 0), (np.inf, 0)])
def test_a_slope_that_says_nothing_leaves_stored_values(tmp_path, slope, inter):
    path = patched(save(tmp_path / "a.nii", np.ones((2, 2, 2), np.int16)), scl_slope=slope, scl_inter=inter)
    assert read(path).array.dtype == np.int16


def test_an_intercept_that_is_no_number_is_refused(tmp_path):
    path = patched(save(tmp_path / "a.nii", np.ones((2, 2, 2), np.int16)), scl_slope=2, scl_inter=np.nan)
    with pytest.raises(CaseError, match=r"a\.nii: has a slope of 2"):
        read(path)


def two_forms(path, sform, qform):
    image = nib.Nifti1Image(np.zeros((10, 10, 10), np.uint8), sform)
    image.set_sform(sform, code=1)
    image.set_qform(qform, code=1)
    nib.save(image, path)
    return read(path)


def test_where_sform_and_qform_differ_the_sform_is_used_and_the_difference_stated(tmp_path):
    path = tmp_path / "a.nii"
    assert two_forms(path, AFFINE, AFFINE).notes == ()
    shifted = AFFINE.copy()
    shifted[0, 3] += 0.2
    image = two_forms(path, AFFINE, shifted)
    assert image.notes == ("sform and qform place the volume up to 0.2 mm apart; the sform was used",)
    np.testing.assert_allclose(image.affine, AFFINE)
    shifted[0, 3] += 30
    assert "30.2 mm apart; the sform was used. THAT IS MORE THAN A VOXEL" in two_forms(path, AFFINE, shifted).notes[0]
    mirrored = AFFINE @ np.diag([-1, 1, 1, 1])
    assert "ONE IS THE MIRROR IMAGE OF THE OTHER" in two_forms(path, AFFINE, mirrored).notes[0]


def test_without_sform_and_qform_the_guess_is_stated(tmp_path):
    path = save(tmp_path / "a.nii", np.zeros((3, 4, 5), np.uint8), None)
    image = read(path)
    assert "neither sform nor qform is set: orientation and origin are a guess" in image.notes[0]
    np.testing.assert_allclose(image.affine, nib.load(path).affine)


@pytest.mark.parametrize(("code", "factor", "unit"), [("meter", 1000, "metres"), ("micron", 0.001, "micrometres")])
def test_lengths_become_millimetres(tmp_path, code, factor, unit):
    stored = nib.Nifti1Image(np.zeros((2, 2, 2), np.uint8), AFFINE)
    stored.header.set_xyzt_units(code)
    nib.save(stored, tmp_path / "a.nii")
    image = read(tmp_path / "a.nii")
    np.testing.assert_allclose(image.affine[:3], AFFINE[:3] * factor)
    assert f"lengths are stated in {unit} and were converted: a voxel measures" in image.notes[0]


@pytest.mark.parametrize("step", [0, -1, np.nan, np.inf])
@pytest.mark.parametrize("code", [0, 1])
def test_a_spacing_that_is_none_is_refused(tmp_path, step, code):
    path = patched(save(tmp_path / "a.nii", np.zeros((2, 2, 2), np.uint8)), sform_code=0, qform_code=code)
    pixdim = [1, 1, 1, step, 1, 1, 1, 1]
    with pytest.raises(CaseError, match=r"a\.nii: has no usable affine.*spacing"):
        read(patched(path, pixdim=pixdim))


def test_a_pixdim_that_contradicts_the_sform_is_noted(tmp_path):
    path = patched(save(tmp_path / "a.nii", np.zeros((2, 2, 2), np.uint8)), pixdim=[1, -0.5, 0.5, 4, 1, 1, 1, 1])
    image = read(path)
    assert image.notes == (
        "pixdim gives a spacing of -0.5, 0.5, 4, and the sform one of 0.5, 0.5, 2.5, which was used",
    )


@pytest.mark.parametrize("row", [[np.nan, 0, 0, 0], [np.inf, 0, 0, 0], [0, 0.5, 0, 0]])
def test_an_sform_that_is_no_map_is_refused(tmp_path, row):
    path = patched(save(tmp_path / "a.nii", np.zeros((2, 2, 2), np.uint8)), srow_x=[0, 0, 0, 0], srow_y=row)
    for reader in (read, read_grid):
        with pytest.raises(CaseError, match=r"a\.nii: has no usable affine"):
            reader(path)


def test_vectors_colours_and_pictures_have_their_axes_in_place(tmp_path):
    vectors = np.arange(72, dtype=np.float32).reshape(2, 3, 4, 1, 3)
    np.testing.assert_array_equal(read(save(tmp_path / "v.nii", vectors)).array, np.moveaxis(vectors[..., 0, :], 3, 0))
    colours = np.random.default_rng(0).integers(0, 255, (2, 3, 4, 3), np.uint8)
    rgb = np.ascontiguousarray(colours).view([("R", "u1"), ("G", "u1"), ("B", "u1")])[..., 0]
    for name in ("c.nii", "c.nii.gz"):
        image = read(save(tmp_path / name, rgb))
        np.testing.assert_array_equal(image.array, np.moveaxis(colours, 3, 0))
    part = read(tmp_path / "c.nii", region=((0, 1), (1, 3), (2, 4)))
    np.testing.assert_array_equal(part.array, np.moveaxis(colours, 3, 0)[:, 0:1, 1:3, 2:4])
    flat = np.arange(6, dtype=np.uint8).reshape(2, 3)
    image = read(save(tmp_path / "p.nii", flat))
    np.testing.assert_array_equal(image.array[0], flat)
    assert read_grid(tmp_path / "p.nii").shape == (2, 3)


@pytest.mark.parametrize("shape", [(2, 2, 2, 2, 2), (4,)])
def test_other_numbers_of_axes_are_refused(tmp_path, shape):
    with pytest.raises(CaseError, match=r"a\.nii: has the shape"):
        read(save(tmp_path / "a.nii", np.zeros(shape, np.uint8)))


@pytest.mark.parametrize(("fields", "said"), [
    ({"dim": [3, 0, 2, 2, 1, 1, 1, 1]}, "axes of at least 1"),
    ({"dim": [3, -2, 2, 2, 1, 1, 1, 1]}, "axes of at least 1"),
    ({"dim": [9, 2, 2, 2, 1, 1, 1, 1]}, "axes of at least 1"),
    ({"dim": [3, 30000, 30000, 30000, 1, 1, 1, 1]}, "its header is wrong: the header asks for 27000000000000 bytes"),
    ({"vox_offset": 0}, "inside the header"),
    ({"vox_offset": np.nan}, "inside the header"),
    ({"vox_offset": 1e9}, "the header asks for 8 bytes of voxels after 1000000000 bytes"),
    ({"datatype": 1}, "not supported"),
    ({"datatype": 9999}, "no known data type"),
    ({"intent_code": 3001}, "CIFTI-2"),
])  # fmt: skip
def test_headers_that_cannot_be_are_refused(tmp_path, fields, said):
    path = patched(save(tmp_path / "a.nii", np.zeros((2, 2, 2), np.uint8)), **fields)
    packed = tmp_path / "b.nii.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for one in (path, packed):
        for reader in (read, read_grid):
            with pytest.raises(CaseError, match=rf"{one.name.replace('.', '[.]')}: .*{said}"):
                reader(one)


def test_a_header_that_asks_for_more_than_the_memory_is_refused(tmp_path, monkeypatch):
    path = save(tmp_path / "a.nii", np.zeros((2, 2, 2), np.uint8))
    monkeypatch.setattr("medimg_eval.imaging.voxel_data.os.sysconf", lambda name: 2)
    with pytest.raises(CaseError, match=r"a\.nii: its header asks for 0 GiB of voxels, and this machine has"):
        read(path)


def test_a_bomb_is_not_inflated_past_its_voxels(tmp_path):
    plain = save(tmp_path / "a.nii", np.ones((2, 2, 2), np.uint8)).read_bytes()
    bomb = tmp_path / "bomb.nii.gz"
    bomb.write_bytes(gzip.compress(plain + bytes(200_000_000), compresslevel=1))
    tracemalloc.start()
    image = read(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000
    assert image.array.sum() == 8
    assert image.notes == ("the file goes on long after its last voxel; what follows was not read, nor its checksum",)


def test_members_are_one_stream_and_padding_is_passed_over(tmp_path):
    array = np.random.default_rng(0).integers(0, 99, (20, 20, 20)).astype(np.int16)
    plain = save(tmp_path / "a.nii", array).read_bytes()
    path = tmp_path / "b.nii.gz"
    path.write_bytes(gzip.compress(plain[:5000]) + gzip.compress(plain[5000:]) + bytes(512))
    np.testing.assert_array_equal(read(path).array[0], array)


@settings(deadline=None, max_examples=25)
@given(st.integers(10, 10**9), st.integers(1, 255), st.booleans())
def test_a_damaged_byte_is_noticed(tmp_path_factory, place, flip, cut):
    array = np.random.default_rng(0).integers(0, 9, (12, 12, 12)).astype(np.int16)
    path = save(tmp_path_factory.mktemp("damage") / "a.nii.gz", array)
    content = bytearray(path.read_bytes())
    if cut:
        path.write_bytes(bytes(content[: 10 + place % (len(content) - 10)]))
    else:
        start = 10 + len("a.nii") + 1  # past the file's name, which no checksum covers
        content[start + place % (len(content) - start)] ^= flip
        path.write_bytes(bytes(content))
    with pytest.raises(CaseError, match=r"a\.nii\.gz"):
        read(path)


def test_memory_holds_the_volume_and_little_else(tmp_path):
    array = np.random.default_rng(0).integers(0, 4, (160, 160, 160)).astype(np.int16)
    plain = save(tmp_path / "a.nii", array)
    packed, scaled = tmp_path / "a.nii.gz", tmp_path / "s.nii.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes(), compresslevel=1))
    scaled.write_bytes(gzip.compress(patched(plain, scl_slope=2).read_bytes(), compresslevel=1))
    read(packed, region=((0, 1),) * 3)  # libraries are imported first
    for path, size in ((packed, array.nbytes), (scaled, 2 * array.nbytes)):
        tracemalloc.start()
        read_volume([path])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1.2 * size + 3e6, path
