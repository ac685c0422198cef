import hashlib
import sys

import numpy as np
import pydicom
import pytest
import SimpleITK as sitk  # noqa: N813 - its usual name
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from medimg_eval.case import Image, Mask
from medimg_eval.errors import UserError
from medimg_eval.imaging.dicom.writing.images import write_picture, write_segmentation, write_series
from medimg_eval.imaging.dicom.writing.modules import CLASSES, SYNTAXES

LPS = np.diag([-1, -1, 1, 1])

# Attributes of type 1 (filled) and 2 (there, perhaps empty) of the modules PS3.3 makes mandatory.
PATIENT_TO_PIXELS = {
    "PatientName": 2, "PatientID": 2, "PatientBirthDate": 2, "PatientSex": 2, "StudyInstanceUID": 1, "StudyDate": 2,
    "StudyTime": 2, "ReferringPhysicianName": 2, "StudyID": 2, "AccessionNumber": 2, "Modality": 1,
    "SeriesInstanceUID": 1, "SeriesNumber": 2, "Manufacturer": 2, "InstanceNumber": 2, "SamplesPerPixel": 1,
    "PhotometricInterpretation": 1, "Rows": 1, "Columns": 1, "BitsAllocated": 1, "BitsStored": 1, "HighBit": 1,
    "PixelRepresentation": 1, "PixelData": 1, "SOPClassUID": 1, "SOPInstanceUID": 1, "SpecificCharacterSet": 1,
    "ImageType": 1,
}  # fmt: skip
SLICE = {
    "FrameOfReferenceUID": 1, "PositionReferenceIndicator": 2, "PatientPosition": 2, "PixelSpacing": 1,
    "ImageOrientationPatient": 1, "ImagePositionPatient": 1, "SliceThickness": 2,
}  # fmt: skip
MODULES = {
    "CT": SLICE | {"RescaleIntercept": 1, "RescaleSlope": 1, "KVP": 2, "AcquisitionNumber": 2},
    "MR": SLICE
    | {
        "ScanningSequence": 1, "SequenceVariant": 1, "ScanOptions": 2, "MRAcquisitionType": 2, "RepetitionTime": 2,
        "EchoTime": 2, "EchoTrainLength": 2,
    },
    "PT": SLICE
    | {
        "SeriesDate": 1, "SeriesTime": 1, "Units": 1, "CountsSource": 1, "SeriesType": 1, "NumberOfSlices": 1,
        "CorrectedImage": 2, "DecayCorrection": 1, "CollimatorType": 2, "RadiopharmaceuticalInformationSequence": 2,
        "PatientOrientationCodeSequence": 2, "PatientGantryRelationshipCodeSequence": 2, "RescaleIntercept": 1,
        "RescaleSlope": 1, "FrameReferenceTime": 1, "ImageIndex": 1, "AcquisitionDate": 2, "AcquisitionTime": 2,
        "ActualFrameDuration": 2, "DecayFactor": 1,
    },
    "DX": {
        "PresentationIntentType": 1, "ImageLaterality": 1, "AnatomicRegionSequence": 2, "PixelIntensityRelationship": 1,
        "PixelIntensityRelationshipSign": 1, "RescaleIntercept": 1, "RescaleSlope": 1, "RescaleType": 1,
        "PresentationLUTShape": 1, "LossyImageCompression": 1, "BurnedInAnnotation": 1, "PatientOrientation": 1,
        "DetectorType": 2, "ImagerPixelSpacing": 1, "AcquisitionContextSequence": 2, "WindowCenter": 1,
        "WindowWidth": 1,
    },
    "CR": {"BodyPartExamined": 2, "ViewPosition": 2, "PatientOrientation": 2},
}  # fmt: skip


def affine(seed=0, shear=0.0, spacing=(0.7, 0.8, 2.5)):
    """A turned grid; `shear` moves each slice along the rows."""
    turn = Rotation.random(random_state=seed).as_matrix()
    out = np.eye(4)
    out[:3, :3] = turn * spacing
    out[:3, 2] += shear * turn[:, 1]
    out[:3, 3] = [12.5, -33.25, 7]
    return out


