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
    """Returns the conditions under which a model lost most of a case: the worst severity of each degradation."""
    shown = conditions_on("pixels", "moves")
    worst: dict[str, tuple[float, DegradedCase]] = {}
    for model, run in runs.items():
        metric = next((one for one in run.metrics if _is_of_cases(one)), "")
        if run.varied.empty or not metric:
            continue
        manifest = json.loads((run.folder / "manifest.json").read_text(encoding="utf-8"))
        conditions = {key: Condition(**one) for key, one in manifest.get("conditions", {}).items()}
        less = is_known(metric) and metrics.get(metric).higher_is_better is False
        rows = run.varied[(run.varied["case"].astype(str) == case_id) & (run.varied["metric"] == metric)]
        clean = run.scores[(run.scores["case"].astype(str) == case_id) & (run.scores["metric"] == metric)]
        published = float(clean["value"].mean())
        for key, value in rows.groupby("condition")["value"].mean().items():
            found, lost = conditions.get(str(key)), (value - published) * (1 if less else -1)
            if found is None or found.name not in shown or math.isnan(lost):
                continue
            title = f"{key} ({model}: {metrics.title(metric)} {value:.3g}, as published {published:.3g})"
            if found.name not in worst or lost > worst[found.name][0]:
                worst[found.name] = lost, DegradedCase(found, int(manifest.get("seed", 0)), title)
    ordered = sorted(worst.values(), key=lambda pair: -pair[0])
    return [found for _, found in ordered[:MOST]]


def _is_of_cases(metric: str) -> bool:
    return is_known(metric) and not (is_summary(metric) or is_set(metric) or is_evidence(metric))


def draw_degraded(
    drawing: Drawing,
    task: Task,
    case: Case,
    chosen: list[DegradedCase],
    stored: Mapping[str, Mapping[str, Stored | Failure]],
) -> None:
    """Adds a case as it was shown under conditions, with its moved truth and the answers to it.

    Args:
        drawing: what is added to; its first picture is the one as published.
        task: of the case.
        case: as published.
        chosen: of `choose_conditions`.
        stored: model -> id of a trial -> what it answered.
    """
    for number, found in enumerate(chosen):
        drawing.attempt(partial(_draw, drawing, task, case, found, stored, f"condition-{number}"))


def _draw(
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
    for place, answers in enumerate(stored.values()):
        answer = answers.get(trial)
        if answer is not None and not isinstance(answer, Failure):
            own.add_answer(task.answer_panels(changed, answer), place)
    for problem in own.scene["problems"]:
        if problem not in drawing.scene["problems"]:
            drawing.scene["problems"].append(problem)
    over: dict[str, Any] = {key: value for key, value in own.scene.items() if key in ("masks", "marks")}
    for place, picture in enumerate(own.scene["pictures"]):
        added: dict[str, Any] = {**picture, **over, "title": found.title, "beside": place}
        if "file" in added:
            added["file"] = f"{name}/{added['file']}"
        drawing.scene["pictures"].append(added)
