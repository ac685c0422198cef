"""Tables of images and of studies as one frame, read once: columns as text, joined, lists taken apart."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.data.questions.records import as_text
from medimg_eval.data.questions.sources import Source
from medimg_eval.data.records import FIELD
from medimg_eval.data.tables import read_table
from medimg_eval.errors import UsageError, UserError, nearest

if TYPE_CHECKING:
    import pandas as pd

SEPARATED = {".csv": ",", ".tsv": "\t", ".txt": ","}
"""Endings of text tables, and what separates their fields."""

FILE, PLACE = "\0file", "\0place"
"""The columns that say where a row stands, as `place_of` puts it: no table has any of these names."""


def read_frame(root: Path, files: Sequence[str], key: str, wanted: Collection[str]) -> pd.DataFrame:
    """Reads files below the root into one table.

    Files, or patterns with `*`, are CSV, TSV, JSON, JSON lines (each also with `.gz`), Parquet; or XML of OpenI, a
    report a file, of which `read_openi` says what columns it gives. Cells of text tables are texts, "" where they are
    empty; others are as the file has them. A text table's columns that are not wanted are passed over. The key is that
    of the config, for people. Raises UserError where a file is missing or not understood, or there is no record.
    """
    import pandas as pd

    paths = Source(files).paths(root)
    if paths[0].suffix == ".xml":
        frame = pd.DataFrame([{**read_openi(path), PLACE: "report", FILE: str(path)} for path in paths], dtype=object)
    else:
        frames = [_read_frame(path, wanted) for path in paths]
        frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    if not len(frame):
        raise UserError(f"{', '.join(map(str, paths[:3]))}: holds no record; task.layout.{key} names it")
    return frame


def _read_frame(path: Path, wanted: Collection[str]) -> pd.DataFrame:
    import pandas as pd

    if _file_kind(path) not in SEPARATED:
        rows = read_table(path)
        frame = pd.DataFrame([dict(row.values) for row in rows], dtype=object)
        frame[PLACE] = [row.place for row in rows]
        frame[FILE] = str(path)
        return frame
    frame = _read_separated(path, usecols=lambda name: name.strip() in wanted)
    frame[PLACE] = np.arange(1, len(frame) + 1)
    frame[FILE] = pd.Series([str(path)] * len(frame), dtype=object)
    return frame


def _read_separated(path: Path, **options: Any) -> pd.DataFrame:
    import pandas as pd

    separator = SEPARATED[_file_kind(path)]
    with UserError.about(path, "cannot be read as a table", OSError, EOFError, ValueError):
        frame = pd.read_csv(path, dtype=object, sep=separator, na_filter=False, encoding="utf-8-sig", **options)
    table: pd.DataFrame = frame.set_axis([str(name).strip() for name in frame.columns], axis=1)
    return table


def _file_kind(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def read_openi(path: Path) -> dict[str, Any]:
    """Reads one report of OpenI's `ecgen-radiology`; raises UserError for what is none.

    It gives `uid` such as `CXR1`; `images`: the ids of its images, which are their files' names without ending, in
    order; `findings`, `impression`, `indication`, `comparison`, and what else the abstract is divided into, in lower
    case.
    """
    with UserError.about(path, "is no XML", OSError, ET.ParseError, mend="copy it again"):
        report = ET.fromstring(_read_plain_xml(path))  # noqa: S314 -- it defines no entities
    uid = report.find("uId")
    if uid is None or not uid.get("id"):
        raise UserError(f"{path}: names no uId, which reports of OpenI do")
    texts = {
        str(element.get("Label", "")).lower(): (element.text or "").strip() for element in report.iter("AbstractText")
    }
    images = [image for identifier in report.iter("parentImage") if (image := identifier.get("id"))]
    blank = dict.fromkeys(("findings", "impression", "indication", "comparison"), "")
    return {**blank, **texts, "uid": uid.get("id"), "images": images}


@dataclass(frozen=True)
class Join:
    """Table joined where `others` equal a row's `own` columns."""

    table: str
    own: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, given: Any) -> Join:
        """Reads `{join: table, on: column}`, with lists or renamed columns.

        Raises UsageError for another form.
        """
        step = {"on" if key is True else key: value for key, value in dict(given).items()}  # YAML's old word for true
        on = step.get("on")
        if set(step) != {"join", "on"} or not isinstance(on, str | Sequence | Mapping) or not on:
            raise UsageError(f"task.layout.join holds {dict(given)!r}, expected {{join: table, on: column}}")
        own = (on,) if isinstance(on, str) else tuple(map(str, on))
        return cls(str(step["join"]), own, tuple(map(str, on.values())) if isinstance(on, Mapping) else own)


def _read_plain_xml(path: Path) -> bytes:
    """XML content without entity definitions, which could expand without bound."""
    content = path.read_bytes()
    if b"<!ENTITY" in content.replace(b"\0", b""):  # of UTF-16, too
        raise UserError(f"{path}: defines entities, which reports of OpenI do not; copy it again")
    return content


def joined(frame: pd.DataFrame, steps: Sequence[Join], root: Path, wanted: Collection[str]) -> pd.DataFrame:
    """Adds columns of other tables to rows, which stay in their order.

    A column that both have stays as it is. Rows of the other that say the same count once. Raises UserError where a
    table is missing, has not the column, or says two things of one row.
    """
    for step in steps:
        other_frame = read_frame(root, [step.table], "join", {*wanted, *step.others})
        _check_columns(frame, step.own, "join.on")
        _check_columns(other_frame, step.others, "join.on")
        frame = _merge_table(frame, other_frame, step, wanted)
    return frame


