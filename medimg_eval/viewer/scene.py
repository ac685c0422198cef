"""What the report shows of cases beside their scores: what was asked and answered, and what is seen."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.case import Array, Boxes, Case, Failure, Findings, Image, Mask, Points, Prompt
from medimg_eval.errors import CaseError
from medimg_eval.evaluation.identity import data_fingerprint
from medimg_eval.evaluation.run import Run, Stored
from medimg_eval.imaging import read, read_mask
from medimg_eval.imaging.volumes import SUFFIX, read_probabilities
from medimg_eval.question import Key
from medimg_eval.results import verdicts_of
from medimg_eval.store import digest
from medimg_eval.tasks import (
    QuestionTask,
    ReconstructionTask,
    SegmentationTask,
    SynthesisTask,
    Task,
)
from medimg_eval.viewer.overlays import Grid, is_clip, label_map, marks, pictures, stack

if TYPE_CHECKING:
    from medimg_eval.results import RunScores

log = logging.getLogger(__name__)

LONGEST = 100_000
"""Characters of a text that are shown."""

SEEN = 1
"""Number of the way in which scenes are made: another one has all made anew."""

Scene = dict[str, Any]


class Shown:
    """What can be shown of the cases of a task.

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
        self._stored: dict[str, Mapping[str, Stored | Failure]] = {}
        self._verdicts: dict[str, dict[str, dict[str, Any]]] = {}
        for name, run in runs.items():
            kept = Run(run.folder, run.run)
            self._stored[name] = kept.predictions()
            manifest = json.loads((run.folder / "manifest.json").read_text(encoding="utf-8"))
            self._verdicts[name] = verdicts_of(run.folder, manifest.get("judge", {}).get("id", ""))
        self._key = digest([SEEN, voxels, fingerprint, sorted(run.run for run in runs.values())])

    def case(self, case_id: str) -> Case | None:
        """The case of a score, which may be of one stage of it."""
        while case_id not in self._cases and "/" in case_id:
            case_id = case_id.rpartition("/")[0]
        return self._cases.get(case_id)

    def prediction(self, model: str, case_id: str) -> Stored | Failure | None:
        """What a run has stored of a case."""
        case = self.case(case_id)
        return None if case is None else self._stored[model].get(case.id)

    def key(self, case_id: str) -> str:
        """Changes when what is shown of a case would."""
        return digest([self._key, case_id], 16)

    def about(self, case_id: str) -> str:
        """The beginning of what is asked about a case, for lists; "" where nothing is."""
        case = self.case(case_id)
        return "" if case is None or case.question is None else " ".join(case.question.text.split())[:160]

    def texts(self, case_id: str) -> dict[str, Any]:
        """What was asked, what is right, and what each model said; empty for a task that is not put in words."""
        case = self.case(case_id)
        if case is None:
            return {}
        found: dict[str, Any] = {"answers": [self._answer(case, name) for name in self._stored]}
        if case.question is not None:
            found["question"] = _cut(case.question.text)
            found["options"] = [[letter, str(text)] for letter, text in case.question.options.items()]
        problem = _attempt(lambda: found.update(self._asked(case)))
        return {**found, "problem": problem} if problem else found

    def scene(self, case_id: str, folder: Path) -> Scene:
        """What is seen of a case; pictures are written into `folder`. What cannot be read is said, under `problems`."""
        case = self.case(case_id)
        scene: Scene = {"pictures": [], "panels": [], "problems": []}
        if case is None:
            return {**scene, "problems": ["the task has no such case any more"]}

        def attempt(what: Callable[[], None]) -> None:
            problem = _attempt(what)
            if problem and problem not in scene["problems"]:
                scene["problems"].append(problem)

        if isinstance(self.task, ReconstructionTask):
            attempt(lambda: self._reconstructions(case, scene))
            return scene
        grids: list[Grid | None] = []
        for number in range(len(case.images)):
            attempt(partial(self._image, case, number, folder, scene, grids))
        grid = next((one for one in grids if one is not None), None)
        attempt(lambda: self._reference(case, scene, grid))
        for place, name in enumerate(self._stored):
            attempt(partial(self._prediction, case, place, name, scene, grid, folder))
        return scene

    def _asked(self, case: Case) -> dict[str, Any]:
        """The prompt as models were given it, and the reference, where both are texts."""
        if isinstance(self.task, QuestionTask):
            # Templates ask for the number of images alone.
            blank = Image(np.zeros((1, 1, 1), np.uint8), np.eye(4), units="pixel")
            shown = () if self.task.blind == "remove" else (blank,) * len(case.images)
            prompt: Prompt | None = self.task.prompt(case, shown)
        else:
            prompt = self.task.prompt(case, ()) if isinstance(self.task, SynthesisTask) else None
        found: dict[str, Any] = {}
        if prompt is not None:
            found["prompt"] = [{"role": one.role, "parts": list(one.parts)} for one in prompt.messages]
        target = case.target.read() if prompt is not None or case.question is not None else None
        if isinstance(target, Key):
            found["reference"] = _spelt(target.value)
        elif target is not None and hasattr(target, "text") and not isinstance(self.task, SynthesisTask):
            found["reference"] = _cut(str(target.text))
        return found

    def _answer(self, case: Case, name: str) -> dict[str, Any] | None:
        """What a model said of a case, and what was taken from it; None where it said nothing in words."""
        stored = self._stored[name].get(case.id)
        if isinstance(stored, Failure):
            return {"failure": f"{stored.stage}: {stored.message}"}
        if stored is None:
            return {"failure": "no answer was recorded"}
        if isinstance(stored, Path):
            return None
        found: dict[str, Any] = {"outputs": [_cut(str(text)) for text in stored.get("texts", ())]}
        if stored.get("messages"):
            found["messages"] = [{key: _cut(str(value)) for key, value in one.items()} for one in stored["messages"]]
        if stored.get("preferences"):
            found["preferences"] = [[letter, value] for letter, value in stored["preferences"].items()]
        if judged := self._verdicts[name].get(case.id):
            found["judged"] = [[question, _cut(_spelt(value))] for question, value in judged.items()]
        if isinstance(self.task, QuestionTask):
            problem = _attempt(lambda: found.update(self._extracted(case, stored, judged or {})))
            if problem:
                found["problem"] = problem
        return found

    def _extracted(self, case: Case, packed: Mapping[str, Any], judged: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(self.task, QuestionTask) or case.question is None or case.question.kind == "report":
            return {}
        if packed.get("preferences"):
            return {"extracted": max(packed["preferences"], key=packed["preferences"].get)}
        pair = self.task._pair(case, packed)  # noqa: SLF001 - tasks keep how they pair to themselves
        extraction = replace(pair, judged=judged).extraction
        value = extraction.value
        return {"extracted": None if value is None else _cut(_spelt(value)), "rule": extraction.rule}

    def _image(self, case: Case, number: int, folder: Path, scene: Scene, grids: list[Grid | None]) -> None:
        image = case.images[number].read()
        flat = len(image.array.shape) == 3 and image.array.dtype.kind != "c"
        placed = flat or (image.array.ndim == 4 and not is_clip(image) and image.array.dtype.kind != "c")
        grid = Grid.of(image, self.voxels) if placed else None
        grids.append(grid)
        what = "Real image" if isinstance(self.task, SynthesisTask) else "Image"
        title = what if len(case.images) == 1 else f"{what} {number + 1}"
        for found in pictures(image, grid, folder, str(number)):
            shown = f"{title}, {found['title']}" if found.get("title") else title
            first = next((one for one in grids if one is not None), None)
            overlaid = grid is not None and first is not None and grid.own.difference(first.own) is None
            scene["pictures"].append({**found, "title": shown, "overlaid": overlaid, "modality": image.modality})

    def _reference(self, case: Case, scene: Scene, grid: Grid | None) -> None:
        if isinstance(self.task, SynthesisTask):
            return
        target = case.target.read()
        if isinstance(target, Mask) and isinstance(self.task, SegmentationTask):
            scene["labels"] = list(self.task.labels.values())
            scene["masks"] = {"truth": None, "models": [None] * len(self._stored)}
            if grid is not None:  # without it there is nothing to lay a label map over
                scene["masks"]["truth"] = label_map(grid.labels(target), list(self.task.labels), grid)
        elif isinstance(target, Points | Boxes):
            scene.setdefault("marks", {})["truth"] = marks(target, grid)
        elif isinstance(target, Findings):
            scene["findings"] = [[name, value] for name, value in target.values.items()]
        elif isinstance(target, Key) and case.question is not None and case.question.kind in ("box", "point"):
            scene.setdefault("marks", {})["truth"] = marks(_corners(target.value), grid)

    def _prediction(self, case: Case, place: int, name: str, scene: Scene, grid: Grid | None, folder: Path) -> None:
        stored = self._stored[name].get(case.id)
        if not isinstance(stored, Path):
            self._said(case, place, name, stored, scene, grid)
        elif isinstance(self.task, SynthesisTask):
            for number, file in enumerate(self.task.stored(stored)):
                image = read(file)
                for found in pictures(image, None, folder, f"made-{place}-{number}"):
                    scene["panels"].append({**found, "title": f"Picture {number + 1}", "model": place})
        elif "masks" in scene and grid is not None:
            labels: Mapping[int, str] = getattr(self.task, "labels", {})
            scene["masks"]["models"][place] = label_map(grid.labels(stored_mask(stored)), list(labels), grid)
        elif stored.suffix == ".json":
            content = json.loads(stored.read_text(encoding="utf-8"))
            placed = _marked(content)
            if placed is not None:
                _models(scene, len(self._stored))[place] = marks(placed, grid)
            else:
                scene.setdefault("stored", [None] * len(self._stored))[place] = _cut(json.dumps(content, indent=1))

    def _said(self, case: Case, place: int, name: str, stored: Any, scene: Scene, grid: Grid | None) -> None:
        """Draws what was answered in words to a question about a place."""
        placed = case.question is not None and case.question.kind in ("box", "point")
        if not (placed and isinstance(stored, Mapping) and isinstance(self.task, QuestionTask)):
            return
        value = self.task._pair(case, stored).extraction.value  # noqa: SLF001 - as above
        if isinstance(value, Sequence) and not isinstance(value, str) and len(value) in (2, 4):
            _models(scene, len(self._stored))[place] = marks(_corners(value), grid)

    def _reconstructions(self, case: Case, scene: Scene) -> None:
        reference = _slices(case.target.read().array[0])
        shown = {**stack(reference), "title": "Reference", "model": -1}
        scene["panels"].append(shown)
        low, high = shown["full"]
        for place, name in enumerate(self._stored):
            stored = self._stored[name].get(case.id)
            if not isinstance(stored, Path):
                continue
            problem = _attempt(partial(self._errors, stored, reference, place, scene, (low, high)))
            if problem:
                scene["problems"].append(problem)

    def _errors(self, stored: Path, reference: Array, place: int, scene: Scene, window: tuple[float, float]) -> None:
        image = _slices(np.load(stored, allow_pickle=False))
        title = "Reconstruction"
        scene["panels"].append({**stack(image, window=window), "title": title, "model": place})
        error = np.abs(image - reference).astype(np.float32)
        most = (window[1] - window[0]) / 5
        panel = {**stack(error, window=(0.0, most)), "title": "Absolute error, five times as bright", "model": place}
        scene["panels"].append({**panel, "colours": "heat"})


def stored_mask(path: Path) -> Mask:
    """Reads the label map that a run has stored, or the most probable labels where it stored probabilities."""
    return read_probabilities(path).most_probable() if path.suffix == SUFFIX else read_mask(path)


def _slices(array: Array) -> Array:
    """Magnitudes as (slice, row, column), float32."""
    values = np.abs(array).astype(np.float32) if array.dtype.kind == "c" else array.astype(np.float32)
    return values.reshape(-1, *values.shape[-2:])


def _models(scene: Scene, count: int) -> list[Any]:
    models: list[Any] = scene.setdefault("marks", {}).setdefault("models", [None] * count)
    return models


def _marked(content: Mapping[str, Any]) -> Points | Boxes | None:
    """Points or boxes as tasks store them; None where it is something else."""
    if "places" in content:
        places, names = np.array(content["places"], float), tuple(content["names"])
        scores = np.array(content["confidences"], float)
        return Points(places, names, scores=scores) if content["kind"] == "points" else Boxes(places, names, scores)
    if "points" in content:
        found = [one for one in content["points"] if one["position"] is not None]
        positions = np.array([one["position"] for one in found], float)
        return Points(positions, tuple(str(one["name"]) for one in found))
    return None


def _corners(value: Sequence[float]) -> Points | Boxes:
    """A place in words, (x, y) or (x1, y1, x2, y2) with the far edges outside, as marks in voxels."""
    if len(value) == 2:
        return Points(np.array([[value[1], value[0]]], float), ("",))
    left, top, right, bottom = value
    return Boxes(np.array([[top, left, bottom - 1, right - 1]], float), ("",))


def _spelt(value: Any) -> str:
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return _cut(" / ".join(value))
    return _cut(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} [cut: {len(text):,} characters in all]"


def _attempt(what: Callable[[], None]) -> str:
    """Does something of one case; returns "" or what went wrong, for a report must not end at one file."""
    try:
        what()
    except CaseError as error:
        return str(error)
    except Exception as error:  # a user's layout or a damaged file can fail in any way
        log.debug("a case could not be shown", exc_info=True)
        return f"{type(error).__name__}: {error}"
    return ""
