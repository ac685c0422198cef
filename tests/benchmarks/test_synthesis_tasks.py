"""Capsule endoscopy, and pictures of after a treatment made of those before it, on fixtures of their layouts."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
from omegaconf import OmegaConf

import medimg_eval
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.instantiate import build_task
from medimg_eval.models.base import Synthesizer
from medimg_eval.models.extractors.base import Pixels
from medimg_eval.results import load_runs
from medimg_eval.results.runs.subsets import set_rows
from tests.helpers.benchmark_files import picture, task
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

PAGE = Path(medimg_eval.__file__).parents[1] / "docs" / "evaluate" / "synthesis.md"


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    known = {name: ModelSpec(name, Pixels, {"size": 4}, lambda: Pixels(4)) for name in ("dinov2", "pixels")}
    return Settings(runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0, extractors=known)


def test_capsule_endoscopy_is_split_by_video_and_asked_for_by_finding(tmp_path):
    rows = [(f"video{n % 10}_{n}.jpg", "Polyp" if n % 3 else "Reduced Mucosal View") for n in range(40)]
    for name, label in rows:
        picture(tmp_path / "labelled_images" / label.replace("View", "view") / name, np.zeros((8, 8, 3)))
    (tmp_path / "official_splits").mkdir()
    for fold in (0, 1):
        with (tmp_path / f"official_splits/split_{fold}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([("filename", "label"), *rows[fold::2]])
    made = task("kvasir_capsule_synthesis", tmp_path)
    prompts, train, holdout = (made.cases(part) for part in ("test", "train", "holdout"))
    assert len(train) + len(holdout) == 40
    assert len(prompts) == len(holdout) == 8
    assert not {case.patient for case in train} & {case.patient for case in holdout}
    assert {case.patient for case in train} <= {f"video{n}" for n in range(10)}
    case = next(one for one in prompts if one.attributes["label"] == "Polyp")
    assert made.text(case) == "capsule endoscopy of the small bowel, Polyp"
    assert case.images[0].path.name == case.id


class Treated(Synthesizer):
    """Darkens what it is shown, as the treatment of the fixture does."""

    def synthesize(self, prompts, seeds):
        assert all(len(prompt.images) == 1 and "TACE" in prompt.text for prompt in prompts)
        pairs = zip(prompts, seeds, strict=True)
        return [[(prompt.images[0].array // 2).astype(np.uint8) for _ in some] for prompt, some in pairs]


def test_pictures_of_after_a_treatment_are_made_of_those_before_it(tmp_path, settings):
    block = next(one for one in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL) if "shown: true" in one)
    rng, root = np.random.default_rng(0), tmp_path / "data"
    rows: dict[str, list[tuple[str, ...]]] = {"before": [], "after": []}
    for number in range(12):
        before = rng.integers(0, 255, (16, 16, 3)).astype(np.uint8)
        for part, pixels in (("before", before), ("after", before // 2)):
            picture(root / part / f"{number}.png", pixels)
            rows[part].append((str(number), f"{part}/{number}.png", f"p{number}", "TACE with doxorubicin", "complete"))
    for part, found in rows.items():
        with (root / f"{part}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([("id", "image", "patient", "prompt", "response"), *found])
    config = OmegaConf.merge(OmegaConf.create(block), {"layout": {"root": str(root)}})
    made = build_task(OmegaConf.to_container(config, resolve=True))
    made = replace(made, metrics=[name.replace("dinov2", "pixels") for name in made.metrics])
    folder = evaluate(made, ModelSpec("treated", Treated, {}, Treated), settings)
    check_rows("treated", folder)
    (run,) = load_runs([folder])
    found = {(row.metric.partition("@")[0], row.where): row.value for row in set_rows(run)}
    assert set(run.scores["status"]) == {"present"}
    # Each picture lies on the image of after the treatment, which is in the reference set under the same id.
    assert found["paired_feature_distance", ()].value == pytest.approx(0, abs=1e-6)
    assert found["kernel_distance", ()].value < 0
    assert ("kernel_distance", (("response", "complete"),)) in found
