"""Folders of DICOM files: what belongs together, what is meant, what is left out."""

import re
from pathlib import Path

import numpy as np
import pydicom
import pytest
from dicom_fixtures import Grid, ramp, require_equal, save, slice_dataset, write_series

from medimg_eval.case import Mask
from medimg_eval.checking import describe_files as describe
from medimg_eval.errors import CaseError
from medimg_eval.imaging.reading import read, read_grid, read_mask

OTHER = Grid(across=(0.0, 1.0, 0.0), down=(0.0, 0.0, -1.0), step=(-2.5, 0.0, 0.0))
SHIPPED = Path(pydicom.__file__).parent / "data" / "test_files"


def test_a_localizer_in_the_folder_is_left_out_and_said(tmp_path):
    pixels = ramp()
    write_series(tmp_path / "a", pixels)

    def localizer(dataset, _):
        dataset.ImageType = ["ORIGINAL", "PRIMARY", "LOCALIZER"]

    write_series(tmp_path / "b", ramp((3, 9, 9)), OTHER, series="1.2.3", edit=localizer)
    image = require_equal(tmp_path, pixels, Grid())
    assert image.notes == ("3 of the images in the folder were left out: localizers",)


def test_stray_files_that_are_not_dicom_are_passed_over(tmp_path):
    pixels = ramp()
    write_series(tmp_path, pixels)
    (tmp_path / "notes.txt").write_text("scanned on a Tuesday")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "DONE").touch()
    (tmp_path / ".hidden.dcm").write_bytes(b"")
    assert require_equal(tmp_path, pixels, Grid()).notes == ()


def test_one_image_of_another_orientation_is_left_out_and_said(tmp_path):
    pixels = ramp()
    write_series(tmp_path, pixels)
    save(slice_dataset(ramp()[0], position=(0, 0, 0), grid=OTHER), tmp_path / "zz")
    assert require_equal(tmp_path, pixels, Grid()).notes == (
        "1 of the images in the folder were left out: images of other orientations",
    )


def test_one_position_twice_with_the_same_pixels_is_used_once(tmp_path):
    pixels = ramp()
    paths = write_series(tmp_path, pixels)
    (tmp_path / "copy.dcm").write_bytes(paths[2].read_bytes())
    image = require_equal(tmp_path, pixels, Grid())
    assert image.notes == ("1 slices were there twice, with the same pixels, and are used once",)


def test_one_position_twice_with_other_pixels_names_both_files(tmp_path):
    paths = write_series(tmp_path, ramp())
    other = save(slice_dataset(ramp()[0] + 1, position=(-100, -80, 45)), tmp_path / "other.dcm")
    with pytest.raises(CaseError, match="same position with different pixels") as caught:
        read(tmp_path)
    assert str(other) in str(caught.value)
    assert str(paths[2]) in str(caught.value)


