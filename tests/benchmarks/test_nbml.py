"""Brain tumours in the folders of the authors' notebook: slices and patients by folder, boxes as parts of a slice."""

import csv

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.models import PrecomputedClasses
from tests.helpers.benchmark_files import ids, picture, task

DRAWN = {"T12": "0 0.5 0.25 0.5 0.25", "N7": "1 0.500926 0.500926 0.998148 0.998148", "N8": None}
"""Slice -> its line of labels; the notebook draws a box around a slice without a tumour, or writes nothing."""


def write_boxes(root):
    for part in ("train", "val", "test"):
        for name, line in DRAWN.items():
            picture(root / part / "images" / f"{part}{name}.jpg", np.zeros((8, 16)))
            labels = root / part / "labels" / f"{part}{name}.txt"
            labels.parent.mkdir(parents=True, exist_ok=True)
            if line:
                labels.write_text(line)
    (root / "custom_data.yaml").write_text(
        "train: train/images\nval: val/images\ntest: test/images\nnc: 2\nnames: [Tumor, Normal]\n"
    )


def write_patients(root):
    """Two patients of each kind with four slices."""
    for kind in ("Normal", "Tumor"):
        for patient in range(2):
            for number in range(4):
                folder = root / "Test_Data" / kind / f"Patient-97050419130{patient}{kind[0]}"
                picture(folder / f"{kind[0]}{number}.jpg", np.full((8, 8), 10 * patient + number))


def test_a_tumour_has_its_box_and_a_box_around_a_slice_is_none(tmp_path):
    write_boxes(tmp_path)
    nbml = task("nbml_tumours", tmp_path)
    assert [len(nbml.cases(part)) for part in ("fit", "validate", "test")] == [3, 3, 3]
    cases = {case.id: case for case in nbml.cases("test")}
    tumour = cases["testT12"].target.read()
    assert tumour.names == ("Tumor",)
    assert tumour.corners.tolist() == [[1, 4, 2, 11]]  # rows 1 to 2 of 8, columns 4 to 11 of 16
    assert cases["testN7"].target.read().names == ("Normal",)
    assert cases["testN8"].target.read().names == ()
    assert nbml.excluded == ["Normal"]


def test_a_slice_has_the_class_of_the_folder_of_its_patient(tmp_path):
    write_patients(tmp_path)
    cases = task("nbml_patients", tmp_path).cases("test")
    assert len(cases) == 16
    assert len({case.patient for case in cases}) == 4
    case = next(case for case in cases if case.id == "Test_Data/Tumor/Patient-970504191301T/T2.jpg")
    assert (case.patient, case.target.read().values) == ("Patient-970504191301T", {"Normal": 0, "Tumor": 1})


def test_one_slice_or_three_make_a_patient_positive(tmp_path):
    write_patients(tmp_path)
    nbml = task("nbml_patients", tmp_path)
    # One slice of the first normal patient, one of the first with a tumour, and all of the second.
    positive = {"Normal/Patient-970504191300N/N0", "Tumor/Patient-970504191300T/T3"}
    positive |= {f"Tumor/Patient-970504191301T/T{number}" for number in range(4)}
    with (tmp_path / "said.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["case", "Normal", "Tumor"])
        for name in ids(nbml.cases("test")):
            found = name.removeprefix("Test_Data/").removesuffix(".jpg") in positive
            writer.writerow([name, 0.05, 0.95] if found else [name, 0.9, 0.1])
    run = me.test(nbml, PrecomputedClasses(tmp_path / "said.csv"), runs=tmp_path / "runs", num_workers=0)
    values = run.summary.set_index("metric")["value"]
    assert values["aggregated@max-patient:f1_score@Tumor"] == pytest.approx(4 / 5)
    assert values["aggregated@max3-patient:f1_score@Tumor"] == pytest.approx(2 / 3)
    assert values["aggregated@max-patient:ppv_at_prevalence@0.1:Tumor"] == pytest.approx(0.1 / (0.1 + 0.5 * 0.9))
    assert values["f1_score@Tumor"] == pytest.approx(2 * 5 / (6 + 8))