def _merge_table(frame: pd.DataFrame, other: pd.DataFrame, step: Join, wanted: Collection[str]) -> pd.DataFrame:
    new = [name for name in other.columns if name not in frame.columns and name in wanted]
    columns = {name: other[name].to_numpy(dtype=object) for name in new}
    first_rows: dict[str, int] = {}
    for row, key in enumerate(_key_column(other, step.others)):
        first = first_rows.setdefault(key, row)
        if first != row and any(as_text(column[first]) != as_text(column[row]) for column in columns.values()):
            complaint = f"says another thing of {key!r} than {place_of(other, first)}; mend one of them"
            raise UserError(f"{place_of(other, row)}: {complaint}")
    rows = np.array([first_rows.get(key, -1) for key in _key_column(frame, step.own)], dtype=np.int64)
    columns_ = {}
    for name, column in columns.items():
        columns_[name] = column[rows]
        columns_[name][rows < 0] = ""
    return frame.assign(**columns_)


def _key_column(frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    columns = [_column_texts(frame, name) for name in names]
    return columns[0] if len(columns) == 1 else [", ".join(row) for row in zip(*columns, strict=True)]


def exploded(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Row per list item, several columns at once; one if empty.

    Raises UserError where lists of one row are of different lengths.
    """
    import pandas as pd

    if not columns:
        return frame
    _check_columns(frame, columns, "explode")
    lists = {name: [_as_plain_list(value) for value in frame[name]] for name in columns}
    for row, several in enumerate(zip(*lists.values(), strict=True)):
        if len({len(items) for items in several}) > 1:
            lengths = ", ".join(f"{name!r} {len(items)}" for name, items in zip(columns, several, strict=True))
            raise UserError(f"{place_of(frame, row)}: lists are of different lengths: {lengths}")
    taken = frame.copy()
    for name, column in lists.items():
        taken[name] = pd.Series(column, index=taken.index, dtype=object)
    return taken.explode(list(columns), ignore_index=True)


def _as_plain_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [] if not as_text(value) else [value]


def names_of(patterns: Iterable[str]) -> Iterator[str]:
    """Columns of patterns; without fields a pattern names one."""
    for pattern in patterns:
        if "{" in pattern:
            yield from (match[1] for match in FIELD.finditer(pattern))
        elif pattern:
            yield pattern


def place_of(frame: pd.DataFrame, row: int) -> str:
    """Row location for people: file and number."""
    return places_of(frame.iloc[[row]])[0]


def places_of(frame: pd.DataFrame) -> list[str]:
    """Where each row stands, as `place_of` says it."""
    stated = zip(frame[FILE], frame[PLACE], strict=True)
    return [f"{file}, {location if isinstance(location, str) else f'row {location}'}" for file, location in stated]


def check_columns(frame: pd.DataFrame, patterns: Mapping[str, Iterable[str]]) -> None:
    """Refuses patterns with unknown columns; UserError suggests the nearest."""
    for key, some in patterns.items():
        _check_columns(frame, list(names_of(some)), key)


def _check_columns(frame: pd.DataFrame, names: Sequence[str], key: str) -> None:
    for name in names:
        if name not in frame.columns:
            file = str(frame[FILE].iloc[0])
            there = [str(column) for column in frame.columns if column not in (FILE, PLACE)]
            if _file_kind(Path(file)) in SEPARATED:
                there = [*there, *_read_separated(Path(file), nrows=0).columns]
            raise UserError(f"{file}: there is no column {name!r} of task.layout.{key}{nearest(name, there)}")


def filled(frame: pd.DataFrame, pattern: str, *, whole: bool = False) -> list[str]:
    """Filled pattern, or column, by row; "" for empty patterns.

    With `whole`, a row that says nothing of a field gives "", as of a file's name. Raises UserError where a regular
    expression of the pattern finds nothing in some row.
    """
    if not pattern:
        return [""] * len(frame)
    if "{" not in pattern:
        return _column_texts(frame, pattern)
    parts: list[Iterable[str]] = []
    at = 0
    for field in FIELD.finditer(pattern):
        parts += [repeat(pattern[at : field.start()], len(frame)), _extract_part(frame, field)]
        at = field.end()
    parts.append(repeat(pattern[at:], len(frame)))
    if whole:
        return ["".join(row).strip() if all(row[1::2]) else "" for row in zip(*parts, strict=True)]
    return ["".join(row).strip() for row in zip(*parts, strict=True)]


def _extract_part(frame: pd.DataFrame, field: re.Match[str]) -> list[str]:
    texts = _column_texts(frame, field[1])
    if not field[3]:
        return [text[: int(field[2])] for text in texts] if field[2] else texts
    matches = [re.search(field[3], text) for text in texts]
    if None in matches:
        row = matches.index(None)
        raise UserError(f"{place_of(frame, row)}: {texts[row]!r} does not fit {field[0]!r}")
    return [match[1] if match.re.groups else match[0] for match in matches if match is not None]


def _column_texts(frame: pd.DataFrame, name: str) -> list[str]:
    values = frame[name].tolist()
    try:
        return list(map(str.strip, values))
    except TypeError:  # not all are texts
        return [as_text(value) for value in values]
