"""MetaImage and NRRD: where voxels lie, what headers leave out, and what ITK would pass over in silence."""

import bz2
import gzip
import zlib

import numpy as np
import pytest
import SimpleITK
from damaging import require_result_or_name
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import CaseError
from medimg_eval.imaging import read, read_grid

HAND = """ObjectType = Image
NDims = 3
BinaryData = True
BinaryDataByteOrderMSB = False
"""
PLACED = "ElementSpacing = 1 2 3\nOffset = 10 20 30\n"
REST = "DimSize = 2 3 4\nElementType = MET_SHORT\nElementDataFile = LOCAL\n"
VOXELS = np.arange(24, dtype=np.int16)
NRRD = "NRRD0004\ntype: short\ndimension: 3\nsizes: 2 3 4\nendian: little\nencoding: raw\n"
DIRECTIONS = "space directions: (1,0,0) (0,2,0) (0,0,3)\nspace origin: (10,20,30)\n"


def write(path, header, content=None):
    path.write_bytes(header.encode() + (VOXELS.tobytes() if content is None else content))
    return path


def test_metaimage_and_nrrd_worked_by_hand(tmp_path):
    expected = np.array([[-1.0, 0, 0, -10], [0, -2, 0, -20], [0, 0, 3, 30], [0, 0, 0, 1]])
    image = read(write(tmp_path / "a.mha", HAND + PLACED + REST))
    np.testing.assert_array_equal(image.array[0], VOXELS.reshape(2, 3, 4, order="F"))
    np.testing.assert_allclose(image.affine, expected)
    assert (image.array.dtype, image.units, image.notes) == (np.int16, "mm", ())
    image = read(write(tmp_path / "a.nrrd", NRRD + "space: left-posterior-superior\n" + DIRECTIONS + "\n"))
    np.testing.assert_array_equal(image.array[0], VOXELS.reshape(2, 3, 4, order="F"))
    np.testing.assert_allclose(image.affine, expected)
    assert (image.array.dtype, image.units, image.notes) == (np.int16, "mm", ())


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_what_itk_writes_lies_where_itk_says(tmp_path_factory, data):
    name = data.draw(st.sampled_from(["a.mha", "a.mhd", "a.nrrd", "a.nhdr"]))
    shape = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple))
    kind = data.draw(st.sampled_from(["u1", "i2", "u2", "i4", "f4", "f8"]))
    array = np.random.default_rng(0).integers(0, 99, shape).astype(kind)
    vector = data.draw(st.booleans()) and len(shape) == 4 and shape[-1] > 1
    stored = SimpleITK.GetImageFromArray(array.T if not vector else np.moveaxis(array, 3, 0).T, isVector=vector)
    axes = stored.GetDimension()
    stored.SetSpacing([0.5, 1.5, 2.5, 1.0][:axes])
    stored.SetOrigin([-5.0, 7.0, 9.0, 0.0][:axes])
    if axes == 3:
        stored.SetDirection([0, 0, 1, 1, 0, 0, 0, 1, 0])
    path = tmp_path_factory.mktemp("itk") / name
    SimpleITK.WriteImage(stored, path, useCompression=data.draw(st.booleans()))
    image = read(path)
    assert image.array.dtype == kind
    spatial = array.shape[:3]
    expected = array[None] if array.ndim < 4 else np.moveaxis(array, 3, 0)
    np.testing.assert_array_equal(image.array, expected)
    ends = [n - 1 for n in spatial]
    there = stored.TransformIndexToPhysicalPoint([*ends, *[0] * (axes - len(ends))])
    place = image.affine @ [*ends, *[0] * (3 - len(ends)), 1]
    np.testing.assert_allclose(
        place[: len(ends)], (np.array(there)[:3] * [-1, -1, 1][: min(axes, 3)])[: len(ends)], atol=1e-5
    )
    assert read_grid(path).difference(image.geometry) is None


@pytest.mark.parametrize(("space", "signs"), [
    ("left-posterior-superior", (-1, -1, 1)), ("LPS", (-1, -1, 1)), ("RAS", (1, 1, 1)), ("LAS", (-1, 1, 1)),
])  # fmt: skip
def test_nrrd_spaces_point_where_they_say(tmp_path, space, signs):
    image = read(write(tmp_path / "a.nrrd", NRRD + f"space: {space}\n" + DIRECTIONS + "\n"))
    np.testing.assert_allclose(image.affine[:3, 3], np.multiply(signs, [10, 20, 30]))
    np.testing.assert_allclose(np.diag(image.affine)[:3], np.multiply(signs, [1, 2, 3]))


