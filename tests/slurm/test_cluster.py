"""A real SLURM of two nodes on this machine: grids, runs on several nodes, arrays of shards that die."""

import importlib.util
import json
import shlex
import subprocess
import sys

import pytest

from tests.conftest import HELPERS, environment
from tests.slurm.cluster import Cluster, missing_programs

LACKS = missing_programs()
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(LACKS), reason=f"no SLURM here, it lacks {', '.join(LACKS)}: apt install slurm-wlm munge"),
]
submitit = pytest.mark.skipif(
    importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is None
    if importlib.util.find_spec("hydra_plugins")
    else True,
    reason="no submitit here: pip install 'medimg-eval[slurm]'",
)

QUIZ = """
_target_: medimg_eval.tasks.QuestionTask
name: {name}
title: {name}
splits: {{test: test}}
metrics: [accuracy]
card: {{description: Questions made by the tests.}}
layout: {{_target_: asking.Quiz, number: {number}}}
"""
LAUNCH = ("hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=10")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def start(cluster, tmp_path):
    """Runs the program in an empty folder, alone or behind words such as srun's."""

    def run(*words, before=(), timeout=300):
        command = [*before, sys.executable, "-m", "medimg_eval", *words]
        variables = environment(HELPERS.parents[1], HELPERS) | cluster.variables
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture
def quizzes(tmp_path):
    """Two tasks of questions as a user's own configs, and words that name their folder."""
    folder = tmp_path / "configs" / "task"
    folder.mkdir(parents=True)
    for name, number in (("short_quiz", 4), ("long_quiz", 12)):
        (folder / f"{name}.yaml").write_text(QUIZ.format(name=name, number=number))
    return ("--config-dir", str(folder.parent))


def manifests(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/*/manifest.json"))]


def only_scores(folder):
    (path,) = folder.glob("*/*/scores.parquet")
    return path.read_bytes()


@submitit
def test_a_grid_of_tasks_and_models_is_one_command_and_a_job_that_fails_is_told(start, quizzes, tmp_path):
    words = ["test", "-m", *quizzes, "task=short_quiz,long_quiz", "model._target_=asking.Says", *LAUNCH]
    done = start(*words, "+model.default=A,B")
    assert done.returncode == 0, done.stderr
    assert sorted((one["task"], one["status"]) for one in manifests(tmp_path / "runs")) == [
        ("long_quiz", "finished"),
        ("long_quiz", "finished"),
        ("short_quiz", "finished"),
        ("short_quiz", "finished"),
    ]
    said = [path.read_text() for path in tmp_path.glob("runs/multirun/*/.submitit/*/*_log.out")]
    assert len(said) == 4
    failed = start(*words, "+model.fails_on=[],[q3]")
    assert failed.returncode == 1
    assert "1 case failed" in failed.stderr or "1 of 4 cases failed" in failed.stderr, failed.stderr
    assert [one["status"] for one in manifests(tmp_path / "runs")] == ["finished"] * 6  # two are those of before


@submitit
def test_a_run_on_two_nodes_by_one_command_equals_that_of_one_process(start, write_dataset, config_dir, tmp_path):
    words = ["--config-dir", str(config_dir(write_dataset(7))), "task=ellipsoids", "num_workers=0", "score_workers=0"]
    words = ["test", *words, "model._target_=answering.Thresholds", "+model.levels=[80,150]", "trainer.accelerator=cpu"]
    assert start(*words, "runs=one").returncode == 0
    nodes = ["trainer=slurm", *LAUNCH, "hydra.launcher.nodes=2", "hydra.launcher.tasks_per_node=2"]
    done = start("test", "-m", *words[1:], *nodes, "runs=many")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "many").glob("ellipsoids/*")
    ranks = [len((folder / f"predictions-{rank}.jsonl").read_text().splitlines()) for rank in range(4)]
    assert ranks == [2, 2, 2, 1]
    assert only_scores(tmp_path / "many") == only_scores(tmp_path / "one")


def test_tasks_of_srun_need_the_trainer_that_knows_of_them(start, quizzes):
    words = ["test", *quizzes, "task=short_quiz", "model._target_=asking.Says"]
    alone = start(*words, "trainer=slurm")
    assert alone.returncode == 2
    assert "trainer=slurm takes nodes and devices from srun, which has not started this process" in alone.stderr
    many = start(*words, before=["srun", "-N2", "--ntasks-per-node=1"])
    assert many.returncode == 2
    assert "srun has started 2 tasks, and the trainer has trainer.devices=1" in many.stderr


def test_a_shard_that_dies_in_an_array_goes_on_in_other_shards_and_equals_the_whole(start, cluster, quizzes, tmp_path):
    words = ["test", *quizzes, "task=long_quiz", "model._target_=asking.Killed", "+model.at=8"]
    words += [f"+model.log={tmp_path}/asked"]
    (tmp_path / "asked.killed").touch()  # nothing is killed
    assert start(*words, "runs=whole").returncode == 0
    for path in (tmp_path / "asked.killed", tmp_path / "asked"):
        path.unlink()
    command = shlex.join([sys.executable, "-m", "medimg_eval", *words, "runs=shards"])

    def array(of):
        job = ["sbatch", "--wait", f"--array=1-{of}", "--output=/dev/null"]
        job += ["--wrap", f"{command} shard=$SLURM_ARRAY_TASK_ID/{of}"]
        variables = environment(HELPERS.parents[1], HELPERS) | cluster.variables
        return cluster.run(*job, timeout=300, cwd=tmp_path, env=variables).returncode

    assert array(3) != 0
    assert (tmp_path / "asked.killed").exists()
    (folder,) = (tmp_path / "shards").glob("long_quiz/*")
    assert not (folder / "scores.parquet").exists()
    assert array(2) == 0
    assert only_scores(tmp_path / "shards") == only_scores(tmp_path / "whole")
