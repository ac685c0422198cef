"""Colours of DICOM pictures: planes, palettes, luma and chroma, and streams that contradict the header."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pydicom
import pytest
from dicom_fixtures import still
from pydicom.uid import JPEGBaseline8Bit

from medimg_eval.imaging.dicom.objects import projection as pictures
from medimg_eval.imaging.dicom.pixels.colour import rgb


def test_planes_of_colour_come_out_as_pixels_of_colour_do(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (3, 4, 3), np.uint8)
    path = still(tmp_path / "a", pixels)
    dataset = pydicom.dcmread(path)
    dataset.PlanarConfiguration, dataset.PixelData = 1, np.moveaxis(pixels, -1, 0).tobytes()
    dataset.save_as(tmp_path / "b")
    np.testing.assert_array_equal(pictures.read(path).array, pictures.read(tmp_path / "b").array)
    np.testing.assert_array_equal(pictures.read(path).array, np.moveaxis(pixels, -1, 0))


def painted(planes):
    """Full-range luma and chroma (3, frame, row, column) in RGB."""
    header = SimpleNamespace(photometric="YBR_FULL", transfer_syntax="1.2.840.10008.1.2.1", samples=3)
    frames = np.moveaxis(planes, 0, -1)
    frames.setflags(write=False)  # as decoders leave them
    return rgb(Path("a.dcm"), frames, pydicom.Dataset(), header, [])


def test_luma_and_chroma_become_the_rgb_of_the_standard():
    values = np.array([0, 1, 15, 64, 127, 128, 129, 200, 254, 255])
    planes = np.stack(np.meshgrid(values, np.arange(256), np.arange(256, step=3), indexing="ij")).astype(np.uint8)
    luma, blue, red = planes - np.array([0, 128, 128.0])[:, None, None, None]
    exact = np.stack(
        [luma + 1.402 * red, luma - (0.114 * 1.772 * blue + 0.299 * 1.402 * red) / 0.587, luma + 1.772 * blue]
    )
    found = painted(planes)
    # pydicom multiplies in float32, whose rounding decides what lies half-way.
    halfway = np.abs(exact % 1 - 0.5) < 1e-3
    np.testing.assert_array_equal(found[~halfway], np.clip(np.rint(exact), 0, 255)[~halfway])
    assert np.abs(found - np.clip(exact, 0, 255)).max() <= 0.5 + 1e-9
    np.testing.assert_array_equal(
        painted(np.array([76, 85, 255], np.uint8)[:, None, None, None])[:, 0, 0, 0], [254, 0, 0]
    )


def test_a_palette_is_painted(tmp_path):
    pixels = np.array([[0, 1], [2, 3]], np.uint8)
    path = still(tmp_path / "a", pixels, PhotometricInterpretation="PALETTE COLOR")
    dataset = pydicom.dcmread(path)
    for name, ramp in (("Red", [0, 1, 2, 3]), ("Green", [9, 8, 7, 6]), ("Blue", [5, 5, 5, 5])):
        dataset.add_new(f"{name}PaletteColorLookupTableDescriptor", "US", [4, 0, 8])
        setattr(dataset, f"{name}PaletteColorLookupTableData", bytes(ramp))
    dataset.save_as(path)
    image = pictures.read(path)
    np.testing.assert_array_equal(image.array, [[[0, 1], [2, 3]], [[9, 8], [7, 6]], [[5, 5], [5, 5]]])
    assert image.array.dtype == np.uint8


def test_a_palette_in_segments_is_painted(tmp_path):
    pixels = np.array([[0, 3], [5, 7]], np.uint8)
    path = still(tmp_path / "a", pixels, PhotometricInterpretation="PALETTE COLOR")
    dataset = pydicom.dcmread(path)
    for name in ("Red", "Green", "Blue"):
        dataset.add_new(f"{name}PaletteColorLookupTableDescriptor", "US", [8, 0, 16])
        # Two discrete values, 100 and 200, and a straight line of six steps from there to 800.
        segments = np.array([0, 2, 100, 200, 1, 6, 800], "<u2").tobytes()
        setattr(dataset, f"Segmented{name}PaletteColorLookupTableData", segments)
    dataset.save_as(path)
    image = pictures.read(path)
    assert image.array.dtype == np.uint16
    np.testing.assert_array_equal(image.array[0], [[100, 400], [600, 800]])


@pytest.mark.parametrize(("stream", "said"), [("YCBCR", "RGB"), ("RGB", "YBR_FULL_422")])
def test_a_jpeg_stream_that_contradicts_the_header_is_believed(tmp_path, stream, said):
    from PIL import Image as Picture

    pixels = np.zeros((16, 16, 3), np.uint8) + np.array([200, 40, 90], np.uint8)
    Picture.fromarray(pixels).save(tmp_path / "a.jpg", quality=95, subsampling=0, keep_rgb=stream == "RGB")
    path = still(
        tmp_path / "a.dcm",
        pixels,
        JPEGBaseline8Bit,
        [(tmp_path / "a.jpg").read_bytes()],
        PhotometricInterpretation=said,
    )
    image = pictures.read(path)
    np.testing.assert_allclose(np.moveaxis(image.array, 0, -1), pixels, atol=3)
    assert any("stream was believed" in note for note in image.notes)
