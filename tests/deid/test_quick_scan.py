import warnings
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
import pytest
import SimpleITK as sitk  # noqa: N813 - its usual name
from pydicom import Dataset
from pydicom.data import get_testdata_file

from medimg_eval.case import Image
from medimg_eval.deid.quick_scan import Doubt, identities, scan, scan_names
from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.writing.images import write_picture, write_series

FILLED = "Zxqwvy"


def doubts(source):
    return {(one.kind, one.tag): one for one in scan(source)}


def tags(source):
    return {one.tag for one in scan(source)}


@pytest.fixture
def clean(tmp_path):
    """A CT slice that says it was de-identified."""
    (path,) = write_series(tmp_path / "series", Image(np.zeros((1, 3, 3, 1), np.int16), np.eye(4)))
    return path


def changed(path, change):
    dataset = pydicom.dcmread(path)
    change(dataset)
    out = path.with_name("changed.dcm")
    dataset.save_as(out)
    return out


@pytest.mark.parametrize("modality", ["CT", "MR", "PT"])
def test_our_own_series_and_pictures_raise_no_doubt(tmp_path, modality):
    image = Image(np.zeros((1, 3, 3, 1), np.int16), np.eye(4))
    (path,) = write_series(tmp_path, image, modality=modality)
    assert scan(path) == []
    picture = Image(np.zeros((1, 3, 3), np.uint8), np.eye(4))
    assert scan(write_picture(tmp_path / "dx.dcm", picture)) == []


def test_what_the_profile_removes_is_named_and_never_shown(clean):
    def fill(dataset):
        dataset.PatientAddress = dataset.OtherPatientIDs = FILLED
        dataset.StudyDescription = dataset.ImageComments = FILLED
        dataset.OperatorsName = dataset.PerformingPhysicianName = f"{FILLED}^A"
        dataset.LongitudinalTemporalInformationModified = "UNMODIFIED"

    found = scan(changed(clean, fill))
    kinds = {one.tag: one.kind for one in found}
    assert (
        kinds.items()
        >= {
            "PatientAddress": "identity",
            "OtherPatientIDs": "identity",
            "PerformingPhysicianName": "identity",
            "StudyDescription": "text",
            "ImageComments": "text",
            "StudyDate": "date",
        }.items()
    )
    # The profile lets these be dummies, and the file says that the identity was removed.
    assert not {"PatientName", "PatientID", "OperatorsName"} & set(kinds)
    assert all(FILLED not in str(one) for one in found)


def test_without_a_statement_that_the_identity_was_removed_dummies_are_in_doubt_too(clean):
    def forget(dataset):
        del dataset.PatientIdentityRemoved
        dataset.PatientName = f"{FILLED}^A"
        dataset.PatientBirthDate = "19770101"

    found = scan(changed(clean, forget))
    assert {"PatientIdentityRemoved", "PatientName", "PatientID", "PatientBirthDate"} <= {one.tag for one in found}
    assert not any(FILLED in str(one) or "1977" in str(one) for one in found)


def test_nested_attributes_are_counted(clean):
    def nest(dataset):
        items = [Dataset(), Dataset()]
        for item in items:
            item.InstitutionName = item.RequestingPhysician = FILLED
        dataset.ReferencedStudySequence = items
        dataset.PatientIdentityRemoved = "NO"

    found = doubts(changed(clean, nest))
    assert found["identity", "InstitutionName"].count == 2
    assert found["identity", "RequestingPhysician"].count == 2


def test_private_attributes_are_counted_with_who_made_them(clean):
    def add(dataset):
        for creator in ("GEMS_IDEN_01", "SIEMENS CSA HEADER", f"Dr {FILLED}"):
            block = dataset.private_block(0x0029, creator, create=True)
            block.add_new(1, "LO", FILLED)
            block.add_new(2, "LO", FILLED)

    (found,) = scan(changed(clean, add))
    assert (found.kind, found.count) == ("private", 6)
    assert "6 by GEMS_IDEN_01, SIEMENS CSA HEADER, others" in found.what


