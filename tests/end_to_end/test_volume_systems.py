"""Systems of volumes, of questions about films and of visits, from their files to their table in two commands."""

import json
from pathlib import Path

import numpy as np
import pytest

from medimg_eval.commands.cli import start
from tests.helpers import tiny_vlm
from tests.helpers.benchmark_files import volume
from tests.helpers.catalogue import AGENTS, REPORTS, SAMPLES
from tests.helpers.chat_server import chat_server
from tests.helpers.config_files import composed_config
from tests.helpers.samples import ALL
from tests.helpers.system_words import fill_words

assert ALL is not None

pytestmark = pytest.mark.long

EVERY = {**SAMPLES, **REPORTS, **AGENTS}

VLM = "model=huggingface_vlm model.checkpoint=VLM"
SERVED = "model=openai_compatible model.model=LLM"
WHOLE = "model._target_=tests.helpers.volume_reader.SaysA"

VOLUMES = (
    *("rad_3d_open", "rad_3d_existence", "rad_3d_temporal", "m3d_vqa_closed", "m3d_vqa_open", "ct_rate"),
    *("amos_mm", "amos_mm_vqa"),
    *("radgenome_presence", "radgenome_abnormality", "radgenome_location", "radgenome_size", "radgenome_disorders"),
    *("radgenome_regions", "ct_spatialvqa", "deeptumorvqa_v1", "deeptumorvqa_v2", "deeptumorvqa_v2_free"),
    *("reasonknee_3d", "reasonknee_3d_reasoning"),
)
FILMS = ("endovis18_vqa", "cholec80_vqa", "clinvideo_qa", "clinvideo_grounding")
NATIVE = ("rad_3d_existence", "m3d_vqa_closed", "ct_rate", "radgenome_presence", "ct_spatialvqa", "deeptumorvqa_v2")
NATIVE_IMAGES = {
    "deeptumorvqa_v2": "task.layout.images={volume: 'benchmark/ct/{image_id}/ct.nii.gz', slices: {count: 32}, "
    "window: [50, 400]}",
}
"""Task -> how its volumes are named where the files of its questions name pictures; as docs print it."""

LINES = {
    **{name: f"test task={name} {VLM}" for name in (*VOLUMES, *FILMS)},
    "temmed_vqa": f"test task=temmed_vqa {VLM} conditions=[report,image_report]",
    "temmed_report": f"test task=temmed_report {VLM} conditions=[report,image_report]",
    "temmed_selection": f"test task=temmed_selection {VLM} conditions=[image_report] task.retriever.by=images",
    "lunguage_timeline": f"test task=lunguage_timeline {SERVED}",
    "lunguage_groups": f"test task=lunguage_groups {SERVED}",
    "clinvideo_qa_agent": f"test task=clinvideo_qa_agent {SERVED}",
    "deeptumorvqa_v2_agent": f"test task=deeptumorvqa_v2_agent {SERVED}",
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_vlm.save(tmp_path_factory.mktemp("tiny"), context=16_384)


@pytest.fixture(scope="module")
def server():
    with chat_server() as running:
        yield running


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch, tmp_path):
    """Intervals are not what is tested here."""
    monkeypatch.setattr("medimg_eval.results.statistics.summaries.MOST_RESAMPLES", 20)
    monkeypatch.chdir(tmp_path)


def run_to_table(words, capsys):
    """Asks and tabulates; returns the manifest and the rows of the table."""
    code, told = start([*words, "run=made"]), capsys.readouterr().err
    assert code == 0 or "no case has a value" in told, told  # of metrics that nonsense leaves undefined
    assert start(["table", "runs=made", "out=table", "resamples=20"]) == 0
    return json.loads(Path("made/manifest.json").read_text()), Path("table/table.csv").read_text().splitlines()


@pytest.mark.parametrize("name", sorted(LINES))
def test_a_system_goes_from_its_files_to_its_table(name, checkpoint, server, tmp_path, capsys):
    sample = EVERY[name]
    sample.write(tmp_path / "data")
    manifest, rows = run_to_table(fill_words(LINES[name], sample, tmp_path / "data", checkpoint, server.url), capsys)
    assert (manifest["status"], manifest["failed_cases"]) == ("finished", 0)
    assert len(rows) > 1


@pytest.mark.parametrize("name", sorted(NATIVE))
def test_volumes_are_handed_over_whole(name, checkpoint, server, tmp_path, capsys):
    sample = EVERY[name]
    sample.write(tmp_path / "data")
    if name == "deeptumorvqa_v2":  # whose fixture has the pictures of the slices alone
        for picture in (tmp_path / "data/benchmark/images_2d/whole").glob("*.png"):
            volume(tmp_path / f"data/benchmark/ct/{picture.stem}/ct.nii.gz", np.full((6, 5, 4), 40))
    words = fill_words(f"test task={name} {WHOLE}", sample, tmp_path / "data", checkpoint, server.url)
    words += [NATIVE_IMAGES[name]] if name in NATIVE_IMAGES else []
    manifest, rows = run_to_table(words, capsys)
    assert (manifest["status"], manifest["view"], manifest["volume_rule"]) == ("finished", "volume", "radfm")
    assert manifest["failed_cases"] == 0
    assert len(rows) > 1


SUITES = {
    "hulu_med": ("vqa_rad", "mmlu_pro_health", "medbullets_op4", "medqa"),
    "hulu_med_volumes_videos": ("m3d_vqa_closed", "rad_3d_temporal", "amos_mm", "amos_mm_vqa", "endovis18_vqa"),
}
"""Suite -> tasks of it that are asked here; of the others each is asked alone, in test_catalogue_vlm.py."""


@pytest.mark.parametrize("name", sorted(SUITES))
def test_a_suite_is_asked_by_one_command_and_put_into_one_table(name, checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MEDIMG_EVAL_DATA", str(tmp_path))
    tasks = composed_config(f"suite/{name}")["tasks"]
    words = [f"suite={name}", f"model.checkpoint={checkpoint}", "model=huggingface_vlm", "model.dtype=float32"]
    words += [f"~tasks.{left}" for left in tasks if left not in SUITES[name]]
    for asked in SUITES[name]:
        EVERY[asked].write(Path(tasks[asked]["layout"]["root"]))
        words.append(f"++tasks.{asked}.decoding.max_new_tokens=8")
        words += [f"~tasks.{asked}.expected"] if tasks[asked].get("expected") else []
    code, told = start(["test", *words, "trainer.accelerator=cpu", "runs=made"]), capsys.readouterr().err
    assert code == 0 or "no case has a value" in told, told
    assert start(["table", "runs=made", "out=table", "resamples=20"]) == 0
    manifests = [json.loads(path.read_text()) for path in Path("made").rglob("manifest.json")]
    assert sorted(manifest["task"] for manifest in manifests) == sorted(SUITES[name])
    assert {(manifest["status"], manifest["failed_cases"]) for manifest in manifests} == {("finished", 0)}
