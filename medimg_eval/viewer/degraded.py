"""Degraded images of a case beside those as published, with what was answered about them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from medimg_eval import metrics
from medimg_eval.case import Condition, Failure, Trial
from medimg_eval.degradations import DrawKey, conditions_on
from medimg_eval.results.runs import is_evidence, is_known, is_set, is_summary
from medimg_eval.viewer.drawing import Drawing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medimg_eval.case import Case
    from medimg_eval.codecs import Stored
    from medimg_eval.results import RunScores
    from medimg_eval.tasks import Task

MOST = 3
"""So many conditions of a case are shown at most, each of another degradation."""


@dataclass(frozen=True)
class DegradedCase:
    """One condition of a case under which a model lost most.

    Attributes:
        condition: what was done.
        seed: of the run's draws.
        title: the condition, and the model's value beside that as published.
    """

    condition: Condition
    seed: int
    title: str


def choose_conditions(runs: Mapping[str, RunScores], case_id: str) -> list[DegradedCase]:
    """Returns conditions of largest loss: each degradation's worst severity."""
    visible = conditions_on("pixels", "moves")
    worst: dict[str, tuple[float, DegradedCase]] = {}
    for model, run in runs.items():
        metric = next((metric for metric in run.metrics if _is_of_cases(metric)), "")
        if run.varied.empty or not metric:
            continue
        manifest = json.loads((run.folder / "manifest.json").read_text(encoding="utf-8"))
        conditions = {key: Condition(**fields) for key, fields in manifest.get("conditions", {}).items()}
        less = is_known(metric) and metrics.get(metric).higher_is_better is False
        rows = run.varied[(run.varied["case"].astype(str) == case_id) & (run.varied["metric"] == metric)]
        clean = run.scores[(run.scores["case"].astype(str) == case_id) & (run.scores["metric"] == metric)]
        published = float(clean["value"].mean())
        for key, value in rows.groupby("condition")["value"].mean().items():
            condition, loss = conditions.get(str(key)), (value - published) * (1 if less else -1)
            if condition is None or condition.name not in visible or math.isnan(loss):
                continue
            title = f"{key} ({model}: {metrics.title(metric)} {value:.3g}, as published {published:.3g})"
            if condition.name not in worst or loss > worst[condition.name][0]:
                worst[condition.name] = loss, DegradedCase(condition, int(manifest.get("seed", 0)), title)
    ordered = sorted(worst.values(), key=lambda pair: -pair[0])
    return [degraded for _, degraded in ordered[:MOST]]


def _is_of_cases(metric: str) -> bool:
    return is_known(metric) and not (is_summary(metric) or is_set(metric) or is_evidence(metric))


def draw_degraded(
    drawing: Drawing,
    task: Task,
    case: Case,
    chosen: list[DegradedCase],
    stored: Mapping[str, Mapping[str, Stored | Failure]],
) -> None:
    """Adds a degraded case with its moved truth and answers.

    Args:
        drawing: what is added to; its first picture is the one as published.
        task: of the case.
        case: as published.
        chosen: of `choose_conditions`.
        stored: model -> id of a trial -> what it answered.
    """
    for number, degraded in enumerate(chosen):
        drawing.attempt(partial(_draw_degraded, drawing, task, case, degraded, stored, f"condition-{number}"))


def _draw_degraded(
    drawing: Drawing,
    task: Task,
    case: Case,
    found: DegradedCase,
    stored: Mapping[str, Mapping[str, Stored | Failure]],
    name: str,
) -> None:
    changed = task.under(case, found.condition, DrawKey(found.seed, case.id))
    own = Drawing(drawing.folder / name, drawing.voxels, drawing.models)
    own.add(task.panels(changed))
    trial = Trial(case.id, condition=found.condition.key).id
    for index, answers in enumerate(stored.values()):
        answer = answers.get(trial)
        if answer is not None and not isinstance(answer, Failure):
            own.add_answer(task.answer_panels(changed, answer), index)
    for problem in own.scene["problems"]:
        if problem not in drawing.scene["problems"]:
            drawing.scene["problems"].append(problem)
    over: dict[str, Any] = {key: value for key, value in own.scene.items() if key in ("masks", "marks")}
    for index, picture in enumerate(own.scene["pictures"]):
        added: dict[str, Any] = {**picture, **over, "title": found.title, "beside": index}
        if "file" in added:
            added["file"] = f"{name}/{added['file']}"
        drawing.scene["pictures"].append(added)
