"""`export`: runs in the layouts of other programs; what can be read back is, and gives the same scores."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from asking import Painted

import medimg_eval
from medimg_eval.case import Case, Mask
from medimg_eval.commands.cli import start
from medimg_eval.exports.classes import COMPETITION, _study_name
from medimg_eval.imaging import write_mask
from tests.helpers.authors import require_clone
from tests.helpers.catalogue import REPORTS
from tests.helpers.samples import ALL

assert ALL is not None

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


def written_for_rexrank(folder):
    """What is written of three reports: one without headings, one with both sections, one with an impression alone."""
    rows = [
        ("s1", "No effusion.", "Effusion."),
        ("s2", "FINDINGS: Clear lungs. IMPRESSION: Normal.", "Clear."),
        ("s3", "IMPRESSION: Pneumonia.", ""),
    ]
    pd.DataFrame(rows, columns=["id", "reference", "prediction"]).to_csv("mine.csv", index=False)
    start(["score", "reports=mine.csv", "metrics=[rouge_l]"])
    assert start(["export", f"run={only_run(folder / 'runs')}", "to=rexrank", "out=given"]) == 0
    return Path("given")


def test_reports_go_to_rexrank_by_study(folder):
    given = written_for_rexrank(folder)
    (submission,) = given.glob("*.json")
    studies = json.loads(submission.read_text(encoding="utf-8"))
    assert [(one["section_findings"], one["section_impression"]) for one in studies.values()] == [
        ("No effusion.", None),
        ("Clear lungs.", "Normal."),
        (None, "Pneumonia."),
    ]
    assert {study: one["model_prediction"] for study, one in studies.items()} == {
        "s1": "Effusion.",
        "s2": "Clear.",
        "s3": "",
    }
    (predicted,) = given.glob("*-predicted.csv")
    (reference,) = given.glob("*-reference.csv")
    assert list(pd.read_csv(predicted, keep_default_na=False)["report"]) == ["Effusion.", "Clear.", ""]
    assert list(pd.read_csv(reference)["report"]) == [
        "Findings: No effusion. Impression: None",
        "Findings: Clear lungs. Impression: Normal.",
        "Findings: None Impression: Pneumonia.",
    ]


def test_sections_of_rexrank_s_tests_come_back_in_the_file_that_it_reads(folder):
    REPORTS["rexrank_chexpert_plus"].write(folder / "data")
    Path("mine.csv").write_text("id,prediction\npatient1_study1,Impression: Normal.\npatient1_study2,Large heart.\n")
    data = ["task=rexrank_chexpert_plus", f"task.layout.root={folder / 'data'}", "task.expected.test=2"]
    model = ["model=precomputed_reports", "model.file=mine.csv"]
    assert start(["test", *data, *model, "task.metrics=[unanswered]"]) == 0
    assert start(["export", f"run={only_run(folder / 'runs')}", "to=rexrank", "out=given"]) == 0
    (submission,) = Path("given").glob("*.json")
    studies = json.loads(submission.read_text(encoding="utf-8"))
    stated = json.loads((folder / "data" / "ReXRank_CheXpertPlus.json").read_text())
    assert studies.keys() == stated.keys()
    assert studies["patient1_study1"]["section_findings"] is None
    assert studies["patient1_study2"]["section_findings"] == stated["patient1_study2"]["section_findings"]
    assert studies["patient1_study1"]["section_impression"] == "1. No edema."
    assert studies["patient1_study1"]["model_prediction"] == "Impression: Normal."


def test_rexrank_s_own_script_makes_the_same_tables(folder):
    """Where MEDIMG_EVAL_CLONES names a folder that holds a clone: its script, from the page that shows it."""
    clone = require_clone("rajpurkarlab/ReXrank")
    page = (clone / "example_files" / "evaluation_script.md").read_text(encoding="utf-8")
    theirs: dict = {}
    exec(page.partition("```python")[2].partition("```")[0], theirs)  # noqa: S102
    given = written_for_rexrank(folder)
    (submission,) = given.glob("*.json")
    theirs["split_json"](submission, "their-reference.csv", "their-predicted.csv")
    for kind in ("reference", "predicted"):
        (ours,) = given.glob(f"*-{kind}.csv")
        pd.testing.assert_frame_equal(pd.read_csv(ours), pd.read_csv(f"their-{kind}.csv"))


def probabilities(folder, classes):
    """A run of two studies, whose images lie as CheXpert's do where a model gives these classes."""
    frame = pd.DataFrame({"case": ["patient1/study1", "patient2/study1"], **{name: [0.25, 0.75] for name in classes}})
    frame.to_csv("mine.csv", index=False)
    right = frame.assign(**{name: [0, 1] for name in classes})
    right.to_csv("right.csv", index=False)
    assert start(["score", "classes=mine.csv", "references=right.csv"]) == 0
    return only_run(folder / "runs")


