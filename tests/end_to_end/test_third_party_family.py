"""A package of somebody else's brings a whole family: task, layout, codec, metrics, providers, model and configs.

Fields of a microscope in which cells were counted: those of `b` are four, of which two touch, so that the model counts
three groups. The model remarks on up to three cells by their number, and on more with "many".
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import medimg_eval
from tests.conftest import environment

pytestmark = pytest.mark.slow

FIELDS = {
    "a": ("two cells", [(1, 1), (1, 8)]),
    "b": ("four cells", [(1, 1), (1, 3), (1, 8), (6, 6)]),
    "c": ("no cells", []),
    "d": ("five cells", [(0, 0), (0, 4), (0, 8), (4, 0), (4, 4)]),
}
TEXTS = ["five cells", "four cells", "many cells", "no cells", "three cells", "two cells"]
"""Notes and remarks; two of each are equal."""

COUNT_ERROR = {"a": 0, "b": 1 / 4, "c": 0, "d": 0}
REMARK_AGREES = {"a": 1, "b": 0, "c": 1, "d": 0}
FIELD_GREY = {name: (50 + 200 * 4 * len(cells)) / 120 for name, (_, cells) in FIELDS.items()}
ASKED = ["a", "b", "c", "d"]


@pytest.fixture
def fields(tmp_path):
    """10 x 12 pixels each: cells are squares of 2 x 2 at 200, and one speck is at 50."""
    root = tmp_path / "cells"
    (root / "fields").mkdir(parents=True)
    rows = {}
    for name, (note, cells) in FIELDS.items():
        pixels = np.zeros((10, 12), np.uint8)
        pixels[9, 11] = 50
        for row, column in cells:
            pixels[row : row + 2, column : column + 2] = 200
        Image.fromarray(pixels).save(root / "fields" / f"{name}.png")
        rows[name] = {"cells": len(cells), "note": note, "slide": f"slide {name}", "split": "test"}
    (root / "counts.json").write_text(json.dumps(rows))
    return root


@pytest.fixture
def start(program, acme, fields, tmp_path, monkeypatch):
    """Runs the program with the package installed, in a cache of its own."""
    monkeypatch.setenv("MEDIMG_EVAL_CACHE", str(tmp_path / "cache"))

    def run(*words):
        done = program(*words, paths=(acme,))
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def tested(start, fields):
    """What `test` is told."""
    model = ("model=blob_counter", "model.log=asked")
    return lambda *more: start("test", "task=acme_cells", f"task.layout.root={fields}", *model, *more)


def values(run, metric):
    frame = pd.read_parquet(run / "scores.parquet")
    assert set(frame["status"]) == {"present"}
    return dict(frame[frame["metric"] == metric][["case", "value"]].itertuples(index=False))


def lines(path):
    return path.read_text().splitlines()


def test_it_is_tested_scored_tabulated_shown_and_checked_by_the_program(start, tested, fields, tmp_path):
    assert "Count error ↓" in tested()
    (run,) = (tmp_path / "runs" / "acme_cells").iterdir()
    assert values(run, "count_error") == COUNT_ERROR
    assert (run / "predictions" / "b.count").read_text() == "3\nthree cells\n"
    assert not (tmp_path / "numbers_read").exists()

    again = start("score", f"run={run}", "metrics=[remark_agrees,field_grey]")
    assert "n = 4 fields of 4 patients" in again
    assert "number_words: rules; mean_grey: mean grey value" in again
    assert values(run, "count_error") == COUNT_ERROR
    assert values(run, "remark_agrees") == REMARK_AGREES
    assert values(run, "field_grey") == pytest.approx(FIELD_GREY)
    assert sorted(lines(tmp_path / "numbers_read")) == TEXTS

    start("score", f"run={run}")
    tested("task.metrics=[count_error,remark_agrees,field_grey]")
    assert lines(tmp_path / "asked") == ASKED
    assert len(lines(tmp_path / "numbers_read")) == len(TEXTS)

    tested("model.level=40", "model.name=Any speck")  # which is taken for a cell: 3 of 2, 4 of 4, 1 of 0 and 6 of 5
    table = start("table", "runs=runs", "out=tables")
    assert "Warning" not in table
    rows = pd.read_csv(tmp_path / "tables" / "table.csv")
    means = rows[rows["metric"] == "count_error"].set_index("model")["mean"]
    assert means.to_dict() == pytest.approx({"Blob counter": 1 / 16, "Any speck": (1 / 2 + 0 + 1 + 1 / 5) / 4})

    start("report", "runs=runs", "out=pages")
    texts = {case["texts"]["reference"]: case["texts"]["answers"] for case in taken(tmp_path / "pages/details/0/0.js")}
    assert [answer["extracted"] for answer in texts["4 cells"]] == ["4 cells", "3 cells"]
    assert texts["0 cells"][1] == {"extracted": "0 cells", "rule": "as it was given"}
    scene = taken(tmp_path / "pages/cases/0/1.js")
    assert [(panel["title"], panel["model"]) for panel in scene["panels"]] == [
        ("Bright pixels", 0),
        ("Bright pixels", 1),
    ]
    assert scene["problems"] == []

    checked = start("check", "task=acme_cells", f"task.layout.root={fields}", "parts=[test]")
    assert checked == "test: 4 cases, 4 patient ids; 4 x (10, 12)\n"
    assert "remark_agrees: ready\nfield_grey: ready\n" in start("check", "metrics=[remark_agrees,field_grey]")


def taken(script):
    """What a file of a report hands to its page."""
    _, _, text = script.read_text().strip().partition(",")
    return json.loads(ast.literal_eval(text.removesuffix(";").removesuffix(")")))


PYTHON = """
import pathlib, sys
import medimg_eval as me

