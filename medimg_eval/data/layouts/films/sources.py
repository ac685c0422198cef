"""Files that label frames of films: tables of frames, spans of time, JSON of triplets or criteria."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.data.records import Row
from medimg_eval.data.tables import read_json, read_table
from medimg_eval.errors import MissingDataError, UsageError, UserError

Labelled = tuple[int, dict[str, Any]]
"""A frame of the video, and its labels by column."""


class FrameSource:
    """A file that labels frames: of one video, or of all.

    Attributes:
        path: pattern below the root; with `{video}` there is a file per video, and other fields stand for folders.
    """

    path: str

    def read_frames(self, path: Path) -> Iterator[Labelled]:
        """Yields the labelled frames of one video; raises UserError naming file and line."""
        raise UsageError(f"{self.path}: expected one file for all videos, without {{video}} in its name")

    def read_videos(self, path: Path) -> dict[str, list[Labelled]]:
        """Video -> labelled frames of a file; UserError names the line."""
        raise UsageError(f"{self.path}: expected {{video}} in its name, or the column `video` of a table for all")


@dataclass
class FrameRows(FrameSource):
    """A table with a row per frame, of one video or of all.

    Args:
        path: pattern below the root, with `{video}` where each has a table.
        frame: column of the frame, counted in `unit`.
        columns: column of the truth -> column of the table; all others under their own names when empty.
        header: names of the columns, where the file has no header line.
        separator: between fields; by the file's ending when empty.
        unit: frames of the video per unit of `frame`: 1 where it counts them, the frame rate where it counts seconds.
        members: column of the truth -> value that any of `listed` holds where the class is present, such as numbers of
            instruments.
        listed: columns that hold such values.
        video: column of the video, in a table of all.
        first: number of the first frame.
    """

    path: str
    frame: str
    columns: Mapping[str, str] = field(default_factory=dict)
    header: Sequence[str] = ()
    separator: str = ""
    unit: int = 1
    members: Mapping[str, Any] = field(default_factory=dict)
    listed: Sequence[str] = ()
    video: str = ""
    first: int = 0

    def read_frames(self, path: Path) -> Iterator[Labelled]:
        """Yields rows."""
        yield from (self._labelled(row) for row in self._rows(path))

    def read_videos(self, path: Path) -> dict[str, list[Labelled]]:
        """Labelled rows by video."""
        if not self.video:
            return super().read_videos(path)
        return dict(grouped((row.text(self.video), self._labelled(row)) for row in self._rows(path)))

    def _rows(self, path: Path) -> list[Row]:
        return read_table(path, separator=self.separator, header=self.header)

    def _labelled(self, row: Row) -> Labelled:
        number = (row.number(self.frame) - self.first) * self.unit
        if not (number >= 0 and number.is_integer()):
            raise row.error(
                f"column {self.frame!r} holds {row.text(self.frame)!r}, expected a frame of {self.first} or more"
            )
        hidden = (self.frame, self.video, *self.listed)
        names = self.columns or {name: name for name in row.values if name not in hidden}
        values: dict[str, Any] = {name: row.text(column) for name, column in names.items()}
        if self.listed:
            held = {row.text(column) for column in self.listed}
            values |= {name: int(str(value) in held) for name, value in self.members.items()}
        return int(number), values


@dataclass
class FrameSpans(FrameSource):
    """Labelled time spans: lines of start, end, label, or JSON objects.

    Where spans overlap, the one that starts later counts, and of those that start together the shorter.

    Args:
        path: pattern below the root with `{video}`.
        column: of the truth.
        start: column of the start.
        end: column of the end.
        label: column of the label.
        header: names of the columns, of lines without a header.
        separator: between fields; a blank is any number of them.
        within: the list in JSON, such as `phases`.
        unit: frames of the video per unit of start and end, such as 0.025 for ms at 25 per second.
        closed: whether the end is itself labelled.
        otherwise: label of frames in no span; these are left out when empty.
        ignored: labels whose spans do not count.
        first: number of the first frame.
    """

    path: str
    column: str
    start: str = "start"
    end: str = "end"
    label: str = "label"
    header: Sequence[str] = ()
    separator: str = ""
    within: str = ""
    unit: float = 1.0
    closed: bool = False
    otherwise: str = ""
    ignored: Sequence[str] = ()
    first: int = 0

    def read_frames(self, path: Path) -> Iterator[Labelled]:
        """Yields each frame from the first span to the end of the last."""
        spans = []
        for row in self._rows(path):
            begin, end = ((row.number(name) - self.first) * self.unit for name in (self.start, self.end))
            first, last = int(np.ceil(begin - 1e-9)), int(np.ceil(end - 1e-9)) + int(self.closed)
            if begin < 0 or end < begin:
                raise row.error(f"expected a span that ends after it starts, got {begin:g} to {end:g}")
            if row.text(self.label) not in self.ignored:
                spans.append((first, -(last - first), last, row.text(self.label)))
        size = max((span[2] for span in spans), default=0)
        labels = np.full(size, self.otherwise, object)
        for first, _, last, label in sorted(spans):
            labels[first:last] = label
        for frame in np.flatnonzero(labels != "").tolist():
            yield frame, {self.column: labels[frame]}

    def _rows(self, path: Path) -> list[Row]:
        if not self.within:
            if self.separator != " ":
                return read_table(path, separator=self.separator, header=self.header)
            if not path.is_file():
                raise MissingDataError(f"{path}: no such table")
            lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            return [
                Row(path, f"line {number}", dict(zip(self.header, line.split(), strict=False)))
                for number, line in lines
                if line.strip()
            ]
        content = read_json(path)
        items = content.get(self.within) if isinstance(content, Mapping) else None
        if not isinstance(items, list):
            raise UserError(f"{path}: expected a list of objects {self.within!r}")
        return [Row(path, f"item {number} of {self.within!r}", item) for number, item in enumerate(items, 1)]


@dataclass
class Triplets(FrameSource):
    """CholecT50's JSON: triplet, instrument, verb, target and phase by frame.

    The truth's columns are the file's own names of `category`, such as `grasper,retract,gallbladder`, with 0 or 1, and
    `phase`. Frames are counted at the rate of the file.

    Args:
        path: pattern below the root with `{video}`.
        category: `triplet`, `instrument`, `verb` or `target`.
    """

    path: str
    category: str = "triplet"

    PLACES = {"triplet": 0, "instrument": 1, "verb": 7, "target": 8}  # noqa: RUF012 - of the file's vectors

    def read_frames(self, path: Path) -> Iterator[Labelled]:
        """Yields the frames in order."""
        if self.category not in self.PLACES:
            raise UsageError(f"task.layout.labels.category is {self.category!r}; one of {', '.join(self.PLACES)}")
        content = read_json(path)
        try:
            categories, frames = content["categories"], content["annotations"]
            names = {int(number): str(name) for number, name in categories[self.category].items()}
            phases = {int(number): str(name) for number, name in categories["phase"].items()}
            columns = self.PLACES[self.category]
            for frame in sorted(frames, key=int):
                held = {int(vector[columns]) for vector in frames[frame]}
                values: dict[str, Any] = {name: int(number in held) for number, name in names.items()}
                values["phase"] = next((phases.get(int(vector[-1]), "") for vector in frames[frame]), "")
                yield int(frame), values
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise UserError(
                f"{path}: is not understood as triplets of CholecT50 ({type(error).__name__}: {error})"
            ) from error


@dataclass
class CocoFrames(FrameSource):
    """COCO JSON of `{video}_{frame}.jpg` with numbers, as Endoscapes' criteria.

    Args:
        path: one file for all videos below the root.
        key: the key of the numbers in each picture's record.
        columns: names of the numbers in their order; 1 from 0.5 on, as two of three readers agree.
    """

    path: str
    columns: Sequence[str]
    key: str = "ds"

    def read_videos(self, path: Path) -> dict[str, list[Labelled]]:
        """Video -> its labelled frames."""
        labelled: dict[str, list[Labelled]] = {}
        try:
            for picture in read_json(path)["images"]:
                video, _, frame = Path(picture["file_name"]).stem.rpartition("_")
                values = [float(number) for number in picture[self.key]]
                named = {name: int(value >= 0.5) for name, value in zip(self.columns, values, strict=True)}
                labelled.setdefault(video, []).append((int(frame), named))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path}: is not understood as COCO with {self.key!r} of pictures ({type(error).__name__}: {error})"
            ) from error
        return labelled
