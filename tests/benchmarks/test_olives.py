"""OLIVES, over a few scans in the folders and columns that loaders of it read."""

import csv
import io
import os
import time
from contextlib import redirect_stdout
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image as Pillow

from medimg_eval.image import PART
from medimg_eval.metrics import ScoreTable, parse
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import config, ids, picture, task

PATH = "Path (Trial/Arm/Folder/Visit/Eye/Image Name)"
TABLE = "OLIVES_Dataset_Labels/full_labels/Biomarker_Clinical_Data_Images.csv"
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
    (root / TABLE).parent.mkdir(parents=True)
    write_table(root, rows)


def write_table(root, rows):
    with (root / TABLE).open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def read_rows(root):
    with (root / TABLE).open(newline="") as stream:
        return list(csv.DictReader(stream))


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


# Beside the authors' scripts ----------------------------------------------------------------------------------------

SCRIPTS = {
    "biomarkers": "Biomarker Interpretation with Contrastive Learning/datasets/biomarker_multi.py",
    "scores": "Biomarker Interpretation with Contrastive Learning/training_linear/training_one_epoch_ckpt_multi.py",
    "treatment": "Time-Series Treatment Analysis/dataset_processing/generate_treatment_pred.py",
}


def authors(name, *functions, **given):
    """Some functions of a script of olivesgatech/OLIVES_Dataset."""
    clone = require_clone("olivesgatech/OLIVES_Dataset")
    return load_functions(clone / SCRIPTS[name], *functions, **given)


@pytest.mark.slow
def test_scans_and_five_biomarkers_are_those_of_the_authors_loader(tmp_path):
    pandas = pytest.importorskip("pandas")
    torch = pytest.importorskip("torch")
    loader = authors(
        "biomarkers", "BiomarkerDatasetAttributes_MultiLabel",
        data=torch.utils.data, Image=Pillow, np=np, pd=pandas, torch=torch,
    )["BiomarkerDatasetAttributes_MultiLabel"]  # fmt: skip
    write(tmp_path)
    rows = read_rows(tmp_path)
    rng = np.random.default_rng(0)
    biomarkers = list(config("olives_biomarkers").classes)
    for row in rows:
        row |= {name: str(rng.integers(2)) for name in biomarkers}
    write_table(tmp_path, rows)
    # Their own lists have 26 columns: the last two biomarkers lie at 18 and 19, the eye and its values from 22.
    wide = [
        [*list(row.values())[:16], "", "", row["PED (serous)"], row["SHRM"], "", ""]
        + [row[name] for name in ("Eye_ID", "BCVA", "CST", "Patient_ID")]
        for row in rows
    ]
    pandas.DataFrame(wide).to_csv(tmp_path / "list.csv", index=False)
    theirs = loader(str(tmp_path / "list.csv"), str(tmp_path), np.array)
    ours = task("olives_biomarkers", tmp_path)
    cases = {case.id: case for part in ("fit", "validate", "test") for case in ours.cases(part)}
    five = list(config("olives_biomarkers").sets.five)
    assert len(theirs) == len(cases) == 20
    for number, row in enumerate(rows):
        pixels, held, eye, bcva, cst, _ = theirs[number]
        case = cases[row[PATH][1:]]
        assert held.tolist() == [case.target.read().values[name] for name in five]
        assert case.attributes == {"Eye_ID": str(eye), "BCVA": str(bcva), "CST": str(cst)}
        assert np.array_equal(pixels, case.images[0].read().array[0].astype(np.uint8))


