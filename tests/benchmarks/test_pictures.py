"""Kvasir-SEG, DRIVE and CHASE_DB1 at the size they were taken; vessels by their centrelines."""

import numpy as np
import pytest

from tests.helpers.benchmark_files import ids, picture, scores, task

SHAPE = (40, 60)


def vessel(thickness=5, length=slice(10, 50)):
    mask = np.zeros(SHAPE, np.uint8)
    mask[18 : 18 + thickness, length] = 255
    return mask


def test_kvasirs_masks_are_cut_at_the_middle(tmp_path):
    mask = np.zeros((*SHAPE, 3), np.uint8)
    mask[10:30, 10:30], mask[:5] = 250, 9  # JPEG's ringing
    for name in ("a", "b", "c"):
        picture(tmp_path / f"images/{name}.jpg", np.zeros((*SHAPE, 3)))
        picture(tmp_path / f"masks/{name}.jpg", mask)
    (tmp_path / "train.txt").write_text("a\nb\n")
    (tmp_path / "val.txt").write_text("c\n")
    one = task("kvasir_seg", tmp_path)
    (case,) = one.cases("test")
    assert (case.id, case.images[0].path.name) == ("c", "c.jpg")
    truth = case.target.read().labels
    assert np.count_nonzero(truth) == pytest.approx(400, abs=40)
    assert not truth[:5].any()
    assert scores(one, case, truth, "iou") == {"polyp": 1.0}


@pytest.fixture
def drive(tmp_path):
    for split, numbers in (("training", (21, 22)), ("test", (1,))):
        for number in numbers:
            picture(tmp_path / f"{split}/images/{number:02d}_{split}.tif", np.zeros((*SHAPE, 3)))
            picture(tmp_path / f"{split}/1st_manual/{number:02d}_manual1.gif", vessel())
            picture(tmp_path / f"{split}/mask/{number:02d}_{split}_mask.gif", np.full(SHAPE, 255))
    return tmp_path


def test_drives_manual_segmentations_belong_to_their_images(drive):
    one = task("drive", drive)
    (case,) = one.cases("test")
    assert (case.id, case.images[0].path.name) == ("01", "01_test.tif")
    assert sorted([*ids(one.cases("fit")), *ids(one.cases("validate"))]) == ["21", "22"]
    np.testing.assert_array_equal(case.target.read().labels, vessel() > 0)


def test_a_gap_costs_centreline_dice_and_a_part(drive):
    one = task("drive", drive)
    (case,) = one.cases("test")
    whole = (vessel() > 0).astype(np.uint8)
    assert scores(one, case, whole, "cldice") == {"vessel": 1.0}
    broken = whole.copy()
    broken[:, 28:32] = 0
    assert 0.85 < scores(one, case, broken, "cldice")["vessel"] < 1
    assert scores(one, case, broken, "betti0_error") == {"vessel": 1.0}


def test_both_eyes_of_a_child_stay_together(tmp_path):
    for child in range(1, 8):
        for eye in "LR":
            picture(tmp_path / f"Image_{child:02d}{eye}.jpg", np.zeros((*SHAPE, 3)))
            for observer in ("1st", "2nd"):
                mask = vessel() if observer == "1st" else np.zeros(SHAPE)
                picture(tmp_path / f"Image_{child:02d}{eye}_{observer}HO.png", mask)
    one = task("chasedb1", tmp_path)
    parts = {part: one.cases(part) for part in ("fit", "validate", "test")}
    assert {part: len(cases) for part, cases in parts.items()} == {"fit": 10, "validate": 2, "test": 2}
    patients = [{case.patient for case in cases} for cases in parts.values()]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 7
    case = parts["test"][0]
    np.testing.assert_array_equal(case.target.read().labels, vessel() > 0)
