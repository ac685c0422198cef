"""The forms of a table: models as rows or as columns, tasks side by side or below each other, or a value per row."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from medimg_eval.errors import UsageError, nearest
from medimg_eval.results.table.decimals import AUTO, MOST_DECIMALS
from medimg_eval.results.table.layout import Heading, Layout, Line, Span, lay_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medimg_eval.results.table.cells import Cell
    from medimg_eval.results.table.table import Table

Form = Literal["wide", "transposed", "stacked", "long"]
Bounds = Literal["beside", "below"]


class Look(NamedTuple):
    """How a table is printed; its numbers stay as they are."""

    form: Form = "wide"
    """`wide`: models as rows, tasks side by side; `transposed`: metrics as rows, models as columns; `stacked`: tasks
    below each other; `long`: one value per row."""
    bounds: Bounds = "beside"
    """Where intervals stand: beside values, or below them."""
    percent: bool = False
    """Whether shares are printed times 100."""
    precision: int | Literal["auto"] | None = None
    """Decimals of all columns; "auto" for as many as intervals support, None for those of the metrics."""

    def check(self) -> None:
        """Raises UsageError for what cannot be meant."""
        for key, value, known in (("form", self.form, get_args(Form)), ("bounds", self.bounds, get_args(Bounds))):
            if value not in known:
                raise UsageError(f"{key} must be one of {', '.join(known)}, got {value!r}{nearest(str(value), known)}")
        if not isinstance(self.percent, bool):
            raise UsageError(f"percent must be true or false, got {self.percent!r}")
        decimals = self.precision
        whole = isinstance(decimals, int) and not isinstance(decimals, bool) and 0 <= decimals <= MOST_DECIMALS
        if not whole and decimals not in (None, AUTO):
            raise UsageError(
                f"precision must be auto, or a number of decimals from 0 to {MOST_DECIMALS}, got {self.precision!r}"
            )


USUAL = Look()


def lay_out_as(table: Table, look: Look) -> Layout:
    """Returns every text of `table` in its place and style, in the form asked for."""
    make = {"wide": lay_out, "transposed": _transposed, "stacked": _stacked, "long": _long}[look.form]
    made = make(table)
    ranked_along = {"transposed": "row", "long": "metric of a task"}.get(look.form, "column")
    # Footnotes speak of the wide form.
    notes = [note.replace("Best of each column", f"Best of each {ranked_along}", 1) for note in made.footnotes]
    if look.form == "transposed":
        notes = [note.replace("Baselines, below the models", "Baselines, behind the models", 1) for note in notes]
    return made._replace(below=look.bounds == "below", footnotes=notes)


def _transposed(table: Table) -> Layout:
    """Metrics as rows, grouped by task; models as columns, baselines behind them."""
    wide = lay_out(table)
    several = wide.several_tasks
    title = "Models" if several else "".join(name for name, _ in wide.groups)
    headings = []
    for row, line in zip(table.rows, wide.lines, strict=True):
        *outer, name = line.names
        group = outer[0] if outer else "Baselines" if row.baseline else title
        headings.append(Heading(group, name, ""))
    lines: list[Line] = []
    for place, heading in enumerate(wide.headings):
        names = [heading.group, heading.text] if several else [heading.text]
        opens = several and bool(lines) and lines[-1].names[0] != heading.group
        lines.append(Line(names, [line.cells[place] for line in wide.lines], opens))
    return wide._replace(
        groups=[(group, len(list(same))) for group, same in itertools.groupby(head.group for head in headings)],
        headings=headings,
        lines=lines,
        stubs=["Task", "Metric"] if several else ["Metric"],
    )


def _stacked(table: Table) -> Layout:
    """Tasks below each other; a task whose columns differ from those above begins with its own heads."""
    wide = lay_out(table)
    if not wide.several_tasks:
        return wide
    parts = [lay_out(part) for part in table.by_task()]
    width = max(len(part.headings) for part in parts)
    heads = _heads(parts[0], width)
    headings = [Heading("", text, "") for text in heads]
    lines: list[Line] = []
    for part in parts:
        ((title, _),) = part.groups
        own = _heads(part, width)
        opens = bool(lines)
        if own != heads:
            lines.append(Line([title, *part.stubs], [[Span(text, "head")] if text else [] for text in own], opens))
            heads, opens = own, False
        for place, line in enumerate(part.lines):
            missing: list[list[Span]] = [[] for _ in range(width - len(line.cells))]
            lines.append(Line([title, *line.names], [*line.cells, *missing], opens if place == 0 else line.opens))
    return wide._replace(groups=[("", width)], headings=headings, lines=lines, stubs=["Task", *wide.stubs])


def _heads(part: Layout, width: int) -> list[str]:
    found = [heading.text for heading in part.headings]
    return found + [""] * (width - len(found))


def _long(table: Table) -> Layout:
    """One value per row: its task, model and metric, the value, its interval and the cases that it rests on."""
    wide = lay_out(table)
    several = wide.several_tasks
    lines: list[Line] = []
    for task, _ in wide.groups:
        for row, line in zip(table.rows, wide.lines, strict=True):
            for heading, cell, spans in zip(wide.headings, row.cells, line.cells, strict=True):
                if cell.absent or heading.group != task:
                    continue
                names = [*([task] if several else []), *line.names, heading.text]
                opens = bool(lines) and lines[-1].names[:-1] != names[:-1]
                lines.append(Line(names, _apart(cell, spans), opens))
    return wide._replace(
        groups=[("" if several else wide.groups[0][0], 3)],
        headings=[Heading("", title, "") for title in ("Value", "Interval", "n")],
        lines=lines,
        stubs=[*(["Task"] if several else []), *wide.stubs, "Metric"],
    )


def _apart(cell: Cell, spans: Sequence[Span]) -> list[list[Span]]:
    """Returns the value, its interval and its n as cells of their own."""
    value, *after = spans
    bounds = [span for span in after if span.text != cell.remark]
    sized = cell.remark.removeprefix("n = ") if cell.remark.startswith("n = ") else f"{cell.n}{cell.remark}"
    return [[value], bounds, [Span(sized)] if cell.n else []]
