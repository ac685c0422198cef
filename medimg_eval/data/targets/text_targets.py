"""Texts, survival times and frame labels from tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from medimg_eval.case import Array, FrameLabels, Image, OneFile, Reference, Survival, Text
from medimg_eval.data.records import Entry, Given, OnImage, Row, given
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.metrics.nlp import canonical, sections


@dataclass
class ReportText:
    """A report, an answer, or another text.

    Args:
        column: the column that holds it.
        file: pattern of the text file that holds it, instead of a column.
        sections: take the first of these sections that the text has, such as `findings`, `impression`; all of it
            without any.
        blank: `raise`, or `keep` where an empty text is an answer.
    """

    column: str = ""
    file: str = ""
    sections: Sequence[str] = ()
    blank: Literal["raise", "keep"] = "raise"

    def __post_init__(self) -> None:
        """Refuses a text from two places, or from none."""
        if bool(self.column) == bool(self.file):
            raise UsageError("a text stands either in a `column` or in a `file`")
        if isinstance(self.sections, str):
            raise UsageError(f"expected a list of sections, got {self.sections!r}")

    def reference(self, entry: Entry) -> Reference[Text]:
        """The text, or the file it will be read from."""
        if self.file:
            return TextFile(entry.path(self.file), tuple(self.sections), self.blank == "keep", entry.image)
        text = entry.agreed(lambda row: row.text(self.column))
        text_ = section(text, self.sections) if self.sections else text
        if not text_ and self.blank == "raise":
            what = f"has none of the sections {list(self.sections)}" if text else "is empty"
            raise entry.row.error(f"column {self.column!r} {what}; leave the row out with `where`, or set blank='keep'")
        return given(Text(text_ or ""), entry)


@dataclass(frozen=True)
class TextFile(OneFile, OnImage):
    """A text in a file of its own."""

    sections: tuple[str, ...]
    keep_blank: bool
    image: Reference[Image] | None

    def read(self) -> Text:
        """Reads it; CaseError where missing or wrongly empty."""
        try:
            text = self.path.read_text(encoding="utf-8-sig").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CaseError(f"{self.path}: cannot be read as text ({type(error).__name__})") from error
        text_ = section(text, self.sections) if self.sections else text
        if not text_ and not self.keep_blank:
            what = f"has none of the sections {list(self.sections)}" if text else "is empty"
            raise CaseError(f"{self.path}: {what}; leave the case out, or set blank='keep'")
        return Text(text_ or "")


def section(text: str, names: Sequence[str]) -> str | None:
    """First listed section with words, blanks folded; see `sections`."""
    held = sections(text)
    return next((held[name] for name in map(canonical, names) if name in held), None)


@dataclass
class SurvivalColumns:
    """Time until an event, or to the last follow-up without.

    Args:
        time: the column of times.
        event: the column that holds 1 where the event was observed, 0 where the time is censored.
        censored: the column that holds 1 where the time is censored, 0 where the event was observed (as the tables of
            CLAM's kin do); give this or `event`.
        unit: of the times.
        offset: what is added to times, such as 1 where the first year is 0.
    """

    time: str
    event: str = ""
    censored: str = ""
    unit: str = "months"
    offset: float = 0.0

    def __post_init__(self) -> None:
        """Refuses to guess which way the column counts."""
        if bool(self.event) == bool(self.censored):
            raise UsageError("say which way the column counts: `event` (1 = observed) or `censored` (1 = censored)")

    def reference(self, entry: Entry) -> Given[Survival]:
        """The time, on which all records of the case must agree."""
        return given(entry.agreed(self._time), entry)

    def _time(self, row: Row) -> Survival:
        column = self.event or self.censored
        time, flag = row.number(self.time), row.number(column)
        if flag not in (0, 1):
            raise row.error(f"column {column!r} holds {row.text(column)!r}, expected 0 or 1")
        if not (np.isfinite(time) and time >= 0):
            raise row.error(f"column {self.time!r} holds {row.text(self.time)!r}, expected a time of 0 or more")
        return Survival(time + self.offset, bool(flag) == bool(self.event), self.unit)


@dataclass
class FrameTable:
    """Labels of a video's frames, one record per frame.

    Args:
        frame: the column of frames.
        columns: the columns of labels; all but `frame` when empty.
        stride: frames of the video per unit of `frame`: 1 when it counts frames, the frame rate when it counts seconds.
    """

    frame: str
    columns: Sequence[str] = ()
    stride: int = 1

    def reference(self, entry: Entry) -> Given[FrameLabels]:
        """Labels by frame: integers or numbers where all are, else text."""
        frames = np.array([frame_number(row, self.frame, self.stride) for row in entry.rows], dtype=np.int64)
        order = np.argsort(frames, kind="stable")
        twice = order[1:][np.diff(frames[order]) == 0]
        if len(twice):
            raise entry.rows[twice[0]].error(f"frame {frames[twice[0]]} is labelled a second time")
        names = list(self.columns) or [name for name in entry.row.values if name != self.frame]
        labels = {name: _text_column([row.text(name) for row in entry.rows])[order] for name in names}
        return given(FrameLabels(frames[order], labels), entry)


def frame_number(row: Row, column: str, stride: int) -> int:
    """Frame index of a record; UserError unless a whole number from 0."""
    number = row.number(column) * stride
    if not (number >= 0 and number.is_integer()):
        raise row.error(f"column {column!r} holds {row.text(column)!r}, expected a frame of 0 or more")
    return int(number)


def _text_column(texts: Sequence[str]) -> Array:
    for kind in (np.int64, np.float64):
        try:
            return np.array(texts).astype(kind)
        except (ValueError, OverflowError):
            continue
    return np.array(texts, dtype=object)
