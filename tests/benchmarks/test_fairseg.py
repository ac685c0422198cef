"""FairSeg: rim and cup from -1 and -2, groups of patients, its own rule for empty masks."""

import numpy as np
import pytest

from medimg_eval.evaluation.plan import judged, task_identity
from medimg_eval.metrics import get
from medimg_eval.metrics.registry import ScoreTable
from tests.helpers.benchmark_files import ids, scores, task

SHAPE = (12, 14)


def disc(rows=slice(2, 8)):
    mask = np.zeros(SHAPE, np.int8)
    mask[rows, 3:9] = -1
    mask[4:6, 5:7] = -2
    return mask


def write(root, name, mask, race, gender=0):
    (root / "data").mkdir(exist_ok=True)
    about = {"race": race, "gender": gender, "ethnicity": -1, "age": 60.5, "language": 0, "maritalstatus": 1}
    objects = {key: np.array(value, dtype=object) for key, value in about.items()}
    np.savez(root / f"data/{name}", slo_fundus=np.full(mask.shape, 7, np.uint8), disc_cup_mask=mask, **objects)


@pytest.fixture
def fairseg(tmp_path):
    for number, race in enumerate((0, 1, 2, 2), start=1):
        write(tmp_path, f"data_{number:05d}.npz", disc(), race)
    lists = tmp_path / "lists/FairSeg_final"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("data_00004.npz\n")
    (lists / "test.txt").write_text("data_00003.npz\ndata_00001.npz\ndata_00002.npz\n")
    return tmp_path


def test_rim_and_cup_are_read_from_their_codes(fairseg):
    one = task("fairseg", fairseg)
    cases = one.cases("test")
    assert ids(cases) == ["data_00003", "data_00001", "data_00002"]
    assert [case.attributes["race"] for case in cases] == ["2", "0", "1"]
    assert cases[0].attributes["ethnicity"] == ""  # -1 is not known
    labels = cases[0].target.read().labels
    assert (np.count_nonzero(labels == 1), np.count_nonzero(labels == 2)) == (32, 4)
    assert (one.labels[1], one.labels[2]) == ("rim", "cup")
    assert scores(one, cases[0], np.where(labels == 2, 1, 0)) == {"rim": 0.0, "cup": 0.0}


def test_its_rule_for_empty_masks_is_the_reverse_of_everyone_elses(fairseg):
    write(fairseg, "data_00001.npz", np.zeros(SHAPE, np.int8), 0)
    one = task("fairseg", fairseg)
    case = one.cases("test")[1]
    answer = np.zeros(SHAPE, np.uint8)
    answer[0, 0] = 1
    assert scores(one, case, answer) == {"rim": 1.0, "cup": 0.0}
    assert scores(one, case, answer, "iou") == {"rim": 1.0, "cup": 0.0}
    assert scores(one, case, answer, "hd95_pooled") == {"rim": 0.0, "cup": 0.0}


def test_its_hd95_is_medpys_which_pools_both_directions(fairseg):
    one = task("fairseg", fairseg)
    case = one.cases("test")[0]
    labels = case.target.read().labels.copy()
    labels[0, 12:] = 1  # two stray pixels of 30 on the predicted rim's border, and of 58 on both
    assert {"hd95", "hd95_pooled"} & set(one.metrics) == {"hd95_pooled"}
    assert scores(one, case, labels, "hd95_pooled")["rim"] == 0
    assert scores(one, case, labels, "hd95")["rim"] > 1


def test_equity_scaled_dice_is_the_overall_over_the_sum_of_the_gaps(fairseg):
    one = task("fairseg", fairseg)
    found = []
    for place, case in enumerate(one.cases("test")):
        labels = case.target.read().labels.copy()
        labels[2 : 2 + place] = 0  # the answer loses rows of the rim, more from one patient to the next
        found.append((case.attributes["race"], scores(one, case, labels)))
    values = [score for _, each in found for score in each.values()]
    rows = ScoreTable(
        case=np.repeat(np.arange(3), 2),
        metric=np.full(6, "dice"),
        label=np.tile(["rim", "cup"], 3),
        value=np.array(values),
        status=np.full(6, "present"),
        attributes={"race": np.repeat([race for race, _ in found], 2)},
        cases=3,
        facts={},
    )
    means = np.array(values).reshape(3, 2).mean(1)
    expected = means.mean() / (1 + np.abs(means - means.mean()).sum())
    assert "es_dice@race" in one.metrics
    assert get("es_dice").function(rows, "race") == pytest.approx(expected)
    assert found[1][1]["rim"] == pytest.approx(2 * 26 / (26 + 32), abs=1e-6)


def test_its_published_protocol_cuts_the_middle_of_picture_and_mask_as_the_authors_do(fairseg):
    tall = np.zeros((14, 664), np.int8)
    tall[5:9, 74:76] = -1  # the first columns of the middle 512 of 664 begin at 664 // 2 - 512 // 2 = 76
    tall[5:9, 76:78] = -2
    write(fairseg, "data_00001.npz", tall, 0)
    both = {name: task("fairseg", fairseg, protocol=name) for name in ("fixed", "published")}
    cases = {name: made.cases("test")[1] for name, made in both.items()}
    labels = cases["published"].target.read().labels
    assert labels.shape == (14, 512)
    assert (np.flatnonzero(labels.any(0)).tolist(), set(labels[5:9, :2].ravel())) == ([0, 1], {2})
    assert cases["published"].images[0].geometry().shape == (14, 512)
    assert both["published"].read_images(cases["published"])[0].array.shape[1:] == (14, 512)
    assert cases["fixed"].target.read().labels.shape == (14, 664)
    assert task_identity(both["fixed"]) != task_identity(both["published"])  # models see other pictures
    signatures = {name: judged(made) for name, made in both.items()}
    assert all(said["signature"].endswith(f", protocol: {name}") for name, said in signatures.items())
    assert "middle 512 x 512" in " ".join(signatures["published"]["notes"])
    assert "middle 512 x 512" not in " ".join(signatures["fixed"]["notes"])
