"""What parts of a task share is found, told, kept with the run, and refused where that is asked."""

import csv
import json
import logging
import math
from pathlib import Path

import numpy as np
import pytest

import medimg_eval as me
from medimg_eval.case import Case, Findings
from medimg_eval.data.layouts import Table
from medimg_eval.data.leaks import find_leaks
from medimg_eval.data.records import Given
from medimg_eval.data.splits import SplitJson
from medimg_eval.data.targets import ClassColumns
from medimg_eval.errors import UserError
from medimg_eval.imaging import ImageFile
from medimg_eval.models import PrecomputedClasses
from medimg_eval.tasks import ClassificationTask

SPLITS = {"fit": "train", "validate": "val", "test": "test"}


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Six pictures, the fifth a copy of the first, beside a table of two of each split."""
    monkeypatch.chdir(tmp_path)
    for at in range(6):
        Path(f"{at}.png").write_bytes(b"picture" + bytes([at]) * 20)  # nobody looks at them
    Path("4.png").write_bytes(Path("0.png").read_bytes())
    return tmp_path


def table(rows):
    with Path("t.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["id", "file", "patient", "split", "ill"], *rows])


def usual(patients="aabbcc"):
    splits = ("train", "train", "val", "val", "test", "test")
    table([f"c{at}", f"{at}.png", patients[at], splits[at], at % 2] for at in range(6))


def task_of(splits=SPLITS, layout=None, **settings):
    layout = {"patient": "patient", "split": "split", **(layout or {})}
    made = Table(root=".", table="t.csv", id="id", image="{file}", target=ClassColumns(["ill"]), **layout)
    return ClassificationTask(
        **{"name": "t", "layout": made, "splits": splits, "classes": ["ill"], "metrics": ["auroc@macro"], **settings}
    )


def texts(task, **more):
    return [leak.text for leak in find_leaks(task, **more).found]


def test_equal_images_are_found_whatever_they_are_called(pictures):
    usual()
    assert texts(task_of()) == ["fit and test share 1 equal images: c0 = c4"]
    Path("4.png").write_bytes(b"picture" + bytes([4]) * 20)  # of the same size, with other content
    assert texts(task_of()) == []


def test_folders_such_as_those_of_dicom_series_are_compared_by_the_files_below_them(pictures):
    usual()
    for at in range(6):
        Path(f"{at}.png").rename("slice")
        Path(f"{at}.png").mkdir()
        Path("slice").rename(f"{at}.png/{at}.dcm")
    assert texts(task_of()) == ["fit and test share 1 equal images: c0 = c4"]
    Path("4.png/4.dcm").write_bytes(b"picture" + bytes([4]) * 20)  # of the same size, with other content
    assert texts(task_of()) == []
    Path("4.png/more.dcm").write_bytes(b"")
    assert texts(task_of()) == []


def test_shared_patients_and_cases_are_named(pictures):
    usual("aabbca")
    task = task_of(layout={"allow_overlap": "an example"})
    assert texts(task)[0] == "fit and test share 1 patients: a"
    parts = {"fit": [Case("x", (), Given(Findings({}), (Path("t.csv"),)))] * 1, "test": []}
    parts["test"] = [*parts["fit"], Case("y", (), Given(Findings({}), (Path("t.csv"),)))]
    assert texts(task, parts=parts) == ["fit and test share 1 cases: x"]


def test_parts_that_are_the_same_are_told_once(pictures):
    usual()
    assert texts(task_of({"fit": "train", "validate": "val", "test": "val"})) == [
        "validate and test are the same 2 cases"
    ]
    # Without splits all cases serve any part, and nothing was fitted on them.
    assert texts(task_of(layout={"split": ""})) == []


def test_each_fold_of_the_authors_is_looked_at(pictures):
    usual("abcdef")
    folds = [{"train": ["c1"], "val": ["c2"], "test": ["c3"]}, {"train": ["c0"], "val": ["c5"], "test": ["c5", "c4"]}]
    Path("f.json").write_text(json.dumps(folds))
    layout = {"splits": SplitJson("f.json", "all"), "split": "", "allow_overlap": "an example"}
    assert texts(task_of(layout=layout)) == [
        "fold 1: validate and test share 1 patients: f",
        "fold 1: fit and test share 1 equal images: c0 = c4",
    ]


NOTHING = Given(Findings({}), ())


def test_regions_of_one_volume_are_no_equal_images(pictures):
    usual()
    parts = {
        part: [Case(part, (ImageFile(Path("0.png"), region=((0, 4), (number, number + 4))),), NOTHING)]
        for number, part in enumerate(("fit", "test"))
    }
    looked = find_leaks(task_of(), parts=parts)
    assert not [leak for leak in looked.found if leak.kind == "images"]
    assert looked.not_looked == "images within 1 files that hold several were not compared"


def test_files_that_hold_several_images_are_said_not_to_be_compared(pictures):
    target = Given(Findings({}), (Path("t.csv"),))
    table = ImageFile(Path("pictures.parquet"))
    parts = {part: [Case(f"{part}{n}", (table,), target) for n in range(2)] for part in ("fit", "test")}
    looked = find_leaks(task_of(), parts=parts)
    assert looked.not_looked == "images within 1 files that hold several were not compared"
    assert not [leak for leak in looked.found if leak.kind == "images"]


def test_what_there_is_no_time_for_is_said(pictures):
    usual()
    looked = find_leaks(task_of(), seconds=-1)
    assert looked.found == []
    assert "6 images were not compared in the time there was; python -m medimg_eval check does" in looked.not_looked


def test_a_run_warns_keeps_and_prints_it_and_is_refused_where_asked(pictures, caplog):
    usual()
    Path("said.csv").write_text("case,ill\nc4,0.2\nc5,0.7\n")
    model, told = PrecomputedClasses("said.csv"), "fit and test share 1 equal images: c0 = c4"
    with caplog.at_level(logging.WARNING):
        run = me.test(task_of(), model)
    assert told in caplog.text
    assert run.manifest["leaks"] == {"found": [told], "not_looked": ""}
    assert told in str(me.table([run.folder]))
    caplog.clear()
    me.test(task_of(), model)
    assert told not in caplog.text  # of a run that is there it was said
    with pytest.raises(UserError, match=r"c0 = c4\. Mend the split; or add task.leaks=warn"):
        me.test(task_of(leaks="refuse"), model, runs="others")
    published = {"protocol": "published", "published": {"notes": ["as the authors"]}, "leaks": "refuse"}
    assert not math.isnan(me.test(task_of(**published), model, runs="published").summary["value"][0])
    first = me.test(task_of(), model, limit=1, runs="first")
    assert "leaks" not in first.manifest  # a first look lists no other parts


def test_check_tells_it(pictures):
    for at in range(6):
        np.save(f"{at}.npy", np.arange(9.0).reshape(3, 3) + (at if at != 4 else 0))
    usual()
    Path("t.csv").write_text(Path("t.csv").read_text().replace(".png", ".npy"))
    found = me.check(task_of())
    leaks = found[found["part"] == "leaks"]
    assert leaks["text"].tolist() == ["fit and test share 1 equal images: c0 = c4"]
    assert leaks["doubt"].tolist() == [True]
    same = me.check(task_of({"fit": "train", "validate": "val", "test": "val"}))
    assert not same[same["part"] == "leaks"]["doubt"].any()


def test_images_that_look_alike_are_told_where_that_is_asked(tmp_path, monkeypatch):
    from PIL import Image as Pillow

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    shown = [np.kron(rng.integers(0, 255, (12, 12)), np.ones((8, 8))).astype(np.uint8) for _ in range(5)]
    shown.append(shown[0])
    for at, picture in enumerate(shown):
        Pillow.fromarray(picture).save(f"{at}.png")
    Pillow.fromarray((shown[1] * 0.5 + 40).astype(np.uint8)).resize((60, 60)).save("3.png")  # of c1
    Pillow.fromarray(shown[2]).convert("RGB").save("4.png")  # of c2
    usual()
    assert [text for text in texts(task_of()) if "~" in text] == []
    assert texts(task_of(), lookalikes=True) == [
        "fit and test share 1 equal images: c0 = c5",
        "fit and validate share 1 pairs of images that look alike: c1 ~ c3 (0.99)",
        "validate and test share 1 pairs of images that look alike: c2 ~ c4 (1.00)",
    ]
    Path("2.png").write_bytes(b"no picture")
    found = find_leaks(task_of(), lookalikes=True)
    assert found.not_looked == "1 images could not be read, or are too large, to be compared by what they show"
    told = me.check(task_of(), lookalikes=True)
    assert told[told.part == "leaks"].doubt.sum() == 2

    Path("said.csv").write_text("case,ill\nc4,0.2\nc5,0.7\n")
    model = PrecomputedClasses("said.csv")
    run = me.test(task_of(), model)
    assert "lookalikes" not in run.manifest["leaks"]
    again = me.test(task_of(), model, lookalikes=True)
    assert again.folder == run.folder
    assert [text for text in again.manifest["leaks"]["found"] if "c1 ~ c3" in text]
    with pytest.raises(UserError, match="look alike"):
        me.test(task_of(leaks="refuse"), model, runs="others", lookalikes=True)
