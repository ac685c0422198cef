"""The run folder: what a kill can do to it, and who may write in it."""

import json
import multiprocessing
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from answering import hold

from medimg_eval.case import Failure, Score, Trial
from medimg_eval.codecs import prediction_file
from medimg_eval.errors import UserError
from medimg_eval.evaluation.run import Run
from medimg_eval.metrics import LabelScore

SCORES = [LabelScore("core", "dice", 0.5, "present"), LabelScore("rim", "hd95", float("nan"), "absent")]


def keep(run, *cases):
    run.note(schema=1, run=run.run, model="m")
    paths = [prediction_file(run.folder / "predictions", case, ".txt") for case in cases]
    for path in paths:
        path.write_text("x")
    run.append_predictions(dict(zip(map(Trial, cases), paths, strict=True)))


def opened(folder, run="abc", **fields):
    run = Run(folder, run)
    run.__enter__()
    run.note(schema=1, run=run.run, model="m", **fields)
    return run


def closed(run):
    run.__exit__(None, None, None)


@pytest.mark.parametrize("case", [".hidden", "../up", "a" * 300, "案" * 60, "CON con"])
def test_any_id_has_a_file_of_its_own_that_is_not_swept_away(tmp_path, case):
    with Run(tmp_path, "abc") as run:
        keep(run, case, case[:-1])
    with Run(tmp_path, "abc") as run:
        assert set(run.predictions()) == {case, case[:-1]}
        assert all(path.parent == tmp_path / "predictions" for path in run.predictions().values())


def test_a_place_that_cannot_be_written_is_named():
    with pytest.raises(UserError, match=r"/dev/null/x: cannot be written to"):
        Run(Path("/dev/null/x"), "abc").__enter__()


@pytest.mark.parametrize("line", ["{half", "[1]", "3"])
def test_a_damaged_line_is_named(tmp_path, line):
    with Run(tmp_path / "run", "abc") as run:
        keep(run, "a")
        with (run.folder / "predictions-0.jsonl").open("a") as stream:
            stream.write(f"{line}\n")
        with pytest.raises(UserError, match=r"predictions-0.jsonl: line 2 is damaged \(.*\); take it out"):
            run.predictions()


def test_what_was_appended_is_read_back(tmp_path):
    with Run(tmp_path / "run", "abc") as run:
        keep(run, "a", "b/ü?")
        run.append_predictions({Trial("c"): Failure("c", "answer", "why\nnot")})
        failed = Failure("c", "score", "no")
        keys = {"k1": ["dice", "hd95"]}
        run.append_scores([(Trial("a"), keys, SCORES), (Trial("c"), keys, failed)])
        predictions, scores = run.predictions(), run.scores()
    assert predictions["a"].name == "a.txt"
    assert predictions["b/ü?"].parent == tmp_path / "run" / "predictions"
    assert predictions["c"] == Failure("c", "answer", "why\nnot")
    assert str(scores["a"].scores) == str(SCORES)  # NaN is not equal to itself
    assert scores["a"].keys == {"dice": "k1", "hd95": "k1"}
    assert scores["c"].failure == failed


def test_what_the_readers_mended_is_kept_with_the_case(tmp_path):
    with Run(tmp_path, "abc") as run:
        path = prediction_file(run.folder / "predictions", "a", ".txt")
        path.write_text("x")
        run.append_predictions({Trial("a"): path, Trial("b"): path}, {Trial("a"): ["one slice twice"], Trial("b"): []})
        assert run.read_with() == {"a": ["one slice twice"]}


def test_the_latest_scores_of_a_metric_hold_and_those_of_others_stay(tmp_path):
    with Run(tmp_path, "abc") as run:
        run.append_scores([(Trial("a"), {"k1": ["dice", "hd95"]}, SCORES)])
        run.append_scores([(Trial("a"), {"k2": ["dice"]}, [SCORES[0]._replace(value=0.25)])])
        kept = run.scores()["a"]
    assert kept.keys == {"dice": "k2", "hd95": "k1"}
    assert [(score.metric, score.value) for score in kept.scores][1:] == [("dice", 0.25)]
    assert kept.scores[0].metric == "hd95"


def test_scores_of_schema_1_are_read_under_the_settings_that_made_them(tmp_path):
    with Run(tmp_path, "abc") as run:
        line = {"case": "a", "scoring": "s1", "scores": [list(score) for score in SCORES]}
        (tmp_path / "scores-0.jsonl").write_text(json.dumps(line) + "\n")
        assert run.scores("s2", ["dice", "hd95"]) == {}
        assert list(run.scores("s1", ["dice", "hd95"])["a"].keys) == ["dice", "hd95"]


def test_an_answer_beats_a_failure_whichever_came_first(tmp_path):
    with Run(tmp_path, "abc") as run:
        failure = Failure("a", "answer", "first time")
        run.append_predictions({Trial("a"): failure})
        keep(run, "a")
        run.append_predictions({Trial("a"): failure})
        assert run.predictions()["a"].name == "a.txt"


