"""Questions without files, and models that answer them."""

import hashlib
import json
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from medimg_eval.case import Case, Geometry, Image
from medimg_eval.models import Chooser, VisionLanguageModel
from medimg_eval.question import Key, Question


@dataclass(frozen=True)
class Painted:
    """A picture of one value."""

    value: int
    files: tuple = ()

    def read(self):
        return Image(np.full((3, 8, 8), self.value, np.uint8), np.eye(4), units="pixel")

    def geometry(self):
        return Geometry((8, 8), np.eye(4), "pixel")


@dataclass(frozen=True)
class Known:
    """An entry of the answer key."""

    key: Key
    files: tuple = ()

    def read(self):
        return self.key

    def geometry(self):
        return Geometry((8, 8), np.eye(4), "pixel")


@dataclass
class Quiz:
    """A layout of questions given as they are.

    Args:
        items: of each question `text`, `kind`, `options`, `right`, `images`, `attributes`, `fields`, `split`.
        number: without items, so many choices among four options; the right one is A, B, C, D in turn.
    """

    items: list = field(default_factory=list)
    number: int = 0

    def cases(self, split):
        items = self.items or [
            {
                "text": f"Which of these is item {n}?",
                "options": {c: f"{c.lower()}{n}" for c in "ABCD"},
                "right": "ABCD"[n % 4],
            }
            for n in range(self.number)
        ]
        return [_case(n, one) for n, one in enumerate(items) if one.get("split", "test") == split]


def _case(number, one):
    question = Question(one["text"], one.get("kind", "choice"), one.get("options", {}), one.get("fields", {}))
    images = tuple(Painted(value) for value in one.get("images", [10 + number % 200]))
    key = Known(Key(one["right"], one.get("more", {})))
    return Case(one.get("id", f"q{number}"), images, key, one.get("patient"), one.get("attributes", {}), question)


class Says(VisionLanguageModel):
    """Says by case what it is told to; writes every case it is asked about into a file."""

    file_arguments = ()

    def __init__(self, replies=None, default="A", log=None, fails_on=(), most=None, batch=1, sizes=None):
        self.replies, self.default, self.log, self.fails_on = replies or {}, default, log, tuple(fails_on)
        self.most, self.preferred_batch, self.sizes = most, batch, [] if sizes is None else sizes
        self.prompts = []

    def generate(self, prompts, decoding):
        self.sizes.append(len(prompts))
        if self.most is not None and len(prompts) > self.most:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        for prompt in prompts:
            if self.log:
                with Path(self.log).open("a") as stream:
                    stream.write(prompt.case_id + "\n")
            if prompt.case_id in self.fails_on:
                raise RuntimeError(f"no answer to {prompt.case_id}")
        self.prompts += prompts
        return [self._reply(prompt) for prompt in prompts]

    def _reply(self, prompt):
        said = self.replies.get(prompt.case_id, self.default)
        if isinstance(said, str):
            return said
        return said[sum(message.role == "assistant" for message in prompt.messages)]


class Prefers(Chooser):
    """Prefers the option whose text is longest."""

    def choose(self, prompts):
        return [{letter: float(len(text)) for letter, text in prompt.options.items()} for prompt in prompts]


class Gibberish(VisionLanguageModel):
    """Writes words that mean nothing, the same ones for the same prompt."""

    def generate(self, prompts, decoding):
        return [hashlib.sha256(json.dumps(prompt.text).encode()).hexdigest()[:24] for prompt in prompts]


class Killed(VisionLanguageModel):
    """Answers A; at the so-manieth question, its process is killed, the first time it comes to that."""

    file_arguments = ()

    def __init__(self, log, at, batch=1):
        self.log, self.at, self.preferred_batch = Path(log), at, batch

    def generate(self, prompts, decoding):
        with self.log.open("a") as stream:
            stream.writelines(prompt.case_id + "\n" for prompt in prompts)
        if len(self.log.read_text().split()) >= self.at and not self.log.with_suffix(".killed").exists():
            self.log.with_suffix(".killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return ["The answer is A." for _ in prompts]
