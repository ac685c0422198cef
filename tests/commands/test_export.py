"""`export`: runs in the layouts of other programs; what can be read back is, and gives the same scores."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import medimg_eval
from medimg_eval.case import Mask
from medimg_eval.commands.cli import start
from medimg_eval.imaging import write_mask

KEEPS = {"A": "Liver", "B": "Heart"}
COLUMNS = ("id", "question", "options", "reference", "prediction", "patient")
ROWS = (
    ("a", "Which organ makes bile?", KEEPS, "A", "A", "p"),
    ("b", "Which organ pumps?", KEEPS, "B", "(A)", "q"),
    ("c", "Where is urine kept?", {"A": "Bladder", "B": "Heart"}, "A", "Bladder", "q"),
)


@pytest.fixture
def answers(folder):
    (folder / "mine.jsonl").write_text("".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in ROWS))
    assert start(["score", "answers=mine.jsonl"]) == 0
    return only_run(folder / "runs")


@pytest.fixture
def masks(folder):
    for name, labels in {
        "references": {"x": [1, 1, 0, 2], "y": [0, 0, 0, 2]},
        "mine": {"x": [1, 0, 0, 2], "y": [0, 0, 2, 2]},
    }.items():
        (folder / name).mkdir()
        for case, line in labels.items():
            array = np.zeros((4, 2, 2), np.uint8)
            array[:, 0, 0] = line
            write_mask(folder / name / f"{case}.nii.gz", Mask(array, np.eye(4)))
    assert start(["score", "masks=mine", "references=references", "labels={1: liver, 2: spleen}"]) == 0
    return only_run(folder / "runs")


def only_run(folder):
    (manifest,) = folder.glob("*/*/manifest.json")
    return manifest.parent


def accuracy(run):
    scores = medimg_eval.load_run(run).scores
    rows = scores[scores["metric"] == "accuracy"]
    return list(rows["value"])


@pytest.mark.parametrize("form", ["lm_eval", "vlmevalkit"])
def test_what_is_exported_comes_back_with_the_same_scores(folder, answers, form):
    assert start(["export", f"run={answers}", f"to={form}", "out=given"]) == 0
    assert start(["import", "log=given", "runs=again"]) == 0
    back = only_run(folder / "again")
    assert accuracy(back) == accuracy(answers) == [1, 0, 1]
    assert medimg_eval.load_run(back).manifest["model"] == "mine"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of inspect's own
def test_inspect_reads_its_log_and_gives_it_back(folder, answers):
    log_module = pytest.importorskip("inspect_ai.log")
    assert start(["export", f"run={answers}", "to=inspect", "out=given"]) == 0
    (file,) = Path("given").glob("*.eval")
    log = log_module.read_eval_log(str(file))
    assert (log.status, log.eval.model, [sample.id for sample in log.samples]) == ("success", "mine", ["a", "b", "c"])
    assert log.samples[1].choices == ["Liver", "Heart"]
    (score,) = (one for one in log.results.scores if one.name == "accuracy")
    assert score.metrics["value"].value == pytest.approx(2 / 3)
    assert start(["import", "log=given", "runs=again"]) == 0
    back = medimg_eval.load_run(only_run(folder / "again"))
    assert accuracy(back.folder) == accuracy(answers)
    assert set(back.scores["patient"]) == {"p", "q"}


def test_nnunet_summary_holds_counts_and_means_and_comes_back(folder, masks):
    assert start(["export", f"run={masks}", "to=nnunet", "out=given"]) == 0
    summary = json.loads(Path("given/mine/summary.json").read_text())
    x, y = summary["metric_per_case"]
    assert x["metrics"]["1"] == {
        "Dice": pytest.approx(2 / 3), "IoU": 0.5, "TP": 1, "FP": 0, "FN": 1, "TN": 14, "n_pred": 1, "n_ref": 2,
    }  # fmt: skip
    assert np.isnan(y["metrics"]["1"]["Dice"])
    assert summary["mean"]["2"]["Dice"] == pytest.approx((1 + 2 / 3) / 2)
    assert summary["foreground_mean"]["Dice"] == pytest.approx((2 / 3 + 5 / 6) / 2)
    assert start(["import", "log=given/mine"]) == 0
    told = pd.read_csv("imported/nnU-Net/mine.csv")
    ours = medimg_eval.load_run(masks).scores
    ours = ours[(ours["metric"] == "dice") & (ours["label"] == "spleen")]
    assert sorted(told.loc[(told["metric"] == "dice") & (told["label"] == "label 2"), "value"]) == pytest.approx(
        sorted(ours["value"])
    )


def test_texts_are_no_label_maps_and_the_reverse(answers, capsys):
    assert start(["export", f"run={answers}", "to=nnunet"]) == 1
    assert "its predictions are no label maps" in capsys.readouterr().err


def test_grand_challenge_gets_metrics_without_nan_and_a_container_that_scores(folder, masks):
    assert start(["export", f"run={masks}", "to=grand_challenge", "out=given"]) == 0
    metrics = json.loads(Path("given/metrics.json").read_text(), parse_constant=pytest.fail)
    assert metrics["aggregates"]["dice"]["n"] == 2
    assert {case["case"] for case in metrics["results"]} == {"x", "y"}
    assert "FROM python" in Path("given/Dockerfile").read_text()


@pytest.mark.slow
def test_the_container_s_program_scores_what_jobs_left(folder, masks):
    assert start(["export", f"run={masks}", "to=grand_challenge", "out=given"]) == 0
    jobs = []
    for number, case in enumerate(("y", "x")):
        place = folder / "input" / f"job{number}" / "output" / "images" / "organs"
        place.mkdir(parents=True)
        (place / "result.nii.gz").write_bytes((folder / "mine" / f"{case}.nii.gz").read_bytes())
        socket = {"slug": "organs", "kind": "Segmentation", "relative_path": "images/organs"}
        name = {"image": {"name": f"{case}.nii.gz"}}
        jobs.append(
            {"pk": f"job{number}", "inputs": [name], "outputs": [{"interface" if number else "socket": socket}]}
        )
    (folder / "input" / "predictions.json").write_text(json.dumps(jobs))
    places = {"GC_INPUT": "input", "GC_OUTPUT": "output", "GC_TRUTH": "references", "GC_WORK": "work"}
    environment = {**os.environ, **{key: str(folder / name) for key, name in places.items()}}
    subprocess.run([sys.executable, "given/evaluate.py"], env=environment, check=True, capture_output=True)
    metrics = json.loads((folder / "output" / "metrics.json").read_text())
    ours = json.loads((folder / "given" / "metrics.json").read_text())
    assert metrics["aggregates"]["dice"] == ours["aggregates"]["dice"]


def test_the_hub_gets_means_with_intervals_and_no_case(folder, answers):
    assert start(["export", f"run={answers}", "to=hugging_face", "dataset=lab/organs", "out=given"]) == 0
    (entry, *_) = yaml.safe_load(Path("given/.eval_results/answers.yaml").read_text())
    assert entry["dataset"] == {"id": "lab/organs", "task_id": "answers"}
    assert entry["value"] == pytest.approx(2 / 3)
    assert "n = 3" in entry["notes"]
    card = Path("given/model-card.yaml").read_text()
    assert "model-index" in card
    assert "bile" not in card


def test_nothing_is_published_unless_the_data_s_terms_allow_it(answers, capsys, monkeypatch):
    import huggingface_hub

    sent = []
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_file", lambda self, **options: sent.append(options))
    words = ["export", f"run={answers}", "to=hugging_face", "dataset=lab/organs", "publish=me/net", "out=given"]
    assert start(words) == 2
    assert "hub 'Hugging Face' would send scores to huggingface.co" in " ".join(capsys.readouterr().err.split())
    assert not sent
    assert start([*words, "may_leave=yes"]) == 0
    (options,) = sent
    assert (options["repo_id"], options["create_pr"]) == ("me/net", True)


def test_a_format_that_there_is_not_and_keys_of_another_are_refused(answers, capsys):
    assert start(["export", f"run={answers}", "to=inspekt"]) == 2
    assert "inspect" in capsys.readouterr().err
    assert start(["export", f"run={answers}", "to=lm_eval", "dataset=a/b"]) == 2
    assert "dataset= is for to=hugging_face" in capsys.readouterr().err


def test_reports_go_to_rexrank_by_study(folder):
    (folder / "mine.csv").write_text("id,reference,prediction\ns1,No effusion.,Effusion.\ns2,Clear.,Clear.\n")
    assert start(["score", "reports=mine.csv", "metrics=[rouge_l]"]) == 0
    assert start(["export", f"run={only_run(folder / 'runs')}", "to=rexrank", "out=given"]) == 0
    (predicted,) = Path("given").glob("*-predicted.csv")
    (reference,) = Path("given").glob("*-reference.csv")
    assert pd.read_csv(predicted).to_dict("list") == {"study_id": ["s1", "s2"], "report": ["Effusion.", "Clear."]}
    assert list(pd.read_csv(reference)["report"]) == ["No effusion.", "Clear."]
