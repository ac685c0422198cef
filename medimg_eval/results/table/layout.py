"""The one walk over a table that all renderers share: what stands where, in which style, and in which form."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, get_args

from medimg_eval.errors import UsageError
from medimg_eval.results.runs import LABEL, listed
from medimg_eval.results.table.cells import NO_RUN, Cell
from medimg_eval.results.table.columns import AUTO, MOST_DECIMALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pandas as pd

    from medimg_eval.results.table.cells import Column, Row
    from medimg_eval.results.table.published_rows import PublishedCell, PublishedRow
    from medimg_eval.results.table.table import Table

Style = Literal["plain", "best", "second", "interval", "quiet", "head"]


class Span(NamedTuple):
    """Styled text piece, escaped by renderers."""

    text: str
    style: Style = "plain"


def bounded(
    value: float, low: float, high: float, text: Callable[[float], str], unknown: str = "undefined"
) -> list[Span]:
    """Returns value and bounds as `text` prints, NaN as `unknown`.

    Bounds that are NaN are left out.
    """
    if math.isnan(value):
        return [Span(unknown, "quiet")]
    return [Span(text(value)), *([] if math.isnan(low) else [Span(f"[{text(low)}, {text(high)}]", "interval")])]


class Heading(NamedTuple):
    """Heading of one column, below the title of its group."""

    group: str
    text: str


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

    @classmethod
    def of_block(
        cls,
        title: str,
        columns: Iterable[str],
        lines: Iterable[Line],
        notes: Iterable[str],
        stubs: list[str],
        caption: str = "",
    ) -> Layout:
        """Layout of a titled block; the title is the default caption."""
        headings = [Heading("", one_line(column)) for column in columns]
        named = [line._replace(names=[one_line(name) for name in line.names]) for line in lines]
        groups = [(one_line(title), len(headings))]
        return cls(groups, headings, named, [one_line(note) for note in notes], stubs, one_line(caption or title))

    def columns(self, places: slice) -> Layout:
        """Returns the layout of some columns, with row names."""
        titles = [title for title, width in self.groups for _ in range(width)]
        return self._replace(
            groups=[(title, len(list(members))) for title, members in itertools.groupby(titles[places])],
            headings=self.headings[places],
            lines=[line._replace(cells=line.cells[places]) for line in self.lines],
        )

    def wrapped(self, fits: Callable[[Layout], bool]) -> list[Layout]:
        """Returns layouts of neighbouring columns that fit, at least one each."""
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
    """Content that can be rendered: a table, or a comparison of models."""

    def layout(self) -> Layout:
        """Returns every text in its place and style."""

    def frame(self) -> pd.DataFrame:
        """Returns the unrounded numbers, one row each."""


def lay_out(table: Table) -> Layout:
    """Returns `table`'s texts with place and style, single-line."""
    groups: dict[str, int] = {}
    for column in table.columns:
        groups[column.group] = groups.get(column.group, 0) + 1
    lines: list[Line] = []
    for index, row in enumerate(table.rows):
        names = [one_line(name) for name in _row_names(table.by, row)]
        opens = bool(table.by and lines) and lines[-1].names[0] != names[0]
        # Baselines stand apart from the models above them.
        opens |= row.baseline and bool(lines) and not table.rows[index - 1].baseline
        spans = [_cell_spans(column, cell) for column, cell in zip(table.columns, row.cells, strict=True)]
        lines.append(Line(names, spans, opens))
    for index, printed in enumerate(table.published):
        names = [one_line(name) for name in _row_names(table.by, printed)]
        cells = [_published_spans(column, cell) for column, cell in zip(table.columns, printed.cells, strict=True)]
        lines.append(Line(names, cells, opens=index == 0))
    return Layout(
        groups=[(one_line(title), span) for title, span in groups.items()],
        headings=[_column_heading(column) for column in table.columns],
        lines=lines,
        footnotes=[one_line(note) for note in table.footnotes],
        stubs={"": ["Model"], LABEL: ["Label", "Model"]}.get(table.by, ["Model", one_line(table.by)]),
        caption=f"Results on {listed([one_line(title) for title in groups])}",
    )


def _column_heading(column: Column) -> Heading:
    # A share has no unit, so its title ends in none.
    percent = "" if column.scale == 1 else " (%)"
    return Heading(one_line(column.group), f"{one_line(column.title)}{percent} {column.arrow}".rstrip())


def _row_names(by: str, row: Row | PublishedRow) -> list[str]:
    if not by:
        return [row.name]
    return [row.group, row.name] if by == LABEL else [row.name, row.group]


def _cell_spans(column: Column, cell: Cell) -> list[Span]:
    text = cell.text(column)
    if not cell.n:
        return [Span(text, "quiet")]
    spans = [Span(text + cell.sign, cell.mark or ("quiet" if cell.doubtful else "plain"))]
    if interval := cell.interval_text(column):
        spans.append(Span(interval, "interval"))
    if cell.remark:
        spans.append(Span(cell.remark, "interval"))
    return spans


def _published_spans(column: Column, cell: PublishedCell) -> list[Span]:
    if cell.absent:
        return [Span(NO_RUN, "quiet")]
    value, interval = cell.texts(column)
    return [Span(value), *(Span(text, "interval") for text in (interval, cell.verdict) if text)]


