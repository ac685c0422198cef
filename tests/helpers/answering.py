"""What the tests put in a user's place; apart from them, so that other processes can import it."""

import os
import time
from pathlib import Path

import numpy as np

from medimg_eval.evaluation.run import Run
from medimg_eval.models import Model, Segmenter
from medimg_eval.tasks import SegmentationTask


class Thresholds(Segmenter):
    """Labels by fixed grey levels; writes every case it is asked about into a file.

    From the case `waits_at` on it has no answer until the file `gate` is there: its run can be ended in the middle.
    """

    file_arguments = ()

    def __init__(self, log=None, fails_on=(), levels=(50, 150), waits_at=None, gate=None):
        self.log, self.fails_on, self.levels = log, tuple(fails_on), tuple(levels)
        self.waits_at, self.gate = waits_at, gate

    def segment(self, prompts):
        for prompt in prompts:
            if self.log:
                with Path(self.log).open("a") as stream:
                    stream.write(prompt.case_id + "\n")
            while self.waits_at is not None and prompt.case_id >= self.waits_at and not Path(self.gate).exists():
                time.sleep(0.01)
            if prompt.case_id in self.fails_on:
                raise RuntimeError(f"no answer to {prompt.case_id}")
        return [np.digitize(prompt.image.array[0], self.levels) for prompt in prompts]


class Mute(Model):
    """A model without any capability."""


class Deadly(SegmentationTask):
    """Its case01 takes the process that scores it with it."""

    def score(self, case, prediction, metrics=None):
        if case.id == "case01":
            os._exit(9)
        return super().score(case, prediction, metrics)


def hold(folder, rank, ready, done):
    """Keeps a run folder until it is told to let go."""
    with Run(folder, "abc", rank=rank):
        ready.set()
        done.wait(30)
