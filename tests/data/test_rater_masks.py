"""Label maps and classes of several readers, from the files to the scores of a task."""

import nibabel as nib
import numpy as np
import pytest
from entries import entry

from medimg_eval.case import Case, Findings, Image, Mask, Probabilities
from medimg_eval.data import targets
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.tasks import ClassificationTask, SegmentationTask


@pytest.fixture
def root(tmp_path):
    """Three readers' label maps of one case, of which the first two agree on label 1."""
    maps = {"anna": [1, 1, 0, 2], "ben": [1, 1, 2, 0], "cleo": [0, 1, 2, 0]}
    for name, row in maps.items():
        array = np.array(row, np.uint8).reshape(4, 1, 1)
        nib.save(nib.Nifti1Image(array, np.eye(4)), tmp_path / f"case1_{name}.nii.gz")
    return tmp_path


def target(**more):
    return targets.RaterMasks("{case}_{rater}.nii.gz", ["anna", "ben", "cleo"], **more)


def test_readers_are_read_and_fused_label_by_label(root):
    mask = target().reference(entry(root, {})).read()
    assert mask.labels.ravel().tolist() == [1, 1, 2, 0]
    assert [labels.ravel().tolist() for labels in mask.raters] == [[1, 1, 0, 2], [1, 1, 2, 0], [0, 1, 2, 0]]
    assert target(fuse="first").reference(entry(root, {})).read().labels.ravel().tolist() == [1, 1, 0, 2]
    assert target(fuse="staple").reference(entry(root, {})).read().labels.shape == (4, 1, 1)
    assert [path.name for path in target().reference(entry(root, {})).files] == [
        "case1_anna.nii.gz",
        "case1_ben.nii.gz",
        "case1_cleo.nii.gz",
    ]


def test_a_reader_who_did_not_read_is_left_out_if_that_is_allowed(root):
    (root / "case1_cleo.nii.gz").unlink()
    with pytest.raises((UserError, CaseError), match="case1_cleo"):
        target().reference(entry(root, {})).read()
    assert len(target(absent="skip").reference(entry(root, {})).read().raters) == 2
    for path in root.glob("*.nii.gz"):
        path.unlink()
    with pytest.raises(UserError, match="there is no file of the pattern"):
        target(absent="skip").reference(entry(root, {}))


def test_another_grid_is_refused_by_name(root):
    nib.save(nib.Nifti1Image(np.zeros((4, 1, 2), np.uint8), np.eye(4)), root / "case1_ben.nii.gz")
    with pytest.raises(CaseError, match=r"case1_ben.nii.gz: grid is invalid: expected that of .*case1_anna"):
        target().reference(entry(root, {})).read()


def test_settings_that_cannot_be_meant_are_refused():
    with pytest.raises(UsageError, match="two raters or more"):
        targets.RaterMasks("{case}.nii.gz", ["anna", "ben"])
    with pytest.raises(UsageError, match="two raters or more"):
        targets.RaterMasks("{case}_{rater}.nii.gz", ["anna"])
    with pytest.raises(UsageError, match="way to fuse is invalid"):
        target(fuse="mean")


class Known:
    """A target that is there."""

    files = ()

    def __init__(self, value):
        self.value = value

    def read(self):
        return self.value

    def geometry(self):
        return self.value.geometry


def case_of(truth):
    image = Image(np.zeros((4, 1, 1), np.float32), np.eye(4))
    return Case("case1", images=(Known(image),), target=Known(truth))


def test_a_task_judges_masks_and_probabilities_against_readers(root):
    truth = target().reference(entry(root, {})).read()
    names = ["dice", "dice_to_raters", "rater_dice", "brier_to_raters"]
    task = SegmentationTask(name="t", layout=None, labels={1: "liver", 2: "tumour"}, metrics=names)
    rows = {(row.label, row.metric): row.value for row in task.score(case_of(truth), Mask(truth.labels, np.eye(4)))}
    assert rows["liver", "dice"] == 1
    assert rows["liver", "dice_to_raters"] == pytest.approx((1 + 1 + 2 / 3) / 3)
    assert rows["liver", "rater_dice"] == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    assert rows["tumour", "dice_to_raters"] == pytest.approx(2 / 3)
    assert rows["liver", "brier_to_raters"] == pytest.approx((1 - 2 / 3) ** 2 / 4)
    shares = np.stack([1 - np.array([2, 3, 0, 0]) / 3, np.array([2, 3, 0, 0]) / 3, np.zeros(4)])
    soft = Probabilities(shares.reshape(3, 4, 1, 1).astype(np.float32), (0, 1, 2), np.eye(4))
    # A model is asked for probabilities where a metric of them is among the task's.
    task = SegmentationTask(name="t", layout=None, labels=task.labels, metrics=[*names, "brier"])
    rows = {(row.label, row.metric): row.value for row in task.score(case_of(truth), soft)}
    assert rows["liver", "brier_to_raters"] == pytest.approx(0, abs=1e-12)
    with pytest.raises(CaseError, match="expected masks of several readers, got one"):
        task.score(case_of(Mask(truth.labels, np.eye(4))), soft)
    assert {row.status for row in task.worst(case_of(truth))} == {"failed"}


def test_classes_of_readers_are_a_majority_and_are_kept(tmp_path):
    rows = ({"who": "anna", "edema": "1", "mass": "1"}, {"who": "ben", "edema": "1", "mass": "0"})
    found = targets.ClassColumns(["edema", "mass"], reader="who").reference(entry(tmp_path, *rows)).read()
    assert found.values["edema"] == 1
    assert np.isnan(found.values["mass"])  # divided evenly
    assert found.readers["ben"] == {"edema": 1, "mass": 0}
    with pytest.raises(UserError, match="reader is invalid: expected another name"):
        targets.ClassColumns(["edema", "mass"], reader="who").reference(entry(tmp_path, rows[0], rows[0]))


def test_a_task_judges_classes_against_readers():
    readers = {"anna": {"edema": 1.0}, "ben": {"edema": 1.0}, "cleo": {"edema": 0.0}}
    names = ["class_agreement_with_readers", "class_agreement_among_readers"]
    task = ClassificationTask(name="t", layout=None, classes=["edema"], metrics=names)
    case = case_of(Findings({"edema": 1.0}, readers=readers))
    rows = {row.metric: row.value for row in task.score(case, {"edema": 0.7}) if row.metric in names}
    assert rows == {names[0]: pytest.approx(2 / 3), names[1]: pytest.approx(1 / 3)}
