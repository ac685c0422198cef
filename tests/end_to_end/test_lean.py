"""What only reads files and scores imports neither torch nor what comes with it, and starts no process."""

import json
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from PIL import Image

from medimg_eval import lazy_torch
from medimg_eval.evaluation.score import WORTH_PROCESSES
from medimg_eval.models import Precomputed

HEAVY = ("torch", "lightning", "transformers", "matplotlib", "monai", "multiprocessing.popen_spawn_posix")

PROGRAM = """
import json, sys
from medimg_eval.commands.cli import start
code = start(sys.argv[2:])
print(json.dumps([code, sorted(set(sys.argv[1].split(",")) & set(sys.modules))]))
"""


def imported_by(*words: str, heavy: tuple[str, ...] = HEAVY) -> list[str]:
    """Of `heavy`, what a command has imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(heavy), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    return list(modules)


def test_reports_are_scored_without_torch_or_scipy(tmp_path: Path) -> None:
    table = tmp_path / "reports.csv"
    table.write_text("id,reference,prediction\n" + "".join(f"{i},No effusion.,No effusion seen.\n" for i in range(3)))
    assert imported_by("score", f"reports={table}", f"runs={tmp_path / 'runs'}", heavy=(*HEAVY, "scipy")) == []


COCO = {
    "images": [{"id": 1, "file_name": "a", "height": 9, "width": 9}],
    "categories": [{"id": 1, "name": "nodule"}],
    "annotations": [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 4, 4], "area": 16}],
}
FILES = {
    "boxes": ("found.json", json.dumps([{"image_id": 1, "category_id": 1, "bbox": [1, 1, 4, 4], "score": 1}])),
    "points": ("points.csv", "case,label,x,y\na,tip,1,2\n"),
    "classes": ("classes.csv", "case,label,probability\na,1,0.9\nb,0,0.1\n"),
    "answers": ("answers.csv", "id,reference,prediction\na,yes,Yes.\n"),
}


def test_pictures_are_scored_without_torch(tmp_path: Path) -> None:
    for folder in ("made", "real"):
        (tmp_path / folder).mkdir()
        for number in range(8):
            grey = np.random.default_rng(number).integers(0, 255, (16, 16)).astype(np.uint8)
            Image.fromarray(grey).save(tmp_path / folder / f"{number}.png")
    words = [f"pictures={tmp_path / 'made'}", f"real={tmp_path / 'real'}", "metrics=[kernel_distance@pixels]"]
    assert imported_by("score", *words, f"runs={tmp_path / 'runs'}") == []


@pytest.mark.parametrize("kind", FILES)
def test_files_are_scored_without_torch(kind: str, tmp_path: Path) -> None:
    (tmp_path / "right.json").write_text(json.dumps(COCO))
    name, text = FILES[kind]
    (tmp_path / name).write_text(text)
    right = {"boxes": "right.json", "points": name}.get(kind)
    words = [f"{kind}={tmp_path / name}", *([f"references={tmp_path / right}"] if right else [])]
    assert imported_by("score", *words, f"runs={tmp_path / 'runs'}") == []


def test_stored_masks_are_scored_without_torch(tmp_path: Path) -> None:
    mask = np.zeros((8, 8, 4), np.uint8)
    mask[2:5, 2:5, 1:3] = 1
    for folder in ("images", "labels", "predictions"):
        (tmp_path / folder).mkdir()
        for case in ("a", "b"):
            nib.save(nib.Nifti1Image(mask, np.diag([1, 1, 2, 1])), tmp_path / folder / f"{case}.nii.gz")
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "masks.yaml").write_text(
        f"""
_target_: medimg_eval.tasks.SegmentationTask
name: masks
labels: {{1: liver}}
metrics: [dice, hd95]
layout:
  _target_: medimg_eval.data.layouts.Volumes
  root: {tmp_path}
  image: images/{{case}}.nii.gz
  mask: labels/{{case}}.nii.gz
splits: {{test: test}}
card: {{description: Masks.}}
"""
    )
    words = [
        "test",
        "--config-dir",
        str(tmp_path),
        "task=masks",
        "model=precomputed",
        f"model.root={tmp_path}/predictions",
    ]
    assert imported_by(*words, f"runs={tmp_path / 'runs'}") == []
    (scores,) = (tmp_path / "runs").rglob("scores.parquet")
    assert scores.is_file()


class Network(torch.nn.Module):
    """A wrapper that says nothing of torch."""


class Learned(Precomputed, torch.nn.Module):
    """One that inherits that it needs none."""


@pytest.mark.parametrize(
    ("model", "expected"), [(Network, True), (object(), True), (Learned, True), (Precomputed, False)]
)
def test_torch_is_set_up_unless_a_model_says_that_it_needs_none(model: object, *, expected: bool) -> None:
    assert lazy_torch.uses_torch(model) is expected


def test_torch_is_seeded_once_and_put_back() -> None:
    states = lazy_torch.generator_states()
    try:
        lazy_torch.seed_torch(7)
        drawn = torch.rand(3)
        lazy_torch.import_seeded()
        drawn_later = torch.rand(3)
        torch.manual_seed(7)
        assert torch.equal(torch.rand(3), drawn)
        assert torch.equal(torch.rand(3), drawn_later)
    finally:
        lazy_torch.restore_generators(states)
    after = lazy_torch.generator_states()
    assert states is not None
    assert after is not None
    assert torch.equal(states[0], after[0])


def test_processes_are_worth_ten_seconds() -> None:
    assert WORTH_PROCESSES >= 10
