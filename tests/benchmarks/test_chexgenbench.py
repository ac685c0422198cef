"""CheXGenBench: its tables become prompts with findings, its two protocols are kept apart, and it runs end to end."""

from __future__ import annotations

import csv
import json
import os
import random
from functools import partial
from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pandas as pd
import pytest
import torch
from catalogue import config_of
from PIL import Image as Pictures

from medimg_eval.data.layouts import CheXGenBench
from medimg_eval.data.layouts.synthesis.prompts import FINDINGS
from medimg_eval.errors import UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.instantiate import build_candidate, build_task
from medimg_eval.models.extractors.base import Pixels
from medimg_eval.results import build_table, load_runs
from medimg_eval.results.runs.subsets import set_rows
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.oracle import check_rows
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

COLUMNS = ["id", "path", "view", "annotated_prompt", "chexpert_labels", "patientID"]


class Seen(Pixels):
    """Grey values in the place of networks; of texts their lengths."""

    reads_texts = True

    def embed_texts(self, texts):
        return np.stack([np.linspace(1, len(text), self.size**2, dtype=np.float32) for text in texts])


@pytest.fixture
def benchmark(tmp_path, monkeypatch):
    """24 images to train on and 18 to test on, of which three have a prompt that another has; a folder of pictures."""
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))
    root, rng = tmp_path / "data", np.random.default_rng(0)
    (root / "files").mkdir(parents=True)
    (root / "made").mkdir()
    for split, count in (("TRAIN", 24), ("TEST", 18)):
        rows = []
        for number in range(count):
            name = f"{split.lower()}{number:02d}"
            Pictures.fromarray(rng.integers(0, 255, (16, 16), np.uint8)).save(root / "files" / f"{name}.jpg")
            labels = dict.fromkeys(FINDINGS) | {"Edema": 1.0 if number % 2 else 0.0, "Fracture": -1.0}
            prompt = f"Edema {(number - 1) % 14} seen." if number else "Compared with ___, no edema."
            row = [name, f"{name}.jpg", "AP" if number % 3 else "PA", prompt, str(labels), f"{split}{number // 2}"]
            rows.append(row)
            if split == "TEST" and number < 15:
                source = root / "files" / "train05.jpg" if number == 7 else None
                picture = (
                    rng.integers(0, 255, (16, 16), np.uint8) if source is None else np.array(Pictures.open(source))
                )
                Pictures.fromarray(picture).save(root / "made" / f"SyntheticImg_{name}.png")
        with (root / f"LLAVARAD_ANNOTATIONS_{split}.csv").open("w", newline="") as stream:
            csv.writer(stream).writerows([COLUMNS, *rows])
    made = [f"test{n:02d},SyntheticImg_test{n:02d}.png" for n in range(15)]
    (root / "made" / "generations_with_metadata.csv").write_text("\n".join(["id,synthetic_filename", *made]) + "\n")
    return root


def extractors():
    names = ("rad_dino", "rad_dino_299", "inception", "biomedclip")
    return {name: ModelSpec(name, Seen, {"size": 4}, lambda: Seen(4)) for name in names}


