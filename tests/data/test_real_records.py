"""What the files that authors released taught us, in invented records of the same form."""

import json

import pytest

from medimg_eval.errors import CaseError
from medimg_eval.instantiate import build_task
from tests.helpers.catalogue import (
    answered,
    composed,
    config_of,
    picture,
    right_reply,
    task_of,
    worth,
    write_json,
    write_lines,
)
from tests.helpers.samples.reports_studies import table

LETTERS = [{"letter": "A", "content": "Nodule"}, {"letter": "B", "content": "Cyst"}]


def medxpertqa(name, label, *images):
    return {
        "id": name,
        "question": "What is seen?\nAnswer Choices: (A) Nodule (B) Cyst",
        "options": LETTERS,
        "label": [label],
        "images": [{"image_path": image} for image in images],
        "medical_task": "Diagnosis",
        "body_system": "Nervous",
        "question_type": "Reasoning",
    }


@pytest.mark.parametrize(
    ("name", "file", "images"), [("medxpertqa_mm", "MM/test.jsonl", 2), ("medxpertqa_text", "Text/test.jsonl", 0)]
)
def test_medxpertqa_is_read_from_the_repository_as_from_the_hub(tmp_path, name, file, images):
    """The repository's eval/data lists options as objects, the label and each image in one more layer."""
    shown = ["1-a.jpeg", "1-b.jpeg"][:images]
    write_lines(tmp_path / file, [medxpertqa("X-1", "B", *shown), medxpertqa("X-2", "A", *shown)])
    for image in shown:
        picture(tmp_path / "images" / image)
    task = build_task(config_of(name, tmp_path))
    cases = task.cases("test")
    assert [dict(case.question.options) for case in cases] == [{"A": "Nodule", "B": "Cyst"}] * 2
    assert [case.target.read().value for case in cases] == ["B", "A"]
    assert [[image.read().array.shape[-2:] for image in case.images] for case in cases] == [[(32, 32)] * images] * 2
    assert worth(answered(task, {case.id: right_reply(case) for case in cases}, tmp_path / "run"))["accuracy"] == 1


def test_options_without_letters_are_no_object_of_options(tmp_path):
    write_lines(tmp_path / "Text/test.jsonl", [medxpertqa("X-1", "B") | {"options": ["Nodule", "Cyst"]}])
    (case,) = build_task(config_of("medxpertqa_text", tmp_path)).cases("test")
    with pytest.raises(CaseError, match="no object of letters and texts"):
        case.target.read()


def test_medbookvqas_columns_are_its_types_by_name(tmp_path):
    """QAtype says "Symptom Recognition", not S: the authors' Ovis.py chooses questions by these names."""
    (column,) = [entry for entry in composed("medbookvqa")["table"] if entry.get("by") == "qa_type"]
    assert column["order"][:3] == ["Modality Recognition", "Anatomy Identification", "Symptom Recognition"]
    assert "titles" not in column


def test_medbookvqas_images_are_found_by_the_path_of_its_readme(tmp_path):
    """./figures/ID.jpg as released, ../figures/ID.jpg after the authors' change_path.py."""
    for name in ("a1", "b2"):
        picture(tmp_path / f"figures/{name}.jpg")
    record = {
        "QAtype": "Symptom Recognition", "Question": "What is seen?", "Answer": " Oedema ", "correct_choice": "C",
        "Distractors": ["Rash", "Ulcer", "Scar"], "other_choices": ["A", "B", "D"],
        "LABEL": {"Modality": ["MRI", "MRI"], "Anatomy": ["Skin"] * 4, "Department": ["Surgery"] * 2},
    }  # fmt: skip
    write_json(
        tmp_path / "data.json",
        [
            record | {"_id": "a1", "image_path": "./figures/a1.jpg"},
            record | {"_id": "b2", "image_path": "../figures/b2.jpg"},
        ],
    )
    cases = build_task(config_of("medbookvqa", tmp_path)).cases("test")
    assert [case.images[0].read().array.shape[-2:] for case in cases] == [(32, 32)] * 2
    assert [right_reply(case) for case in cases] == ["C", "C"]


@pytest.mark.parametrize("subtype", ["organ_HU_measurement", "organ_hu_measurement", "organ HU measurement"])
def test_deeptumorvqa_v1_takes_its_split_from_the_records_and_a_subtype_by_any_of_its_spellings(tmp_path, subtype):
    """The README names a column for the split, and organ_hu_measurement; others read it with blanks."""
    task = task_of("deeptumorvqa_v1", tmp_path)
    (shipped,) = tmp_path.glob("*.csv")
    records = shipped.read_text().replace("lesion_counting", subtype)
    shipped.unlink()
    (tmp_path / "DeepTumorVQA.csv").write_text(records.replace("cyst_existence,validation", "cyst_existence,train"))
    assert [case.id for case in task.cases("fit")] == ["8"]
    (case,) = task.cases("test")
    assert "Voxel spacing (mm): [0.8222656 0.8222656 2.5 ]." in task.prompt(case, task.read_images(case)).text


def test_an_impression_that_holds_a_whole_report_is_cut_in_the_reference_as_in_the_reply(tmp_path):
    """Report 2415 of IU X-ray repeats itself under headings within its column of the impression."""
    whole = "Low volumes. IMPRESSION: Exam: CHEST History: Cough FINDINGS: Large heart. IMPRESSION: Low volumes today."
    row = {"uid": "1", "findings": "Large heart.", "impression": whole, "indication": "Cough", "comparison": "None"}
    table(tmp_path / "indiana_reports.csv", [row | {"Problems": "edema"}])
    table(tmp_path / "indiana_projections.csv", [{"uid": "1", "filename": "a.png", "projection": "Frontal"}])
    picture(tmp_path / "images/images_normalized/a.png")
    task = build_task(config_of("iu_xray_impression", tmp_path))
    (case,) = task.cases("test")
    right = worth(answered(task, {case.id: whole}, tmp_path / "whole"))
    assert right["rouge_l"] == 1
    assert right["length_ratio"] == 1


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("medsynvqa", "data/*.parquet"),
        ("kvasir_vqa_x1", "data/*.parquet"),
        ("kormedmcqa_v", "doctor/*.parquet"),
        ("mme_sci", "*.parquet"),
        ("med_rewardbench", "pair_gt_all"),
    ],
)
def test_files_whose_folder_no_page_tells_are_found_in_any(name, files, tmp_path):
    task = task_of(name, tmp_path)
    read = [case.id for case in task.cases("test")]
    for path in list(tmp_path.glob(files)):
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        path.rename(tmp_path / "elsewhere" / path.name)
    assert [case.id for case in build_task(config_of(name, tmp_path)).cases("test")] == read


def test_spinebench_is_read_by_either_name_of_its_answers_and_images(tmp_path):
    """Who reads the release has met `answer` and `answers`, `image` and `image_path`."""
    task = task_of("spinebench_bupt", tmp_path)
    keys = [case.target.read().value for case in task.cases("test")]
    file = tmp_path / "evaluation/test.json"
    records = json.loads(file.read_text())
    for record in records:
        record["answers"], record["image_path"] = record.pop("answer"), record.pop("image")
    write_json(file, records)
    cases = build_task(config_of("spinebench_bupt", tmp_path)).cases("test")
    assert [case.target.read().value for case in cases] == keys
    assert all(case.images[0].read().array.size for case in cases)
