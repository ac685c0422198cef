"""Stills and clips: grey values, colours and the size of a pixel, against pydicom and against values worked by hand."""

import warnings
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_fixtures import STILL, still
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.pixels import apply_modality_lut, apply_voi_lut, pixel_array

from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.objects import projection as pictures
from medimg_eval.imaging.dicom.pixels.lut import windowed


def lookup_table(entries, first=0, bits=16):
    item = Dataset()
    item.add_new("LUTDescriptor", "US", [len(entries) % 65536, first, bits])
    item.add_new("LUTData", "US", entries)
    return item


def test_a_plain_picture_keeps_its_values_and_its_dtype(tmp_path):
    image = pictures.read(still(tmp_path / "a", PixelSpacing=[0.2, 0.3]))
    assert (image.array.dtype, image.array.shape) == (np.uint16, (1, 3, 4))
    np.testing.assert_array_equal(image.array[0], STILL)
    assert (image.units, image.geometry.spacing, image.modality, image.notes) == ("mm", (0.2, 0.3), "DX", ())
    assert pictures.grid(tmp_path / "a").difference(image.geometry) is None


def test_white_zero_is_inverted_by_the_range_that_could_be_stored(tmp_path):
    image = pictures.read(still(tmp_path / "a", PhotometricInterpretation="MONOCHROME1"))
    np.testing.assert_array_equal(image.array[0], 4095 - STILL)
    assert image.array.dtype == np.uint16
    assert any("MONOCHROME1" in note for note in image.notes)
    signed = (STILL.astype(np.int16) - 1650).copy()
    image = pictures.read(still(tmp_path / "b", signed, PhotometricInterpretation="MONOCHROME1"))
    np.testing.assert_array_equal(image.array[0], -1 - signed)
    assert image.array.dtype == np.int16
    image = pictures.read(
        still(tmp_path / "c", PhotometricInterpretation="MONOCHROME1", RescaleSlope=2, RescaleIntercept=-100)
    )
    np.testing.assert_array_equal(image.array[0], (4095 - STILL) * 2.0 - 100)


@settings(deadline=None, max_examples=20)
@given(
    st.integers(2, 16), st.booleans(), st.booleans(), st.sampled_from([1.0, 0.25, -2.0]), st.integers(-2000, 2000),
    st.integers(0, 2**31),
)  # fmt: skip
def test_any_grey_value_is_what_the_standard_says(tmp_path_factory, bits, signed, white_zero, slope, intercept, seed):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    stored = np.random.default_rng(seed).integers(low, high, (3, 4), endpoint=True)
    path = still(
        tmp_path_factory.mktemp("grey") / "a", stored.astype(np.int16 if signed else np.uint16), BitsStored=bits,
        HighBit=bits - 1, RescaleSlope=slope, RescaleIntercept=intercept,
        PhotometricInterpretation="MONOCHROME1" if white_zero else "MONOCHROME2",
    )  # fmt: skip
    shown = low + high - stored if white_zero else stored
    np.testing.assert_array_equal(pictures.read(path).array[0], shown * slope + intercept)


def test_measurements_are_never_inverted(tmp_path):
    image = pictures.read(still(tmp_path / "a", PhotometricInterpretation="MONOCHROME1", Modality="PT"))
    np.testing.assert_array_equal(image.array[0], STILL)
    assert any("left as measured" in note for note in image.notes)


@pytest.mark.parametrize(
    ("slope", "intercept", "dtype"),
    [("1", "0", np.uint16), ("1", "-1024", np.int16), ("1", "61000", np.uint16), ("1", "62000", np.int32),
     ("0.5", "0", np.float32), ("1", "0.5", np.float32), ("-1", "0", np.float32)],
)  # fmt: skip
def test_whole_numbers_stay_whole_where_that_is_exact(tmp_path, slope, intercept, dtype):
    image = pictures.read(still(tmp_path / "a", RescaleSlope=slope, RescaleIntercept=intercept))
    assert image.array.dtype == dtype
    np.testing.assert_array_equal(image.array[0], STILL * float(slope) + float(intercept))


