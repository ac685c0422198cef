"""Cases whose reading goes wrong as processes do; apart from the tests, so that other processes can import it."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from asking import Quiz

from medimg_eval.tasks import QuestionTask, SegmentationTask


def wait_for(condition):
    """Until something is so; a test that waits too long is ended by its own alarm."""
    while not condition():
        time.sleep(0.005)


def died(pid):
    """Whether a process is gone, and its parent knows."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def read_or_wait(case, folder, victim, deadly):
    """Notes who reads the victim, and waits at the first time to be killed; a deadly case ends its process."""
    if case.id == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    place = Path(folder, "reader")
    if case.id == victim and not place.exists():
        place.with_suffix(".part").write_text(str(os.getpid()))
        place.with_suffix(".part").rename(place)
        wait_for(lambda: False)


def kill_the_reader(folder):
    """Waits until the victim is being read, kills its reader, and waits until that is known."""
    place = Path(folder, "reader")
    wait_for(place.exists)
    if not died(pid := int(place.read_text())):
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: died(pid))


@dataclass(frozen=True, kw_only=True)
class Fragile:
    """Of a task: `victim` is read as `read_or_wait` says."""

    folder: str
    victim: str = ""
    deadly: str = ""

    def read_images(self, case):
        read_or_wait(case, self.folder, self.victim, self.deadly)
        return super().read_images(case)


@dataclass(frozen=True, kw_only=True)
class FragileVolumes(Fragile, SegmentationTask):
    """Segmentations that are read so."""


@dataclass(frozen=True, kw_only=True)
class FragileQuestions(Fragile, QuestionTask):
    """Questions that are read so."""


def quiz(number, **settings):
    """So many choices among four options."""
    return FragileQuestions(
        name="quiz", layout=Quiz(number=number), metrics=["accuracy"], splits={"test": "test"}, **settings
    )


def whose(state, item):
    """Which process is at work, and what it was given."""
    return os.getpid(), state, item


def sign(folder):
    """Leaves a file that is called as this process is."""
    Path(folder, str(os.getpid())).touch()


def fragile(state, item):
    """An item, unless it is in `state`: those end their process."""
    if item in state:
        os._exit(9)
    return item
