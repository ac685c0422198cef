from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom import Dataset
from pydicom.data import get_testdata_file

from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.objects import rtdose as dose
from medimg_eval.imaging.dicom.writing.modules import CLASSES, save

SAGITTAL = [0, 1, 0, 0, 0, -1]


def written(path, stored, **attributes):
    """A dose of stored values (plane, row, column), scaled by 0.001."""
    dataset = Dataset()
    dataset.SOPClassUID, dataset.SOPInstanceUID, dataset.Modality = dose.DOSE, "1.2.3", "RTDOSE"
    dataset.NumberOfFrames, dataset.Rows, dataset.Columns = stored.shape
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation, dataset.PixelRepresentation = 1, "MONOCHROME2", 0
    dataset.BitsAllocated = dataset.BitsStored = 32
    dataset.HighBit = 31
    dataset.DoseUnits, dataset.DoseType, dataset.DoseSummationType = "GY", "PHYSICAL", "PLAN"
    dataset.DoseGridScaling = "0.001"
    dataset.ImagePositionPatient = [10, -20, 30]
    dataset.ImageOrientationPatient = [1, 0, 0, 0, 1, 0]
    dataset.PixelSpacing = [2, 3]
    dataset.GridFrameOffsetVector = [5 * k for k in range(len(stored))]
    for keyword, value in attributes.items():
        setattr(dataset, keyword, value)
    for keyword in [keyword for keyword, value in attributes.items() if value is None]:
        delattr(dataset, keyword)
    dataset.add_new("PixelData", "OW", stored.astype("<u4").tobytes())
    save(path, dataset)
    return path


def stored(shape=(4, 3, 2)):
    return np.random.default_rng(0).integers(0, 70000, shape)


def at(image, place):
    """The value at a place in DICOM's coordinates (LPS mm)."""
    index = np.linalg.inv(image.affine) @ np.diag([-1, -1, 1, 1]) @ [*place, 1]
    np.testing.assert_allclose(index[:3], np.rint(index[:3]), atol=1e-6)
    return image.array[(0, *np.rint(index[:3]).astype(int))]


@pytest.mark.parametrize(
    ("offsets", "heights"),
    [
        ([0, 5, 10, 15], [30, 35, 40, 45]),
        ([30, 35, 40, 45], [30, 35, 40, 45]),
        ([0, -5, -10, -15], [30, 25, 20, 15]),
        ([30, 25, 20, 15], [30, 25, 20, 15]),
        ([0, 10, 5, 15], [30, 40, 35, 45]),
    ],
)
def test_a_dose_lies_where_its_offsets_say_relative_or_absolute(tmp_path, offsets, heights):
    array = stored()
    path = written(tmp_path / "dose.dcm", array, GridFrameOffsetVector=offsets)
    image = dose.read(path)
    assert (image.array.dtype, image.array.shape) == (np.float32, (1, 2, 3, 4))
    for (k, row, column), value in np.ndenumerate(array):
        assert at(image, (10 + 3 * column, -20 + 2 * row, heights[k])) == np.float32(value * 0.001)
    assert dose.grid(path).difference(image.geometry) is None
    assert image.attributes == {"DoseType": "PHYSICAL", "DoseSummationType": "PLAN", "DoseUnits": "GY"}


def test_planes_need_not_be_transverse(tmp_path):
    array = stored()
    image = dose.read(written(tmp_path / "dose.dcm", array, ImageOrientationPatient=SAGITTAL))
    # Rows run to the back, columns to the feet; their normal points to the right (-x).
    for (k, row, column), value in np.ndenumerate(array):
        assert at(image, (10 - 5 * k, -20 + 3 * column, 30 - 2 * row)) == np.float32(value * 0.001)


def test_a_single_plane_needs_no_offsets(tmp_path):
    array = stored((1, 3, 2))
    path = written(tmp_path / "dose.dcm", array, GridFrameOffsetVector=None, SliceThickness=4)
    assert dose.read(path).geometry.spacing == (3, 2, 4)
    path = written(tmp_path / "dose.dcm", array, GridFrameOffsetVector=None)
    assert "1 mm was taken" in dose.read(path).notes[0]


def test_real_doses_read_alike_in_every_encoding():
    images = [
        dose.read(Path(get_testdata_file(f"{name}.dcm", download=False)))
        for name in ("rtdose", "rtdose_expb", "rtdose_rle")
    ]
    file = pydicom.dcmread(get_testdata_file("rtdose.dcm", download=False))
    expected = (file.pixel_array * float(file.DoseGridScaling)).astype(np.float32)
    for image in images:
        np.testing.assert_array_equal(image.array[0].T, expected)
        np.testing.assert_allclose(image.affine[:3, 3], [-189.43125, -199.43125, -761.87])
        assert image.geometry.spacing == (10, 10, 5)
        assert "not in gray" in image.notes[0]


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"GridFrameOffsetVector": [0, 5, 10, 16]}, "uneven distances"),
        ({"GridFrameOffsetVector": [0, 5, 10, 10]}, "uneven distances"),
        ({"GridFrameOffsetVector": [0, 0, 0, 0]}, "uneven distances"),
        ({"GridFrameOffsetVector": [7, 12, 17, 22]}, "starts at 7, neither at 0 nor at the z"),
        ({"GridFrameOffsetVector": [30, 35, 40, 45], "ImageOrientationPatient": SAGITTAL}, "starts at 30"),
        ({"GridFrameOffsetVector": [0, 5]}, "places 2 of 4 planes"),
        ({"GridFrameOffsetVector": None}, "no GridFrameOffsetVector for its 4 planes"),
        ({"DoseUnits": None}, "its DoseUnits is neither GY nor RELATIVE"),
        ({"DoseGridScaling": "0"}, "no DoseGridScaling above 0"),
        ({"ImagePositionPatient": None}, "states no ImagePositionPatient"),
        ({"PixelSpacing": [0, 3]}, "spacing of zero"),
    ],
)
def test_a_dose_without_scale_or_place_is_refused_in_words(tmp_path, attributes, sentence):
    path = written(tmp_path / "dose.dcm", stored(), **attributes)
    with pytest.raises(CaseError, match=rf"dose\.dcm: .*{sentence}"):
        dose.read(path)


def test_another_dicom_file_is_refused(tmp_path):
    other = Dataset()
    other.SOPClassUID, other.SOPInstanceUID, other.Modality = CLASSES["CT"], "1.2", "CT"
    save(tmp_path / "ct.dcm", other)
    with pytest.raises(CaseError, match=r"ct\.dcm: is no RTDOSE; .* modality CT"):
        dose.read(tmp_path / "ct.dcm")
