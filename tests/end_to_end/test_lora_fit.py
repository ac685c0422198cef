"""PathMMU's arm from its files: a tiny model is tuned on `train`, chosen on `val`, and tested, in two commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import tiny_vlm

from tests.helpers.catalogue import SAMPLES
from tests.helpers.samples import ALL

pytest.importorskip("peft")
assert ALL  # which fills SAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.long]


def run(folder, *words):
    command = [
        sys.executable,
        "-m",
        "medimg_eval",
        *words,
        "task.layout.root=data",
        "task.expected.test=4",
        "trainer.accelerator=cpu",
    ]
    told = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    assert told.returncode == 0, told.stderr
    return told.stderr


def test_two_commands_lead_from_released_files_to_a_tuned_models_answers(tmp_path):
    SAMPLES["pathmmu"].write(tmp_path / "data")
    tiny_vlm.save(tmp_path / "base", "qwen2_vl")
    model = ["task=pathmmu", "model=huggingface_vlm_lora", "model.base=base", "model.rank=4", "model.alpha=8"]
    short = ["task.decoding.max_new_tokens=8", "num_workers=1"]
    told = run(
        tmp_path, "fit", *model, *short, "run=runs/tuned", "fit.lr=0.02", "trainer.max_epochs=6",
        "trainer.check_val_every_n_epoch=3",
    )  # fmt: skip
    assert "model.checkpoint=runs/tuned" in told
    manifest = json.loads((tmp_path / "runs" / "tuned" / "manifest.json").read_text())
    assert manifest["cases"] == {"fit": 1, "validate": 2}
    assert manifest["fitted"]["base"] == "base"
    run(tmp_path, "test", *model, *short, "run=runs/tested", "model.checkpoint=runs/tuned")
    lines = (tmp_path / "runs" / "tested" / "predictions-0.jsonl").read_text().splitlines()
    replies = {line["case"]: line["answer"]["texts"][0] for line in map(json.loads, lines)}
    # The only question to learn from asks for B, and it is asked again.
    assert replies["Atlas-test-4"] == "B"
    assert len(replies) == 4
