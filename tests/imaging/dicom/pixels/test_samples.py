"""Headers and samples of single DICOM files: every coding, odd files, damaged files."""

import re
import warnings
from pathlib import Path

import numpy as np
import pydicom
import pydicom.config
import pytest
from dicom_fixtures import (
    HTJ2K_LOSSLESS,
    JPEG_2000,
    JPEG_BASELINE,
    JPEG_EXTENDED,
    JPEG_LS,
    LOSSLESS,
    NATIVE,
    encode,
    ramp,
    save,
    slice_dataset,
    write_series,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate, encapsulate_extended
from pydicom.sequence import Sequence
from pydicom.uid import DeflatedExplicitVRLittleEndian, ExplicitVRBigEndian, ExplicitVRLittleEndian, RLELossless

from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom import reading as dicom
from medimg_eval.imaging.dicom.headers.header import header_of, read_header
from medimg_eval.imaging.dicom.pixels.samples import decode_into, stored_dtype, stored_frames
from medimg_eval.imaging.dicom.series.grouping import gather
from medimg_eval.imaging.reading import read

SHIPPED = Path(pydicom.__file__).parent / "data" / "test_files"
FILES = sorted(path for path in SHIPPED.rglob("*") if path.is_file())
CUT = "rtplan_truncated.dcm"
BEYOND_PYDICOM = ("JPEG-lossy.dcm", "JPEG2000-embedded-sequence-delimiter.dcm", "MR_truncated.dcm", "badVR.dcm")


def with_pixels():
    headers = [read_header(path) for path in FILES if path.name not in (CUT, *BEYOND_PYDICOM)]
    return [header for header in headers if header and header.has_pixels and header.rows]


def smooth(shape, dtype):
    row, column = np.mgrid[: shape[0], : shape[1]]
    field = 110 + 60 * np.sin(row / 3) + 40 * np.cos(column / 4)
    plane = field.astype(dtype)
    return plane if len(shape) == 2 else np.stack([plane, plane // 2, 200 - plane], axis=-1).astype(dtype)


@pytest.mark.parametrize("syntax", [*NATIVE, *LOSSLESS])
@pytest.mark.parametrize(("dtype", "bits"), [(np.uint16, 12), (np.int16, 12), (np.int16, 16), (np.uint8, 8)])
def test_every_coding_gives_the_samples_that_were_stored(tmp_path, syntax, dtype, bits):
    plane = smooth((24, 20), dtype)
    plane[0, :3] = (0, 1, 127) if dtype != np.int16 else (-1, -2048, 2047)
    path = save(slice_dataset(plane, bits=bits), tmp_path / "x", syntax)
    found = stored_frames(path)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found[0], plane)
    if syntax != HTJ2K_LOSSLESS and (dtype != np.int16 or bits == 16 or syntax in NATIVE):
        np.testing.assert_array_equal(found[0], pydicom.dcmread(path).pixel_array)
    slot = np.zeros_like(plane)
    decode_into(read_header(path), slot)
    np.testing.assert_array_equal(slot, plane)


@pytest.mark.parametrize("syntax", [*NATIVE, RLELossless, JPEG_LS, JPEG_2000])
def test_colours_are_as_they_are_stored(tmp_path, syntax):
    plane = smooth((9, 8, 3), np.uint8)
    path = save(slice_dataset(plane), tmp_path / "x", syntax)
    np.testing.assert_array_equal(stored_frames(path)[0], plane)


@pytest.mark.parametrize(("syntax", "dtype", "bits"), [(JPEG_BASELINE, np.uint8, 8), (JPEG_EXTENDED, np.uint16, 12)])
def test_lossy_jpeg_is_what_pydicom_decodes(tmp_path, syntax, dtype, bits):
    path = save(slice_dataset(smooth((32, 40), dtype), bits=bits), tmp_path / "x", syntax)
    np.testing.assert_allclose(stored_frames(path)[0], pydicom.dcmread(path).pixel_array, atol=2)


@pytest.mark.parametrize("header", with_pixels(), ids=lambda header: header.path.name)
def test_shipped_files_hold_the_samples_that_pydicom_finds(header):
    from pydicom.pixels import get_decoder

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = pydicom.dcmread(header.path, force=True)
        want, _ = get_decoder(header.transfer_syntax).as_array(dataset, raw=True)
    lossy = header.transfer_syntax.endswith(("4.50", "4.51"))
    np.testing.assert_allclose(stored_frames(header.path).reshape(want.shape), want, atol=1 if lossy else 0)


def test_bits_above_those_stored_are_cleared_and_said(tmp_path):
    plane = ramp()[0].astype(np.uint16)
    path = save(slice_dataset(plane | 0x4000, bits=12), tmp_path / "x")
    np.testing.assert_array_equal(stored_frames(path)[0], plane)
    np.testing.assert_array_equal(read(path).array[0, :, :, 0], plane.T)
    assert "bits above BitsStored were set in 1 slices" in " ".join(read(path).notes)


def test_signs_that_were_not_extended_are(tmp_path):
    plane = ramp()[0] - 1000
    path = save(slice_dataset(plane & 0xFFF, bits=12), tmp_path / "x")
    np.testing.assert_array_equal(stored_frames(path)[0], plane)
    assert not any("BitsStored" in note for note in read(path).notes)


@pytest.mark.parametrize("dtype", [np.uint16, np.int16])
def test_samples_that_lie_in_the_high_bits_are_moved_down(tmp_path, dtype):
    plane = ramp()[0].astype(dtype) - (dtype == np.int16) * 900
    dataset = slice_dataset((plane << 4).astype(dtype), bits=12)
    dataset.HighBit = 15
    for syntax in (ExplicitVRLittleEndian, RLELossless):
        np.testing.assert_array_equal(stored_frames(save(dataset, tmp_path / "x", syntax))[0], plane)


def test_single_bits_become_bytes(tmp_path):
    plane = (ramp((3, 7, 5)) % 2).astype(np.uint8)  # frames that do not end at a byte
    dataset = slice_dataset(plane[0])
    dataset.BitsAllocated = dataset.BitsStored = 1
    dataset.HighBit, dataset.NumberOfFrames = 0, 3
    packed = np.packbits(plane.ravel(), bitorder="little").tobytes()
    dataset.PixelData = packed + b"\0" * (len(packed) % 2)
    np.testing.assert_array_equal(stored_frames(save(dataset, tmp_path / "x")), plane)


def test_planes_of_colour_are_put_together(tmp_path):
    plane = smooth((9, 8, 3), np.uint8)
    dataset = slice_dataset(plane)
    dataset.PlanarConfiguration = 1
    dataset.PixelData = np.moveaxis(plane, -1, 0).tobytes()
    np.testing.assert_array_equal(stored_frames(save(dataset, tmp_path / "x"))[0], plane)


def test_halved_chroma_is_repeated(tmp_path):
    dataset = slice_dataset(smooth((2, 4, 3), np.uint8))
    dataset.PhotometricInterpretation = "YBR_FULL_422"
    dataset.PixelData = bytes(range(16))
    found = stored_frames(save(dataset, tmp_path / "x"))[0]
    assert found[0].tolist() == [[0, 2, 3], [1, 2, 3], [4, 6, 7], [5, 6, 7]]
    assert found[1].tolist() == [[8, 10, 11], [9, 10, 11], [12, 14, 15], [13, 14, 15]]


@pytest.mark.parametrize("offsets", ["basic", "none", "extended"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_frames_are_found_among_fragments(tmp_path, offsets, pieces):
    planes = np.stack([smooth((16, 12), np.uint8), smooth((16, 12), np.uint8)[::-1]])
    dataset = slice_dataset(planes[0])
    frames = [encode(dataset, plane, JPEG_BASELINE) for plane in planes]
    want = np.stack([stored_frames(save(slice_dataset(plane), tmp_path / "one", JPEG_BASELINE))[0] for plane in planes])
    dataset.NumberOfFrames = 2
    if offsets == "extended":
        dataset.PixelData, dataset.ExtendedOffsetTable, dataset.ExtendedOffsetTableLengths = encapsulate_extended(
            frames
        )
    else:
        dataset.PixelData = encapsulate(frames, fragments_per_frame=pieces, has_bot=offsets == "basic")
    dataset["PixelData"].VR = "OB"
    dataset["PixelData"].is_undefined_length = True
    dataset.file_meta.TransferSyntaxUID = JPEG_BASELINE
    dataset.save_as(tmp_path / "x", implicit_vr=False, little_endian=True, enforce_file_format=True)
    np.testing.assert_array_equal(stored_frames(tmp_path / "x"), want)
    np.testing.assert_array_equal(stored_frames(pydicom.dcmread(tmp_path / "x")), want)


def test_floating_point_samples_are_read(tmp_path):
    plane = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)
    dataset = slice_dataset(np.zeros((4, 5), np.uint16))
    del dataset.PixelData, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation
    dataset.BitsAllocated, dataset.FloatPixelData = 32, plane.tobytes()
    path = save(dataset, tmp_path / "x")
    assert stored_dtype(read_header(path)) == np.float32
    np.testing.assert_array_equal(stored_frames(path)[0], plane)


def test_the_scan_and_pydicom_find_the_same_header(tmp_path):
    def edit(dataset):
        item = Dataset()
        item.CodeValue, item.Rows = "1", 3
        inner = Dataset()
        inner.ReferencedSOPInstanceUID, item.ReferencedImageSequence = "1.2", Sequence([inner])
        inner.is_undefined_length_sequence_item = item.is_undefined_length_sequence_item = True
        dataset.ProcedureCodeSequence = Sequence([item, item])
        dataset["ProcedureCodeSequence"].is_undefined_length = True
        item["ReferencedImageSequence"].is_undefined_length = True
        block = dataset.private_block(0x0011, "ACME", create=True)
        block.add_new(0x01, "OB", b"\x01\x02" * 30_000)
        dataset.PixelPaddingValue = 63
        dataset.EchoTime = "12.5"

    dataset = slice_dataset(ramp()[0])
    edit(dataset)
    for syntax in NATIVE:
        path = save(dataset, tmp_path / syntax, syntax)
        scanned, parsed = read_header(path), header_of(pydicom.dcmread(path), path)
        for name in type(scanned).__slots__:
            if name not in ("pixel_offset", "pixel_length"):
                assert getattr(scanned, name) == getattr(parsed, name), name
        assert scanned.rows == 7
        assert scanned.echo_time == 12.5
        np.testing.assert_array_equal(stored_frames(path)[0], ramp()[0])
        if syntax == ExplicitVRBigEndian:  # pixel bytes were swapped in place
            dataset.PixelData = ramp()[0].tobytes()


def test_a_header_that_runs_past_the_end_of_its_file_is_damaged():
    with pytest.raises(CaseError, match=f"{CUT}: is cut short within its header"):
        read_header(SHIPPED / CUT)


def test_files_without_preamble_or_meta_are_read(tmp_path):
    path = save(slice_dataset(ramp()[0]), tmp_path / "x")
    data = path.read_bytes()
    start = 132 + 12 + int.from_bytes(data[140:144], "little")
    for index, bare in enumerate((data[132:], data[start:])):
        (tmp_path / f"bare{index}").write_bytes(bare)
        np.testing.assert_array_equal(read(tmp_path / f"bare{index}").array[0, ..., 0], ramp()[0].T)


def test_values_that_are_no_numbers_count_as_not_said(tmp_path):
    dataset = slice_dataset(ramp()[0])
    path = save(dataset, tmp_path / "x")
    path.write_bytes(path.read_bytes().replace(b"0.7\\0.7 ", b"0.7\\nan "))
    with pytest.raises(CaseError, match="PixelSpacing is missing"):
        read(path)


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, RLELossless, JPEG_LS, DeflatedExplicitVRLittleEndian])
def test_a_file_cut_short_within_its_pixels_is_named(tmp_path, syntax):
    paths = write_series(tmp_path, ramp((4, 40, 40)), syntax=syntax)
    data = paths[2].read_bytes()
    paths[2].write_bytes(data[: len(data) - 200])
    with pytest.raises(CaseError, match=f"{re.escape(str(paths[2]))}: .*copy") as caught:
        read(tmp_path)
    assert "ecret" not in str(caught.value)


def test_a_file_cut_short_within_its_header_is_named(tmp_path):
    paths = write_series(tmp_path, ramp())
    paths[2].write_bytes(paths[2].read_bytes()[:700])
    with pytest.raises(CaseError, match=f"{re.escape(str(paths[2]))}: "):
        read(tmp_path)


def test_an_empty_file_among_the_slices_is_named(tmp_path):
    paths = write_series(tmp_path, ramp())
    paths[5].write_bytes(b"")
    with pytest.raises(CaseError, match=f"{re.escape(str(paths[5]))}: is empty"):
        read(tmp_path)


@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2.4.102", "1.2.3.4.5"])
def test_a_codec_that_nothing_reads_is_named_with_the_mend(tmp_path, syntax):
    dataset = slice_dataset(ramp()[0])
    dataset.PixelData = encapsulate([b"\1\2\3\4"])
    dataset["PixelData"].is_undefined_length = True
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.save_as(tmp_path / "x.dcm", implicit_vr=False, little_endian=True, enforce_file_format=True)
    with pytest.raises(CaseError, match=r"x\.dcm: .*" + re.escape(syntax) + r".*pip install 'medimg-eval\[dicom\]'"):
        read(tmp_path / "x.dcm")


@pytest.mark.parametrize("syntax", [*LOSSLESS, JPEG_BASELINE])
def test_a_code_stream_without_its_end_is_named(tmp_path, syntax):
    plane = np.random.default_rng(0).integers(0, 255, (24, 20), dtype=np.uint8)
    dataset = slice_dataset(plane)
    code = encode(dataset, plane, syntax)
    code = code[: int(len(code) * 0.45) * 2]
    dataset.PixelData = encapsulate([code])
    dataset["PixelData"].is_undefined_length = True
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.save_as(tmp_path / "x", implicit_vr=False, little_endian=True, enforce_file_format=True)
    with pytest.raises(CaseError, match=re.escape(str(tmp_path / "x"))):
        read(tmp_path / "x")


def test_a_damaged_code_stream_is_named(tmp_path):
    for syntax in (*LOSSLESS, JPEG_BASELINE):
        plane = smooth((24, 20), np.uint8)
        path = save(slice_dataset(plane), tmp_path / f"{syntax}.dcm", syntax)
        data = bytearray(path.read_bytes())
        start = read_header(path).pixel_offset + 8 + 8
        data[start : start + 12] = b"\xaa" * 12
        path.write_bytes(data)
        with pytest.raises(CaseError, match=re.escape(str(path))):
            read(path)


@given(
    syntax=st.sampled_from([*NATIVE, *LOSSLESS]),
    changes=st.lists(st.tuples(st.integers(132, 900), st.integers(0, 255)), min_size=1, max_size=4),
    length=st.integers(300, 2000),
)
@settings(deadline=None, max_examples=25)
def test_damage_anywhere_reads_or_raises_the_named_error_without_a_name(tmp_path_factory, syntax, changes, length):
    folder = tmp_path_factory.getbasetemp()
    content = bytearray(save(slice_dataset(ramp()[0], bits=12), folder / "whole", syntax).read_bytes())
    for position, value in changes:
        content[position % len(content)] = value
    path = folder / "damaged"
    path.write_bytes(content[:length])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = dicom.read([path])
        except CaseError as error:
            said = str(error)
        else:
            said = f"{path} {image.notes} {image.attributes}"
    assert str(path) in said
    assert "ecret" not in said


def test_unheard_of_sample_sizes_and_sizes_of_zero_are_refused(tmp_path):
    for name, value, words in (
        ("BitsAllocated", 12, "stores 12 bits a sample"),
        ("HighBit", 16, "states HighBit 16"),
        ("Rows", 0, "states 0 rows"),
    ):
        dataset = slice_dataset(ramp()[0])
        setattr(dataset, name, value)
        path = save(dataset, tmp_path / name)
        with pytest.raises(CaseError, match=f"{re.escape(str(path))}: {words}"):
            read(path)


def test_files_that_are_not_dicom_are_told_apart(tmp_path):
    for name, content in (("text", b"a note\n" * 100), ("empty", b""), ("zeros", bytes(1000)), ("short", b"\x08\0")):
        (tmp_path / name).write_bytes(content)
        assert read_header(tmp_path / name) is None
    with pytest.raises(CaseError, match="holds no DICOM files"):
        gather([tmp_path])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SHIPPED)))
def test_shipped_files_read_or_raise_the_named_error(path, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("no network"))
    try:
        image = read(path)
    except CaseError as error:
        message = str(error)
    else:
        message = str(path)
        assert image.array.ndim in (3, 4)
        assert image.array.size
        assert np.isfinite(image.affine).all()
        assert abs(np.linalg.det(image.affine)) > 0
    assert str(path) in message
