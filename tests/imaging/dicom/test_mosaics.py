"""Mosaics, all slices of a volume side by side in one frame: unpacked by what Siemens and United Imaging state."""

import gzip
import struct
from contextlib import suppress
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from dicom_fixtures import Grid, ramp, require_equal, rotated, save, slice_dataset, write_series
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pydicom.uid import ExplicitVRLittleEndian, RLELossless
from scipy.spatial.transform import Rotation

from medimg_eval.checking import describe_files as describe
from medimg_eval.errors import CaseError
from medimg_eval.imaging.reading import read, read_grid

SHIPPED = Path(nib.__file__).parent / "nicom" / "tests" / "data"
GRID = rotated(Rotation.from_euler("xyz", (10, 20, 30), degrees=True).as_matrix(), spacing=(0.75, 0.5))
NORMAL = np.cross(GRID.across, GRID.down)


def csa(old=False, **tags):
    """Siemens' private header with tags of texts, as its scanners write it; `old` is the form before `SV10`."""
    head = b"" if old else b"SV10\4\3\2\1"
    body = b""
    for name, texts in tags.items():
        items = [text.encode() + b"\0" for text in texts] + [b""] * (6 - len(texts))
        body += name.encode().ljust(64, b"\0") + struct.pack("<i4siii", len(texts), b"FD\0\0", 6, len(items), 77)
        for text in items:
            length = len(text)
            four = (length + 6 if old and not body else length, length, 77, length)
            body += struct.pack("<4i", *four) + text.ljust(-(-length // 4) * 4, b"\0")
    return head + struct.pack("<2i", len(tags), 77) + body


def protocol(count=5, turned=False, sign=1):
    """What the protocol of a scan says of its slices, in the words of Siemens."""
    lines = ["### ASCCONV BEGIN ###", f"sSliceArray.lSize                        = {count}"]
    for number in (0, 1):
        place = sign * number * 2.5 * NORMAL
        lines += [f"sSliceArray.asSlice[{number}].sPosition.d{axis}    = {value:.9f}"
                  for axis, value in zip(("Sag", "Cor", "Tra"), place, strict=True) if value]  # fmt: skip
    lines += ["sSliceArray.ucImageNumbTra               = 0x1"] if turned else []
    return "\n".join([*lines, "### ASCCONV END ###"]).encode()


def mosaic(pixels, down=False, said=("count", "csa"), edit=None):
    """A volume, (slice, row, column), as a mosaic of Siemens on `GRID`; `down`: the first tile is the last slice."""
    count, rows, columns = pixels.shape
    side = int(np.ceil(np.sqrt(count)))
    tiles = np.zeros((side * side, rows, columns), pixels.dtype)
    tiles[:count] = pixels[::-1] if down else pixels
    frame = tiles.reshape(side, side, rows, columns).swapaxes(1, 2).reshape(side * rows, side * columns)
    first = np.array(GRID.origin) + (count - 1 if down else 0) * np.array(GRID.step)
    corner = (
        first
        - np.array(GRID.across) * GRID.spacing[1] * (side - 1) * columns / 2
        - np.array(GRID.down) * GRID.spacing[0] * (side - 1) * rows / 2
    )
    dataset = slice_dataset(frame, position=corner, grid=GRID, modality="MR")
    dataset.Manufacturer, dataset.ImageType = "SIEMENS", ["ORIGINAL", "PRIMARY", "M", "ND", "MOSAIC"]
    dataset.SpacingBetweenSlices, dataset.RepetitionTime = "2.5", "2000"
    if "count" in said:
        dataset.private_block(0x19, "SIEMENS MR HEADER", create=True).add_new(0x0A, "US", count)
    normal = [f"{value:.8f}" for value in (-NORMAL if down else NORMAL)]
    block = dataset.private_block(0x29, "SIEMENS CSA HEADER", create=True)
    for form in ("csa", "old"):
        if form in said:
            block.add_new(0x10, "OB", csa(form == "old", NumberOfImagesInMosaic=[str(count)], SliceNormalVector=normal))
    if "protocol" in said:
        block.add_new(0x20, "OB", b"SV10 and more " + protocol(count, turned=down))
    if edit is not None:
        edit(dataset)
    return dataset


def require_mosaic(source, pixels):
    image = read(source)
    np.testing.assert_array_equal(image.array, pixels.transpose(0, 3, 2, 1))
    np.testing.assert_allclose(image.affine, GRID.affine, atol=1e-4)
    assert read_grid(source).difference(image.geometry) is None
    return image


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, RLELossless])
@pytest.mark.parametrize("said", [("count", "csa"), ("csa",), ("old",), ("protocol",), ("count", "protocol")])
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("count", [5, 9, 1])
def test_tiles_are_slices_in_their_places(tmp_path, count, down, said, syntax):
    pixels = ramp((count, 4, 6))
    dataset = mosaic(pixels, down, said)
    path = save(dataset, tmp_path / "a.dcm", syntax)
    require_mosaic(path, pixels[None])


