"""`phi_scan`: every attribute of the basic profile, and what lies beside headers."""

from __future__ import annotations

import copy
import json
import struct
import zlib
from collections import Counter
from pathlib import Path

import nibabel as nib
import numpy as np
import pydicom
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pictures
from PIL.PngImagePlugin import PngInfo
from pydicom import Dataset
from pydicom.datadict import dictionary_VR, keyword_for_tag

from medimg_eval.case import Image
from medimg_eval.commands import phi_scan
from medimg_eval.deid.dicom_headers import header_findings, past_of, read_whole
from medimg_eval.deid.folder import scan_folder
from medimg_eval.deid.ps3_15 import OPTIONS, WORDS, rules
from medimg_eval.deid.values import like_pseudonym, mask, names_nobody, only_technical, shown
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.dicom.writing.images import write_picture, write_series
from medimg_eval.phantoms import write_phantoms

FILLED = "Zxqwvy"
MARKERS = {
    "PN": f"{FILLED}^Abel",
    "DA": "19770313",
    "DT": "19770313101112",
    "TM": "131415",
    "UI": "1.2.3.44.5",
    "DS": "12.5",
    "IS": "7",
    "US": 7,
    "OB": b"\1\2",
    "UN": b"\1\2",
    "CS": FILLED.upper(),
    "AS": "042Y",
}
STATED = ("PatientIdentityRemoved", "DeidentificationMethod", "LongitudinalTemporalInformationModified")
FLAT = Image(np.zeros((1, 3, 3, 1), np.int16), np.eye(4))


def marker(vr):
    if vr != "SQ":
        return MARKERS.get(vr, FILLED)
    item = Dataset()
    item.CodeMeaning, item.ReferencedSOPInstanceUID = FILLED, "1.2.3.44.6"
    return [item]


@pytest.fixture
def clean(tmp_path):
    """A CT slice that says it was de-identified."""
    (path,) = write_series(tmp_path / "clean", FLAT)
    return path


@pytest.fixture
def dataset(clean):
    return pydicom.dcmread(clean)


def found_in(dataset, **options):
    return header_findings(dataset, Path("a.dcm"), **options)[0]


def places(dataset, **options):
    return {(one.level, one.kind, one.attribute) for one in found_in(dataset, **options)}


def test_the_table_is_that_of_the_standard():
    actions = Counter(rule.action for rule in rules().values())
    # 617 of the table's 621 rows have a tag of their own; the others, all X, are groups.
    assert actions == {
        "X": 380,
        "D": 92,
        "U": 54,
        "Z": 42,
        "X/D": 22,
        "X/Z": 11,
        "X/Z/D": 8,
        "Z/D": 6,
        "X/Z/U*": 2,
    }
    assert set(actions) == set(WORDS)
    assert all(keyword_for_tag(tag) for tag in rules())
    assert {letter for rule in rules().values() for letter in rule.options} == {x for x, _ in OPTIONS.values()} - {"r"}


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("compared", [True, False])
def test_a_marker_in_any_attribute_of_the_profile_is_noticed(dataset, stated, compared):
    missed, levels = [], Counter()
    for keyword in STATED if not stated else ():
        delattr(dataset, keyword)
    for tag, rule in rules().items():
        vr = dictionary_VR(tag)
        part = dataset.file_meta if tag >> 16 == 2 else dataset
        before = part.get(tag)
        part.add_new(tag, vr, marker(vr))
        findings = found_in(dataset, past=past_of(dataset) if compared else None)
        del part[tag]
        if before is not None:
            part[tag] = before
        at = [one for one in findings if one.attribute.split(".")[0] == keyword_for_tag(tag)]
        assert all(FILLED not in str(one) and "1977" not in str(one) for one in at)
        if not at:
            missed.append(rule.action)
        else:
            levels[min(one.level for one in at)] += 1
    if compared:  # only what was there before tells a UID from a replaced one
        assert not missed
    else:
        assert Counter(missed) == {"U": 54, "X/Z/U*": 2, "D": 1}
    # Where a file says that dates were changed, a person has to look at those that could be.
    assert (
        levels["found"]
        == {
            (True, True): 565,
            (True, False): 398,
            (False, True): 617,
            (False, False): 560,
        }[stated, compared]
    )


