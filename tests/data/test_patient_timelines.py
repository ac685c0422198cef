"""Lunguage's table as patients: whose studies stand in which order, on which day, and what is right of them."""

import json

import pandas as pd
import pytest

from medimg_eval.data.layouts import PatientTimelines
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.models import PrecomputedTimelines
from medimg_eval.results import load_runs
from tests.helpers.catalogue import task_of
from tests.helpers.running import evaluate
from tests.helpers.samples.k3b import write_csv
from tests.helpers.samples.timelines import lunguage_table

TABLE = "dataset/Lunguage.csv"


def changed(root, **columns):
    """The table with other columns."""
    table = pd.read_csv(root / TABLE, dtype=str, keep_default_na=False)
    table.assign(**columns).to_csv(root / TABLE, index=False)


def test_patients_with_one_study_and_findings_without_a_group_are_left_out(tmp_path):
    lunguage_table(tmp_path)
    layout = PatientTimelines(root=str(tmp_path))
    (case,) = layout.cases("all")
    assert (case.id, case.patient, case.attributes) == ("10", "10", {"studies": "3", "findings": "4"})
    assert layout.left_out() == {"11": "has 1 studies, fewer than 2"}
    rows = json.loads(case.target.read().value)
    assert [(row["idx"], row["entity"], row["study_id"], row["day"], row["episode"]) for row in rows] == [
        (0, "effusion", "s51", 0, "1"),
        (1, "effusion", "s52", 8, "1"),
        (2, "edema", "s52", 8, "1"),
        (3, "effusion", "s53", 200, "2"),
    ]
    assert rows[0]["location"] == "left"
    assert len(PatientTimelines(root=str(tmp_path), least_studies=1).cases("all")) == 2
    hidden = PatientTimelines(root=str(tmp_path), hidden=["hist"]).cases("all")[0]
    assert "Fever" not in hidden.question.text
    assert "A small left effusion." in hidden.question.text


def test_days_come_from_the_metadata_of_mimic_cxr(tmp_path):
    lunguage_table(tmp_path)
    times = [
        ("51", "21800506", "213014.531"),
        ("52", "21800507", "1500"),
        ("52", "21800507", "213015"),
        ("53", "21810506", "0"),
    ]
    write_csv(tmp_path / "metadata.csv", ("study_id", "StudyDate", "StudyTime"), *times)
    (case,) = PatientTimelines(root=str(tmp_path), times="metadata.csv").cases("all")
    # The second study begins at 00:15:00, less than a day after the first.
    assert [row["day"] for row in json.loads(case.target.read().value)] == [0, 0, 0, 364]
    changed(
        tmp_path, StudyDateTime=["2180-05-08", "2180-05-08", *["2180-05-06 10:00:00"] * 2, "2180-05-09 09:59:59", ""]
    )
    (case,) = PatientTimelines(root=str(tmp_path)).cases("all")
    assert [row["day"] for row in json.loads(case.target.read().value)] == [0, 1, 1, 2]


def test_faults_name_the_table_and_the_patient(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'reports'"):
        PatientTimelines(root=str(tmp_path), ask="report")
    lunguage_table(tmp_path)
    changed(tmp_path, gt_entity_group="")
    (case,) = PatientTimelines(root=str(tmp_path)).cases("all")
    with pytest.raises(CaseError, match="no finding of patient '10' has a group"):
        case.target.read()
    with pytest.raises(UserError, match="no patient has 4 studies"):
        PatientTimelines(root=str(tmp_path), least_studies=4).cases("all")
    table = pd.read_csv(tmp_path / TABLE)
    table.drop(columns="sent").to_csv(tmp_path / TABLE, index=False)
    with pytest.raises(UserError, match=r"Lunguage.csv: has no column 'sent'"):
        PatientTimelines(root=str(tmp_path)).cases("all")


def test_stored_rows_go_from_their_table_to_scores(tmp_path):
    task = task_of("lunguage_groups", tmp_path / "data")
    rows = [
        ("10", 0, 1, "effusion", "fluid", 1),
        ("10", 1, 2, "effusion", "fluid", 1),
        ("10", 3, 3, "effusion", "fluid", 2),
    ]
    columns = ("subject_id", "IDX", "sequence", "ent", "LLM_cluster", "temporal_group")
    write_csv(tmp_path / "rows.csv", columns, *rows)
    spec = ModelSpec(
        "stored",
        PrecomputedTimelines,
        {"name": "stored"},
        load=lambda: PrecomputedTimelines(str(tmp_path / "rows.csv")),
    )
    folder = evaluate(task, spec, Settings(runs=tmp_path / "runs", config={}, score_workers=0))
    scores = load_runs([folder])[0].scores.set_index("metric")["value"]
    assert scores["timeline_pair_f1@entity"] == scores["timeline_pair_f1@episode"] == 1
    write_csv(tmp_path / "rows.csv", columns[:3], ("10", "", 1))
    with pytest.raises(CaseError, match="a row of patient '10' names no finding"):
        PrecomputedTimelines(str(tmp_path / "rows.csv")).generate([type("P", (), {"case_id": "10"})()], None)
    with pytest.raises(UserError, match="has no column 'patient'"):
        PrecomputedTimelines(str(tmp_path / "rows.csv"), patient="patient").check_ready()
