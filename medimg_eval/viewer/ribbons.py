"""Figures of films: ribbons of truth and prediction, and matrices of confusions and of transitions between phases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.case import Array
from medimg_eval.errors import UsageError, nearest
from medimg_eval.evaluation.run import Run
from medimg_eval.results import RunScores
from medimg_eval.results.figures import Drawn, canvas, drawable, millimetres, styled, wrapped
from medimg_eval.tasks import Task

if TYPE_CHECKING:
    from medimg_eval.results.figures import Width

RIBBONS, CONFUSION, TRANSITIONS = "ribbons", "phase_confusion", "phase_transitions"

FEW = 4
"""Films that are drawn where none are named."""

BAND = 18.0
"""mm of a film: two ribbons, the errors, and its name."""

NONE = "(none)"


class Phases(NamedTuple):
    """Phases of a film.

    Attributes:
        case: its id.
        seconds: of each frame, float64, (frame,).
        truth: place of each frame's phase, int64, (frame,); -1 where it is not judged.
        prediction: the same as predicted; -1 for none.
    """

    case: str
    seconds: Array
    truth: Array
    prediction: Array


def draw_films(kind: str, run: RunScores, task: Task, names: Sequence[str] | None, width: Width) -> Drawn | None:
    """Figure of a film run, else None; UsageError for unknown cases."""
    if not task.phase_names:
        return None
    films = list(_read_films(run, task, names, FEW if kind == RIBBONS else None))
    if not films:
        return None
    if kind == RIBBONS:
        return ribbon_figure(films, task.phase_names, run.model, width)
    if kind == CONFUSION:
        return matrix_figure(confusion_frame(films, task.phase_names), run.model, "truth", "prediction", width)
    return matrix_figure(transition_frame(films, task.phase_names), run.model, "from", "to", width)


def _read_films(run: RunScores, task: Task, names: Sequence[str] | None, most: int | None) -> Iterator[Phases]:
    stored = Run(run.folder, run.run)
    trials = stored.trials()
    answers = {trials[name].case: answer for name, answer in stored.predictions().items()}
    cases = {case.id: case for case in task.cases("test") if case.id in answers}
    missing = next((name for name in names or () if name not in cases), None)
    if missing is not None:
        raise UsageError(f"{run.folder}: has no answer of case {missing!r}{nearest(missing, list(cases))}")
    for name in list(names) if names else list(cases)[:most]:
        answer = answers[name]
        answer_ = task.codec.read(answer) if isinstance(answer, Path) else answer
        yield Phases(name, *task.phase_tracks(cases[name], answer_))


def ribbon_figure(films: Sequence[Phases], phases: Sequence[str], model: str, width: Width = "double") -> Drawn:
    """Draws the truth of each film above its prediction, errors marked below.

    The frame has a row for each stretch of equal truth and prediction.
    """
    import matplotlib as mpl
    from matplotlib.patches import Patch

    colours = np.array([mpl.colormaps["tab20"](index % 20)[:3] for index in range(len(phases))] + [(1.0, 1.0, 1.0)])
    across = millimetres(width)
    keys = -(-len(phases) // 3)
    with styled():
        figure = canvas(across, BAND * len(films) + 5.0 * keys + 8)
        axes = figure.subplots(len(films), 1, squeeze=False)[:, 0]
        for axis, film in zip(axes, films, strict=True):
            wrong = (film.truth >= 0) & (film.truth != film.prediction)
            marks = np.where(wrong[:, None], [0.78, 0.12, 0.12], 1.0)
            extent = (film.seconds[0], film.seconds[-1] + 1, 0, 1)
            rows = np.stack([colours[film.truth], colours[film.prediction], marks])
            axis.imshow(rows, extent=extent, aspect="auto", interpolation="nearest")
            axis.set_yticks([5 / 6, 1 / 2, 1 / 6], ["truth", "prediction", "errors"])
            axis.set_title(drawable(wrapped(film.case)), loc="left")
        axes[-1].set_xlabel("seconds")
        patches = [Patch(color=colours[index], label=drawable(name)) for index, name in enumerate(phases)]
        figure.legend(handles=patches, loc="outside lower center", ncols=3)
    frame = pd.concat([_phase_stretches(film, phases) for film in films], ignore_index=True)
    frame.insert(1, "model", model)
    caption = (
        f"Phases of {len(films)} films by {model}: the truth above the prediction, white where there is none, and "
        "below in red the frames that differ. Frames that are not judged are no errors."
    )
    return Drawn(figure, frame, caption)


def _phase_stretches(film: Phases, phases: Sequence[str]) -> pd.DataFrame:
    changes = (np.diff(film.truth) != 0) | (np.diff(film.prediction) != 0)
    starts = np.r_[0, np.flatnonzero(changes) + 1]
    names = np.array([*phases, NONE], object)
    return pd.DataFrame(
        {
            "case": film.case,
            "start": film.seconds[starts],
            "truth": names[film.truth[starts]],
            "prediction": names[film.prediction[starts]],
            "n": np.diff(np.r_[starts, len(film.truth)]),
            "interval": "",
        }
    )


def confusion_frame(films: Sequence[Phases], phases: Sequence[str]) -> pd.DataFrame:
    """Confusion counts over all films, with row shares."""
    size = len(phases)
    counts = np.zeros((size, size + 1))
    for film in films:
        judged = film.truth >= 0
        np.add.at(counts, (film.truth[judged], film.prediction[judged]), 1)
    return _count_shares(counts, "truth", "prediction", phases, [*phases, NONE])


def transition_frame(films: Sequence[Phases], phases: Sequence[str]) -> pd.DataFrame:
    """Phase transitions with row shares; `true` counts the reference's."""
    size = len(phases)
    tables = []
    for side in ("prediction", "truth"):
        counts = np.zeros((size, size))
        for film in films:
            track = getattr(film, side)
            track = track[track >= 0]
            before, after = track[:-1], track[1:]
            np.add.at(counts, (before[before != after], after[before != after]), 1)
        tables.append(_count_shares(counts, "from", "to", phases, phases))
    return tables[0].assign(true=tables[1]["n"])