def test_markers_are_found_in_files_too_nested_and_behind_the_pixels(clean, dataset):
    planted = [tag for tag in rules() if tag >> 16 not in (0, 2, 4) and dictionary_VR(tag) not in ("UI", "SQ")]
    item = Dataset()
    for tag in planted:
        item.add_new(tag, dictionary_VR(tag), marker(dictionary_VR(tag)))
    dataset.ReferencedSeriesSequence = [item]
    signature = Dataset()
    signature.MACIDNumber = 1
    dataset.DigitalSignaturesSequence = [signature]
    dataset.add_new(0xFFFCFFFC, "OB", b"\1\1")
    dataset.save_as(clean)
    found = {one.attribute for one in found_in(read_whole(clean))}
    assert {f"ReferencedSeriesSequence.{keyword_for_tag(tag)}" for tag in planted} <= found
    assert {"DigitalSignaturesSequence", "DataSetTrailingPadding"} <= found


@pytest.mark.parametrize("syntax", ["implicit", "big", "deflated", "rle", "jpeg-ls"])
def test_every_encoding_is_read(tmp_path, syntax):
    image = Image(np.zeros((1, 4, 4, 1), np.uint8), np.eye(4))
    (path,) = write_series(tmp_path, image, transfer_syntax=syntax, PatientAddress=FILLED)
    assert places(read_whole(path)) == {("found", "identity", "PatientAddress")}


