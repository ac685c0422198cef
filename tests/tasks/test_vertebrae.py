"""HealthiVert-GAN's layout on a fixture: losses of height, and grades by thresholds and by a machine."""

from __future__ import annotations

import json
import math
from functools import partial

import lightning.pytorch as pl
import nibabel as nib
import numpy as np
import pytest
from omegaconf import OmegaConf

from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.instantiate import build_task
from medimg_eval.models.precomputed.masks import Precomputed
from medimg_eval.results import build_table, load_runs
from tests.helpers.benchmark_files import config
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate, rescore

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

AFFINE = np.array([[0, 0, -1, 9], [0, -1, 0, 5], [-1, 0, 0, 3], [0, 0, 0, 1.0]])
"""As the authors': stored from top to bottom, front to back, side to side."""

LOSS = {0: 0, 1: 2, 2: 3, 3: 5}
"""Grade -> voxels of 10 that the front third has lost."""


def spine(number, lost):
    """A vertebra of 10 x 12 x 7 voxels among its neighbours, whose front third has lost some height."""
    labels = np.zeros((40, 20, 9))
    for place, label in ((2, number - 1), (15, number), (28, number + 1)):
        labels[place : place + 10, 4:16, 1:8] = label
    if lost > 0:
        labels[15 : 15 + lost, 4:8, 1:8] = 0
    elif lost < 0:
        labels[15 + lost : 15, 4:16, 1:8] = number
    return labels


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Eight patients: four to fit the grader on, and four to judge, of whom one is graded lower than it looks."""
    folder = tmp_path / "data" / "healthivert"
    grades: dict[str, dict[str, int]] = {"train": {}, "test": {}, "val": {}}
    for patient in range(8):
        part = ("train", "test", "train", "val")[patient % 4] if patient != 4 else "val"
        for grade, lost in LOSS.items():
            case = f"sub-verse{patient:03d}_{19 + grade}"
            grades[part][case] = 0 if (patient, grade) == (7, 1) else grade
            for name, labels in (("straightened/label", spine(19 + grade, lost)), ("made", spine(19 + grade, 0))):
                (folder / name).mkdir(parents=True, exist_ok=True)
                nib.save(nib.Nifti1Image(labels, AFFINE), folder / name / f"{case}.nii.gz")
            (folder / "straightened/CT").mkdir(exist_ok=True)
            nib.save(nib.Nifti1Image(labels.astype(np.int16), AFFINE), folder / "straightened/CT" / f"{case}.nii.gz")
    (folder / "vertebra_data.json").write_text(json.dumps(grades))
    monkeypatch.setenv("MEDIMG_EVAL_DATA", str(tmp_path / "data"))
    return folder


@pytest.fixture
def settings(tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    return Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0)


def task(**changes):
    return build_task({**OmegaConf.to_container(config("healthivert"), resolve=True), **changes})


def made(root):
    model = Precomputed(str(root / "made"))
    return ModelSpec("made", Precomputed, {"root": str(root / "made")}, load=lambda: model)


def test_the_machine_is_fitted_on_train_and_test_and_judges_val(root, settings):
    folder = evaluate(task(), made(root), settings)
    check_rows("vertebra", folder)
    (run,) = load_runs([folder])
    losses = run.scores.query("metric == 'rhlv'").set_index(["case", "label"])["value"]
    assert {case for case, _ in losses.index} == {f"sub-verse{n:03d}_{19 + grade}" for n in (3, 4, 7) for grade in LOSS}
    assert losses["sub-verse003_22", "anterior"] == pytest.approx(0.5)  # lower than 0.7 of the middle: of all columns
    assert losses["sub-verse003_22", "posterior"] == 0
    assert losses["sub-verse003_20", "whole"] == pytest.approx(0.2 / 3)
    table = build_table([run])
    cells = dict(zip([column.metric for column in table.columns], table.rows[0].cells, strict=True))
    # Of three of each grade one of grade 1 is called 0 by the truth: recall 3/4 of grade 0, precision 2/3 of grade 1.
    assert cells["genant_recall"].mean == pytest.approx((3 / 4 + 1 + 1 + 1) / 4)
    assert cells["genant_precision"].mean == pytest.approx((1 + 2 / 3 + 1 + 1) / 4)
    assert "fitted on train and test" in " ".join(table.footnotes)


def test_losses_are_signed_and_thresholds_judge_all(root, settings):
    case = "sub-verse000_19"
    nib.save(nib.Nifti1Image(spine(19, -2), AFFINE), root / "straightened/label" / f"{case}.nii.gz")
    (root / "made/sub-verse001_19.nii.gz").unlink()
    nib.save(nib.Nifti1Image(spine(25, 0), AFFINE), root / "made/sub-verse002_19.nii.gz")
    nothing = np.where(spine(20, 0) == 20, 0, 0.0)
    nib.save(nib.Nifti1Image(nothing, AFFINE), root / "made/sub-verse003_20.nii.gz")
    folder = evaluate(task(grader="thresholds"), made(root), settings)
    (run,) = load_runs([folder])
    scores = run.scores.set_index(["case", "metric", "label"])
    assert scores.loc[(case, "rhlv", "whole"), "value"] == pytest.approx(-0.2)
    assert scores.loc[("sub-verse003_20", "rhlv", "whole"), "status"] == "missed"
    for failed in ("sub-verse001_19", "sub-verse002_19"):
        assert scores.loc[(failed, "genant_grade", "0"), "status"] == "failed"
        assert math.isnan(scores.loc[(failed, "genant_grade", "0"), "value"])
    cells = build_table([run]).rows[0].cells
    assert cells[2].mean < 1


def test_a_run_is_graded_otherwise_without_its_model(root, settings):
    folder = evaluate(task(), made(root), settings)
    rescore(folder, task(grader="thresholds", least=[0.25, 0.45, 0.6]), 0)
    (run,) = load_runs([folder])
    grades = run.scores.query("metric == 'genant_grade'").set_index("case")["value"]
    assert len(grades) == 32
    assert [grades[f"sub-verse003_{n}"] for n in (19, 20, 21, 22)] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"grader": "forest"}, UsageError, "got 'forest'"),
        ({"least": [0.4, 0.2, 0.3]}, UsageError, "expected three losses, the least first"),
        ({"grades": ""}, UsageError, "grading needs task.grades"),
        ({"metrics": ["dice"]}, UsageError, "'dice' does not judge vertebrae"),
        ({"grades": "nowhere.json"}, UserError, "nowhere.json: expected JSON of part"),
        ({"fitted_on": ["nobody"]}, UserError, "the SVM needs vertebrae of at least two grades in nobody"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(root, settings, change, error, words):
    with pytest.raises(error, match=words):
        evaluate(task(**change), made(root), settings)
