"""The one walk over a table that all renderers share: what stands where, and in which style."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medimg_eval.results.cells import Cell, Column
    from medimg_eval.results.table import Table

Style = Literal["plain", "best", "second", "interval", "quiet"]


class Span(NamedTuple):
    """A piece of text in one style; renderers escape the text and dress it."""

    text: str
    style: Style = "plain"


class Heading(NamedTuple):
    """What stands over one column."""

    group: str
    title: str
    arrow: str


class Line(NamedTuple):
    """One row: its name, and the spans of each of its cells."""

    name: str
    cells: list[list[Span]]


class Layout(NamedTuple):
    """A table as rows of styled text."""

    groups: list[tuple[str, int]]
    """Title of each task, and the number of columns it spans."""
    headings: list[Heading]
    lines: list[Line]
    footnotes: list[str]

    @property
    def several_tasks(self) -> bool:
        """Whether a column needs its task's title to be understood."""
        return len(self.groups) > 1


def lay_out(table: Table) -> Layout:
    """Returns every text of `table` in its place and style, on one line each."""
    groups: dict[str, int] = {}
    for column in table.columns:
        groups[column.group] = groups.get(column.group, 0) + 1
    return Layout(
        groups=[(_one_line(title), span) for title, span in groups.items()],
        headings=[Heading(_one_line(column.group), _one_line(column.title), column.arrow) for column in table.columns],
        lines=[Line(_one_line(row.name), _cells(table.columns, row.cells)) for row in table.rows],
        footnotes=[_one_line(note) for note in table.footnotes],
    )


def _cells(columns: Sequence[Column], cells: Sequence[Cell]) -> list[list[Span]]:
    return [_spans(column, cell) for column, cell in zip(columns, cells, strict=True)]


def _spans(column: Column, cell: Cell) -> list[Span]:
    text = cell.text(column)
    if not cell.n:
        return [Span(text, "quiet")]
    spans = [Span(text, cell.mark or "plain")]
    if interval := cell.interval_text(column):
        spans.append(Span(interval, "interval"))
    return spans


def _one_line(text: str) -> str:
    """Returns `text` without line breaks and control characters, which would end a row in some formats."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
