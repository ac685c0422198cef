"""Samples of question benchmarks: files in the authors' layouts, answers to them, and what those are worth."""

import base64
import io
import json
import os
import pickle
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from medimg_eval.case import Trial
from medimg_eval.evaluation.identity import data_fingerprint
from medimg_eval.evaluation.plan import Plan, judged
from medimg_eval.evaluation.run import Run, now
from medimg_eval.evaluation.score import score
from medimg_eval.evaluation.settings import Settings
from medimg_eval.evaluation.summarise import summarise
from medimg_eval.evidence import Evidence
from medimg_eval.instantiate import build_task
from medimg_eval.metrics import get
from medimg_eval.results.runs.loading import SCHEMA
from medimg_eval.store import digest
from tests.helpers.config_files import composed_config


@dataclass
class Sample:
    """The fixture of one benchmark.

    Attributes:
        write: writes the files below a root, as the authors lay them out.
        cases: the ids of the test cases, in order.
        replies: what is answered to some cases; the others are answered with nothing.
        scores: metric -> what these answers are worth, worked out by hand, with the task's metrics (and others).
        authors: the same under `extraction=authors`; {} where it does not differ or is not known.
        text: what the first case's prompt says, word for word (without images).
        images: how many images the first case shows.
        perfect: the reply that is right, where it is not the plain one that `right_reply` writes.
        best: metric -> its value when all replies are perfect, where that is not the metric's own best.
        settings: keys of the task config that are changed for the fixture, such as `expected`.
    """

    write: Callable[[Path], None]
    cases: list[str]
    replies: Mapping[str, str]
    scores: Mapping[str, float]
    authors: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
    images: int = 1
    perfect: Callable[[Any], str] | None = None
    best: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


SAMPLES: dict[str, Sample] = {}
REPORTS: dict[str, Sample] = {}
"""Those of tasks whose answers are reports."""


AGENTS: dict[str, Sample] = {}
"""Those of agents, whose sessions are tested beside their replies."""


def sample(name: str, **fields: Any) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Registers the function below it, which writes the fixture of a benchmark."""

    def register(write: Callable[[Path], None]) -> Callable[[Path], None]:
        assert name not in SAMPLES, name
        SAMPLES[name] = Sample(write, **fields)
        return write

    return register


def reports(name: str, **fields: Any) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """The same of a task whose answers are reports."""

    def register(write: Callable[[Path], None]) -> Callable[[Path], None]:
        assert name not in REPORTS, name
        REPORTS[name] = Sample(write, **fields)
        return write

    return register


def agents(name: str, **fields: Any) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """The same of a task that is answered in several steps, or by several models."""

    def register(write: Callable[[Path], None]) -> Callable[[Path], None]:
        assert name not in AGENTS, name
        AGENTS[name] = Sample(write, **fields)
        return write

    return register


def png(seed: int, size: int = 32) -> bytes:
    """A small picture, another one for each seed."""
    pixels = np.random.default_rng(seed).integers(0, 255, (4, 4, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(np.kron(pixels, np.ones((size // 4, size // 4, 1), np.uint8))).save(stream, "PNG")
    return stream.getvalue()


def picture(path: Path, seed: int = 0, size: int = 32) -> None:
    """Writes such a picture; its folder comes with it. The ending decides whether it is PNG or JPEG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".png":
        path.write_bytes(png(seed, size))
    else:
        Image.open(io.BytesIO(png(seed, size))).save(path)


def base64_png(seed: int, size: int = 32) -> str:
    """Such a picture in base64."""
    return base64.b64encode(png(seed, size)).decode()


def write_json(path: Path, content: Any) -> None:
    """Writes JSON; the folder comes with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def write_lines(path: Path, records: list[Any]) -> None:
    """Writes JSON lines; the folder comes with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), encoding="utf-8")


