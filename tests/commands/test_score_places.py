"""`score boxes=FILE` and `score points=FILE`: places that were found, scored in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from medimg_eval.commands.cli import start
from medimg_eval.results import load_runs
from tests.helpers.printed import said

IMAGES = ("a.png", "b.png", "c.png", "d.png", "e.png", "f.png")


def write(name, *lines):
    Path(name).write_text("\n".join(lines) + "\n")


def write_boxes():
    """One nodule in each image but the last; `mine` finds all, and one that is none; `other` misses that of `a`."""
    images = [{"id": n, "file_name": name, "height": 90, "width": 120} for n, name in enumerate(IMAGES)]
    boxes = [[10 + n, 20, 30, 40] for n in range(5)]
    annotations = [
        {"id": n, "image_id": n, "category_id": 7, "bbox": box, "area": 1200, "iscrowd": 0}
        for n, box in enumerate(boxes)
    ]
    categories = [{"id": 7, "name": "nodule"}]
    write("right.json", json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    found = [{"image_id": n, "category_id": 7, "bbox": box, "score": 0.9} for n, box in enumerate(boxes)]
    false = {"image_id": 5, "category_id": 7, "bbox": [50, 50, 9, 9], "score": 0.1}
    write("mine.json", json.dumps([*found, false]))
    write("other.json", json.dumps(found[1:]))


def scores(kind, metric):
    """By model: (case, label) -> value."""
    found = {}
    for run in load_runs([one.parent for one in Path().glob(f"runs/{kind}/*/manifest.json")]):
        rows = run.scores[run.scores["metric"] == metric]
        found[run.model] = dict(zip(zip(rows["case"], rows["label"], strict=True), rows["value"], strict=True))
    return found


def test_results_of_coco_are_judged_without_images(folder, capsys):
    write_boxes()
    assert start(["score", "boxes={ours: mine.json, theirs: other.json}", "references=right.json"]) == 0
    out, _ = said(capsys)
    assert "1.000 [" in out  # the false one is less confident than all hits
    assert "Mean rank" in out
    recalls = scores("boxes", "detection_recall")
    assert recalls["ours"] == {(name, "nodule"): 1.0 for name in IMAGES[:5]} | {
        ("f.png", "nodule"): pytest.approx(math.nan, nan_ok=True)
    }
    assert recalls["theirs"]["a.png", "nodule"] == 0.0


def test_images_have_patients_and_groups(folder, capsys):
    write_boxes()
    write(
        "cases.csv",
        "case,patient,site",
        *(f"{name},p{n // 2},{'x' if n < 3 else 'y'}" for n, name in enumerate(IMAGES[:5])),
    )
    assert start(["score", "boxes=mine.json", "references=right.json", "cases=cases.csv", "by=site"]) == 0
    out, _ = said(capsys)
    assert "n = 5 cases of 3 patients" in out
    assert "│ y" in out


REFERENCES = (
    "case,label,x,y",
    *(f"{case},{name},{x},{y}" for case in "abcdef" for name, x, y in (("tip", 10, 20), ("base", 40, 60))),
)


def test_landmarks_are_judged_in_steps_or_in_mm(folder, capsys):
    write("right.csv", *REFERENCES)
    write("mine.csv", *(line.replace(",10,20", ",13,24") for line in REFERENCES))
    assert start(["score", "points=mine.csv", "references=right.csv"]) == 0
    assert "distances in pixels" in said(capsys)[0]
    assert scores("points", "landmark_distance")["mine"] == {
        (case, name): value for case in "abcdef" for name, value in (("tip", 5.0), ("base", 0.0))
    }
    assert start(["score", "points=mine.csv", "references=right.csv", "spacing=0.1", "runs=mm"]) == 0
    (run,) = load_runs([one.parent for one in Path().glob("mm/points/*/manifest.json")])
    rows = run.scores[(run.scores["metric"] == "landmark_distance") & (run.scores["label"] == "tip")]
    assert rows["value"].tolist() == pytest.approx([0.5] * 6)


def test_a_landmark_that_was_not_found_counts_with_the_diagonal_of_all(folder):
    write("right.csv", *REFERENCES)
    write("mine.csv", *(line for line in REFERENCES if line != "a,tip,10,20"))
    assert start(["score", "points=mine.csv", "references=right.csv"]) == 0
    # From 10 to 40 and from 20 to 60 there are 31 x 41 places.
    assert scores("points", "landmark_distance")["mine"]["a", "tip"] == pytest.approx(math.hypot(31, 41))


def test_a_case_without_points_is_named_and_fails(folder, capsys):
    write("right.csv", *REFERENCES)
    write("mine.csv", *(line for line in REFERENCES if line[0] != "f"), "z,tip,1,1")
    assert start(["score", "points=mine.csv", "references=right.csv"]) == 0
    out, _ = said(capsys)
    assert "1 points of mine belong to no case and are left out: z" in out
    assert "1 cases have no points of mine and count at the worst value" in out
    assert scores("points", "landmark_distance")["mine"]["f", "base"] == pytest.approx(math.hypot(31, 41))


def test_candidates_with_scores_are_judged_as_luna16_does(folder, capsys):
    scans = [f"s{n}" for n in range(6)]
    write(
        "right.csv",
        "seriesuid,coordX,coordY,coordZ,diameter_mm",
        *(f"{s},-50,20,{n},8" for n, s in enumerate(scans[:5])),
        "s5,,,,",
    )
    write(
        "mine.csv",
        "seriesuid,coordX,coordY,coordZ,probability",
        *(f"{s},-48,20,{n},0.9" for n, s in enumerate(scans[:4])),  # 2 mm away, and the radius is 4
        "s4,-40,20,4,0.9",
        "s5,0,0,0,0.2",
    )
    columns = "columns={case: seriesuid, x: coordX, y: coordY, z: coordZ, score: probability, diameter: diameter_mm}"
    words = ["score", "points=mine.csv", "references=right.csv", columns]
    assert start(words) != 0
    assert "needs spacing=" in said(capsys)[1]
    assert start([*words, "spacing=1"]) == 0
    assert "CPM" in said(capsys)[0]
    recalls = scores("points", "detection_recall")["mine"]
    assert [recalls[scan, "finding"] for scan in scans[:5]] == [1.0, 1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["boxes=mine.json"], "boxes= needs references=, COCO's JSON"),
        (["boxes=mine.json", "references=mine.json"], "mine.json: expected COCO's annotations"),
        (["boxes=nowhere.json", "references=right.json"], "nowhere.json: no such file"),
        (["points=mine.csv", "references=nowhere.csv"], "nowhere.csv: no such table"),
        (["points=mine.csv", "references=bare.csv"], "bare.csv: has no column 'label', the names of landmarks"),
        (["points=mine.csv", "references=right.csv", "columns.x=u"], "has no column 'u'"),
        (["points=mine.csv", "references=right.csv", "columns.w=u"], "got 'w'"),
        (["points=bare.csv", "references=right.csv"], "bare.csv: has no column 'label', which right.csv has"),
        (["points=other.csv", "references=right.csv"], "points of other: no case is one of the references"),
        (["points=mine.csv", "references=right.csv", "cases=cases.csv"], "cases.csv: 1 cases have no reference: z"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_mend(folder, capsys, words, message):
    write_boxes()
    write("right.csv", *REFERENCES)
    write("mine.csv", *REFERENCES)
    write("bare.csv", "case,x,y", "a,1,2")
    write("other.csv", "case,label,x,y", "z,tip,1,1")
    write("cases.csv", "case", "a", "z")
    assert start(["score", *words]) != 0
    assert message in said(capsys)[1]
