"""Class probabilities from the model to the table: asked for, checked, stored, judged."""

import json
import math
from dataclasses import replace
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
import torch
from answering import Thresholds
from monai.transforms import CropForegroundd, Flipd, Spacingd
from torch import nn

from medimg_eval.case import Case, Image, Mask, Probabilities, Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.plan import refuse_incapable
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging import ImageFile, MaskFile, read, write_mask
from medimg_eval.imaging.volumes.reading import read_probabilities, write_probabilities
from medimg_eval.metrics.segmentation.probability_maps import probability_scores, worst_probability_scores
from medimg_eval.models import Segmenter
from medimg_eval.models.segmentation.monai import MonaiSegmenter
from medimg_eval.models.segmentation.postprocess import KeepLargest
from medimg_eval.tasks import SegmentationTask
from tests.conftest import AFFINE, LABELS, SHAPE, ellipsoid, ellipsoids
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate, rescore

METRICS = ["dice", "ece@15", "brier", "soft_dice"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:Using a non-tuple sequence for multidimensional indexing"),
]


def soft(labels, sure=0.75, seed=0, affine=AFFINE, classes=3):
    """Probabilities whose most probable class is that of a label map: `sure` or a little less, the rest at random."""
    rng = np.random.default_rng(seed)
    certain = rng.uniform(sure - 0.1, sure, labels.shape)
    others = rng.dirichlet(np.ones(classes - 1), labels.shape) * (1 - certain)[..., None]
    array = np.empty((classes, *labels.shape), np.float32)
    rest = np.zeros(labels.shape, int)
    for channel in range(classes):
        here = labels == channel
        array[channel] = np.where(
            here, certain, np.take_along_axis(others, np.minimum(rest, classes - 2)[..., None], -1)[..., 0]
        )
        rest += ~here
    return Probabilities(array, tuple(range(classes)), affine)


class Soft(Segmenter):
    """Knows the answer from the grey levels, and is never quite sure of it."""

    file_arguments = ()

    def segment(self, prompts):
        return [np.digitize(prompt.image.array[0], (50, 150)) for prompt in prompts]

    def give_probabilities(self, prompts):
        return [
            soft(labels, affine=prompt.image.affine)
            for prompt, labels in zip(prompts, self.segment(prompts), strict=True)
        ]


@pytest.fixture
def task(write_dataset):
    return ellipsoids(write_dataset(2), metrics=METRICS)


def values(scores):
    return {(score.label, score.metric): score.value for score in scores}


# The hand-worked case


def pixels(tmp_path, **changes):
    """A task of one picture with four pixels, of which the last two are the label."""
    write_mask(tmp_path / "a.nii.gz", Mask(np.array([[0, 0, 1, 1]], np.uint8), np.eye(4)))
    case = Case("a", (ImageFile(tmp_path / "a.nii.gz"),), MaskFile(tmp_path / "a.nii.gz"))
    return case, SegmentationTask(
        **({"name": "x", "layout": None, "labels": {1: "core"}, "metrics": METRICS} | changes)
    )


def test_one_row_of_four_pixels_by_hand(tmp_path):
    case, task = pixels(tmp_path, metrics=["dice", "ece@2", "brier", "soft_dice"])
    core = np.array([[0.25, 0.5, 0.75, 1.0]], np.float32)
    answer = Probabilities(np.stack([1 - core, core]), (0, 1), np.eye(4))
    # 0.5 is no more probable than the background, which comes first. Bins: [0, 0.5) is 0.25 off, [0.5, 1] is
    # |2 - 2.25| / 3 off. Soft Dice: 2 * 1.75 / (2.5 + 2).
    expected = {"dice": 1.0, "ece@2": (0.25 + 0.25) / 4, "brier": (0.0625 + 0.25 + 0.0625) / 4, "soft_dice": 3.5 / 4.5}
    assert values(task.score(case, answer)) == {("core", name): pytest.approx(v) for name, v in expected.items()}


# The task


def test_models_are_asked_for_probabilities_only_where_a_metric_judges_them(task, write_dataset):
    plain = ellipsoids(write_dataset(1, folder="plain"))
    assert (plain.capability, plain.codec.suffix, plain.asked) == ("segment", ".nii.gz", {})
    assert (task.capability, task.codec.suffix) == ("give_probabilities", ".b2nd")
    assert task.asked == {"probabilities": True}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scores_are_those_of_the_array_and_of_its_most_probable_labels(task, tmp_path, dtype):
    case, answer = task.cases("test")[0], soft(ellipsoid(1))
    answer = replace(answer, array=answer.array.astype(dtype))
    found = values(task.score(case, answer))
    kept = answer.array.astype(np.float32) if dtype == np.float64 else answer.array
    expected = probability_scores(
        ellipsoid(0).astype(int), kept, labels=LABELS, channels=(0, 1, 2), metrics=["ece@15", "brier", "soft_dice"]
    )
    hard = replace(task, metrics=["dice"]).score(case, ellipsoid(1))
    assert found == values(expected) | values(hard)
    task.codec.save(tmp_path / "case00.b2nd", task.accept(case, answer))
    assert values(task.score(case, tmp_path / "case00.b2nd")) == found
    # Judged by masks alone, a run with probabilities needs no other answers.
    assert values(replace(task, metrics=["dice"]).score(case, tmp_path / "case00.b2nd")) == values(hard)


