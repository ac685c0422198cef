"""A plan: what is judged, how and on which data, fixed in a file before there are results."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from medimg_eval import __version__
from medimg_eval.errors import DeviationError, UserError, nearest_path, shortened
from medimg_eval.results.acceptance.criteria import Analysis, Endpoint, as_accept, read_endpoints
from medimg_eval.results.acceptance.signatures import content_hash
from medimg_eval.results.runs import RunScores
from medimg_eval.system import whole

FORMAT = "medimg_eval plan 1"
LABELS = ("labels", "regions", "classes", "measures", "matching")
"""Settings of tasks that say what is judged, beside what stands in the definitions of metrics."""


@dataclass(frozen=True)
class Plan:
    """Fixed endpoints and analysis, with their hash and signatures.

    Attributes:
        content: as JSON holds it: `title`, `made`, `program`, `task`, `data`, `product`, `definitions`, `labels`,
            `accept`, `analysis`, `cases_needed`.
        signatures: as `sign` returns them, in the order in which they were made.
    """

    content: Mapping[str, Any]
    signatures: tuple[Mapping[str, str], ...] = ()

    @property
    def hash(self) -> str:
        """SHA-256 of the content, independent of the file."""
        return content_hash(self.content)

    @property
    def endpoints(self) -> list[Endpoint]:
        """Endpoints to be reached, in order."""
        return read_endpoints(self.content["accept"])

    @property
    def analysis(self) -> Analysis:
        """Settings of intervals, and of judging endpoints together."""
        return Analysis(**self.content["analysis"])

    def signed(self, signature: Mapping[str, str]) -> Plan:
        """Plan with one more signature."""
        return Plan(self.content, (*self.signatures, signature))


def make_plan(
    task: Mapping[str, Any],
    endpoints: Sequence[Endpoint],
    analysis: Analysis,
    *,
    title: str = "",
    product: str = "",
    needed: Sequence[Mapping[str, Any]] = (),
) -> Plan:
    """Fixes a plan as of now.

    Args:
        task: its `name`, `data` (fingerprint, number of `cases` and `patients`, what is `resampled`), the `definitions`
            of its metrics and the settings of it that say what is judged, as `labels`.
        endpoints: in their order.
        analysis: how they are judged.
        title: what the plan is for.
        product: name of the model that is judged; "" for any.
        needed: how many cases each endpoint needs, and why.
    """
    content = {
        "title": title,
        "made": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "program": f"medimg_eval {__version__}",
        "task": task["name"],
        "data": dict(task["data"]),
        "product": product,
        "definitions": dict(task["definitions"]),
        "labels": _as_json(task["labels"]),
        "accept": as_accept(endpoints),
        "analysis": asdict(analysis),
        "cases_needed": [_finite_values(need) for need in needed],
    }
    return Plan(content)


def write_plan(plan: Plan, file: Path) -> Path:
    """Writes a plan; the file appears whole or not at all."""
    held = {"format": FORMAT, "content": plan.content, "hash": plan.hash, "signatures": list(plan.signatures)}
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole(file) as partial:
        partial.write_text(json.dumps(held, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    return file


def read_plan(file: Path) -> Plan:
    """Reads a plan and checks its hash; `verify` checks signatures.

    Raises:
        UserError: the file is no plan.
        DeviationError: its content was changed.
    """
    if not file.exists():
        raise UserError(f"{file}: no such plan{nearest_path(file)}")
    with UserError.about(file, "cannot be read as a plan", OSError, ValueError):
        held = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(held, dict) or held.get("format") != FORMAT or not isinstance(held.get("content"), dict):
        raise UserError(f"{file}: is no plan; python -m medimg_eval plan ... out={file} writes one")
    plan = Plan(held["content"], tuple(held.get("signatures", ())))
    if plan.hash != held.get("hash"):
        raise DeviationError(f"{file}: was changed after it was written: its content is not that of the hash it states")
    return plan


def deviations(plan: Plan, run: RunScores, *, stated: Sequence[Endpoint] = ()) -> list[str]:
    """Deviations of a run from the plan, one sentence each.

    Nothing where it may be judged.

    Args:
        plan: read, its signatures checked.
        run: a run of `test` or `score`.
        stated: endpoints that the command names beside the plan.
    """
    return [*_of_data(plan.content["data"], run), *_of_settings(plan, run), *_of_analysis(plan, run, stated)]


def _of_data(planned: Mapping[str, Any], run: RunScores) -> Iterator[str]:
    if run.data_fingerprint != planned["fingerprint"]:
        yield f"the data are others: their fingerprint is {run.data_fingerprint}, planned was {planned['fingerprint']}"
    if run.cases != planned["cases"]:
        yield f"{run.cases:,} cases were judged, planned were {planned['cases']:,}"
    if run.partial:
        yield f"the run is partial: {run.partial}"
    if missing := run.cases - run.predicted:
        yield f"{missing:,} of {run.cases:,} cases have no answer"
    failed = run.scores.loc[run.scores["status"] == "failed", "case"]
    if run.failed_cases:
        named = f": {shortened(sorted(map(str, failed.unique())))}" if len(failed) else ""
        yield f"{run.failed_cases:,} cases failed{named}"
    if run.resampled != planned["resampled"]:
        yield f"intervals resample {run.resampled}, planned were {planned['resampled']}"


def _of_settings(plan: Plan, run: RunScores) -> Iterator[str]:
    content = plan.content
    if run.task != content["task"]:
        yield f"the task is {run.task!r}, planned was {content['task']!r}"
    if content["product"] and run.model != content["product"]:
        yield f"the model is {run.model!r}, planned was {content['product']!r}"
    if run.repeats > 1:
        yield f"every case was asked about {run.repeats} times, planned was once"
    held = _as_json({key: run.task_config[key] for key in LABELS if run.task_config.get(key)})
    for key in sorted({*held, *content["labels"]}):
        if held.get(key) != content["labels"].get(key):
            yield f"{key} are {held.get(key)}, planned were {content['labels'].get(key)}"
    for metric, planned in content["definitions"].items():
        definition = run.definitions.get(metric)
        if metric not in run.metrics:
            yield f"the run was not scored by {metric}: python -m medimg_eval score run={run.folder} metrics=[{metric}]"
        elif definition != planned:
            yield f"{metric} is computed by {definition!r}, planned was {planned!r}"


def _of_analysis(plan: Plan, run: RunScores, stated: Sequence[Endpoint]) -> Iterator[str]:
    if stated and as_accept(stated) != as_accept(plan.endpoints):
        yield f"accept= asks for {as_accept(stated)}, planned was {as_accept(plan.endpoints)}"
    latest = datetime.fromisoformat(plan.content["made"])
    for signature in plan.signatures:
        with suppress(ValueError, TypeError):  # of one that could not be checked, and whose date is none
            latest = max(latest, datetime.fromisoformat(signature.get("signed", "")))
    if run.started < latest:
        yield f"the run began at {run.started.isoformat()}, before the plan was fixed at {latest.isoformat()}"


def remarks(plan: Plan) -> list[str]:
    """Remarks on the plan for readers of a verdict, beside the signatures."""
    lines = [f"Plan {plan.hash[:23]}..., made {plan.content['made']}."]
    if plan.content["program"] != (now := f"medimg_eval {__version__}"):
        lines.append(f"Planned with {plan.content['program']}, judged with {now}.")
    if not plan.signatures:
        lines.append("The plan is not signed: its hash shows accidents, not intent.")
    needed = max((need["units"] for need in plan.content["cases_needed"]), default=0)
    held = plan.content["data"].get(plan.content["data"]["resampled"], plan.content["data"]["cases"])
    if needed > held:
        lines.append(f"The plan needs {needed:,} {plan.content['data']['resampled']}, and the data have {held:,}.")
    return lines


def _finite_values(held: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in held.items()
    }


def _as_json(held: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping as it comes back from a file: keys are texts."""
    content: dict[str, Any] = json.loads(json.dumps(held, default=str))
    return content
