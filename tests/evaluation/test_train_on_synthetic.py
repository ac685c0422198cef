"""Utility: one model is trained on real and on synthetic cases and tested on real ones, whatever stops it between."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock
from lightning.pytorch.loggers import CSVLogger
from monai.networks.nets import UNet

from medimg_eval.case import Case, Findings, Mask, Text
from medimg_eval.commands.utility import _choose_metric, _synthetic_layout, _target_config
from medimg_eval.data.layouts import MixedDataset
from medimg_eval.data.records import Given
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation import pipeline
from medimg_eval.evaluation.fitting.fit import Recipe
from medimg_eval.evaluation.fitting.train_on_synthetic import Plan, Training, blend_of, measure, refuse_leaks, trainings
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models.segmentation.monai import MonaiSegmenter
from medimg_eval.question import Key, Question
from medimg_eval.results import load_runs
from medimg_eval.results.utility.studies import load_utility
from medimg_eval.results.utility.table import build_utility
from tests.conftest import ellipsoids

pytestmark = [
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Using a non-tuple sequence for multidimensional indexing"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:.*logs directory.*exists and is not empty"),
    pytest.mark.filterwarnings("ignore:.*weights_only"),
]

EVERY = trainings(["real", "synthetic", "augmented"], [1.0], [0])


def network(checkpoint=None):
    return MonaiSegmenter(
        network=UNet(3, 1, 3, channels=(4, 8), strides=(2,), norm="instance"),
        roi_size=(8, 8, 8),
        patches_per_case=2,
        checkpoint=checkpoint,
    )


@pytest.fixture
def plan(write_dataset, tmp_path):
    """A small segmentation, and as synthetic cases other ellipsoids of the patients to fit on."""
    real = ellipsoids(write_dataset(2, fit=3, validate=1), metrics=["dice"])
    made = ellipsoids(write_dataset(1, fit=3, folder="made"))

    def task(one):
        mixture = {"setting": one.setting, "fraction": one.fraction, "seed": one.seed}
        layout = MixedDataset(real=real.layout, synthetic=made.layout, **mixture)
        return replace(real, layout=layout)

    def candidate(one, checkpoint=None):
        path = None if checkpoint is None else str(checkpoint)
        return ModelSpec(f"UNet ({one})", MonaiSegmenter, {"checkpoint": path}, load=partial(network, path))

    def settings(one, what, folder):
        torch.manual_seed(one.seed)
        trainer = partial(
            pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
        )
        config = {"trainer": {"max_epochs": 1}, "task": {}}
        limits = {"max_epochs": 1, "log_every_n_steps": 1} if what == "fit" else {}
        made = partial(trainer, **limits)
        return Settings(tmp_path / "runs", folder, made, config, batch_size=1, score_workers=0, seed=one.seed)

    about = {"id": "s", "task": real.name, "title": "Ellipsoids", "model": "UNet", "metric": "dice"}
    return Plan(
        folder=tmp_path / "study",
        about=about | {"synthetic": {"layout": "Volumes"}},
        task=task,
        test=lambda: replace(real),
        fresh=candidate,
        trained=candidate,
        settings=settings,
        recipe=Recipe(lr=0.01),
        loggers=lambda where: [CSVLogger(where, name="logs", version="csv")],
    )


def test_each_model_is_trained_on_its_mixture_and_tested_on_the_same_real_cases(plan):
    folders = measure(plan, EVERY)
    (study,) = load_utility([plan.folder])
    assert [one.cases for one in study.trained] == [(3, 0), (0, 3), (3, 3)]
    assert [run.folder for run in study.runs] == [folder.resolve() for folder in folders]
    fitted = [json.loads((folder.parent / "fit" / "manifest.json").read_text()) for folder in folders]
    assert [one["cases"] for one in fitted] == [{"fit": n, "validate": 1} for n in (3, 3, 6)]
    assert len({run.data_fingerprint for run in study.runs}) == 1
    assert load_runs([plan.folder])[0].model == "UNet (augmented, 100 %, seed 0)"
    frame = build_utility(study, resamples=50).frame()
    assert frame["setting"].tolist() == ["real", "synthetic", "augmented"]
    assert frame["value"].between(0, 1).all()
    assert frame["gain"].tolist()[1:] == pytest.approx((frame["value"] - frame["value"][0]).tolist()[1:])


def test_a_stopped_study_goes_on_and_what_is_done_is_not_done_again(plan, monkeypatch):
    done, real = [], pipeline.test

    def evaluate(task, candidate, settings):
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(candidate.name)
        return real(task, candidate, settings)

    monkeypatch.setattr(pipeline, "test", evaluate)
    with pytest.raises(KeyboardInterrupt):
        measure(plan, EVERY[:2])
    (study,) = load_utility([plan.folder])
    assert [one.run is not None for one in study.trained] == [True, False]
    monkeypatch.setattr(pipeline, "test", real)

    def never(one):
        return ModelSpec(f"UNet ({one})", MonaiSegmenter, {"checkpoint": None}, load=pytest.fail)

    assert len(measure(replace(plan, fresh=never), EVERY[:2])) == 2  # both were fitted before


def test_a_model_that_fails_does_not_stop_the_others_and_is_tried_again(plan):
    def broken(one):
        if one.setting == "synthetic":
            raise RuntimeError("out of memory")
        return plan.fresh(one)

    assert len(measure(replace(plan, fresh=broken), EVERY)) == 2
    (study,) = load_utility([plan.folder])
    assert [one.failure for one in study.trained] == ["", "RuntimeError: out of memory", ""]
    assert len(measure(plan, EVERY[1:2])) == 1
    (study,) = load_utility([plan.folder])
    assert [one.failure for one in study.trained] == ["", "", ""]
    assert len(study.runs) == 3  # those of the earlier start stay


def test_a_folder_of_another_study_or_process_is_refused(plan):
    plan.folder.mkdir()
    (plan.folder / "utility.json").write_text(json.dumps({"id": "other", "started": "", "cells": []}))
    with pytest.raises(UserError, match="holds another study; leave run= out"):
        measure(plan, EVERY)
    with FileLock(plan.folder / ".utility.lock"), pytest.raises(UserError, match="another process is at work"):
        measure(plan, EVERY)


def test_combinations_come_seed_by_seed():
    found = trainings(["real", "mixed"], [0.1, 1], [0, 1])
    assert [one.folder for one in found[:4]] == ["real-0.1-seed0", "mixed-0.1-seed0", "real-1-seed0", "mixed-1-seed0"]
    assert [one.seed for one in found] == [0] * 4 + [1] * 4
    assert str(found[0]) == "real, 10 %, seed 0"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": ["reel"]}, "got 'reel'; did you mean 'real'"),
        ({"fractions": [0.0]}, "fractions to lie above 0 and up to 1, got 0.0"),
        ({"seeds": [-1]}, "seeds to be whole numbers from 0 on, got -1"),
        ({"seeds": []}, "expected seeds to name each value once"),
        ({"settings": ["real", "real"]}, "expected settings to name each value once"),
    ],
)
def test_what_cannot_be_meant_is_refused(change, words):
    arguments = {"settings": ["real"], "fractions": [1.0], "seeds": [0]} | change
    with pytest.raises(UsageError, match=words):
        trainings(**arguments)


def test_synthetic_cases_of_patients_to_test_on_are_refused_before_anything_is_trained(plan):
    refuse_leaks(plan.test(), plan.task(Training("augmented", 1.0, 0)))

    def leaking(one):
        task = plan.task(one)
        table = Path(task.layout.synthetic.root) / "cases.csv"
        table.write_text(table.read_text().replace("fit-p1", "test-p0"))
        task.layout.synthetic.allow_overlap = "for this test"
        return task

    with pytest.raises(UserError, match=r"1 patients that synthetic .* to test, such as 'test-p0'; .*splits.test=fit"):
        refuse_leaks(plan.test(), leaking(Training("augmented", 1.0, 0)))
    for seed in range(4):  # whichever patients a fraction takes
        with pytest.raises(UserError, match="such as 'test-p0'"):
            refuse_leaks(plan.test(), leaking(Training("augmented", 0.3, seed)))
    with pytest.raises(TypeError, match="to be a MixedDataset, got Volumes"):
        blend_of(plan.test())


@dataclass
class One:
    """One case of a target."""

    target: object
    question: Question | None = None

    def cases(self, split):
        return [Case("a", (), Given(self.target, ()), "p", question=self.question)]


def test_pictures_are_labelled_as_the_task_labels_its_own_cases(plan):
    task = plan.test()
    assert _target_config(replace(task, layout=One(Findings({"edema": 1.0, "nodule": 0.0})))) == {
        "classes": ["edema", "nodule"]
    }
    asked = One(Key("a report"), Question("Write.", "report"))
    assert _target_config(replace(task, layout=asked)) == {"question": "Write."}
    assert _target_config(replace(task, layout=One(Text("words")))) == {}
    with pytest.raises(
        UsageError, match=r"needs the mask of each picture: synthetic={run: FOLDER, target: .*MaskTarget"
    ):
        _target_config(replace(task, layout=One(Mask(np.zeros((2, 2), np.uint8), np.eye(4)))))


def test_synthetic_cases_are_a_run_or_a_layout(plan, tmp_path):
    task = replace(plan.test(), layout=One(Findings({"edema": 1.0})))
    told = {"status": "finished", "run": "r", "task": "made", "model": "G", "settings": "s", "cases": 3}
    (tmp_path / "manifest.json").write_text(json.dumps(told))
    layout, about = _synthetic_layout(str(tmp_path), task)
    assert layout == {
        "_target_": "medimg_eval.data.layouts.synthesis.generated.Generated",
        "run": str(tmp_path),
        "classes": ["edema"],
    }
    assert about == {"run": "r", "task": "made", "model": "G", "settings": "s"}
    assert _synthetic_layout({"run": str(tmp_path), "question": "?"}, task)[0]["question"] == "?"
    assert _synthetic_layout({"_target_": "mine.Layout"}, task) == (
        {"_target_": "mine.Layout"},
        {"layout": "mine.Layout"},
    )
    with pytest.raises(UsageError, match="synthetic: expected a run folder, arguments of Generated or a layout"):
        _synthetic_layout({"folder": "x"}, task)
    assert _choose_metric({"metric": None}, task) == "dice"
    with pytest.raises(UsageError, match="metric=hd95 is none of the task's"):
        _choose_metric({"metric": "hd95"}, task)


NOISY = '''
from dataclasses import dataclass, replace

import numpy as np

from medimg_eval.phantoms.prompts import ChestPrompts, PhantomGenerator
from medimg_eval.phantoms.report import DESCRIBED


class Copier(PhantomGenerator):
    """Answers each prompt with the training image that belongs to it, so that all pictures are copies."""

    def copied(self, case):
        return next(one for one in self.training if one.id == case)


@dataclass
class NoisyPrompts(ChestPrompts):
    """Prompts of which half of all findings are said wrongly."""

    def cases(self, split):
        rng = np.random.default_rng(0)
        return [replace(case, attributes={**case.attributes, **self.said(case, rng)}) for case in super().cases(split)]

    def said(self, case, rng):
        return {name: str((int(case.attributes[name]) + int(rng.random() < 0.5)) % 2) for name in DESCRIBED}
'''


@pytest.mark.long
@pytest.mark.slow
def test_a_generator_of_phantoms_ends_on_a_card_and_wrong_labels_make_it_less_useful(program, tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY)
    program = partial(program, paths=(tmp_path,))
    few = ["num_workers=0", "score_workers=0", "task.layout.count=200"]
    few += ["task.expected.fit=100", "task.expected.validate=25", "task.expected.test=75"]
    metrics = "task.metrics=[generation_failure_rate,kernel_distance@pixels,near_copies@pixels_64]"
    made = program(
        "test",
        "task=phantom_synthesis",
        "task.splits.test=fit",
        "model=phantom_generator",
        "model._target_=noisy.Copier",
        "model.count=200",
        metrics,
        *few,
    )
    assert made.returncode == 0, made.stderr
    (run,) = (tmp_path / "runs" / "phantom_synthesis").iterdir()
    train = ["task=phantom_findings", "task.metrics=[auroc@macro]", "model=image_classifier", "model.size=[36,38]"]
    train += ["trainer.max_epochs=6", "batch_size=8", "fit.lr=0.003", "seeds=[0]", "resamples=200", *few]
    done = program("utility", f"synthetic={run}", "settings=[synthetic]", "out=clean", *train)
    assert done.returncode == 0, done.stderr
    noisy = f"synthetic={{run: {run}, prompts: {{_target_: noisy.NoisyPrompts, count: 200}}}}"
    worse = program("utility", noisy, "settings=[synthetic]", "out=noisy", "run=noisy-study", *train)
    assert worse.returncode == 0, worse.stderr
    clean, wrong = (pd.read_csv(tmp_path / name / "utility.csv").set_index("setting") for name in ("clean", "noisy"))
    assert clean.loc["synthetic", "value"] > wrong.loc["synthetic", "high"]
    card = program("table", "table=card", "runs=runs", "resamples=200", "out=card")
    assert card.returncode == 0, card.stderr
    shown = pd.read_csv(tmp_path / "card" / "table.csv").set_index("column")
    assert shown.loc["TSTR: AUROC (macro)", "mean"] == pytest.approx(clean.loc["synthetic", "value"])
    assert shown.loc["Near copies (pixels_64)", "mean"] == 1
    assert (shown["low"] < shown["mean"]).sum() >= 3
    assert "Score card of Chest X-rays from prompts" in card.stdout
