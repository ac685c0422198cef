"""Shards: a run that processes without a group answer, each its part."""

import json
import re
from dataclasses import replace
from functools import partial

import lightning.pytorch as pl
import pytest
from answering import Thresholds
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.case import Case, Trial
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evaluation.shards import Shard, read_shard, with_notes
from tests.conftest import ellipsoids
from tests.helpers.running import evaluate, rescore

pytestmark = pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec")


def candidate(**config):
    return ModelSpec("Thresholds", Thresholds, config, load=lambda: Thresholds(**config))


@pytest.fixture
def settings(tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    return Settings(runs=tmp_path / "runs", trainer=trainer, score_workers=0)


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


@given(st.integers(1, 40), st.integers(1, 20))
def test_each_case_is_of_one_shard_with_all_its_repeats(cases, of):
    every = [Case(f"c{i}", (), None) for i in range(cases)]
    trials = [Trial(case.id, repeat) for repeat in range(2) for case in every]
    shards = [Shard(number + 1, of).trials(every, trials) for number in range(of)]
    assert sorted(trial for shard in shards for trial in shard) == sorted(trials)
    assert all(len({trial.case for trial in shard}) * 2 == len(shard) for shard in shards)
    assert max(map(len, shards)) - min(map(len, shards)) <= 2
    reversed_trials = shards[0][::-1]
    assert Shard(1, of).trials(every, reversed_trials) == reversed_trials  # whatever else was asked before


@pytest.mark.parametrize("said", ["0/4", "5/4", "3", "a/b", "1/0", 3, "-1/4", "1/4/2"])
def test_what_is_no_shard_is_refused(said):
    with pytest.raises(UsageError, match=rf"expected shard to be such as 3/16.*{re.escape(str(said))}"):
        read_shard(said)


def test_three_shards_in_any_order_equal_one_process(write_dataset, settings, tmp_path):
    root = write_dataset(7)
    whole = evaluate(ellipsoids(root), candidate(), replace(settings, runs=tmp_path / "whole"))
    for number in (3, 1, 2):
        folder = evaluate(ellipsoids(root), candidate(), replace(settings, shard=Shard(number, 3)))
        assert (folder / "scores.parquet").exists() is (number == 2)
        assert manifest(folder)["status"] == ("finished" if number == 2 else "running")
    assert (folder / "scores.parquet").read_bytes() == (whole / "scores.parquet").read_bytes()
    assert folder.name == whole.name
    said, alone = manifest(folder), manifest(whole)
    assert said["stages"].keys() == alone["stages"].keys()
    changing = {"started", "ended", "stages", "timing", "config", "provenance", "resumed"}
    assert {k: v for k, v in said.items() if k not in changing} == {k: v for k, v in alone.items() if k not in changing}
    assert not list(folder.glob("shard*"))


def test_a_shard_leaves_the_merge_to_one_that_is_at_work(write_dataset, settings, caplog):
    task = ellipsoids(write_dataset(2))
    folder = evaluate(task, candidate(), replace(settings, shard=Shard(2, 2)))
    with Run(folder, manifest(folder)["run"], shard=Shard(2, 2)):
        evaluate(task, candidate(), replace(settings, shard=Shard(1, 2)))
        assert manifest(folder)["status"] == "running"
    assert "shard 1/2 is done; another one is at work yet, and merges" in caplog.text
    evaluate(task, candidate(), replace(settings, shard=Shard(2, 2)))
    assert manifest(folder)["status"] == "finished"


def test_a_lost_shard_is_named_and_asked_again_by_another_or_by_none(write_dataset, settings, tmp_path, caplog):
    root, log = write_dataset(6), tmp_path / "log"
    task = ellipsoids(root)
    folder = evaluate(task, candidate(log=str(log)), replace(settings, shard=Shard(1, 4)))
    assert "shard 1/4 is done, and 4 of 6 cases are left to shards 2/4, 3/4, 4/4" in caplog.text
    evaluate(task, candidate(log=str(log)), replace(settings, shard=Shard(3, 4)))
    with pytest.raises(UserError, match=r"3 of 6 cases were asked; ask shards 2/4, 4/4 again by test shard="):
        rescore(folder, task, settings)
    assert evaluate(task, candidate(log=str(log)), settings) == folder  # without a word of shards
    assert sorted(log.read_text().split()) == [f"case0{i}" for i in range(6)]
    assert manifest(folder)["status"] == "finished"


def test_a_shard_killed_half_way_goes_on_in_another_and_equals_the_whole(write_dataset, settings, tmp_path):
    root = write_dataset(6)
    whole = evaluate(ellipsoids(root), candidate(), replace(settings, runs=tmp_path / "whole"))
    for number in (1, 2):
        folder = evaluate(ellipsoids(root), candidate(), replace(settings, shard=Shard(number, 3)))
    lines = folder / "predictions-shard1of3.jsonl"
    lines.write_text(lines.read_text().splitlines(keepends=True)[0] + '{"case": "ca')
    (folder / "scores-shard1of3.jsonl").unlink()
    for number, of in ((3, 3), (1, 2), (2, 2)):  # dealt out anew
        evaluate(ellipsoids(root), candidate(), replace(settings, shard=Shard(number, of)))
    assert (folder / "scores.parquet").read_bytes() == (whole / "scores.parquet").read_bytes()


def test_a_shard_and_a_whole_run_keep_each_other_out_and_two_shards_do_not(tmp_path, monkeypatch):
    monkeypatch.setattr("medimg_eval.evaluation.run.PASSING_S", 0.05)
    with Run(tmp_path, "abc", shard=Shard(1, 2)) as first:
        first.note(schema=1, run="abc", model="m", config={}, resumed=[])
        first.publish()
        with Run(tmp_path, "abc", shard=Shard(2, 2)):
            pass
        with pytest.raises(UserError, match="is at work on this run"):
            Run(tmp_path, "abc", shard=Shard(1, 2)).__enter__()
        with pytest.raises(UserError, match="is at work on this run"):
            Run(tmp_path, "abc").__enter__()
        with Run(tmp_path, "abc", beside_shards=True), Run(tmp_path, "abc", shard=Shard(2, 2)):
            pass  # a merge goes on beside those that ask again
    with Run(tmp_path, "abc"), pytest.raises(UserError, match="is at work on this run"):
        Run(tmp_path, "abc", shard=Shard(1, 2)).__enter__()


def test_ranks_that_srun_has_started_may_come_before_rank_0(tmp_path, monkeypatch):
    with Run(tmp_path, "abc", rank=1):
        monkeypatch.setenv("SLURM_PROCID", "0")
        monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
        with Run(tmp_path, "abc"):
            pass
        monkeypatch.delenv("SLURM_STEP_NUM_TASKS")
        monkeypatch.setenv("SLURM_NTASKS", "2")  # of a batch script, which is one process
        with pytest.raises(UserError, match="is at work on this run"):
            Run(tmp_path, "abc").__enter__()


def test_what_rank_0_scores_again_holds_over_the_former_scores_of_others(tmp_path):
    from medimg_eval.metrics import LabelScore

    old, new = LabelScore("core", "dice", 0.5, "present"), LabelScore("core", "dice", 0.75, "present")
    with Run(tmp_path, "abc", rank=1) as run:
        run.append_scores([(Trial("a"), {"former": ["dice"]}, [old])])
    with Run(tmp_path, "abc") as run:
        run.append_scores([(Trial("a"), {"present": ["dice"]}, [new])])
        assert run.scores()["a"].scores == [new]


def test_seconds_and_uses_of_shards_are_added_and_what_left_is_named_once():
    sent = {"to": "host", "trials": 3}
    notes = {"timing": {"seconds": 2.0, "in_model": 1.0}, "usage": [{"requests": 2}], "sent": [sent]}
    found = with_notes(with_notes({"sent": [sent]}, notes), notes)
    assert found["timing"] == {"seconds": 4.0, "in_model": 2.0, "overhead": 0.5}
    assert found["usage"] == [{"requests": 2}] * 2
    assert found["sent"] == [sent]


@pytest.mark.parametrize("left", ["..shard1of3.json.17", "..rank-0.json.17"])
def test_a_kill_while_the_owner_of_a_folder_is_written_leaves_a_folder_of_ours(tmp_path, left):
    (tmp_path / left).write_text('{"pid"')
    with Run(tmp_path, "abc", shard=Shard(1, 3)), Run(tmp_path, "abc", shard=Shard(2, 3)):
        pass
    with Run(tmp_path, "abc"):
        pass