def volume(low=-1024, high=3000, shape=(7, 5, 4), seed=0):
    return np.random.default_rng(seed).integers(low, high, (1, *shape)).astype(np.int16)


def values(dataset):
    """(column, row), as stored and rescaled."""
    slope, intercept = float(dataset.get("RescaleSlope", 1)), float(dataset.get("RescaleIntercept", 0))
    return dataset.pixel_array.T * slope + intercept


def lacks(dataset, types):
    return [
        keyword
        for keyword, kind in types.items()
        if keyword not in dataset or (kind == 1 and not str(dataset[keyword].value))
    ]


@pytest.mark.parametrize("modality", ["CT", "MR", "PT"])
def test_a_series_has_every_attribute_its_modules_demand(tmp_path, modality):
    array = volume(low=0)
    for path in write_series(tmp_path, Image(array, affine()), modality=modality):
        dataset = pydicom.dcmread(path)
        assert lacks(dataset, PATIENT_TO_PIXELS | MODULES[modality]) == []
        assert dataset.SOPClassUID == dataset.file_meta.MediaStorageSOPClassUID == CLASSES[modality]
        assert dataset.SOPInstanceUID == dataset.file_meta.MediaStorageSOPInstanceUID


@pytest.mark.parametrize("modality", ["DX", "CR"])
def test_an_x_ray_has_every_attribute_its_modules_demand(tmp_path, modality):
    image = Image(np.arange(12, dtype=np.uint16).reshape(1, 3, 4), np.diag([0.2, 0.1, 1, 1]))
    dataset = pydicom.dcmread(write_picture(tmp_path / "a.dcm", image, modality=modality))
    assert lacks(dataset, PATIENT_TO_PIXELS | MODULES[modality]) == []
    assert [float(x) for x in dataset.PixelSpacing] == [0.2, 0.1]


@pytest.mark.parametrize("syntax", SYNTAXES)
@pytest.mark.parametrize(
    ("modality", "low", "high"),
    [("CT", -1024, 3000), ("CT", -2000, 60), ("MR", 0, 255), ("MR", -9, 9), ("PT", 0, 30000)],
)
def test_every_transfer_syntax_keeps_every_value(tmp_path, syntax, modality, low, high):
    array = volume(low, high)
    paths = write_series(tmp_path, Image(array, affine()), modality=modality, transfer_syntax=syntax)
    for k, path in enumerate(paths):
        dataset = pydicom.dcmread(path)
        assert dataset.file_meta.TransferSyntaxUID == SYNTAXES[syntax]
        np.testing.assert_array_equal(values(dataset), array[0, :, :, k])


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**31), shear=st.floats(-1, 1), shape=st.tuples(*[st.integers(1, 6)] * 3))
def test_positions_and_values_are_those_of_the_source(tmp_path_factory, seed, shear, shape):
    source = Image(volume(shape=shape, seed=seed), affine(seed, shear))
    folder = tmp_path_factory.mktemp("series")
    for k, path in enumerate(write_series(folder, source, names="shuffled", seed=seed)):
        dataset = pydicom.dcmread(path)
        across, down = np.reshape(np.asarray(dataset.ImageOrientationPatient, dtype=float), (2, 3))
        between_rows, between_columns = map(float, dataset.PixelSpacing)
        first = np.asarray(dataset.ImagePositionPatient, dtype=float)
        for i, j in ((0, 0), (shape[0] - 1, shape[1] - 1)):
            place = first + i * between_columns * across + j * between_rows * down
            np.testing.assert_allclose(place, (LPS @ source.affine @ [i, j, k, 1])[:3], atol=1e-6)
        np.testing.assert_array_equal(values(dataset), source.array[0, :, :, k])


@pytest.mark.parametrize("seed", range(4))
def test_simpleitk_finds_the_same_values_at_the_same_places(tmp_path, seed):
    source = Image(volume(seed=seed), affine(seed))
    write_series(tmp_path, source, names="shuffled", seed=seed)
    names = sitk.ImageSeriesReader.GetGDCMSeriesFileNames(str(tmp_path))
    image = sitk.ReadImage(names)
    for i, j, k in np.ndindex(*source.array.shape[1:]):
        place = (LPS @ source.affine @ [i, j, k, 1])[:3]
        index = image.TransformPhysicalPointToIndex([float(x) for x in place])
        assert image[index] == source.array[0, i, j, k]


