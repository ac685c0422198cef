"""Steps of SLURM: what the variables of `srun` say, and which group Lightning joins; no SLURM is needed."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.commands.cli import Job, Words
from medimg_eval.errors import LeaveError, UsageError, UserError
from medimg_eval.system import Step, cluster_environment, in_group, rank, read_step, with_step

ONE = {"devices": 1, "num_nodes": 1}
ANY = {"devices": "slurm", "num_nodes": "slurm"}


@pytest.fixture
def step(monkeypatch):
    """Sets what srun sets for a task."""

    def enter(spread="2(x2)", tasks=4, number=3):
        for name, value in {
            "SLURM_JOB_ID": 17,
            "SLURM_NTASKS": 8,  # of the job
            "SLURM_PROCID": number,
            "SLURM_LOCALID": number % 2,
            "SLURM_NODEID": number // 2,
            "SLURM_STEP_NUM_TASKS": tasks,
            "SLURM_STEP_TASKS_PER_NODE": spread,
        }.items():
            monkeypatch.setenv(name, str(value))

    return enter


@given(st.integers(1, 64), st.integers(1, 16))
def test_nodes_and_tasks_are_read_as_slurm_writes_them(nodes, tasks):
    for spread in (f"{tasks}(x{nodes})", ",".join([str(tasks)] * nodes)):
        assert read_step({"SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": spread}) == Step(nodes, tasks)


def test_a_batch_script_is_no_step_and_uneven_nodes_are_refused():
    assert read_step({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_TASKS_PER_NODE": "2(x2)"}) is None
    with pytest.raises(UserError, match=r"as many tasks on each node of the SLURM step, got 2\(x2\),1; give --ntasks"):
        read_step({"SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x2),1"})


def test_a_trainer_takes_its_nodes_and_devices_from_the_step(step):
    with pytest.raises(UsageError, match=r"trainer=slurm takes nodes and devices from srun, which has not started"):
        with_step(ANY, shard=False)
    assert with_step(ONE, shard=False) == ONE
    step()
    assert with_step(ANY, shard=False) == {"devices": 2, "num_nodes": 2}
    with pytest.raises(UsageError, match=r"srun has started 4 tasks.*each task would do all the work: add trainer=slu"):
        with_step(ONE, shard=False)
    assert with_step(ONE, shard=True) == ONE
    assert with_step({"devices": "auto", "num_nodes": 2}, shard=False) == {"devices": "auto", "num_nodes": 2}


def test_lightning_joins_the_tasks_of_the_step_and_no_others(step, monkeypatch):
    assert cluster_environment() is None
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_NTASKS", "4")  # a batch script that starts its ranks itself
    assert type(cluster_environment()).__name__ == "LightningEnvironment"
    step()
    assert type(cluster_environment(shard=True)).__name__ == "LightningEnvironment"
    group = cluster_environment()
    assert (group.world_size(), group.global_rank(), group.local_rank(), group.node_rank()) == (4, 3, 1, 1)
    assert group.creates_processes_externally
    group.validate_settings(2, 2)
    with pytest.raises(
        UsageError, match=r"2 tasks on each of 2 nodes, and the trainer has 1 devices on each of 2; write"
    ):
        group.validate_settings(1, 2)
    assert in_group()
    assert rank() == 3


def test_a_rank_of_a_batch_script_is_alone(monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert not in_group()


def test_a_job_and_what_it_raises_come_through_to_another_process():
    job = Job(Words("test", ["-m"], ["task=a"]), "medimg_eval")
    job.errors.append(ValueError("of this process"))
    carried = pickle.loads(pickle.dumps(job))
    assert (carried.words, carried.program, carried.errors) == (job.words, job.program, [])
    error = pickle.loads(pickle.dumps(LeaveError("x may not leave", mend="may_leave=yes")))
    assert (str(error), error.mend) == ("x may not leave", "may_leave=yes")
