"""Benchmarks of volumes, of trees of files and of conversations: their own tables, views and judges."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from medimg_eval.instantiate import build_task
from medimg_eval.results import build_authors_tables, load_runs
from tests.helpers.catalogue import SAMPLES, answered, config_of, task_of
from tests.helpers.judge_asks import judge_prompts
from tests.helpers.oracle import check_rows
from tests.helpers.samples import ALL
from tests.helpers.samples.k4k5 import volume

assert ALL is not None


def columns(name, root, judged_as=None):
    """Title -> value, of the paper's own table, for the replies of the sample."""
    folder = answered(task_of(name, root / "data"), SAMPLES[name].replies, root / "run", judged_as)
    check_rows(f"judged/{name}", folder)
    (table,) = build_authors_tables(load_runs([folder]), resamples=20)
    return {column.title: cell.mean for column, cell in zip(table.columns, table.rows[0].cells, strict=True)}


def test_medspots_table_is_of_tasks_and_each_program(tmp_path):
    # Of the tasks MITK-1, Weasis-1 and Weasis-2, the first alone is completed.
    assert columns("medspot", tmp_path) == pytest.approx(
        {"SHR": 3 / 6, "S1A": 2 / 3, "WPS": 2.8 / 3, "TCA": 1 / 3, "MITK": 1, "Weasis": 0}
    )


def test_medspots_coordinates_can_be_thousandths(tmp_path):
    task_of("medspot", tmp_path)
    config = config_of("medspot", tmp_path)
    config["layout"]["more"] |= {"convention": "thousand{stem~^}"}
    task = build_task(config)
    found = answered(task, {"MITK-1-1": "(300, 150)"}, tmp_path / "run")
    (run,) = load_runs([found])
    scores = run.scores[run.scores["metric"] == "accuracy"].set_index("case")["value"]
    assert scores["MITK-1-1"] == 1


def test_lmods_table_is_of_all_regions_and_each_source(tmp_path):
    # OIMHS: 3 right of 5 named and 4 due; REFUGE: 1 of 1 and 4.
    assert columns("lmod", tmp_path) == pytest.approx(
        {
            "Precision": 4 / 6,
            "Recall": 4 / 8,
            "F1": 8 / 14,
            "HR": 2.5 / 3,
            "IR": 1 / 4,
            "OIMHS": 6 / 9,
            "REFUGE": 2 / 5,
        }
    )


def test_lmod_resamples_patients_and_not_their_eyes(tmp_path):
    task = task_of("lmod", tmp_path)
    record = json.loads((tmp_path / "OIMHS/100_17/information.json").read_text())
    shutil.copytree(tmp_path / "OIMHS/100_17", tmp_path / "OIMHS/101_3")  # as in the authors' files, the other eye
    record["metadata"]["eye_side"] = "right eye"
    (tmp_path / "OIMHS/101_3/information.json").write_text(json.dumps(record))
    patients = {case.id: case.patient for case in task.cases("test")}
    assert patients["OIMHS/100_17"] == patients["OIMHS/100_18"] == patients["OIMHS/101_3"] == "OIMHS-97"
    assert len({patients["REFUGE/test/V0001"], patients["REFUGE/train/V0001"], patients["OIMHS/100_17"]}) == 3


def test_lmod_asks_of_fundus_photographs_in_other_words(tmp_path):
    task = task_of("lmod", tmp_path)
    case = task.cases("test")[2]
    assert "color fundus image" in task.prompt(case, task.read_images(case)).text
    assert case.images[0].files[0].name == "annotated_bounding_box.png"
    assert [one.patient for one in task.cases("test")][:2] == ["OIMHS-97"] * 2