def test_mosaics_in_time_are_channels(tmp_path):
    pixels = np.stack([ramp((5, 4, 6)) + t for t in range(4)])
    for t in (2, 0, 3, 1):
        dataset = mosaic(pixels[t])
        dataset.AcquisitionNumber, dataset.InstanceNumber = t + 1, t + 1
        dataset.AcquisitionTime = f"10000{t * 2}.0" if t < 3 else "100012.5"  # calibrated before the last one
        save(dataset, tmp_path / f"{9 - t}.dcm")
    image = require_mosaic(tmp_path, pixels)
    assert image.channels.kind == "time"
    assert image.channels.values.tolist() == [0, 2, 4, 6]
    assert image.notes == (
        "the times of the volumes are those that RepetitionTime states; AcquisitionTime lies elsewhere",
    )
    (one,) = describe.describe(tmp_path)
    assert one.facts["shape"] == "6 x 4 x 5, 4 channels"


@pytest.mark.parametrize("where", ["elements", "csa"])
def test_the_diffusion_weighting_of_mosaics(tmp_path, where):
    pixels = np.stack([ramp((5, 4, 6)) + t for t in range(2)])
    for t in range(2):
        dataset = mosaic(pixels[t])
        dataset.InstanceNumber = t + 1
        if where == "elements":
            block = dataset.private_block(0x19, "SIEMENS MR HEADER", create=True)
            block.add_new(0x0C, "IS", 1000 * t)
            if t:
                block.add_new(0x0E, "FD", [0.6, 0.0, 0.8])
        else:
            tags = {"B_value": [str(1000 * t)], "DiffusionGradientDirection": ["0.6", "0.0", "0.8"] if t else []}
            normal = [f"{value:.8f}" for value in NORMAL]
            dataset[0x29, 0x1010].value = csa(NumberOfImagesInMosaic=["5"], SliceNormalVector=normal, **tags)
        save(dataset, tmp_path / f"{t}.dcm")
    axis = require_mosaic(tmp_path, pixels).channels
    assert (axis.kind, axis.values.tolist()) == ("diffusion", [0, 1000])
    np.testing.assert_allclose(axis.directions, [[0, 0, 0], [-0.6, 0, 0.8]])


def test_a_mosaic_of_newer_software_is_read_by_its_protocol(tmp_path):
    pixels = ramp((5, 4, 6))

    def newer(dataset):
        del dataset[0x29, 0x10]
        dataset.ImageType = ["ORIGINAL", "PRIMARY", "M", "ND"]
        dataset.private_block(0x21, "SIEMENS MR SDS 01", create=True).add_new(0x19, "OB", protocol())
        dataset.private_block(0x21, "SIEMENS MR SDI 02", create=True)
        dataset.add_new(0x00211175, "CS", ["M", "ND", "MOSAIC"])

    require_mosaic(save(mosaic(pixels, said=(), edit=newer), tmp_path / "a.dcm"), pixels[None])


def test_the_count_is_taken_from_the_tiles_where_only_their_size_is_known(tmp_path):
    pixels = ramp((5, 4, 6)) + 1

    def edit(dataset):
        dataset[0x29, 0x1010].value = csa(SliceNormalVector=[f"{value:.8f}" for value in NORMAL])
        dataset.AcquisitionMatrix = [6, 0, 0, 4]

    image = require_mosaic(save(mosaic(pixels, said=("csa",), edit=edit), tmp_path / "a.dcm"), pixels[None])
    assert image.notes == ("the count of slices is not stated; 5 tiles hold something, and are taken for them",)