@pytest.mark.parametrize(
    "kind", ["xray", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ct", "mr", "endoscopy", "pathology"))]
)
def test_clean_phantoms_give_nothing(tmp_path, kind):
    write_phantoms(kind, tmp_path / kind, cases=1, seed=0)
    report = scan_folder(tmp_path)
    assert report.findings == []
    assert report.looked


@pytest.mark.parametrize("modality", ["CT", "MR"])
def test_our_own_files_give_nothing(tmp_path, modality):
    write_series(tmp_path, FLAT, modality=modality)
    write_picture(tmp_path / "dx.dcm", Image(np.zeros((1, 3, 3), np.uint8), np.eye(4)))
    assert scan_folder(tmp_path).findings == []


def test_curves_overlays_and_private_attributes_are_found_and_counted(dataset):
    dataset.add_new(0x60003000, "OW", b"\1\2")
    dataset.add_new(0x60024000, "LT", FILLED)
    dataset.add_new(0x50003000, "OW", b"\1\2")
    block = dataset.private_block(0x0029, "ACME", create=True)
    for place in (1, 2, 3):
        block.add_new(place, "LO", FILLED)
    found = {(one.kind, one.attribute): one.count for one in found_in(dataset)}
    assert found == {
        ("graphics", "OverlayData"): 1,
        ("graphics", "OverlayComments"): 1,
        ("graphics", "CurveData"): 1,
        ("private", "private"): 3,
    }
    assert found_in(dataset, keep=["private", "graphics"]) == []


def test_private_attributes_that_are_kept_are_looked_through(dataset):
    block = dataset.private_block(0x0029, "ACME", create=True)
    block.add_new(1, "PN", "Roe^Jane")
    block.add_new(2, "UN", b"seen by Dr. Miller on 2019-03-05")
    inner = Dataset()
    inner.PatientName = "Roe^Jane"
    block.add_new(3, "SQ", [inner])
    block.add_new(4, "UN", bytes(range(256)))
    found = {(one.attribute, one.rule) for one in found_in(dataset, keep=["private"])}
    assert found == {
        ("private", "holds the name of a person"),
        ("private", "holds what looks like a person"),
        ("private", "holds what looks like a date"),
        ("private.PatientName", "is filled, and not with a dummy"),
    }


def test_preamble_and_private_file_meta_are_looked_at(dataset):
    dataset.preamble = b"II*\0".ljust(128, b"\0")
    assert found_in(dataset) == []
    dataset.preamble = b"ROE JANE".ljust(128, b"\0")
    dataset.file_meta.PrivateInformationCreatorUID = "1.2.3"
    dataset.file_meta.PrivateInformation = b"ROE JANE"
    dataset.file_meta.SourceApplicationEntityTitle = "WARD7"
    found = {(one.attribute, one.kind, one.level) for one in found_in(dataset)}
    assert found == {
        ("preamble", "text", "found"),
        ("PrivateInformation", "private", "found"),
        ("SourceApplicationEntityTitle", "identity", "look"),
    }


def test_a_header_with_a_value_that_cannot_be_parsed_is_counted_and_the_others_are_read(dataset, tmp_path):
    folder = tmp_path / "two"
    folder.mkdir()
    for name in ("a.dcm", "b.dcm"):
        dataset.save_as(folder / name)
    whole = (folder / "a.dcm").read_bytes()
    (folder / "a.dcm").write_bytes(whole.replace(b"\x08\x00\x60\x00CS", b"\x08\x00\x60\x00ZZ"))
    report = scan_folder(folder)
    assert {(one.path.name, one.kind) for one in report.findings} == {("a.dcm", "unread")}
    assert report.looked["DICOM"] == 1


def test_uids_are_compared_with_all_of_the_files_before(dataset, tmp_path):
    past = past_of(dataset)
    found = {one.attribute for one in found_in(dataset, past=past) if one.kind == "uid"}
    assert {"SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID"} <= found
    assert not {"ImplementationClassUID", "TransferSyntaxUID", "SOPClassUID"} & found
    assert not [one for one in found_in(dataset, past=past, keep=["uids"]) if one.kind == "uid"]
    for keyword in ("SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID"):
        setattr(dataset, keyword, "2.25.7")
    dataset.file_meta.MediaStorageSOPInstanceUID = "2.25.7"
    dataset.PatientID = dataset.PatientName = "case-7"
    assert found_in(dataset, past=past) == []


def test_shifted_dates_pass_and_others_do_not(dataset):
    original = copy.deepcopy(dataset)
    original.StudyDate, original.AcquisitionDate, original.StudyTime = "20190314", "20190314", "101112"
    past = past_of(original)
    past.uids.clear()
    dataset.PatientID = dataset.PatientName = "case-7"
    dataset.StudyDate, dataset.AcquisitionDate, dataset.StudyTime = "20190314", "20180202", "101112"
    # The day is as it was; the hour alone is for a person to judge.
    assert places(dataset, past=past) == {
        ("found", "date", "StudyDate"),
        ("found", "statement", "LongitudinalTemporalInformationModified"),
        ("look", "date", "StudyTime"),
    }
    dataset.StudyDate = "20180202"
    assert places(dataset, past=past) == {("look", "date", "StudyTime")}
    assert places(dataset) == {("look", "date", name) for name in ("StudyDate", "AcquisitionDate", "StudyTime")}
    assert places(dataset, keep=["modified_dates"]) == set()


def test_pseudonyms_pass_where_name_and_number_are_the_same(dataset):
    dataset.PatientID = dataset.PatientName = "LIDC-IDRI-0001"
    assert places(dataset) == set()
    dataset.PatientName = ""
    assert places(dataset) == {("look", "identity", "PatientID")}
    dataset.PatientID = "4711081"
    assert places(dataset) == {("found", "identity", "PatientID")}
    dataset.PatientID, dataset.PatientName = "sub-01", "Doe^Jane"
    assert places(dataset) == {("found", "identity", "PatientName"), ("look", "identity", "PatientID")}


def test_words_that_repeat_the_patient_are_found_in_attributes_that_may_stay(dataset):
    dataset.PatientName, dataset.PatientID = "Featherstone^Margaret", "A-77X9"
    dataset.Manufacturer = "made for featherstone"
    dataset.ManufacturerModelName = "a77x9"
    found = {one.attribute: one.rule for one in found_in(dataset) if one.kind == "text"}
    assert found == {
        "Manufacturer": "repeats the PatientName",
        "ManufacturerModelName": "repeats the PatientID",
    }


def test_texts_of_the_files_before_are_looked_for_after_they_were_removed(dataset):
    original = copy.deepcopy(dataset)
    original.PatientName, original.ReferringPhysicianName = "Featherstone^Margaret", "Quirke^Desmond"
    past = past_of(original)
    past.uids.clear()
    dataset.PatientID = dataset.PatientName = "case-7"
    dataset.Manufacturer = "as Dr Quirke ordered"
    assert [(one.attribute, one.rule) for one in found_in(dataset, past=past)] == [
        ("Manufacturer", "repeats the ReferringPhysicianName")
    ]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("scanned 3/14/2019", "date"),
        ("call 555-123-4567", "telephone"),
        ("MRN 4711081", "record number"),
        ("sent by Dr. Okafor", "person"),
        ("mail j.doe@clinic.example", "e-mail"),
        ("axial 3 mm", None),
    ],
)
def test_patterns_in_attributes_that_may_stay(dataset, text, rule):
    dataset.PositionReferenceIndicator = text
    assert [one.rule for one in found_in(dataset)] == ([f"holds what looks like a {rule}"] if rule else [])


