"""GPFM's regions, over a few tiles in the folders and tables that its loaders read."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.models.heads import Targets, make_head
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import ids, picture, task

TILE = np.full((6, 6, 3), 100, np.uint8)


def write_crc_msi(root):
    for split, patients in (("TRAIN", range(6)), ("TEST", range(6, 10))):
        for number in patients:
            name = ("MSIH", "nonMSIH")[number % 2]
            picture(root / split / name / f"blk-AAA-TCGA-A6-{number:04d}-01Z-00-DX1.png", TILE)


def write_pancancer_til(root):
    lines = ["partition,study,barcode,label,path,md5"]
    for number in range(12):
        split, label = ("train", "val", "test")[number // 4], ("til-negative", "til-positive")[number % 2]
        path = f"images-tcga-tils/acc/{split}/{label}/{number}.png"
        picture(root / path, TILE)
        lines.append(f"{split},acc,TCGA-OR-{number:04d}-01Z,{label},{path},m{number}")
    (root / "images-tcga-tils-metadata.csv").write_text("\n".join(lines) + "\n")


def write_esca(root):
    for centre in ("VALSET1_UKK", "VALSET2_WNS", "VALSET3_TCGA", "VALSET4_CHA_FULL"):
        for name in task("gpfm_esca", root).classes:
            picture(root / centre / name / f"{name.lower()}.{centre[6]}.jpg", TILE)


def write_chaoyang(root):
    for split, count in (("train", 8), ("test", 4)):
        names = [f"{split}/{number}-IMG001x00{number}.JPG" for number in range(count)]
        for name in names:
            picture(root / name, TILE)
        rows = [{"name": name, "label": number % 4} for number, name in enumerate(names)]
        (root / f"{split}.json").write_text(json.dumps(rows))


WRITERS = {
    "crc_msi": write_crc_msi,
    "pancancer_til": write_pancancer_til,
    "esca": write_esca,
    "chaoyang": write_chaoyang,
}


def classes_of(cases):
    """Case -> the class that is true of it."""
    return {
        case.id: next(name for name, value in dict(case.target.read().values).items() if value == 1) for case in cases
    }


def test_cancers_with_unstable_microsatellites_are_parted_by_patients(tmp_path):
    write_crc_msi(tmp_path)
    regions = task("gpfm_crc_msi", tmp_path)
    case = next(case for case in regions.cases("test") if "0007" in case.id)
    assert (case.patient, classes_of([case])[case.id]) == ("TCGA-A6-0007", "nonMSIH")
    assert len(regions.cases("fit") + regions.cases("validate")) == 6
    published = task("gpfm_crc_msi", tmp_path, protocol="published")
    assert ids(published.cases("validate")) == ids(published.cases("test"))
    assert len(published.cases("fit")) == 6


def test_tiles_with_lymphocytes_are_those_of_the_table(tmp_path):
    write_pancancer_til(tmp_path)
    cases = task("gpfm_pancancer_til", tmp_path).cases("test")
    assert [(case.patient, case.attributes["study"]) for case in cases[:1]] == [("TCGA-OR-0008", "acc")]
    assert list(classes_of(cases).values()) == ["til-negative", "til-positive"] * 2


def test_three_hospitals_are_external_and_as_published_one(tmp_path):
    write_esca(tmp_path)
    tested = {
        protocol: task("gpfm_esca", tmp_path, protocol=protocol).cases("test") for protocol in ("fixed", "published")
    }
    assert {protocol: {case.id.partition("/")[0] for case in cases} for protocol, cases in tested.items()} == {
        "fixed": {"VALSET1_UKK", "VALSET2_WNS", "VALSET3_TCGA"},
        "published": {"VALSET3_TCGA"},
    }
    assert set(classes_of(tested["fixed"]).values()) == set(task("gpfm_esca", tmp_path).classes)


def test_numbers_of_chaoyang_are_its_four_classes(tmp_path):
    write_chaoyang(tmp_path)
    cases = task("gpfm_chaoyang", tmp_path).cases("test")
    assert list(classes_of(cases).values()) == ["normal", "serrated", "adenocarcinoma", "adenoma"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WRITERS))
def test_the_authors_loaders_take_the_same_tiles_and_classes(name, tmp_path, monkeypatch):
    """Where MEDIMG_EVAL_CLONES names a folder that holds a clone of birkhoffkiki/GPFM."""
    import random
    from typing import Any

    clone = require_clone("birkhoffkiki/GPFM")
    WRITERS[name](tmp_path)
    given: dict[str, Any] = {"Dataset": object, "os": __import__("os"), "random": random, "json": json}
    loader = load_functions(clone / f"ROI_tasks/datasets/{name}.py", "DataSet", **given)["DataSet"]
    regions = (
        task(f"gpfm_{name}", tmp_path, protocol="published")
        if name != "pancancer_til"
        else task(f"gpfm_{name}", tmp_path)
    )
    parts = {"train": "fit", "val": "validate"}
    for phase, part in parts.items():
        items = loader(root=str(tmp_path), phase=phase).data_items
        theirs = {Path(path).relative_to(tmp_path).as_posix(): number for path, number in items}
        ours = {case: regions.classes.index(label) for case, label in classes_of(regions.cases(part)).items()}
        if name == "crc_msi":  # whose folders are classes in the order of the alphabet
            assert sorted(regions.classes) == list(regions.classes)
        if name == "esca":
            order = sorted(regions.classes)
            theirs = {path: regions.classes.index(order[number]) for path, number in theirs.items()}
        assert ours == theirs


@pytest.mark.slow
def test_the_authors_scores_of_regions_are_ours(tmp_path):
    """Macro accuracy, F1 and AUROC as ROI_tasks/metrics.py builds them, and the votes of ROI_tasks/knn.py."""
    torch, torchmetrics = pytest.importorskip("torch"), pytest.importorskip("torchmetrics")
    from torch.nn.functional import one_hot, softmax
    from torchmetrics.classification import MulticlassAccuracy
    from torchmetrics.classification.f_beta import F1Score

    clone = require_clone("birkhoffkiki/GPFM")
    given = {
        "MulticlassAccuracy": MulticlassAccuracy,
        "F1Score": F1Score,
        "AUROC": torchmetrics.AUROC,
        "MetricCollection": torchmetrics.MetricCollection,
        "Metric": torchmetrics.Metric,
    }
    build = load_functions(clone / "ROI_tasks/metrics.py", "build_linear_metric", **given)["build_linear_metric"]
    random = np.random.default_rng(0)
    labels = random.permutation(np.arange(200) % 4)
    features = random.normal(size=(200, 8)).astype(np.float32) + 0.7 * np.eye(8, dtype=np.float32)[labels]
    targets = Targets("exclusive", tuple("abcd"), np.eye(4)[labels])
    given = {"torch": torch, "softmax": softmax, "one_hot": one_hot}
    module = load_functions(clone / "ROI_tasks/knn.py", "KnnModule", **given)["KnnModule"]
    known, shown = torch.from_numpy(features[:120]), torch.from_numpy(features[120:])
    for k in (1, 20):
        theirs = module(known, torch.from_numpy(labels[:120]), [k], 0.07, "cpu", num_classes=4)(shown)[k]
        head = make_head({"name": "knn", "k": k, "temperature": 0.07})
        ours = head.fit(features[:120], targets.take(np.arange(120))).predict(features[120:])
        assert ours == pytest.approx(theirs.numpy(), abs=1e-5)
    metrics = build(4)
    metrics.update(theirs, torch.from_numpy(labels[120:]))
    printed = {name: float(value) for name, value in metrics.compute().items()}
    shown_probabilities = pd.DataFrame(theirs.double().numpy(), columns=list("abcd"))
    shown_probabilities.rename_axis("case").to_csv(tmp_path / "theirs.csv")
    named = pd.DataFrame({"label": [list("abcd")[number] for number in labels[120:]]})
    named.rename_axis("case").to_csv(tmp_path / "right.csv")
    words = [f"classes={tmp_path}/theirs.csv", f"references={tmp_path}/right.csv", f"runs={tmp_path}/RUNS"]
    wanted = {"balanced_accuracy": "top1 acc", "f1_score@macro": "f1_score", "auroc@macro": "AUC"}
    assert start(["score", *words, f"metrics=[{','.join(wanted)}]"]) == 0
    assert start(["table", f"runs={tmp_path}/RUNS", f"out={tmp_path}/table"]) == 0
    table = pd.read_csv(tmp_path / "table/table.csv").set_index("metric")["mean"]
    assert {theirs: table[ours] for ours, theirs in wanted.items()} == pytest.approx(printed, abs=1e-6)