def test_deeptumorvqas_tables_are_by_type_of_question(tmp_path):
    known = columns("deeptumorvqa_v2", tmp_path / "mc")
    assert list(known)[:5] == ["Overall", "Recog", "Meas", "VisR", "MedR"]
    # 1 of the recognition's two is right, 1 of two measurements, the only one of medical reasoning.
    assert [known[title] for title in list(known)[:5]] == pytest.approx([2 / 5, 0, 1 / 2, np.nan, 1], nan_ok=True)
    assert columns("deeptumorvqa_v2_free", tmp_path / "free") == pytest.approx(
        {
            "Overall": (1.15 + 1 + 0) / 5,
            "Yes-no": 1 / 2,
            "Sensitivity": 0,
            "Specificity": 1,
            "MRA": 1.15 / 2,
            "Within 5 %": 0,
            "Within 10 %": 1 / 2,
            "Within 20 %": 1 / 2,
            "Within 50 %": 1 / 2,
            "Phrase": 0,
            "Phrase (partly)": 1,
        }
    )


def test_deeptumorvqa_says_of_a_patient_what_is_known_and_of_the_grid_where_a_number_is_asked_for(tmp_path):
    task = task_of("deeptumorvqa_v2", tmp_path)
    said = [task.prompt(case, task.read_images(case)).text for case in task.cases("test")]
    assert ["Patient: sex=Male, age=61.0." in text for text in said] == [True, False, True, False, True]
    assert ["Voxel spacing" in text for text in said] == [True, False, False, True, False]


def test_deeptumorvqa_shows_slices_of_the_volume_where_it_is_asked_to(tmp_path):
    task_of("deeptumorvqa_v2", tmp_path)
    for place in range(2):
        volume(tmp_path / "benchmark" / "ct" / f"BDMAP_{place}" / "ct.nii.gz", (6, 4, 9))
    config = config_of("deeptumorvqa_v2", tmp_path)
    spec = {"volume": "benchmark/ct/{image_id}/ct.nii.gz", "slices": {"count": 3}, "window": [50, 400]}
    config["layout"] |= {"images": spec}
    task = build_task(config)
    images = task.read_images(task.cases("test")[0])
    # Voxels are 50, 40, ..., 0 from the patient's right, which is on the left; -150 is black and 250 white.
    assert [image.array.shape for image in images] == [(1, 4, 6)] * 3
    assert images[1].array[0, 0].tolist() == sorted(images[1].array[0, 0].tolist(), reverse=True)
    assert images[1].array.min() == pytest.approx(150 / 400 * 255, abs=1)


def test_3dreasonknee_shows_32_slices_clipped_to_400(tmp_path):
    task = task_of("reasonknee_3d", tmp_path)
    images = task.read_images(task.cases("test")[0])
    assert len(images) == 32
    levels = sorted(float(image.array.max()) for image in images)
    # Slices are 10 times their number: from 320 on; those beyond the 40th are clipped.
    assert levels[-1] == 255
    assert levels[0] == pytest.approx(32 / 40 * 255, abs=8)
    assert {case.attributes["location"] for case in task.cases("test")} == {
        "patella medial BML",
        "loose_bodies_presence",
    }


def test_cxreasonbenchs_table_is_by_path_and_stage(tmp_path):
    found = columns("cxreasonbench", tmp_path)
    assert {title: found[title] for title in list(found)[:15]} == pytest.approx(
        {
            "Path 1, finished": 1 / 3,
            "Path 1, depth": (5 + 0 + 1) / 14,
            "Path 2, finished": 1,
            "Path 2, depth": 1,
            "Path 1 again, finished": 0,
            "Path 1 again, depth": 0,
            "init": 1 / 3,
            "criteria": 2 / 3,
            "custom_criteria": 1 / 2,
            "bodypart": 1 / 3,
            "measurement": 1 / 3,
            "final": 1 / 3,
            "guided_bodypart": 1,
            "guided_measurement": 1,
            "guided_final": 1,
        }
    )
    assert found["Value in range"] == 1 / 2


def test_cxreasonbench_shows_overlays_with_the_question_about_them(tmp_path):
    task = task_of("cxreasonbench", tmp_path)
    case = task.cases("test")[0]
    prompt = task.prompt(case, task.read_images(case))
    assert [part for part in prompt.messages[-1].parts if isinstance(part, int)] == [0]
    turn = task.next_turn(prompt, SAMPLES["cxreasonbench"].replies[case.id].texts[:4])
    files = [case.images[part].files[0].name for part in turn.parts if isinstance(part, int)]
    assert files == ["d1_0.png", "d1_1.png", "d1_2.png"]


