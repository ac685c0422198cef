"""Small runs with children of each kind; apart from the program, so that other processes can import it."""

from __future__ import annotations

import os
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medimg_eval.case import Case, Mask
from medimg_eval.data.layouts import Volumes
from medimg_eval.evaluation.model_spec import ModelSpec
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evaluation.shards import Shard
from medimg_eval.image import Image
from medimg_eval.imaging import write_mask
from medimg_eval.models import CommandModel, VisionLanguageModel
from medimg_eval.question import Key, Question
from medimg_eval.tasks import QuestionTask, ReportTask, SegmentationTask
from tests.conftest import AFFINE, LABELS, ellipsoid
from tests.helpers.answering import Thresholds
from tests.helpers.asking import Known, Painted
from tests.helpers.running import evaluate

PROGRAM = str(Path(__file__).with_name("program.py"))
PATIENT = {"startup_s": 240, "reply_s": 240, "grace_s": 1, "restarts": 10, "environment": ["MEDIMG_EVAL_STORM"]}
SHARDS = 3


@dataclass(frozen=True)
class SlowPicture(Painted):
    """A picture that takes a while to read."""

    def read(self) -> Image:
        time.sleep(0.02)
        return super().read()


@dataclass
class Pictures:
    """Questions about pictures, or reports that are to be written of them."""

    number: int
    kind: str = "choice"
    slow: bool = False

    def cases(self, split: str) -> list[Case]:
        return [self._case(n) for n in range(self.number)] if split == "test" else []

    def _case(self, n: int) -> Case:
        picture = (SlowPicture if self.slow else Painted)(10 + n)
        if self.kind == "report":
            return Case(f"q{n}", (picture,), Known(Key(f"Nodule {n}.")), question=Question(f"Report {n}.", "report"))
        question = Question(f"Which is item {n}?", "choice", {letter: f"{letter.lower()}{n}" for letter in "ABCD"})
        return Case(f"q{n}", (picture,), Known(Key("ABCD"[n % 4])), question=question)


class Slow(VisionLanguageModel):
    """Takes its time; what it says follows from the prompt and the picture."""

    file_arguments = ()
    preferred_batch = 2

    def __init__(self, seconds: float = 0.01) -> None:
        self.seconds = seconds

    def generate(self, prompts: Any, decoding: Any) -> list[str]:
        time.sleep(self.seconds)
        return [f"The answer is {'ABCD'[self._number(prompt) % 4]}." for prompt in prompts]

    def _number(self, prompt: Any) -> int:
        pixels = sum(int(np.asarray(image.array).sum()) for image in prompt.images)
        return zlib.crc32(f"{prompt.text}{pixels}".encode())


class Levels(Thresholds):
    """Labels by grey levels, some of them wrong; scored after it by processes, since it needs no torch."""

    uses_torch = False


@dataclass(frozen=True, kw_only=True)
class SlowlyScored(SegmentationTask):
    """Masks that take a while to judge."""

    def score(self, *args: Any, **more: Any) -> Any:
        time.sleep(0.05)
        return super().score(*args, **more)


def quiz(number: int, *, slow: bool = False) -> QuestionTask:
    layout = Pictures(number, slow=slow)
    return QuestionTask(name="quiz", layout=layout, splits={"test": "test"}, metrics=["accuracy"])


def volumes(folder: Path, number: int = 10) -> SlowlyScored:
    """Masks of ellipsoids, whose files are written by whoever comes first."""
    root = folder / "volumes"
    if not root.exists():
        partial = folder / f".{os.getpid()}"
        for name in ("images", "labels"):
            (partial / name).mkdir(parents=True)
        for n in range(number):
            labels = ellipsoid(n)
            write_mask(partial / "labels" / f"case{n}.nii.gz", Mask(labels, AFFINE))
            write_mask(partial / "images" / f"case{n}.nii.gz", Mask(labels * 80 + n, AFFINE))
        partial.rename(root)
    layout = Volumes(root=str(root), image="images/{case}.nii.gz", mask="labels/{case}.nii.gz", modality="MR")
    return SlowlyScored(
        name="ellipsoids", layout=layout, labels=LABELS, metrics=["dice", "hd95"], splits={"test": "test"}
    )


def of(kind: type, name: str, **config: Any) -> ModelSpec:
    return ModelSpec(name, kind, config, load=lambda: kind(**config))


def _settings(folder: Path, **more: Any) -> Settings:
    return Settings(
        runs=folder, run=folder / "run", trainer=lambda **_: None, config={}, num_workers=0, score_workers=0, **more
    )


def read_pictures(folder: Path, part: int, urls: list[str]) -> None:
    evaluate(quiz(24, slow=True), of(Slow, "M"), replace(_settings(folder), num_workers=2))


def score_answers(folder: Path, part: int, urls: list[str]) -> None:
    model = of(Levels, "M", levels=[70, 165])
    evaluate(volumes(folder.parent), model, replace(_settings(folder), score_workers=2))


def ask_program(folder: Path, part: int, urls: list[str]) -> None:
    evaluate(quiz(30), of(CommandModel, "M", command=[sys.executable, "-IS", PROGRAM], **PATIENT), _settings(folder))


def ask_judge(folder: Path, part: int, urls: list[str]) -> None:
    reports = ReportTask(
        name="reports", layout=Pictures(12, "report"), splits={"test": "test"}, metrics=["green_prompt"],
        template={"user": "{question}"},
    )  # fmt: skip
    judge = of(CommandModel, "J", command=[sys.executable, "-IS", PROGRAM, "judge"], **PATIENT)
    evaluate(reports, of(Slow, "M", seconds=0.0), _settings(folder, judge=judge))


def ask_servers(folder: Path, part: int, urls: list[str]) -> None:
    from medimg_eval.models import OpenAICompatible

    config = {"model": "tiny", "base_url": urls[0], "further_urls": urls[1:], "cache": str(folder / "replies")}
    config |= {"timeout_s": 60, "deadline_s": 300, "retries": 60, "backoff_s": 0.05, "api_key_env": None}
    evaluate(quiz(40), of(OpenAICompatible, "M", **config, concurrency=6), _settings(folder))


def answer_shard(folder: Path, part: int, urls: list[str]) -> None:
    evaluate(quiz(36), of(Slow, "M"), _settings(folder, shard=Shard(part + 1, SHARDS)))


def answer_all(folder: Path, part: int, urls: list[str]) -> None:
    evaluate(quiz(36), of(Slow, "M"), _settings(folder))


class Scenario(NamedTuple):
    """A run, and which of its processes a storm kills.

    Attributes:
        work: brings a part of the run to its end, in a process of its own.
        victims: words of their command line; "" for the processes that `work` is done in.
        parts: such processes.
        servers: that it asks, which are started again when they are killed.
    """

    work: Callable[[Path, int, list[str]], None]
    victims: str = ""
    parts: int = 1
    servers: int = 0


SCENARIOS = {
    "readers": Scenario(read_pictures, "worker.py"),
    "scorers": Scenario(score_answers, "worker.py"),
    "judges": Scenario(ask_judge, "program.py"),
    "command workers": Scenario(ask_program, "program.py"),
    "servers": Scenario(ask_servers, "chat_server.py", servers=3),
    "shards": Scenario(answer_shard, parts=SHARDS),
    "runs": Scenario(answer_all),
}
