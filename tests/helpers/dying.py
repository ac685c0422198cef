"""A task whose scoring goes wrong in every way a process can; apart from the tests, so that workers can import it."""

import os
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from medimg_eval.tasks import SegmentationTask


def leave():
    os._exit(9)


def be_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def run_out_of_memory():
    raise MemoryError("no room for 1 TiB")


def never_end():
    time.sleep(600)


WAYS = {function.__name__: function for function in (leave, be_killed, run_out_of_memory, never_end)}


@dataclass(frozen=True, kw_only=True)
class Dying(SegmentationTask):
    """Ends as `ways` says of a case; a victim's process only the first time; logs what it judges in a folder."""

    ways: Mapping[str, str]
    victims: Collection[str] = ()
    folder: str

    def score(self, case, prediction, metrics=None):
        log = Path(self.folder, "judged")
        before = log.read_text().split() if log.exists() else []
        with log.open("a") as stream:
            stream.write(f"{case.id}\n")
        if case.id in self.ways and not (case.id in self.victims and case.id in before):
            WAYS[self.ways[case.id]]()
        return super().score(case, prediction, metrics)


class Stillborn(SegmentationTask):
    """Cannot be loaded by another process."""

    def __reduce__(self):
        return (leave, ())
