"""A grid of models and sets, from nothing to U-Scores, subgroup tables and a map of significant differences."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

pytestmark = pytest.mark.slow

NETWORKS = {
    "tiny_unet": "{name: UNet, channels: [4, 8], strides: [2], num_res_units: 0, norm: instance}",
    "tiny_segresnet": "{name: SegResNet, init_filters: 8, blocks_down: [1, 1], blocks_up: [1]}",
}


def write_pictures(root: Path) -> None:
    """Discs on noise: pictures, masks, and a table with splits and sites."""
    rng = np.random.default_rng(0)
    lines = ["case,image,mask,split,site,patient"]
    for index, split in enumerate(["fit"] * 4 + ["validate"] * 2 + ["test"] * 6):
        row, column = np.ogrid[:64, :64]
        centre = rng.uniform(20, 44, 2)
        disc = (row - centre[0]) ** 2 + (column - centre[1]) ** 2 < rng.uniform(10, 16) ** 2
        pixels = np.clip(60 + 120 * disc + rng.normal(0, 10, disc.shape), 0, 255).astype(np.uint8)
        for folder, array in (("images", pixels), ("masks", disc.astype(np.uint8) * 255)):
            (root / folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(root / folder / f"p{index:02d}.png")
        lines.append(f"p{index:02d},images/p{index:02d}.png,masks/p{index:02d}.png,{split},{'ab'[index % 2]},{index}")
    (root / "cases.csv").write_text("\n".join(lines) + "\n")


def write_configs(folder: Path, volumes: Path, pictures: Path) -> None:
    """Three sets (one of pictures, one lesion by lesion) and two networks, as a user would write them."""
    (folder / "task").mkdir(parents=True)
    (folder / "model").mkdir()
    head = "_target_: medimg_eval.tasks.SegmentationTask\nfacts: {iou_p10: 0.1, iou_p90: 0.9}\n"
    layout = f"""layout:
  _target_: medimg_eval.data.layouts.Volumes
  root: {volumes}
  image: images/{{case}}.nii.gz
  mask: labels/{{case}}.nii.gz
  table: cases.csv
"""
    (folder / "task" / "whole.yaml").write_text(
        f"{head}name: whole\nlabels: {{1: core, 2: rim}}\nmetrics: [dice, iou, hd95, u_score]\n{layout}"
    )
    (folder / "task" / "lesions.yaml").write_text(
        f"{head}name: lesions\nlabels: {{1: core, 2: rim}}\nregions: {{lesion: [1, 2], core: [1]}}\n"
        f"metrics: [dice, iou, lesion_dice, lesion_hd95, u_score]\nempty: brats2023\nlesions: brats2023-gli\n{layout}"
    )
    (folder / "task" / "discs.yaml").write_text(
        f"""{head}name: discs
labels: {{1: disc}}
units: pixel
metrics: [dice, iou, u_score]
layout:
  _target_: medimg_eval.data.layouts.Table
  root: {pictures}
  table: cases.csv
  image: image
  id: case
  patient: patient
  split: split
  attributes: [site]
  target:
    _target_: medimg_eval.data.targets.MaskTarget
    path: mask
    options: {{foreground: true}}
"""
    )
    for name, network in NETWORKS.items():
        (folder / "model" / f"{name}.yaml").write_text(
            f"""# description: for this test
_target_: medimg_eval.models.segmentation.monai.MonaiSegmenter
name: {name}
checkpoint: null
network: {network}
roi_size: null
patches_per_case: 2
"""
        )


@pytest.mark.long
def test_two_models_on_three_sets_give_u_scores_tables_and_a_map(program, write_dataset, tmp_path):
    volumes = write_dataset(6, fit=4, validate=2)
    pictures = tmp_path / "pictures"
    write_pictures(pictures)
    conf = tmp_path / "conf"
    write_configs(conf, volumes, pictures)
    grid = ["--config-dir", str(conf), f"model={','.join(NETWORKS)}", "num_workers=0"]
    # Windows no larger than the volumes need: the clock of `efficiency` runs for 100 of them.
    sets = (["task=whole,lesions", "model.roi_size=[16,16,16]"], ["task=discs"])
    one_epoch = ["trainer.max_epochs=1", "trainer.check_val_every_n_epoch=1", "fit.warmup=0"]
    words = ["model.checkpoint=fits/${task.name}-${model.name}", "efficiency=true", "score_workers=0"]
    for tasks in sets:
        fitted = program("-m", "fit", *grid, *tasks, *one_epoch, "run=fits/${task.name}-${model.name}")
        assert fitted.returncode == 0, fitted.stderr
        done = program("-m", "test", *grid, *tasks, *words)
        assert done.returncode == 0, done.stderr

    manifests = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/*/manifest.json")]
    assert len({(manifest["task"], manifest["model"]) for manifest in manifests}) == 6
    for manifest in manifests:
        measured = manifest["efficiency"]
        assert measured["gflops"] > 0
        assert measured["frames_per_second"] > 0
        assert measured["parameters"] == pytest.approx(manifest["model_info"]["parameters"])

    table = program("table", "runs=runs", "metrics=[iou,u_score]", "resamples=50", "out=paper")
    assert table.returncode == 0, table.stderr
    frame = pd.read_csv(tmp_path / "paper" / "table.csv")
    scores = frame[frame["metric"] == "u_score"]
    assert len(scores) == 6
    assert scores["mean"].between(0, 100).all()

    lesions = program("table", "runs=runs/lesions", "by=label", "resamples=50")
    assert lesions.returncode == 0, lesions.stderr
    assert re.search(r"Lesion Dice ↑.*Lesion HD95 \(mm\) ↓", lesions.stdout)
    assert "brats2023-gli" in lesions.stdout
    groups = program("table", "runs=runs/discs", "by=site", "resamples=50", "metrics=[dice]")
    assert groups.returncode == 0, groups.stderr
    assert all(f" {site} " in groups.stdout for site in ("a", "b"))

    compared = program("compare", "runs=runs/discs", "metric=dice", "out=map")
    assert compared.returncode == 0, compared.stderr
    assert "Holm" in compared.stdout
    assert {path.suffix for path in (tmp_path / "map").iterdir()} >= {".md", ".csv", ".tex", ".html", ".svg"}
