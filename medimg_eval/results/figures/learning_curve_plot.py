"""Scores of the checkpoints of a training against the step, or the epoch, that they were written at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval.errors import UserError
from medimg_eval.results.figures import style
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.inputs import interval_methods, interval_numbers, take_metric
from medimg_eval.results.table import Settings, make_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from medimg_eval.results.figures.inputs import Pieces, Source
    from medimg_eval.results.figures.style import Width

COLUMNS = ["series", "model", "unit", "at", "mean", "low", "high", "n", "clusters", "interval"]
UNITS = ("step", "epoch")
PLAIN = Settings(resamples=10_000, level=0.95, seed=0)
_HEIGHT = 55.0
"""mm, without the legend."""


def learning_curve(
    source: Source, metric: str, *, label: str = "", width: Width = "single", settings: Settings = PLAIN
) -> Drawn:
    """Learning curve: metric with interval by checkpoint and training.

    The horizontal axis holds steps where all checkpoints have one, else epochs. Runs that are of no checkpoint with a
    step are left out and named. `label` and `width` are as in `box`.

    Returns:
        A frame with a row per checkpoint: `at` in `unit`, and the numbers of a forest plot.

    Raises:
        UsageError: There is no such metric or label.
        UserError: No run is of a checkpoint with a step or an epoch, or none has a value.
    """
    across = style.millimetres(width)
    pieces, column = take_metric(source, metric, label=label)
    frame, lacking = _curve_numbers(pieces, metric, settings)
    if not frame["mean"].notna().any():
        raise UserError(f"No checkpoint has a value of {metric}, so there is nothing to draw")
    with style.styled():
        figure = _draw_figure(frame, style.drawable(column.heading), across)
    unit, up = frame["unit"].iloc[0], column.higher_is_better
    best = None if up is None else "highest" if up else "lowest"
    counts = pieces.sized(frame["n"].tolist(), frame["clusters"].tolist())
    interval_words = interval_methods(frame)
    text = f"{column.title} on {pieces.title}{f', label {label}' * bool(label)} by {unit} ({counts}). "
    text += f"Marks are means; bands are intervals: {interval_words}." if interval_words else "Marks are means."
    if best is not None:
        text += f" The {best} of many is too good an estimate of what that checkpoint does on other cases."
    left_out = "".join(f" Left out: {note}." for note in lacking) + pieces.end()
    return Drawn(figure, frame, text + left_out)


def _curve_numbers(pieces: Pieces, metric: str, settings: Settings) -> tuple[pd.DataFrame, list[str]]:
    """Rows by series and position, and models without one."""
    stated = {piece.model: piece.part.run.training for piece in pieces.members}
    units = {unit: [name for name, training in stated.items() if unit in training] for unit in UNITS}
    unit = max(UNITS, key=lambda one: len(units[one]))  # of as many of both the first
    if not units[unit]:
        raise UserError(
            "No run is of a checkpoint whose step is known; make such runs by `test checkpoints=FOLDER`, from files "
            "whose names tell it, as epoch=3-step=500.ckpt does"
        )
    rows: list[dict[str, Any]] = []
    for piece in pieces.members:
        training = stated[piece.model]
        if unit not in training:
            continue
        cell = make_cell(piece.part, metric, settings)
        series, at = str(training.get("series", piece.model)), float(training[unit])
        fields = {"series": series, "model": piece.model, "unit": unit, "at": at}
        rows.append(fields | interval_numbers(cell, settings.level, pieces.unit))
    lacking = [f"{name} (no {unit})" for name in stated if name not in units[unit]]
    return pd.DataFrame.from_records(rows, columns=COLUMNS).sort_values(["series", "at"], ignore_index=True), lacking


def _draw_figure(frame: pd.DataFrame, title: str, width: float) -> Figure:
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(frame["series"]))
    texts = [style.wrapped(name) for name in names]
    legend = style.legend_height(texts, width)[1] if len(names) > 1 else 0.0
    figure = style.canvas(width, _HEIGHT + legend)
    axes = figure.subplots()
    handles = []
    for index, name in enumerate(names):
        rows = frame[frame["series"] == name]
        colour, marker, line = style.look(index)
        at, mean, low, high = (rows[key].to_numpy(dtype=np.float64) for key in ("at", "mean", "low", "high"))
        axes.fill_between(at, low, high, color=colour, alpha=0.15, lw=0)
        # A single checkpoint has no band, and one between two without an interval is in none.
        axes.vlines(at, low, high, color=colour, lw=0.6)
        axes.plot(at, mean, color=colour, marker=marker, ls=line)
        handles.append(Line2D([], [], color=colour, marker=marker, ls=line))
    axes.set_xlabel(str(frame["unit"].iloc[0]).capitalize())
    axes.set_ylabel(title)
    if legend:
        style.add_legend(figure, handles, texts, width)
    return figure
