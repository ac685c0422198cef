"""Scoring beside the model: a case that fails, or kills its worker, fails alone."""

import os
from concurrent.futures import wait

import pytest
from answering import Deadly

from medimg_eval.case import Failure, Mask
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.scoring import Scorer, score_case, scoring_workers
from medimg_eval.imaging import write_mask
from medimg_eval.tasks import SegmentationTask
from tests.conftest import AFFINE, LABELS, ellipsoid, ellipsoids


def predicted(task, run):
    for index, case in enumerate(task.cases("test")):
        path = run.prediction_path(case.id, ".nii.gz")
        write_mask(path, Mask(ellipsoid(index), AFFINE))
        yield case, path


@pytest.mark.parametrize("workers", [0, 2])
def test_scores_reach_the_run_whatever_the_number_of_workers(write_dataset, tmp_path, workers):
    task = ellipsoids(write_dataset(4))
    with Run(tmp_path / "run", "abc") as run:
        with Scorer(task, run, "s", workers) as scorer:
            for case, path in predicted(task, run):
                scorer.submit(case, path)
        scores = run.scores("s")
    assert sorted(scores) == ["case00", "case01", "case02", "case03"]
    assert all(score.value == (0 if score.metric == "hd95" else 1) for found in scores.values() for score in found)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_reference_that_cannot_be_read_fails_its_case_alone(write_dataset, tmp_path, workers):
    root = write_dataset(3)
    task = ellipsoids(root)
    with Run(tmp_path / "run", "abc") as run:
        pairs = list(predicted(task, run))
        (root / "labels" / "case01.nii.gz").write_bytes(b"")
        with Scorer(task, run, "s", workers) as scorer:
            for case, path in pairs:
                scorer.submit(case, path)
        scores = run.scores("s")
    assert isinstance(scores["case01"], Failure)
    assert scores["case01"].stage == "score"
    assert "labels/case01.nii.gz" in scores["case01"].message
    assert len(scores["case00"]) == len(scores["case02"]) == 6


def test_a_case_that_kills_its_worker_fails_alone(write_dataset, tmp_path):
    plain = ellipsoids(write_dataset(5))
    task = Deadly(name="deadly", layout=plain.layout, labels=LABELS, metrics=["dice"])
    with Run(tmp_path / "run", "abc") as run:
        with Scorer(task, run, "s", 2) as scorer:
            for case, path in predicted(task, run):
                scorer.submit(case, path)
        scores = run.scores("s")
    assert sorted(scores) == [f"case0{index}" for index in range(5)]
    assert isinstance(scores["case01"], Failure)
    assert "the scoring process died" in scores["case01"].message
    assert all(len(scores[case]) == 2 for case in scores if case != "case01")


def test_an_error_nobody_foresaw_is_the_cases_failure(write_dataset, monkeypatch, tmp_path):
    task = ellipsoids(write_dataset(1))
    monkeypatch.setattr(SegmentationTask, "score", lambda *_: 1 / 0)
    failure = score_case(task, task.cases("test")[0], tmp_path / "x")
    assert failure == Failure("case00", "score", "case 'case00': ZeroDivisionError: division by zero")


def test_an_infinite_value_fails_its_case(write_dataset, monkeypatch, tmp_path):
    from medimg_eval.metrics import LabelScore

    task = ellipsoids(write_dataset(1))
    endless = LabelScore("core", "mine", float("inf"), "present")
    monkeypatch.setattr(SegmentationTask, "score", lambda *_: [endless])
    failure = score_case(task, task.cases("test")[0], tmp_path / "x")
    assert failure == Failure("case00", "score", "case 'case00': mine of core is inf")


def test_scores_that_came_in_while_a_worker_died_are_kept(write_dataset, tmp_path):
    plain = ellipsoids(write_dataset(5))
    task = Deadly(name="deadly", layout=plain.layout, labels=LABELS, metrics=["dice"])
    with Run(tmp_path / "run", "abc") as run:
        with Scorer(task, run, "s", 2) as scorer:
            for case, path in predicted(task, run):
                scorer._queue(case, path)
            wait(list(scorer._pending))  # all done, good and broken, before the first is looked at
        assert sorted(run.scores("s")) == [f"case0{index}" for index in range(5)]


def test_the_number_of_workers_is_as_asked_or_leaves_a_core_for_the_model(monkeypatch):
    assert scoring_workers(0) == 0
    assert scoring_workers(5) == 5
    for cores, workers in ((1, 1), (2, 1), (4, 3), (64, 8)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        assert scoring_workers(None) == workers
