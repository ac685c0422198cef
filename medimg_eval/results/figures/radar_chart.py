"""A radar chart, for whoever asks for one; its caption says what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval import metrics
from medimg_eval.errors import UsageError
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.forest_plot import PLAIN
from medimg_eval.results.figures.inputs import as_runs, by_task, interval_text, take
from medimg_eval.results.figures.style import add_legend, canvas, legend_height, look, millimetres, styled, wrapped
from medimg_eval.results.runs import LABEL, is_known
from medimg_eval.results.table import Settings, make_cell

if TYPE_CHECKING:
    from medimg_eval.results.figures.inputs import Source
    from medimg_eval.results.figures.style import Width

COLUMNS = ["axis", "model", "mean", "low", "high", "n", "clusters", "interval"]
_CAUTION = (
    "Read the values along the axes only: the area of a shape depends on the order of the axes and grows with the "
    "square of the values, and the intervals, which are in the numbers, are not drawn. A forest plot shows both."
)


def radar(source: Source, metric: str, *, by: str = "", width: Width = "single", settings: Settings = PLAIN) -> Drawn:
    """Returns a radar chart: an axis per task, label or group, from 0 in the middle to 1, and a closed line per model.

    Args:
        source: Runs, or a frame of scores; see `given.Source`.
        metric: A metric from 0 to 1 of which higher is better.
        by: "label" or an attribute: its values are the axes. "": tasks are, or labels where there is one task.
        width: "single" (89 mm), "double" (183 mm), or mm.
        settings: How the intervals in the frame are computed.

    Returns:
        A frame with a row per axis and model.

    Raises:
        UsageError: The metric is not from 0 to 1, there is no such label or attribute, there are several tasks to be
            divided, or fewer than three axes.
        UserError: No run is finished.
    """
    across = millimetres(width)
    runs = as_runs(source, metric)
    tasks = by_task(runs)
    if len(tasks) > 1 and by:
        raise UsageError(f"by={by} makes axes of one task, and these runs are of {len(tasks)}: {', '.join(tasks)}")
    records: list[dict[str, Any]] = []
    places: dict[str, tuple[int, bool]] = {}
    ends: dict[str, None] = {}
    for found in tasks.values():
        pieces = take(found, [metric], by=by if len(tasks) > 1 else by or LABEL)
        ends |= dict.fromkeys(pieces.left_out)
        for piece in pieces.members:
            cell = make_cell(piece.part, metric, settings)
            places.setdefault(piece.model, (len(places), piece.baseline))
            records.append(
                {
                    "axis": piece.group or pieces.title,
                    "model": piece.model,
                    "mean": cell.mean,
                    "low": cell.low,
                    "high": cell.high,
                    "n": cell.n,
                    "clusters": cell.n_clusters,
                    "interval": interval_text(cell.method, settings.level, piece.part.run.unit),
                }
            )
    frame = pd.DataFrame.from_records(records, columns=COLUMNS)
    _check(frame, metric)
    title = metrics.title(metric) if is_known(metric) else metric
    axes_of = list(dict.fromkeys(frame["axis"]))
    figure = _draw(frame, axes_of, places, across)
    left_out = "".join(f" Left out: {one}." for one in ends)
    least, most = frame["n"].min(), frame["n"].max()
    counts = f"n = {least if least == most else f'{least} to {most}'} cases on an axis"
    caption = f"{title} on {len(axes_of)} axes ({counts}), from 0 in the middle to 1. {_CAUTION}{left_out}"
    return Drawn(figure, frame, caption)


def _check(frame: pd.DataFrame, metric: str) -> None:
    if (number := frame["axis"].nunique()) < 3:
        raise UsageError(f"a radar chart needs three axes, and there are {number}; draw kind=forest")
    values = frame["mean"].dropna()
    known = metrics.get(metric) if is_known(metric) else None
    upwards = known is None or (known.higher_is_better and not known.unit)
    if not upwards or not values.between(0, 1).all():
        raise UsageError(
            f"a radar chart shows what lies from 0, worst, to 1, best, and {metric} does not; draw kind=forest"
        )


def _draw(frame: pd.DataFrame, names: list[str], places: dict[str, tuple[int, bool]], width: float) -> Any:
    from matplotlib.lines import Line2D

    texts = [wrapped(model) for model in places]
    legend = legend_height(texts, width)[1]
    with styled():
        side = min(width, 110.0)
        figure = canvas(width, side * 0.85 + legend)
        axes: Any = figure.subplots(subplot_kw={"projection": "polar"})
        angles = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
        axes.set_theta_zero_location("N")
        axes.set_theta_direction(-1)
        axes.set_xticks(angles, [wrapped(name, 18) for name in names])
        axes.set_ylim(0, 1)
        axes.set_yticks([0.25, 0.5, 0.75, 1.0])
        axes.grid(visible=True, lw=0.3)
        handles = []
        for model, (place, baseline) in places.items():
            found = frame.loc[frame["model"] == model].set_index("axis")["mean"].reindex(names).to_numpy()
            colour, marker, line = look(place, baseline=baseline)
            told = {"color": colour, "marker": marker, "ls": line, "lw": 0.9, "ms": 3, "clip_on": False}
            axes.plot(np.append(angles, angles[0]), np.append(found, found[:1]), **told)
            handles.append(Line2D([], [], **{name: value for name, value in told.items() if name != "clip_on"}))
        add_legend(figure, handles, texts, width)
    return figure