def test_pictures_without_physical_size_are_judged(tmp_path):
    case, task = pixels(tmp_path)
    case.target.path.unlink()
    write_mask(case.target.path, Mask(np.array([[0, 0, 1, 1]], np.uint8), np.eye(4), units="pixel"))
    answer = soft(np.array([[0, 1, 1, 1]]), affine=np.eye(4), classes=2)
    found = values(task.score(case, replace(answer, units="pixel")))
    assert found["core", "dice"] == pytest.approx(0.8)
    assert 0 < found["core", "ece@15"] < 1


def test_a_region_is_as_probable_as_its_labels_together(task):
    case, answer = task.cases("test")[0], soft(ellipsoid(1))
    whole = replace(task, regions={"whole": [1, 2], "core": [1]})
    found = values(whole.score(case, answer))
    alone = probability_scores(
        (ellipsoid(0) > 0).astype(int), 1 - answer.array[:1], labels={1: "whole"}, channels=[1], metrics=["brier"]
    )
    assert found["whole", "brier"] == pytest.approx(alone[0].value, abs=1e-6)
    assert found["core", "brier"] == values(task.score(case, answer))["core", "brier"]
    overlapping = replace(answer, array=np.maximum(answer.array, 0.7))
    with pytest.raises(ValueError, match="labels of 'whole' to add up to 1 at most, got 1.4"):
        whole.score(case, overlapping)


def test_channels_of_one_label_count_together(task):
    case, answer = task.cases("test")[0], soft(ellipsoid(1))
    halves = np.stack([answer.array[0] / 2, answer.array[1], answer.array[2], answer.array[0] / 2])
    split = Probabilities(halves, (0, 1, 2, 0), AFFINE)
    assert split.merged().labels == (0, 1, 2)
    np.testing.assert_allclose(split.merged().array, answer.array, atol=1e-6)
    found = task.score(case, replace(answer, array=answer.array[[2, 0, 1]], labels=(2, 0, 1)))
    assert values(found) == values(task.score(case, answer))


def test_ignored_voxels_count_nowhere(task):
    case, answer = task.cases("test")[0], soft(ellipsoid(1))
    labels = ellipsoid(0)
    labels[:8] = 9
    write_mask(case.target.path, Mask(labels, AFFINE))
    found = values(replace(task, ignore=9).score(case, answer))
    expected = probability_scores(
        labels[8:].astype(int), answer.array[:, 8:], labels=LABELS, channels=(0, 1, 2), metrics=["brier"]
    )
    assert found["core", "brier"] == pytest.approx(expected[0].value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"array": np.zeros((3, 4, 4, 4), np.float32)}, r"probabilities: shape \(4, 4, 4\) instead of .*case00"),
        ({"affine": np.eye(4)}, "another affine"),
        ({"array": np.full((3, *SHAPE), 3.5)}, r"in \[0, 1\], got 3.5 to 3.5; logits need a softmax first"),
        ({"array": np.full((3, *SHAPE), np.nan)}, "got nan to nan"),
        ({"array": np.zeros((3, *SHAPE), int)}, "probabilities as floats .* got int64"),
        ({"labels": (0, 1)}, r"one label for each of 3 channels, got float32 and labels \[0, 1\]"),
        ({"labels": (0, 1, 7)}, r"are for labels \[0, 1, 7\], the task needs one for each of \[0, 1, 2\]"),
    ],
)
def test_probabilities_that_cannot_be_judged_say_why(task, change, words):
    with pytest.raises(CaseError, match=f"case 'case00': .*{words}"):
        task.accept(task.cases("test")[0], replace(soft(ellipsoid(0)), **change))


def test_a_label_map_has_no_probabilities(task, tmp_path):
    case = task.cases("test")[0]
    with pytest.raises(
        CaseError, match="gave ndarray and not Probabilities, which ece@15, brier, soft_dice judge; leave"
    ):
        task.accept(case, ellipsoid(0))
    write_mask(tmp_path / "case00.nii.gz", Mask(ellipsoid(0), AFFINE))
    with pytest.raises(
        CaseError, match="'case00': the prediction was stored as a label map, and ece@15.*run test again"
    ):
        task.score(case, tmp_path / "case00.nii.gz")
    assert isinstance(task.accept(case, case.target.read(), what="reference"), Mask)  # as `check` does


