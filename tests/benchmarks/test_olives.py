"""OLIVES, over a few scans in the folders and columns that loaders of it read."""

import csv

import numpy as np

from medimg_eval.image import PART
from tests.helpers.benchmark_files import config, ids, picture, task

PATH = "Path (Trial/Arm/Folder/Visit/Eye/Image Name)"
EYES = [f"/TREX DME/GILA/{number:04d}GOD/V1/OD" for number in range(5)] + [
    f"/Prime_FULL/01-{number:03d}/W4/OS" for number in range(5)
]


def write(root):
    biomarkers = list(config("olives_biomarkers").classes)
    rows = []
    for patient, eye in enumerate(EYES):
        visit, side = eye.split("/")[-2:]
        picture(root / eye[1:] / f"fundus_{side}_{visit}.tif", np.full((6, 6), 9))
        for scan in range(2):
            name = f"{eye}/{'TREXJ_00000' if 'TREX' in eye else ''}{scan}.png"
            picture(root / name[1:], np.full((6, 6), 10 * patient + scan))
            held = dict.fromkeys(biomarkers, "0") | {"Fluid (IRF)": str(scan), "DRIL": ""}
            rows.append(
                {PATH: name, "Scan (n/49)": scan + 1, **held, "Eye_ID": patient, "BCVA": 60 + patient}
                | {"CST": 300, "Patient_ID": patient % 5}
            )
    table = root / "OLIVES_Dataset_Labels/full_labels/Biomarker_Clinical_Data_Images.csv"
    table.parent.mkdir(parents=True)
    with table.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_a_scan_has_biomarkers_and_folds_keep_patients_of_both_trials_apart(tmp_path):
    write(tmp_path)
    one = task("olives_biomarkers", tmp_path)
    cases = {part: one.cases(part) for part in ("fit", "validate", "test")}
    assert sum(map(len, cases.values())) == 20
    patients = [{case.patient for case in held} for held in cases.values()]
    assert sum(map(len, patients)) == len(set.union(*patients)) == 10
    name = "TREX DME/GILA/0001GOD/V1/OD/TREXJ_000001.png"
    case = next(case for held in cases.values() for case in held if case.id == name)
    assert (case.patient, case.attributes) == ("TREX DME 1", {"Eye_ID": "1", "BCVA": "61", "CST": "300"})
    values = case.target.read().values
    assert (values["Fluid (IRF)"], values["SHRM"], len(values)) == (1, 0, 16)
    assert np.isnan(values["DRIL"])
    assert int(case.images[0].read().array.max()) == 11


def test_a_visit_has_scans_a_fundus_picture_and_values(tmp_path):
    write(tmp_path)
    one = task("olives_disease", tmp_path, layout={"values": ["BCVA", "CST"]})
    cases = [case for part in ("fit", "validate", "test") for case in one.cases(part)]
    assert sorted(ids(cases)) == sorted(eye[1:] for eye in EYES)
    case = next(case for case in cases if case.id == "Prime_FULL/01-003/W4/OS")
    assert case.target.read().values == {"DR": 1, "DME": 0}
    shown = [image.read() for image in case.images]
    assert sorted(image.attributes[PART] for image in shown) == ["fundus", "oct", "oct", "values"]
    (values,) = [image.array for image in shown if image.attributes[PART] == "values"]
    assert values.tolist() == [[[68, 300]]]
    assert "only_values" in one.conditions()
    assert "TREX DME 3" in {case.patient for case in cases}