def write_parquet(path: Path, records: list[dict[str, Any]]) -> None:
    """Writes records; pictures are {"bytes": ..., "path": ...}, as the hub stores them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(records), path)


def stored_picture(seed: int, name: str | None = None) -> dict[str, Any]:
    """A picture in a Parquet table, as the hub stores it."""
    return {"bytes": png(seed), "path": name}


def config_of(name: str, root: Path, **changes: Any) -> dict[str, Any]:
    """The resolved config of a task, with its data below a root."""
    found = deepcopy(composed(name))
    found["layout"]["root"] = str(root)
    return found | {"expected": {}} | changes


@cache
def composed(name: str) -> dict[str, Any]:
    """The resolved config of a task, not to be changed; Hydra makes it once for all processes of the tests."""
    kept = Path(os.environ["MEDIMG_EVAL_CACHE"], "composed", f"{name}.pickle")
    if not kept.exists():
        config = composed_config(f"task/{name}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        begun = kept.with_suffix(f".{os.getpid()}")
        begun.write_bytes(pickle.dumps(config["task"]))
        begun.replace(kept)
    found: dict[str, Any] = pickle.loads(kept.read_bytes())
    return found


def task_of(name: str, root: Path, **changes: Any) -> Any:
    """The task of a benchmark on its sample, which is written below a root."""
    one = SAMPLES.get(name) or AGENTS.get(name) or REPORTS[name]
    root.mkdir(parents=True, exist_ok=True)
    one.write(root)
    return build_task(config_of(name, root, **{**one.settings, **changes}))


def answered(task: Any, replies: Mapping[str, str], folder: Path, judged_as: Mapping[str, Any] | None = None) -> Path:
    """A finished run in which a model gave these replies, and none to the other cases but an empty one.

    Args:
        task: the benchmark.
        replies: by case.
        folder: where the run goes.
        judged_as: by case, name of a judge's question -> verdict.
    """
    cases = task.cases("test")
    evidence = Evidence({"judge": "judge"} if judged_as else {})
    with Run(folder, digest([task.name, dict(replies)])) as run:
        run.note(
            schema=SCHEMA, run=run.run, command="test", task=task.name, model="Known", settings="x", status="running",
            data_fingerprint=data_fingerprint(cases), seed=0, started=now(), ended=None, resumed=[], failed_cases=0,
            cases=len(cases), predicted=0, judge={"id": "judge"},
            resampled="patients" if any(case.patient is not None for case in cases) else "cases", **judged(task),
        )  # fmt: skip
        run.append_predictions(
            {Trial(case.id): task.accept(case, replies.get(case.id, "")).as_record() for case in cases if case.question}
        )
        context = task.context(cases, run.predictions(), evidence)
        if judged_as:
            context = replace(context, shared=replace(context.shared, verdicts=judged_as), notes=())
        plan = Plan(task, Settings(score_workers=0), run, cases, cases, [Trial(case.id) for case in cases])
        summarise(plan, score(plan, context), context)
    return folder


def worth(folder: Path) -> dict[str, float]:
    """Metric -> value, of a finished run."""
    rows = json.loads((folder / "summary.json").read_text())["metrics"]
    return {row["metric"]: np.nan if row["mean"] is None else row["mean"] for row in rows}


def right_reply(case: Any) -> str:
    """What says the right answer plainly."""
    value, question = case.target.read().value, case.question
    first = value[0] if isinstance(value, list | tuple) and question.kind in ("open", "report") else value
    if question.kind == "choices":
        return ", ".join(value)
    if question.kind == "box":
        return "({:g},{:g}),({:g},{:g})".format(*value)
    if question.kind == "point":
        return f"({(value[0] + value[2]) / 2:g}, {(value[1] + value[3]) / 2:g})"
    if question.kind == "regions":
        return "; ".join(f"Region ID: {place}; Type: {name}" for place, name in value.items())
    if question.kind == "grades":
        return json.dumps(value)
    return str(first)


def best_of(name: str) -> float:
    """What a metric or summary is worth when all is right."""
    return get(name).best