def test_the_chexpert_competition_gets_its_five_classes_by_study(folder):
    run = probabilities(folder, (*COMPETITION[::-1], "Fracture"))
    assert start(["export", f"run={run}", "to=chexpert", "out=given"]) == 0
    (file,) = Path("given").glob("*.csv")
    assert file.read_text(encoding="utf-8") == (
        "Study,Atelectasis,Cardiomegaly,Consolidation,Edema,Pleural Effusion\n"
        "patient1/study1,0.25,0.25,0.25,0.25,0.25\npatient2/study1,0.75,0.75,0.75,0.75,0.75\n"
    )


def test_a_study_is_called_by_the_folder_of_its_images():
    image = Painted(1, files=(Path("/data/CheXpert-v1.0-small/valid/patient7/study2/view1_frontal.jpg"),))
    assert _study_name(Case("p7s2", (image,), image)) == "CheXpert-v1.0/valid/patient7/study2"
    assert _study_name(Case("p7s2", (), image)) == "p7s2"


def test_what_the_competition_judges_may_not_lack(folder, answers, capsys):
    assert start(["export", f"run={answers}", "to=chexpert"]) == 1
    assert "no probabilities of classes" in capsys.readouterr().err


def test_croissant_describes_the_tables_that_lie_beside_it(folder, masks):
    assert start(["export", f"run={masks}", "to=croissant", "out=given"]) == 0
    data = json.loads(Path("given/masks-croissant.json").read_text(encoding="utf-8"))
    (scores_file,) = Path("given").glob("masks-mine-*-croissant.json")
    scores = json.loads(scores_file.read_text(encoding="utf-8"))
    for document in (data, scores):
        assert document["conformsTo"] == "http://mlcommons.org/croissant/1.0"
        for held in document["distribution"]:
            content = Path("given", held["contentUrl"]).read_bytes()
            assert hashlib.sha256(content).hexdigest() == held["sha256"]
    (cases,) = data["recordSet"]
    assert [field["source"]["extract"]["column"] for field in cases["field"]][:3] == ["case", "split", "files"]
    assert [one["@id"] for one in scores["recordSet"]] == ["scores", "means"]
    (table,) = [one["contentUrl"] for one in scores["distribution"] if one["contentUrl"].endswith("-scores.csv")]
    frame = pd.read_csv(Path("given", table))
    assert set(frame["case"]) == {"x", "y"}
    assert "patient" not in frame.columns


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of rdflib
def test_mlcroissant_reads_both_documents_and_their_records(folder, masks):
    croissant = pytest.importorskip("mlcroissant")
    assert start(["export", f"run={masks}", "to=croissant", "out=given"]) == 0
    for file in Path("given").glob("*.json"):
        dataset = croissant.Dataset(str(file))
        assert not dataset.metadata.ctx.issues.errors
        for held in dataset.metadata.record_sets:
            records = list(dataset.records(held.uuid))
            assert records
            assert set(records[0]) == {field.uuid for field in held.fields}


def test_data_that_lie_elsewhere_are_asked_for_and_leave_no_folder(folder, monkeypatch, capsys):
    (folder / "mine.csv").write_text("id,reference,prediction\na,No edema.,No edema.\n", encoding="utf-8")
    assert start(["score", "reports=mine.csv", "runs=runs"]) == 0
    (run,) = (path.parent.resolve() for path in Path("runs").rglob("scores.parquet"))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert start(["export", f"run={run}", "to=croissant", "out=given"]) == 1
    assert "made, or name the data by root=" in " ".join(capsys.readouterr().err.split())
    assert not Path("given").exists()
    assert start(["export", f"run={run}", "to=rexrank", f"root={folder / 'mine.csv'}", "out=given"]) == 0


def test_a_reply_that_begins_like_a_formula_comes_back_from_a_spreadsheet(folder):
    rows = [{"id": "a", "question": "Which?", "options": {"A": "Liver", "B": "Lung"}, "reference": "B"}]
    Path("asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("mine.jsonl").write_text(json.dumps({"id": "a", "prediction": "=B"}) + "\n")
    assert start(["score", "answers=mine.jsonl", "references=asked.jsonl"]) == 0
    assert start(["export", f"run={only_run(folder / 'runs')}", "to=vlmevalkit", "out=given"]) == 0
    assert start(["import", "log=given", "runs=again"]) == 0
    assert accuracy(only_run(folder / "again")) == [1]