def test_the_same_input_gives_the_same_bytes_and_another_gives_other_uids(tmp_path):
    source = Image(volume(), affine())
    digests = []
    for name, image, seed in (
        ("a", source, 0),
        ("b", source, 0),
        ("c", source, 1),
        ("d", Image(volume(seed=1), affine()), 0),
    ):
        paths = write_series(tmp_path / name, image, seed=seed)
        digests.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in paths])
        assert sorted(tmp_path.joinpath(name).iterdir()) == paths  # nothing half written is left
    assert digests[0] == digests[1]
    first = [pydicom.dcmread(next((tmp_path / name).iterdir())) for name in "acd"]
    assert len({one.SeriesInstanceUID for one in first}) == 3
    assert first[0].StudyInstanceUID == first[2].StudyInstanceUID != first[1].StudyInstanceUID


def test_shuffled_names_have_no_suffix_and_say_nothing_of_the_order(tmp_path):
    paths = write_series(tmp_path, Image(volume(shape=(2, 2, 12)), affine()), names="shuffled")
    assert all(not path.suffix for path in paths)
    assert sorted(paths) != paths


def test_pet_activities_get_a_slope_per_slice(tmp_path):
    array = np.random.default_rng(0).random((1, 6, 5, 3)).astype(np.float32) * [1, 10, 1000]
    slopes = []
    for k, path in enumerate(write_series(tmp_path, Image(array, affine()), modality="PT")):
        dataset = pydicom.dcmread(path)
        slopes.append(float(dataset.RescaleSlope))
        np.testing.assert_allclose(values(dataset), array[0, :, :, k], atol=slopes[k] / 2)
    assert len(set(slopes)) == 3


def test_voxels_the_scanner_padded_are_stored_below_all_others(tmp_path):
    array = volume(-1024, 500)
    array[0, 0, 0, 0] = -1024
    valid = np.ones(array.shape[1:], dtype=bool)
    valid[:2] = False
    valid[3, 3, :] = False
    for k, path in enumerate(write_series(tmp_path, Image(array, affine(), valid=valid))):
        dataset = pydicom.dcmread(path)
        np.testing.assert_array_equal(dataset.PixelPaddingValue == dataset.pixel_array.T, ~valid[:, :, k])
        np.testing.assert_array_equal(values(dataset)[valid[:, :, k]], array[0, :, :, k][valid[:, :, k]])


def test_padding_without_a_value_left_for_it_is_refused(tmp_path):
    array = np.array([-32768, 32767], dtype=np.int16).reshape(1, 2, 1, 1)
    valid = np.array([True, False]).reshape(2, 1, 1)
    with pytest.raises(UserError, match="series: no stored value is left for padding"):
        write_series(tmp_path / "series", Image(array, affine(), valid=valid), modality="MR")


def test_attributes_given_win_over_what_is_made(tmp_path):
    (path,) = write_series(tmp_path, Image(volume(shape=(3, 3, 1)), affine()), PatientName="A^B", PatientWeight="80")
    dataset = pydicom.dcmread(path)
    assert (str(dataset.PatientName), dataset.PatientWeight) == ("A^B", 80)


@pytest.mark.parametrize("high", [200, 4000, 60000])
def test_monochrome1_is_stored_inverted(tmp_path, high):
    array = np.random.default_rng(0).integers(0, high, (1, 5, 7)).astype(np.uint16)
    image = Image(array, np.diag([0.1, 0.1, 1, 1]))
    for syntax in ("explicit", "jpeg-ls"):
        path = write_picture(tmp_path / "a.dcm", image, photometric="MONOCHROME1", transfer_syntax=syntax)
        dataset = pydicom.dcmread(path)
        assert dataset.PresentationLUTShape == "INVERSE"
        np.testing.assert_array_equal(2**dataset.BitsStored - 1 - dataset.pixel_array.astype(int), array[0])