@pytest.mark.slow
def test_scores_of_five_biomarkers_are_those_of_the_authors_script():
    torch = pytest.importorskip("torch")
    curves = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    truths = rng.integers(0, 2, (60, 5))
    scores = (rng.normal(size=(60, 5)) + truths).astype(np.float32)

    class Average:
        avg = 0.0

        def update(self, value, count=1):
            pass

    made = authors(
        "scores", "validate_multilabel", torch=torch, np=np, time=time, AverageMeter=Average,
        roc_auc_score=curves.roc_auc_score, average_precision_score=curves.average_precision_score,
    )["validate_multilabel"]  # fmt: skip
    model = torch.nn.Module()
    model.encoder = torch.nn.Identity()
    batches = [
        (torch.from_numpy(scores[first : first + 20]), torch.from_numpy(truths[first : first + 20]), *[None] * 4)
        for first in range(0, 60, 20)
    ]
    loss = torch.nn.BCEWithLogitsLoss()
    with redirect_stdout(io.StringIO()):
        _, weighted, *single, _ = made(batches, model, torch.nn.Identity(), loss, SimpleNamespace(device="cpu"))
    five = list(config("olives_biomarkers").sets.five)
    table = ScoreTable(
        case=np.repeat(np.arange(60), 5),
        metric=np.full(300, "probability"),
        label=np.tile(np.array(five), 60),
        value=(1 / (1 + np.exp(-scores.astype(float)))).ravel(),
        status=np.where(truths.ravel() == 1, "present", "absent"),
        attributes={},
        cases=60,
        facts={"class_sets": {"five": five}},
    )
    metric, parameter = parse("auroc@weighted-five")
    assert metric.function(table, parameter) == pytest.approx(weighted, abs=1e-9)
    for name, expected in zip(five[::-1], single, strict=True):
        metric, parameter = parse(f"auprc@{name}")
        assert metric.function(table, parameter) == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The 'future.infer_string'")
def test_the_effect_of_treatment_and_the_fundus_are_those_of_the_authors_script(tmp_path):
    pandas = pytest.importorskip("pandas")
    from tqdm import tqdm

    made = authors("treatment", "attach_treatment_label", "generate_fundus", pd=pandas, os=os, tqdm=tqdm)
    write(tmp_path)
    rng = np.random.default_rng(2)
    rows = []
    for row in read_rows(tmp_path):  # more visits of each eye, written in no order
        for number in (100, 12, 4, 40):
            visit = f"{'V' if 'TREX' in row[PATH] else 'W'}{number}"
            first, _, side, name = row[PATH].rsplit("/", 3)
            folder = tmp_path / first[1:] / visit / side
            picture(folder / name, np.full((6, 6), number))
            picture(folder / f"fundus_{side}_{visit}.tif", np.full((6, 6), 7))
            rows.append({**row, PATH: f"{first}/{visit}/{side}/{name}"})
    seen = {row[PATH].rpartition("/")[0]: str(rng.integers(58, 62)) for row in rows}
    rows = [{**row, "BCVA": seen[row[PATH].rpartition("/")[0]]} for row in rows]
    write_table(tmp_path, rows)

    columns = {"File_Path": PATH} | {name: name for name in ("BCVA", "CST", "Eye_ID", "Patient_ID")}
    plain = pandas.DataFrame([{ours: row[theirs] for ours, theirs in columns.items()} for row in rows])
    plain["File_Path"] = plain["File_Path"].str[1:]
    plain.to_csv(tmp_path / "all.csv", index=False)
    with pandas.option_context("future.infer_string", False):  # they put numbers into a column of texts
        made["generate_fundus"](tmp_path / "all.csv", tmp_path / "fundus.csv")
        made["attach_treatment_label"](tmp_path / "fundus.csv", tmp_path / "labels.csv")
    theirs = pandas.read_csv(tmp_path / "labels.csv")
    expected = {(row.File_Path, int(row.Treatment)) for row in theirs.itertuples()}
    ours = task("olives_treatment", tmp_path)
    cases = [case for part in ("fit", "validate", "test") for case in ours.cases(part)]
    given = set()
    for case in cases:
        (fundus,) = [file for image in case.images for file in image.files if file.suffix == ".tif"]
        given.add((fundus.relative_to(tmp_path).as_posix(), int(case.target.read().values["improves"])))
    assert given == expected
    assert len(given) == len(cases) == 30