def test_descriptions_of_nothing_but_technical_words_pass(dataset):
    dataset.SeriesDescription = "AXIAL portal 3.0 mm"
    assert found_in(dataset) == []
    dataset.SeriesDescription = "axial for Okafor"
    assert places(dataset) == {("found", "text", "SeriesDescription")}
    assert only_technical("T1w FLAIR b1000")
    assert not only_technical("")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"PatientIdentityRemoved": "NO"}, {"PatientIdentityRemoved", "DeidentificationMethod"}),
        ({"DeidentificationMethod": ""}, {"DeidentificationMethod"}),
        ({"LongitudinalTemporalInformationModified": "REMOVED", "StudyDate": "20190314"}, {STATED[2]}),
        ({"LongitudinalTemporalInformationModified": "", "StudyDate": "20190314"}, {STATED[2]}),
        ({"LongitudinalTemporalInformationModified": "UNMODIFIED", "CodeValue": "113107"}, {STATED[2]}),
        ({"CodeValue": "113106"}, {STATED[2]}),
        ({}, set()),
    ],
)
def test_statements_have_to_be_there_and_fit_together(dataset, change, wrong):
    for keyword, value in change.items():
        if keyword == "CodeValue":
            item = Dataset()
            item.CodeValue = value
            dataset.DeidentificationMethodCodeSequence = [item]
        else:
            setattr(dataset, keyword, value)
    assert {one.attribute for one in found_in(dataset) if one.kind == "statement"} == wrong


def test_options_that_a_file_declares_are_believed_and_told(tmp_path):
    items = [Dataset(), Dataset()]
    items[0].CodeValue, items[1].CodeValue = "113108", "113105"
    more = {"PatientSex": "F", "PatientAge": "042Y", "SeriesDescription": "knee of a runner"}
    write_series(tmp_path / "a", FLAT, DeidentificationMethodCodeSequence=items, **more)
    report = scan_folder(tmp_path)
    assert report.findings == []
    assert report.declared == {"characteristics": 1, "descriptors": 1}
    write_series(tmp_path / "b", FLAT, **more)
    report = scan_folder(tmp_path)
    assert {one.attribute for one in report.findings} == set(more)
    assert scan_folder(tmp_path, keep=["characteristics", "descriptors"]).findings == []
    # What is said to be cleaned is looked through all the same.
    (file,) = write_series(tmp_path / "c", FLAT, SeriesDescription="as Dr. Okafor wants it")
    assert [one.rule for one in scan_folder(file, keep=["descriptors"]).findings] == ["holds what looks like a person"]


@pytest.mark.parametrize(
    ("tag", "vr"), [(0x00080016, "UI"), (0x00080020, "DA"), (0x00180050, "DS"), (0x00200013, "IS")]
)
def test_words_where_numbers_belong_are_found_whatever_is_said_of_them(clean, tag, vr):
    held = {"UI": b"1.2.840.10008.5.1.4.1.1.2\0", "DA": b"20000101", "DS": b"DS\4\0001.0 ", "IS": b"IS\2\0001 "}[vr]
    typed = held[:-4] + b"Zxqw" if vr != "IS" else b"IS\2\0Zx"
    data = clean.read_bytes()
    head = 340  # behind the file meta
    at = data.index(tag.to_bytes(4, "little")[2:] + tag.to_bytes(4, "little")[:2], head)
    place = data.index(held, at)
    clean.write_bytes(data[:place] + typed + data[place + len(held) :])
    assert (keyword_for_tag(tag), f"holds letters, which no {vr} has") in {
        (one.attribute, one.rule) for one in scan_folder(clean).findings
    }


