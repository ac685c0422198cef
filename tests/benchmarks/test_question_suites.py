"""Suites of question benchmarks: what they hold, in which words they ask, and one model for all of them."""

import json

import pytest

from medimg_eval.commands.cli import start
from medimg_eval.instantiate import build_task
from tests.helpers.catalogue import SAMPLES
from tests.helpers.config_files import composed_config
from tests.helpers.samples import ALL

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'predict_dataloader' does not have many workers"),
]

assert ALL

TEXT = ["medqa", "medmcqa", "pubmedqa", "mmlu_medical", "medxpertqa_text"]
IMAGES = ["mmmu_med", "vqa_rad", "slake", "path_vqa", "pmc_vqa", "omnimedvqa", "medxpertqa_mm"]


def suite(name):
    """The configs of a suite's tasks."""
    return composed_config(f"suite/{name}")["tasks"]


def first_choice(config, root):
    """What a task of a suite says to the first choice of its sample."""
    sample = SAMPLES[config["name"]]
    root.mkdir()
    sample.write(root)
    config["layout"]["root"] = str(root)
    task = build_task({**config, "expected": {}, **sample.settings})
    case = next(case for case in task.cases("test") if case.question and case.question.kind == "choice")
    return task.prompt(case, task.read_images(case))


@pytest.mark.parametrize(
    ("name", "tasks"),
    [
        ("lingshu", [*IMAGES, "medqa", "medmcqa", "pubmedqa", "medxpertqa_text"]),
        ("hulu_med", [*IMAGES, *TEXT]),
        ("multimedbench_imaging", ["vqa_rad", "slake", "path_vqa"]),
        ("medical_text", TEXT),
    ],
)
def test_suites_hold_what_their_publications_list(name, tasks):
    assert sorted(suite(name)) == sorted(tasks)


@pytest.mark.parametrize("name", ["mmmu_med", "pmc_vqa", "omnimedvqa", "medxpertqa_mm", "medxpertqa_text", "medqa"])
def test_lingshus_choices_are_asked_in_the_words_of_medevalkit_and_in_one_turn(name, tmp_path):
    prompt = first_choice(suite("lingshu")[name], tmp_path / "data")
    assert [message.role for message in prompt.messages] == ["user"]
    assert not prompt.later
    assert prompt.text.startswith("\nQuestion: ")
    assert "\nOptions: \nA" in prompt.text
    assert prompt.text.endswith("\nAnswer with the option's letter from the given choices directly.")


@pytest.mark.slow
def test_a_suite_is_run_with_one_model_and_printed_as_one_table_and_as_each_papers_own(tmp_path, monkeypatch, capsys):
    for name in ("vqa_rad", "path_vqa"):
        (tmp_path / name).mkdir()
        SAMPLES[name].write(tmp_path / name)
    log = tmp_path / "log"
    monkeypatch.setenv("MEDIMG_EVAL_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    words = [
        *("test", "suite=multimedbench_imaging", "~tasks.slake", "~tasks.vqa_rad.expected", "~tasks.path_vqa.expected"),
        *("model._target_=tests.helpers.counting.Counted", f"+model.log={log}", "num_workers=0"),
    ]
    assert start(words) == 0, capsys.readouterr().err
    lines = log.read_text().splitlines()
    assert lines.count("made") == 1
    assert sum(line.startswith("asked") for line in lines) == len(SAMPLES["vqa_rad"].cases) + len(
        SAMPLES["path_vqa"].cases
    )
    manifests = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/*/manifest.json")]
    assert sorted((one["task"], one["status"]) for one in manifests) == [
        ("path_vqa", "finished"),
        ("vqa_rad", "finished"),
    ]
    out = capsys.readouterr().out
    assert "VQA-RAD" in out
    assert "PathVQA" in out
    assert start(words) == 0
    assert log.read_text().splitlines() == lines  # nothing is asked again, and no model is loaded
    capsys.readouterr()
    assert start(["table", "table=authors", "resamples=20"]) == 0
    out = capsys.readouterr().out
    assert "Closed" in out
    assert "Open (exact match)" in out
