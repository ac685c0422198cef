"""A control chart: values of periods with their intervals, the centre, the limits, and what lies outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.style import PALETTE, QUIET, canvas, drawable, millimetres, styled

if TYPE_CHECKING:
    from medimg_eval.results.monitoring import Monitoring

HEIGHT = 62.0
"""mm."""
_MOST_TICKS = 24


def control_chart_figure(found: Monitoring, width: str | float = "double") -> Drawn:
    """Draws a control chart.

    Args:
        found: its numbers.
        width: "single", "double" or mm.
    """
    frame, across = found.frame, millimetres(width)
    positions = np.arange(len(frame))
    with styled():
        figure = canvas(across, HEIGHT)
        axes = figure.subplots()
        for side in ("lower_limit", "upper_limit"):
            axes.step(positions, frame[side], where="mid", color=QUIET, lw=0.8, ls=(0, (4, 2)), zorder=1)
        axes.axhline(0.0 if found.kind == "cusum" else found.chart.centre, color=QUIET, lw=0.8, zorder=1)
        if found.kind not in ("ewma", "cusum"):
            has_interval = frame["low"].notna().to_numpy()
            ends = frame.loc[has_interval, ["low", "high"]].to_numpy().T
            axes.vlines(positions[has_interval], *ends, color=PALETTE[0], lw=0.8, alpha=0.5, zorder=2)
        axes.plot(positions, frame["plotted"], color=PALETTE[0], marker="o", ms=3, lw=0.8, zorder=3)
        out = (frame["violations"] != "").to_numpy()
        if out.any():
            mark: dict[str, Any] = {
                "marker": "s",
                "s": 26,
                "facecolors": "none",
                "edgecolors": PALETTE[1],
                "linewidths": 1.2,
            }
            axes.scatter(positions[out], frame.loc[out, "plotted"], zorder=4, **mark)
        first_new = int(frame["baseline"].sum())
        if first_new < len(frame):
            axes.axvline(first_new - 0.5, color=QUIET, lw=0.6, ls=":", zorder=1)
        step = -(-len(frame) // _MOST_TICKS)
        axes.set_xticks(
            positions[::step], [drawable(name) for name in frame["period"][::step]], rotation=45, ha="right"
        )
        axes.set_ylabel(drawable("Cumulative sum (sigma)" if found.kind == "cusum" else frame.attrs["column"]))
    return Drawn(figure, frame, _make_caption(found))


def _make_caption(found: Monitoring) -> str:
    frame = found.frame
    text = f"{found.name} of {frame.attrs['column']} on {found.title}, {len(frame)} periods. "
    text += "Solid line: centre; dashed: limits; dotted: end of the baseline. "
    if found.kind not in ("ewma", "cusum"):
        text += "Vertical lines: intervals of the values. "
    violations_text = f"Squares: {'; '.join(found.violated)}." if found.violated else "No rule is violated."
    return f"{text}{violations_text} {' '.join(found.notes)}"
