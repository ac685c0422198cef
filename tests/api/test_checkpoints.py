"""`test checkpoints=FOLDER`: each checkpoint of a training is evaluated once, and scores are drawn by step."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

import medimg_eval as me
from medimg_eval.api.checkpoint_files import find_checkpoints
from medimg_eval.case import Mask
from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.models import Segmenter
from medimg_eval.results import load_runs
from medimg_eval.results.figures import learning_curve
from tests.conftest import ellipsoids
from tests.helpers.printed import said

QUIET = {"trainer": {"accelerator": "cpu", "logger": False}, "score_workers": 0, "num_workers": 0}


class Trained(Segmenter):
    """A threshold that a checkpoint holds; every load is counted."""

    loads: ClassVar[list[str]] = []

    def __init__(self, checkpoint=None):
        self.checkpoint = checkpoint
        self.loads.append(Path(checkpoint).name)
        self.level = float(torch.load(checkpoint, weights_only=True)["level"])

    def segment(self, prompts):
        return [np.where(prompt.image.array[0] > self.level, 1, 0) for prompt in prompts]


MODEL = {"_target_": f"{__name__}.Trained", "name": "Ours"}


def save(path, level, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"level": torch.tensor(float(level)), **more}, path)


@pytest.fixture
def trained(tmp_path, write_dataset):
    """A folder of two checkpoints of a training, and what evaluates it."""
    Trained.loads.clear()
    folder = tmp_path / "training"
    save(folder / "epoch=0-step=10.ckpt", 120)
    save(folder / "epoch=1-step=20.ckpt", 50)
    task = ellipsoids(write_dataset(10), metrics=["dice"])

    def evaluate(**settings):
        return me.test_checkpoints(task, MODEL, folder, runs=tmp_path / "runs", **QUIET, **settings)

    return folder, evaluate


def test_each_checkpoint_is_evaluated_once_and_new_ones_by_the_next_call(trained):
    folder, evaluate = trained
    first = evaluate()
    assert [run.manifest["model"] for run in first.runs] == ["Ours step 10", "Ours step 20"]
    assert [run.manifest["training"]["step"] for run in first.runs] == [10, 20]
    assert (first.new, Trained.loads) == (2, ["epoch=0-step=10.ckpt", "epoch=1-step=20.ckpt"])
    save(folder / "epoch=0-step=5.ckpt", 300)
    second = evaluate()
    assert [run.manifest["model"] for run in second.runs] == ["Ours step 5", "Ours step 10", "Ours step 20"]
    assert (second.new, Trained.loads[2:]) == (1, ["epoch=0-step=5.ckpt"])
    assert evaluate().new == 0


def test_a_checkpoint_that_was_written_anew_and_another_question_are_evaluated(trained):
    folder, evaluate = trained
    evaluate()
    save(folder / "epoch=1-step=20.ckpt", 60, more=torch.zeros(9))
    assert evaluate().new == 1
    assert evaluate(seed=1).new == 2  # draws may differ by it


def test_the_curve_has_the_means_of_the_runs_and_their_steps(trained, tmp_path):
    _, evaluate = trained
    done = evaluate()
    (drawn,) = done.figures.values()
    assert drawn.frame["at"].tolist() == [10, 20]
    means = [run.summary["value"].iloc[0] for run in done.runs]
    assert drawn.frame["mean"].tolist() == pytest.approx(means)
    assert means[0] < means[1]
    last = drawn.frame.iloc[1]  # all values of the first are 0, so that it has no interval
    assert last["low"] < last["mean"] < last["high"]
    assert "by step (n = 10 cases" in drawn.caption
    names = {file.name for file in done.write()}
    assert {"table.csv", "learning_curve-dice.pdf", "learning_curve-dice.csv"} <= names
    again = learning_curve(load_runs([tmp_path / "runs"]), "dice")
    assert again.frame.equals(drawn.frame)
    assert "<svg" in done._repr_html_()


def test_what_cannot_be_loaded_does_not_end_the_rest_and_what_is_half_written_waits(trained):
    folder, evaluate = trained
    (folder / "epoch=2-step=30.ckpt").write_bytes(b"no checkpoint at all")
    whole = (folder / "epoch=1-step=20.ckpt").read_bytes()
    (folder / "epoch=3-step=40.ckpt").write_bytes(whole[: len(whole) // 2])
    done = evaluate()
    assert len(done.runs) == 2
    assert [path.name for path in done.failures] == ["epoch=2-step=30.ckpt"]
    assert [path.name for path in done.waiting] == ["epoch=3-step=40.ckpt"]
    (folder / "epoch=3-step=40.ckpt").write_bytes(whole)
    save(folder / "epoch=2-step=30.ckpt", 70)
    mended = evaluate()
    assert (mended.failures, mended.waiting) == ({}, [])
    assert [run.manifest["training"]["step"] for run in mended.runs] == [10, 20, 30, 40]


def test_two_checkpoints_of_one_step_are_told_apart_by_their_files(trained):
    folder, evaluate = trained
    for name, level in (("last", 60), ("best", 70)):
        save(folder / f"{name}.ckpt", level, global_step=30)
    names = [run.manifest["model"] for run in evaluate().runs][2:]
    assert names == ["Ours step 30 (best.ckpt)", "Ours step 30 (last.ckpt)"]


def test_the_command_prints_a_row_per_checkpoint_and_ends_with_1_where_one_failed(
    trained, write_dataset, config_dir, capsys, monkeypatch, tmp_path
):
    folder, _ = trained
    monkeypatch.chdir(tmp_path)
    words = ["test", "--config-dir", str(config_dir(write_dataset(6))), "task=ellipsoids", f"checkpoints={folder}"]
    words += [f"model._target_={__name__}.Trained", "+model.name=Ours", "++trainer.logger=false", "score_workers=0"]
    words += ["trainer.accelerator=cpu", "num_workers=0", "task.metrics=[dice]"]
    assert start(words) == 0
    out, err = said(capsys)
    assert "Ours step 10" in out
    assert "Ours step 20" in out
    assert "learning_curves/Ours/learning_curve-dice.pdf" in err
    (folder / "step=30.ckpt").write_bytes(b"no checkpoint at all")
    assert start(words) == 1
    _, err = said(capsys)
    assert "1 checkpoints could not be evaluated" in err
    assert "step=30.ckpt" in err


def test_settings_that_mean_nothing_here_are_refused(trained, tmp_path):
    folder, evaluate = trained
    for key, value, told in (("baselines", True, "asks no checkpoint"), ("run", "here", "names one folder")):
        with pytest.raises(UsageError, match=told):
            evaluate(**{key: value})
    with pytest.raises(UsageError, match="made of no checkpoint"):
        me.test_checkpoints("brain_tissue", "gaussian_mixture", folder, runs=tmp_path)
    with pytest.raises(UserError, match="holds no checkpoint yet"):
        find_checkpoints(tmp_path / "runs" if (tmp_path / "runs").is_dir() else _made(tmp_path / "empty"))
    with pytest.raises(UserError, match="no such folder"):
        find_checkpoints(tmp_path / "nowhere")


def _made(folder):
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("name", "when"),
    [
        ("epoch=3-step=500.ckpt", {"step": 500, "epoch": 3}),
        ("epoch=3-step=500-v1.ckpt", {"step": 500, "epoch": 3}),
        ("iter_20000.pth", {"step": 20000}),
        ("best_mIoU_iter_8000.pth", {"step": 8000}),
        ("epoch_12.pth", {"epoch": 12}),
        ("checkpoint-12.pth.tar", {"step": 12}),
        ("0050000.pt", {"step": 50000}),
        ("unet_v2.pth", {}),
    ],
)
def test_the_step_is_read_from_the_name(tmp_path, name, when):
    save(tmp_path / name, 1)
    ((found,), _) = find_checkpoints(tmp_path)
    assert found.when == when


def test_the_step_is_read_from_the_content_where_the_name_says_none(tmp_path):
    save(tmp_path / "last.ckpt", 1, global_step=70, epoch=6)  # as Lightning's
    save(tmp_path / "checkpoint_final.pth", 1, current_epoch=1000)  # as nnU-Net's
    ((lightning, nnunet), _) = find_checkpoints(tmp_path)
    assert lightning.when == {"step": 70, "epoch": 6}
    assert nnunet.when == {"epoch": 1000}


def safetensors(path, missing=0):
    head = json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(16 - missing))


def test_folders_of_transformers_are_whole_once_all_their_shards_are(tmp_path):
    for step in (500, 1000, 1500):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        safetensors(folder / "model-1.safetensors", missing=4 * (step == 1000))
        (folder / "optimizer.pt").write_bytes(b"not looked at")
    for step in (500, 1000):
        safetensors(tmp_path / f"checkpoint-{step}" / "model-2.safetensors")
    (tmp_path / "tmp-checkpoint-2000").mkdir()
    done, waiting = find_checkpoints(tmp_path)
    assert [(one.path.name, one.when, one.argument) for one in done] == [
        ("checkpoint-500", {"step": 500}, "checkpoint")
    ]
    assert sorted(path.name for path in waiting) == ["checkpoint-1000", "checkpoint-1500"]
    with pytest.raises(UserError, match="is itself a checkpoint"):
        find_checkpoints(tmp_path / "checkpoint-500")


def test_an_adapter_takes_the_place_of_the_models_adapter(tmp_path):
    folder = tmp_path / "checkpoint-7"
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/base"}')
    safetensors(folder / "adapter_model.safetensors")
    ((found,), _) = find_checkpoints(tmp_path)
    assert found.argument == "adapter"


def test_runs_of_no_checkpoint_have_no_curve(tmp_path, write_dataset):
    run = me.test(ellipsoids(write_dataset(5), metrics=["dice"]), Silent(), runs=tmp_path / "runs", **QUIET)
    with pytest.raises(UserError, match="No run is of a checkpoint whose step is known"):
        me.figure("learning_curve", [run], "dice")


class Silent(Segmenter):
    """A model that finds nothing."""

    def segment(self, prompts):
        return [Mask(np.zeros(prompt.image.array[0].shape, np.uint8), prompt.image.affine) for prompt in prompts]
