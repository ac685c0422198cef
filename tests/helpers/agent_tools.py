"""Tools of tests, and a model that follows a script."""

import os
import signal
import time
from pathlib import Path
from typing import Literal

import numpy as np

from medimg_eval.case import Image
from medimg_eval.models import VisionLanguageModel
from medimg_eval.question import Turn, Usage
from medimg_eval.tools.journal import StepJournal


def measure(image, structure: Literal["liver", "moon"], scale: float = 1.0) -> dict:
    """Measures a structure.

    Args:
        structure: which.
        scale: of the result.
    """
    if structure == "moon":
        raise ValueError("nothing to be seen")
    return {"mean": float(image.array.mean()) * scale}


def crop(image, x: int):
    """Cuts a part out."""
    return "a part", Image(image.array[:, :x, :x], np.eye(4), units="pixel")


def sleep(seconds: float) -> str:
    """Waits."""
    time.sleep(seconds)
    return "awake"


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


class Scripted(VisionLanguageModel):
    """Says by turn what a script says, as text; kills its process before turn `kill_at`, once.

    Args:
        script: a text for each turn; the last one is said for ever.
        tokens: written in each turn; None where it does not report them.
        kill_at: counts turns over all cases and starts.
        log: file in which turns are counted.
    """

    file_arguments = ()
    pace_arguments = ("kill_at", "log")

    def __init__(self, script, tokens=None, kill_at=0, log=None, batch=2):
        self.script, self.tokens, self.kill_at, self.log = list(script), tokens, kill_at, log
        self.preferred_batch, self.sizes, self.prompts = batch, [], []

    def generate(self, prompts, decoding):
        self.sizes.append(len(prompts))
        self.prompts += prompts
        if self.log:
            with Path(self.log).open("a") as stream:
                stream.write("x")
            if Path(self.log).stat().st_size == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        turns = [sum(message.role == "assistant" for message in prompt.messages) for prompt in prompts]
        said = [self.script[min(turn, len(self.script) - 1)] for turn in turns]
        return [Turn(text, finish="stop", usage=Usage(output=self.tokens)) for text in said]


def ask(task, model, journal=None):
    prompts = [task.prompt(case, tuple(image.read() for image in case.images)) for case in task.cases("test")]
    return task.ask_recorded(model, prompts, journal or StepJournal())


def timeless(value):
    """A record without the seconds that its steps took."""
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if key != "seconds"}
    return [timeless(one) for one in value] if isinstance(value, list | tuple) else value
