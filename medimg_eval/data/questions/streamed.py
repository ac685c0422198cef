"""Text tables of any size: read through once, record by record, with big cells left where they stand."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from medimg_eval.data.questions.cells import Cell, StreamedCell, TextCell
from medimg_eval.errors import MissingDataError, UserError

CHUNK = 4 * 2**20
"""Bytes read at once."""

POINTER = 64
"""Characters up to which the cell of an image is no image, but names the record that holds it."""

LONG = 2**16
"""Bytes above which a cell of any column stays in the file."""

RETURN = ord("\r")

LONGEST = 2**28
"""Bytes of one record, in which an open quote must be closed: else it would be sought to the end of the file."""

MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8."""

RUN = re.compile(rb"(?:[A-Za-z0-9+/=_-]|\\[nr/]|\s){%d,}" % (POINTER + 1))
"""A text in base64 within a list: of either alphabet, with line breaks and slashes as JSON may escape them."""


class Line(NamedTuple):
    """Record of a text table with its first line, from 1.

    Values are texts, cells, or lists of cells by column; empty with a fault, which says in words what is wrong.
    """

    number: int
    values: dict[str, Any]
    fault: str = ""


class _Found(NamedTuple):
    """Field positions of a record: (start, stop, quoted) from `base`."""

    data: bytes
    base: int
    spans: Sequence[tuple[int, int, bool]]
    line: int
    fault: str = ""


class _QuoteError(Exception):
    """A quote that is left open, or text behind a closing one."""


def read_streamed(
    path: Path, *, separator: str = "", pictures: Collection[str] = (), header: Sequence[str] = ()
) -> Iterator[Line]:
    """Reads a CSV or TSV, also with `.gz`, record by record.

    Quoted fields may hold separators, line breaks and doubled quotes. Memory holds no more than one record and a chunk
    of the file beside what is yielded. A record of too few or too many fields, with a quote that is left open or closed
    too early, or that is no UTF-8 text, has a fault; behind a wrong quote, reading goes on with the next line of the
    file.

    Args:
        path: the table; its first line names the columns.
        separator: between fields; a tab in `.tsv` and a comma elsewhere when empty.
        pictures: columns that hold images in base64, or lists of such: cells longer than `POINTER` become
            `StreamedCell`s, which know where they stand. So do cells of other columns longer than `LONG`.
        header: names of the columns, of a table whose first line is a record.

    Raises:
        UserError: the table is missing, empty or damaged, or its header cannot be understood.
    """
    if not path.is_file():
        raise MissingDataError(f"{path}: no such table")
    packed = path.suffix == ".gz"
    sep = (separator or ("\t" if path.name.removesuffix(".gz").lower().endswith(".tsv") else ",")).encode()
    names = list(header)
    try:
        with cast("BinaryIO", gzip.open(path) if packed else path.open("rb")) as stream:
            for record in _iterate_records(stream, sep):
                if not names:
                    names = _read_header(path, record)
                    continue
                yield _make_line(path, record, names, pictures, packed=packed)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error}); copy the file again") from error
    if not names:
        raise UserError(f"{path}: holds no line; copy the file again")


def _make_line(path: Path, found: _Found, names: Sequence[str], pictures: Collection[str], *, packed: bool) -> Line:
    data, _, spans, number, fault = found
    if fault:
        return Line(number, {}, f"cannot be read as a record of a table ({fault})")
    if len(spans) != len(names):
        complaint = f"has not as many fields ({len(spans)}) as the header's {len(names)}; copy the file again"
        return Line(number, {}, complaint)
    values: dict[str, Any] = {}
    name = ""
    try:
        for name, (start, stop, quoted) in zip(names, spans, strict=True):
            if stop - start > POINTER and name in pictures:
                values[name] = _picture_cells(path, found, name, (start, stop), packed=packed)
            elif stop - start > LONG and not packed and not quoted:
                values[name] = _make_cell(path, found, name, (start, stop), packed=False)
            else:
                text = data[start:stop].decode()
                values[name] = text.replace('""', '"') if quoted else text
    except UnicodeDecodeError:
        return Line(number, {}, f"column {name!r} is no UTF-8 text; convert the file to UTF-8")
    return Line(number, values)


