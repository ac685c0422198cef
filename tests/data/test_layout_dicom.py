"""Trees of DICOM files: series, pictures, segmentations that refer to them, tables beside them."""

from dataclasses import replace

import numpy as np
import pydicom
import pytest
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from medimg_eval.case import Image, Mask
from medimg_eval.data.layouts import DicomTree, ReferencedMask
from medimg_eval.data.layouts.dicom import referenced_series
from medimg_eval.data.splits import SplitLists
from medimg_eval.data.targets import BoxColumns, ClassColumns, MaskTarget, TableTarget
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.identity import data_fingerprint
from medimg_eval.imaging import write_mask
from medimg_eval.imaging.dicom.writing.images import write_picture, write_segmentation, write_series
from medimg_eval.patients import patient_key

AFFINE = np.array([[-1.0, 0, 0, 10], [0, -1, 0, 20], [0, 0, 2.5, -30], [0, 0, 0, 1]])
SHAPE = (9, 8, 4)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Two patients: a CT each, shuffled names; a SEG of the first; a localizer of the second."""
    root = tmp_path_factory.mktemp("tree")
    rng = np.random.default_rng(0)
    labels = (rng.random(SHAPE) > 0.5).astype(np.uint8) * 2
    for number, patient in enumerate(("DOE^JANE", "ROE^RICHARD")):
        image = Image(rng.integers(-100, 100, (1, *SHAPE)).astype(np.int16), AFFINE, modality="CT")
        paths = write_series(root / f"case{number}", image, names="shuffled", seed=number, patient=patient)
        if number == 0:
            write_segmentation(
                root / "objects" / "seg", Mask(labels, AFFINE), paths, names={2: "lesion"}, kind="LABELMAP"
            )
    write_series(
        root / "scout",
        Image(np.zeros((1, 9, 8, 1), np.int16), AFFINE),
        seed=9,
        patient="ROE^RICHARD",
        ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"],
    )
    return root, labels


def tree_of(root, tmp_path, **settings):
    return DicomTree(root=str(root), cache=str(tmp_path), filters={"modality": "CT", "localizer": False}, **settings)


def test_a_series_is_a_case_with_the_segmentation_that_refers_to_it(tree, tmp_path):
    root, labels = tree
    (case,) = tree_of(root, tmp_path, target=ReferencedMask({3: "lesion"}), unlabelled="skip").cases("test")
    image, mask = case.images[0].read(), case.target.read()
    assert len(case.images[0].files) == 4
    assert image.geometry.difference(mask.geometry) is None
    np.testing.assert_array_equal(mask.labels, labels // 2 * 3)
    assert case.target.files == (root / "objects" / "seg",)
    assert case.attributes["modality"] == "CT"


def test_a_series_without_a_segmentation_is_named_unless_it_may_be_skipped(tree, tmp_path):
    with pytest.raises(UserError, match=r"case1/.*: no SEG or RTSTRUCT below .*unlabelled=skip"):
        tree_of(tree[0], tmp_path, target=ReferencedMask()).cases("test")


def test_two_segmentations_of_a_series_are_named(tree, tmp_path):
    path = tree[0] / "objects" / "seg"
    copy = pydicom.dcmread(path)
    copy.SeriesInstanceUID = copy.SOPInstanceUID = copy.file_meta.MediaStorageSOPInstanceUID = "1.2.3"
    second = path.with_name("seg2")
    copy.save_as(second)
    try:
        with pytest.raises(UserError, match=r"seg2?: is drawn on the same series as .*seg2?; keep one"):
            tree_of(tree[0], tmp_path, target=ReferencedMask(), unlabelled="skip").cases("test")
    finally:
        second.unlink()


def test_structure_sets_name_their_series_deeper_down(tmp_path):
    series, study, frame, dataset = Dataset(), Dataset(), Dataset(), Dataset()
    series.SeriesInstanceUID = "1.2.840.1"
    study.RTReferencedSeriesSequence = Sequence([series])
    frame.RTReferencedStudySequence = Sequence([study])
    dataset.ReferencedFrameOfReferenceSequence = Sequence([frame])
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.save_as(tmp_path / "rs.dcm", enforce_file_format=False)
    whole = pydicom.dcmread(tmp_path / "rs.dcm", force=True)
    whole.SOPClassUID, whole.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.481.3", "1.2.3.4"
    whole.save_as(tmp_path / "rs.dcm", enforce_file_format=True)
    assert referenced_series(tmp_path / "rs.dcm") == {"1.2.840.1"}


def test_nobodys_name_leaves_the_tree(tree, tmp_path):
    cases = tree_of(tree[0], tmp_path, target=MaskTarget("masks/{series}.nii.gz")).cases("test")
    said = repr([(case.id, case.patient, case.attributes) for case in cases])
    assert "DOE" not in said
    assert "ROE" not in said
    assert len({case.patient for case in cases}) == 2
    assert {case.patient for case in cases} == {patient_key(name) for name in ("DOE^JANE", "ROE^RICHARD")}
    same = tree_of(tree[0], tmp_path, patient="{patient}", target=MaskTarget("masks/{series}.nii.gz")).cases("test")
    assert {case.id: case.patient for case in same} == {case.id: case.patient for case in cases}


def test_words_of_the_header_may_name_a_case_but_not_its_patient(tree, tmp_path):
    named = tree_of(tree[0], tmp_path, patient="{patient:.3}", target=MaskTarget("masks/{patient}.nii.gz"))
    cases = named.cases("test")
    found = {case.patient: case.target.files[0].name for case in cases}
    assert found == {patient_key("DOE"): "DOE^JANE.nii.gz", patient_key("ROE"): "ROE^RICHARD.nii.gz"}


def test_another_salt_changes_keys_and_not_the_data(tree, tmp_path, monkeypatch):
    layout = tree_of(tree[0], tmp_path, target=MaskTarget("masks/{series}.nii.gz"))
    before = layout.cases("test")
    (tmp_path / "salt").write_text("another one, of a lab")
    monkeypatch.setenv("MEDIMG_EVAL_SALT", str(tmp_path / "salt"))
    after = layout.cases("test")
    assert [case.id for case in after] == [case.id for case in before]
    assert not {case.patient for case in after} & {case.patient for case in before}
    assert data_fingerprint(after) == data_fingerprint(before)
    together = [replace(case, patient=after[0].patient) for case in after]
    assert data_fingerprint(together) != data_fingerprint(after)


def test_masks_may_be_found_by_a_pattern_of_the_series(tree, tmp_path):
    root, labels = tree
    cases = tree_of(root, tmp_path, id="{folder}", target=MaskTarget("../masks/{folder}.nii.gz")).cases("test")
    (case,) = (case for case in cases if case.id == "case1")
    (root.parent / "masks").mkdir(exist_ok=True)
    write_mask(root.parent / "masks" / "case1.nii.gz", Mask(labels, AFFINE))
    np.testing.assert_array_equal(case.target.read().labels, labels)


def test_patients_are_split_by_the_authors_list(tree, tmp_path):
    (tree[0] / "test.txt").write_text("ROE^RICHARD\n")
    splits = SplitLists({"test": "test.txt"}, key="{patient}")
    (case,) = tree_of(tree[0], tmp_path, id="{folder}", splits=splits, target=MaskTarget("{folder}.nii.gz")).cases(
        "test"
    )
    assert case.id == "case1"


@pytest.fixture
def xrays(tmp_path):
    """As RSNA's: one file per patient, and a table with one row per box."""
    root = tmp_path / "rsna"
    for number, name in enumerate(("a1", "b2", "c3")):
        pixels = np.full((1, 8, 9), 50 * number, np.uint16)
        write_picture(
            root / f"{name}.dcm", Image(pixels, np.eye(4)), modality="CR", seed=number, patient=name, ViewPosition="PA"
        )
    (root / "labels.csv").write_text("patientId,x,y,width,height,Target\na1,2,1,2,3,1\na1,0,0,1,1,1\nb2,,,,,0\n")
    return {"root": str(root), "cache": str(tmp_path), "id": "{stem}"}


