"""RadGenome-Chest CT: its volumes by the names of CT-RATE, and its questions beside those of the authors' inference."""

import ast

import pytest

from tests.helpers.authors import require_clone
from tests.helpers.catalogue import task_of
from tests.helpers.samples import ALL

assert ALL is not None


def test_a_volume_lies_in_the_folders_of_its_scan(tmp_path):
    task = task_of("radgenome_presence", tmp_path)
    first, second = task.cases("test")
    paths = [case.images[0].files[0].relative_to(tmp_path).as_posix() for case in (first, second)]
    assert paths == [
        "dataset/valid_preprocessed/valid_1/valid_1a/valid_1_a_1.nii.gz",
        "dataset/valid_preprocessed/valid_12/valid_12b/valid_12_b_1.nii.gz",
    ]
    assert [case.patient for case in (first, second)] == ["valid_1", "valid_12"]
    assert [case.target.read().value for case in (first, second)] == ["yes", "no"]
    assert first.attributes == {"region": "lung"}


def test_empty_cells_say_what_the_authors_say_of_them(tmp_path):
    _, empty = task_of("radgenome_abnormality", tmp_path).cases("test")
    assert empty.target.read().value == "No Findings"
    _, whole = task_of("radgenome_regions", tmp_path).cases("test")
    assert whole.question.text == "Please describe the detailed finding of the whole scan region."
    assert whole.attributes == {"region": "whole scan"}


@pytest.mark.slow
def test_questions_are_those_of_the_authors_inference(tmp_path):
    script = require_clone("xiaoman-zhang/RadGenome-ChestCT") / "src/global_inference.py"
    values = [
        node.value
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "query_text"
    ]
    given = {"anatomy": "lung/right lung", "node_anatomy": "right lung", "abnormality": "mass"}
    theirs = {
        eval(compile(ast.Expression(value), "query", "eval"), dict(given))  # noqa: S307
        .partition("> ")[2]
        .strip()
        for value in values
    }
    names = ("presence", "abnormality", "location", "size", "disorders", "regions")
    ours = {task_of(f"radgenome_{name}", tmp_path / name).cases("test")[0].question.text for name in names}
    # The tables of the fixture name another finding and a longer path in places.
    ours = {text.replace("nodule, mass", "mass") for text in ours}
    assert ours == theirs
