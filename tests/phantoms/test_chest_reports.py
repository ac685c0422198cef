"""Chest X-ray phantoms with reports: what reports say is what was drawn, in many wordings, of patients kept apart."""

from __future__ import annotations

import csv
import json

import numpy as np
import pydicom
import pytest
import yaml
from PIL import Image as Picture

from medimg_eval.errors import UsageError, UserError
from medimg_eval.imaging import read
from medimg_eval.instantiate import build_task
from medimg_eval.metrics.reports.labeler.labeler import label_report
from medimg_eval.phantoms import chest_reports, write_phantoms
from medimg_eval.phantoms.chest_reports import ChestReports, picture
from medimg_eval.phantoms.cohort import cohort
from medimg_eval.phantoms.report import DESCRIBED, REASONS, Finding, sections
from medimg_eval.question import Reply
from tests.helpers.config_files import config_file

OBSERVED = {
    "cardiomegaly": "Cardiomegaly",
    "consolidation": "Consolidation",
    "edema": "Edema",
    "endotracheal tube": "Support Devices",
    "nodule": "Lung Lesion",
    "pacemaker": "Support Devices",
    "pleural effusion": "Pleural Effusion",
    "pneumothorax": "Pneumothorax",
}
"""What is drawn -> CheXpert's name for it."""


@pytest.fixture(scope="module")
def drawn():
    return [(member, picture(member)) for member in cohort("chest_reports", 60, 4)]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    path = tmp_path_factory.mktemp("phantoms")
    assert write_phantoms("chest_reports", path / "chest_reports", cases=16, seed=0)
    return path


def test_the_rules_read_in_every_report_what_was_drawn_and_nothing_else():
    rng = np.random.default_rng(0)
    present = dict.fromkeys(DESCRIBED, 0)
    for member in cohort("chest_reports", 150, 5):
        found = picture(member).found if member.index < 40 else made_up(rng)
        said = sections(found, member.words)
        expected = {OBSERVED[one.name] for one in found} or {"No Finding"}
        expected |= {"No Finding"} if expected == {"Support Devices"} else set()
        for text in (
            said["findings"],
            said["impression"],
            f"FINDINGS: {said['findings']} IMPRESSION: {said['impression']}",
        ):
            assert {name for name, state in label_report(text).items() if state in (1, 3)} == expected, text
        for one in found:
            present[one.name] += 1
    assert min(present.values()) > 10


def made_up(rng):
    """Findings without a picture."""
    side, zone = str(rng.choice(["left", "right"])), str(rng.choice(["upper", "mid", "lower"]))
    sizes = {"cardiomegaly": rng.uniform(0.51, 0.66), "nodule": rng.uniform(18, 44)}
    wanted = [name for name in DESCRIBED if rng.random() < 0.3]
    both = lambda name: name == "pleural effusion" and rng.random() < 0.3  # noqa: E731
    return [
        Finding(name, "both" if both(name) else side, zone, sizes.get(name, rng.uniform(20, 70)), larger=side)
        for name in wanted
    ]


def test_sides_and_sizes_that_reports_say_are_those_that_were_drawn(drawn):
    seen = set()
    for member, made in drawn:
        marks = dict(made.marks)
        lungs = np.argwhere(made.labels == 1)[:, 1].mean()
        said = sections(made.found, member.words)["findings"]
        for one in made.found:
            seen.add(one.name)
            if one.side in ("left", "right"):
                column = np.argwhere(marks[one.name])[:, 1].mean()
                assert one.side == ("left" if column > lungs else "right"), (member.case, one)
                assert one.side in said.lower()
            if one.name == "nodule":
                across = 2 * np.sqrt(marks["nodule"].sum() / np.pi) * chest_reports.PIXEL
                assert across == pytest.approx(one.size, rel=0.12)
                assert f"{one.size / 10:.1f} cm" in said or f"{one.size:.0f} mm" in said
            if one.name == "endotracheal tube":
                assert f"{one.size / 10:.1f} cm" in said or f"{one.size:.0f} mm" in said
            if one.name == "cardiomegaly":
                assert made.ratio == one.size > 0.5
    assert seen == set(DESCRIBED)


