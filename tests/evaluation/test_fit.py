"""Training: the best checkpoint is kept, an interrupted one goes on, a seed gives the same weights."""

import json
import os
from dataclasses import replace
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from answering import Thresholds
from lightning.pytorch.loggers import CSVLogger
from monai.networks.nets import UNet

from medimg_eval.case import Mask
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.fitting.fit import Recipe, fit
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging import write_mask
from medimg_eval.models.segmentation.monai import MonaiSegmenter
from medimg_eval.tasks import ReportTask, RetrievalTask
from tests.conftest import SHAPE, ellipsoids

pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Using a non-tuple sequence for multidimensional indexing"),
    pytest.mark.filterwarnings("ignore:.*logs directory.*exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:.*weights_only"),
]


def network():
    torch.manual_seed(0)
    return MonaiSegmenter(
        network=UNet(3, 1, 3, channels=(4, 8), strides=(2,), norm="instance"), roi_size=(8, 8, 8), patches_per_case=2
    )


def candidate(load=network):
    return ModelSpec("UNet", MonaiSegmenter, {"channels": [4, 8]}, load=load)


@pytest.fixture
def task(write_dataset):
    return ellipsoids(write_dataset(1, fit=3, validate=2))


@pytest.fixture
def train(task, tmp_path):
    def run(folder="fit", *, epochs=2, stop_after=None, recipe=None, model=None, **changes):
        pl.seed_everything(0, verbose=False)
        limit = epochs if stop_after is None else stop_after
        trainer = partial(pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, max_epochs=limit)
        settings = Settings(
            runs=tmp_path / "runs",
            run=tmp_path / folder,
            trainer=partial(trainer, use_distributed_sampler=False, log_every_n_steps=1),
            config={"trainer": {"max_epochs": epochs}, "task": {}},
            batch_size=1,
        )
        loggers = lambda where: [CSVLogger(where, name="logs", version="csv")]  # noqa: E731
        return fit(replace(task, **changes), model or candidate(), recipe or Recipe(lr=0.01), settings, loggers)

    return run


def weights(folder, name="last"):
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)["state_dict"]


def test_a_fit_leaves_checkpoints_logs_and_a_manifest_and_its_folder_is_a_checkpoint(train):
    folder = train()
    assert (folder / "logs" / "csv" / "metrics.csv").is_file()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["status"], manifest["command"]) == ("finished", "fit")
    assert manifest["cases"] == {"fit": 3, "validate": 2}
    assert "task_config" in manifest  # from which `predict` takes labels
    assert 0 <= manifest["best_score"] <= 1
    plain = UNet(3, 1, 3, channels=(4, 8), strides=(2,), norm="instance")
    loaded = MonaiSegmenter(network=plain, checkpoint=str(folder)).network.state_dict()
    for key, value in weights(folder, "best").items():
        assert torch.equal(loaded[key.removeprefix("model.network.")], value)


def test_a_seed_gives_the_same_weights(train):
    first, second = weights(train("one")), weights(train("two"))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_finished_fit_is_not_repeated(train, monkeypatch):
    folder = train()

    def never():
        raise AssertionError("the model was loaded again")

    assert train(model=candidate(never)) == folder


@pytest.mark.parametrize("recipe", [Recipe(lr=0.01), Recipe(lr=0.01, warmup=0.5, ema=0.9, patience=9)])
def test_an_interrupted_fit_goes_on_from_its_last_checkpoint(train, monkeypatch, recipe):
    from medimg_eval.evaluation.lightning_modules import FitModule

    seen = []
    real = FitModule.training_step

    def stopping(self, batch, batch_idx):
        seen.append(self.current_epoch)
        if len(seen) == 8:  # three batches an epoch: in the third
            raise RuntimeError("power cut")
        return real(self, batch, batch_idx)

    monkeypatch.setattr(FitModule, "training_step", stopping)
    with pytest.raises(RuntimeError, match="power cut"):
        train(epochs=4, recipe=recipe)
    folder = train(epochs=4, recipe=recipe)
    assert seen[8:] == [2, 2, 2, 3, 3, 3]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert len(manifest["resumed"]) == 1


