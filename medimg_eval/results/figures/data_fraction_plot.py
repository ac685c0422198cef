"""Scores against how many patients a model was fitted on: data-fraction curves and few shots."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.figures import style
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.inputs import interval_methods, interval_numbers, named_range, take, take_metric
from medimg_eval.results.runs import Part, subset_key
from medimg_eval.results.table import Settings, make_cell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from medimg_eval.results.figures.inputs import Piece, Pieces, Source
    from medimg_eval.results.figures.style import Width

COLUMNS = ["model", "kind", "size", "draw", "patients", "cases", "mean", "low", "high", "n", "clusters", "interval"]
ALL_DRAWS = "mean"
"""Stands for the draw in rows of the mean over all of a size."""
PLAIN = Settings(resamples=10_000, level=0.95, seed=0)
_HEIGHT = 55.0
"""mm, without the legend."""


def data_fraction(
    source: Source,
    metric: str,
    *,
    label: str = "",
    target: float | None = None,
    width: Width = "single",
    settings: Settings = PLAIN,
) -> Drawn:
    """Data-fraction curve: metric by fitted patients, draws and mean.

    Runs of the same task that were fitted on no subsets, such as a zero-shot model, are horizontal lines. `label` and
    `width` are as in `box`.

    Args:
        source: Runs of `test fraction=` or `test shots=`.
        metric: What is drawn.
        label: The only label.
        target: A value of the metric: the caption says at how many patients draws first reach it.
        width: Of the figure.
        settings: Of intervals, which resample test patients.

    Returns:
        A frame with a row per model, size and draw, and one of the mean over draws, with its interval.

    Raises:
        UsageError: There is no such metric or label, or the target is invalid.
        UserError: No run was fitted on subsets, or none has a value.
    """
    if target is not None and (isinstance(target, bool) or not isinstance(target, int | float)):
        raise UsageError(f"target must be a number, a value of {metric}, got {target!r}")
    across = style.millimetres(width)
    pieces, column = take_metric(source, metric, label=label)
    if target is not None and column.higher_is_better is None:
        raise UsageError(f"target={target:g}: of {metric} neither more nor less is better")
    rows = [row for piece in pieces.members for row in _piece_rows(piece, metric, label, settings, pieces.unit)]
    frame = pd.DataFrame.from_records(rows, columns=COLUMNS)
    if frame["patients"].isna().all():
        raise UserError(
            "No run was fitted on subsets; make one by `fit fraction=[0.1,1]` and `test fraction=[0.1,1]`, or by shots="
        )
    if not frame["mean"].notna().any():
        raise UserError(f"No run has a value of {metric}, so there is nothing to draw")
    with style.styled():
        figure = _draw_figure(pieces, frame, style.drawable(column.heading), target, across)
    means = frame[frame["draw"] == ALL_DRAWS]
    interval_words = interval_methods(means)
    counts = pieces.sized(means["n"].tolist(), means["clusters"].tolist())
    draws = named_range(
        [len({subset["draw"] for subset in p.part.run.subsets}) for p in pieces.members if p.part.run.subsets]
    )
    text = (
        f"{column.title} on {pieces.title}{f', label {label}' * bool(label)} by {_who(pieces)} fitted on ({counts}). "
    )
    text += f"Small marks are single draws ({draws} of each size, smaller within larger), lines their mean"
    text += f"; bands are intervals of it: {interval_words}." if interval_words else "."
    if any(not piece.part.run.subsets for piece in pieces.members):
        text += " Horizontal lines are models that were fitted on no subset."
    for piece in pieces.members:
        if target is not None and piece.part.run.subsets:
            own = frame[frame["model"] == piece.model]
            reach_text = _describe_target(
                own, target, settings.level, _who(pieces), higher=column.higher_is_better is True
            )
            text += f" {piece.model}: {reach_text}"
    return Drawn(figure, frame, text + pieces.end())


def _piece_rows(piece: Piece, metric: str, label: str, settings: Settings, unit: str) -> list[dict[str, Any]]:
    run, rows = piece.part.run, []

    def row(part: Part, how: Settings, **place: Any) -> dict[str, Any]:
        cell = make_cell(part, metric, how)
        return {"model": piece.model, **place, **interval_numbers(cell, how.level, unit)}

    if not run.subsets:
        nothing = {"kind": "", "size": math.nan, "draw": ALL_DRAWS, "patients": math.nan, "cases": math.nan}
        return [row(piece.part, settings, **nothing)]
    sizes = sorted({subset["size"] for subset in run.subsets})
    for size in sizes:
        drawn = [subset for subset in run.subsets if subset["size"] == size]
        part = piece.part
        if size != sizes[-1]:
            some = run.under(subset_key(drawn[0]["kind"], size))
            if some.scores.empty:
                continue
            part = take([some], [metric], label=label).members[0].part
        fields = {"kind": drawn[0]["kind"], "size": size}
        counts = {key: float(np.mean([subset[key] for subset in drawn])) for key in ("patients", "cases")}
        rows.append(row(part, settings, **fields, draw=ALL_DRAWS, **counts))
        for subset in drawn:
            alone = part
            if "repeat" in part.scores.columns:
                scores = part.scores.loc[part.scores["repeat"] == subset["draw"]].drop(columns="repeat")
                alone = Part(part.run, scores, part.clusters, part.of)
            value_row = row(alone, settings._replace(resamples=1), **fields, draw=str(subset["draw"]))
            rows.append(
                value_row | {key: subset[key] for key in counts} | {"low": math.nan, "high": math.nan, "interval": ""}
            )
    return rows


def _who(pieces: Pieces) -> str:
    return "cases" if pieces.some.resampled == "cases" else "patients"


def _describe_target(rows: pd.DataFrame, target: float, level: float, who: str, *, higher: bool) -> str:
    """Says at how many patients draws of one model first reach a value."""
    least = []
    for _, draw in rows[rows["draw"] != ALL_DRAWS].groupby("draw"):
        reached = draw[draw["mean"] >= target] if higher else draw[draw["mean"] <= target]
        first = reached.sort_values("size").head(1)
        least.append((float(first["patients"].iloc[0]), float(first["size"].iloc[0])) if len(first) else _NEVER)
    kind = rows["kind"].iloc[0]
    low, high, coverage = median_bounds([patients for patients, _ in least], level)
    some = sum(count is not _NEVER for count in least)
    patients, size = sorted(least)[len(least) // 2] if len(least) % 2 else sorted(least)[len(least) // 2 - 1]
    if math.isinf(patients):
        return f"{target:g} is not reached in half of the draws ({some} of {len(least)} reach it)."
    text = f"{target:g} is reached with {patients:g} {who} ({kind} {size:g}), the median of {len(least)} draws"
    if not math.isnan(low):
        text += f", {100 * coverage:.3g} % interval of it {low:g} to {'never' if math.isinf(high) else f'{high:g}'}"
    return f"{text}; {some} of {len(least)} reach it."


_NEVER = (math.inf, math.inf)


def median_bounds(values: Sequence[float], level: float) -> tuple[float, float, float]:
    """Bounds of the median from order statistics, free of any distribution.

    Args:
        values: One per draw; infinity where there is none.
        level: Coverage that is wanted, 0 to 1.

    Returns:
        Low, high, and the coverage they have at least: the narrowest bounds that reach the level, or the smallest and
        the largest value where even they do not. NaN of fewer than three values.
    """
    ranked, count = sorted(values), len(values)
    if count < 3:
        return math.nan, math.nan, math.nan
    below = np.cumsum([math.comb(count, index) for index in range(count)]) / 2.0**count
    able = [index for index in range(count // 2) if 1 - 2 * below[index] >= level]
    rank = able[-1] if able else 0
    return ranked[rank], ranked[count - 1 - rank], float(1 - 2 * below[rank])


def _draw_figure(pieces: Pieces, frame: pd.DataFrame, title: str, target: float | None, width: float) -> Figure:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import NullLocator

    texts = [style.wrapped(piece.model) for piece in pieces.members]
    legend = style.legend_height(texts, width)[1] if len(texts) > 1 else 0.0
    figure = style.canvas(width, _HEIGHT + legend)
    axes = figure.subplots()
    handles = []
    for piece in pieces.members:
        colour, marker, line = piece.look
        rows = frame[frame["model"] == piece.model]
        means = rows[rows["draw"] == ALL_DRAWS]
        if not piece.part.run.subsets:
            axes.axhline(float(means["mean"].iloc[0]), color=colour, ls=line)
            handles.append(Line2D([], [], color=colour, ls=line))
            continue
        at, mean, low, high = (means[key].to_numpy(dtype=np.float64) for key in ("patients", "mean", "low", "high"))
        axes.fill_between(at, low, high, color=colour, alpha=0.15, lw=0)
        axes.vlines(at, low, high, color=colour, lw=0.6)
        single = rows[rows["draw"] != ALL_DRAWS]
        axes.plot(single["patients"], single["mean"], color=colour, marker=marker, ls="", ms=1.8, alpha=0.6)
        axes.plot(at, mean, color=colour, marker=marker, ls=line)
        handles.append(Line2D([], [], color=colour, marker=marker, ls=line))
    if target is not None:
        axes.axhline(target, color=style.QUIET, lw=0.6, ls=":")
    axes.set_xscale("log")
    ticks = sorted({round(value) for value in frame.loc[frame["draw"] == ALL_DRAWS, "patients"].dropna()})
    axes.set_xticks(ticks, spaced_labels(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"{_who(pieces).capitalize()} fitted on")
    axes.set_ylabel(title)
    if legend:
        style.add_legend(figure, handles, texts, width)
    return figure


def spaced_labels(ticks: Sequence[int]) -> list[str]:
    """Texts of sizes on a logarithmic axis; "" for one that would touch the next larger."""
    labels = [f"{tick:,}" for tick in ticks]
    span = np.log(ticks[-1] / ticks[0]) if len(ticks) > 1 else 1.0
    for place in reversed(range(len(ticks) - 1)):
        larger = next(other for other in range(place + 1, len(ticks)) if labels[other])
        letters = (len(labels[place]) + len(labels[larger])) / 2
        if np.log(ticks[larger] / ticks[place]) < 0.02 * (1 + letters) * span:
            labels[place] = ""
    return labels
