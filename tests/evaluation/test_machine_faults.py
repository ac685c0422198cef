"""What a machine does to a run: a full or read-only disk, a folder that goes, no locks, a clock that jumps, a kill."""

import errno
import fcntl
import multiprocessing
import os
import resource
import shutil
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

import lightning.pytorch as pl
import pytest
from answering import Thresholds

from medimg_eval.errors import UserError
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.run import Run
from medimg_eval.evaluation.settings import Settings
from medimg_eval.results import build_table, load_runs, load_scores, write_all
from medimg_eval.system import product, whole
from tests.conftest import ellipsoids
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]


@pytest.fixture
def settings(tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    return Settings(runs=tmp_path / "runs", run=tmp_path / "runs" / "one", trainer=trainer, config={}, score_workers=0)


def spec(wrapper=Thresholds, **config):
    return ModelSpec("Thresholds", wrapper, config, load=lambda: wrapper(**config))


@contextmanager
def at_most(size):
    """No file may grow beyond so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "scores.csv"
    file.write_text("case,model,metric,value\n" + "".join(f"c{i},ours,dice,0.{i}\n" for i in range(1, 9)))
    return build_table(load_scores(file), resamples=50)


def test_a_full_disk_leaves_no_half_of_a_table_and_the_same_command_goes_on(table, tmp_path):
    with (
        at_most(300),
        pytest.raises(UserError, match=r"table\.\w+: cannot be written .*File too large.*make room") as told,
    ):
        write_all(table, tmp_path / "out")
    assert "\n" not in str(told.value)
    assert all(path.stat().st_size < 300 for path in (tmp_path / "out").iterdir()), "what is there is whole, and small"
    assert not list((tmp_path / "out").glob(".*"))
    files = write_all(table, tmp_path / "out")
    assert all(file.stat().st_size > 0 for file in files)


def test_a_folder_that_cannot_be_written_to_is_said_in_a_sentence(table):
    """Not even root may make a folder there."""
    with pytest.raises(UserError, match=r"/proc/paper/table.\w+: cannot be written \(.*another folder by out=DIR"):
        write_all(table, "/proc/paper")


def half(path, write):
    with write(path) as partial_file:
        partial_file.write_text("half of it")
        os._exit(9)


@pytest.mark.parametrize("write", [whole, product])
def test_a_kill_while_a_file_is_written_leaves_nothing_under_its_name(tmp_path, write):
    child = multiprocessing.get_context("fork").Process(target=half, args=(tmp_path / "pages.html", write))
    child.start()
    child.join()
    assert child.exitcode == 9
    assert not (tmp_path / "pages.html").exists()
    with write(tmp_path / "pages.html") as partial_file:
        partial_file.write_text("all of it")
    assert (tmp_path / "pages.html").read_text() == "all of it"


def test_a_run_whose_folder_is_deleted_says_so_and_starts_anew(write_dataset, settings):
    class Deleting(Thresholds):
        def segment(self, prompts):
            shutil.rmtree(settings.run, ignore_errors=True)
            return super().segment(prompts)

    task = ellipsoids(write_dataset(3))
    with pytest.raises(
        UserError, match="one: the folder of this run is gone .*the same command starts it from nothing"
    ):
        evaluate(task, spec(Deleting), settings)
    folder = evaluate(task, spec(), settings)
    assert load_runs([folder])[0].finished


def test_a_file_system_without_locks_is_told_from_a_run_that_is_taken(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refuse)
        with pytest.raises(UserError, match="No locks available.*name another place with runs=DIR"):
            Run(tmp_path / "run", "abc").__enter__()
    with Run(tmp_path / "run", "abc"), pytest.raises(UserError, match="is at work on this run"):
        Run(tmp_path / "run", "abc").__enter__()


def test_a_clock_that_jumps_back_changes_no_score_and_stops_nothing(write_dataset, settings, monkeypatch):
    task = ellipsoids(write_dataset(2))
    usual = evaluate(task, spec(), settings)
    hours = iter(range(10_000, 0, -1))

    def backwards():
        return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=next(hours))).isoformat()

    for module in ("run", "pipeline", "plan", "summarise"):
        monkeypatch.setattr(f"medimg_eval.evaluation.{module}.now", backwards)
    jumped = evaluate(task, spec(), Settings(**{**vars(settings), "run": settings.runs / "two"}))
    one, two = load_runs([usual, jumped])
    assert two.finished
    assert two.ended < two.started
    assert one.scores["value"].tolist() == two.scores["value"].tolist()
    assert build_table([two], resamples=20).rows