def test_an_unknown_option_is_refused(tmp_path):
    with pytest.raises(UsageError, match="got 'dates'"):
        scan_folder(tmp_path, keep=["dates"])


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"BurnedInAnnotation": "YES"}, "pixels"),
        ({"BurnedInAnnotation": "", "Modality": "US"}, "pixels"),
        ({"ImageType": ["ORIGINAL", "PRIMARY", "LABEL"]}, "pixels"),
        ({"RecognizableVisualFeatures": "YES"}, "surface"),
        ({"BodyPartExamined": "HEAD"}, "surface"),
        ({"BodyPartExamined": "HEAD", "RecognizableVisualFeatures": "NO"}, None),
        ({"BodyPartExamined": "CHEST"}, None),
    ],
)
def test_what_pixels_may_show_is_flagged_and_no_more(dataset, change, kind):
    for keyword, value in change.items():
        setattr(dataset, keyword, value)
    assert [(one.level, one.kind) for one in found_in(dataset)] == ([("look", kind)] if kind else [])


def test_fields_of_a_nifti_header_and_faces_are_told(tmp_path):
    image = nib.Nifti1Image(np.zeros((2, 2, 2), np.uint8), np.eye(4))
    for name, text in (
        ("a", ""),
        ("b", "FSL5.0"),
        ("c", "TE=2.9;Time=143022.110"),
        ("d", f"{FILLED} 1977-03-13"),
        ("sub-01_T1w", ""),
        ("sub-01_desc-brain_T1w", ""),
    ):
        image.header["descrip"] = text
        nib.save(image, tmp_path / f"{name}.nii.gz")
    found = {(one.path.name, one.kind, one.level) for one in scan_folder(tmp_path).findings}
    assert found == {
        ("c.nii.gz", "date", "found"),
        ("d.nii.gz", "text", "found"),
        ("sub-01_T1w.nii.gz", "surface", "look"),
    }


def test_side_cars_are_judged_by_the_same_table(tmp_path):
    (tmp_path / "a.json").write_text(
        json.dumps(
            {
                "Modality": "MR",
                "EchoTime": 0.003,
                "PatientName": f"{FILLED}^A",
                "AcquisitionTime": "14:30:22.110000",
                "InstitutionName": "General Hospital",
                "Nested": [{"PatientBirthDate": "1977-03-13", "StudyTime": "00:00:00"}],
                "note": "seen by Dr. Okafor",
                "Authors": ["Ada Okafor"],
            }
        )
    )
    (tmp_path / "b.json").write_text(json.dumps({"00100010": {"vr": "PN", "Value": [{"Alphabetic": f"{FILLED}^A"}]}}))
    (tmp_path / "c.json").write_text("{")
    report = scan_folder(tmp_path)
    assert {(one.path.name, one.kind, one.attribute) for one in report.findings} == {
        ("a.json", "identity", "PatientName"),
        ("a.json", "date", "AcquisitionTime"),
        ("a.json", "identity", "InstitutionName"),
        ("a.json", "date", "Nested.PatientBirthDate"),
        ("a.json", "text", "note"),
        ("b.json", "identity", "00100010"),
        ("c.json", "unread", ""),
    }
    assert FILLED not in str(report)


def test_keys_of_a_side_car_are_not_shown_where_they_name_a_patient(tmp_path):
    write_series(tmp_path / "a", FLAT, PatientName="Featherstone^Jane", PatientID="x")
    (tmp_path / "b.json").write_text(json.dumps({"Featherstone_Jane": {"note": "Dr. Okafor"}, "MRN4711081": 1}))
    found = [(one.attribute, one.rule) for one in scan_folder(tmp_path).findings if one.path.name == "b.json"]
    assert found == [
        ("Aaaaaaaaaaaa_Aaaa.note", "holds what looks like a person"),
        ("a key", "holds what looks like a record number"),
        ("a key", "repeats the PatientName"),
    ]


