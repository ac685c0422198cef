"""Scoring beside the model: a case that fails, or kills its worker, fails alone."""

import math
import os
import threading
import time

import pytest
from dying import Dying, Stillborn

from medimg_eval.case import Failure, Mask, Trial
from medimg_eval.codecs import prediction_file
from medimg_eval.errors import UserError
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.scoring import Due, Scorer, score_case, scoring_workers
from medimg_eval.imaging import write_mask
from medimg_eval.tasks import SegmentationTask
from tests.conftest import AFFINE, LABELS, ellipsoid, ellipsoids


def predicted(task, run):
    for index, case in enumerate(task.cases("test")):
        path = prediction_file(run.folder / "predictions", case.id, ".nii.gz")
        write_mask(path, Mask(ellipsoid(index), AFFINE))
        yield Due(Trial(case.id), case, path, {"k": task.case_metrics})


@pytest.mark.parametrize("workers", [0, 2])
def test_scores_reach_the_run_whatever_the_number_of_workers(write_dataset, tmp_path, workers):
    task = ellipsoids(write_dataset(4))
    with Run(tmp_path / "run", "abc") as run:
        with Scorer(task, run, workers) as scorer:
            for due in predicted(task, run):
                scorer.submit(due)
        scores = run.scores()
    assert sorted(scores) == ["case00", "case01", "case02", "case03"]
    assert all(
        score.value == (0 if score.metric == "hd95" else 1) for found in scores.values() for score in found.scores
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_a_reference_that_cannot_be_read_fails_its_case_alone(write_dataset, tmp_path, workers):
    root = write_dataset(3)
    task = ellipsoids(root)
    with Run(tmp_path / "run", "abc") as run:
        pairs = list(predicted(task, run))
        (root / "labels" / "case01.nii.gz").write_bytes(b"")
        with Scorer(task, run, workers) as scorer:
            for due in pairs:
                scorer.submit(due)
        scores = run.scores()
    assert scores["case01"].failure.stage == "score"
    assert "labels/case01.nii.gz" in scores["case01"].failure.message
    assert len(scores["case00"].scores) == len(scores["case02"].scores) == 6


def dying(root, **settings):
    return Dying(name="dying", layout=ellipsoids(root).layout, labels=LABELS, metrics=["dice"], **settings)


def test_a_case_that_kills_its_worker_fails_alone_and_no_other_is_judged_twice(write_dataset, tmp_path):
    ways = {"case01": "leave", "case04": "be_killed", "case07": "run_out_of_memory", "case09": "be_killed"}
    task = dying(write_dataset(12), ways=ways, victims=["case09"], folder=str(tmp_path))
    with Run(tmp_path / "run", "abc") as run:
        with Scorer(task, run, 2) as scorer:
            for due in predicted(task, run):
                scorer.submit(due)
        scores = run.scores()
    assert sorted(scores) == [f"case{index:02d}" for index in range(12)]
    failed = {
        case: found.failure.message.partition(" (dying.py:")[0] for case, found in scores.items() if found.failure
    }
    assert failed == {
        "case01": "case 'case01': the scoring process died (out of memory?)",
        "case04": "case 'case04': the scoring process died (out of memory?)",
        "case07": "case 'case07': MemoryError: no room for 1 TiB",
    }
    judged = (tmp_path / "judged").read_text().split()
    assert len(judged) == 12 + 3
    assert sorted(judged[-3:]) == ["case01", "case04", "case09"]  # each by itself, when nothing else was left


def test_an_error_nobody_foresaw_is_the_cases_failure(write_dataset, monkeypatch, tmp_path):
    task = ellipsoids(write_dataset(1))
    monkeypatch.setattr(SegmentationTask, "score", lambda *_: 1 / 0)
    failure = score_case(task, task.cases("test")[0], tmp_path / "x")
    told, _, place = failure.message.partition(" (")
    assert failure == Failure("case00", "score", failure.message)
    assert told == "case 'case00': ZeroDivisionError: division by zero"
    assert place.startswith("test_scoring.py:")


def test_an_infinite_value_is_lost_and_the_others_stay(write_dataset, monkeypatch, tmp_path):
    from medimg_eval.metrics import LabelScore

    task = ellipsoids(write_dataset(1))
    endless = LabelScore("core", "mine", float("inf"), "present")
    other = LabelScore("core", "dice", 0.5, "present")
    monkeypatch.setattr(SegmentationTask, "score", lambda *_: [endless, other])
    lost, kept = score_case(task, task.cases("test")[0], tmp_path / "x")
    assert (math.isnan(lost.value), lost.status, kept) == (True, "error: core is inf", other)


def test_scores_that_came_in_while_a_worker_died_are_kept_and_the_scorer_goes_on(write_dataset, tmp_path):
    task = dying(write_dataset(5), ways={"case01": "leave"}, folder=str(tmp_path))
    with Run(tmp_path / "run", "abc") as run:
        with Scorer(task, run, 1) as scorer:
            *first, last = predicted(task, run)
            for due in first:
                scorer._submitted[scorer._pool.submit([due])] = due
            while scorer._pool._results.qsize() < 4:  # all done, good and dead, before the first is looked at
                time.sleep(0.01)
            scorer.drain()
            assert sorted(run.scores()) == [f"case0{index}" for index in range(4)]
            scorer.submit(last)
        assert sorted(run.scores()) == [f"case0{index}" for index in range(5)]


def test_a_task_that_no_process_can_load_is_said_once(write_dataset, tmp_path):
    plain = ellipsoids(write_dataset(3))
    task = Stillborn(name="stillborn", layout=plain.layout, labels=LABELS, metrics=["dice"])
    with Run(tmp_path / "run", "abc") as run:
        pairs = list(predicted(task, run))
        with pytest.raises(UserError, match="score_workers=0"), Scorer(task, run, 1) as scorer:
            for due in pairs:
                scorer.submit(due)


def test_an_error_on_its_way_out_does_not_wait_for_what_is_being_judged(write_dataset, tmp_path):
    task = dying(write_dataset(2), ways={"case00": "never_end", "case01": "never_end"}, folder=str(tmp_path))
    with Run(tmp_path / "run", "abc") as run, pytest.raises(KeyboardInterrupt), Scorer(task, run, 1) as scorer:
        for due in predicted(task, run):
            scorer.submit(due)
        raise KeyboardInterrupt
    assert not [thread for thread in threading.enumerate() if thread.name == "scoring"]


def test_a_patient_scorer_lets_only_so_many_cases_wait(write_dataset, tmp_path, monkeypatch):
    from medimg_eval.evaluation import scoring

    monkeypatch.setattr(scoring, "BACKLOG", 2)
    task = ellipsoids(write_dataset(6))
    with Run(tmp_path / "run", "abc") as run, Scorer(task, run, 1, patient=True) as scorer:
        for index, due in enumerate(predicted(task, run)):
            scorer.submit(due)
            assert len(run.scores()) >= index - 1
            assert scorer._pool.left <= 2


def test_the_number_of_workers_is_as_asked_or_leaves_a_core_for_the_model(monkeypatch):
    assert scoring_workers(0) == 0
    assert scoring_workers(5) == 5
    for cores, workers in ((1, 1), (2, 1), (4, 3), (64, 8)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert scoring_workers(None) == workers
        assert scoring_workers(None, beside_model=False) == cores