def test_blanks_and_what_tools_put_there_are_no_doubt(clean):
    def blank(dataset):
        dataset.PatientIdentityRemoved = "NO"
        dataset.PatientName, dataset.PatientID = "^^", "anonymous"
        dataset.InstitutionName = dataset.InstitutionAddress = "Removed"
        dataset.StudyID = ""
        dataset.PerformingPhysicianName = None

    assert tags(changed(clean, blank)) == {"PatientIdentityRemoved"}


@pytest.mark.parametrize(
    ("stated", "modality", "sop_class", "doubt"),
    [
        ("YES", "CT", None, "says that text is burned"),
        (None, "CT", None, None),
        (None, "US", None, "does not say whether text is burned"),
        (None, "CR", None, "does not say whether text is burned"),
        (None, "CT", "1.2.840.10008.5.1.4.1.1.7", "does not say whether text is burned"),
        ("NO", "US", None, None),
    ],
)
def test_text_in_the_pixels_is_in_doubt_where_it_is_common(clean, stated, modality, sop_class, doubt):
    def state(dataset):
        dataset.Modality = modality
        dataset.SOPClassUID = sop_class or dataset.SOPClassUID
        del dataset.BurnedInAnnotation
        if stated:
            dataset.BurnedInAnnotation = stated

    found = scan(changed(clean, state))
    assert [one.kind for one in found] == ([] if doubt is None else ["pixels"])
    assert all(doubt in one.what for one in found)


def test_overlays_icons_and_recognisable_faces_are_in_doubt(clean):
    def add(dataset):
        dataset.add_new(0x60003000, "OW", b"\1\2")
        dataset.IconImageSequence = [Dataset()]
        dataset.RecognizableVisualFeatures = "YES"

    assert tags(changed(clean, add)) == {"OverlayData", "IconImageSequence", "RecognizableVisualFeatures"}


def test_real_headers_are_scanned_in_any_encoding_without_a_warning():
    for name in ("CT_small.dcm", "badVR.dcm", "MR_small_bigendian.dcm", "rtplan.dcm", "JPEG2000.dcm", "reportsi.dcm"):
        file = get_testdata_file(name, download=False)
        dataset = pydicom.dcmread(file, stop_before_pixels=True)
        found = scan(Path(file))
        assert {"PatientName", "PatientIdentityRemoved"} <= {one.tag for one in found}, name
        assert not any(str(dataset.PatientName) in one.what for one in found)


def test_every_file_shipped_with_pydicom_and_nibabel_is_scanned_or_refused_in_words():
    folders = [Path(pydicom.data.__file__).parent / "test_files", Path(nib.__file__).parent]
    scanned = 0
    for path in (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()):
        try:
            scan(path)
            scanned += 1
        except CaseError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017 - most of them are fine
    assert scanned > 100


def test_free_text_and_extensions_of_a_nifti_are_in_doubt(tmp_path):
    image = nib.Nifti1Image(np.zeros((2, 2, 2), np.uint8), np.eye(4))
    nib.save(image, tmp_path / "a.nii.gz")
    assert scan(tmp_path / "a.nii.gz") == []
    image.header["descrip"], image.header["aux_file"], image.header["db_name"] = [FILLED] * 3
    image.header.extensions.append(nib.nifti1.Nifti1Extension("comment", FILLED.encode()))
    image.header.extensions.append(nib.nifti1.Nifti1DicomExtension(2, Dataset()))
    nib.save(image, tmp_path / "a.nii.gz")
    found = scan(tmp_path / "a.nii.gz")
    assert [(one.kind, one.tag) for one in found] == [
        ("text", "descrip"),
        ("text", "aux_file"),
        ("text", "db_name"),
        ("identity", ""),
        ("private", ""),
    ]
    assert "DICOM header" in found[3].what
    assert not any(FILLED in str(one) for one in found)


