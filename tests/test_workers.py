"""Processes that read and score: what kills them costs a second try, never a model's answer, and never the run."""

import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from functools import partial

import lightning.pytorch as pl
import numpy as np
import pytest
from answering import Thresholds
from dying import Dying
from reading import FragileVolumes, fragile, kill_the_reader, quiz, sign, wait_for, whose

from medimg_eval.case import Failure, Mask, Trial
from medimg_eval.codecs import prediction_file
from medimg_eval.data.prompts import PromptBatches
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.scoring import Due, Scorer, score_parts
from medimg_eval.evaluation.settings import Settings
from medimg_eval.imaging import write_mask
from medimg_eval.models import Chooser
from medimg_eval.workers import Line, Workers, started_ahead
from tests.conftest import AFFINE, HELPERS, LABELS, ellipsoid, ellipsoids, environment
from tests.helpers.running import evaluate

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have overridden `transfer_batch_to_device`"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec"),
]

SECONDS = 240
"""After so long a test is taken to hang."""


@pytest.fixture(autouse=True)
def alarm():
    def ring(*_):
        raise TimeoutError(f"no end after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def settings(tmp_path):
    trainer = partial(
        pl.Trainer, accelerator="cpu", devices=1, enable_progress_bar=False, use_distributed_sampler=False
    )
    return Settings(tmp_path / "runs", None, trainer, config={}, num_workers=1, score_workers=0)


def spec(wrapper, **config):
    return ModelSpec(wrapper.__name__, wrapper, config, load=lambda: wrapper(**config))


class Killing(Thresholds):
    """While it answers, the reader of the next case is killed."""

    def __init__(self, folder, **settings):
        super().__init__(**settings)
        self.folder = folder

    def segment(self, prompts):
        kill_the_reader(self.folder)
        return super().segment(prompts)


class KillingChooser(Chooser):
    """While it answers, the reader of the next questions is killed."""

    def __init__(self, folder):
        self.folder = folder

    def choose(self, prompts):
        kill_the_reader(self.folder)
        return ["A" for _ in prompts]


def volumes(root, tmp_path, **settings):
    plain = ellipsoids(root)
    return FragileVolumes(
        name="fragile", layout=plain.layout, labels=LABELS, metrics=["dice"], folder=str(tmp_path), **settings
    )


def failures(folder):
    return json.loads((folder / "summary.json").read_text())["failures"]


def workers(function, state, count, **options):
    return Workers(function, state, count, name="reading", setting="num_workers", **options)


def test_a_reader_killed_while_the_model_segments_costs_a_second_reading(write_dataset, settings, tmp_path):
    task = volumes(write_dataset(4), tmp_path, victim="case01")
    log = tmp_path / "log"
    folder = evaluate(task, spec(Killing, folder=str(tmp_path), log=str(log)), settings)
    assert failures(folder) == []
    assert log.read_text().split() == ["case00", "case01", "case02", "case03"]


def test_a_reader_killed_while_the_model_chooses_costs_a_second_reading(settings, tmp_path):
    task = quiz(20, folder=str(tmp_path))
    task = replace(task, victim=task.cases("test")[11].id)  # of the second part
    folder = evaluate(task, spec(KillingChooser, folder=str(tmp_path)), settings)
    assert failures(folder) == []
    assert len((folder / "predictions-0.jsonl").read_text().splitlines()) == 20


def test_a_case_whose_reader_dies_twice_fails_by_its_files_and_the_rest_is_asked(write_dataset, settings, tmp_path):
    task = volumes(write_dataset(4), tmp_path, deadly="case02")
    settings.num_workers = 2
    (tmp_path / "reader").write_text(str(2**22 + 1))  # of nobody
    folder = evaluate(task, spec(Killing, folder=str(tmp_path)), settings)
    ((failure),) = failures(folder)
    assert (failure["case"], failure["stage"]) == ("case02", "read")
    assert "images/case02.nii.gz" in failure["message"]
    assert "out of memory?" in failure["message"]
    assert json.loads((folder / "manifest.json").read_text())["failed_cases"] == 1


def test_of_cases_that_are_read_together_only_the_deadly_one_fails(tmp_path):
    task = quiz(20, folder=str(tmp_path))
    cases = task.cases("test")
    task = replace(task, deadly=cases[5].id)
    prepared = [one for batch in PromptBatches(task, cases, num_workers=2) for one in batch]
    assert [one.case for one in prepared] == list(cases)
    assert [one.case.id for one in prepared if isinstance(one.prompt, Failure)] == [cases[5].id]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_results_come_in_order_and_no_further_ahead_than_allowed(count):
    taken = []

    class Parts(list):
        def __iter__(self):
            for part in super().__iter__():
                taken.append(part)
                yield part

    results = workers(whose, "state", count).ordered(Parts([index] for index in range(12)), ahead=4)
    for index, ((_, state, item),) in enumerate(results):
        assert (state, item) == ("state", index)
        assert len(taken) <= index + 5
    assert len(taken) == 12


def test_a_part_that_kills_its_process_is_tried_again_item_by_item():
    parts = [[1, 2], [3, 4, 5], [6], [7, 8]]
    results = list(workers(fragile, {4, 6}, 2).ordered(parts, ahead=4))
    assert results == [[1, 2], [3, None, 5], [None], [7, 8]]


def test_what_is_left_when_the_reading_is_given_up_ends_at_once():
    results = workers(whose, "state", 2).ordered([[index] for index in range(100)], ahead=4)
    ((pid, _, _),) = next(results)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_processes_that_were_started_ahead_are_taken_first_and_those_left_over_end(tmp_path):
    with started_ahead(sign, str(tmp_path), 2):
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        (((pid, _, _),),) = workers(whose, "state", 1).ordered([["item"]], 1)
    signed = [int(file.name) for file in tmp_path.iterdir()]
    assert pid in signed
    for process in signed:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_parts_that_are_scored_together_lose_the_deadly_case_alone(write_dataset, tmp_path):
    task = dying(write_dataset(4), tmp_path, ways={"case02": "be_killed"})
    given = []
    for index, case in enumerate(task.cases("test")):
        path = tmp_path / f"{case.id}.nii.gz"
        write_mask(path, Mask(ellipsoid(index), AFFINE))
        given.append(Due(Trial(case.id), case, path, {"key": task.case_metrics}))
    (first,), second = score_parts(task, [given[:1], given[1:]], 2)
    died = Failure("case02", "score", "case 'case02': the scoring process died (out of memory?)")
    assert [score for score in second if isinstance(score, Failure)] == [died] == [second[1]]
    assert {score.label for scores in (first, second[0], second[2]) for score in scores} == {"core", "rim"}


def dying(root, tmp_path, **settings):
    plain = ellipsoids(root)
    return Dying(name="dying", layout=plain.layout, labels=LABELS, metrics=["dice"], folder=str(tmp_path), **settings)


SCRIPT = """
import os, sys
from beside import mine
from medimg_eval.workers import Workers
print("main")
pool = Workers(mine, "state", 2, name="reading", setting="num_workers")
pids = {pid for results in pool.ordered([[1], [2], [3]], 2) for pid, _, _ in results}
print("here" if os.getpid() in pids else "elsewhere")
"""

OWN = """
import logging, os, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.getLogger("medimg_eval").setLevel(logging.INFO)
from medimg_eval.workers import Workers
class State: pass
def whose(state, item): return os.getpid()
from reading import whose as other
for function, state in ((whose, "state"), (other, State())):
    pool = Workers(function, state, 2, name="reading", setting="num_workers")
    print(len(list(pool.ordered([[1], [2], [3]], 2))), pool.count)
"""


def program(how, text, folder):
    """Runs a program as a script of its folder, by -c or from standard input."""
    (folder / "beside.py").write_text("from reading import whose as mine\n")
    (folder / "script.py").write_text(text)
    command = {"script": ["script.py"], "text": ["-c", text], "input": ["-"]}[how]
    done = subprocess.run(
        [sys.executable, *command],
        input=text if how == "input" else "",
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(HELPERS),
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("how", ["script", "text", "input"])
def test_a_program_needs_no_main_guard_and_its_main_module_runs_once(how, tmp_path):
    assert program(how, SCRIPT, tmp_path) == ["main", "elsewhere"]


def test_what_the_main_module_defines_is_used_in_this_process_which_the_log_says(tmp_path):
    assert program("script", OWN, tmp_path) == [
        "reading goes on in this process, for whose is defined in the main module",
        "3 0",
        "reading goes on in this process, for State is defined in the main module",
        "3 0",
    ]


def test_a_task_that_cannot_be_sent_is_scored_in_this_process(write_dataset, tmp_path):
    from medimg_eval.evaluation.run import Run

    task = ellipsoids(write_dataset(2), card={"unsendable": lambda: None})
    with Run(tmp_path / "run", "abc") as run:
        with Scorer(task, run, 2) as scorer:
            for index, case in enumerate(task.cases("test")):
                path = prediction_file(run.folder / "predictions", case.id, ".nii.gz")
                write_mask(path, Mask(ellipsoid(index), AFFINE))
                scorer.submit(Due(Trial(case.id), case, path, {"key": task.case_metrics}))
        assert sorted(run.scores()) == ["case00", "case01"]


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_pass_the_line_as_they_are_and_may_be_written_to(order):
    ends = socket.socketpair()
    sender, receiver = (Line(end) for end in ends)
    large = np.asarray(np.arange(10000, dtype=np.float64).reshape(100, 100), order=order)
    small = np.arange(3)
    sender.send({"large": large, "small": small})
    received = receiver.receive()
    np.testing.assert_array_equal(received["large"], large)
    np.testing.assert_array_equal(received["small"], small)
    assert received["large"].flags[f"{order}_CONTIGUOUS"]
    received["large"][0, 0] = 1
    sender.close()
    with pytest.raises(EOFError):
        receiver.receive()
    receiver.close()
