"""Filled sheets of a reader study, read and checked."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UserError
from medimg_eval.results.runs import unguarded

if TYPE_CHECKING:
    from pathlib import Path

REAL, GENERATED = "real", "generated"
ORIGIN = "origin"
"""The column in which readers say which of the two an image is."""

_WORDS = {REAL: False, "r": False, "0": False, GENERATED: True, "g": True, "1": True, "fake": True, "synthetic": True}
_REST = frozenset(["reader", "item", ORIGIN, "comment", "study"])

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Readings:
    """What readers said.

    Attributes:
        readers: their names.
        items: names of the images.
        generated: (item,): the truth.
        said: (reader, item): 1 where an image was called generated, 0 where real, NaN where nothing was said.
        grades: question -> (reader, item), NaN where there is none.
        scale: the best grade; the worst is 1.
    """

    readers: tuple[str, ...]
    items: tuple[str, ...]
    generated: npt.NDArray[np.bool_]
    said: Floats
    grades: Mapping[str, Floats]
    scale: int


def read_readings(files: Sequence[Path], key: Path, *, scale: int = 5) -> Readings:
    """Reads filled sheets.

    Args:
        files: CSV files with the columns reader, item, origin, and one for each question.
        key: the CSV file with the columns item and truth.
        scale: the best grade.

    Raises:
        UserError: a file is missing, lacks a column, names an unknown image or one twice, or holds an odd answer.
    """
    truth, study = _truth(key)
    items = tuple(sorted(truth))
    said: dict[str, dict[str, float]] = {}
    grades: dict[str, dict[str, dict[str, float]]] = {}
    for file in files:
        for where, row in _sheet(file, key, study):
            reader, item = row["reader"].strip(), _item(row["item"].strip(), truth, where)
            if not reader:
                continue
            if item in said.setdefault(reader, {}):
                raise UserError(f"{where}: reader {reader!r} has read item {item!r} before; keep one of the readings")
            said[reader][item] = _origin(row[ORIGIN], where)
            for name, text in row.items():
                if name not in _REST:
                    grade = _grade(text, scale, where, name)
                    grades.setdefault(name, {}).setdefault(reader, {})[item] = grade
    if not said:
        raise UserError(f"{files[0] if files else key}: holds no reading; fill in the columns reader and {ORIGIN}")
    readers = tuple(sorted(said))
    return Readings(
        readers,
        items,
        np.array([truth[item] == GENERATED for item in items]),
        _matrix(said, readers, items),
        {name: _matrix(by_reader, readers, items) for name, by_reader in grades.items()},
        scale,
    )


def _truth(key: Path) -> tuple[dict[str, str], str]:
    """What each item of a key is, and the form it belongs to; "" where the key does not say."""
    truth: dict[str, str] = {}
    study = ""
    for line, row in _table(key, ("item", "truth")):
        if row["item"] in truth:
            raise UserError(f"{key}, line {line}: names item {row['item']!r} again; score each form with its own key")
        truth[row["item"]] = row["truth"]
        study = row.get("study", "")
    if not set(truth.values()) <= {REAL, GENERATED} or not truth:
        raise UserError(f"{key}: expected truth to be {REAL} or {GENERATED} for each item")
    return truth, study


def _sheet(file: Path, key: Path, study: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Place and cells of every row of a filled sheet; rows that nobody filled in name no reader."""
    for line, row in _table(file, ("reader", "item", ORIGIN)):
        where = f"{file}, line {line}"
        if study and row.get("study", "").strip() not in ("", study):
            raise UserError(f"{where}: belongs to another form than {key}; score each sheet with the key of its form")
        filled = any(text.strip() for name, text in row.items() if name not in ("reader", "item", "study"))
        if filled and not row["reader"].strip():
            raise UserError(f"{where}: names no reader; fill in the column reader")
        yield where, row


def _table(file: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line and cells of every row; a comment may take several lines."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({type(error).__name__}); expected a CSV file in UTF-8") from None
    first = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=";" if first.count(";") > first.count(",") else ",")
    columns = [unguarded((name or "").strip()) for name in rows.fieldnames or []]
    for name in needed:
        if name not in columns:
            raise UserError(f"{file}: has no column {name!r}; its columns are {', '.join(columns) or 'none'}")
    rows.fieldnames = columns
    for row in rows:
        yield rows.line_num, {name: unguarded(text or "") for name, text in row.items() if name}


def _item(item: str, truth: Mapping[str, str], where: str) -> str:
    if item in truth:
        return item
    padded = item.zfill(max(map(len, truth)))  # spreadsheets make 7 of 007
    if padded not in truth:
        raise UserError(f"{where}: item {item!r} is not in the key; score each sheet with the key of its form")
    return padded


def _origin(text: str, where: str) -> float:
    word = text.strip().casefold()
    if not word:
        return math.nan
    if word not in _WORDS:
        raise UserError(f"{where}: expected {REAL} or {GENERATED} in the column {ORIGIN}, got {text.strip()!r}")
    return float(_WORDS[word])


def _grade(text: str, scale: int, where: str, name: str) -> float:
    if not text.strip():
        return math.nan
    try:
        grade = float(text)
    except ValueError:
        grade = math.nan
    if not (1 <= grade <= scale and grade == int(grade)):
        raise UserError(f"{where}: expected a grade from 1 to {scale} in the column {name}, got {text.strip()!r}")
    return grade


def _matrix(said: Mapping[str, Mapping[str, float]], readers: Sequence[str], items: Sequence[str]) -> Floats:
    return np.array([[said.get(reader, {}).get(item, math.nan) for item in items] for reader in readers])
