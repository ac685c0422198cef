"""Models in an environment of their own: answers, every fault of a worker, and its end."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from medimg_eval.case import Image, Prompt
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.models import CommandModel
from medimg_eval.question import Decoding, Message

WORKER = str(Path(__file__).with_name("command_worker.py"))
IMAGE = Image(np.full((3, 4, 4), 9, np.uint8), np.eye(4), units="pixel")


@pytest.fixture
def started():
    made = []

    def start(fault="", **settings):
        settings = {"startup_s": 20, "reply_s": 20, "grace_s": 0.2} | settings
        made.append(CommandModel([sys.executable, "-S", WORKER, fault], **settings))
        return made[-1]

    yield start
    for model in made:
        model.close()


def prompts(*words):
    return [Prompt(f"c{n}", (IMAGE,), messages=(Message("user", (0, text)),)) for n, text in enumerate(words)]


def test_a_worker_answers_in_order_and_tells_what_it_knows(started):
    model = started()
    model.check_ready()
    assert (model.preferred_batch, model.usage()["name"]) == (4, "tester")
    replies = model.generate(prompts("one", "two"), Decoding())
    assert replies == ["ONE", "TWO"]
    assert (replies[0].thought, replies[0].finish, replies[0].usage.output) == ("seen", "stop", 3)
    assert list(model._worker.scratch.iterdir()) == []  # files of a batch are gone with it


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raises", "ValueError: cannot"),
        ("refuses", "too small"),
        ("dies", "was killed by signal 9"),
        ("exits", "ended with exit code 3; its last words: .*the reason"),
        ("huge", "a line of more than"),
        ("prints", "between its messages|no answer"),
    ],
)
def test_the_item_at_fault_fails_alone(started, fault, message):
    model, asked = started(fault), prompts("one", "bad", "three")
    with pytest.raises(CaseError, match=message):
        model.generate(asked, Decoding())
    assert [model.generate([asked[n]], Decoding()) for n in (0, 2)] == [["ONE"], ["THREE"]]
    with pytest.raises(CaseError, match=message):
        model.generate([asked[1]], Decoding())
    assert model.generate(prompts("four"), Decoding()) == ["FOUR"]


def test_a_worker_that_hangs_is_killed_and_the_others_are_answered(started):
    model, asked = started("hangs", reply_s=0.7), prompts("one", "bad")
    with pytest.raises(CaseError, match=r"silent for 0\.7 s"):
        model.generate(asked, Decoding())
    assert model.generate(asked[:1], Decoding()) == ["ONE"]


def test_what_does_not_fit_into_memory_is_asked_in_smaller_batches(started):
    model = started("memory")
    assert model.generate(prompts("one", "two", "three"), Decoding()) == ["ONE", "TWO", "THREE"]


def test_masks_come_as_files_of_the_folder_that_both_share(started):
    model = CommandModel([sys.executable, WORKER, "npy"], startup_s=20)
    try:
        (mask,) = model.segment([Prompt("c", (IMAGE,), labels={1: "all"})])
    finally:
        model.close()
    assert mask.tolist() == np.ones((4, 4)).tolist()


def test_a_file_elsewhere_is_refused(started):
    with pytest.raises(CaseError, match="no file in the folder it was given"):
        started("escapes").segment([Prompt("c", (IMAGE,), labels={1: "all"})])


def test_a_worker_that_does_not_come_up_is_told_with_its_last_words(started):
    with pytest.raises(UserError, match="exit code 1; its last words: .*no weights"):
        started("no start").check_ready()
    with pytest.raises(UserError, match="silent for"):
        started("slow start", startup_s=0.5).check_ready()
    with pytest.raises(UserError, match="cannot be started"):
        CommandModel(["no-such-program"]).check_ready()
    with pytest.raises(UsageError, match="is a list"):
        CommandModel("python worker.py")


def test_what_a_worker_started_ends_with_it(started, tmp_path, monkeypatch):
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    monkeypatch.setenv("SECRET", "x")
    model = started("child", environment=["PID_FILE"])
    model.check_ready()
    child = int((tmp_path / "pid").read_text())
    model.close()
    for _ in range(100):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.02)
    pytest.fail("the child lives on")


def test_a_program_that_is_killed_before_it_is_ready_is_started_again(tmp_path, caplog):
    """Killed from outside, as for memory: that says nothing of the program. What ends by itself is not tried again."""
    died = tmp_path / "died"
    lines = ["import os, signal, sys", f"died = {str(died)!r}", "if not os.path.exists(died):", "    open(died, 'w')"]
    lines += [
        "    os.kill(os.getpid(), signal.SIGKILL)",
        f"os.execv(sys.executable, [sys.executable, '-S', {WORKER!r}])",
    ]
    model = CommandModel([sys.executable, "-IS", "-c", "\n".join(lines)], startup_s=60, reply_s=60, grace_s=0.2)
    try:
        model.check_ready()
    finally:
        model.close()
    assert died.exists()
    assert "the worker is started again: model.command: the worker" in caplog.text
    died.unlink()
    never = CommandModel(model.command, startup_s=60, restarts=0)
    with pytest.raises(UserError, match=r"killed by signal 9"):
        never.check_ready()
