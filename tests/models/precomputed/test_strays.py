"""What lies among predictions and belongs to no case is named."""

import json
import logging
import shutil

import numpy as np
import pytest

from medimg_eval.api import test as run_test
from medimg_eval.models import NnUnetResults, Precomputed, PrecomputedReports
from medimg_eval.models.precomputed.files import ResultFiles, cases_in
from tests.conftest import ellipsoids


def touch(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize(
    ("pattern", "names", "cases"),
    [
        ("{case}.nii.gz", ["a.nii.gz", "b.nii", "c.txt", "sub/d.nii.gz", ".e.nii.gz"], ["a", "b", "sub/d"]),
        ("{case}/{class}.nii.gz", ["a/liver.nii.gz", "a/spleen.nii.gz", "b/c/liver.nii.gz"], ["a", "b/c"]),
        ("{case}/{case}_seg.nii.gz", ["a/a_seg.nii.gz", "a/b_seg.nii.gz"], ["a"]),
        ("{case}_{class}.nii.gz", ["a_b_liver.nii.gz"], []),  # nobody knows whether that is a class of b's or of a_b's
        ("{case}.*", ["a.b.png"], []),
    ],
)
def test_a_pattern_tells_whose_files_lie_in_a_folder(pattern, names, cases, tmp_path):
    assert cases_in(touch(tmp_path, *names), pattern) == cases


def test_tables_and_cross_validations_hold_cases_too(tmp_path):
    (tmp_path / "all.csv").write_text("case,x\na,1\nb,2\nb,3\n")
    assert ResultFiles(str(tmp_path / "all.csv"), "", "case", {}).held_cases() == ["a", "b"]
    (tmp_path / "texts.csv").write_text("id,prediction\na,clear\nc,nodule\n")
    assert PrecomputedReports(str(tmp_path / "texts.csv")).held_cases() == ["a", "c"]
    trained = touch(tmp_path / "trained", "fold_0/validation/x_a.nii.gz", "fold_1/validation/x_b.nii.gz")
    (trained / "dataset.json").write_text(json.dumps({"labels": {"background": 0, "liver": 1}}))
    assert sorted(NnUnetResults(str(trained), pattern="x_{case}").held_cases()) == ["a", "b"]


def test_predictions_of_no_case_are_named_before_anything_is_scored(write_dataset, tmp_path, caplog):
    root = write_dataset(2)
    shutil.copytree(root / "labels", tmp_path / "given")
    touch(tmp_path / "given", *(f"stray{number}.nii.gz" for number in range(7)))
    caplog.set_level(logging.WARNING, "medimg_eval")
    run = run_test(ellipsoids(root, metrics=["dice"]), Precomputed(str(tmp_path / "given")), runs=tmp_path / "runs")
    assert np.allclose(run.scores["value"], 1)
    (told,) = [record.message for record in caplog.records if "belong to no case" in record.message]
    assert told == (
        "Precomputed: 7 predictions belong to no case of task ellipsoids: stray0, stray1, stray2, stray3, stray4, ..."
    )
