"""VerSe in its authors' layout and in both of its frames: a field that is read wrongly moves a number here."""

import json
import math
from functools import cache, partial

import lightning.pytorch as pl
import nibabel as nib
import numpy as np
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from medimg_eval.case import Points
from medimg_eval.configs.sources import short_names
from medimg_eval.data.layouts import Volumes
from medimg_eval.data.targets.verse import MiccaiCentroids
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.instantiate import build
from medimg_eval.models import Model
from medimg_eval.tasks.landmarks import LandmarkTask
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate

SHAPE = (30, 60, 20)
STEPS = (1.0, 1.0, 2.0)
FIRST = np.array([-15.0, 40.0, 70.0])
"""Where the centre of the first voxel lies, mm to the right (-: the x axis of RAS points right), front and top."""

# Axes P, I, R: the first runs to the back, the second down, the third to the right.
PIR = np.array([[0, 0, 2.0, FIRST[0]], [-1.0, 0, 0, FIRST[1]], [0, -1.0, 0, FIRST[2]], [0, 0, 0, 1]])

# mm to the right, front and top, as RAS has it.
BODIES = {19: (3.0, 30.0, 60.0), 28: (5.0, 28.0, 45.0), 20: (3.0, 31.0, 30.0)}


def in_voxels(body):
    """Voxels of a body on the stored grid, worked out along each axis by itself."""
    right, front, top = body
    return np.array([FIRST[1] - front, FIRST[2] - top, (right - FIRST[0]) / 2])


def restructured(bodies, direction=("P", "I", "R")):
    """The json of the restructured release: voxels along the axes that its first entry names."""
    entries = []
    for label, body in bodies.items():
        along = dict(zip("PIR", in_voxels(body), strict=True))
        along |= {"A": SHAPE[0] - 1 - along["P"], "S": SHAPE[1] - 1 - along["I"], "L": SHAPE[2] - 1 - along["R"]}
        entries.append({"label": label, **{key: along[axis] for key, axis in zip("XYZ", direction, strict=True)}})
    return [{"direction": list(direction)}, *entries]


def miccai(bodies):
    """The json of the MICCAI release: mm from the voxel that lies highest, foremost and rightmost."""
    rightmost = FIRST[0] + (SHAPE[2] - 1) * 2
    return [
        {"label": label, "X": FIRST[2] - top, "Y": FIRST[1] - front, "Z": rightmost - right}
        for label, (right, front, top) in bodies.items()
    ]


def masks(bodies):
    """A label map with a block of 7 x 7 x 3 voxels about each body, which the body's centre is the middle of."""
    labels = np.zeros(SHAPE)
    for label, body in bodies.items():
        i, j, k = in_voxels(body).astype(int)
        labels[i - 3 : i + 4, j - 3 : j + 4, k - 1 : k + 2] = label
    return labels


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(array, PIR), path)
    return path


@cache
def composed(name):
    with short_names(), initialize_config_module("medimg_eval.configs", version_base="1.3"):
        return compose("test", [f"task={name}"])


PARTS = {
    "verse2019": ("dataset-verse19training", "dataset-verse19validation", "dataset-verse19test"),
    "verse2020": ("dataset-01training", "dataset-02validation", "dataset-03test"),
}


@pytest.fixture
def verse(tmp_path, monkeypatch):
    """Writes a year's layout and returns a function from the name of a task to the task."""

    def write(year, *, content=None):
        for number, (part, patient) in enumerate(zip(PARTS[year], ("verse004", "verse010", "verse500"), strict=True)):
            name = f"sub-{patient}" + ("_dir-iso" if number == 2 else "")
            folder = tmp_path / year / part
            save(folder / "rawdata" / f"sub-{patient}" / f"{name}_ct.nii.gz", masks(BODIES).astype(np.int16))
            truth = folder / "derivatives" / f"sub-{patient}"
            save(truth / f"{name}_seg-vert_msk.nii.gz", masks(BODIES))  # float64, as the authors'
            centroids = truth / f"{name}_seg-subreg_ctd.json"
            centroids.write_text(json.dumps(restructured(BODIES) if content is None else content))
            (truth / f"{name}_seg-vert_snp.png").write_bytes(b"")
        monkeypatch.setenv("MEDIMG_EVAL_DATA", str(tmp_path))

        return lambda name: build(OmegaConf.to_container(composed(name), resolve=True)["task"])

    return write


def by_name(scores):
    return {(score.label, score.metric): score.value for score in scores}