def _picture_cells(path: Path, found: _Found, name: str, span: tuple[int, int], *, packed: bool) -> Cell | list[Cell]:
    if found.data[span[0] : span[0] + 1] not in (b"[", b"{"):
        return _make_cell(path, found, name, span, packed=packed)
    return [_make_cell(path, found, name, run.span(), packed=packed) for run in RUN.finditer(found.data, *span)]


def _make_cell(path: Path, found: _Found, name: str, span: tuple[int, int], *, packed: bool) -> Cell:
    location = f"line {found.line}"
    if packed:
        return TextCell(path, name, location, found.data[slice(*span)].decode("ascii", "replace"))
    return StreamedCell(path, name, location, found.base + span[0], found.base + span[1])


def _read_header(path: Path, found: _Found) -> list[str]:
    if found.fault:
        raise UserError(f"{path}, line {found.line}: cannot be read as the names of columns ({found.fault})")
    try:
        names = [found.data[start:stop].decode().strip() for start, stop, _ in found.spans]
    except UnicodeDecodeError as error:
        raise UserError(f"{path}, line {found.line}: is no UTF-8 text; convert the file to UTF-8") from error
    names = [name or f"column {index}" for index, name in enumerate(names, start=1)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{path}, line {found.line}: column {twice[0]!r} occurs more than once; give one another name")
    return names


def _iterate_records(stream: BinaryIO, sep: bytes) -> Iterator[_Found]:
    data, base, start, line, complete = stream.read(CHUNK + len(MARK)), 0, 0, 1, False
    if data.startswith(MARK):
        start = len(MARK)
    while True:
        fault = ""
        try:
            spans_ = _field_spans(data, start, sep, whole=complete)
        except _QuoteError as error:
            fault, stop = str(error), data.find(b"\n", start)
            stop = len(data) if stop < 0 else stop
            spans_ = [(start, stop, False)], stop + 1
        if spans_ is None:
            if complete:
                return
            # Twice as much each time, so that a record longer than the chunk is not looked through again and again.
            chunk = stream.read(max(CHUNK, len(data) - start))
            data, base, start, complete = data[start:] + chunk, base + start, 0, not chunk
            continue
        spans, end = spans_
        if any(stop > start for start, stop, _ in spans):
            yield _Found(data, base, spans, line, fault)
        line += 1 + sum(data.count(b"\n", start, stop) for start, stop, quoted in spans if quoted)
        start = end


def _field_spans(data: bytes, place: int, sep: bytes, *, whole: bool) -> tuple[list[tuple[int, int, bool]], int] | None:
    """Field positions of a record and the next start; None if truncated."""
    spans: list[tuple[int, int, bool]] = []
    end = -1  # of the line
    if place >= len(data):
        return None
    while True:
        if data[place : place + 1] == b'"':
            close = _closing_quote(data, place + 1, whole=whole or len(data) - place > LONGEST)
            if close is None:
                return None
            spans.append((place + 1, close, True))
            after = close + 1
        else:
            if end < place:
                end = data.find(b"\n", place)
            if end < 0:
                if not whole:
                    return None
                end = len(data)
            after = data.find(sep, place, end)
            if after < 0:
                spans.append((place, end - (end > place and data[end - 1] == RETURN), False))
                return spans, end + 1
            spans.append((place, after, False))
        if data[after : after + 1] == sep:
            place = after + 1
            continue
        end = _line_end(data, after)
        return (spans, end) if whole or end <= len(data) else None


def _line_end(data: bytes, place: int) -> int:
    """Start of the next line after a quoted last field."""
    place += data[place : place + 1] == b"\r"
    if data[place : place + 1] not in (b"\n", b""):
        raise _QuoteError("text follows a closing quote; double the quotes within fields")
    return place + 1


def _closing_quote(data: bytes, place: int, *, whole: bool) -> int | None:
    """Closing quote of a field; None if truncated."""
    while True:
        quote = data.find(b'"', place)
        if quote < 0 and whole:
            raise _QuoteError("a quote is left open; is the file cut short?")
        if quote < 0 or (quote + 1 == len(data) and not whole):
            return None
        if data[quote + 1 : quote + 2] != b'"':
            return quote
        place = quote + 2
