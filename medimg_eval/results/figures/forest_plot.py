"""Means, or differences to one model, with their intervals: a forest plot, and on request a radar chart."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval import metrics
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.figures import style
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.inputs import as_runs, by_task, interval_numbers, take, take_metric
from medimg_eval.results.figures.rows import about_rows, lay_rows, marked, row_axes, spread
from medimg_eval.results.runs import LABEL, is_known, is_summary, strata_of
from medimg_eval.results.statistics import FEWEST, TOO_FEW, Interval, Sample, bootstrap_intervals, case_values, units
from medimg_eval.results.table import Settings, make_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medimg_eval.results.figures.inputs import Piece, Pieces, Source
    from medimg_eval.results.figures.style import Width
    from medimg_eval.results.table import Cell, Column

COLUMNS = ["group", "model", "mean", "low", "high", "n", "clusters", "interval"]
PLAIN = Settings(resamples=10_000, level=0.95, seed=0)
"""How intervals are computed where nothing else is said."""


def forest(
    source: Source,
    metric: str,
    *,
    by: str = "",
    label: str = "",
    baseline: str = "",
    width: Width = "single",
    settings: Settings = PLAIN,
) -> Drawn:
    """Forest plot: mean and interval by model, or differences.

    Values are those of a table: of `metric`, which has values of cases or is a summary. Differences to `baseline` are
    means over the cases that both have, with a line where there is none. `by`, `label` and `width` are as in `box`.

    Returns:
        A frame with one row per row of the figure; a bound is NaN where there is no interval.

    Raises:
        UsageError: There is no such metric, label, attribute or model.
        UserError: There is no value to draw.
    """
    across = style.millimetres(width)
    pieces, column = take_metric(source, metric, by=by, label=label)
    if baseline:
        pieces, rows_found = _difference_rows(pieces, metric, baseline, settings)
    else:
        rows_found = [_mean_row(piece, metric, settings) for piece in pieces.members]
    frame = pd.DataFrame.from_records(rows_found, columns=COLUMNS)
    if not frame["mean"].notna().any():
        raise UserError(f"No model has a value of {metric}, so there is nothing to draw")
    title = f"Difference in {column.heading} to {baseline}" if baseline else column.heading
    with style.styled():
        rows = lay_rows(pieces)
        figure, axes = row_axes(rows, across, style.drawable(title), marked, _side_texts(rows_found, column))
        ends = frame[["mean", "low", "high"]].to_numpy(dtype=np.float64).ravel()
        if baseline:
            ends = np.append(ends, 0.0)
            axes.axvline(0, color="black", lw=0.6, ls=(0, (3, 2)), zorder=1)
        spread(axes, float(np.nanmin(ends)), float(np.nanmax(ends)))
        for row, row_found in zip(rows.rows, rows_found, strict=True):
            colour, marker, _ = row.piece.look
            if not math.isnan(row_found["low"]):
                axes.plot(
                    [row_found["low"], row_found["high"]], [row.y, row.y], color=colour, lw=1.2, zorder=2, clip_on=False
                )
            mark: dict[str, Any] = {"s": 14, "color": colour, "linewidths": 0, "zorder": 3, "clip_on": False}
            axes.scatter([row_found["mean"]], [row.y], marker=marker, **mark)
    return Drawn(figure, frame, _make_caption(pieces, column, rows_found, label, baseline))


def _mean_row(piece: Piece, metric: str, settings: Settings) -> dict[str, Any]:
    return _interval_row(piece, make_cell(piece.part, metric, settings), settings)


def _interval_row(piece: Piece, interval: Interval | Cell, settings: Settings) -> dict[str, Any]:
    names = {"group": piece.group, "model": piece.model}
    return names | interval_numbers(interval, settings.level, piece.part.run.unit)


def _difference_rows(
    pieces: Pieces, metric: str, baseline: str, settings: Settings
) -> tuple[Pieces, list[dict[str, Any]]]:
    """Returns the other models with differences to the reference."""
    if is_summary(metric):
        raise UsageError(f"{metric} is one value for a whole run, and differences are of cases; leave out baseline=")
    UsageError.refuse_unknown("No finished run of a model", pieces.models, baseline, then=" has such scores")
    own = {piece.group: piece for piece in pieces.members if piece.model == baseline}
    other_pieces = tuple(piece for piece in pieces.members if piece.model != baseline and piece.group in own)
    if not other_pieces:
        raise UserError(f"There is no other model than {baseline}, so there is no difference to draw")
    rows_found = [
        _interval_row(piece, _mean_difference(piece, own[piece.group], settings), settings) for piece in other_pieces
    ]
    groups = tuple(group for group in pieces.groups if any(piece.group == group for piece in other_pieces))
    models = tuple(model for model in pieces.models if model != baseline)
    kept_pieces = type(pieces)(pieces.task, pieces.title, pieces.by, models, groups, other_pieces, pieces.left_out)
    return kept_pieces, rows_found


def _mean_difference(piece: Piece, other: Piece, settings: Settings) -> Interval:
    """Returns the mean difference over shared cases, resampled as the first's."""
    cases = case_values(piece.part.scores)
    cases = cases.assign(value=cases["value"] - case_values(other.part.scores)["value"].reindex(cases.index))
    run = piece.part.run
    strata = strata_of(run, settings.stratify_by)
    within = None if strata is None else strata.reindex(cases.index.astype(str)).to_numpy(dtype=str)
    sample = Sample(cases["value"].to_numpy(), units(run, cases), strata=within)
    interval = bootstrap_intervals([sample], settings.bootstrap)[0]
    if interval.n and interval.n_clusters < FEWEST:
        return interval._replace(low=math.nan, high=math.nan, method=TOO_FEW)
    return interval