def points(bodies, by=(0, 0, 0)):
    positions = np.array([in_voxels(body) for body in bodies.values()])
    return Points(positions + np.array(by), tuple(str(label) for label in bodies))


@pytest.mark.parametrize("year", PARTS)
def test_cases_of_each_part_are_those_of_its_folder(verse, year):
    make = verse(year)
    for name in (year, f"{year}_landmarks"):
        task = make(name)
        ids = [[case.id for case in task.cases(part)] for part in ("fit", "validate", "test")]
        assert ids == [["sub-verse004"], ["sub-verse010"], ["sub-verse500_dir-iso"]]
        assert task.cases("test")[0].patient == "sub-verse500"


def test_label_28_is_t13_and_20_is_l1(verse):
    task = verse("verse2020")("verse2020")
    (case,) = task.cases("test")
    assert {task.labels[label] for label in (1, 7, 8, 19, 20, 25, 28)} == {"C1", "C7", "T1", "T12", "L1", "L6", "T13"}
    truth = masks(BODIES)
    swapped = truth.copy()
    swapped[truth == 28], swapped[truth == 20] = 20, 28
    values = by_name(task.score(case, swapped.astype(np.int16)))
    assert [values[name, "dice"] for name in ("T12", "T13", "L1")] == [1, 0, 0]


def test_dice_is_the_mean_over_the_labels_of_the_truth(verse):
    task = verse("verse2020")("verse2020")
    (case,) = task.cases("test")
    answer = masks({19: BODIES[19], 20: BODIES[20], 1: (3.0, 20.0, 60.0)}).astype(np.uint8)  # no T13, but a C1
    scores = [score for score in task.score(case, answer) if score.metric == "dice"]
    counted = {score.label: score.value for score in scores if not math.isnan(score.value)}
    assert counted == {"T12": 1, "L1": 1, "T13": 0}
    statuses = {score.label: score.status for score in scores}
    assert (statuses["C1"], statuses["C2"], statuses["T13"]) == ("hallucinated", "absent", "missed")
    distances = by_name(task.score(case, answer))
    assert math.isnan(distances["T13", "hd"])
    assert distances["T12", "hd"] == 0


def test_hausdorff_distances_are_mm_along_the_axis_of_2_mm(verse):
    task = verse("verse2020")("verse2020")
    (case,) = task.cases("test")
    moved = np.roll(masks(BODIES), 1, axis=2).astype(np.uint8)
    assert by_name(task.score(case, moved))["L1", "hd"] == 2


def test_centroids_count_voxels_and_distances_mm(verse):
    task = verse("verse2020")("verse2020_landmarks")
    (case,) = task.cases("test")
    np.testing.assert_allclose(case.target.read().positions[0], [10, 10, 9])
    for moved, distance in (((1, 0, 0), 1), ((0, 0, 1), 2), ((3, 4, 0), 5), ((0, 0, 9), 18), ((0, 0, 11), 22)):
        scores = by_name(task.score(case, points(BODIES, by=moved)))
        for name in ("T12", "T13", "L1"):
            assert scores[name, "landmark_distance"] == pytest.approx(distance)
            assert scores[name, "sdr@20"] == (distance <= 20)


@pytest.mark.parametrize("direction", ["PIR", "ASL", "LAS", "IPL", "RAI", "SRA"])
def test_whatever_axes_the_file_names_the_points_are_where_they_are(verse, direction):
    task = verse("verse2019", content=restructured(BODIES, direction))("verse2019_landmarks")
    (case,) = task.cases("test")
    scores = task.score(case, points(BODIES))
    assert {score.value for score in scores if score.metric == "landmark_distance"} == {0}
    assert {score.label for score in scores} == {"T12", "T13", "L1"}


def test_identification_by_the_authors_rule_on_a_spine_of_three(verse):
    task = verse("verse2020")("verse2020_landmarks")
    (case,) = task.cases("test")
    # T12 right, T13 at L1's place (15 mm off, L1 is nearer), no L1, and a C3 that nobody has.
    answer = Points(np.array([in_voxels(BODIES[19]), in_voxels(BODIES[20]), [5.0, 5, 5]]), names=("T12", "T13", "C3"))
    hits = {s.label: (s.value, s.status) for s in task.score(case, answer) if s.metric == "identified"}
    assert hits["T12"] == (1, "present")
    assert hits["T13"] == (1, "present")  # L1 is not in both lists, so that nothing else is near
    assert hits["L1"] == (0, "missed")
    assert hits["C3"][1] == "hallucinated"
    both = Points(
        np.array([in_voxels(BODIES[19]), in_voxels(BODIES[20]), in_voxels(BODIES[20])]), names=("T12", "T13", "L1")
    )
    assert by_name(task.score(case, both))["T13", "identified"] == 0