@pytest.mark.parametrize("name", ["a.mha", "a.nrrd"])
def test_dicom_attributes_copied_into_a_text_header_are_in_doubt(tmp_path, name):
    image = sitk.Image([2, 2, 2], sitk.sitkInt16)
    sitk.WriteImage(image, str(tmp_path / name))
    assert scan(tmp_path / name) == []
    for key, value in (("0010|0010", FILLED), ("0008|0020", "20200101"), ("0028|0010", "2"), ("0010|0020", "")):
        image.SetMetaData(key, value)
    sitk.WriteImage(image, str(tmp_path / name))
    assert {(one.kind, one.tag) for one in scan(tmp_path / name)} == {
        ("identity", "PatientName"),
        ("date", "StudyDate"),
    }
    assert not any(FILLED in str(one) for one in scan(tmp_path / name))


def test_the_text_header_of_a_philips_volume_is_in_doubt(tmp_path):
    path = tmp_path / "a.par"
    path.write_text(
        f"# == DATA\n.    Patient name   :   {FILLED}\n.    Examination date/time  :\n.    Scan mode  :  MS\n"
    )
    assert set(doubts(path)) == {("identity", "Patient name")}
    assert not any(FILLED in one.what for one in scan(path))


def test_a_uid_that_holds_a_name_is_not_shown_in_a_warning(clean):
    path = changed(clean, lambda dataset: None)
    path.write_bytes(path.read_bytes().replace(b"1.2.840.10008.5.1.4.1.1.2\0", b"Zxqwvy^Zxqwvy^Zxqwvy^Zxqw1"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scan(path)
    assert not caught


def test_a_picture_raises_no_doubt_and_a_damaged_file_is_refused_in_words(tmp_path):
    from PIL import Image as Picture

    Picture.new("L", (2, 2)).save(tmp_path / "a.png")
    assert scan(tmp_path / "a.png") == []
    nib.save(nib.Nifti1Image(np.zeros((2, 2, 2), np.uint8), np.eye(4)), tmp_path / "a.nii.gz")
    (tmp_path / "b.nii.gz").write_bytes((tmp_path / "a.nii.gz").read_bytes()[:60])
    with pytest.raises(CaseError, match=r"b\.nii\.gz: its header cannot be read"):
        scan(tmp_path / "b.nii.gz")
    with pytest.raises(CaseError, match=r"none\.dcm: no such file"):
        scan(tmp_path / "none.dcm")


@pytest.mark.parametrize(
    ("name", "doubt"),
    [
        ("DOE^JANE.dcm", "caret"),
        ("ct_20200131.dcm", "date"),
        ("ct_31-1-2020.dcm", "date"),
        ("scan-2020-01-31_2.nii.gz", "date"),
        ("123-45-6789.dcm", "social security"),
        ("MRN00012.dcm", "record number"),
        ("ct_4711081.dcm", "record number"),
        ("00001234_000.png", None),
        ("BraTS2021_00621", None),
        ("1.3.6.1.4.1.14519.5.2.1.6279.6001.100225287222365663678666836860.mhd", None),
        ("1.2.840.1234567.8.dcm", None),
        ("5feceb66f1234567.dcm", None),
        ("IM-0001.dcm", None),
        ("20201331.dcm", "record number"),
    ],
)
def test_names_that_look_like_a_person_a_date_or_a_record_are_in_doubt(tmp_path, name, doubt):
    found = scan_names([tmp_path / name], {})
    assert [one.kind for one in found] == ([] if doubt is None else ["name"])
    assert all(doubt in one.what for one in found)


def test_names_that_repeat_a_header_are_in_doubt(tmp_path):
    image = Image(np.zeros((1, 3, 3, 1), np.int16), np.eye(4))
    folder = tmp_path / "jane doe"
    (path,) = write_series(folder, image, PatientName="DOE^JANE", PatientID="A-77X9")
    known = identities(path)
    assert scan_names([path], known) == []
    other = folder / "a77x9_jane_doe.dcm"
    assert scan_names([other], known) == [
        Doubt(other, "the file's name or folder repeats the PatientID of a header", "name"),
        Doubt(other, "the file's name or folder repeats the PatientName of a header", "name"),
    ]