def test_a_failed_case_is_worth_the_worst_of_both_kinds(task):
    case = task.cases("test")[0]
    worst = task.worst(case)
    assert {score.metric: score.value for score in worst} == {"dice": 0, "ece@15": 1, "brier": 1, "soft_dice": 0}
    assert {score.status for score in worst} == {"failed"}
    case.target.path.write_bytes(b"")
    unknown = task.worst(case)
    assert len(unknown) == len(worst)
    assert all(math.isnan(score.value) for score in unknown)
    with pytest.raises(UsageError, match="'dice' judges mask, not probabilities"):
        worst_probability_scores(LABELS, ["dice"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"metrics": ["eece@15"]}, "got 'eece'; did you mean 'ece'"),
        ({"metrics": ["ece"]}, "needs a parameter"),
        ({"metrics": ["ece@2.5"]}, "whole number above 0, got 2.5"),
        ({"metrics": ["brier", "brier"]}, "name each metric once"),
        ({"metrics": ["dice", "brier"], "monitor": "ece@0"}, "whole number above 0, got 0"),
        ({"monitor": "soft_dice"}, "monitor 'soft_dice' needs probabilities.*add it to them"),
        ({"metrics": ["brier", "recist_diameter"]}, "metric is invalid"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_when_the_task_is_made(settings, words):
    with pytest.raises(UsageError, match=words):
        SegmentationTask(**({"name": "x", "layout": None, "labels": {1: "core"}} | settings))


def test_the_signature_names_the_bins(write_dataset, task):
    plain = ellipsoids(write_dataset(1, folder="plain")).signature()
    assert "bins" not in plain
    assert "label maps of the most probable class, bins of equal width ece@15 15, empty masks" in task.signature()
    assert replace(task, metrics=["brier"]).signature() == "label maps of the most probable class"


# The file


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_what_is_written_is_read_back(tmp_path, shape, dtype):
    array = np.random.default_rng(0).dirichlet(np.ones(3), shape).astype(dtype)
    written = Probabilities(np.moveaxis(array, -1, 0), (0, 2, 5), AFFINE, "pixel")
    write_probabilities(tmp_path / "a.b2nd", written)
    assert [path.name for path in tmp_path.iterdir()] == ["a.b2nd"]
    found = read_probabilities(tmp_path / "a.b2nd")
    assert (found.labels, found.units, found.array.dtype) == (written.labels, "pixel", dtype)
    np.testing.assert_array_equal(found.array, written.array)
    np.testing.assert_array_equal(found.affine, AFFINE)
    if len(shape) == 3:
        np.testing.assert_array_equal(read(tmp_path / "a.b2nd").array, written.array)


def test_files_that_hold_no_probabilities_are_refused(tmp_path):
    with pytest.raises(CaseError, match=r"gone\.b2nd: no such file"):
        read_probabilities(tmp_path / "gone.b2nd")
    write_probabilities(tmp_path / "a.b2nd", soft(ellipsoid(0)))
    content = (tmp_path / "a.b2nd").read_bytes()
    for spoiled in (b"", b"something else", content[: len(content) // 2]):
        (tmp_path / "a.b2nd").write_bytes(spoiled)
        with pytest.raises(CaseError, match=r"a\.b2nd: holds no probabilities, or is damaged .*run test again"):
            read_probabilities(tmp_path / "a.b2nd")
    with pytest.raises(CaseError, match=r"expected a name that ends in \.b2nd"):
        write_probabilities(tmp_path / "a.npz", soft(ellipsoid(0)))
    with pytest.raises(CaseError, match="expected floats to write as probabilities, got int64"):
        write_probabilities(tmp_path / "a.b2nd", Probabilities(np.zeros((2, 3, 3), int), (0, 1), AFFINE))


# MonaiSegmenter


class Voxelwise(nn.Module):
    """Logits from grey levels alone."""

    def __init__(self, axes=3):
        super().__init__()
        self.levels = nn.Parameter(torch.tensor([0.0, 100.0, 200.0]).view(1, -1, *(1,) * axes))

    def forward(self, shown):
        return -(((shown - self.levels) / 60) ** 2)


def bright(shown):
    return shown > 120


def prompted(seed=0, plane=None):
    labels = ellipsoid(seed)
    shown = np.choose(labels, [0, 100, 200]) + np.random.default_rng(seed).normal(0, 40, SHAPE)
    image = Image((shown if plane is None else shown[..., plane])[None], AFFINE, "MR")
    return Prompt("case", (image,), LABELS)


@torch.inference_mode()
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"flips": [0, 1], "rotations": True},
        {"stitch_half": True},
        {"preprocess": [Flipd("image", 0)]},
        {"preprocess": [CropForegroundd("image", "image", select_fn=bright)]},
        {"preprocess": [Spacingd("image", (2, 2, 2))]},
        {"preprocess": [Spacingd("image", (2, 2, 2)), CropForegroundd("image", "image", select_fn=bright)]},
    ],
    ids=["plain", "views", "half", "flipped", "cropped", "resampled", "both"],
)
def test_a_networks_label_map_is_that_of_its_probabilities(settings):
    model = MonaiSegmenter(network=Voxelwise(), roi_size=(8, 8, 8), **settings).eval()
    prompt = prompted()
    (answer,), (labels,) = model.give_probabilities([prompt]), model.segment([prompt])
    assert (answer.array.dtype, answer.labels, answer.units) == (np.float32, (0, 1, 2), "mm")
    np.testing.assert_array_equal(answer.most_probable().labels, labels)
    np.testing.assert_allclose(answer.array.sum(0), 1, atol=5e-3)


