"""Runs packed onto GPUs: room, order, deaths and ends, with made-up GPUs and programs that only write what they see."""

import json
import sys
import time
from pathlib import Path

import pytest

import medimg_eval as me
from medimg_eval.api import estimate_sheet, run_estimates
from medimg_eval.api.fleet import Fleet, Job, jobs_of, named_devices
from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
name, gib, seconds, deaths = sys.argv[1].split(":")
words = dict(word.split("=", 1) for word in sys.argv[2:])
begun = Path("begun-" + name)
kind = "estimate" if words.get("estimate") == "true" else "run"
with open("events", "a") as events:
    events.write(json.dumps([time.time(), "start", name, kind, os.environ["CUDA_VISIBLE_DEVICES"]]) + "\\n")
time.sleep(float(seconds))
count = len(begun.read_text()) if begun.exists() else 0
if kind == "run" and deaths.isdigit() and count < int(deaths):
    begun.write_text("x" * (count + 1))
    os.kill(os.getpid(), signal.SIGKILL)
if deaths == "fails":
    print("there is no such task")
    sys.exit(2)
if kind == "estimate":
    figures = {"gpu_memory": float(gib), "load_seconds": 1, "left": 10, "seconds": float(seconds)}
    Path(json.loads(words["estimate_out"])).write_text(json.dumps([figures]))
with open("events", "a") as events:
    events.write(json.dumps([time.time(), "end", name, kind, os.environ["CUDA_VISIBLE_DEVICES"]]) + "\\n")