def _side_texts(found: Sequence[dict[str, Any]], column: Column) -> list[str]:
    """Returns texts beside rows, with case numbers where they differ."""
    several = len({row_found["n"] for row_found in found}) > 1
    texts = []
    for row_found in found:
        bounds = (
            ""
            if math.isnan(row_found["low"])
            else f" [{column.text(row_found['low'])}, {column.text(row_found['high'])}]"
        )
        value = f"{column.text(row_found['mean'])}{bounds}" if row_found["n"] else "undefined"
        texts.append(f"{value}  n = {row_found['n']}" if several and row_found["n"] else value)
    return texts


def _make_caption(pieces: Pieces, column: Column, found: Sequence[dict[str, Any]], label: str, baseline: str) -> str:
    on, n = about_rows(pieces, label, [row_found["n"] for row_found in found])
    what = f"Difference in {column.title} to {baseline}, over the cases that both have," if baseline else column.title
    better = {True: "higher is better", False: "lower is better", None: ""}[column.higher_is_better]
    better_text = f"; {better}" if better else ""
    interval_words = " or ".join(
        dict.fromkeys(row_found["interval"] for row_found in found if not math.isnan(row_found["low"]))
    )
    text = f"{what} on {on} ({n}{better_text}). Marks are means, or the value of the run"
    text += f"; lines are intervals: {interval_words}." if interval_words else "."
    if baseline:
        text += " The dashed line is no difference."
    if alone := [row_found for row_found in found if row_found["n"] and math.isnan(row_found["low"])]:
        text += f" {len(alone)} without a line have no interval, for want of {pieces.unit} or of values that differ."
    if baselines := dict.fromkeys(piece.model for piece in pieces.members if piece.baseline):
        text += f" In grey: baselines ({', '.join(baselines)})."
    return text + pieces.end()


RADAR_COLUMNS = ["axis", *COLUMNS[1:]]
_CAUTION = (
    "Read the values along the axes only: the area of a shape depends on the order of the axes and grows with the "
    "square of the values, and the intervals, which are in the numbers, are not drawn. A forest plot shows both."
)