def _count_shares(counts: Array, first: str, second: str, rows: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    totals = counts.sum(1, keepdims=True)
    shares = np.divide(counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)
    held: Mapping[str, Any] = {
        first: np.repeat(np.array(rows, object), len(columns)),
        second: np.tile(np.array(columns, object), len(rows)),
        "value": shares.ravel(),
        "n": counts.ravel().astype(int),
        "interval": "",
    }
    return pd.DataFrame(held)


def matrix_figure(frame: pd.DataFrame, model: str, first: str, second: str, width: Width = "single") -> Drawn:
    """Draws row shares as a matrix with counts."""
    rows, columns = list(dict.fromkeys(frame[first])), list(dict.fromkeys(frame[second]))
    shares = frame["value"].to_numpy().reshape(len(rows), len(columns))
    counts = frame["n"].to_numpy().reshape(shares.shape)
    across = millimetres(width)
    with styled():
        figure = canvas(across, across * 0.9)
        axis = figure.subplots()
        axis.imshow(np.nan_to_num(shares), cmap="Blues", vmin=0, vmax=1)
        for row, column in np.argwhere(counts > 0):
            tone = "white" if shares[row, column] > 0.5 else "black"
            axis.text(column, row, str(counts[row, column]), ha="center", va="center", color=tone, fontsize="xx-small")
        axis.set_xticks(range(len(columns)), [drawable(str(name)) for name in columns], rotation=45, ha="right")
        axis.set_yticks(range(len(rows)), [drawable(str(name)) for name in rows])
        axis.set(xlabel=second, ylabel=first)
    title = "Frames by truth and prediction" if first == "truth" else "Changes between predicted phases"
    caption = f"{title} of {model}. Colours are shares of each row, numbers are counts over all films."
    return Drawn(figure, frame.assign(model=model), caption)
