"""OME-TIFF: slices, moments and channels with physical sizes, as tifffile writes them."""

from contextlib import suppress

import numpy as np
import pytest
import tifffile

from medimg_eval.errors import CaseError
from medimg_eval.imaging.reading import read, read_grid

SIZES = {"T": 2, "C": 3, "Z": 4, "Y": 5, "X": 6, "S": 3}
STATED = {
    "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 700, "PhysicalSizeYUnit": "nm",
    "PhysicalSizeZ": 0.002, "PhysicalSizeZUnit": "mm", "TimeIncrement": 250, "TimeIncrementUnit": "ms",
}  # fmt: skip


def write(path, axes, dtype=np.uint16, **stated):
    shape = [SIZES[letter] for letter in axes]
    pixels = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    tifffile.imwrite(path, pixels, ome=True, metadata={"axes": axes, **stated}, photometric="minisblack")
    return pixels


@pytest.mark.parametrize("axes", ["ZYX", "TZYX", "CZYX", "ZCYX", "TYX", "CYX"])
def test_stacks_are_read_with_their_axes_and_sizes(tmp_path, axes):
    path = tmp_path / "a.ome.tif"
    pixels = write(path, axes, **STATED)
    image = read(path)
    moved = np.moveaxis(pixels, axes.index("Z"), -3) if "Z" in axes else pixels
    spatial = 3 if "Z" in axes else 2
    moved = moved if moved.ndim > spatial else moved[None]
    np.testing.assert_array_equal(image.array, moved.transpose(0, 3, 2, 1) if "Z" in axes else moved)
    assert image.array.dtype == np.uint16
    assert image.units == "mm"
    np.testing.assert_allclose(image.geometry.spacing, (5e-4, 7e-4, 2e-3) if "Z" in axes else (7e-4, 5e-4))
    assert read_grid(path).difference(image.geometry) is None
    if "T" in axes:
        assert (image.channels.kind, image.channels.unit, image.channels.values.tolist()) == ("time", "s", [0, 0.25])
    else:
        assert image.channels is None


def test_a_stack_without_sizes_is_in_pixels(tmp_path):
    write(tmp_path / "a.ome.tif", "TZYX")
    image = read(tmp_path / "a.ome.tif")
    assert image.units == "pixel"
    assert np.isnan(image.channels.values[1])


def test_channels_at_several_moments_are_refused_and_a_plane_can_be_read(tmp_path):
    pixels = write(tmp_path / "a.ome.tif", "TCYX")
    for call in (read, read_grid):
        with pytest.raises(CaseError, match=r"a\.ome\.tif: holds 3 channels at 2 moments.*page=NUMBER"):
            call(tmp_path / "a.ome.tif")
    np.testing.assert_array_equal(read(tmp_path / "a.ome.tif", page=4).array[0], pixels[1, 1])


def test_a_single_plane_is_a_picture(tmp_path):
    pixels = write(tmp_path / "a.ome.tif", "YX", **STATED)
    image = read(tmp_path / "a.ome.tif")
    np.testing.assert_array_equal(image.array[0], pixels)
    assert image.attributes["format"] == "TIFF"


def test_damage_ends_in_a_stack_or_a_named_error(tmp_path):
    path, random = tmp_path / "a.ome.tif", np.random.default_rng(0)
    write(path, "ZYX", **STATED)
    whole = path.read_bytes()
    for cut in (len(whole) - 20, len(whole) // 2):
        path.write_bytes(whole[:cut])
        with pytest.raises(CaseError, match=r"a\.ome\.tif: "):
            read(path)
    for _ in range(100):
        data = bytearray(whole)
        for at in random.integers(0, len(whole), 4):
            data[at] = int(random.integers(256))
        path.write_bytes(bytes(data))
        with suppress(CaseError):  # anything else fails the test
            read(path)