@pytest.fixture
def settings(tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    return Settings(
        runs=tmp_path / "runs", run=None, trainer=trainer, config={}, score_workers=0, extractors=extractors()
    )


def given(root):
    return build_candidate(
        {
            "_target_": "medimg_eval.models.precomputed.images.PrecomputedImages",
            "name": "Given",
            "root": str(root / "made"),
            "table": "generations_with_metadata.csv",
        }
    )


def test_its_tables_are_prompts_with_findings_views_and_marks(benchmark):
    task = build_task(config_of("chexgenbench", benchmark))
    cases = task.cases("test")
    assert len(cases) == 15  # of 18 rows, each text once, the first row of it
    assert [case.id for case in cases] == [f"test{n:02d}" for n in range(15)]
    first, second = cases[:2]
    assert first.target.read().text == "Compared with ___, no edema."
    assert (first.patient, second.images[0].files[0].name) == ("TEST0", "test01.jpg")
    assert second.attributes == {"view": "AP", "Edema": "1", "Fracture": "-1", "redacted": "0"}
    assert first.attributes["redacted"] == "1"
    assert [task.has(second, name) for name in ("Edema", "Fracture", "Pneumonia")] == [True, False, False]
    assert len(task.cases("train")) == 24


def test_its_fixed_protocol_runs_from_the_generators_own_folder_and_finds_the_copy(benchmark, settings):
    task = build_task(config_of("chexgenbench", benchmark))
    folder = evaluate(task, given(benchmark), settings)
    check_rows("chexgenbench", folder)
    (run,) = load_runs([folder])
    found = {(one.metric, one.label, one.where): one.value for one in set_rows(run)}
    whole = {metric: value for (metric, label, where), value in found.items() if label == "all" and not where}
    assert set(whole) == set(task.set_metrics)
    assert all(np.isfinite(one.value) for one in whole.values())
    assert (whole["frechet_distance@rad_dino"].n_real, whole["frechet_distance@rad_dino"].n_generated) == (15, 15)
    assert whole["dcr@rad_dino"].n_real == 24
    assert "auc" in whole["alignment_score@biomedclip"].details
    assert found["kernel_distance@rad_dino", "Edema", ()].n_real == 7
    assert found["kernel_distance@rad_dino", "all", (("view", "PA"),)].n_generated == 5
    assert found["kernel_distance@rad_dino", "Pneumonia", ()].flags[0].startswith("too_few")
    nearest = next(csv.DictReader((folder / "nearest-rad_dino.csv").read_text().splitlines()))
    assert (nearest["case"], nearest["training_case"], nearest["distance"]) == ("test07", "train05", "0")
    assert not any("Published:" in note for note in run.notes)


def test_its_published_protocol_says_what_differs(benchmark, settings):
    task = build_task(config_of("chexgenbench", benchmark, protocol="published"))
    assert task.extractors == ["rad_dino_299"]
    folder = evaluate(task, given(benchmark), settings)
    notes = " ".join(build_table(load_runs([folder])).footnotes)
    for part in ("Published: pictures are stretched to 299 x 299", "100 subsets", "black one", "is none", "BioViL-T"):
        assert part in notes, part
    assert json.loads((folder / "manifest.json").read_text())["signature"].endswith("protocol: published")


def test_its_privacy_task_asks_training_prompts_as_the_authors_draw_them(benchmark):
    task = build_task(config_of("chexgenbench_privacy", benchmark))
    assert task.pictures == 10
    assert len(task.cases("test")) == 15  # fewer than 2,000 distinct ones are there
    task.layout.parts["asked"]["sample"] = 4
    drawn = pd.Series(range(15)).sample(4, random_state=42)
    assert [case.id for case in task.cases("test")] == [f"train{n:02d}" for n in drawn]
    assert {"pixel_distance", "paired_feature_distance@rad_dino"} <= set(task.metrics)
    published = build_task(config_of("chexgenbench_privacy", benchmark, protocol="published"))
    assert "pixel_distance_chexgenbench" in published.metrics


def test_a_row_whose_labels_are_not_understood_is_named(benchmark):
    table = benchmark / "LLAVARAD_ANNOTATIONS_TEST.csv"
    table.write_text(table.read_text().replace("'Edema': 1.0", "'Edema': yes", 1))
    layout = CheXGenBench(root=str(benchmark), table={"test": table.name})
    with pytest.raises(UserError, match=r"TEST.csv, line 3: column 'chexpert_labels' holds .*, expected finding"):
        layout.cases("test")


class Stretched(Pixels):
    """Grey values of pictures that were stretched to 299 x 299, as the authors' program hands them to a network."""

    def encode(self, pictures):
        return 20 * super().encode([picture.resize((299, 299), Pictures.Resampling.BILINEAR) for picture in pictures])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_its_published_fidelity_is_its_programs(benchmark, settings, tmp_path):
    script = require_clone("Raman1121/CheXGenBench") / "metrics/fid.py"
    compute_prdc = pytest.importorskip("prdc").compute_prdc
    transforms = pytest.importorskip("torchvision.transforms")
    pixels = Stretched(2)

    class Network(torch.nn.Module):
        num_features = 4

        def forward(self, images):
            shown = [Pictures.fromarray(picture) for picture in images.permute(0, 2, 3, 1).numpy()]
            return torch.from_numpy(pixels.encode(shown)).double()

    def with_network(metric):
        """Inception's weights are not there, and their row is not compared."""
        return lambda **settings: metric(**settings | {"feature": Network()})

    given_names = {
        "FrechetInceptionDistance": with_network(
            pytest.importorskip("torchmetrics.image.fid").FrechetInceptionDistance
        ),
        "KernelInceptionDistance": with_network(pytest.importorskip("torchmetrics.image.kid").KernelInceptionDistance),
        "InceptionScore": with_network(pytest.importorskip("torchmetrics.image.inception").InceptionScore),
        "RadDinoFeatureExtractor": lambda *_: Network(),
        "load_RadDino_encoder": lambda: (None, None),
        "Dataset": torch.utils.data.Dataset,
        "DataLoader": torch.utils.data.DataLoader,
    }
    names = ("main", "seed_everything", "compute_prdc_metric", "ImageDataset")
    theirs = load_functions(
        script, *names, os=os, random=random, torch=torch, np=np, pd=pd, Image=Pictures, transforms=transforms,
        tqdm=lambda batches: batches, colored=lambda text, _: text, compute_prdc=compute_prdc, **given_names,
    )  # fmt: skip
    made = pd.read_csv(benchmark / "made" / "generations_with_metadata.csv").rename(
        columns={"synthetic_filename": "img_savename"}
    )
    made.to_csv(tmp_path / "made.csv", index=False)
    theirs["main"](
        SimpleNamespace(
            num_shards=-1,
            shard=-1,
            experiment_type=None,
            debug=False,
            batch_size=4,
            num_workers=0,
            extra_info="",
            synthetic_csv=tmp_path / "made.csv",
            synthetic_img_col="img_savename",
            synthetic_img_dir=benchmark / "made",
            real_csv=benchmark / "LLAVARAD_ANNOTATIONS_TEST.csv",
            real_img_col="path",
            real_img_dir=benchmark / "files",
            real_caption_col="annotated_prompt",
            synthetic_prompt_col="annotated_prompt",
            results_savedir=tmp_path,
        )
    )
    right = pd.read_csv(tmp_path / "image_generation_metrics.csv").iloc[0]
    settings.extractors["rad_dino_299"] = ModelSpec("rad_dino_299", Stretched, {"size": 2}, lambda: pixels)
    task = build_task(config_of("chexgenbench", benchmark, protocol="published"))
    (run,) = load_runs([evaluate(task, given(benchmark), settings)])
    ours = {row.metric: row.value.value for row in set_rows(run) if row.label == "all" and not row.where}
    columns = {
        "frechet_distance": "FID (RadDino)",
        "kernel_distance_all_pairs": "KID (RadDino)",
        "improved_precision": "Precision",
        "improved_recall": "Recall",
        "density": "Density",
        "coverage": "Coverage",
    }
    for metric, column in columns.items():
        assert ours[f"{metric}@rad_dino_299"] == pytest.approx(right[column], abs=6e-4, rel=1e-5), metric