def without(*names):
    def edit(dataset):
        for name in names:
            delattr(dataset, name)

    return edit


REFUSED = {
    "count": ((), None, r"how many slices it holds: NumberOfImagesInMosaic \(0019,100A\), .* are missing"),
    "order": (("count",), None, r"in which order its slices lie: SliceNormalVector of .* \(0029,1010\)"),
    "position": (("count", "csa"), without("ImagePositionPatient"), r"ImagePositionPatient \(0020,0032\)"),
    "orientation": (("count", "csa"), without("ImageOrientationPatient"), r"ImageOrientationPatient \(0020,0037\)"),
    "step": (("count", "csa"), without("SpacingBetweenSlices", "SliceThickness"), r"SpacingBetweenSlices"),
    "spacing": (("count", "csa"), without("PixelSpacing"), r"PixelSpacing \(0028,0030\)"),
    "tiles": (("csa",), lambda d: d.private_block(0x19, "SIEMENS MR HEADER", create=True).add_new(0x0A, "US", 48),
              "7 x 7 tiles for 48 slices do not fill"),
}  # fmt: skip


@pytest.mark.parametrize("missing", REFUSED)
def test_a_mosaic_that_lacks_an_element_is_refused_by_its_name(tmp_path, missing):
    said, edit, message = REFUSED[missing]
    path = save(mosaic(ramp((5, 4, 6)), said=said, edit=edit), tmp_path / "0001.dcm")
    for call in (read, read_grid):
        with pytest.raises(CaseError, match=rf"0001\.dcm: .*{message}.*; convert its folder to NIfTI with dcm2niix"):
            call(path)


def test_the_step_of_a_mosaic_may_be_its_thickness_and_that_is_said(tmp_path):
    def edit(dataset):
        dataset.SliceThickness = "2.5"
        del dataset.SpacingBetweenSlices

    image = require_mosaic(save(mosaic(ramp((5, 4, 6)), edit=edit), tmp_path / "a"), ramp((5, 4, 6))[None])
    assert "taken from SliceThickness" in image.notes[0]


@pytest.mark.parametrize(("name", "b_value"), [("siemens_dwi_0.dcm.gz", 0), ("siemens_dwi_1000.dcm.gz", 1000)])
def test_a_mosaic_as_the_scanner_wrote_it(tmp_path, name, b_value):
    path = tmp_path / "0001.dcm"
    path.write_bytes(gzip.decompress((SHIPPED / name).read_bytes()))
    image = read(path)
    assert image.array.shape == (1, 128, 128, 48)
    # Where its own tools say that the first voxel lies, LPS, and voxels of 1.8 x 1.8 x 3 mm.
    np.testing.assert_allclose(image.affine[:3, 3] * (-1, -1, 1), (-115.0, -135.029, -78.71), atol=0.01)
    np.testing.assert_allclose(image.geometry.spacing, (1.796875, 1.796875, 3.0), atol=1e-4)
    other = "siemens_dwi_1000.dcm.gz" if b_value == 0 else "siemens_dwi_0.dcm.gz"
    (tmp_path / "0002.dcm").write_bytes(gzip.decompress((SHIPPED / other).read_bytes()))
    axis = read(tmp_path).channels
    assert axis.values.tolist() == [0, 1000]
    np.testing.assert_allclose(axis.directions[1], (-0.99997449, -0.00505012, -0.00505012), atol=1e-6)


# --- United Imaging -------------------------------------------------------------------------------------------


def grid_of_tiles(pixels, positions):
    count, rows, columns = pixels.shape
    across = int(np.ceil(np.sqrt(count)))
    down = int(np.ceil(count / across))
    tiles = np.zeros((down * across, rows, columns), pixels.dtype)
    tiles[:count] = pixels
    frame = tiles.reshape(down, across, rows, columns).swapaxes(1, 2).reshape(down * rows, across * columns)
    dataset = slice_dataset(frame, grid=GRID, modality="MR")
    dataset.Manufacturer, dataset.ImageType = "UIH", ["ORIGINAL", "PRIMARY", "M", "VFRAME"]
    del dataset.ImagePositionPatient
    items = [Dataset() for _ in positions]
    for one, position in zip(items, positions, strict=True):
        one.ImagePositionPatient = [f"{value:.6f}" for value in position]
    dataset.private_block(0x65, "Image Private Header", create=True).add_new(0x51, "SQ", Sequence(items))
    return dataset