BAD = {
    "another modality": (lambda: Image(volume(), affine()), {"modality": "XX"}, "got 'XX'"),
    "another syntax": (lambda: Image(volume(), affine()), {"transfer_syntax": "zip"}, "got 'zip'"),
    "two channels": (lambda: Image(np.zeros((2, 3, 3, 3), np.int16), affine()), {}, "one channel"),
    "skewed rows": (lambda: Image(volume(), affine() @ [[1, 0.1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]), {},
                    "not orthogonal"),
    "no spacing": (lambda: Image(volume(), np.diag([1.0, 1, 0, 1])), {}, "spacing of zero"),
    "fractions": (lambda: Image(volume() + 0.5, affine()), {}, "not whole numbers"),
    "NaN": (lambda: Image(np.full((1, 2, 2, 2), np.nan), affine()), {}, "NaN"),
    "large": (lambda: Image(volume().astype(np.int64) * 1000, affine()), {}, "beyond 16 bits"),
    "no keyword": (lambda: Image(volume(), affine()), {"PatientNaem": "x"}, "no such DICOM keyword"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_dicom_cannot_hold_is_refused_in_words(tmp_path, case):
    image, options, sentence = BAD[case]
    with pytest.raises(UserError, match=sentence):
        write_series(tmp_path / "series", image(), **options)
    assert not list(tmp_path.rglob("*.dcm"))


def test_an_x_ray_without_spacing_or_with_negative_values_is_refused(tmp_path):
    array = np.zeros((1, 4, 4), dtype=np.int16)
    with pytest.raises(UserError, match="states its spacing"):
        write_picture(tmp_path / "a.dcm", Image(array, np.eye(4), units="pixel"))
    with pytest.raises(UserError, match=r"a\.dcm: an X-ray stores whole numbers"):
        write_picture(tmp_path / "a.dcm", Image(array - 1, np.eye(4)))
    with pytest.raises(UserError, match=r"a\.dcm: an X-ray holds one channel"):
        write_picture(tmp_path / "a.dcm", Image(np.zeros((3, 4, 4), np.uint8), np.eye(4)))


def test_a_segmentation_is_refused_where_its_series_or_names_do_not_fit(tmp_path):
    pytest.importorskip("highdicom")
    source = Image(volume(), affine())
    paths = write_series(tmp_path / "series", source)
    labels = np.zeros(source.array.shape[1:], dtype=np.uint8)
    labels[2:4, 1:3] = 2
    target = tmp_path / "seg.dcm"
    with pytest.raises(UserError, match=r"seg\.dcm: labels \[2\] .* no name"):
        write_segmentation(target, Mask(labels, affine()), paths, names={1: "a"})
    with pytest.raises(UserError, match=r"seg\.dcm: label 70000 is outside 1 to 65535"):
        write_segmentation(target, Mask(labels, affine()), paths, names={2: "a", 70000: "b"})
    with pytest.raises(UserError, match=r"0001\.dcm: is no slice of the mask's grid"):
        write_segmentation(target, Mask(labels, affine(1)), paths, names={2: "a"})
    with pytest.raises(UserError, match="expected one file for each of the mask's 4 slices, found 3"):
        write_segmentation(target, Mask(labels, affine()), paths[1:], names={2: "a"})
    for keyword in ("FrameOfReferenceUID", "SeriesInstanceUID"):
        edited = [pydicom.dcmread(path) for path in paths]
        setattr(edited[0], keyword, "")
        edited[0].save_as(tmp_path / "edited.dcm")
        with pytest.raises(UserError, match=rf"edited\.dcm: states no {keyword}"):
            write_segmentation(target, Mask(labels, affine()), [tmp_path / "edited.dcm", *paths[1:]], names={2: "a"})
    assert not target.exists()


def test_without_highdicom_the_sentence_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "highdicom", None)
    with pytest.raises(UserError, match=r"library highdicom, .*: pip install 'medimg-eval\[dicom\]'"):
        write_segmentation(tmp_path / "seg.dcm", Mask(np.ones((2, 2, 2), int), np.eye(4)), [], names={1: "a"})