changes = {"task.layout.root": sys.argv[1], "model.log": "asked"}
one = me.test("acme_cells", "blob_counter", runs="in_python", overrides=changes)
both = me.score(one, metrics=["remark_agrees", "field_grey"])
print(both.folder)
print(me.table([both]).to_markdown())
"""


@pytest.mark.slow
def test_python_gives_the_same_run_and_no_provider_is_asked_again(start, tested, acme, fields, tmp_path):
    tested("task.metrics=[count_error,remark_agrees,field_grey]")
    (run,) = (tmp_path / "runs" / "acme_cells").iterdir()
    done = subprocess.run(
        [sys.executable, "-c", PYTHON, str(fields)],
        cwd=tmp_path,
        env=environment(acme),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folder, *table = done.stdout.splitlines()
    assert Path(folder).name == run.name
    assert any("| Blob counter | 0.062" in line for line in table)
    pd.testing.assert_frame_equal(*(pd.read_parquet(Path(tmp_path, one, "scores.parquet")) for one in (run, folder)))
    assert len(lines(tmp_path / "asked")) == 2 * len(ASKED)
    assert sorted(lines(tmp_path / "numbers_read")) == TEXTS


def test_its_question_to_a_judge_is_found(program, acme):
    done = program("check", "metrics=[polite]", paths=(acme,))
    assert done.stdout == (
        "polite: lacks model@judge\n"
        "- model@judge: there is no judge; add model@judge=NAME to test (docs/definitions/judges.md)\n"
        "0 of 1 metrics are ready\n"
    )


def test_the_package_only_imports_from_ours_and_changes_nothing_of_it():
    for file in (Path(__file__).parents[1] / "third_party").rglob("*.py"):
        tree = ast.parse(file.read_text())
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {(name.asname or name.name).partition(".")[0] for node in imports for name in node.names}
        stores = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Subscript)]
        changed = [one for one in stores if isinstance(one.ctx, ast.Store | ast.Del) and root_of(one) in names]
        assert changed == [], file
        assert not names & {"setattr", "mock", "importlib", "sys"}, file
        assert not any(isinstance(node, ast.Name) and node.id in ("setattr", "delattr") for node in ast.walk(tree)), (
            file
        )


def root_of(node):
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def test_none_of_our_files_knows_the_package():
    room = Path(medimg_eval.__file__).parent
    rooms = [room, *(room.parent / name for name in ("tasks", "models", "metrics", "configs"))]
    files = {file for one in rooms for kind in ("*.py", "*.pyi", "*.yaml") for file in one.rglob(kind)}
    assert len(files) > 500
    assert [file for file in files if "acme" in file.read_text(encoding="utf-8").lower()] == []
