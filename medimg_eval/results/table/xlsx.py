"""A table as a workbook: numbers stay numbers, and the unrounded ones stand on a second sheet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.results.table.layout import one_line
from medimg_eval.system import product

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from openpyxl.cell import Cell
    from openpyxl.worksheet.worksheet import Worksheet

    from medimg_eval.results.table.layout import Layout, Line, Printable, Span, Style

_NUMBER = re.compile(r"-?\d+(?:\.(\d+))?")
_BOUNDS = re.compile(r"\[(-?[\d.]+), (-?[\d.]+)\]")
_SIGNS = "\N{DAGGER}\N{DOUBLE DAGGER}"
_WIDEST = 60
_SHEETS = ("Table", "Values")


class _Parts(NamedTuple):
    """A cell of the table as the cells of a workbook."""

    value: str
    style: Style
    low: str
    high: str
    note: str


def write_xlsx(table: Printable, file: Path) -> Path:
    """Writes the table as a workbook and returns its file.

    The first sheet is the table as it is printed: best in bold, second underlined, heads that stay in sight, footnotes
    below. A value, the two bounds of its interval and its remark have columns of their own, as rounded numbers that
    show the printed decimals. The second sheet is the tidy frame with unrounded numbers.
    """
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.active
    sheet.title = _SHEETS[0]
    _fill_table(sheet, table.layout())
    _fill_frame(book.create_sheet(_SHEETS[1]), table)
    with product(file) as partial:
        book.save(partial)
    return file


def _fill_table(sheet: Worksheet, layout: Layout) -> None:
    """Writes the heads, the rows and the footnotes of a layout."""
    parts = [[_split_spans(spans) for spans in line.cells] for line in layout.lines]
    widths = [_cell_parts([row[index] for row in parts]) for index in range(len(layout.headings))]
    body = _write_head(sheet, layout, widths)
    for row, (line, cells) in enumerate(zip(layout.lines, parts, strict=True), body):
        _fill_row(
            sheet,
            row,
            line,
            [part for cell, names in zip(cells, widths, strict=True) for part in _part_texts(cell, names)],
        )
    for row, note in enumerate(layout.footnotes, body + len(layout.lines) + 1):
        _put_text(sheet, row, 1, note)
    sheet.freeze_panes = sheet.cell(body, len(layout.stubs) + 1)
    _fit_columns(sheet, len(layout.lines) + body - 1)


def _cell_parts(cells: Sequence[_Parts]) -> list[str]:
    """Returns which parts any cell of a column has; the value always."""
    bounds = ["low", "high"] if any(cell.low for cell in cells) else []
    return ["value", *bounds, *(["note"] if any(cell.note for cell in cells) else [])]


def _part_texts(cell: _Parts, names: Sequence[str]) -> list[tuple[str, Style]]:
    texts = {"value": cell.value, "low": cell.low, "high": cell.high, "note": cell.note}
    return [(texts[name], cell.style if name == "value" else "plain") for name in names]


def _write_head(sheet: Worksheet, layout: Layout, widths: Sequence[Sequence[str]]) -> int:
    """Writes the rows of the head and returns the first row below them."""
    from openpyxl.styles import Alignment, Border, Font, Side

    groups = 1 if layout.grouped else 0
    last = groups + (2 if any(len(names) > 1 for names in widths) else 1)
    for column, stub in enumerate(layout.stubs, 1):
        _put_text(sheet, last, column, stub)
    start = len(layout.stubs) + 1
    column = start
    for heading, names in zip(layout.headings, widths, strict=True):
        _merge_cells(sheet, groups + 1, column, len(names), heading.text)
        if last > groups + 1:
            for index, name in enumerate(names):
                _put_text(sheet, last, column + index, name)
        column += len(names)
    if groups:
        column, done = start, 0
        for title, width in layout.groups:
            spread = sum(len(names) for names in widths[done : done + width])
            _merge_cells(sheet, 1, column, spread, title)
            column, done = column + spread, done + width
    for cells in sheet.iter_rows(min_row=1, max_row=last):
        for cell in cells:
            cell.font = Font(bold=True)
            cell.alignment = Alignment(horizontal="left" if cell.column < start else "center")
            if cell.row == last:
                cell.border = Border(bottom=Side("thin"))
    return last + 1


def _merge_cells(sheet: Worksheet, row: int, column: int, width: int, text: str) -> None:
    _put_text(sheet, row, column, text)
    if width > 1:
        sheet.merge_cells(start_row=row, end_row=row, start_column=column, end_column=column + width - 1)


def _fill_row(sheet: Worksheet, row: int, line: Line, parts: Sequence[tuple[str, Style]]) -> None:
    from openpyxl.styles import Alignment, Border, Font, Side

    styles: dict[Style, dict[str, Any]] = {
        "best": {"bold": True},
        "second": {"underline": "single"},
        "quiet": {"color": "808080"},
        "head": {"italic": True},
    }
    cells = [_put_text(sheet, row, column, name) for column, name in enumerate(line.names, 1)]
    for column, (text, style) in enumerate(parts, len(line.names) + 1):
        cell = _put_number(sheet, row, column, text)
        cell.font = Font(**styles.get(style, {}))
        cell.alignment = Alignment(horizontal="right")
        cells.append(cell)
    if line.opens:
        for cell in cells:
            cell.border = Border(top=Side("thin"))


def _split_spans(spans: Sequence[Span]) -> _Parts:
    """Returns a cell's value, interval and note."""
    value, low, high, notes = "", "", "", list[str]()
    style: Style = "plain"
    for index, span in enumerate(spans):
        if match := _BOUNDS.fullmatch(span.text):
            low, high = match.groups()
        elif index == 0:
            value, style = span.text, span.style
        else:
            notes.append(span.text)
    signs = value[len(value.rstrip(_SIGNS)) :]
    return _Parts(value.rstrip(_SIGNS), style, low, high, " ".join([*([signs] if signs else []), *notes]))