def test_a_nrrd_space_with_time_points_where_it_says(tmp_path):
    header = NRRD.replace("dimension: 3", "dimension: 4").replace("2 3 4", "2 3 2 2")
    header += "space: right-anterior-superior-time\nspace directions: (1,0,0,0) (0,2,0,0) (0,0,3,0) (0,0,0,1)\n"
    image = read(write(tmp_path / "a.nrrd", header + "space origin: (10,20,30,0)\n\n"))
    assert image.array.shape == (2, 2, 3, 2)
    np.testing.assert_allclose(image.affine[:3, 3], [10, 20, 30])  # ITK leaves these axes as they are


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("encoding", ["raw", "gzip"])
def test_nrrd_components_come_first_wherever_they_lie(tmp_path, first, encoding):
    words = ["list", "domain", "domain", "domain"] if first else ["domain", "domain", "domain", "list"]
    places = ["none", "(1,0,0)", "(0,2,0)", "(0,0,3)"] if first else ["(1,0,0)", "(0,2,0)", "(0,0,3)", "none"]
    header = NRRD.replace("dimension: 3", "dimension: 4").replace("2 3 4", "2 2 3 2").replace("raw", encoding)
    header += "space: LPS\nspace origin: (0,0,0)\nspace directions: " + " ".join(places) + "\n"
    header += "kinds: " + " ".join(words) + "\n"
    content = gzip.compress(VOXELS.tobytes()) if encoding == "gzip" else None
    stored = VOXELS.reshape(2, 2, 3, 2, order="F")
    image = read(write(tmp_path / "a.nrrd", header + "\n", content))
    np.testing.assert_array_equal(image.array, stored if first else np.moveaxis(stored, 3, 0))
    assert image.geometry.spacing == (1, 2, 3)


def test_big_endian_offsets_and_text_are_followed(tmp_path):
    expected = VOXELS.reshape(2, 3, 4, order="F")
    big = VOXELS.astype(">i2").tobytes()
    header = (HAND + PLACED + REST).replace("MSB = False", "MSB = True")
    np.testing.assert_array_equal(read(write(tmp_path / "a.mha", header, big)).array[0], expected)
    for skip in (7, -1):
        (tmp_path / "a.raw").write_bytes(b"1234567" + big)
        detached = header.replace("LOCAL", "a.raw").replace("DimSize", f"HeaderSize = {skip}\nDimSize")
        np.testing.assert_array_equal(read(write(tmp_path / "a.mhd", detached, b"")).array[0], expected)
        detached = NRRD.replace("little", "big") + f"byte skip: {skip}\ndata file: a.raw\nspacings: 1 1 1\n\n"
        np.testing.assert_array_equal(read(write(tmp_path / "a.nhdr", detached, b"")).array[0], expected)
    text = " ".join(str(value) for value in VOXELS).encode()
    header = NRRD.replace("raw", "ascii") + "spacings: 1 1 1\n\n"
    image = read(write(tmp_path / "t.nrrd", header, text), region=((0, 2), (1, 3), (1, 2)))
    np.testing.assert_array_equal(image.array[0], expected[:, 1:3, 1:2])


@pytest.mark.parametrize(("name", "header", "units", "note"), [
    ("a.mha", HAND + REST, "pixel", "the file states no voxel size"),
    ("a.nrrd", NRRD + "\n", "pixel", "the file states no voxel size"),
    ("a.nrrd", NRRD + "spacings: 1 2 3\n\n", "mm", "the file states no space"),
    ("a.nrrd", NRRD + "space: scanner-xyz\n" + DIRECTIONS + "\n", "mm", "no patient's"),
    ("a.nrrd", NRRD + "space: LPS\nspace units: \"m\" \"m\" \"m\"\n" + DIRECTIONS + "\n", "mm", "1000 mm"),
])  # fmt: skip
def test_what_a_header_leaves_out_is_said(tmp_path, name, header, units, note):
    image = read(write(tmp_path / name, header))
    assert image.units == units
    assert any(note in one for one in image.notes)
    if "1000" in note:
        np.testing.assert_allclose(image.geometry.spacing, (1000, 2000, 3000))