BOXES = BoxColumns(["x", "y", "width", "height"], "sizes", name="opacity")


def test_tables_are_joined_by_what_names_the_image(xrays):
    cases = DicomTree(**xrays, target=TableTarget("labels.csv", "patientId", BOXES, absent="empty")).cases("test")
    assert [(case.id, len(case.target.read().names)) for case in cases] == [("a1", 2), ("b2", 0), ("c3", 0)]
    assert int(cases[1].images[0].read().array.max()) == 50
    assert cases[0].attributes == {"modality": "CR", "body_part": "CHEST", "view": "PA", "laterality": "U"}
    by_series = TableTarget(
        "labels.csv", "patientId", ClassColumns({"opacity": "Target"}), key_is="{patient}", absent="empty"
    )
    findings = DicomTree(**xrays, target=by_series).cases("test")
    np.testing.assert_array_equal([case.target.read().values["opacity"] for case in findings], [1, 0, np.nan])


def test_an_image_that_the_table_misses_is_named(xrays):
    with pytest.raises(UserError, match=r"c3\.dcm: case 'c3': .*labels\.csv has no row with 'c3' in 'patientId'"):
        DicomTree(**xrays, target=TableTarget("labels.csv", "patientId", BOXES)).cases("test")


def test_images_that_share_an_id_are_numbered(xrays):
    cases = DicomTree(**{**xrays, "id": "{folder}"}, target=MaskTarget("{stem}.png")).cases("test")
    assert [case.id for case in cases] == [".-1", ".-2", ".-3"]


def test_a_damaged_file_of_the_tree_is_a_case_that_fails_by_its_name(xrays, tmp_path):
    data = (tmp_path / "rsna/a1.dcm").read_bytes()
    (tmp_path / "rsna/a1.dcm").write_bytes(data[:200])
    cases = DicomTree(**xrays, target=MaskTarget("{stem}.png")).cases("test")
    assert sorted(case.id for case in cases) == ["a1", "b2", "c3"]
    with pytest.raises(CaseError, match=r"rsna.*a1"):
        next(case for case in cases if case.id == "a1").images[0].read()
