"""What the report shows of cases beside their scores: what was asked and answered, and what is seen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.case import Case, Failure, Trial
from medimg_eval.codecs import Stored
from medimg_eval.evaluation.identity import data_fingerprint
from medimg_eval.evaluation.run import Run
from medimg_eval.question import Key
from medimg_eval.results import verdicts_of
from medimg_eval.store import digest
from medimg_eval.viewer.degraded import choose_conditions, draw_degraded
from medimg_eval.viewer.drawing import Drawing, Scene, attempt, cut, spelt
from medimg_eval.viewer.sessions import draw_step_images, list_steps

if TYPE_CHECKING:
    from medimg_eval.panels import Extracted, Panel
    from medimg_eval.results import RunScores
    from medimg_eval.tasks import Task

SEEN = 3
"""Number of the way in which scenes are made: another one has all made anew."""


class CaseView:
    """Views of the cases of a task.

    Args:
        task: as the runs were judged.
        runs: by the name of the model.
        voxels: how many of a volume are shown at most.

    Attributes:
        warnings: what readers must know of all of it.
    """

    def __init__(self, task: Task, runs: Mapping[str, RunScores], voxels: int = 2_000_000) -> None:
        self.task = task
        self.voxels = voxels
        self.warnings: list[str] = []
        self._cases = {case.id: case for case in task.cases("test")}
        fingerprint = data_fingerprint(list(self._cases.values()))
        changed = [name for name, run in runs.items() if run.data_fingerprint != fingerprint]
        if changed:
            self.warnings.append(
                f"The data have changed since the runs of {', '.join(changed)}: what is shown of their cases "
                "may not be what was judged."
            )
        if task.may_leave != "yes":
            self.warnings.append(
                f"Nothing says that these data may be passed on (may_leave: {task.may_leave}), and this report holds "
                "images and texts of them: keep it where they may be."
            )
        self._runs = runs
        self._stored: dict[str, Mapping[str, Stored | Failure]] = {}
        self._shown: dict[str, Mapping[str, list[str]]] = {}
        views: set[str] = set()
        self._folders = {name: run.folder for name, run in runs.items()}
        self._conditions = {name: run.run.partition("~")[2] for name, run in runs.items()}
        self._verdicts: dict[str, dict[str, dict[str, Any]]] = {}
        for name, run in runs.items():
            stored = Run(run.folder, run.run.partition("~")[0])
            self._stored[name], self._shown[name] = stored.predictions(), stored.shown()
            manifest = json.loads((run.folder / "manifest.json").read_text(encoding="utf-8"))
            self._verdicts[name] = verdicts_of(run.folder, manifest.get("judge", {}).get("id", ""))
            views.add(manifest.get("view", ""))
        if len(views) == 1:  # of several, slices are shown, and the words beside each answer say what it was given
            self.task = task.with_view(views.pop())
        self._key = digest([SEEN, voxels, fingerprint, sorted((run.run, *run.conditions) for run in runs.values())])

    def case(self, case_id: str) -> Case | None:
        """The case of a score, which may be of one stage of it."""
        while case_id not in self._cases and "/" in case_id:
            case_id = case_id.rpartition("/")[0]
        return self._cases.get(case_id)

    def prediction(self, model: str, case_id: str) -> Stored | Failure | None:
        """Prediction that a run has stored of a case."""
        case = self.case(case_id)
        return None if case is None else self._stored[model].get(self._trial(case, model))

    def _trial(self, case: Case, model: str) -> str:
        return Trial(case.id, condition=self._conditions[model]).id

    def key(self, case_id: str) -> str:
        """Changes when what is shown of a case would."""
        return digest([self._key, case_id], 16)

    def about(self, case_id: str) -> str:
        """Beginning of a case's question, for lists; else ""."""
        case = self.case(case_id)
        return "" if case is None or case.question is None else " ".join(case.question.text.split())[:160]

    def texts(self, case_id: str, models: Iterable[str] | None = None) -> dict[str, Any]:
        """Texts of question, answer and replies; empty for other tasks."""
        case = self.case(case_id)
        if case is None:
            return {}
        texts: dict[str, Any] = {"answers": [self._answer(case, name) for name in models or self._stored]}
        if case.question is not None:
            texts["question"] = cut(case.question.text)
            texts["options"] = [[letter, str(text)] for letter, text in case.question.options.items()]
        problem = attempt(lambda: texts.update(self._asked(case)))
        return {**texts, "problem": problem} if problem else texts

    def scene(self, case_id: str, folder: Path) -> Scene:
        """Scene of a case, pictures in `folder`, failures in `problems`."""
        case = self.case(case_id)
        if case is None:
            return {"pictures": [], "panels": [], "problems": ["the task has no such case any more"]}
        drawing = Drawing(folder, self.voxels, len(self._stored))
        drawing.attempt(lambda: drawing.add(self.task.panels(case)))
        for index, name in enumerate(self._stored):
            drawing.attempt(partial(self._draw_answer, drawing, case, index, name))
        draw_degraded(drawing, self.task, case, choose_conditions(self._runs, case.id), self._stored)
        return drawing.scene

    def mask(self, case: Case) -> Panel | None:
        """The label map of a case's reference; None where it is no segmentation."""
        return next((panel for panel in self.task.panels(case) if panel.labels), None)

    def answer_mask(self, model: str, case: Case) -> Panel | None:
        """The label map that a model gave."""
        return next((panel for panel in self._answer_panels(case, model) if panel.labels), None)

    @property
    def labels(self) -> Mapping[int, str]:
        """Integer -> label name of segmentations; else empty."""
        panel = self.mask(next(iter(self._cases.values())))
        return panel.labels if panel else {}

    def _answer_panels(self, case: Case, name: str) -> list[Panel]:
        stored = self.prediction(name, case.id)
        if isinstance(stored, Mapping):
            stored = {**stored, "judged": self._verdicts[name].get(self._trial(case, name)) or {}}
        return [] if stored is None or isinstance(stored, Failure) else self.task.answer_panels(case, stored)

    def _draw_answer(self, drawing: Drawing, case: Case, place: int, name: str) -> None:
        drawing.add_answer(self._answer_panels(case, name), place)
        stored = self.prediction(name, case.id)
        if isinstance(stored, Mapping):
            draw_step_images(drawing, stored, self._folders[name], place)

    def _asked(self, case: Case) -> dict[str, Any]:
        """Prompt and reference, where both are texts."""
        panels: dict[str, Any] = {}
        for panel in self.task.panels(case):
            if panel.kind == "prompt":
                panels["prompt"] = [{"role": message.role, "parts": list(message.parts)} for message in panel.read()]
            elif panel.kind == "text":
                value = panel.read()
                if isinstance(value, Key):
                    panels["reference"] = spelt(value.value)
                elif isinstance(value, str) or hasattr(value, "text"):
                    panels["reference"] = cut(str(getattr(value, "text", value)))
        return panels

    def _answer(self, case: Case, name: str) -> dict[str, Any] | None:
        """Model's answer and its origin; None where not textual."""
        stored = self.prediction(name, case.id)
        if isinstance(stored, Failure):
            return {"failure": f"{stored.stage}: {stored.message}"}
        if stored is None:
            return {"failure": "no answer was recorded"}
        reply = {} if isinstance(stored, Path) else _stored_reply(stored)
        if shown_texts := self._shown[name].get(self._trial(case, name)):
            reply["shown"] = [cut(text) for text in shown_texts]
        if judged := self._verdicts[name].get(self._trial(case, name)):
            reply["judged"] = [[question, cut(spelt(value))] for question, value in judged.items()]
        problem = attempt(lambda: reply.update(self._extracted(case, name)))
        if problem:
            reply["problem"] = problem
        return reply or None

    def _extracted(self, case: Case, name: str) -> dict[str, Any]:
        for panel in self._answer_panels(case, name):
            if panel.kind == "extraction":
                taken: Extracted = panel.read()
                value = None if taken.value is None else cut(spelt(taken.value))
                return {"extracted": value} | ({} if taken.rule is None else {"rule": taken.rule})
        return {}


def _stored_reply(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Reply of a model, and the options that it preferred."""
    reply: dict[str, Any] = {"outputs": [cut(str(text)) for text in stored.get("texts", ())]}
    if stored.get("messages"):
        reply["messages"] = [{key: cut(str(value)) for key, value in message.items()} for message in stored["messages"]]
    if steps := list_steps(stored):
        reply["session"] = steps
    if stored.get("preferences"):
        reply["preferences"] = [[letter, value] for letter, value in stored["preferences"].items()]
    return reply
