"""GPFM's tasks of slides, over its tables and lists with features of made-up slides beside them."""

import numpy as np
import pytest
import torch

from medimg_eval.data.leaks import find_leaks, note_leaks
from medimg_eval.errors import UserError
from tests.helpers.benchmark_files import config, ids, task

PATH = "/storage/features/pt_files/resnet50"


def features(root, *names):
    """Bags of two tiles as CLAM leaves them, of which the first number is that of the bag."""
    folder = root / "features/pt_files"
    folder.mkdir(parents=True)
    for number, name in enumerate(names):
        torch.save(torch.full((2, 4), float(number)), folder / f"{name}.pt")


def slides(root, name, rows, **splits):
    layout = config(name).layout
    (root / layout.table).parent.mkdir(parents=True, exist_ok=True)
    lines = ["dir,case_id,slide_id,label", *(f"/elsewhere,{slide},{slide},{label}" for slide, label in rows)]
    (root / layout.table).write_text("\n".join(lines) + "\n")
    lists = root / layout.splits.table
    lists.parent.mkdir(parents=True, exist_ok=True)
    longest = max(map(len, splits.values()))
    columns = [held + [""] * (longest - len(held)) for held in splits.values()]
    rows = [f"{at},{','.join(cells)}" for at, cells in enumerate(zip(*columns, strict=True))]
    lists.write_text("\n".join([f",{','.join(splits)}", *rows]) + "\n")


def test_nodes_of_one_patient_in_two_parts_are_refused_unless_as_published(tmp_path):
    rows = [
        ("patient_004_node_0", "normal"),
        ("patient_004_node_4", "tumor"),
        ("slide_364", "normal"),
        ("slide_1", "tumor"),
    ]
    parts = {"train": ["patient_004_node_0", "slide_1"], "val": ["slide_364"], "test": ["patient_004_node_4"]}
    slides(tmp_path, "gpfm_camelyon", rows, **parts)
    features(tmp_path, *(name for name, _ in rows))
    one = task("gpfm_camelyon", tmp_path)
    (case,) = one.cases("test")
    assert (case.id, case.patient) == ("patient_004_node_4", "patient_004")
    assert case.target.read().values == {"normal": 0, "tumor": 1}
    assert float(case.images[0].read().array[0, 0, 0]) == 1
    assert [case.patient for case in one.cases("fit")] == ["patient_004", "slide_1"]
    found = find_leaks(one, seconds=5)
    with pytest.raises(UserError, match="fit and test share 1 patients"):
        note_leaks(one, found, tmp_path)
    note_leaks(task("gpfm_camelyon", tmp_path, protocol="published"), found, tmp_path)


def test_slides_of_tcga_name_their_patients(tmp_path):
    name = "TCGA-85-A511-01Z-00-DX1.24345C5F-BDC2-4D9D-BAE5-686B4C8C66DE"
    other = name.replace("A511", "A512")
    slides(tmp_path, "gpfm_nsclc", [(name, "LUSC"), (other, "LUAD")], train=[name], val=[], test=[other])
    features(tmp_path, name, other)
    (case,) = task("gpfm_nsclc", tmp_path).cases("test")
    assert (case.id, case.patient, case.target.read().values["LUAD"]) == (other, "TCGA-85-A512", 1)


def survival(root):
    layout = config("gpfm_survival_gbm").layout
    rows = []
    for number in range(12):
        cell = ";".join(f"{PATH}/P{number}-DX{part}.uuid.pt" for part in range(1 + number % 2))
        folds = ",".join("val" if number % 5 == fold else "train" for fold in range(5))
        rows.append(f"TCGA-GBM,P{number},{number + 0.5},{float(number % 3 == 0)},{cell},{folds}")
    (root / layout.table).parent.mkdir(parents=True)
    head = "Study,case_id,survival_months,censorship,slide_id,Fold 0,Fold 1,Fold 2,Fold 3,Fold 4"
    (root / layout.table).write_text("\n".join([head, *rows]) + "\n")
    features(root, *(f"P{number}-DX{part}.uuid" for number in range(12) for part in range(2)))


def test_slides_of_a_patient_are_one_case_and_folds_are_columns(tmp_path):
    survival(tmp_path)
    one = task("gpfm_survival_gbm", tmp_path, layout={"splits": {"fold": "all"}})
    folds = one.folds()
    assert {number: ids(fold.cases("test")) for number, fold in folds.items()} == {
        fold: [f"P{number}" for number in range(12) if number % 5 == fold] for fold in range(5)
    }
    cases = {case.id: case for case in folds[1].cases("test")}
    assert [float(image.read().array[0, 0, 0]) for image in cases["P1"].images] == [2, 3]
    assert len(cases["P6"].images) == 1
    held = cases["P6"].target.read()
    assert (held.time, held.event, held.unit) == (6.5, False, "months")
    assert cases["P1"].target.read().event
    tuned, fitted, tested = (set(ids(folds[1].cases(part))) for part in ("validate", "fit", "test"))
    assert not tuned & fitted
    assert not tuned & tested
    assert tuned


def test_published_chooses_on_what_it_reports_and_that_is_told(tmp_path):
    survival(tmp_path)
    one = task("gpfm_survival_gbm", tmp_path, protocol="published")
    assert ids(one.cases("validate")) == ids(one.cases("test"))
    assert [leak.text for leak in find_leaks(one, seconds=5).found] == ["validate and test are the same 3 cases"]


def test_bags_of_one_store_stay_apart_in_a_patient(tmp_path):
    """Stores of `embed` hold all bags in one file, by which images of a case were once told apart."""
    from medimg_eval.data.bags import StoredFeatures
    from medimg_eval.data.layouts.table import _image_identity

    file = (tmp_path / "features.npy",)
    assert _image_identity(StoredFeatures(tmp_path, ("a",), file)) != _image_identity(
        StoredFeatures(tmp_path, ("b",), file)
    )
    assert np.unique([hash(_image_identity(StoredFeatures(tmp_path, ("a",), file))) for _ in range(2)]).size == 1
