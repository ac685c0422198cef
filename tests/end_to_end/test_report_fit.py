"""A report generator, fitted on phantoms within a minute, finds far more than those who do not look."""

from __future__ import annotations

import time
from functools import partial

import lightning.pytorch as pl
import pytest
import torch
import yaml
from lightning.pytorch.loggers import CSVLogger

from medimg_eval.evaluation.fitting.fit import Recipe, fit
from medimg_eval.evaluation.settings import Settings
from medimg_eval.instantiate import build_candidate, build_task
from medimg_eval.results import build_table, load_runs
from tests.helpers.config_files import config_file
from tests.helpers.running import evaluate

pytest.importorskip("timm")
pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:.*weights_only"),
]

CASES, EPOCHS = 320, 14
LINES = ("most_frequent", "normal")
F1 = "rule_labeler_f1@micro-14+"


def config(group, name):
    return yaml.safe_load(config_file(name, group).read_text())


@pytest.fixture
def one_thread():
    """So small a network is no faster on two cores, and tests may run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.long
@pytest.mark.usefixtures("one_thread")
def test_a_fit_writes_what_pictures_show_far_better_than_baselines_that_do_not_look(tmp_path):
    wanted = config("task", "phantom_reports")
    wanted["layout"] |= {"root": str(tmp_path), "count": CASES, "text": "impression"}
    wanted |= {"metrics": [F1, "rouge_l"], "expected": {}}
    small = config("model", "report_generator")
    small |= {"image_size": 64, "max_tokens": 64, "phrases": 128}
    small["decoder"] = {"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 4, "n_positions": 64}
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    settings = Settings(
        runs=tmp_path / "runs",
        run=None,
        trainer=partial(
            trainer, max_epochs=EPOCHS, check_val_every_n_epoch=EPOCHS, gradient_clip_val=1.0, log_every_n_steps=10
        ),
        config={"trainer": {"max_epochs": EPOCHS}},
        batch_size=8,
    )
    pl.seed_everything(0, verbose=False)
    begun = time.process_time()
    loggers = lambda where: [CSVLogger(where, name="logs", version="csv")]  # noqa: E731
    recipe = Recipe(lr=0.003, weight_decay=0.01, warmup=0.1)
    folder = fit(build_task(wanted), build_candidate(small), recipe, settings, loggers)
    assert time.process_time() - begun < 300  # seconds of the CPU, all threads together
    models = [small | {"checkpoint": str(folder)}, *(config("model", f"{name}_report") for name in LINES)]
    runs = [evaluate(build_task(wanted), build_candidate(one), settings) for one in models]
    found, *others = [row.cells[0].mean for row in build_table(load_runs(runs)).rows]
    assert max(others) < 0.2  # 0.15, and the generator 0.54
    assert found > 0.4
