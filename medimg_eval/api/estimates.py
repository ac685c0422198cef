"""What a run will cost before it is started: a few cases are asked, which it then need not ask again."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from medimg_eval.instantiate import build_candidate, with_config
from medimg_eval.results.table import Layout, Line, Sheet, Span
from medimg_eval.system import whole

if TYPE_CHECKING:
    from medimg_eval.evaluation.model_spec import ModelSpec
    from medimg_eval.evaluation.run import Run
    from medimg_eval.evaluation.settings import Settings
    from medimg_eval.tasks import Task

CASES = 5
"""Cases that are asked."""

FILE = "estimate.json"
"""Of a run, that holds what was measured when it was estimated."""

GIB = 1 << 30
DASH = "\N{EN DASH}"


class Estimate(NamedTuple):
    """Cost of a run; NaN for what is not known.

    Attributes:
        task: name.
        model: name.
        trials: questions to the model in the whole run: cases, times repeats and conditions.
        left: those of them that are yet to be asked.
        seconds: for each, after the model was loaded.
        load_seconds: until the model and its first answer were there.
        read: tokens of a question.
        written: tokens of an answer.
        cost: of an answer, in the currency of the prices that were given.
        judge_cost: of the verdicts on an answer.
        memory: most of this process, in GiB.
        gpu_memory: most on a GPU, in GiB; 0 where none was used.
        folder: of the run.
    """

    task: str
    model: str
    trials: int
    left: int
    seconds: float
    load_seconds: float
    read: float
    written: float
    cost: float
    judge_cost: float
    memory: float
    gpu_memory: float
    folder: str

    @property
    def hours(self) -> float:
        """Hours until the run is done."""
        return (self.load_seconds + self.left * self.seconds) / 3600


def run_estimates(
    wanted: Mapping[str, Any],
    overrides: Sequence[str] = (),
    task: Task | None = None,
    model: ModelSpec | None = None,
    judge: ModelSpec | None = None,
) -> list[Estimate]:
    """Asks five cases per task; `test` continues these runs."""
    from medimg_eval.evaluation.plan import refuse_incapable
    from medimg_eval.settings import build_settings, build_tasks, undisturbed

    tasks = build_tasks(wanted) if task is None else [with_config(task)]
    spec = build_candidate(wanted["model"]) if model is None else model
    for task_ in tasks:
        refuse_incapable(task_, spec)
    with undisturbed():
        settings = build_settings(wanted, overrides, judge)
        estimates = [_estimate_task(task, spec, settings) for task in tasks]
    if wanted.get("estimate_out"):
        with whole(Path(wanted["estimate_out"])) as partial:
            partial.write_text(json.dumps([estimate._asdict() for estimate in estimates]), encoding="utf-8")
    return estimates


def estimate_sheet(estimates: Sequence[Estimate]) -> Sheet:
    """Returns the table of predicted costs, with a total of several."""
    rows = [_estimate_numbers(estimate) for estimate in estimates]
    lines = [
        Line([estimate.task, estimate.model], [[Span(_format_number(name, value))] for name, value in row.items()])
        for estimate, row in zip(estimates, rows, strict=True)
    ]
    if len(rows) > 1:
        most = ("memory", "gpu_memory")
        total = {name: (max if name in most else math.fsum)([row[name] for row in rows]) for name in rows[0]}
        lines.append(
            Line(["all", ""], [[Span(_format_number(name, value))] for name, value in total.items()], opens=True)
        )
    note = (
        f"From {CASES} cases of each task, which are asked once: the same command without estimate=true goes on with "
        "them. Later batches may be larger, so that hours are rather less."
    )
    unknown = (
        f"{DASH}: not reported. Cost: of the model, and of the judge where there is one, by the prices that were "
        "given. Memory: most that this process had, and most on one GPU."
    )
    content = Layout.of_block("Estimate", list(_TITLES.values()), lines, [note, unknown], ["Task", "Model"])
    records = [
        {"task": estimate.task, "model": estimate.model, **row} for estimate, row in zip(estimates, rows, strict=True)
    ]
    return Sheet(content, pd.DataFrame(records))


_TITLES = {
    "trials": "Questions",
    "left": "Left",
    "hours": "Hours",
    "read": "Tokens to read",
    "written": "Tokens to write",
    "cost": "Cost",
    "judge_cost": "Judge's cost",
    "memory": "Memory (GiB)",
    "gpu_memory": "GPU memory (GiB)",
}


def _estimate_numbers(one: Estimate) -> dict[str, float]:
    """Printed numbers of an estimate: totals of remaining work."""
    each = {name: getattr(one, name) * one.left for name in ("read", "written", "cost", "judge_cost")}
    figures = {"trials": float(one.trials), "left": float(one.left), "hours": one.hours, **each}
    return figures | {"memory": one.memory, "gpu_memory": one.gpu_memory}


def _format_number(name: str, value: float) -> str:
    if math.isnan(value):
        return DASH
    if name in ("trials", "left", "read", "written"):
        return f"{value:,.0f}"
    return f"{value:,.3f}" if name == "hours" and value < 0.1 else f"{value:,.2f}"


def _estimate_task(task: Task, spec: ModelSpec, settings: Settings) -> Estimate:
    from medimg_eval.evaluation import pipeline

    judge: Callable[[], float] = lambda: _judge_cost(settings.judge.model) if settings.judge is not None else math.nan  # noqa: E731
    began, judged_before = time.perf_counter(), judge()
    _forget_gpu_peak()
    pipeline.test(task, spec, replace(settings, limit=1))
    loaded = time.perf_counter() - began
    run = pipeline.test(task, spec, replace(settings, limit=CASES))
    done, stored_figures = run.predictions(), _read_estimate(run)
    fresh = len(done) - stored_figures.get("asked", 0)
    seconds = _stage_seconds(run) / max(1, min(fresh, CASES - 1))
    if not fresh:  # all of them were asked earlier
        seconds, loaded = stored_figures["seconds"], stored_figures["load_seconds"]
    records = [record for record in done.values() if isinstance(record, Mapping)]
    usages = [usage for record in records for usage in [_reply_usage(record)] if usage]
    trials = len(task.cases("test")) * settings.repeats * (1 + len(settings.conditions))
    spent = (judge() - (0.0 if math.isnan(judged_before) else judged_before)) / max(1, fresh)
    estimate = Estimate(
        task.name,
        spec.name,
        trials,
        max(0, trials - len(done)),
        seconds,
        loaded,
        _mean_usage(usages, "input"),
        _mean_usage(usages, "output"),
        _mean_usage(usages, "cost"),
        spent,
        _peak_memory() / GIB,
        _gpu_peak() / GIB,
        str(run.folder),
    )
    with whole(run.folder / FILE) as partial:
        partial.write_text(json.dumps({**estimate._asdict(), "asked": len(done)}), encoding="utf-8")
    return estimate


def _read_estimate(run: Run) -> dict[str, Any]:
    """Estimate of an earlier start; nothing where there was none."""
    with suppress(OSError, ValueError):
        content: dict[str, Any] = json.loads((run.folder / FILE).read_text(encoding="utf-8"))
        return content
    return {}


def _stage_seconds(run: Run) -> float:
    """Seconds that asking took in the last start."""
    stage = run.manifest.get("stages", {}).get("predict")
    if stage is None or not stage["ended"]:
        return math.nan
    return (datetime.fromisoformat(stage["ended"]) - datetime.fromisoformat(stage["started"])).total_seconds()


def _reply_usage(record: Mapping[str, Any]) -> dict[str, float]:
    """Tokens and cost of a stored reply's turns; unreported ones omitted."""
    usages = [step.get("usage") for step in record.get("trace", ()) if step.get("kind") == "model"]
    usages = usages or [turn.get("usage") for turn in record.get("turns", ())]
    stated = [usage for usage in usages if usage]
    if not stated or len(stated) < len(usages):
        return {}
    names = set.intersection(*(set(usage) for usage in stated))
    return {name: math.fsum(usage[name] for usage in stated) for name in names}


def _mean_usage(usages: Iterable[Mapping[str, float]], name: str) -> float:
    values = [usage[name] for usage in usages if name in usage]
    return math.fsum(values) / len(values) if values else math.nan


def _judge_cost(model: Any) -> float:
    """Cost of a judge so far, summed over a jury."""
    usage = dict(getattr(model, "usage", dict)())
    parts = [usage, *(value for value in usage.values() if isinstance(value, Mapping))]
    costs = [float(part["cost"]) for part in parts if isinstance(part.get("cost"), int | float)]
    return math.fsum(costs) if costs else math.nan


def _peak_memory() -> float:
    """Most bytes that this process had in memory."""
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(most if sys.platform == "darwin" else most * 1024)


def _forget_gpu_peak() -> None:
    if "torch" in sys.modules:
        import torch

        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()


def _gpu_peak() -> float:
    """Most bytes that torch reserved on one GPU; 0 where it used none."""
    if "torch" not in sys.modules:
        return 0.0
    import torch

    if not torch.cuda.is_available():
        return 0.0
    return float(max(torch.cuda.max_memory_reserved(device) for device in range(torch.cuda.device_count())))
