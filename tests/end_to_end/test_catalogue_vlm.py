"""Every benchmark of questions, from its files to its own table, answered by one tiny vision-language model."""

import json
from dataclasses import replace
from functools import partial

import lightning.pytorch as pl
import pytest

from medimg_eval.errors import UsageError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models.vision_language.huggingface.model import HuggingFaceVLM
from medimg_eval.results import build_authors_tables, build_table, load_runs
from tests.helpers import tiny_vlm
from tests.helpers.catalogue import SAMPLES, task_of
from tests.helpers.running import evaluate
from tests.helpers.samples import ALL

pytestmark = pytest.mark.slow

assert ALL


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """One model, which is loaded once for all benchmarks."""
    folder = tiny_vlm.save(tmp_path_factory.mktemp("tiny"), context=16_384)
    loaded = HuggingFaceVLM(str(folder), dtype="float32")
    return ModelSpec("Tiny", HuggingFaceVLM, {"checkpoint": str(folder)}, load=lambda: loaded)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Intervals are not what is tested here, and a summary is computed anew for every resample."""
    monkeypatch.setattr("medimg_eval.results.statistics.summaries.MOST_RESAMPLES", 20)


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_benchmark_runs_from_its_files_to_its_own_table(name, model, tmp_path):
    task = replace(task_of(name, tmp_path / "data"), decoding={"max_new_tokens": 8})
    trainer = partial(pl.Trainer, accelerator="cpu", devices=1)
    settings = Settings(tmp_path / "runs", None, trainer, {"trainer": {"accelerator": "cpu"}}, batch_size=4)
    folder = evaluate(task, model, settings)
    manifest = json.loads((folder / "manifest.json").read_text())
    unreadable = [case for case in task.cases("test") if case.question is None]
    assert manifest["status"] == "finished"
    assert manifest["failed_cases"] == len(unreadable), json.loads((folder / "summary.json").read_text())["failures"]
    assert manifest["timing"]["in_model"] > 0
    runs = load_runs([folder])
    assert build_table(runs, resamples=20).columns
    if task.table:
        (table,) = build_authors_tables(runs, resamples=20)
        assert table.rows
    else:
        with pytest.raises(UsageError, match="table"):
            build_authors_tables(runs, resamples=20)