RUBRIC = """```json
{"Doctor assessment": {"Medical Interviewing Skills": {"1.1": 1, "1.2": "0", "1.3": "yes"},
 "Humanistic Care": {"2.1": 1, '2.2': 'no'}, "Comprehensive Diagnostic and Treatment Abilities": {"3.1": 1, "3.2": 2},
 "Overall Clinical Competence": {"4.1": "Excellent"}}}
```"""


def test_3mdbenchs_assessor_rates_eight_items_of_one_reply(tmp_path):
    task = task_of("mdbench_3m", tmp_path)
    case = task.cases("test")[3]
    asked = {one.name: (one, prompt) for one, prompt in judge_prompts(task, case, {"texts": ["eczema or hives"]})}
    assert len(asked) == 9
    verdicts = {name: one.verdict(RUBRIC) for name, (one, _) in asked.items()}
    assert verdicts == {
        "option": None,
        "history": 1,
        "symptoms": 0,
        "explanation": 1,
        "empathy": 1,
        "wishes": 0,
        "diagnostic_plan": 1,
        "treatment_plan": None,
        "competence": 2,
    }
    prompts = [prompt for name, (_, prompt) in asked.items() if name != "option"]
    assert len({prompt.text for prompt in prompts}) == 1
    assert "Ground truth diagnosis: eczema" in prompts[0].text
    assert prompts[0].messages[-1].parts[1] == 0
    extract, said = asked["option"]
    assert said.text.endswith("Doctor's replics: eczema or hives")
    for reply, verdict in {"`hives`": "hives", "urticaria": "hives", "none": None, "eczema, acne": None}.items():
        assert extract.verdict(reply) == verdict


def test_3mdbenchs_table_has_the_items_of_the_rubric(tmp_path):
    verdicts = {"test-00000-of-00001-1": {"history": 1, "competence": 2}, "test-00000-of-00001-2": {"history": 0}}
    found = columns("mdbench_3m", tmp_path, verdicts)
    known = {title: value for title, value in found.items() if not np.isnan(value)}
    assert known == pytest.approx(
        {"F1": 2 / 4, "1.1": 1 / 2, "4.1": 2, "choleric": 1, "melancholic": 0, "phlegmatic": 0, "sanguine": 1}
    )


def test_3mdbenchs_patient_is_told_complaint_symptoms_and_temperament(tmp_path):
    class Patient:
        """Is asked nothing here."""

    task = replace(task_of("mdbench_3m", tmp_path, patient=None), patient=Patient())
    case = task.cases("test")[1]
    (script,) = task.prompt(case, task.read_images(case)).later
    assert "Your main complaint:\nMy cheeks burn.\nAdditional symptoms:\nRedness\n" in script.text
    assert "Your personality corresponds to choleric. That includes:\n- Direct and assertive" in script.text
    assert script.text.endswith("finish the dialogue by responding with BREAK.")


def test_medspots_clicks_miss_in_ways_that_have_names(tmp_path):
    task_of("medspot", tmp_path)
    config = config_of("medspot", tmp_path) | {"metrics": ["first_failure@near_miss", "first_failure@no_prediction"]}
    # The target of Weasis-1-3 ends at 80 and, grown, at 95; the patch about 88 begins at 81.
    replies = {"MITK-1-1": "(60, 30)", "MITK-1-2": "x=120, y=100", "Weasis-1-1": "(15, 50)", "Weasis-1-3": "(88, 50)"}
    (run,) = load_runs([answered(build_task(config), replies, tmp_path / "run")])
    codes = run.scores[run.scores["metric"] == "click_failure"].set_index("case")["value"].to_dict()
    assert codes == {
        "MITK-1-1": 0,
        "MITK-1-2": 0,
        "Weasis-1-1": 0,
        "Weasis-1-3": 3,
        "Weasis-1-4": 1,
        "Weasis-2-1": 1,
    }
