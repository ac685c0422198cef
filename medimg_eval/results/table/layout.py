"""The one walk over a table that all renderers share: what stands where, and in which style."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from medimg_eval.results.runs import LABEL, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from medimg_eval.results.table.cells import Cell, Column, Row
    from medimg_eval.results.table.table import Table

Style = Literal["plain", "best", "second", "interval", "quiet", "head"]


class Span(NamedTuple):
    """A piece of text in one style; renderers escape the text and dress it."""

    text: str
    style: Style = "plain"


class Heading(NamedTuple):
    """What stands over one column."""

    group: str
    title: str
    arrow: str

    @property
    def text(self) -> str:
        """The title with the direction of better values."""
        return f"{self.title} {self.arrow}".rstrip()


class Line(NamedTuple):
    """One row: what names it, and the spans of each of its cells."""

    names: list[str]
    cells: list[list[Span]]
    opens: bool = False
    """Whether a new block of rows begins, which a rule sets off."""


class Layout(NamedTuple):
    """A table as rows of styled text."""

    groups: list[tuple[str, int]]
    """Title of each task, and the number of columns it spans."""
    headings: list[Heading]
    lines: list[Line]
    footnotes: list[str]
    stubs: list[str]
    """What stands over the names of the rows."""
    caption: str
    """What the table shows, as its title."""
    below: bool = False
    """Whether what follows a value, such as its interval, stands on a line of its own."""

    def columns(self, places: slice) -> Layout:
        """Returns the layout of some of the columns, with the names of all rows."""
        titles = [title for title, width in self.groups for _ in range(width)]
        return self._replace(
            groups=[(title, len(list(same))) for title, same in itertools.groupby(titles[places])],
            headings=self.headings[places],
            lines=[line._replace(cells=line.cells[places]) for line in self.lines],
        )

    def wrapped(self, fits: Callable[[Layout], bool]) -> list[Layout]:
        """Returns layouts of neighbouring columns, each of as many as fit, and of one at least."""
        parts: list[Layout] = []
        start, count = 0, len(self.headings)
        while start < count:
            end = start + 1
            while end < count and fits(self.columns(slice(start, end + 1))):
                end += 1
            parts.append(self.columns(slice(start, end)))
            start = end
        return parts

    def cell_lines(self, cell: Sequence[Span]) -> list[list[Span]]:
        """Returns the spans of a cell by the line that they stand on."""
        after = [span for span in cell if span.style == "interval"]
        if not self.below or not after or len(after) == len(cell):
            return [list(cell)]
        return [[span for span in cell if span.style != "interval"], after]

    @property
    def grouped(self) -> bool:
        """Whether any column stands under a title."""
        return any(title for title, _ in self.groups)

    @property
    def several_tasks(self) -> bool:
        """Whether a column needs its task's title to be understood."""
        return len(self.groups) > 1


class Printable(Protocol):
    """What can be rendered: a table, or a comparison of models."""

    def layout(self) -> Layout:
        """Returns every text in its place and style."""

    def frame(self) -> pd.DataFrame:
        """Returns the unrounded numbers, one row each."""


def lay_out(table: Table) -> Layout:
    """Returns every text of `table` in its place and style, on one line each."""
    groups: dict[str, int] = {}
    for column in table.columns:
        groups[column.group] = groups.get(column.group, 0) + 1
    lines: list[Line] = []
    for place, row in enumerate(table.rows):
        names = [one_line(name) for name in _names(table.by, row)]
        opens = bool(table.by and lines) and lines[-1].names[0] != names[0]
        # Baselines stand apart from the models above them.
        opens |= row.baseline and bool(lines) and not table.rows[place - 1].baseline
        lines.append(Line(names, _cells(table.columns, row.cells), opens))
    return Layout(
        groups=[(one_line(title), span) for title, span in groups.items()],
        headings=[_heading(column) for column in table.columns],
        lines=lines,
        footnotes=[one_line(note) for note in table.footnotes],
        stubs={"": ["Model"], LABEL: ["Label", "Model"]}.get(table.by, ["Model", one_line(table.by)]),
        caption=f"Results on {listed([one_line(title) for title in groups])}",
    )


def _heading(column: Column) -> Heading:
    # A share has no unit, so its title ends in none.
    percent = "" if column.scale == 1 else " (%)"
    return Heading(one_line(column.group), one_line(column.title) + percent, column.arrow)


def _names(by: str, row: Row) -> list[str]:
    if not by:
        return [row.name]
    return [row.group, row.name] if by == LABEL else [row.name, row.group]


def _cells(columns: Sequence[Column], cells: Sequence[Cell]) -> list[list[Span]]:
    return [_spans(column, cell) for column, cell in zip(columns, cells, strict=True)]


def _spans(column: Column, cell: Cell) -> list[Span]:
    text = cell.text(column)
    if not cell.n:
        return [Span(text, "quiet")]
    spans = [Span(text + cell.sign, cell.mark or ("quiet" if cell.doubtful else "plain"))]
    if interval := cell.interval_text(column):
        spans.append(Span(interval, "interval"))
    if cell.remark:
        spans.append(Span(cell.remark, "interval"))
    return spans


def one_line(text: str) -> str:
    """Returns `text` without line breaks and control characters, which would end a row in some formats."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
