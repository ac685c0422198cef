"""How scores of cases are spread: box, violin and strip, with lines between two models' values of one case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.forest_plot import PLAIN
from medimg_eval.results.figures.inputs import as_runs, interval_text, take
from medimg_eval.results.figures.rows import HALF, about_rows, lay_rows, marked, row_axes, spread
from medimg_eval.results.figures.style import QUIET, drawable, jitter, millimetres, styled
from medimg_eval.results.runs import is_evidence, is_summary
from medimg_eval.results.statistics import case_values
from medimg_eval.results.table import make_cell, make_column

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from medimg_eval.results.figures.inputs import Pieces, Source
    from medimg_eval.results.figures.rows import Row, Rows
    from medimg_eval.results.figures.style import Width

Kind = Literal["box", "violin", "strip"]
Values = dict[tuple[str, str], "pd.Series[float]"]
Tables = dict[tuple[str, str], pd.DataFrame]
Records = list[dict[str, Any]]

_STEPS = 64
"""Points at which the outline of a violin is drawn."""
COLUMNS = ["group", "model", "what", "case", "value", "low", "high", "density", "n", "interval"]

_MEANING = {
    "box": "Box: median and quartiles; whiskers reach the farthest value within 1.5 quartile distances, values beyond "
    "them are dots; the mark is the mean",
    "violin": "Violin: density (Gaussian kernels, Scott's width), cut at the smallest and largest value; the line "
    "spans the quartiles, the mark is the median",
    "strip": "A dot per case; the mark is the mean, the line its interval ({made})",
}
_INTERVAL = {"box": "quartiles", "violin": "quartiles", "strip": ""}


def box(
    source: Source, metric: str, *, by: str = "", label: str = "", paired: bool = False, width: Width = "single"
) -> Drawn:
    """Box per model: median, quartiles, whiskers within 1.5 quartile distances.

    Args:
        source: Runs of one task, or a frame of scores; see `inputs.Source`.
        metric: A metric of single cases. A case counts with the mean over its labels.
        by: "label" or an attribute: a block of rows for each label or group; "" for none.
        label: The only label to draw; "" for all.
        paired: Whether the values of one case under two models are joined.
        width: "single" (89 mm), "double" (183 mm), or mm.

    Returns:
        A frame with a row for each `what`: `low` and `high` whisker, `q1`, `median`, `q3`, `mean`, and `outlier`; with
        `paired` also `case`.

    Raises:
        UsageError: There is no such metric, label or attribute, or not two models to join.
        UserError: There is no value to draw.

    Source: Tukey, Exploratory Data Analysis (1977); quartiles by linear interpolation.
    """
    return _draw_distributions("box", source, metric, by=by, label=label, paired=paired, width=width)


def violin(
    source: Source, metric: str, *, by: str = "", label: str = "", paired: bool = False, width: Width = "single"
) -> Drawn:
    """Violin per model: density between extremes; otherwise as `box`.

    The frame has `density` at 64 values, and `q1`, `median` and `q3`.

    Source: Hintze & Nelson, The American Statistician 52, 1998; the width is Scott's.
    """
    return _draw_distributions("violin", source, metric, by=by, label=label, paired=paired, width=width)


def strip(
    source: Source, metric: str, *, by: str = "", label: str = "", paired: bool = False, width: Width = "single"
) -> Drawn:
    """Dots per case and model, with 95 % interval; otherwise as `box`.

    A case lies at the same height in the rows of all models. The frame has a row per `case`, and the `mean` with its
    bounds.
    """
    return _draw_distributions("strip", source, metric, by=by, label=label, paired=paired, width=width)


def _draw_distributions(
    kind: Kind, source: Source, metric: str, *, by: str, label: str, paired: bool, width: Width
) -> Drawn:
    if is_summary(metric) or is_evidence(metric):
        raise UsageError(f"{metric} is no score of a case, of which kind={kind} shows the spread; draw kind=forest")
    across = millimetres(width)
    pieces = take(as_runs(source, metric), [metric], by=by, label=label)
    tables = {(piece.group, piece.model): case_values(piece.part.scores) for piece in pieces.members}
    values: Values = {key: table["value"].dropna() for key, table in tables.items()}
    if not any(len(row_values) for row_values in values.values()):
        raise UserError(f"No case has a value of {metric}, so there is nothing to draw")
    if paired and len(pieces.models) != 2:
        raise UsageError(f"paired=true joins the cases of two models, and there are {len(pieces.models)}; name two")
    column = make_column(pieces.task, pieces.title, metric, pieces.some)
    records: Records = []
    with styled():
        rows = lay_rows(pieces, roomy=paired)
        counts = [len(values[_piece_key(row)]) for row in rows.rows]
        notes = [f"n = {count}" for count in counts] if len(set(counts)) > 1 else []
        figure, axes = row_axes(rows, across, drawable(column.heading), marked, notes)
        pairs: Records = []
        joined = ""
        if paired:
            pairs, (both, single) = _join_pairs(axes, rows, values, dots=kind == "strip")
            unpaired_text = f"; {single} that only one model has are not joined" if single else ""
            joined = f" Lines join the two values of a case ({both} pairs{unpaired_text})."
        for row in rows.rows:
            row_values = values[_piece_key(row)]
            if len(row_values):
                numbers = _MARKS[kind](axes, row, row_values, metric)
                records += [_make_record(row, len(row_values), number, _INTERVAL[kind]) for number in numbers]
        bounds = [record[end] for record in records for end in ("low", "high") if not np.isnan(record.get(end, np.nan))]
        ends = np.concatenate([bounds, *(row_values.to_numpy() for row_values in values.values())])
        spread(axes, float(ends.min()), float(ends.max()))
    caption = _make_caption(kind, pieces, column.title, label, tables, records) + joined + pieces.end()
    if kind != "strip":
        # A strip has its cases as dots already.
        records += pairs
    frame = pd.DataFrame.from_records(records, columns=COLUMNS)
    return Drawn(figure, frame.dropna(axis="columns", how="all"), caption)


def _piece_key(row: Row) -> tuple[str, str]:
    return row.piece.group, row.piece.model


def _make_record(row: Row, n: int, numbers: dict[str, Any], interval: str) -> dict[str, Any]:
    fields = {"group": row.piece.group, "model": row.piece.model, "n": n, "interval": interval}
    return fields | numbers


def _dot_height(row: Row, case: str) -> float:
    return row.y + jitter(case) * row.height * HALF * 0.9


def _join_pairs(axes: Axes, rows: Rows, values: Values, *, dots: bool) -> tuple[Records, tuple[int, int]]:
    """Lines joining cases of two models, and two counts.

    The counts are of cases that are joined, and of those that are not because one model lacks them.
    """
    from matplotlib.collections import LineCollection

    records: Records = []
    joined = single = 0
    for group in dict.fromkeys(row.piece.group for row in rows.rows):
        members = [row for row in rows.rows if row.piece.group == group]
        if len(members) != 2:
            continue
        first, second = (values[_piece_key(row)] for row in members)
        both = first.index.intersection(second.index, sort=False)
        ends = [
            [(values[_piece_key(row)][case], _dot_height(row, str(case)) if dots else row.y) for row in members]
            for case in both
        ]
        axes.add_collection(LineCollection(ends, colors=QUIET, linewidths=0.35, alpha=0.6, zorder=1))
        joined, single = joined + len(both), single + len(first) + len(second) - 2 * len(both)
        for row in members:
            row_values = values[_piece_key(row)]
            some = [{"what": "case", "case": str(case), "value": row_values[case]} for case in both]
            records += [_make_record(row, len(row_values), numbers, "") for numbers in some]
    return records, (joined, single)


def _draw_box(axes: Axes, row: Row, values: pd.Series[float], _metric: str) -> Records:
    from matplotlib.patches import Rectangle

    data = values.to_numpy()
    q1, median, q3 = (float(quantile) for quantile in np.quantile(data, [0.25, 0.5, 0.75]))
    reach = 1.5 * (q3 - q1)
    inside = data[(data >= q1 - reach) & (data <= q3 + reach)]
    low, high = float(inside.min()), float(inside.max())
    beyond = values[(values < low) | (values > high)]
    colour, marker, _ = row.piece.look
    half = row.height * HALF
    edge: dict[str, Any] = {"facecolor": f"{colour}33", "edgecolor": colour, "zorder": 2}
    axes.add_patch(Rectangle((q1, row.y - half), q3 - q1, 2 * half, **edge))
    for start, end in ((low, q1), (q3, high)):
        axes.plot([start, end], [row.y, row.y], color=colour, lw=0.7, zorder=2)
    for at in (low, high):
        axes.plot([at, at], [row.y - half / 2, row.y + half / 2], color=colour, lw=0.7, zorder=2)
    axes.plot([median, median], [row.y - half, row.y + half], color=colour, lw=1.4, zorder=3)
    mean = float(data.mean())
    mark: dict[str, Any] = {"s": 10, "color": "white", "edgecolors": colour, "linewidths": 0.7, "zorder": 4}
    axes.scatter([mean], [row.y], marker=marker, clip_on=False, **mark)
    axes.scatter(beyond, np.full(len(beyond), row.y), s=4, color=colour, linewidths=0, zorder=2, clip_on=False)
    summary = {"low": low, "q1": q1, "median": median, "q3": q3, "high": high, "mean": mean}
    records: Records = [{"what": what, "value": value} for what, value in summary.items()]
    return records + [{"what": "outlier", "case": str(case), "value": value} for case, value in beyond.items()]


def _draw_violin(axes: Axes, row: Row, values: pd.Series[float], _metric: str) -> Records:
    data = values.to_numpy()
    q1, median, q3 = (float(quantile) for quantile in np.quantile(data, [0.25, 0.5, 0.75]))
    colour, marker, _ = row.piece.look
    half = row.height * HALF * 1.2
    records: Records = [{"what": what, "value": value} for what, value in (("q1", q1), ("median", median), ("q3", q3))]
    density, at = _value_density(data)
    if at.size:
        wide = half * density / density.max()
        filled: dict[str, Any] = {"facecolor": f"{colour}33", "edgecolor": colour, "linewidth": 0.6, "zorder": 2}
        axes.fill_between(at, row.y - wide, row.y + wide, **filled)
        records += [
            {"what": "density", "value": float(value), "density": float(share)}
            for value, share in zip(at, density, strict=True)
        ]
    else:
        axes.plot([median, median], [row.y - half, row.y + half], color=colour, lw=0.8, zorder=2)
    axes.plot([q1, q3], [row.y, row.y], color=colour, lw=2.0, zorder=3)
    mark: dict[str, Any] = {"s": 11, "color": "white", "edgecolors": colour, "linewidths": 0.7, "zorder": 4}
    axes.scatter([median], [row.y], marker=marker, clip_on=False, **mark)
    return records


def _value_density(data: Any) -> tuple[Any, Any]:
    """Returns density and positions; nothing for (nearly) constant values."""
    spans = float(data.max() - data.min())
    if data.size < 2 or spans <= 1e-9 * max(1.0, float(np.abs(data).max())):
        return np.zeros(0), np.zeros(0)
    from scipy.stats import gaussian_kde

    at = np.linspace(data.min(), data.max(), _STEPS)
    return np.asarray(gaussian_kde(data)(at), dtype=np.float64), at


def _draw_strip(axes: Axes, row: Row, values: pd.Series[float], metric: str) -> Records:
    colour, marker, _ = row.piece.look
    heights = [_dot_height(row, str(case)) for case in values.index]
    dots: dict[str, Any] = {"s": 5, "color": colour, "alpha": 0.55, "linewidths": 0, "zorder": 2}
    axes.scatter(values.to_numpy(), heights, clip_on=False, **dots)
    cell = make_cell(row.piece.part, metric, PLAIN)
    if not np.isnan(cell.low):
        axes.plot([cell.low, cell.high], [row.y, row.y], color="black", lw=1.3, zorder=3, clip_on=False)
    mark: dict[str, Any] = {"s": 16, "color": "white", "edgecolors": "black", "linewidths": 0.8, "zorder": 4}
    axes.scatter([cell.mean], [row.y], marker=marker, clip_on=False, **mark)
    records: Records = [{"what": "case", "case": str(case), "value": value} for case, value in values.items()]
    interval_words = interval_text(cell.method, PLAIN.level, row.piece.part.run.unit)
    return [
        *records,
        {"what": "mean", "value": cell.mean, "low": cell.low, "high": cell.high, "interval": interval_words},
    ]


_MARKS = {"box": _draw_box, "violin": _draw_violin, "strip": _draw_strip}


def _make_caption(kind: Kind, pieces: Pieces, title: str, label: str, tables: Tables, records: Records) -> str:
    on, n = about_rows(pieces, label, [int(table["value"].count()) for table in tables.values()])
    several = any((table["rows"] > 1).any() for table in tables.values())
    means = ", each with the mean over its labels" if several else ""
    interval_words = dict.fromkeys(
        record["interval"] for record in records if record["what"] == "mean" and record["interval"]
    )
    parts = [
        f"{title} of cases on {on} ({n}{means}).",
        _MEANING[kind].format(made=" or ".join(interval_words)) + ".",
    ]
    failed, empty = (sum(int(flag.sum()) for flag in flags) for flags in _failed_cases(tables))
    if failed:
        parts.append(f"{failed} values are of failed cases, at the metric's worst.")
    if empty:
        parts.append(f"{empty} undefined values are left out.")
    if baselines := [piece.model for piece in pieces.of(pieces.groups[0]) if piece.baseline]:
        parts.append(f"In grey: baselines ({', '.join(baselines)}).")
    return " ".join(parts)


def _failed_cases(tables: Tables) -> tuple[list[Any], list[Any]]:
    failed = [table["failed"] & table["value"].notna() for table in tables.values()]
    return failed, [table["value"].isna() for table in tables.values()]