"""


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("medimg_eval.api.fleet.LOOK_S", 0.01)
    Path("program.py").write_text(PROGRAM)

    def run(jobs, devices, most=16):
        made = [Job(name, [f"{name}:{gib}:{seconds}:{deaths}"]) for name, gib, seconds, deaths in jobs]
        Fleet(devices, tmp_path / "logs", (sys.executable, "-S", "program.py"), most).run(made)

    return run


def events():
    return sorted(json.loads(line) for line in Path("events").read_text().splitlines())


def test_runs_share_a_gpu_as_far_as_their_memory_fits_and_estimates_have_it_alone(fleet):
    sizes = {"a": 12, "b": 8, "c": 4, "d": 30, "e": 0}
    fleet([(name, gib, 0.25, 0) for name, gib in sizes.items()], {"0": 24.0, "5": 16.0})
    at_work = {"0": [], "5": []}
    finished = []
    for _, what, name, kind, device in events():
        if what == "start":
            at_work[device].append((name, kind))
        else:
            at_work[device].remove((name, kind))
            finished.append((name, kind))
        for device_name, gib in {"0": 24.0, "5": 16.0}.items():
            there = at_work[device_name]
            if len(there) > 1:
                assert all(kind == "run" for _, kind in there)
                assert sum(1.1 * sizes[name] + 0.6 if sizes[name] else 0 for name, _ in there) <= gib
    assert sorted(finished) == sorted((name, kind) for name in sizes for kind in ("estimate", "run"))


def test_what_dies_is_started_again_alone_and_what_fails_is_not(fleet):
    with pytest.raises(UserError) as told:
        fleet(
            [("dies", 4, 0.02, 2), ("sound", 4, 0.02, 0), ("wrong", 4, 0.02, "fails"), ("always", 1, 0, 9)], {"0": 24.0}
        )
    assert "2 of 4 runs failed" in str(told.value)
    assert "wrong: ended with exit code 2; its last words in" in str(told.value)
    assert "there is no such task" in str(told.value)
    assert "always: was killed by signal 9" in str(told.value)
    starts = [(name, kind) for _, what, name, kind, _ in events() if what == "start"]
    assert starts.count(("dies", "run")) == starts.count(("always", "run")) == 3
    assert starts.count(("wrong", "estimate")) == 1
    assert ("dies", "run") in [(name, kind) for _, what, name, kind, _ in events() if what == "end"]


def test_no_more_runs_than_allowed_and_none_is_left_when_the_fleet_ends(fleet, monkeypatch):
    place = Fleet._device_for

    def stop(self, job):
        if Path("events").exists() and len(events()) >= 2:
            raise KeyboardInterrupt
        return place(self, job)

    monkeypatch.setattr(Fleet, "_device_for", stop)
    monkeypatch.setattr("medimg_eval.api.fleet.GRACE_S", 0.5)
    with pytest.raises(KeyboardInterrupt):
        fleet([("a", 1, 30, 0), ("b", 1, 30, 0), ("c", 1, 30, 0)], {"0": 24.0, "1": 24.0})
    assert [what for _, what, *_ in events()] == ["start", "start"]


def test_a_suite_is_a_run_for_each_of_its_tasks():
    words = ["test", "suite=s", "model=m", "gpus=2", "gpu_memory=8", "tasks.b.metrics=[dice]", "seed=1"]
    first, second = jobs_of(words, ["a", "b"])
    assert first.words == ["test", "suite=s", "model=m", "seed=1", "~tasks.b"]
    assert second.words == ["test", "suite=s", "model=m", "tasks.b.metrics=[dice]", "seed=1", "~tasks.a"]
    (alone,) = jobs_of(["test", "task=a", "+gpus=2"], [])
    assert (alone.name, alone.words) == ("task=a", ["test", "task=a"])


def test_gpus_are_those_that_are_named_or_shown(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert named_devices(2, 24) == {"0": 24.0, "1": 24.0}
    assert named_devices([3, 5], 24) == {"3": 24.0, "5": 24.0}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7,6")
    assert named_devices(2, 8) == {"4": 8.0, "GPU-7": 8.0}
    with pytest.raises(UsageError, match="shows 3"):
        named_devices(4, 8)
    for wrong in (0, True, "all", []):
        with pytest.raises(UsageError, match="how many"):
            named_devices(wrong)
    monkeypatch.setattr("medimg_eval.api.fleet._memory_by_driver", lambda: {"0": 80.0})
    with pytest.raises(UserError, match="knows no GPU 4"):
        named_devices(1)


@pytest.mark.slow
def test_an_estimate_says_what_is_left_and_its_cases_are_not_asked_again(tmp_path, monkeypatch, capsys):
    from agent_tools import Scripted
    from asking import Quiz

    from medimg_eval.configs.overrides import composed, plain
    from medimg_eval.evaluation.model_spec import ModelSpec
    from medimg_eval.question import Turn, Usage
    from medimg_eval.tasks import QuestionTask

    class Priced(Scripted):
        def generate(self, prompts, decoding):
            time.sleep(0.02 * len(prompts))
            usage = Usage(input=100, output=10, cost=0.5)
            return [Turn(text, usage=usage) for text in super().generate(prompts, decoding)]

    monkeypatch.chdir(tmp_path)
    task = QuestionTask(name="quiz", layout=Quiz(number=40), metrics=["accuracy"])
    model = Priced(["A"])
    spec = ModelSpec("priced", Priced, {"script": ["A"]}, lambda: model)
    wanted = plain(composed("test", ["model=chance", "score_workers=0", "num_workers=0"]))
    (told,) = run_estimates(wanted | {"estimate_out": "figures.json"}, task=task, model=spec)
    assert (told.trials, told.left, told.read, told.written, told.cost) == (40, 35, 100.0, 10.0, 0.5)
    assert told.seconds >= 0.02
    assert told.memory > 0.05
    assert json.loads(Path("figures.json").read_text())[0]["left"] == 35
    numbers = estimate_sheet([told]).frame().iloc[0]
    assert (numbers["read"], numbers["cost"]) == (3500.0, 17.5)
    assert numbers["hours"] == pytest.approx((told.load_seconds + 35 * told.seconds) / 3600)
    (again,) = run_estimates(wanted, task=task, model=spec)
    assert (again.left, again.seconds) == (35, told.seconds)
    assert sum(model.sizes) == 5
    assert estimate_sheet([told, again]).frame()["left"].sum() == 70


@pytest.mark.long
def test_a_suite_runs_on_two_gpus_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["test", "-m", "task=phantom_reports", "model=normal_report,most_frequent_report", "limit=10"]
    assert start([*words, "gpus=2", "gpu_memory=8"]) == 0
    runs = [me.load_run(path.parent) for path in Path("runs").glob("*/*/manifest.json")]
    assert {(run.manifest["status"], len(run.predictions)) for run in runs} == {("finished", 10)}
    assert len(runs) == 2