def test_two_series_in_one_folder_are_listed_and_can_be_chosen(tmp_path):
    first, second = ramp(), ramp((4, 6, 6))
    write_series(tmp_path / "a", first, series="1.2.3")
    write_series(tmp_path / "b", second, OTHER, series="1.2.4", modality="MR")
    with pytest.raises(CaseError) as caught:
        read(tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "1) CT, 6 slices of 7 x 5, axial, 0.7 x 0.7 x 2.5 mm: series=1.2.3" in message
    assert "2) MR, 4 slices of 6 x 6, sagittal, 0.7 x 0.7 x 2.5 mm: series=1.2.4" in message
    for series, pixels in (("1.2.3", first), ("1", first), ("1.2.4", second), ("2", second)):
        np.testing.assert_array_equal(read(tmp_path, series=series).array[0], pixels.transpose(2, 1, 0))
    with pytest.raises(CaseError, match=re.escape("holds no series 1.2.9; it holds 1) CT")):
        read(tmp_path, series="1.2.9")


def test_image_types_at_the_same_positions_are_told_apart(tmp_path):
    stacks = {"W": ramp(), "F": ramp() + 5}
    for letter, pixels in stacks.items():
        kind = ["DERIVED", "PRIMARY", letter]
        write_series(tmp_path / letter, pixels, edit=lambda dataset, _, kind=kind: setattr(dataset, "ImageType", kind))
    with pytest.raises(CaseError, match="several images") as caught:
        read(tmp_path)
    labels = re.findall(r"series=(\S+?)(?:;|$)", str(caught.value).split(": ", 1)[1])
    found = {label: read(tmp_path, series=label).array[0] for label in labels}
    assert len(found) == 2
    for pixels in stacks.values():
        assert any(np.array_equal(array, pixels.transpose(2, 1, 0)) for array in found.values())


def test_a_list_of_files_is_read_as_one_image(tmp_path):
    pixels = ramp()
    paths = write_series(tmp_path, pixels)
    np.testing.assert_array_equal(read(paths[:3]).array[0], pixels[:3].transpose(2, 1, 0))
    with pytest.raises(CaseError, match=r"notes.txt: is not DICOM"):
        (tmp_path / "notes.txt").write_text("x")
        read([*paths, tmp_path / "notes.txt"])
    with pytest.raises(CaseError, match=r"gone.dcm: no such file"):
        read([*paths, Path(tmp_path, "gone.dcm")])


def test_several_frames_of_reference_are_noted(tmp_path):
    def edit(dataset, index):
        dataset.FrameOfReferenceUID = f"1.2.{index // 3}"

    pixels = ramp()
    write_series(tmp_path, pixels, edit=edit)
    assert "several frames of reference" in require_equal(tmp_path, pixels, Grid()).notes[0]


@pytest.mark.parametrize("name", ["SeriesInstanceUID", "SOPClassUID", "SOPInstanceUID"])
def test_empty_identifiers_do_no_harm(tmp_path, name):
    pixels = ramp()
    write_series(tmp_path, pixels, edit=lambda dataset, _: setattr(dataset, name, ""))
    require_equal(tmp_path, pixels, Grid())


@pytest.mark.parametrize("name", ["FrameOfReferenceUID", "RescaleSlope", "SliceThickness", "SeriesNumber"])
def test_elements_that_are_often_missing_are_not_needed(tmp_path, name):
    pixels = ramp()
    write_series(tmp_path, pixels, edit=lambda dataset, _: delattr(dataset, name), suffix="")
    require_equal(tmp_path, pixels, Grid())


def test_a_single_slice_beside_a_localizer_is_the_one_meant(tmp_path):
    dataset = slice_dataset(ramp()[0], grid=OTHER, series="1.2.3")
    dataset.ImageType = ["ORIGINAL", "PRIMARY", "LOCALIZER"]
    save(dataset, tmp_path / "scout")
    save(slice_dataset(ramp()[1]), tmp_path / "slice")
    np.testing.assert_array_equal(read(tmp_path).array[0, ..., 0], ramp()[1].T)


def test_without_a_series_uid_number_and_description_tell_series_apart(tmp_path):
    for index in range(2):
        write_series(
            tmp_path / str(index),
            ramp() + index,
            series="",
            edit=lambda dataset, _, index=index: setattr(dataset, "SeriesNumber", index + 1),
        )
    with pytest.raises(CaseError, match="several images"):
        read(tmp_path)
    np.testing.assert_array_equal(read(tmp_path, series=2).array[0], ramp().transpose(2, 1, 0) + 1)


def test_an_image_that_lost_its_pixels_is_named(tmp_path):
    paths = write_series(tmp_path, ramp())
    dataset = pydicom.dcmread(paths[5])
    del dataset.PixelData
    dataset.save_as(paths[5])
    with pytest.raises(CaseError, match=f"{re.escape(str(paths[5]))}: is the header of an image without its pixels"):
        read(tmp_path)


def test_a_screenshot_beside_the_slices_is_left_out_and_said(tmp_path):
    write_series(tmp_path, ramp())
    dataset = slice_dataset(ramp()[0].astype(np.uint8))
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    del dataset.ImagePositionPatient, dataset.ImageOrientationPatient
    save(dataset, tmp_path / "screen")
    notes = require_equal(tmp_path, ramp(), Grid()).notes
    assert notes == ("1 of the images in the folder were left out: pictures without a place in the patient",)


def test_objects_that_are_no_images_are_sent_where_they_are_read():
    with pytest.raises(CaseError, match="read it with read_mask"):
        read(SHIPPED / "liver_1frame.dcm")
    with pytest.raises(CaseError, match="read it with read_mask"):
        read(SHIPPED / "rtstruct.dcm")
    with pytest.raises(CaseError, match=r"holds no pixels \(SR\)"):
        read(SHIPPED / "test-SR.dcm")
    assert read(SHIPPED / "rtdose.dcm").array.shape[0] == 1
    assert read_grid(SHIPPED / "rtdose.dcm").shape == read(SHIPPED / "rtdose.dcm").array.shape[1:]


def test_a_segmentation_is_read_as_a_mask_and_has_a_grid(tmp_path):
    from medimg_eval.imaging.dicom.writing.images import write_segmentation

    paths = write_series(tmp_path / "ct", ramp((4, 8, 6)))
    labels = (ramp((4, 8, 6)) % 3).astype(np.uint8).transpose(2, 1, 0)
    source = Mask(labels, read(tmp_path / "ct").affine)
    path = write_segmentation(tmp_path / "seg.dcm", source, paths, names={1: "a", 2: "b"})
    mask = read_mask(path, grid=source.geometry)
    np.testing.assert_array_equal(mask.labels, labels)
    assert read_grid(path).difference(source.geometry) is None
    # Beside the images, the images are what `read` reads and the segmentation what `read_mask` reads.
    assert read(tmp_path).array.shape == (1, 6, 8, 4)
    np.testing.assert_array_equal(read_mask(tmp_path, grid=source.geometry).labels, labels)


def test_a_series_of_labels_is_a_mask(tmp_path):
    pixels = ramp(high=3)
    write_series(tmp_path, pixels)
    mask = read_mask(tmp_path)
    np.testing.assert_array_equal(mask.labels, pixels.transpose(2, 1, 0))
    assert read_grid(tmp_path, grid=mask.geometry, labels={"a": 1}).difference(mask.geometry) is None


def test_several_segmentations_in_a_folder_must_be_named(tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes((SHIPPED / "liver_1frame.dcm").read_bytes())
    with pytest.raises(CaseError, match="holds 2 segmentations; name the file"):
        read_mask(tmp_path)


def test_pet_becomes_suv_by_one_factor_for_all_slices(tmp_path):
    def edit(dataset, _):
        tracer = pydicom.Dataset()
        tracer.RadiopharmaceuticalStartTime, tracer.RadionuclideTotalDose = "100000", "2e8"
        tracer.RadionuclideHalfLife = "6586.2"
        dataset.RadiopharmaceuticalInformationSequence = [tracer]
        dataset.PatientWeight, dataset.Units, dataset.DecayCorrection = "70", "BQML", "ADMIN"
        dataset.CorrectedImage = ["ATTN", "DECY"]
        dataset.SeriesDate = dataset.AcquisitionDate = "20240101"
        dataset.SeriesTime = dataset.AcquisitionTime = "110000"
        dataset.RescaleSlope = "2.5"

    pixels = ramp(dtype=np.uint16)
    write_series(tmp_path, pixels, edit=edit, modality="PT")
    image = read(tmp_path, suv=True)
    want = pixels.transpose(2, 1, 0) * 2.5 * 70_000 / 2e8
    np.testing.assert_allclose(image.array[0], want, rtol=1e-6)
    assert read_grid(tmp_path, suv=True).difference(image.geometry) is None


def test_suv_of_anything_but_pet_is_refused(tmp_path):
    write_series(tmp_path, ramp())
    with pytest.raises(CaseError, match="suv is for PET"):
        read(tmp_path, suv=True)


def phases(tmp_path, *described, numbers=(4, 7), **more):
    """Two series of one size, an arterial and a portal phase, 35 s apart."""
    for place, (description, number) in enumerate(zip(described, numbers, strict=True)):

        def edit(dataset, _, place=place, description=description, number=number):
            dataset.SeriesDescription, dataset.SeriesNumber = description, number
            dataset.AcquisitionDate, dataset.AcquisitionTime = "20240101", f"1000{20 + 35 * place}"
            dataset.ConvolutionKernel, dataset.ContrastBolusAgent = "B30f", "Agent by Dr. Secret"
            for name, value in more.items():
                setattr(dataset, name, value)

        write_series(tmp_path / f"s{place}", ramp() + place, series=f"1.2.{9 - place}", edit=edit)


def test_series_are_listed_as_a_radiologist_names_them_and_chosen_by_each_name(tmp_path):
    phases(tmp_path, "Abd arterial 1.25", "Abdomen PORTAL-venous B30f")
    with pytest.raises(CaseError) as caught:
        read(tmp_path)
    assert (
        '4) CT, "Abd arterial 1.25", 6 slices of 7 x 5, axial, 0.7 x 0.7 x 2.5 mm, kernel B30f, contrast medium: '
        'series=1.2.9; 7) CT, "Abdomen PORTAL-venous B30f", 6 slices of 7 x 5, axial, 0.7 x 0.7 x 2.5 mm, kernel B30f, '
        "contrast medium, begun 35 s after the first: series=1.2.8"
    ) in str(caught.value)
    portal = (ramp() + 1).transpose(2, 1, 0)
    for name in ("7", 7, "1.2.8", "description~portal", "description~Portal-Venous"):
        np.testing.assert_array_equal(read(tmp_path, series=name).array[0], portal)
    with pytest.raises(CaseError, match=r"holds no series 2; it holds 4\) CT"):
        read(tmp_path, series="2")
    with pytest.raises(CaseError, match=r"description~abd fits 2 images, name one of them: 4\) CT.*7\) CT"):
        read(tmp_path, series="description~abd")
    for nothing in ("description~late", "description~"):
        with pytest.raises(CaseError, match="holds no series description~"):
            read(tmp_path, series=nothing)
    first, second = describe.describe(tmp_path)
    assert first.facts["series"].startswith('4, CT, "Abd arterial 1.25", 6 slices')
    assert second.facts["series"].startswith('7, CT, "Abdomen PORTAL-venous B30f", 6 slices')


@pytest.mark.parametrize(
    "text", ["Meier arterial", "portal 20240101", "portal 4711007", "f. Anna", "CT Müller", "x\x00y"]
)
def test_a_description_that_may_name_somebody_is_compared_and_not_shown(tmp_path, text):
    phases(tmp_path, text, "portal")
    with pytest.raises(CaseError) as caught:
        read(tmp_path, series="description~portal" if "portal" in text else None)
    assert text not in str(caught.value)
    assert "Secret" not in str(caught.value)
    assert "4) CT, 6 slices" in str(caught.value)
    if "\x00" not in text and "portal" not in text:
        np.testing.assert_array_equal(
            read(tmp_path, series=f"description~{text[:4]}").array[0], ramp().transpose(2, 1, 0)
        )


def test_series_that_share_a_number_are_counted(tmp_path):
    phases(tmp_path, "arterial", "portal", numbers=(4, 4))
    with pytest.raises(CaseError, match=r'1\) CT, "portal".*2\) CT, "arterial"'):
        read(tmp_path)
    np.testing.assert_array_equal(read(tmp_path, series=2).array[0], ramp().transpose(2, 1, 0))
