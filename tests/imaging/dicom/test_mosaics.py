"""Mosaics, all slices of a volume side by side in one frame: refused by name until they are unpacked."""

import gzip
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from dicom_fixtures import Grid, ramp, require_equal, save, slice_dataset, write_series

from medimg_eval.checking import describe_files as describe
from medimg_eval.errors import CaseError
from medimg_eval.imaging.reading import read, read_grid, read_mask

SHIPPED = Path(nib.__file__).parent / "nicom" / "tests" / "data"
REFUSED = r"is a mosaic of MR slices side by side in one frame .*; convert its folder to NIfTI with dcm2niix"


def csa(images):
    """The start of Siemens' CSA header that counts the images of a mosaic; `images` is empty for a plain slice."""
    numbers = [number.to_bytes(4, "little") for number in (1, 0, 6, 77, len(images), len(images), 77, len(images))]
    tag = b"NumberOfImagesInMosaic".ljust(64, b"\0") + numbers[0] + b"US\0\0" + b"".join(numbers[1:])
    return b"SV10\4\3\2\1" + (1).to_bytes(4, "little") + (77).to_bytes(4, "little") + tag + images


def siemens(dataset, count=None, header=None, image_type=None):
    """Sets what the scanners of Siemens say of a mosaic in elements of their own."""
    if count is not None:
        block = dataset.private_block(0x19, "SIEMENS MR HEADER", create=True)
        block.add_new(0x0A, "US", count)
    if header is not None:
        dataset.private_block(0x29, "SIEMENS CSA HEADER", create=True).add_new(0x10, "OB", header)
    if image_type is not None:
        dataset.private_block(0x21, "SIEMENS MR SDI 02", create=True)
        dataset.add_new(0x00211175, "CS", image_type)


SAID = {
    "image type": lambda dataset, _: setattr(dataset, "ImageType", ["ORIGINAL", "PRIMARY", "M", "ND", "MOSAIC"]),
    "united imaging": lambda dataset, _: setattr(dataset, "ImageType", ["ORIGINAL", "PRIMARY", "VFRAME"]),
    "count": lambda dataset, _: siemens(dataset, count=48),
    "header": lambda dataset, _: siemens(dataset, header=csa(b"48\0\0")),
    "xa": lambda dataset, _: siemens(dataset, image_type=["M", "ND", "MOSAIC"]),
}


@pytest.mark.parametrize("name", ["siemens_dwi_0.dcm.gz", "siemens_dwi_1000.dcm.gz"])
def test_a_mosaic_as_the_scanner_wrote_it_is_refused(tmp_path, name):
    path = tmp_path / "0001.dcm"
    path.write_bytes(gzip.decompress((SHIPPED / name).read_bytes()))
    for call in (read, read_grid, read_mask):
        for source in (path, tmp_path):
            with pytest.raises(CaseError, match=rf"0001\.dcm: {REFUSED}"):
                call(source)


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("count", [1, 3])
def test_whatever_tells_of_a_mosaic_is_heeded_for_one_time_or_many(tmp_path, said, count):
    pixels = ramp((count, 8, 8))
    write_series(tmp_path, pixels, Grid(step=(0.0, 0.0, 0.0)), modality="MR", edit=SAID[said])
    with pytest.raises(CaseError, match=REFUSED):
        read(tmp_path)
    (one,) = describe.describe(tmp_path)
    assert not one.readable
    assert "dcm2niix" in one.doubts[-1]


@pytest.mark.parametrize(
    "said", [{"count": 1}, {"header": csa(b"")}, {"header": csa(b"1\0\0\0")}, {"header": b"\0" * 9}]
)
def test_slices_of_siemens_that_are_no_mosaic_are_read(tmp_path, said):
    write_series(tmp_path, ramp(), modality="MR", edit=lambda dataset, _: siemens(dataset, **said))
    require_equal(tmp_path, ramp(), Grid())


def test_a_series_beside_mosaics_can_be_chosen(tmp_path):
    write_series(tmp_path / "t1", ramp(), modality="MR", series="1.2.3")
    still = Grid(step=(0.0, 0.0, 0.0))
    write_series(tmp_path / "dwi", ramp((2, 8, 8)), still, modality="MR", series="1.2.4", edit=SAID["image type"])
    with pytest.raises(CaseError, match=r"several images, .* MR, mosaic \(2 files\) of 8 x 8"):
        read(tmp_path)
    np.testing.assert_array_equal(read(tmp_path, series="1.2.3").array[0], ramp().transpose(2, 1, 0))
    with pytest.raises(CaseError, match=REFUSED):
        read(tmp_path, series="1.2.4")


def test_a_mosaic_without_a_place_is_no_picture(tmp_path):
    dataset = slice_dataset(ramp()[0], modality="MR")
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    dataset.ImageType = ["DERIVED", "SECONDARY", "MOSAIC"]
    del dataset.ImagePositionPatient, dataset.ImageOrientationPatient
    save(dataset, tmp_path / "screen.dcm")
    with pytest.raises(CaseError, match=REFUSED):
        read(tmp_path / "screen.dcm")