@torch.inference_mode()
def test_a_networks_probabilities_are_its_softmax():
    prompt, network = prompted(plane=5), Voxelwise(axes=2)
    (answer,) = MonaiSegmenter(network=network, roi_size=(8, 8)).eval().give_probabilities([prompt])
    shown = torch.from_numpy(prompt.image.array.astype(np.float32))[None]
    np.testing.assert_allclose(answer.array, network(shown).softmax(1)[0].numpy(), atol=1e-5)


@torch.inference_mode()
def test_labels_that_a_network_has_no_channel_for_are_impossible():
    model = MonaiSegmenter(network=Voxelwise(), roi_size=(8, 8, 8), classes=[0, 1, 0]).eval()
    (answer,), (labels,) = model.give_probabilities([prompted()]), model.segment([prompted()])
    assert answer.labels == (0, 1, 0, 2)
    assert not answer.array[3].any()
    np.testing.assert_array_equal(answer.most_probable().labels, labels)
    assert answer.merged().labels == (0, 1, 2)


def test_steps_on_label_maps_are_no_steps_on_probabilities():
    model = MonaiSegmenter(network=Voxelwise(), roi_size=(8, 8, 8), postprocess=[KeepLargest()])
    with pytest.raises(UserError, match=r"set model\.postprocess=\[\], or leave metrics of probabilities out"):
        model.give_probabilities([prompted()])


# The flow


def candidate(wrapper=Soft):
    return ModelSpec(wrapper.__name__, wrapper, {}, load=wrapper)


def test_a_run_keeps_probabilities_and_is_judged_by_both_kinds(task, tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    settings = Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    refuse_incapable(task, candidate())
    with pytest.raises(UsageError, match=r"Thresholds\) cannot: it has no method give_probabilities"):
        refuse_incapable(task, candidate(Thresholds))
    folder = evaluate(task, candidate(), settings)
    check_rows("probabilities", folder, rtol=1e-5)
    assert sorted(path.name for path in (folder / "predictions").iterdir()) == ["case00.b2nd", "case01.b2nd"]
    rows = pd.read_parquet(folder / "scores.parquet")
    assert (rows[rows["metric"] == "dice"]["value"] == 1).all()
    assert rows[rows["metric"] == "brier"]["value"].between(0.001, 0.2).all()
    shown = json.loads((folder / "summary.json").read_text())["metrics"]
    assert {row["metric"] for row in shown} == set(METRICS)


def test_runs_with_and_without_probabilities_are_two_runs_and_only_the_first_can_be_scored_for_them(
    write_dataset, tmp_path
):
    root = write_dataset(2)
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    settings = Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)
    with_, without = ellipsoids(root, metrics=METRICS), ellipsoids(root, metrics=["dice"])
    labels, probabilities = evaluate(without, candidate(), settings), evaluate(with_, candidate(), settings)
    assert labels != probabilities
    before = (labels / "scores.parquet").read_bytes()
    with pytest.raises(UserError, match="stored as a label map"):
        rescore(labels, with_, workers=0)
    assert (labels / "scores.parquet").read_bytes() == before
    rescore(probabilities, without, workers=0)
    assert (pd.read_parquet(probabilities / "scores.parquet")["value"] == 1).all()
    rescore(probabilities, ellipsoids(root, metrics=["dice", "ece@20"]), workers=0)
    with pytest.raises(UsageError, match="leave metrics of probabilities out of task.metrics"):
        refuse_incapable(with_, candidate(Thresholds))
