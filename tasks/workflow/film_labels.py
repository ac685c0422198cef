"""Workflow: what each frame of a video shows, such as phases, instruments and onsets of a surgery."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from medimg_eval.case import Array, Case, FrameLabels, Image, Prompt, Prompts
from medimg_eval.codecs import Codec, Frames
from medimg_eval.degradations import conditions_on
from medimg_eval.errors import CaseError, UsageError, UserError
from medimg_eval.evidence import EMPTY, Context
from medimg_eval.imaging.video import Film, FilmPrompt, FrameFeatures
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics.workflow import BACKGROUND, CLASSES, KIND, PRESENCE, FramePair, FrameRule, PresencePair
from medimg_eval.panels import Panel
from medimg_eval.tasks.base import NOBODY, SCORES, Task
from medimg_eval.tasks.checks import Checked, check_metrics

FAILED = "failed"

ERRORS, CLIP = 3, 8
"""Errors of a film that are shown as clips, and the frames of each."""

RIBBON = 24
"""Rows of pixels of a ribbon."""

NARROWEST = 720
"""Columns of pixels that a ribbon has at least: a film of few frames is no taller on a page than others."""


@dataclass(frozen=True, kw_only=True)
class WorkflowTask(Task):
    """Films of which every frame on a grid is labelled.

    A case's target is `FrameLabels`, whose `frames` are places on the grid that is asked for. A model answers by
    `label_frames`: for each film one answer per frame, best from a generator.

    Attributes:
        phases: classes of which each frame has one, in order; or value of the truth -> name.
        phase: the truth's column of these.
        presence: columns of the truth with 0 or 1, for classes of which a frame has any number; or column -> name.
        background: phases that are no segments.
        unjudged: values of the column of phases whose frames are not judged.
        online: whether frames are given out one after another, each to be answered before later ones are seen.
        delay: online, so many later frames may be seen before a frame is answered.
        fps: frames per second of the grid.
    """

    phases: Sequence[str] | Mapping[Any, str] = ()
    phase: str = "phase"
    presence: Sequence[str] | Mapping[str, str] = ()
    background: Sequence[str] = field(default=(), metadata=SCORES)
    unjudged: Sequence[Any] = field(default=(), metadata=SCORES)
    online: bool = False
    delay: int = 0
    fps: float = 1.0

    capability: ClassVar[str] = "label_frames"
    output: ClassVar[str] = "labels of each frame"
    codec: ClassVar[Codec] = Frames()
    judges: ClassVar[frozenset[str]] = frozenset({KIND, PRESENCE})
    noun: ClassVar[str] = "videos"

    def __post_init__(self) -> None:
        """Refuses invalid classes and metrics, before anything is loaded."""
        names = [*self.phase_names, *self.presence_names]
        if not names:
            raise UsageError(f"task {self.name!r}: expected `phases`, `presence`, or both")
        if len(set(names)) < len(names) or any(" -> " in name or not name for name in names):
            raise UsageError(f"task {self.name!r}: expected names that differ, without ' -> ', got {names}")
        if self.delay < 0 or (self.delay and not self.online) or not 0 < self.fps < math.inf:
            raise UsageError(
                f"task {self.name!r}: expected `delay` of 0 or more, with `online`, and `fps` above 0, got "
                f"{self.delay} and {self.fps}"
            )
        facts = {CLASSES: list(self.phase_names), BACKGROUND: list(self.background)}
        self.complete(facts={**self.facts, **facts})
        check_metrics(self, "frames of videos")
        for name in self.metrics:
            self._check_metric(name)

    def _check_metric(self, name: str) -> None:
        definition, parameter = parse(name)
        kinds = {definition.kind, *(parse(need)[0].kind for need in definition.needs)}
        if KIND in kinds and not self.phase_names:
            raise UsageError(f"task {self.name!r}: {name!r} judges phases, and `phases` is empty")
        if PRESENCE in kinds and not self.presence_names:
            raise UsageError(f"task {self.name!r}: {name!r} judges presence, and `presence` is empty")
        if KIND in kinds and isinstance(parameter, str) and "relaxed" in parameter:
            rule = FrameRule.of(parameter.partition("+")[2] if definition.name == "frame_spread" else parameter)
            if rule.boundary != "strict" and len(self.phase_names) != 7:
                raise UsageError(
                    f"task {self.name!r}: {name!r} follows the order of Cholec80's 7 phases, and serves no other "
                    f"vocabulary; this one has {len(self.phase_names)}"
                )

    @property
    def phase_names(self) -> tuple[str, ...]:
        """The classes of which each frame has one."""
        return tuple(self.phases.values() if isinstance(self.phases, Mapping) else self.phases)

    @property
    def presence_names(self) -> tuple[str, ...]:
        """The classes of which each frame has any number."""
        return tuple(self.presence.values() if isinstance(self.presence, Mapping) else self.presence)

    @property
    def labels(self) -> dict[int, str]:
        """All classes, from 1 on: phases, then those of presence."""
        return dict(enumerate([*self.phase_names, *self.presence_names], 1))

    def conditions(self) -> frozenset[str]:
        """Conditions of pictures by frame, and of frames shown."""
        return conditions_on("pixels", "frames")

    def read_images(self, case: Case) -> tuple[Image, ...]:
        """Nothing: a film is read by its frames."""
        return ()

    def prompt(self, case: Case, images: tuple[Image, ...]) -> Prompt:
        """The film, and the classes that are asked for."""
        source: Any = case.images[0] if case.images else None
        film = Film(source, self._truth(case).frames.tolist(), self.fps, online=self.online)
        return FilmPrompt(
            case.id,
            (),
            self.labels,
            film=film,
            online=self.online,
            delay=self.delay,
            phases=self.phase_names,
            presence=self.presence_names,
        )

    def ask(self, model: Any, prompts: Prompts) -> Sequence[Any]:
        """Takes each film's answers in turn; online, late ones fail.

        Raises:
            CaseError: an answer that must be online is no generator, or looked ahead.
        """
        answers = super().ask(model, prompts)
        free = not self.online or not getattr(model, "reads_images", True)
        return [
            answer if free or not isinstance(prompt, FilmPrompt) else list(_without_looking_ahead(prompt, answer))
            for prompt, answer in zip(prompts, answers, strict=True)
        ]

    def training_images(self, case: Case) -> Mapping[str, Any]:
        """Nothing is cached: models learn from the film's features."""
        return {}

    def training_pair(self, case: Case, images: Mapping[str, Any]) -> tuple[Any, Any]:
        """Rereadable film and its `FrameLabels`, as `accept` gives them."""
        return replace(self, online=False, delay=0).prompt(case, ()), self.accept(case, None, what="reference")

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> FrameLabels:
        """Checks one answer per frame: a phase, class -> score, labels or columns of values.

        Of scores of phases the largest decides. A frame that `FrameLabels` leave out has no label.

        Returns:
            Columns: that of phases, with names ("" for none), and a float64 column for each class of presence.

        Raises:
            CaseError: it is something else, a class is unknown, a score is not finite, or frames are missing or too
                many.
        """
        where = f"case {case.id!r}: the {what}"
        truth = self._truth(case)
        if what == "reference":
            return truth
        if isinstance(answer, FrameLabels):
            arrays_ = self._on_grid(answer, truth.frames, where)
        elif isinstance(answer, Mapping):
            arrays = {str(name): np.asarray(values) for name, values in answer.items()}
            wrong = next((name for name, values in arrays.items() if values.shape != truth.frames.shape), None)
            if wrong is not None:
                raise CaseError(f"{where} has {len(arrays[wrong])} values of {wrong!r} for {len(truth.frames)} frames")
            arrays_ = arrays
        elif isinstance(answer, Iterable) and not isinstance(answer, str | bytes):
            rows = list(answer)
            if len(rows) != len(truth.frames):
                raise CaseError(f"{where} answers {len(rows)} of {len(truth.frames)} frames")
            arrays_ = self._of_rows(rows, where)
        else:
            raise CaseError(f"{where} is {type(answer).__name__}, expected an answer for each frame")
        return FrameLabels(truth.frames, self._checked(arrays_, len(truth.frames), where))

    def score(
        self, case: Case, prediction: Path | Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Puts labels of frames beside the truth."""
        labels = self.codec.read(prediction) if isinstance(prediction, Path) else prediction
        return self._rows(case, self.accept(case, labels), self.case_metrics if metrics is None else metrics)

    def worst(self, case: Case, context: Context = EMPTY) -> list[LabelScore]:
        """The video without any label; nothing where the truth itself cannot be read."""
        try:
            truth = self._truth(case)
        except CaseError:
            return [LabelScore("all", name, math.nan, FAILED) for name in self.case_metrics]
        rows = self._rows(case, FrameLabels(truth.frames, {}), self.case_metrics)
        worst = {"presence_ap": 0.0, "component_ap": 0.0, "presence_score": math.nan}
        return [
            row._replace(
                value=row.value if math.isnan(row.value) else worst.get(row.metric, row.value),
                status=row.status if row.metric == "presence_score" else FAILED,
            )
            for row in rows
        ]

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Settings that decide the numbers beside the labels."""
        look = f"online, {self.delay} later frames seen" if self.delay else "online, no look-ahead"
        note = f"; without {', '.join(self.background)} as segments" if self.background else ""
        return f"frames at {self.fps:g} per second; {look if self.online else 'offline: the whole film is seen'}{note}"

    def check_case(self, case: Case) -> Checked:
        """Whether film and labels can be read, and fit together."""
        try:
            truth = self._truth(case)
            source: Any = case.images[0]
            if not all(path.exists() for path in source.files):
                return Checked([], f"{len(truth.frames)} frames", frozenset(["the video is not there"]))
            next(iter(source.frames([int(truth.frames[-1])])))
        except UserError as error:
            return Checked([str(error)])
        rate = getattr(source, "rate", None)
        told = f"the video and task.layout.every give {rate or 0:.4g} frames a second, task.fps says {self.fps:g}"
        differs = rate is not None and not math.isclose(rate, self.fps, rel_tol=0.01)
        return Checked([], f"{len(truth.frames)} frames", frozenset([told] if differs else []))

    def panels(self, case: Case) -> list[Panel]:
        """The ribbon of phases."""
        return [Panel("alone", f"Truth: {self._rows_told}", lambda: self._ribbon(case, self._truth(case)))]

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """The ribbon of what was said."""

        def read() -> Image:
            labels = self.codec.read(prediction) if isinstance(prediction, Path) else prediction
            return self._ribbon(case, self.accept(case, labels))

        return [Panel("alone", self._rows_told, read), *self._error_panels(case, prediction)]

    @property
    def _rows_told(self) -> str:
        """The rows of a ribbon, from the top down."""
        return ", ".join([*(["phases", "errors in red"] if self.phase_names else []), *self.presence_names])

    def _error_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """Clips around the longest phase errors; none without pictures."""
        source: Any = case.images[0] if case.images else None
        if not self.phase_names or isinstance(source, FrameFeatures) or not all(map(Path.exists, source.files)):
            return []
        labels = self.codec.read(prediction) if isinstance(prediction, Path) else prediction
        times, truth, predicted = self.phase_tracks(case, labels)
        frames = self._truth(case).frames
        names = [*self.phase_names, "none"]
        panels = []
        for begin in longest_errors(truth, predicted, ERRORS):
            minutes, seconds = divmod(round(times[begin]), 60)
            title = f"{minutes:02d}:{seconds:02d}: {names[truth[begin]]}, called {names[predicted[begin]]}"
            panels.append(Panel("alone", title, partial(self._error_clip, source, (frames, truth, predicted), begin)))
        return panels

    def _error_clip(self, source: Any, tracks: tuple[Array, Array, Array], begin: int) -> Image:
        """Frames around an error's start, with ribbons and a time mark."""
        first = max(0, begin - CLIP // 2)
        frames, truth, predicted = (track[first : first + CLIP] for track in tracks)
        pictures = np.stack(list(source.frames(frames.tolist())))
        rows, columns = max(6, pictures.shape[2] // 16), pictures.shape[3]
        palette, column_frames = _class_palette(len(self.phase_names)), np.arange(columns) * len(frames) // columns
        bands = [np.repeat(palette[track[column_frames]][None], rows, 0) for track in (truth, predicted)]
        clip = []
        for number, picture in enumerate(pictures):
            beneath = np.moveaxis(np.concatenate(bands), -1, 0).copy()
            beneath[:, rows - 1 : rows + 1, column_frames == number] = 0
            clip.append(np.concatenate([np.broadcast_to(picture, (3, *picture.shape[1:])), beneath], 1))
        return Image(np.stack(clip, 1).astype(np.uint8), np.eye(4), units="pixel")

    def _ribbon(self, case: Case, labels: FrameLabels) -> Image:
        """Ribbon: coloured phases, presence of classes, and differences."""
        truth = self._truth(case)
        colours = _class_palette(len(self.phase_names))
        bands: list[Array] = []
        if self.phase_names:
            predicted, true = self._phase_places(labels), self._phase_places(truth)
            bands += [colours[predicted], np.where((predicted == true)[:, None], 255, np.array([[200, 30, 30]]))]
        for name in self.presence_names:
            is_present = np.asarray(labels.columns.get(name, np.zeros(len(truth.frames)))) >= 0.5
            bands.append(np.where(is_present[:, None], np.array([[40, 40, 40]]), 235))
        width = max(1, min(1200, len(truth.frames)))
        columns = np.linspace(0, len(truth.frames) - 1, width).round().astype(int)
        columns = np.repeat(columns, -(-NARROWEST // width))
        gap = np.full((4, columns.size, 3), 255)
        rows = [part for band in bands for part in (np.repeat(band[columns][None], RIBBON, 0), gap)]
        return Image(np.moveaxis(np.concatenate(rows).astype(np.uint8), -1, 0), np.eye(4), units="pixel")

    def phase_tracks(self, case: Case, answer: Any) -> tuple[Array, Array, Array]:
        """Frame seconds, and phases by truth and answer, int64, (frame,); -1 without."""
        truth = self._truth(case)
        return truth.frames / self.fps, self._phase_places(truth), self._phase_places(self.accept(case, answer))

    def _rows(self, case: Case, given: FrameLabels, metrics: Sequence[str]) -> list[LabelScore]:
        truth = self._truth(case)
        pairs: dict[str, Any] = {}
        if self.phase_names:
            true = self._phase_places(truth)
            judged = true >= 0
            classes = (self.phase_names, true[judged], self._phase_places(given)[judged])
            pairs[KIND] = FramePair(*classes, frozenset(self.background), self.fps)
        if self.presence_names:
            present = np.stack([np.asarray(truth.columns[name]) for name in self.presence_names], 1) >= 0.5
            none = np.full(len(truth.frames), -math.inf)
            predicted = np.stack([np.asarray(given.columns.get(name, none), float) for name in self.presence_names], 1)
            pairs[PRESENCE] = PresencePair(
                self.presence_names, present, np.where(np.isnan(predicted), -math.inf, predicted)
            )
        rows = []
        for name in metrics:
            definition, parameter = parse(name)
            arguments = () if parameter is None else (parameter,)
            values: Any = definition.function(pairs[definition.kind], *arguments)
            for label, value in values.items():
                several = value if isinstance(value, list) else [(value, "present")]
                rows += [LabelScore(label, name, float(number), status) for number, status in several]
        return rows

    def _phase_places(self, labels: FrameLabels) -> Array:
        """Place of each frame's phase, int64, (frame,); -1 for none."""
        indices = {name: index for index, name in enumerate(self.phase_names)}
        column = labels.columns.get(self.phase)
        if column is None:
            return np.full(len(labels.frames), -1)
        names, at = np.unique(np.asarray(column, str), return_inverse=True)
        return np.array([indices.get(name, -1) for name in names.tolist()], np.int64)[at]

    def _truth(self, case: Case) -> FrameLabels:
        """The truth with names of phases; raises CaseError where it does not say."""
        held = case.target.read()
        if not isinstance(held, FrameLabels):
            raise CaseError(f"case {case.id!r}: the reference is {type(held).__name__}, expected FrameLabels")
        columns: dict[str, Array] = {}
        where = f"case {case.id!r}: the reference"
        if self.phase_names:
            CaseError.refuse_unknown(f"{where}: its columns are", list(held.columns), self.phase)
            values = np.asarray(held.columns[self.phase], str)
            names = {str(v): n for v, n in self.phases.items()} if isinstance(self.phases, Mapping) else {}
            names |= {name: name for name in self.phase_names} | {str(value): "" for value in self.unjudged}
            odd = next((value for value in np.unique(values).tolist() if value not in names), None)
            if odd is not None:
                raise CaseError(f"{where} has the phase {odd!r}; expected one of {', '.join(names)}")
            columns[self.phase] = np.array([names[value] for value in values.tolist()], object)
        chosen = self.presence.items() if isinstance(self.presence, Mapping) else [(n, n) for n in self.presence]
        for column, name in chosen:
            CaseError.refuse_unknown(f"{where}: its columns are", list(held.columns), column)
            columns[name] = np.asarray(held.columns[column], np.float64)
        return FrameLabels(held.frames, columns)

    def _on_grid(self, given: FrameLabels, frames: Array, where: str) -> dict[str, Array]:
        """Label columns on the truth's frames; missing are "" or NaN."""
        if np.any(np.diff(given.frames) <= 0):
            raise CaseError(f"{where}: expected ascending frames")
        if len(given.frames) and len(frames) and given.frames[-1] > 2 * frames[-1] + 1:
            raise CaseError(
                f"{where} labels frame {given.frames[-1]}, and the truth ends with {frames[-1]}; where rows count the "
                "video's frames, model.every says how many lie from one on the grid to the next"
            )
        at = np.minimum(np.searchsorted(given.frames, frames), max(len(given.frames) - 1, 0))
        there = given.frames[at] == frames if len(given.frames) else np.zeros(len(frames), bool)
        columns = {}
        for name, values in given.columns.items():
            column = np.asarray(values)[at] if len(given.frames) else np.zeros(len(frames))
            empty: Any = "" if name == self.phase else math.nan
            columns[name] = np.where(there, column.astype(object), empty)
        return columns

    def _of_rows(self, rows: Sequence[Any], where: str) -> dict[str, Array]:
        """The columns of one answer per frame."""
        columns: dict[str, Array] = {}
        names = dict.fromkeys([self.phase, *self.phase_names, *self.presence_names])
        given = dict.fromkeys(name for row in rows if isinstance(row, Mapping) for name in row)
        CaseError.refuse_unknown(f"{where} holds", names, *given)
        if self.phase_names:
            columns[self.phase] = np.array([self._phase_of(row, where) for row in rows], object)
        for name in self.presence_names:
            incomplete = next(
                (n for n, row in enumerate(rows) if not isinstance(row, Mapping) or name not in row), None
            )
            if incomplete is not None:
                raise CaseError(f"{where} has no score of {name!r} for frame {incomplete}")
            columns[name] = np.array([row[name] for row in rows])
        return columns

    def _phase_of(self, row: Any, where: str) -> Any:
        if not isinstance(row, Mapping):
            return row
        if self.phase in row:
            return row[self.phase]
        scores = [(float(row[name]), name) for name in self.phase_names if name in row]
        if not all(math.isfinite(score) for score, _ in scores):
            raise CaseError(f"{where} holds a score of a phase that is not finite")
        return max(scores, key=lambda pair: pair[0])[1] if scores else ""

    def _checked(self, found: Mapping[str, Array], size: int, where: str) -> dict[str, Array]:
        columns: dict[str, Array] = {}
        wanted = [*([self.phase] if self.phase_names else []), *self.presence_names]
        CaseError.refuse_unknown(f"{where} holds", wanted, *found)
        codes = {str(v): n for v, n in self.phases.items()} if isinstance(self.phases, Mapping) else {}
        for name in wanted:
            if name not in found:
                continue
            if name == self.phase:
                texts = [codes.get(str(value), str(value)) for value in found[name].tolist()]
                CaseError.refuse_unknown(f"{where} holds", self.phase_names, *dict.fromkeys(filter(None, texts)))
                columns[name] = np.array(texts, object)
                continue
            with CaseError.about(where, f"holds a score of {name!r} that is no number", TypeError, ValueError):
                columns[name] = np.asarray(found[name], np.float64)
            if np.isinf(columns[name]).any():
                raise CaseError(f"{where} holds a score of {name!r} that is not finite")
        return columns


def _without_looking_ahead(prompt: FilmPrompt, answer: Any) -> Iterator[Any]:
    where = f"case {prompt.case_id!r}: the task is online"
    if not isinstance(answer, Iterator):
        raise CaseError(
            f"{where}, and the model answered with a {type(answer).__name__}; expected a generator that yields the "
            "label of each frame before it takes the next"
        )
    for number, labels in enumerate(answer):
        given_out = prompt.film.given_out
        if given_out > number + 1 + prompt.delay:
            raise CaseError(
                f"{where}, and the model took {given_out} frames before it answered frame {number}; at most "
                f"{number + 1 + prompt.delay} are allowed (task.delay={prompt.delay})"
            )
        yield labels


def longest_errors(truth: Array, prediction: Array, most: int) -> list[int]:
    """Starts of the longest errors, in order of time; a truth of -1 is not judged."""
    wrong = (truth >= 0) & (truth != prediction)
    starts = np.flatnonzero(np.r_[True, (np.diff(truth) != 0) | (np.diff(prediction) != 0)])
    lengths = np.diff(np.r_[starts, len(truth)]) * wrong[starts]
    chosen = np.argsort(-lengths, kind="stable")[:most]
    return sorted(int(starts[index]) for index in chosen if lengths[index])


def _class_palette(count: int) -> Array:
    """Class colours, uint8, (class + 1, 3): hues, then white for none."""
    import colorsys

    colours = [
        colorsys.hsv_to_rgb(k / max(count, 1), 0.55 + 0.25 * (k % 2), 0.9 - 0.2 * (k % 3 == 1)) for k in range(count)
    ]
    return np.array([*[[round(255 * part) for part in colour] for colour in colours], [255, 255, 255]], np.uint8)