def test_reports_are_worded_in_many_ways_and_healthy_patients_have_nothing(drawn):
    found = [Finding("pleural effusion", "left", size=50), Finding("pneumothorax", "right", size=34)]
    texts = {sections(found, np.random.default_rng(seed))["findings"] for seed in range(60)}
    assert len(texts) > 50
    assert {len(text.split(". ")) for text in texts} >= {3, 4}
    healthy = [made for member, made in drawn if member.healthy]
    assert healthy
    assert not any(made.found for made in healthy)
    empty = sections((), np.random.default_rng(0))
    assert empty["findings"]
    assert empty["indication"] in REASONS


def test_the_same_seed_gives_the_same_files_in_both_photometric_interpretations(root, tmp_path):
    folder = root / "chest_reports"
    write_phantoms("chest_reports", tmp_path / "again", cases=2, seed=0)
    names = [f"images/chest_reports-{n:03d}.dcm" for n in range(2)]
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    assert [pydicom.dcmread(folder / name).PhotometricInterpretation for name in names] == [
        "MONOCHROME2",
        "MONOCHROME1",
    ]
    for name, member in zip(names, cohort("chest_reports", 2, 0), strict=True):
        image = read(folder / name)
        assert np.array_equal(image.array, picture(member).image.array)  # bright where dense, whichever it is
        assert image.geometry.spacing == pytest.approx((2.4, 2.4))
        labels = np.asarray(Picture.open(folder / "masks" / f"{member.case}.png"))
        assert np.array_equal(labels, picture(member).labels)
    with (folder / "cases.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert all(row["report"] == f"FINDINGS: {row['findings']} IMPRESSION: {row['impression']}" for row in rows)
    questions = [json.loads(line) for line in (folder / "qa.jsonl").read_text().splitlines()]
    assert len(questions) == 16 * len(DESCRIBED)


def test_the_task_reads_them_with_patients_kept_apart_and_its_numbers_of_cases(root, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path))
    config = yaml.safe_load(config_file("phantom_reports").read_text())
    members = cohort("chest_reports", config["layout"]["count"], 0)
    counted = {split: sum(member.split == split for member in members) for split in config["expected"]}
    assert config["expected"] == counted
    config["layout"] |= {"root": str(root), "count": 16, "text": "impression"}
    task = build_task({**config, "expected": {}})
    parts = {part: task.cases(part) for part in ("fit", "validate", "test")}
    patients = [{case.patient for case in cases} for cases in parts.values()]
    assert sum(map(len, patients)) == len(set.union(*patients))
    case = parts["test"][0]
    prompt = task.prompt(case, task.read_images(case))
    assert prompt.text.startswith("Indication: ")
    assert prompt.image.array.shape == (1, *chest_reports.SHAPE)
    rows = {score.metric: score.value for score in task.score(case, Reply((case.target.read().value,)))}
    assert rows["rouge_l"] == 1
    assert rows["rule_labeler_example_f1@all+"] == 1
    assert not write_phantoms("chest_reports", root / "chest_reports", cases=16, seed=0)
    with pytest.raises(UserError, match="holds phantoms of .*cases=16.* not of .*cases=3"):
        write_phantoms("chest_reports", root / "chest_reports", cases=3, seed=0)
    with pytest.raises(UsageError, match="at least one case"):
        write_phantoms("chest_reports", root / "none", cases=0, seed=0)
    with pytest.raises(UserError, match="no split 'train'"):
        ChestReports(str(root), 16).cases("train")
    with pytest.raises(UsageError, match="got 'finding'; did you mean 'findings'"):
        ChestReports(str(root), 16, text="finding").cases("fit")
