"""Splits come from the authors' files, and no patient lies in two."""

import hashlib
import json

import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.data.layouts import FolderPerClass, Table
from medimg_eval.data.splits import SplitColumns, SplitJson, SplitLists, SplitTable
from medimg_eval.data.targets import ClassName
from medimg_eval.errors import SplitError, UserError


@pytest.fixture
def root(tmp_path):
    """Kvasir-Capsule's layout: pictures called VIDEO_FRAME.jpg in one folder per class."""
    for name, folder in (("v1_1", "Polyp"), ("v1_2", "Blood"), ("v2_1", "Polyp"), ("v3_1", "Blood")):
        (tmp_path / folder).mkdir(exist_ok=True)
        Pillow.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / folder / f"{name}.jpg")
    return tmp_path


def layout(root, splits=None, **settings):
    return FolderPerClass(root=str(root), pattern="{class}/{file}", splits=splits, **settings)


def ids(cases):
    return [case.id for case in cases]


def test_without_a_split_all_cases_serve_any(root):
    assert len(layout(root).cases("test")) == 4


def test_lists_of_names_divide_what_folders_hold(root):
    (root / "train.txt").write_text("v1_1\nv2_1\n")
    (root / "test.txt").write_text("v3_1\n")
    made = layout(root, SplitLists({"train": "train.txt", "test": "test.txt"}, key="{stem}"))
    assert ids(made.cases("train")) == ["Polyp/v1_1.jpg", "Polyp/v2_1.jpg"]
    assert ids(made.cases("test")) == ["Blood/v3_1.jpg"]  # v1_2 is listed nowhere
    with pytest.raises(SplitError, match=r"no case of split 'tests'; did you mean 'test'\?"):
        made.cases("tests")


def test_the_digest_of_the_authors_file_is_known(root):
    (root / "test.txt").write_text("v3_1\n")
    made = layout(root, SplitLists({"test": "test.txt"}, key="{stem}"))
    assert made.split_source() == {str(root / "test.txt"): hashlib.sha256(b"v3_1\n").hexdigest()}
    assert layout(root).split_source() == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("v3_1\nv9_9\nv8_8\n", r"test\.txt, line 2: split 'test' lists 'v9_9', 'v8_8', of which .* holds no file"),
        ("v3_1\nv3_1\n", r"test\.txt, line 2: split 'test' lists 'v3_1' a second time"),
    ],
)
def test_a_list_that_does_not_fit_the_files_names_the_line(root, text, words):
    (root / "test.txt").write_text(text)
    with pytest.raises(UserError, match=words):
        layout(root, SplitLists({"test": "test.txt"}, key="{stem}")).cases("test")


def test_more_than_five_lost_names_are_counted(root):
    (root / "test.txt").write_text("".join(f"lost{i}\n" for i in range(8)))
    with pytest.raises(UserError, match=r"'lost4' and 3 more, of which"):
        layout(root, SplitLists({"test": "test.txt"}, key="{stem}")).cases("test")


def folds(root):
    (root / "official.csv").write_text("file;fold\nv1_1.jpg;0\nv2_1.jpg;0\nv1_2.jpg;1\nv3_1.jpg;1\n")
    return SplitTable("official.csv", id="file", split="fold", separator=";", key="{file}")


def test_a_patient_in_two_splits_is_refused_by_name(root):
    made = layout(root, folds(root), patient="{file~^(.+)_}")
    with pytest.raises(
        UserError, match=r"1 patients or cases lie in more than one split: 'v1' \(0, 1\); .*allow_overlap"
    ):
        made.cases("0")


def test_overlap_that_is_accepted_for_a_reason_goes_through(root):
    reason = "the official folds share videos; kept for the published table"
    made = layout(root, folds(root), patient="{file~^(.+)_}", allow_overlap=reason)
    assert [case.patient for case in made.cases("1")] == ["v1", "v3"]


def test_only_five_of_many_offenders_are_shown(tmp_path):
    rows = [f"{split}{i},p{i},{split},a" for i in range(9) for split in ("train", "test")]
    (tmp_path / "t.csv").write_text("id,patient,split,label\n" + "\n".join(rows))
    made = Table(
        root=str(tmp_path), table="t.csv", id="id", patient="patient", split="split", target=ClassName("label", ["a"])
    )
    with pytest.raises(UserError, match=r"9 patients .* 'p4' \(test, train\) and 4 more"):
        made.cases("test")


def test_a_case_in_two_splits_is_refused_even_without_patients(root):
    for name in ("train", "test"):
        (root / f"{name}.txt").write_text("v1_1\n")
    with pytest.raises(UserError, match=r"more than one split: 'Polyp/v1_1\.jpg' \(test, train\)"):
        layout(root, SplitLists({"train": "train.txt", "test": "test.txt"}, key="{stem}")).cases("test")


def test_clams_columns_may_be_of_different_length(root):
    (root / "splits_0.csv").write_text(",train,val,test\n0,v1_1,v2_1,v3_1\n1,v1_2,,\n")
    made = layout(root, SplitColumns("splits_0.csv", key="{stem}"))
    assert [ids(made.cases(split)) for split in ("train", "val", "test")] == [
        ["Polyp/v1_1.jpg", "Blood/v1_2.jpg"],
        ["Polyp/v2_1.jpg"],
        ["Blood/v3_1.jpg"],
    ]


def test_json_of_folds_and_of_one_object(root):
    (root / "splits_final.json").write_text(
        json.dumps([{"train": ["v1_1"], "val": ["v2_1"]}, {"train": [], "val": ["v3_1"]}])
    )
    made = layout(root, SplitJson("splits_final.json", fold=1, key="{stem}"))
    assert ids(made.cases("val")) == ["Blood/v3_1.jpg"]
    (root / "splits.json").write_text(json.dumps({"test": ["v1_1"]}))
    assert ids(layout(root, SplitJson("splits.json", key="{stem}")).cases("test")) == ["Polyp/v1_1.jpg"]
    with pytest.raises(UserError, match=r"splits_final\.json: holds 2 folds, so there is no fold 2"):
        layout(root, SplitJson("splits_final.json", fold=2, key="{stem}")).cases("val")
    with pytest.raises(UserError, match=r"splits_final\.json: expected one list of ids per split; for a list of folds"):
        layout(root, SplitJson("splits_final.json", key="{stem}")).cases("val")


def test_a_patient_that_cannot_be_read_off_names_the_file(root):
    made = layout(root, patient=r"{file~^patient(\d{5})}")
    with pytest.raises(UserError, match=r"v1_2\.jpg: 'v1_2\.jpg' does not fit '{file~\^patient"):
        made.cases("test")
