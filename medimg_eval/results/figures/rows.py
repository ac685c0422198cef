"""Figures with a row per model: where rows lie, what names them, and how high the figure has to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from medimg_eval.results.figures.inputs import named_range
from medimg_eval.results.figures.style import LINE_MM, QUIET, SMALL, add_legend, canvas, legend_height, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from medimg_eval.results.figures.inputs import Piece, Pieces

_PITCH = 5.4
"""mm from row to row."""
_TIGHT = 3.2
"""The same within a group."""
_ROOM = 3.0
"""More mm where lines between rows are to be seen."""
_GAP = 2.4
_LEAST = 9.0
"""mm that a figure of a single row leaves it."""
_BELOW = 11.0
"""mm for the axis and its title."""
HALF = 0.33
"""How far a mark reaches from the middle of its row, as a share of the row."""


class Row(NamedTuple):
    """One row."""

    piece: Piece
    y: float
    """mm from the top, to the middle of the row."""
    height: float


@dataclass(frozen=True)
class Rows:
    """All rows of a figure."""

    rows: tuple[Row, ...]
    names: tuple[tuple[float, str], ...]
    """What stands beside the axis: where, and the text."""
    height: float
    models: tuple[Piece, ...]
    """Of which the legend tells; none where rows are named by their model."""

    @property
    def legend(self) -> list[str]:
        """The texts of the legend."""
        return [wrapped(piece.model) for piece in self.models]


def lay_rows(pieces: Pieces, *, roomy: bool = False) -> Rows:
    """Returns rows by model, or by group and model.

    Groups are then named beside the axis, models in a legend.
    """
    room = _ROOM if roomy else 0.0
    rows: list[Row] = []
    names: list[tuple[float, str]] = []
    y = 0.0
    for group in pieces.groups:
        top, members = y, pieces.of(group)
        for piece in members:
            lines = 1 if pieces.by else wrapped(piece.model).count("\n") + 1
            height = room + (_TIGHT if pieces.by else max(_PITCH, lines * LINE_MM + 0.8))
            rows.append(Row(piece, y + height / 2, height))
            if not pieces.by:
                names.append((y + height / 2, wrapped(piece.model)))
            y += height
        if pieces.by:
            text = wrapped(group)
            least = (text.count("\n") + 1) * LINE_MM
            if (lacking := least - (y - top)) > 0:
                rows = [row._replace(y=row.y + lacking / 2) if row.y > top else row for row in rows]
                y = top + least
            names.append(((top + y) / 2, text))
            y += _GAP
    height = y - (_GAP if pieces.by else 0)
    first = {piece.model: piece for piece in reversed(pieces.members)}
    models = tuple(first[name] for name in pieces.models if name in first) if pieces.by else ()
    return Rows(tuple(rows), tuple(names), height, models)


def row_axes(
    rows: Rows, width: float, title: str, handle: Callable[[Piece], Artist], notes: Sequence[str] = ()
) -> tuple[Figure, Axes]:
    """Figure whose vertical axis is in mm from the top, its rows named.

    `title` is that of the horizontal axis, `handle` makes what stands for a model in the legend, and `notes` stand at
    the right of each row.
    """
    legend = legend_height(rows.legend, width)[1] if rows.models else 0.0
    figure = canvas(width, max(rows.height, _LEAST) + _BELOW + legend + 2)
    axes = figure.subplots()
    axes.set_xlabel(title)
    axes.set_yticks([y for y, _ in rows.names], [text for _, text in rows.names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(rows.height, 0)
    for above, below in zip(rows.rows, rows.rows[1:], strict=False):
        if above.piece.group != below.piece.group:
            axes.axhline((above.y + above.height / 2 + below.y - below.height / 2) / 2, color=QUIET, lw=0.3, zorder=0)
    if notes:
        twin = axes.twinx()
        twin.set_ylim(rows.height, 0)
        twin.set_yticks([row.y for row in rows.rows], list(notes))
        twin.tick_params(axis="y", length=0, labelsize=SMALL)
        twin.spines[["right", "top", "left"]].set_visible(False)
    if rows.models:
        add_legend(figure, [handle(piece) for piece in rows.models], rows.legend, width)
    return figure, axes


def marked(piece: Piece) -> Artist:
    """Returns a model's mark on its line, for a legend."""
    from matplotlib.lines import Line2D

    colour, marker, _ = piece.look
    return Line2D([], [], color=colour, marker=marker, ls="-")


def about_rows(pieces: Pieces, label: str, counts: Sequence[int]) -> tuple[str, str]:
    """Caption words for rows' subject and case numbers."""
    n = f"n = {named_range(counts)}{', at the right of each row' * (len(set(counts)) > 1)}"
    on = f"{pieces.title}{f', label {label}' * bool(label)}{f' by {pieces.by}' * bool(pieces.by)}"
    return on, f"{n} case{'s' * (set(counts) != {1})}"


def spread(axes: Axes, low: float, high: float) -> None:
    """Sets the horizontal axis to hold all values with margins."""
    reach = (high - low) or max(abs(high), 1.0) * 0.1
    axes.set_xlim(low - 0.04 * reach, high + 0.04 * reach)