def test_a_prediction_whose_file_is_gone_is_no_prediction(tmp_path):
    with Run(tmp_path, "abc") as run:
        keep(run, "a")
        prediction_file(run.folder / "predictions", "a", ".txt").unlink()
        assert run.predictions() == {}


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_cut_off_by_a_kill_is_dropped_and_the_next_one_is_whole(tmp_path, cut):
    with Run(tmp_path, "abc") as run:
        keep(run, "a", "b")
    shard = tmp_path / "predictions-0.jsonl"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-cut])
    with Run(tmp_path, "abc") as run:
        assert set(run.predictions()) <= {"a", "b"}
        keep(run, "c")
        assert "c" in run.predictions()
    for line in shard.read_text().splitlines():
        json.loads(line)


def test_the_half_written_line_of_another_rank_is_passed_over(tmp_path):
    with Run(tmp_path, "abc") as run:
        keep(run, "a")
        (tmp_path / "predictions-1.jsonl").write_text('{"case": "b", "fi')
        assert set(run.predictions()) == {"a"}


def test_half_written_predictions_are_swept_away(tmp_path):
    with Run(tmp_path, "abc") as run:
        keep(run, "a")
        (tmp_path / "predictions" / ".123.b.nii.gz").write_text("half")
    with Run(tmp_path, "abc"):
        assert [entry.name for entry in (tmp_path / "predictions").iterdir()] == ["a.txt"]


def test_a_second_process_is_refused_and_told_who_is_at_work(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path, 0, ready, done))
    holder.start()
    try:
        assert ready.wait(60)
        with pytest.raises(UserError, match=rf"process {holder.pid} on .* is at work on this run; wait for it"):
            Run(tmp_path, "abc").__enter__()
    finally:
        done.set()
        holder.join()
    with Run(tmp_path, "abc"):
        pass


def test_a_rank_that_outlived_its_run_keeps_the_next_one_out(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path, 1, ready, done))
    holder.start()
    try:
        assert ready.wait(60)
        with pytest.raises(UserError, match=f"process {holder.pid}"):
            Run(tmp_path, "abc").__enter__()
    finally:
        done.set()
        holder.join()


def test_a_lock_left_by_a_killed_process_is_no_lock(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path, 0, ready, done))
    holder.start()
    assert ready.wait(60)
    os.kill(holder.pid, 9)
    holder.join()
    with Run(tmp_path, "abc"):
        pass


def test_a_folder_of_another_run_is_refused(tmp_path):
    closed(opened(tmp_path))
    with pytest.raises(UserError, match="holds run abc of 'm', and this would be run xyz"):
        Run(tmp_path, "xyz").__enter__()
    with Run(tmp_path, "abc"):  # and the refusal has let go of the folder
        pass


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    with pytest.raises(UserError, match="has schema None, this version reads 2"):
        Run(tmp_path, "abc").__enter__()


def test_a_folder_of_the_users_own_is_left_alone(tmp_path):
    (tmp_path / "predictions").mkdir()
    files = [tmp_path / "config.yaml", tmp_path / "predictions" / ".2024notes", tmp_path / "predictions" / "a.nii.gz"]
    for path in files:
        path.write_text("mine")
    with pytest.raises(UserError, match="holds no run but other files, such as 'config.yaml'; name a new folder"):
        Run(tmp_path, "abc").__enter__()
    assert all(path.read_text() == "mine" for path in files)


@pytest.mark.parametrize(("error", "status"), [(ValueError, "failed"), (KeyboardInterrupt, "interrupted")])
def test_the_manifest_says_how_the_work_ended(tmp_path, error, status):
    with pytest.raises(error), Run(tmp_path, "abc") as run:
        run.note(schema=1, run="abc", model="m", status="running")
        raise error
    assert json.loads((tmp_path / "manifest.json").read_text())["status"] == status


def test_a_run_refused_before_any_work_leaves_no_folder(tmp_path):
    with pytest.raises(UserError), Run(tmp_path / "new", "abc") as run:
        run.note(status="running")
        raise UserError("no weights")
    assert not (tmp_path / "new").exists()
    with pytest.raises(UserError), Run(tmp_path / "worked", "abc") as run:
        keep(run, "a")
        raise UserError("disk full")
    assert (tmp_path / "worked" / "predictions-0.jsonl").exists()


def test_score_rows_are_written_with_their_types(tmp_path):
    row = Score("r", "t", "m", "c", "p", "core", "dice", float("nan"), "absent", "{}")
    with Run(tmp_path, "abc") as run:
        run.write_scores([row])
    table = pq.read_table(tmp_path / "scores.parquet")
    assert table.column_names == list(Score._fields)
    assert str(table.schema.field("value").type) == "double"
    assert str(table.schema.field("repeat").type) == "int64"
    assert {str(field.type) for field in table.schema if field.name not in ("value", "repeat")} == {"string"}
