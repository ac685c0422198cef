"""NLST in the table of Pillar-0's program, whose years count from 0."""

import numpy as np
import pandas as pd
import pytest

from medimg_eval.case import Findings
from medimg_eval.metrics.survival import harrell, yearly_auroc
from medimg_eval.results import build_table, load_scores
from tests.helpers.authors import load_functions, require_clone
from tests.helpers.benchmark_files import task, volume

ROWS = ["a,1,0", "b,1,3", "c,0,5", "d,0,2", "e,1,5", "f,0,0"]


def write(root):
    for name, *_ in ROWS:
        volume(root / f"{name}.nii.gz", np.zeros((3, 3, 3)))
    lines = ["accession,image_paths,split,y,time_at_event"]
    lines += [f"{name},{name}.nii.gz,test,{rest}" for name, _, rest in (row.partition(",") for row in ROWS)]
    (root / "nlst.csv").write_text("\n".join(lines) + "\n")


def published(scores, rows, followup):
    """The rule of pillar/metrics/survival.py, written anew: years count from 0."""
    kept = []
    for score, (gold, time) in zip(scores, rows, strict=True):
        positive = gold == 1 and time <= followup
        if positive or time >= followup:
            kept.append((score, positive))
    sick = [score for score, positive in kept if positive]
    well = [score for score, positive in kept if not positive]
    return np.mean([(one > other) + 0.5 * (one == other) for one in sick for other in well])


def test_years_count_from_one_and_each_year_has_its_auroc(tmp_path):
    write(tmp_path)
    cases = task("nlst_risk", tmp_path).cases("test")
    held = [case.target.read() for case in cases]
    assert [(one.time, one.event, one.unit) for one in held] == [
        (1, True, "years"),
        (4, True, "years"),
        (6, False, "years"),
        (3, False, "years"),
        (6, True, "years"),
        (1, False, "years"),
    ]
    rows = [tuple(map(int, row.split(",")[1:])) for row in ROWS]
    scores = [0.9, 0.2, 0.3, 0.4, 0.3, 0.1]
    times, events = [one.time for one in held], [one.event for one in held]
    for year in range(1, 7):
        found = yearly_auroc(times, events, scores, year)
        assert found == pytest.approx(published(scores, rows, year - 1)), year


def write_mewm(root):
    """Thirty patients, ten of them to fit on; the times and events of all."""
    rng = np.random.default_rng(0)
    lines, times, events = [], rng.integers(1, 60, 30), rng.integers(0, 2, 30)
    for number in range(30):
        folder = f"cohort/p{number:02d}"
        for name in ("pre", "post"):
            volume(root / folder / f"{name}.nii.gz", np.full((3, 3, 3), number))
        cells = [f"{folder}/{name}.nii.gz" for name in ("pre", "pre_mask", "v", "v_mask", "post", "post_mask")]
        lines.append("\t".join([*cells, str(times[number]), str(events[number])]))
    (root / "train.txt").write_text("\n".join(lines[:10]) + "\n")
    (root / "valid.txt").write_text("\n".join(lines[10:]) + "\n")
    return times, events


def test_mewms_lists_have_scans_of_before_and_after_and_their_scores_are_its_programs(tmp_path):
    times, events = write_mewm(tmp_path)
    cases = task("mewm_survival", tmp_path).cases("test")
    held = [case.target.read() for case in cases]
    assert [(one.time, one.event) for one in held] == list(zip(times[10:], events[10:] == 1, strict=True))
    assert [case.patient for case in cases[:2]] == ["p10", "p11"]
    files = [[path.relative_to(tmp_path).as_posix() for path in image.files] for image in cases[0].images]
    assert files == [["cohort/p10/pre.nii.gz"], ["cohort/p10/post.nii.gz"]]


def write_treatments(folder, classes, given):
    """A table of drugs and embolics with a scan for each patient."""
    lines = [",".join(["id", "patient", "image", *classes])]
    for name, words in given.items():
        volume(folder / f"{name}.nii.gz", np.zeros((3, 3, 3)))
        lines.append(",".join([name, name, f"{name}.nii.gz", *("1" if one in words else "" for one in classes)]))
    (folder / "treatments.csv").write_text("\n".join(lines) + "\n")


def test_treatments_are_sets_of_words_whose_f1_is_pooled(tmp_path):
    made = task("mewm_treatment", tmp_path)
    given = {"p1": ["Lipiodol", "Cisplatin"], "p2": ["PVA"]}
    write_treatments(tmp_path, made.classes, given)
    said = {"p1": ["Lipiodol", "Oxaliplatin"], "p2": ["PVA"]}
    rows = []
    for case in made.cases("test"):
        assert case.target.read() == Findings({name: int(name in given[case.id]) for name in made.classes})
        answer = {name: float(name in said[case.id]) for name in made.classes}
        rows += [{"case": case.id, **score._asdict()} for score in made.score(case, answer)]
    pd.DataFrame(rows).assign(task="treatment", model="m").to_csv(tmp_path / "rows.csv", index=False)
    table = build_table(load_scores(tmp_path / "rows.csv"), metrics=["f1_score@micro"], resamples=5)
    assert table.rows[0].cells[0].mean == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))


@pytest.mark.slow
def test_mewms_records_and_c_index_are_its_programs(tmp_path):
    import os
    from types import SimpleNamespace

    pytest.importorskip("lifelines")
    torch = pytest.importorskip("torch")
    clone = require_clone("scott-yjyang/MeWM")
    loader = load_functions(clone / "Survival/dataset.py", "ImageDataset", Dataset=object, os=os, torch=torch)
    made = object.__new__(loader["ImageDataset"])
    made.args, made.mode, made.transform = SimpleNamespace(data_root="/data"), "valid", None
    made.data_lines = ["cohort/p10/a.nii.gz\tb\tc\td\tcohort/p10/e.nii.gz\tf\t14\t1\n"]
    record = made[0]
    assert (record["patient_id"], float(record["survival_time"]), float(record["event_indicator"])) == ("p10", 14, 1)
    assert (record["input_CT_pre"], record["input_CT_post"]) == (
        "/data/cohort/p10/a.nii.gz",
        "/data/cohort/p10/e.nii.gz",
    )
    theirs = load_functions(clone / "Survival/test_ddp.py", "calculate_c_index")["calculate_c_index"]
    rng = np.random.default_rng(1)
    risks, times, events = rng.normal(size=80).round(1), rng.integers(1, 30, 80), rng.integers(0, 2, 80)
    assert harrell(times, events == 1, risks).value == pytest.approx(theirs(risks, times, events), abs=1e-12)
