"""Scores against the severity of degradations: a panel for each degradation, a line for each model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval.errors import UserError
from medimg_eval.results.figures import style
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.inputs import interval_methods, interval_numbers, take, take_metric
from medimg_eval.results.runs import is_set, is_summary, list_sweeps
from medimg_eval.results.table import Cell, Settings, make_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from medimg_eval.results.figures.inputs import Piece, Pieces, Source
    from medimg_eval.results.figures.style import Width

COLUMNS = ["model", "degradation", "severity", "mean", "low", "high", "n", "clusters", "interval"]
COLUMNS += ["slope", "slope low", "slope high"]
PLAIN = Settings(resamples=10_000, level=0.95, seed=0)
_PANEL = 42.0
"""Height of a panel in mm."""
_NO_SLOPE = Cell()
"""Of what is no metric of cases."""


def severity(
    source: Source, metric: str, *, label: str = "", width: Width = "double", settings: Settings = PLAIN
) -> Drawn:
    """Severity curves: metric by degradation, from published cases at 0.

    For metrics of cases the frame also has the slope: of each case that all severities have, the least-squares line
    over severity; the mean over cases, with an interval by patients. `label` and `width` are as in `box`.

    Args:
        source: Runs of `test degrade=[...] severities=[...]`.
        metric: What is drawn.
        label: The only label.
        width: Of the figure.
        settings: Of intervals, which resample test patients.

    Returns:
        A frame with a row per model, degradation and severity.

    Raises:
        UsageError: There is no such metric or label.
        UserError: No run has degraded cases, or none has a value.
    """
    across = style.millimetres(width)
    pieces, column = take_metric(source, metric, label=label)
    rows = [row for piece in pieces.members for row in _piece_rows(piece, metric, label, settings, pieces.unit)]
    frame = pd.DataFrame.from_records(rows, columns=COLUMNS)
    if frame.empty:
        raise UserError("No run has degraded cases; make one by `test degrade=[NAME] severities=[1,3,5]`")
    if not frame["mean"].notna().any():
        raise UserError(f"No run has a value of {metric}, so there is nothing to draw")
    with style.styled():
        figure = _draw_figure(pieces, frame, style.drawable(column.heading), across)
    interval_words = interval_methods(frame)
    counts = pieces.sized(frame["n"].tolist(), frame["clusters"].tolist())
    text = (
        f"{column.title} on {pieces.title}{f', label {label}' * bool(label)} by severity of degradations ({counts}); "
    )
    text += "0 is the cases as published"
    text += f"; bands are intervals: {interval_words}." if interval_words else "."
    return Drawn(figure, frame, text + _describe_steepest(frame) + pieces.end())


def _piece_rows(piece: Piece, metric: str, label: str, settings: Settings, unit: str) -> list[dict[str, Any]]:
    run, is_whole = piece.part.run, is_summary(metric) or is_set(metric)
    rows = []
    for degradation, severities in list_sweeps(run.conditions).items():
        parts = {0: piece.part}
        for number in severities:
            some = run.under(f"{degradation}-{number}")
            if not some.scores.empty:
                parts[number] = take([some], [metric], label=label).members[0].part
        slope = _NO_SLOPE if is_whole else make_cell(piece.part, f"severity_slope@{degradation}:{metric}", settings)
        for number, part in parts.items():
            fields = {"model": piece.model, "degradation": degradation, "severity": number}
            numbers = interval_numbers(make_cell(part, metric, settings), settings.level, unit)
            rows.append({**fields, **numbers, "slope": slope.mean, "slope low": slope.low, "slope high": slope.high})
    return rows


def _describe_steepest(frame: pd.DataFrame) -> str:
    """Says of each model under which degradation its line is steepest."""
    sentences = []
    for model, rows in frame.dropna(subset=["slope"]).groupby("model", sort=False):
        row = rows.iloc[int(np.argmax(np.abs(rows["slope"].to_numpy(np.float64))))]
        bounds = f" [{row['slope low']:.3g}, {row['slope high']:.3g}]" * (not math.isnan(row["slope low"]))
        sentences.append(
            f" {model}: steepest under {row['degradation']}, {row['slope']:.3g}{bounds} a degree of severity."
        )
    return "".join(sentences)


def _draw_figure(pieces: Pieces, frame: pd.DataFrame, title: str, width: float) -> Figure:
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(frame["degradation"]))
    shape = style.panel_grid(len(names), width)
    texts = [style.wrapped(piece.model) for piece in pieces.members]
    legend = style.legend_height(texts, width)[1] if len(texts) > 1 else 0.0
    figure = style.canvas(width, _PANEL * shape[0] + legend)
    handles = [Line2D([], [], color=p.look[0], marker=p.look[1], ls=p.look[2]) for p in pieces.members]
    every = style.panels(figure, len(names), shape)
    low, high = float(frame[["low", "mean"]].min().min()), float(frame[["high", "mean"]].max().max())
    room = 0.04 * (high - low) or 0.01
    for axes, name in zip(every, names, strict=True):
        for piece in pieces.members:
            rows = frame[(frame["model"] == piece.model) & (frame["degradation"] == name)]
            at, mean = rows["severity"].to_numpy(), rows["mean"].to_numpy(np.float64)
            colour, marker, line = piece.look
            bounds = (rows[key].to_numpy(np.float64) for key in ("low", "high"))
            axes.fill_between(at, *bounds, color=colour, alpha=0.15, lw=0)
            axes.plot(at, mean, color=colour, marker=marker, ls=line)
        axes.set_ylim(low - room, high + room)
        axes.set_title(style.drawable(name))
        axes.set_xticks(sorted(set(frame["severity"])))
        axes.set_xlabel("Severity")
    for axes in every[:: shape[1]]:
        axes.set_ylabel(title)
    if legend:
        style.add_legend(figure, handles, texts, width)
    return figure