@pytest.mark.parametrize(("name", "header", "content", "said"), [
    ("a.mha", HAND + "ElementSpacing = 0 1 1\n" + REST, None, "no usable affine: ElementSpacing is 0, 1, 1"),
    ("a.mha", HAND + "ElementSpacing = -2 1 1\n" + REST, None, "no usable affine: ElementSpacing is -2, 1, 1"),
    ("a.mha", HAND + "ElementSpacing = nan 1 1\n" + REST, None, "no usable affine"),
    ("a.mha", HAND + "ElementSpacing = x 1 1\n" + REST, None, "expected numbers in the field 'ElementSpacing'"),
    ("a.mha", HAND + PLACED + "TransformMatrix = 1 0 0 0 1 0 0 0 0\n" + REST, None, "no usable affine"),
    ("a.mha", HAND + PLACED + REST, VOXELS.tobytes()[:20], "cut short"),
    ("a.mha", HAND + "CompressedData = True\n" + PLACED + REST, b"x" * 40, "damaged"),
    ("a.mha", HAND + PLACED + REST.replace("2 3 4", "20000 30000 400"), None, "asks for 480000000000 bytes"),
    ("a.mhd", HAND + PLACED + REST.replace("LOCAL", "a.raw"), None, "its voxels lie in a.raw, which is missing"),
    ("a.mha", HAND + PLACED, None, "the field DimSize is missing"),
    ("a.mha", "BinaryData maybe\n" + HAND + PLACED + REST, None, "holds lines that are no fields"),
    ("a.mha", "Com\0ment = x\n" + HAND + PLACED + REST, None, "holds lines that are no fields"),
    ("a.mha", HAND.replace("NDims = 3", "NDims = 9") + PLACED + REST, None, "has NDims = 9"),
    ("a.mha", HAND + PLACED + REST.replace("MET_SHORT", "MET_SHOUT"), None, "of no known data type .MET_SHOUT."),
    ("a.mha", HAND + PLACED + REST.replace("2 3 4", "2 3"), None, "expected 3 numbers in the field 'DimSize'"),
    ("a.mha", HAND + PLACED + REST.replace("2 3 4", "2 0 4"), None, "has axes of 2 0 4 voxels"),
    ("a.mha", "Offset = 1 2 3\n" + HAND + PLACED + REST, None, "in the field 'Offset', after NDims = 3"),
    ("a.mha", HAND + "BinaryData = 0True\n" + PLACED + REST, None, "expected True or False in the field 'BinaryData'"),
    ("a.nrrd", NRRD + "spacings: -1 2 3\n\n", None, "no usable affine: spacings is -1, 2, 3"),
    ("a.nrrd", NRRD + "spacings: nan 2 3\n\n", None, "no usable affine"),
    ("a.nrrd", NRRD + "spacings: 0 2 3\n\n", None, "no usable affine"),
    ("a.nrrd", NRRD + "spacings: 1 2 3\n\n", VOXELS.tobytes()[:20], "cut short"),
    ("a.nrrd", NRRD.replace("raw", "gzip") + "\n", b"x" * 60, "damaged"),
    ("a.nrrd", NRRD.replace("2 3 4", "9999 9999 9999") + "\n", None, "cut short, or its header is wrong"),
    ("a.nhdr", NRRD + "data file: gone.raw\n\n", b"", "its voxels lie in gone.raw, which is missing"),
    ("a.mhd", HAND + "CompressedData = True\n" + PLACED + REST.replace("LOCAL", "LIST\na.mhd"), b"", "convert it"),
    ("a.nrrd", NRRD.replace("raw", "bzip2") + "\n", b"BZh9 and no more", "cut short or damaged"),
    ("a.nrrd", NRRD.replace("raw", "bzip2") + "\n", bz2.compress(VOXELS.tobytes())[:-9], "cut short"),
    ("a.nrrd", NRRD.replace("raw", "bzip2") + "\n", bz2.compress(VOXELS.tobytes()[:20]), "cut short"),
    ("a.nrrd", NRRD.replace("raw", "bzip2").replace("2 3 4", "9999 9999 9999") + "\n", b"BZh9", "memory|cut short"),
    ("a.nrrd", NRRD.replace("raw", "ascii") + "\n", b"1 2 3 4", "cut short"),
    ("a.nrrd", NRRD + "space: LPS\nspace units: \"m\" \"mm\" \"m\"\n" + DIRECTIONS + "\n", None, "different units"),
])  # fmt: skip
def test_metaimages_and_nrrds_that_cannot_be_are_named(tmp_path, capfd, name, header, content, said):
    with pytest.raises(CaseError, match=rf"{name.replace('.', '[.]')}: .*{said}"):
        read(write(tmp_path / name, header, content))
    assert not any("Meta" in text or "required" in text for text in capfd.readouterr())


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(["a.mha", "a.nrrd"]), st.integers(0, 10**9), st.integers(1, 255), st.booleans())
def test_a_damaged_byte_among_compressed_voxels_is_noticed(tmp_path_factory, name, place, flip, cut):
    noise = np.random.default_rng(0).integers(0, 9, 24).astype(np.int16).tobytes()
    if name == "a.mha":
        header, packed = HAND + "CompressedData = True\n" + PLACED + REST, bytearray(zlib.compress(noise))
    else:
        header, packed = NRRD.replace("raw", "gzip") + "spacings: 1 1 1\n\n", bytearray(gzip.compress(noise))
    folder = tmp_path_factory.mktemp("damage")
    whole = read(write(folder / f"whole{name[1:]}", header, bytes(packed)))
    assert whole.array.tobytes(order="F") == noise
    start = 2 if name == "a.mha" else 10  # the wrapper's own header may differ and mean the same
    if cut:
        packed = packed[: start + place % (len(packed) - start)]
    else:
        packed[start + place % (len(packed) - start)] ^= flip
    with pytest.raises(CaseError, match=name.replace(".", "[.]")):
        read(write(folder / name, header, bytes(packed)))