def test_a_modality_lut_goes_before_everything_else(tmp_path):
    table = lookup_table(list(range(1000, 3000)), first=100)
    table.ModalityLUTType = "US"
    path = still(tmp_path / "a", ModalityLUTSequence=[table])
    image = pictures.read(path)
    np.testing.assert_array_equal(image.array[0], np.clip(STILL.astype(int) - 100, 0, 1999) + 1000)
    dataset = pydicom.dcmread(path)
    np.testing.assert_array_equal(image.array[0], apply_modality_lut(dataset.pixel_array, dataset))


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize("shape", [None, "LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_windows_are_those_of_pydicom(tmp_path, photometric, shape):
    elements = {} if shape is None else {"VOILUTFunction": shape}
    path = still(
        tmp_path / "a", WindowCenter=["1200.5", "3"], WindowWidth=["1100", "5"], RescaleSlope=2, RescaleIntercept=-500,
        PhotometricInterpretation=photometric, **elements,
    )  # fmt: skip
    dataset = pydicom.dcmread(path)
    low, high = -500, 4095 * 2 - 500
    expected = apply_voi_lut(apply_modality_lut(dataset.pixel_array, dataset), dataset)
    expected = (expected - low) / (high - low)
    if photometric == "MONOCHROME1":
        expected = 1 - expected
    image = pictures.read(path, voi=True)
    assert image.array.dtype == np.float32
    np.testing.assert_allclose(image.array[0], expected, atol=1e-6)
    assert np.ptp(pictures.read(path).array) == 2 * 3300  # left off unless asked for
    assert pictures.grid(path, voi=True).difference(image.geometry) is None


@settings(deadline=None, max_examples=25)
@given(st.floats(-500, 4000), st.floats(1.001, 3000), st.sampled_from(["LINEAR", "LINEAR_EXACT", "SIGMOID"]))
def test_any_window_is_that_of_pydicom(center, width, shape):
    dataset = Dataset()
    dataset.PhotometricInterpretation, dataset.BitsStored, dataset.PixelRepresentation = "MONOCHROME2", 12, 0
    dataset.WindowCenter, dataset.WindowWidth, dataset.VOILUTFunction = f"{center:.8g}", f"{width:.8g}", shape
    with np.errstate(over="ignore"):
        expected = apply_voi_lut(STILL, dataset) / 4095
    center, width = float(dataset.WindowCenter), float(dataset.WindowWidth)
    np.testing.assert_allclose(windowed(STILL, center, width, shape), expected, atol=1e-6)


def test_a_window_of_width_one_is_a_threshold():
    assert windowed(np.array([99, 100, 101]), 100, 1).tolist() == [0, 1, 1]


def test_a_voi_lut_wins_over_a_window(tmp_path):
    entries = [min(1023, value // 2) for value in range(4096)]
    table = lookup_table(entries, bits=10)
    path = still(tmp_path / "a", VOILUTSequence=[table], WindowCenter="5", WindowWidth="2")
    image = pictures.read(path, voi=True)
    dataset = pydicom.dcmread(path)
    np.testing.assert_allclose(image.array[0], apply_voi_lut(dataset.pixel_array, dataset) / 1023, atol=1e-6)
    assert any("VOI LUT" in note for note in image.notes)


def test_a_lut_that_starts_below_zero_may_say_so_as_an_unsigned_number(tmp_path):
    signed = np.array([[-3, -2], [-1, 4]], np.int16)
    table = lookup_table([10, 20, 30], first=65536 - 3)
    image = pictures.read(still(tmp_path / "a", signed, ModalityLUTSequence=[table]))
    assert image.array[0].tolist() == [[10, 20], [30, 30]]


def test_a_voi_lut_of_packed_bytes_is_unpacked(tmp_path):
    pixels = np.array([[0, 1], [2, 3]], np.uint8)
    table = Dataset()
    table.LUTDescriptor = [4, 0, 8]
    table.add_new("LUTData", "OW", bytes([0, 51, 102, 255]))
    image = pictures.read(still(tmp_path / "a", pixels, VOILUTSequence=[table]), voi=True)
    np.testing.assert_allclose(image.array[0] * 255, [[0, 51], [102, 255]], atol=1e-4)


def test_without_window_the_whole_range_is_shown_and_that_is_said(tmp_path):
    image = pictures.read(still(tmp_path / "a"), voi=True)
    np.testing.assert_allclose(image.array[0], STILL / 4095, atol=1e-6)
    assert any("scaled by their range" in note for note in image.notes)


def test_padding_is_a_mask_and_not_a_number(tmp_path):
    pixels = STILL.copy()
    pixels[0] = [4095, 4000, 3999, 5]
    image = pictures.read(
        still(tmp_path / "a", pixels, PixelPaddingValue=4095, PixelPaddingRangeLimit=4000,
              PhotometricInterpretation="MONOCHROME1")
    )  # fmt: skip
    assert image.valid[0].tolist() == [False, False, True, True]
    assert image.valid.shape == (3, 4)
    assert image.valid[1:].all()
    assert pictures.read(still(tmp_path / "b", PixelPaddingValue=4001)).valid is None


def test_bits_above_those_stored_are_overlays_and_left_off(tmp_path):
    path = still(tmp_path / "a", STILL | np.uint16(0x8000))
    dataset = pydicom.dcmread(path)
    dataset.add_new(0x60000010, "US", 3)
    dataset.add_new(0x60000011, "US", 4)
    dataset.add_new(0x60000040, "CS", "G")
    dataset.save_as(path)
    image = pictures.read(path)
    np.testing.assert_array_equal(image.array[0], STILL)
    assert any("overlays" in note for note in image.notes)


@pytest.mark.parametrize(
    ("elements", "spacing", "units", "words"),
    [
        ({}, (1, 1), "pixel", ""),
        ({"PixelSpacing": [0, 0]}, (1, 1), "pixel", ""),
        ({"ImagerPixelSpacing": [0.14, 0.15]}, (0.14, 0.15), "mm", "of the detector; magnification is not corrected"),
        ({"PixelSpacing": [0.1, 0.1], "ImagerPixelSpacing": [0.14, 0.14]}, (0.1, 0.1), "mm", ""),
        ({"PixelSpacing": [0.1, 0.1], "ImagerPixelSpacing": [0.1, 0.1]}, (0.1, 0.1), "mm", "of the detector"),
        ({"ImagerPixelSpacing": [0.1, 0.1], "EstimatedRadiographicMagnificationFactor": "1.25"}, (0.1, 0.1), "mm",
         "factor of 1.25"),
        ({"NominalScannedPixelSpacing": [0.2, 0.2]}, (0.2, 0.2), "mm", "scanned film"),
        ({"PixelAspectRatio": [4, 3]}, (1, 1), "pixel", "height to width is 4:3"),
    ],
)  # fmt: skip
def test_the_size_of_a_pixel_comes_from_the_best_the_file_states(tmp_path, elements, spacing, units, words):
    image = pictures.read(still(tmp_path / "a", **elements))
    assert image.geometry.spacing == pytest.approx(spacing)
    assert image.units == units
    assert words in " ".join(image.notes)
    assert bool(image.notes) == bool(words)


def region(y=0.01, x=0.02, units=3):
    item = Dataset()
    item.PhysicalUnitsXDirection = item.PhysicalUnitsYDirection = units
    item.PhysicalDeltaX, item.PhysicalDeltaY = x, y
    return item


@pytest.mark.parametrize(
    ("regions", "spacing", "units"),
    [
        ([region()], (0.1, 0.2), "mm"),
        ([region(), region(-0.01)], (0.1, 0.2), "mm"),
        ([region(), region(0.03)], (1, 1), "pixel"),
        ([region(), region(units=4)], (1, 1), "pixel"),
        ([region(units=4)], (1, 1), "pixel"),
        ([region(y=0.0)], (1, 1), "pixel"),
    ],
)
def test_ultrasound_regions_calibrate_a_picture_when_they_agree(tmp_path, regions, spacing, units):
    image = pictures.read(still(tmp_path / "a", Modality="US", SequenceOfUltrasoundRegions=regions))
    assert image.geometry.spacing == pytest.approx(spacing)
    assert image.units == units


def test_frames_without_a_place_are_a_clip(tmp_path):
    frames = np.random.default_rng(0).integers(0, 255, (5, 3, 4, 3), np.uint8)
    image = pictures.read(still(tmp_path / "a", frames, Modality="US", FrameTime="40", PixelSpacing=[0.5, 0.6]))
    np.testing.assert_array_equal(image.array, np.moveaxis(frames, -1, 0))
    assert image.geometry.spacing == (1.0, 0.5, 0.6)
    assert image.attributes["frame time (ms)"] == "40"
    assert pictures.grid(tmp_path / "a").difference(image.geometry) is None
    grey = pictures.read(still(tmp_path / "b", frames[..., 0].copy(), PixelPaddingValue=int(frames[0, 0, 0, 0])))
    assert grey.array.shape == (1, 5, 3, 4)
    assert grey.valid.shape == (5, 3, 4)
    assert not grey.valid[0, 0, 0]


@pytest.mark.parametrize(
    "name", ["SC_rgb_jpeg_dcmtk.dcm", "SC_rgb_rle_16bit_2frame.dcm", "SC_rgb_jpeg_gdcm.dcm",
    "SC_ybr_full_422_uncompressed.dcm", "examples_palette.dcm", "examples_jpeg2k.dcm", "SC_rgb_dcmtk_+eb+cy+s4.dcm",
    "SC_rgb_small_odd_big_endian.dcm", "image_dfl.dcm", "SC_jpeg_no_color_transform.dcm", "ExplVR_BigEnd.dcm"]
)  # fmt: skip
def test_files_of_pydicom_read_as_pydicom_reads_them(name):
    path = Path(get_testdata_file(name, download=False))
    dataset = pydicom.dcmread(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = pixel_array(dataset, raw=False)
    if dataset.PhotometricInterpretation == "PALETTE COLOR":
        expected = pydicom.pixels.apply_color_lut(expected, dataset)
    image = pictures.read(path)
    found = image.array[0] if image.array.shape[0] == 1 else np.moveaxis(image.array, 0, -1)
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= 1  # JPEG decoders round as they like
    assert pictures.grid(path).difference(image.geometry) is None


def test_attributes_and_notes_identify_nobody(tmp_path):
    path = still(
        tmp_path / "a", Manufacturer="Maker", BodyPartExamined="CHEST", ViewPosition="PA", ImageLaterality="U",
        PatientOrientation=["L", "F"], BurnedInAnnotation="YES", InstitutionName="Hospital", AccessionNumber="99",
    )  # fmt: skip
    image = pictures.read(path)
    assert dict(image.attributes) == {
        "manufacturer": "Maker", "body part": "CHEST", "view": "PA", "laterality": "U", "patient orientation": "L\\F",
    }  # fmt: skip
    assert any("burned into" in note for note in image.notes)
    told = repr((image.attributes, image.notes))
    assert not any(secret in told for secret in ("Secret", "4711", "Hospital", "99"))


@pytest.mark.parametrize(
    ("elements", "words", "voi"),
    [
        ({"RescaleSlope": 0, "RescaleIntercept": 1}, "RescaleSlope is zero", False),
        ({"PhotometricInterpretation": "CMYK"}, "its colours are CMYK", False),
        ({"PhotometricInterpretation": "PALETTE COLOR"}, "colour palette", False),
        ({"Rows": 0}, "holds no picture", False),
        ({"WindowCenter": 1, "WindowWidth": 0}, "WindowWidth is 0", True),
        ({"WindowCenter": 1, "WindowWidth": 5, "VOILUTFunction": "CUBIC"}, "VOILUTFunction is CUBIC", True),
        ({"VOILUTSequence": [Dataset()]}, "without LUTDescriptor", True),
        ({"VOILUTSequence": [lookup_table([1, 2, 3], bits=17)]}, "17 bits", True),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(tmp_path, elements, words, voi):
    path = still(tmp_path / "broken.dcm", **elements)
    with pytest.raises(CaseError, match=words) as error:
        pictures.read(path, voi=voi)
    assert str(path) in str(error.value)


def test_a_file_that_is_not_dicom_is_refused_by_name(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(CaseError, match=r"notes\.txt: is not a DICOM file"):
        pictures.grid(tmp_path / "notes.txt")


def test_the_smallest_picture_reads(tmp_path):
    image = pictures.read(still(tmp_path / "a", np.array([[7]], np.uint8)))
    assert image.array.tolist() == [[[7]]]