def one_line(text: str) -> str:
    """Returns `text` without line breaks and control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


Form = Literal["wide", "transposed", "stacked", "long"]
Ci = Literal["inline", "below"]


class Look(NamedTuple):
    """How a table is printed; its numbers stay as they are."""

    form: Form = "wide"
    """`wide`: models as rows, tasks side by side; `transposed`: metrics as rows, models as columns; `stacked`: tasks
    below each other; `long`: one value per row."""
    ci: Ci = "inline"
    """Where intervals stand: inline with values, or below them."""
    percent: bool = False
    """Whether shares are printed times 100."""
    precision: int | Literal["auto"] | None = None
    """Decimals of all columns; "auto" for as many as intervals support, None for those of the metrics."""

    def check(self) -> None:
        """Raises UsageError for invalid settings."""
        for key, value, allowed in (("form", self.form, get_args(Form)), ("ci", self.ci, get_args(Ci))):
            UsageError.refuse_invalid(key, allowed, value)
        if not isinstance(self.percent, bool):
            raise UsageError(f"percent must be true or false, got {self.percent!r}")
        decimals = self.precision
        is_whole = isinstance(decimals, int) and not isinstance(decimals, bool) and 0 <= decimals <= MOST_DECIMALS
        if not is_whole and decimals not in (None, AUTO):
            raise UsageError(
                f"precision must be auto, or a number of decimals from 0 to {MOST_DECIMALS}, got {self.precision!r}"
            )


USUAL = Look()


def lay_out_as(table: Table, look: Look) -> Layout:
    """Returns `table`'s texts in the asked form."""
    make = {"wide": lay_out, "transposed": _transposed_layout, "stacked": _stacked_layout, "long": _long_layout}[
        look.form
    ]
    layout = make(table)
    ranked_along = {"transposed": "row", "long": "metric of a task"}.get(look.form, "column")
    # Footnotes speak of the wide form.
    notes = [note.replace("Best of each column", f"Best of each {ranked_along}", 1) for note in layout.footnotes]
    if look.form == "transposed":
        notes = [note.replace("Baselines, below the models", "Baselines, behind the models", 1) for note in notes]
    return layout._replace(below=look.ci == "below", footnotes=notes)


def _transposed_layout(table: Table) -> Layout:
    """Metrics as rows, grouped by task; models as columns, baselines behind them."""
    wide = lay_out(table)
    several = wide.several_tasks
    title = "Models" if several else "".join(name for name, _ in wide.groups)
    headings = []
    blocks = ["Baselines" if row.baseline else title for row in table.rows] + ["Published"] * len(table.published)
    for block, line in zip(blocks, wide.lines, strict=True):
        *outer, name = line.names
        headings.append(Heading(outer[0] if outer else block, name))
    lines: list[Line] = []
    for index, heading in enumerate(wide.headings):
        names = [heading.group, heading.text] if several else [heading.text]
        opens = several and bool(lines) and lines[-1].names[0] != heading.group
        lines.append(Line(names, [line.cells[index] for line in wide.lines], opens))
    return wide._replace(
        groups=[(group, len(list(members))) for group, members in itertools.groupby(head.group for head in headings)],
        headings=headings,
        lines=lines,
        stubs=["Task", "Metric"] if several else ["Metric"],
    )


def _stacked_layout(table: Table) -> Layout:
    """Stacked tasks, with new heads where columns differ."""
    wide = lay_out(table)
    if not wide.several_tasks:
        return wide
    parts = [lay_out(part) for part in table.by_task()]
    width = max(len(part.headings) for part in parts)
    heads = _part_heads(parts[0], width)
    headings = [Heading("", text) for text in heads]
    lines: list[Line] = []
    for part in parts:
        ((title, _),) = part.groups
        own = _part_heads(part, width)
        opens = bool(lines)
        if own != heads:
            lines.append(Line([title, *part.stubs], [[Span(text, "head")] if text else [] for text in own], opens))
            heads, opens = own, False
        for index, line in enumerate(part.lines):
            missing: list[list[Span]] = [[] for _ in range(width - len(line.cells))]
            lines.append(Line([title, *line.names], [*line.cells, *missing], opens if index == 0 else line.opens))
    return wide._replace(groups=[("", width)], headings=headings, lines=lines, stubs=["Task", *wide.stubs])


def _part_heads(part: Layout, width: int) -> list[str]:
    heads = [heading.text for heading in part.headings]
    return heads + [""] * (width - len(heads))


def _long_layout(table: Table) -> Layout:
    """Value per row: task, model, metric, interval and cases."""
    wide = lay_out(table)
    several = wide.several_tasks
    lines: list[Line] = []
    rows: list[Sequence[Cell | PublishedCell]] = [row.cells for row in table.rows]
    rows += [row.cells for row in table.published]
    for task, _ in wide.groups:
        for cells, line in zip(rows, wide.lines, strict=True):
            for heading, cell, spans in zip(wide.headings, cells, line.cells, strict=True):
                if cell.absent or heading.group != task:
                    continue
                names = [*([task] if several else []), *line.names, heading.text]
                opens = bool(lines) and lines[-1].names[:-1] != names[:-1]
                lines.append(Line(names, _split_cell(cell, spans), opens))
    return wide._replace(
        groups=[("" if several else wide.groups[0][0], 3)],
        headings=[Heading("", title) for title in ("Value", "Interval", "n")],
        lines=lines,
        stubs=[*(["Task"] if several else []), *wide.stubs, "Metric"],
    )


def _split_cell(cell: Cell | PublishedCell, spans: Sequence[Span]) -> list[list[Span]]:
    """Returns the value, its interval and its n as cells of their own."""
    value, *after = spans
    if not isinstance(cell, Cell):
        return [[value], after, [Span(str(cell.number.n))] if cell.number is not None and cell.number.n else []]
    bounds = [span for span in after if span.text != cell.remark]
    sized = cell.remark.removeprefix("n = ") if cell.remark.startswith("n = ") else f"{cell.n}{cell.remark}"
    return [[value], bounds, [Span(sized)] if cell.n else []]