OUTSIDE = "does not lie in its own folder"
DETACHED = HAND + PLACED + REST
PLACED_NRRD = NRRD + "spacings: 1 2 3\n"


@pytest.fixture
def apart(tmp_path):
    """A folder for a header, with a secret of 48 bytes beside the folder."""
    (tmp_path / "secret").write_bytes(bytes(range(48)))
    folder = tmp_path / "case"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("named", ["{secret}", "../secret", "sub/../../secret", "..\\secret", "~/secret"])
@pytest.mark.parametrize("kind", ["mhd", "nhdr", "mhd list", "nhdr list", "nhdr text", "mhd text"])
def test_a_header_names_no_file_outside_its_folder(apart, named, kind):
    named = named.format(secret=apart.parent / "secret")
    text = "text" in kind
    if kind.startswith("mhd"):
        given = f"LIST\n{named}\n{named}\n{named}\n{named}\n" if "list" in kind else f"{named}\n"
        header = DETACHED.replace("BinaryData = True", f"BinaryData = {not text}").replace("LOCAL\n", given)
        path = write(apart / "a.mhd", header, b"")
    else:
        given = f"LIST\n{named}\n" if "list" in kind else f"{named}\n\n"
        header = PLACED_NRRD.replace("raw", "ascii") if text else PLACED_NRRD
        path = write(apart / "a.nhdr", f"{header}data file: {given}", b"")
    for ask in (read, read_grid):
        with pytest.raises(CaseError, match=OUTSIDE) as error:
            ask(path)
        assert str(path) in str(error.value)
        assert named in str(error.value)


@pytest.mark.parametrize("pattern", ["../s%03d.raw 0 3 1", "{folder}/s%d 1 4 1", "%s 1 4 1", "s%d%d 1 4 1"])
def test_patterns_of_names_stay_in_the_folder_too(apart, pattern):
    pattern = pattern.format(folder=apart.parent)
    for k in range(5):
        (apart.parent / f"s{k:03d}.raw").write_bytes(bytes(12))
        (apart.parent / f"s{k}").write_bytes(bytes(12))
    for path in (
        write(apart / "a.mhd", DETACHED.replace("LOCAL", pattern), b""),
        write(apart / "a.nhdr", f"{PLACED_NRRD}data file: {pattern}\n\n", b""),
    ):
        with pytest.raises(CaseError, match=f"{OUTSIDE}|expected a pattern"):
            read(path)


def test_names_behind_a_lone_carriage_return_are_seen(apart):
    path = write(apart / "a.nhdr", f"{PLACED_NRRD}# note\rdata file: ../secret\n\n", b"")
    with pytest.raises(CaseError, match=OUTSIDE):
        read(path)


def test_voxels_in_several_files_of_the_folder_are_read(apart):
    slices = VOXELS.reshape(4, 6)
    for k, plane in enumerate(slices):
        (apart / f"s{k:02d}.raw").write_bytes(plane.tobytes())
    names = "".join(f"s{k:02d}.raw\n" for k in range(4))
    for path in (
        write(apart / "list.mhd", DETACHED.replace("LOCAL\n", f"LIST\n{names}"), b""),
        write(apart / "pattern.mhd", DETACHED.replace("LOCAL", "s%02d.raw 0 3 1"), b""),
        write(apart / "list.nhdr", f"{PLACED_NRRD}data file: LIST\n{names}", b""),
        write(apart / "pattern.nhdr", f"{PLACED_NRRD}data file: s%02d.raw 0 3 1\n\n", b""),
    ):
        np.testing.assert_array_equal(read(path).array[0], VOXELS.reshape(2, 3, 4, order="F"))
    (apart / "s02.raw").unlink()
    with pytest.raises(CaseError, match=r"its voxels lie in s02\.raw, which is missing"):
        read(apart / "list.mhd")