def test_texts_and_exif_of_pictures_are_told(tmp_path):
    picture = Pictures.new("L", (4, 4))
    picture.save(tmp_path / "clean.png")
    texts = PngInfo()
    texts.add_text("Author", FILLED)
    texts.add_itxt("Comment", "taken 2019-03-14", zip=True)
    texts.add_text("Software", "GIMP")
    picture.save(tmp_path / "a.png", pnginfo=texts)
    late = b"Title\0Dr. Okafor's"
    data = (tmp_path / "clean.png").read_bytes()
    chunk = struct.pack(">I", len(late)) + b"tEXt" + late + struct.pack(">I", zlib.crc32(b"tEXt" + late))
    (tmp_path / "late.png").write_bytes(data[:-12] + chunk + data[-12:])
    exif = Pictures.Exif()
    exif[0x013B], exif[0x0132] = FILLED, "2019:03:14 10:11:12"
    exif.get_ifd(0x8825)[1] = "N"
    picture.save(tmp_path / "a.jpg", exif=exif)
    picture.save(tmp_path / "a.tif", description=f"made for Mr {FILLED}")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:30])
    report = scan_folder(tmp_path)
    assert {(one.path.name, one.kind, one.attribute) for one in report.findings} == {
        ("a.png", "identity", "text Author"),
        ("a.png", "text", "text Comment"),
        ("late.png", "text", "text Title"),
        ("a.jpg", "identity", "EXIF Artist"),
        ("a.jpg", "date", "EXIF DateTime"),
        ("a.jpg", "identity", "EXIF GPSInfo"),
        ("a.tif", "text", "EXIF ImageDescription"),
        ("cut.jpg", "unread", ""),
    }
    assert FILLED not in str(report)


def test_names_of_files_are_told_and_masked(tmp_path):
    write_series(tmp_path / "jane featherstone", FLAT, PatientName="Featherstone^Jane", PatientID="x")
    (tmp_path / "MRN4711081").mkdir()
    (tmp_path / "MRN4711081" / "20190314_ct.nii.gz").touch()
    (tmp_path / "notes.txt").write_text("kept")
    report = scan_folder(tmp_path)
    names = {(one.path.as_posix(), one.rule) for one in report.findings if one.kind == "name"}
    assert names == {
        ("aaaa aaaaaaaaaaaa/0001.dcm", "repeats the PatientName"),
        ("AAA9999999/99999999_aa.nii.gz", "looks like a record number"),
        ("AAA9999999/99999999_aa.nii.gz", "looks like a date"),
    }
    assert report.passed == {".txt": 1}
    assert "eatherstone" not in str([*report.rows(), *report.by_file()])


def test_before_is_paired_by_name_and_told_how_far(tmp_path):
    original = tmp_path / "before"
    (first,) = write_series(original / "a", FLAT, PatientName="Featherstone^Jane", PatientID="A-77X9")
    write_series(tmp_path / "after" / "a", FLAT, seed=1, patient="case-7")
    write_series(tmp_path / "after" / "b", FLAT, seed=2, patient="case-7", Manufacturer="Featherstone")
    report = scan_folder(tmp_path / "after", before=original)
    assert (report.paired, report.looked["DICOM"]) == (1, 2)
    assert [(one.path.as_posix(), one.rule) for one in report.findings] == [
        ("b/0001.dcm", "repeats the PatientName"),
    ]
    assert scan_folder(first, before=first).found > 5
    with pytest.raises(CaseError, match="holds no DICOM file to compare with"):
        (tmp_path / "empty.txt").write_text("x")
        scan_folder(first, before=tmp_path / "empty.txt")
    (original / "Featherstone.dcm").write_bytes(first.read_bytes()[:140] + b"\xff" * 40)
    with pytest.raises(CaseError, match="before: 1 of its DICOM files cannot be read"):
        scan_folder(first, before=original)


def test_damaged_empty_and_missing_files_are_told(tmp_path, clean):
    data = clean.read_bytes()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "empty.dcm").touch()
    (tmp_path / "data" / "odd.dcm").write_bytes(data[:140] + b"\xff" * 40)
    (tmp_path / "data" / "fine.dcm").write_bytes(data)
    report = scan_folder(tmp_path / "data")
    assert {(one.path.name, one.kind) for one in report.findings} == {("empty.dcm", "unread"), ("odd.dcm", "unread")}
    for missing, words in ((tmp_path / "none", "no such file or folder"), (tmp_path / "void", "holds no files")):
        (tmp_path / "void").mkdir(exist_ok=True)
        with pytest.raises(CaseError, match=words):
            scan_folder(missing)


