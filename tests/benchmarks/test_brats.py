"""BraTS: the order of the sequences, the regions of each challenge's own labels, lesions."""

import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.helpers.authors import require_clone
from tests.helpers.benchmark_files import boxes, ids, scores, task, volume

SEQUENCES = ("t1n", "t1c", "t2w", "t2f")


def write(root, case, labels):
    for level, sequence in enumerate(SEQUENCES, start=1):
        volume(root / case / f"{case}-{sequence}.nii.gz", np.full(labels.shape, level))
    volume(root / case / f"{case}-seg.nii.gz", labels)


def folder(root, challenge, labels, patients=5):
    for number in range(patients):
        write(root, f"BraTS-{challenge}-{number:05d}-000", labels)
    return root


EACH = boxes(at1=np.s_[0:2], at2=np.s_[3:5], at3=np.s_[6:8], at4=np.s_[9:12])


@pytest.mark.parametrize(
    ("name", "challenge", "regions"),
    [
        ("brats2023_gli", "GLI", {"WT": (1, 2, 3), "TC": (1, 3), "ET": (3,)}),
        ("brats2024_ssa", "SSA", {"WT": (1, 2, 3), "TC": (1, 3), "ET": (3,)}),
        (
            "brats2024_ped",
            "PED",
            {"WT": (1, 2, 3, 4), "TC": (1, 2, 3), "ET": (1,), "NETC": (2,), "CC": (3,), "ED": (4,)},
        ),
        (
            "brats2024_gli",
            "GLI",
            {"WT": (1, 2, 3), "TC": (1, 3), "NETC": (1,), "SNFH": (2,), "ET": (3,), "RC": (4,)},
        ),
    ],
)
def test_regions_are_those_of_each_challenge(tmp_path, name, challenge, regions):
    labels = np.where(EACH == 4, 0, EACH) if "RC" not in regions and "CC" not in regions else EACH
    one = task(name, folder(tmp_path, challenge, labels))
    case = one.cases("test")[0]
    for region, inside in regions.items():
        answer = np.where(np.isin(labels, inside), labels, 0)
        assert scores(one, case, answer)[region] == 1
        for label in inside:  # each of its labels counts
            assert scores(one, case, np.where(answer == label, 0, answer))[region] < 1
        for label in sorted(set(np.unique(labels)) - {0, *inside}):  # and no other does
            assert scores(one, case, np.where(labels == label, label, answer))[region] == 1


def test_the_four_sequences_are_channels_in_their_order(tmp_path):
    one = task("brats2024_ssa", folder(tmp_path, "SSA", EACH % 4))
    (image,) = one.read_images(one.cases("test")[0])
    assert image.array[:, 0, 0, 0].tolist() == [1, 2, 3, 4]
    assert image.modality == "MR"


def test_time_points_of_a_patient_stay_together(tmp_path):
    for number in range(5):
        for time in (100, 101):
            write(tmp_path, f"BraTS-GLI-{number:05d}-{time}", boxes((2, 2, 2), at1=np.s_[:1]))
    one = task("brats2024_gli", tmp_path)
    parts = {part: one.cases(part) for part in ("fit", "validate", "test")}
    assert {part: len(cases) for part, cases in parts.items()} == {"fit": 6, "validate": 2, "test": 2}
    patients = [{case.patient for case in cases} for cases in parts.values()]
    assert sorted(patient for group in patients for patient in group) == [f"BraTS-GLI-{n:05d}" for n in range(5)]


def lesion(*starts, size=5, shape=(60, 12, 12), label=3):
    labels = np.zeros(shape, np.int16)
    for start in starts:
        labels[start : start + size, 3 : 3 + size, 3 : 3 + size] = label
    return labels


def test_a_lesion_that_is_missed_or_made_up_costs_its_share(tmp_path):
    truth = lesion(2, 30)  # 125 mm3 each, far apart
    one = task("brats2024_ssa", folder(tmp_path, "SSA", truth))
    case = one.cases("test")[0]
    assert scores(one, case, truth, "lesion_dice")["ET"] == 1
    assert scores(one, case, lesion(2), "lesion_dice")["ET"] == 0.5
    assert scores(one, case, lesion(2, 48), "lesion_dice")["ET"] == pytest.approx(1 / 3, abs=1e-6)
    assert scores(one, case, lesion(2), "lesion_hd95")["ET"] == 374 / 2
    assert scores(one, case, lesion(2), "lesion_nsd@1")["ET"] == 0.5


def test_rules_for_small_lesions_are_each_challenges_own(tmp_path):
    truth = lesion(2) + lesion(30, size=3)  # the second has 27 mm3
    ssa = task("brats2024_ssa", folder(tmp_path / "ssa", "SSA", truth))
    gli = task("brats2024_gli", folder(tmp_path / "gli", "GLI", truth))
    assert scores(ssa, ssa.cases("test")[0], lesion(2), "lesion_dice")["WT"] == 1  # <= 50 mm3 does not count
    assert scores(gli, gli.cases("test")[0], lesion(2), "lesion_dice")["WT"] == 0.5  # > 20 mm3 does


def test_without_a_tumour_an_empty_answer_is_perfect(tmp_path):
    one = task("brats2023_gli", folder(tmp_path, "GLI", boxes((4, 4, 4))))
    case = one.cases("test")[0]
    nothing = boxes((4, 4, 4))
    assert set(scores(one, case, nothing).values()) == {1}
    assert set(scores(one, case, nothing, "hd95").values()) == {0}
    assert scores(one, case, boxes((4, 4, 4), at3=np.s_[:2]), "hd95")["ET"] == 374
    assert ids([case])[0].startswith("BraTS-GLI-")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2024 SSA", "2024 PED", "2024 GLI"])
def test_every_column_is_that_of_the_challenges_script(name, monkeypatch):
    clone = require_clone("rachitsaluja/BraTS-2024-Metrics")
    for module in ("cc3d", "medpy.metric"):
        pytest.importorskip(module)
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    monkeypatch.setattr(pd.DataFrame, "append", None, raising=False)  # what brats.load replaces is put back
    monkeypatch.setattr(pd.DataFrame, "replace", pd.DataFrame.replace)
    brats = importlib.import_module("brats")
    challenge = brats.CHALLENGES[name]
    columns = brats.compare(challenge, brats.load(clone, challenge.script), 6)
    assert len(columns) > 8
    for column, counts in columns.items():
        assert counts["equal, masks binary"] == counts["values"] > 0, column
