"""Significance maps: which model is better than which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.style import LINE_MM, PALE, PALETTE, canvas, millimetres, styled, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from medimg_eval.results.figures.style import Width
    from medimg_eval.results.table import Comparison, Map

_CELL = 4.6
"""mm, unless the figure is too narrow."""
_LETTER = 1.5
"""mm that a letter takes."""


def significance_map(comparison: Comparison, *, width: Width = "single") -> Drawn:
    """Significance map per task or label: dark where the row's model is better.

    The frame has a row per square: `map`, `model`, `other`, `better`, `tested`, and `p` and `corrected_p` of the test
    with the `n` cases that it rests on. `comparison` is as `compare` gives it without a baseline, `width` as in `box`;
    UsageError where it has no maps, being one with a baseline or of groups.

    Source: Touchstone (Bassi et al., NeurIPS 2024).
    """
    across = millimetres(width)
    if not comparison.maps:
        raise UsageError(
            "a significance map shows every pair of models; compare without baseline, and by=label or none"
        )
    frame = pd.concat(
        [_matrix_frame(drawn, sheet.numbers) for drawn, sheet in zip(comparison.maps, comparison.sheets, strict=False)],
        ignore_index=True,
    )
    with styled():
        figure = _make_figure(comparison.maps, across)
    method = comparison.sheets[0].content.footnotes[0]
    counts = sorted({int(number) for number in frame["n"].dropna()})
    n = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}" if counts else "no"
    significant, tested = int(frame["better"].sum()), int(frame["tested"].sum())
    caption = (
        f"{comparison.title}: dark with a dot where the model of the row is significantly better than that of the "
        f"column ({significant} of {tested} tests), light where not, empty where there is no test; {n} cases per pair. "
        f"Tests: {method}"
    )
    return Drawn(figure, frame, caption)


def _matrix_frame(drawn: Map, numbers: pd.DataFrame) -> pd.DataFrame:
    squares = [
        {"map": drawn.title, "model": model, "other": second, "better": better, "tested": tested}
        for model, betters, testeds in zip(drawn.models, drawn.better, drawn.tested, strict=True)
        for second, better, tested in zip(drawn.models, betters, testeds, strict=True)
        if model != second
    ]
    frame = pd.DataFrame.from_records(squares, columns=["map", "model", "other", "better", "tested"])
    wanted = ["model", "other", *(name for name in ("p", "corrected_p", "n") if name in numbers.columns)]
    merged = frame.merge(numbers[wanted], on=["model", "other"], how="left")
    return merged.assign(interval="none: tests")


def _make_figure(maps: Sequence[Map], across: float) -> Any:
    names = [wrapped(model, 22) for drawn in maps for model in drawn.models]
    margin = max(len(line) for name in names for line in name.split("\n")) * _LETTER + 4
    most = max(len(drawn.models) for drawn in maps)
    wanted = margin + most * _CELL
    columns = max(1, min(len(maps), int(across // (wanted + 4))))
    cell = min(_CELL, max((across / columns - margin - 4) / most, 1.2))
    rows = -(-len(maps) // columns)
    figure = canvas(across, rows * (cell * most + margin + 8) + 2)
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for unused in grid[len(maps) :]:
        unused.remove()
    for axes, drawn in zip(grid, maps, strict=False):
        _draw_matrix(axes, drawn, cell)
    return figure


def _draw_matrix(axes: Axes, drawn: Map, cell: float) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    size = len(drawn.models)
    better, tested = np.array(drawn.better, dtype=bool), np.array(drawn.tested, dtype=bool)
    squares = [Rectangle((column - 0.45, row - 0.45), 0.9, 0.9) for row in range(size) for column in range(size)]
    colours = [
        PALETTE[0] if better[row, column] else PALE if tested[row, column] else "#FFFFFF"
        for row in range(size)
        for column in range(size)
    ]
    axes.add_collection(PatchCollection(squares, facecolors=colours, edgecolors="none"))
    rows, columns = np.nonzero(better)
    axes.scatter(columns, rows, s=(cell * 0.6) ** 2, color="white", linewidths=0, zorder=3)
    axes.set_xlim(-0.5, size - 0.5)
    axes.set_ylim(size - 0.5, -0.5)
    axes.set_aspect("equal")
    texts = [wrapped(model, 22) for model in drawn.models]
    small = min(7.0, cell * 72 / 25.4 * (7.0 / (LINE_MM * 72 / 25.4)))
    axes.set_xticks(range(size), texts, rotation=90, fontsize=small)
    axes.set_yticks(range(size), texts, fontsize=small)
    axes.tick_params(length=0, bottom=False, top=True, labelbottom=False, labeltop=True)
    axes.spines[:].set_visible(False)
    axes.set_title(wrapped(drawn.title, 40))