@pytest.mark.parametrize(
    ("vr", "text", "nobody"),
    [
        ("PN", "Anonymous^Patient", True),
        ("PN", "ANON00042", True),
        ("LO", "REMOVED", True),
        ("LO", "XXXX", True),
        ("LO", "de-identified", True),
        ("PN", "Anna^Nona", False),
        ("LO", "Patient 4711081", False),
        ("DA", "20000101", True),
        ("DA", "1900-01-01", True),
        ("DA", "20000102", False),
        ("TM", "000000.00", True),
        ("TM", "120000", True),
        ("TM", "131415", False),
        ("DT", "19700101000000", True),
        ("AS", "000Y", True),
        ("AS", "042Y", False),
        ("CS", "O", True),
        ("CS", "F", False),
        ("DS", "0.0", True),
    ],
)
def test_dummies_are_known(vr, text, nobody):
    assert names_nobody(vr, text) is nobody


@settings(deadline=None, max_examples=30)
@given(st.text(min_size=1, max_size=40))
def test_a_mask_holds_no_letter_or_digit_of_a_value(text):
    rest = mask(text).partition("... (")[0]
    assert {letter for letter in rest if letter.isalnum()} <= {"A", "a", "9"}
    assert shown(Path("a") / "b", {"b"}) == "a/a"


@settings(deadline=None, max_examples=30)
@given(st.from_regex(r"[B-DF-HJ-MP-TV-Z][aeiou][b-df-hj-np-tv-z]{3,8}", fullmatch=True))
def test_any_name_of_a_person_is_found_wherever_it_is_repeated(name):
    dataset = Dataset()
    dataset.PatientIdentityRemoved, dataset.DeidentificationMethod = "YES", "none"
    dataset.PatientName, dataset.PatientID = f"{name}^Q", "case-1"
    dataset.PositionReferenceIndicator = f"for_{name.upper()}_again"
    if not names_nobody("PN", f"{name}^Q"):
        assert {"PatientName", "PositionReferenceIndicator"} <= {one.attribute for one in found_in(dataset)}
    assert not like_pseudonym(name)


def test_files_whose_names_begin_with_a_dot_are_looked_at(clean, tmp_path):
    folder = tmp_path / "released"
    (folder / ".kept").mkdir(parents=True)
    dataset = pydicom.dcmread(clean)
    dataset.PatientName = "Doe^Jane"
    dataset.save_as(folder / ".kept" / "a.dcm")
    dataset.save_as(folder / ".b.dcm")
    (folder / ".medimg_eval_index.parquet").write_bytes(b"PAR1")
    report = scan_folder(folder)
    assert report.looked["DICOM"] == 2
    assert {one.path.as_posix() for one in report.findings if one.attribute == "PatientName"} == {
        ".b.dcm",
        ".kept/a.dcm",
    }
    (index,) = (one for one in report.findings if one.path.name == ".medimg_eval_index.parquet")
    assert (index.kind, index.level) == ("identity", "found")
    assert "delete it" in index.rule


def test_what_is_left_out_as_naming_nobody_is_counted_by_kind(dataset, tmp_path):
    dataset.PatientBirthDate, dataset.StudyDate, dataset.StudyTime = "19770101", "20200101", "120000"
    dataset.PatientName, dataset.AccessionNumber = "ANON", ""
    left_out = Counter()
    header_findings(dataset, Path("a.dcm"), left_out=left_out)
    assert left_out["dates on 1 January, or of a year alone"] >= 2
    assert left_out["hours of midnight or noon"] >= 1
    assert left_out["words such as ANON, and letters repeated"] >= 1
    folder = tmp_path / "released"
    folder.mkdir()
    (folder / "a.json").write_text('{"PatientBirthDate": "19770101"}')
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    report = scan_folder(folder)
    assert report.left_out == {"dates on 1 January, or of a year alone": 1, "links to files that are not there": 1}
    said = " ".join(phi_scan._scan_notes(report))
    assert "1 x dates on 1 January" in said
    assert "1 x links to files that are not there" in said