@pytest.mark.parametrize("count", [5, 20])
def test_a_grid_of_united_imaging_says_where_each_slice_lies(tmp_path, count):
    pixels = np.stack([ramp((count, 4, 6)) + t for t in range(2)])
    positions = [np.array(GRID.origin) + k * np.array(GRID.step) for k in range(count)]
    for t in range(2):
        dataset = grid_of_tiles(pixels[t], positions)
        dataset.InstanceNumber = t + 1
        save(dataset, tmp_path / f"{t}")
    require_mosaic(tmp_path, pixels)


def test_a_grid_without_places_or_with_uneven_ones_is_refused(tmp_path):
    positions = [np.array(GRID.origin) + k * np.array(GRID.step) * (1 + (k == 4)) for k in range(5)]
    with pytest.raises(CaseError, match=r"its slices \(0065,1051\) do not lie on a line at even steps"):
        read(save(grid_of_tiles(ramp((5, 4, 6)), positions), tmp_path / "a"))
    with pytest.raises(CaseError, match=r"whose places \(0065,1051\) are missing"):
        read(save(grid_of_tiles(ramp((5, 4, 6)), []), tmp_path / "b"))


# --- beside others, and damaged -------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [{}, {"count": 1}, {"header": csa(NumberOfImagesInMosaic=[])}, {"header": b"\0" * 9}])
def test_slices_of_siemens_that_are_no_mosaic_are_read(tmp_path, said):
    def edit(dataset, _):
        if "count" in said:
            dataset.private_block(0x19, "SIEMENS MR HEADER", create=True).add_new(0x0A, "US", said["count"])
        if "header" in said:
            dataset.private_block(0x29, "SIEMENS CSA HEADER", create=True).add_new(0x10, "OB", said["header"])

    write_series(tmp_path, ramp(), modality="MR", edit=edit)
    require_equal(tmp_path, ramp(), Grid())


def test_a_series_beside_mosaics_can_be_chosen(tmp_path):
    write_series(tmp_path / "t1", ramp(), modality="MR", series="1.2.3")
    for t in range(2):
        dataset = mosaic(ramp((5, 4, 6)) + t)
        dataset.SeriesInstanceUID, dataset.InstanceNumber = "1.2.4", t
        save(dataset, tmp_path / f"{t}")
    with pytest.raises(CaseError, match=r"several images, .* MR, 2 volumes \(time\) of a mosaic of 12 x 18"):
        read(tmp_path)
    np.testing.assert_array_equal(read(tmp_path, series="1.2.3").array[0], ramp().transpose(2, 1, 0))
    assert read(tmp_path, series="1.2.4").array.shape == (2, 6, 4, 5)


def test_a_mosaic_without_a_place_is_no_picture(tmp_path):
    dataset = slice_dataset(ramp()[0], modality="MR")
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    dataset.ImageType = ["DERIVED", "SECONDARY", "MOSAIC"]
    del dataset.ImagePositionPatient, dataset.ImageOrientationPatient
    save(dataset, tmp_path / "screen.dcm")
    with pytest.raises(CaseError, match="does not say how many slices it holds"):
        read(tmp_path / "screen.dcm")


def test_damage_anywhere_in_a_header_ends_in_a_volume_or_a_named_error(tmp_path):
    path = save(mosaic(ramp((5, 4, 6)), said=("csa", "protocol")), tmp_path / "a.dcm")
    whole, random = path.read_bytes(), np.random.default_rng(3)
    start = whole.index(b"SV10")
    for round_ in range(200):
        data = bytearray(whole)
        low, high = (start, start + 900) if round_ % 2 else (132, len(data))
        for at in random.integers(low, high, int(random.integers(1, 8))):
            data[at] = int(random.integers(256))
        path.write_bytes(bytes(data[: int(random.integers(200, len(data)))] if round_ % 10 == 0 else data))
        with suppress(CaseError):  # anything else fails the test
            read(path)