def test_links_are_followed_only_to_where_the_header_lies(apart, tmp_path):
    header = DETACHED.replace("LOCAL", "a.raw")
    (write(apart / "a.mhd", header, b"").with_suffix(".raw")).symlink_to(tmp_path / "secret")
    with pytest.raises(CaseError, match=OUTSIDE):
        read(apart / "a.mhd")
    store, linked = tmp_path / "store", tmp_path / "linked"  # a folder of links to cases
    store.mkdir()
    linked.mkdir()
    write(store / "a.mhd", header, b"")
    (store / "a.raw").write_bytes(VOXELS.tobytes())
    for name in ("a.mhd", "a.raw"):
        (linked / name).symlink_to(store / name)
    np.testing.assert_array_equal(read(linked / "a.mhd").array[0], VOXELS.reshape(2, 3, 4, order="F"))


PACKED = {"raw": lambda data: data, "gzip": gzip.compress, "bzip2": bz2.compress}


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize("where", ["first", "last", "last of three", "nowhere"])
def test_nrrds_are_read_in_every_encoding_with_time_first_or_last(tmp_path, where, encoding):
    sizes, kinds, steps = {
        "first": ("2 2 3 2", "time domain domain domain", "2500 1 2 3"),
        "last": ("2 3 2 2", "domain domain domain time", "1 2 3 2500"),
        "last of three": ("2 3 4", "domain domain time", "1 2 2500"),
        "nowhere": ("2 3 4", "domain domain domain", "1 2 3"),
    }[where]
    header = NRRD.replace("dimension: 3", f"dimension: {len(sizes.split())}").replace("2 3 4", sizes)
    units = " ".join('"ms"' if kind == "time" else '"mm"' for kind in kinds.split())
    header = f"{header.replace('raw', encoding)}spacings: {steps}\nkinds: {kinds}\nunits: {units}\n\n"
    path = write(tmp_path / "a.nrrd", header, PACKED[encoding](VOXELS.tobytes()))
    stored = VOXELS.reshape([int(size) for size in sizes.split()], order="F")
    image = read(path)
    want = {"first": stored, "nowhere": stored[None]}.get(where, np.moveaxis(stored, -1, 0))
    np.testing.assert_array_equal(image.array, want)
    assert image.geometry.spacing == ((1, 2) if where == "last of three" else (1, 2, 3))
    assert read_grid(path).difference(image.geometry) is None
    if where == "nowhere":
        assert image.channels is None
        return
    assert (image.channels.kind, image.channels.step) == ("time", 2.5)
    if where != "last of three":
        part = read(path, region=((0, 1), (1, 3), (1, 2)))
        np.testing.assert_array_equal(part.array, want[:, :1, 1:3, 1:2])


def test_directions_of_a_nrrd_with_time_first_are_those_of_its_space(tmp_path):
    header = NRRD.replace("dimension: 3", "dimension: 4").replace("2 3 4", "2 2 3 2") + "space: LPS\n"
    header += (
        "space directions: none (1,0,0) (0,2,0) (0,0,3)\nspace origin: (10,20,30)\nkinds: time domain domain domain\n\n"
    )
    image = read(write(tmp_path / "a.nrrd", header))
    np.testing.assert_allclose(image.affine, [[-1, 0, 0, -10], [0, -2, 0, -20], [0, 0, 3, 30], [0, 0, 0, 1]])
    assert np.isnan(image.channels.values[1])


def test_an_axis_of_time_between_those_of_space_is_refused(tmp_path):
    header = NRRD.replace("dimension: 3", "dimension: 4").replace("2 3 4", "2 2 3 2")
    path = write(tmp_path / "a.nrrd", f"{header}spacings: 1 1 1 1\nkinds: domain domain time domain\n\n")
    with pytest.raises(CaseError, match="axis of time between those of space"):
        read(path)


@pytest.mark.parametrize("encoding", ["raw", "gzip", "bzip2"])
def test_damaged_scans_in_time_are_read_or_named(tmp_path, encoding):
    voxels = np.arange(120, dtype="<i2").tobytes()
    pack = {"raw": bytes, "gzip": gzip.compress, "bzip2": bz2.compress}[encoding]
    header = f"NRRD0004\ntype: int16\ndimension: 4\nsizes: 2 3 4 5\nendian: little\nencoding: {encoding}\n"
    header += "space: LPS\nkinds: domain domain domain time\nspace directions: (1,0,0) (0,1,0) (0,0,2) none\n"
    path = write(tmp_path / "a.nrrd", header + "space origin: (1,2,3)\n\n", pack(voxels))
    require_result_or_name(path, read, 60)