def test_centroids_of_nan_are_vertebrae_that_are_not_there(verse):
    content = [*restructured({19: BODIES[19]}), {"label": 20, "X": math.nan, "Y": math.nan, "Z": math.nan}]
    task = verse("verse2020", content=content)("verse2020_landmarks")
    (case,) = task.cases("test")
    assert {score.label for score in task.score(case, points({19: BODIES[19]}))} == {"T12"}
    assert {score.label for score in task.worst(case)} == {"T12"}


class ShiftedByAVoxel(Model):
    """Knows the bodies, but for L1, and is 2 mm off."""

    def detect(self, prompts):
        assert all(prompt.labels[28] == "T13" for prompt in prompts)
        return [points({19: BODIES[19], 28: BODIES[28]}, by=(0, 0, 1)) for _ in prompts]


@pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`")
@pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec")
def test_a_model_is_asked_for_the_points_and_its_run_has_verses_numbers(verse, tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    settings = Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    task = verse("verse2020")("verse2020_landmarks")
    folder = evaluate(task, ModelSpec("Shifted", ShiftedByAVoxel, {}, load=ShiftedByAVoxel), settings)
    check_rows("verse2020_landmarks", folder)
    found = {row["metric"]: row["mean"] for row in json.loads((folder / "summary.json").read_text())["metrics"]}
    assert found == {"id_rate": pytest.approx(2 / 3), "d_mean": pytest.approx(2), "sdr@20": pytest.approx(2 / 3)}


# The MICCAI release: files beside each other, centroids in mm and without a direction.


@pytest.fixture
def challenge(tmp_path):
    def write(content):
        save(tmp_path / "verse014.nii.gz", np.zeros(SHAPE, np.int16))
        save(tmp_path / "verse014_seg.nii.gz", masks(BODIES))
        (tmp_path / "verse014_ctd.json").write_text(json.dumps(content))
        (tmp_path / "cases.csv").write_text("case,split\nverse014,test\n")
        layout = Volumes(
            root=str(tmp_path),
            image="{case}.nii.gz",
            table="cases.csv",
            target=MiccaiCentroids("{case}_ctd.json"),
        )
        task = LandmarkTask(name="verse", layout=layout, labels={19: "T12", 20: "L1", 28: "T13"})
        return task, task.cases("test")[0]

    return write


def test_both_frames_give_the_same_points(challenge):
    task, case = challenge(miccai(BODIES))
    assert miccai({20: BODIES[20]}) == [{"label": 20, "X": 40, "Y": 9, "Z": 20}]  # mm, of which Z are ten voxels
    found = case.target.read()
    np.testing.assert_allclose(found.positions, points(BODIES).positions)
    assert found.names == ("19", "28", "20")
    assert {s.value for s in task.score(case, points(BODIES)) if s.metric == "landmark_distance"} == {0}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (restructured(BODIES), "without 'direction'.*VertebraCentroids"),
        ([{"label": 1, "X": 1, "Y": 2}], "a centroid is not understood"),
        ([{"label": "L1", "X": 1, "Y": 2, "Z": 3}], "a centroid is not understood"),
        ({"label": 1}, "expected a list of centroids"),
    ],
)
def test_centroids_in_mm_that_cannot_be_placed_name_the_file(challenge, content, words):
    _, case = challenge(content)
    with pytest.raises(CaseError, match=f"verse014_ctd.json: .*{words}"):
        case.target.read()


def test_the_release_in_mm_is_not_taken_for_voxels(verse):
    task = verse("verse2020", content=miccai(BODIES))("verse2020_landmarks")
    (case,) = task.cases("test")
    with pytest.raises(UserError, match="holds no 'direction'"):
        task.score(case, points(BODIES))
    assert all(math.isnan(score.value) for score in task.worst(case))


def test_entries_of_nan_are_left_out_and_files_are_named(challenge, tmp_path):
    _, case = challenge([*miccai({19: BODIES[19]}), {"label": 20, "X": math.nan, "Y": 1, "Z": 1}])
    assert case.target.read().names == ("19",)
    assert case.target.files == (tmp_path / "verse014_ctd.json",)
    (tmp_path / "verse014_ctd.json").write_text("[")
    with pytest.raises(CaseError, match="verse014_ctd.json"):
        case.target.read()