def _put_text(sheet: Worksheet, row: int, column: int, text: str) -> Cell:
    """Writes text literally, also where workbooks would read formulas."""
    cell: Cell = sheet.cell(row, column, one_line(text))
    if text:
        cell.data_type = "s"
    return cell


def _put_number(sheet: Worksheet, row: int, column: int, text: str) -> Cell:
    """Writes a number with its decimals, or text otherwise."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return _put_text(sheet, row, column, text)
    decimals = match.group(1) or ""
    cell: Cell = sheet.cell(row, column, float(text) if decimals else int(text))
    cell.number_format = f"0.{'0' * len(decimals)}" if decimals else "0"
    return cell


def _fill_frame(sheet: Worksheet, table: Printable) -> None:
    """Writes the tidy frame, missing numbers as empty cells."""
    frame = table.frame()
    for column, name in enumerate(frame.columns, 1):
        _put_text(sheet, 1, column, str(name))
        for row, value in enumerate(frame[name].tolist(), 2):
            if isinstance(value, bool | int | float):
                if value == value:  # noqa: PLR0124 - NaN is unlike itself
                    sheet.cell(row, column, value)
            elif value is not None:
                _put_text(sheet, row, column, str(value))
    sheet.freeze_panes = "A2"
    _fit_columns(sheet, sheet.max_row)


def _fit_columns(sheet: Worksheet, last: int) -> None:
    """Fits column widths to content down to row `last`."""
    from openpyxl.utils import get_column_letter

    merged = {(area.min_row, area.min_col) for area in sheet.merged_cells.ranges}
    for column in range(1, sheet.max_column + 1):
        widths = [
            len(str(cell.value))
            for (cell,) in sheet.iter_rows(max_row=last, min_col=column, max_col=column)
            if cell.value is not None and (cell.row, column) not in merged
        ]
        sheet.column_dimensions[get_column_letter(column)].width = min(max(widths, default=4) + 2, _WIDEST)
