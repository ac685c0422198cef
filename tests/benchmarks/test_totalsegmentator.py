"""TotalSegmentator, and MRSegmentator on it and on AMOS: structures by name, labels by number."""

import json

import numpy as np
import pytest

from tests.helpers.benchmark_files import boxes, config, ids, scores, task, volume

CT = "image_id;age;gender;institute;study_type;split;manufacturer;scanner_model;kvp;pathology\n"


def case_of(root, name, modality, structures, labels):
    """A case whose structures have the numbers of `structures`, all but two of them absent."""
    volume(root / name / f"{modality}.nii.gz", labels)
    empty = np.zeros(labels.shape)
    for number, structure in structures.items():
        present = labels == number if number in labels else empty
        volume(root / name / "segmentations" / f"{structure}.nii.gz", present)


def test_the_117_classes_of_ct_are_read_from_their_files(tmp_path):
    labels = boxes(at2=np.s_[:2], at117=np.s_[4:7])
    known = dict(config("totalsegmentator_ct").labels)
    assert (len(known), known[2], known[51], known[117]) == (117, "kidney_right", "heart", "costal_cartilages")
    case_of(tmp_path, "s0004", "ct", known, labels)
    (tmp_path / "meta.csv").write_text(CT + "s0004;50;m;A;x;test;s;b;120;no\ns0005;50;m;A;x;train;s;b;120;no\n")
    one = task("totalsegmentator_ct", tmp_path)
    (case,) = one.cases("test")
    assert ids(one.cases("fit")) == ["s0005"]
    assert case.attributes["kvp"] == "120"
    np.testing.assert_array_equal(case.target.read().labels, labels)
    missed = np.where(labels == 2, 0, np.where(labels == 0, 7, labels))
    found = scores(one, case, missed)
    assert (found["kidney_right"], found["costal_cartilages"]) == (0, 1)
    assert np.isnan(found["pancreas"])  # invented, but the reference has none: not counted
    assert dict(config("totalsegmentator_ct").expected) == {"train": 1082, "val": 57, "test": 89}


def test_mri_has_50_classes_of_its_own(tmp_path):
    labels = boxes(at2=np.s_[:2], at50=np.s_[4:7])
    known = dict(config("totalsegmentator_mri").labels)
    assert (len(known), known[10], known[19], known[50]) == (50, "lung_left", "vertebrae", "brain")
    case_of(tmp_path, "s0001", "mri", known, labels)
    (tmp_path / "meta.csv").write_text("image_id;split\ns0001;test\n")
    one = task("totalsegmentator_mri", tmp_path)
    (case,) = one.cases("test")
    assert case.images[0].read().modality == "MR"
    assert scores(one, case, labels)["brain"] == 1


def test_mrsegmentator_numbers_totalsegmentators_structures_anew(tmp_path):
    names = dict(config("totalsegmentator_mri").labels)
    theirs = boxes(at19=np.s_[:2], at37=np.s_[4:7], at17=np.s_[8:9])  # vertebrae, femur_right, prostate
    case_of(tmp_path, "s0001", "mri", names, theirs)
    (tmp_path / "meta.csv").write_text("image_id;split\ns0001;test\ns0002;train\n")
    one = task("mrsegmentator_totalsegmentator_mri", tmp_path)
    (case,) = one.cases("test")
    ours = boxes(at25=np.s_[:2], at30=np.s_[4:7])  # spine, right_femur; no prostate
    np.testing.assert_array_equal(case.target.read().labels, ours)
    assert {label: value for label, value in scores(one, case, ours).items() if value == 1} == {
        "spine": 1,
        "right_femur": 1,
    }


@pytest.fixture
def amos(tmp_path):
    """Two cases of CT and two of MRI, one of each to train and one to validate."""
    labels = boxes(at5=np.s_[:2], at6=np.s_[3:5], at13=np.s_[6:8], at14=np.s_[9:10])
    lists = {"training": [], "validation": [], "test": [{"image": "./imagesTs/amos_0002.nii.gz"}]}
    for split, suffix, number in (("training", "Tr", 1), ("training", "Tr", 507), ("validation", "Va", 8)):
        lists[split].append({part: f"./{part}s{suffix}/amos_{number:04d}.nii.gz" for part in ("image", "label")})
    lists["validation"].append({"image": "./imagesVa/amos_0600.nii.gz", "label": "./labelsVa/amos_0600.nii.gz"})
    for item in [*lists["training"], *lists["validation"]]:
        volume(tmp_path / item["image"], labels)
        volume(tmp_path / item["label"], labels)
    (tmp_path / "dataset.json").write_text(json.dumps(lists))
    return tmp_path


def test_amos_is_parted_into_ct_and_mri_by_number(amos):
    assert ids(task("amos22_ct", amos).cases("test")) == ["imagesVa/amos_0008.nii.gz"]
    one = task("amos22_mr", amos)
    (case,) = one.cases("test")
    assert (case.id, case.images[0].read().modality) == ("imagesVa/amos_0600.nii.gz", "MR")
    labels = case.target.read().labels
    found = scores(one, case, np.where(labels == 5, 6, labels))
    assert (found["esophagus"], found["duodenum"], found["bladder"]) == (0, 1, 1)
    assert found["liver"] == pytest.approx(2 * 160 / (160 + 320), abs=1e-6)


def test_mrsegmentator_numbers_amos_anew_and_leaves_bladder_and_prostate_out(amos):
    one = task("mrsegmentator_amos_mr", amos)
    cases = one.cases("test")
    assert ids(cases) == ["imagesTr/amos_0507.nii.gz", "imagesVa/amos_0600.nii.gz"]
    ours = boxes(at20=np.s_[:2], at5=np.s_[3:5], at22=np.s_[6:8])  # esophagus, liver, duodenum
    np.testing.assert_array_equal(cases[0].target.read().labels, ours)
    answer = np.where(ours == 0, 40, ours)  # a class that AMOS does not know is no mistake of the answer's
    found = scores(one, cases[0], answer)
    assert len(found) == 13
    assert [found[name] for name in ("esophagus", "liver", "duodenum")] == [1, 1, 1]
    assert np.isnan(found["spleen"])
    assert len(one.labels) == 40