def radar(source: Source, metric: str, *, by: str = "", width: Width = "single", settings: Settings = PLAIN) -> Drawn:
    """Radar chart: axes for tasks, labels or groups; lines for models.

    Axes go from 0 in the middle to 1. The frame has a row per axis and model.

    Args:
        source: Runs, or a frame of scores; see `inputs.Source`.
        metric: A metric from 0 to 1 of which higher is better.
        by: "label" or an attribute: its values are the axes. "": tasks are, or labels where there is one task.
        width: "single" (89 mm), "double" (183 mm), or mm.
        settings: How the intervals in the frame are computed.

    Raises:
        UsageError: The metric is not from 0 to 1, there is no such label or attribute, there are several tasks to be
            divided, or fewer than three axes.
        UserError: No run is finished.
    """
    across = style.millimetres(width)
    runs = as_runs(source, metric)
    tasks = by_task(runs)
    if len(tasks) > 1 and by:
        raise UsageError(f"by={by} makes axes of one task, and these runs are of {len(tasks)}: {', '.join(tasks)}")
    records: list[dict[str, Any]] = []
    models: dict[str, tuple[int, bool]] = {}
    ends: dict[str, None] = {}
    for task_rows in tasks.values():
        pieces = take(task_rows, [metric], by=by if len(tasks) > 1 else by or LABEL)
        ends |= dict.fromkeys(pieces.left_out)
        for piece in pieces.members:
            models.setdefault(piece.model, (len(models), piece.baseline))
            records.append({"axis": piece.group or pieces.title, **_mean_row(piece, metric, settings)})
    frame = pd.DataFrame.from_records(records, columns=RADAR_COLUMNS)
    _check_radar(frame, metric)
    title = metrics.title(metric) if is_known(metric) else metric
    axes_of = list(dict.fromkeys(frame["axis"]))
    figure = _draw_radar(frame, axes_of, models, across)
    left_out = "".join(f" Left out: {note}." for note in ends)
    least, most = frame["n"].min(), frame["n"].max()
    counts = f"n = {least if least == most else f'{least} to {most}'} cases on an axis"
    caption = f"{title} on {len(axes_of)} axes ({counts}), from 0 in the middle to 1. {_CAUTION}{left_out}"
    return Drawn(figure, frame, caption)


def _check_radar(frame: pd.DataFrame, metric: str) -> None:
    if (number := frame["axis"].nunique()) < 3:
        raise UsageError(f"a radar chart needs three axes, and there are {number}; draw kind=forest")
    values = frame["mean"].dropna()
    definition = metrics.get(metric) if is_known(metric) else None
    upwards = definition is None or (definition.higher_is_better and not definition.unit)
    if not upwards or not values.between(0, 1).all():
        raise UsageError(
            f"a radar chart shows what lies from 0, worst, to 1, best, and {metric} does not; draw kind=forest"
        )


def _draw_radar(frame: pd.DataFrame, names: list[str], places: dict[str, tuple[int, bool]], width: float) -> Any:
    from matplotlib.lines import Line2D

    texts = [style.wrapped(model) for model in places]
    legend = style.legend_height(texts, width)[1]
    with style.styled():
        side = min(width, 110.0)
        figure = style.canvas(width, side * 0.85 + legend)
        axes: Any = figure.subplots(subplot_kw={"projection": "polar"})
        angles = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        axes.set_xticks(angles, [style.wrapped(name, 18) for name in names])
        axes.set_ylim(0, 1)
        axes.set_yticks([0.25, 0.5, 0.75, 1.0])
        axes.grid(visible=True, lw=0.3)
        handles = []
        for model, (index, baseline) in places.items():
            means = frame.loc[frame["model"] == model].set_index("axis")["mean"].reindex(names).to_numpy()
            colour, marker, line = style.look(index, baseline=baseline)
            stroke = {"color": colour, "marker": marker, "ls": line, "lw": 0.9, "ms": 3, "clip_on": False}
            axes.plot(np.append(angles, angles[0]), np.append(means, means[:1]), **stroke)
            handles.append(Line2D([], [], **{name: value for name, value in stroke.items() if name != "clip_on"}))
        style.add_legend(figure, handles, texts, width)
    return figure
