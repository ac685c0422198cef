"""Suites of question benchmarks: what they hold, in which words they ask, and one model for all of them."""

import ast
import difflib
import json
import os
import random
import re
import runpy

import pyarrow.parquet as pq
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.instantiate import build_task
from medimg_eval.metrics.answers import rules
from tests.helpers.authors import require_clone
from tests.helpers.catalogue import SAMPLES, answered, task_of, worth
from tests.helpers.config_files import composed_config
from tests.helpers.samples import ALL

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'predict_dataloader' does not have many workers"),
]

assert ALL

TEXT = ["medqa", "medmcqa", "pubmedqa", "mmlu_medical", "medxpertqa_text"]
THEIRS = (
    *("construct_messages", "judge_multi_choice", "parse_response", "find_most_similar_index", "str_similarity"),
    *("extract", "get_content_between_a_b"),
)
"""What of MedEvalKit makes prompts of records, and judges replies."""
REPLIES = ["", "B", "b.", "The answer is C", "<answer>A</answer> no", "Answer: (D)", "a\n\nso", "none of them"]
CHINESE = ["cmb", "cmexam", "cmmlu_medical"]
MORE_TEXT = ["medbullets_op4", "medbullets_op5", "supergpqa_medicine"]
IMAGES = ["mmmu_med", "vqa_rad", "slake", "path_vqa", "pmc_vqa", "omnimedvqa", "medxpertqa_mm"]


VOLUMES = ["m3d_vqa_closed", "m3d_vqa_open", "rad_3d_open", "rad_3d_existence", "rad_3d_temporal", "ct_rate"]
VOLUMES += ["amos_mm", "amos_mm_vqa"]
VIDEOS = ["endovis18_vqa", "cholec80_vqa", "medframeqa"]
REPORTS = ["mimic_cxr_findings", "chexpert_plus_findings", "iu_xray_findings"]


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
        ("lingshu", [*IMAGES, "medqa", "medmcqa", "pubmedqa", "medxpertqa_text", *MORE_TEXT, "medqa_mcmle", *CHINESE]),
        ("hulu_med", [*IMAGES, *TEXT, *MORE_TEXT, "mmlu_pro_health"]),
        ("surgvlm_bench", ["cholec80", "sar_rarp50", "cholect50", "endoscapes_cvs"]),
        ("hulu_med_volumes_videos", [*VOLUMES, *VIDEOS, *REPORTS]),
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


@pytest.mark.parametrize(
    ("name", "right"),
    [("medbullets_op4", 1 / 2), ("medbullets_op5", 1), ("supergpqa_medicine", 1 / 2), ("medqa_mcmle", 1)]
    + [(name, 1) for name in CHINESE],
)
def test_answers_to_sets_of_text_are_worth_what_was_worked_out_by_hand(name, right, tmp_path):
    # Of Medbullets with four options the second is D, and of SuperGPQA the last of ten options, J; both got an A.
    for extraction in ("cascade", "authors"):
        made = task_of(name, tmp_path / "data", extraction=extraction)
        assert worth(answered(made, SAMPLES[name].replies, tmp_path / extraction))["accuracy"] == right


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("medbullets_op4", "Medbullets_op4"),
        ("medbullets_op5", "Medbullets_op5"),
        ("supergpqa_medicine", "SuperGPQA"),
        ("medqa_mcmle", "MedQA_MCMLE"),
        ("cmb", "CMB"),
        ("cmexam", "CMExam"),
        ("cmmlu_medical", "CMMLU"),
    ],
)
@pytest.mark.parametrize("kit", ["alibaba-damo-academy/MedEvalKit", "youkangqi/Hulu-Med/MedUniEval"])
def test_medevalkit_puts_the_same_words_and_knows_the_same_answer(name, module, kit, tmp_path):
    """Where MEDIMG_EVAL_CLONES names a folder with a clone of it, or of Hulu-Med's evaluator, which is made of it."""
    owner, repository, *inner = kit.split("/")
    folder = require_clone(f"{owner}/{repository}").joinpath(*inner, "utils")
    # Its modules import torch and the loaders of the hub; what makes a prompt of a record needs neither.
    theirs = runpy.run_path(str(folder / "question_formats.py")) | {"os": os, "re": re, "difflib": difflib}
    for file in (f"{module}/{module}.py", "utils.py"):
        tree = ast.parse((folder / file).read_text())
        made = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in THEIRS]
        exec(compile(ast.Module(made, []), file, "exec"), theirs)  # noqa: S102
    task = task_of(name, tmp_path)
    (table,) = tmp_path.glob("data/*.parquet")
    records = [row for row in pq.read_table(table).to_pylist() if row.get("discipline", "Medicine") == "Medicine"]
    records = records[: 1 if name in CHINESE else None]  # the second is one that is left out
    cases = task.cases("test")
    assert len(records) == len(cases)
    for case, record in zip(cases, records, strict=True):
        told = theirs["construct_messages"](None, record)
        assert task.prompt(case, ()).text == told["messages"]["prompt"]
        key, rng = case.target.read(), random.Random(0)  # noqa: S311
        assert key.value == told["answer"]
        for reply in [*told["choices"], *REPLIES]:
            cut = "".join(char for char in reply if rng.random() < 0.8)
            for said in (reply, cut, f"I think {cut}"):
                judged = theirs["judge_multi_choice"](
                    told["choices"], told["answer"], theirs["extract"](said, "answer")
                )
                taken = rules()["medevalkit"].function(said, case.question.options, "", key.more)
                assert (taken == key.value) == judged, said


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