def test_a_checkpoint_that_somebody_else_has_left_runs_nothing(train, tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "marker"),)

    folder = train()
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"status": "interrupted"}))
    torch.save({"state_dict": {}, "more": Payload()}, folder / "checkpoints" / "last.ckpt")
    with pytest.raises(UserError, match=r"last.ckpt: holds objects, which a checkpoint of fit does not"):
        train()
    assert not (tmp_path / "marker").exists()


def test_averaged_weights_are_what_is_kept(train):
    plain, averaged = (weights(train(str(ema), recipe=Recipe(lr=0.01, ema=ema)), "best") for ema in (None, 0.9))
    assert plain.keys() == averaged.keys()
    assert not all(torch.equal(plain[key], averaged[key]) for key in plain)


def test_training_stops_when_validation_no_longer_improves(train):
    folder = train(epochs=30, recipe=Recipe(lr=0.0, patience=2))
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["epoch"] == 2


def test_a_model_that_cannot_be_fitted_is_refused(train):
    with pytest.raises(UserError, match="cannot be fitted: fit needs an nn.Module with training_samples"):
        train(model=ModelSpec("Thresholds", Thresholds, {}, load=Thresholds))


def test_a_patient_in_two_parts_is_refused(train, task):
    from pathlib import Path

    table = Path(task.layout.root) / "cases.csv"
    table.write_text(table.read_text().replace("test-p0", "fit-p0"))
    task.layout.allow_overlap = "published so"
    with pytest.raises(UserError, match=r"1 patients are in both fit and test, such as 'fit-p0'"):
        train()


def test_validating_on_what_is_tested_is_refused(train):
    with pytest.raises(UserError, match="in both validate and test"):
        train(splits={"fit": "fit", "validate": "validate", "test": "validate"})


def test_a_dataset_without_test_cases_can_be_trained_on(train):
    assert (train(splits={"fit": "fit", "validate": "validate"}) / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.parametrize("change", [{"monitor": "hd95"}, {"surface": "voxel"}])
def test_what_chooses_the_best_checkpoint_makes_another_run(train, change):
    train()
    with pytest.raises(UserError, match="data, model or settings have changed"):
        train(**change)


@pytest.mark.parametrize("fault", ["file", "grid"])
def test_a_training_case_that_cannot_be_used_ends_the_fit_with_its_name(train, task, fault):
    case = task.cases("fit")[0]
    if fault == "file":
        case.images[0].path.write_bytes(b"")
    else:
        write_mask(case.target.path, Mask(np.ones(SHAPE, np.uint8), np.eye(4)))
    with pytest.raises(UserError, match=r"case 'case01' cannot be trained on: .*case01") as error:
        train()
    assert "Traceback" not in str(error.value)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (
            RetrievalTask(name="own", layout=None, monitor=""),
            "names no metric for fit to follow; set task.monitor to one with a direction, such as i2t_recall@1",
        ),
        (
            ReportTask(name="own", layout=None, monitor="length_ratio"),
            "task.monitor is length_ratio, of which neither more nor less is better; set task.monitor to one with",
        ),
    ],
)
def test_only_a_metric_with_a_direction_can_be_followed(task, said):
    with pytest.raises(UsageError, match=said):
        fit(task, candidate(), Recipe(), Settings(), list)


def test_validation_that_judges_nothing_is_said(train, task):
    for case in task.cases("validate"):
        write_mask(case.target.path, Mask(np.zeros(SHAPE, np.uint8), case.target.read().affine))
    with pytest.raises(UserError, match="no validation could be judged by hd95"):
        train(recipe=Recipe(lr=0.01, patience=1), empty={"distance": "skip"}, monitor="hd95")


def test_a_validation_case_that_cannot_be_read_ends_the_fit_with_its_name(train, task):
    task.cases("validate")[0].images[0].path.write_bytes(b"")
    with pytest.raises(UserError, match=r"validation case .*case04\.nii\.gz"):
        train()
