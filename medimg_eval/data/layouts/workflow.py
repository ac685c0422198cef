"""Films of surgery and files that label their frames: tables of frames, spans of time, JSON of triplets or criteria."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from medimg_eval.case import Array, FrameLabels, Geometry, Image, Reference
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.folders import find
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.data.tables import read_json, read_table
from medimg_eval.errors import CaseError, MissingDataError, UsageError, UserError
from medimg_eval.imaging.video import FilmFile, FrameFeatures

Columns = dict[int, dict[str, Any]]
"""Frame of the video -> column -> value."""


class FrameSource(Protocol):
    """A file per video that says something of its frames.

    Attributes:
        path: pattern below the root with `{video}`.
    """

    path: str

    def read(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields frames of the video and what is said of them; raises UserError naming file and line."""


@dataclass
class FrameRows:
    """A table with a row per frame.

    Args:
        path: pattern below the root with `{video}`.
        frame: column of the frame, counted in `unit`.
        columns: column of the truth -> column of the table; all others under their own names when empty.
        header: names of the columns, where the file has no header line.
        separator: between fields; by the file's ending when empty.
        unit: frames of the video per unit of `frame`: 1 where it counts them, the frame rate where it counts seconds.
        members: column of the truth -> value that any of `listed` holds where the class is present, such as numbers of
            instruments.
        listed: columns that hold such values.
    """

    path: str
    frame: str
    columns: Mapping[str, str] = field(default_factory=dict)
    header: Sequence[str] = ()
    separator: str = ""
    unit: int = 1
    members: Mapping[str, Any] = field(default_factory=dict)
    listed: Sequence[str] = ()

    def read(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields rows."""
        for row in read_table(path, separator=self.separator, header=self.header):
            number = row.number(self.frame) * self.unit
            if not (number >= 0 and number.is_integer()):
                raise row.error(f"column {self.frame!r} holds {row.text(self.frame)!r}, expected a frame of 0 or more")
            names = self.columns or {name: name for name in row.values if name not in (self.frame, *self.listed)}
            values: dict[str, Any] = {name: row.text(column) for name, column in names.items()}
            if self.listed:
                held = {row.text(column) for column in self.listed}
                values |= {name: int(str(value) in held) for name, value in self.members.items()}
            yield int(number), values


@dataclass
class FrameSpans:
    """Spans of time with a label each: lines of start, end and label, or a list of objects in JSON.

    Of spans that overlap the one that starts later counts, of those the shorter.

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

    def read(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields each frame from the first span to the end of the last."""
        spans = []
        for row in self._rows(path):
            begin, end = row.number(self.start) * self.unit, row.number(self.end) * self.unit
            first, last = int(np.ceil(begin - 1e-9)), int(np.ceil(end - 1e-9)) + int(self.closed)
            if begin < 0 or end < begin:
                raise row.error(f"expected a span that ends after it starts, got {begin:g} to {end:g}")
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
class Triplets:
    """CholecT50's JSON: vectors of a triplet, its instrument, verb and target, and the phase, of each frame.

    The truth's columns are the file's own names of `category`, such as `grasper,retract,gallbladder`, with 0 or 1, and
    `phase`. Frames are counted at the rate of the file.

    Args:
        path: pattern below the root with `{video}`.
        category: `triplet`, `instrument`, `verb` or `target`.
    """

    path: str
    category: str = "triplet"

    PLACES = {"triplet": 0, "instrument": 1, "verb": 7, "target": 8}  # noqa: RUF012 - of the file's vectors

    def read(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yields the frames in order."""
        if self.category not in self.PLACES:
            raise UsageError(f"task.layout.labels.category is {self.category!r}; one of {', '.join(self.PLACES)}")
        content = read_json(path)
        try:
            categories, frames = content["categories"], content["annotations"]
            names = {int(number): str(name) for number, name in categories[self.category].items()}
            phases = {int(number): str(name) for number, name in categories["phase"].items()}
            place = self.PLACES[self.category]
            for frame in sorted(frames, key=int):
                held = {int(vector[place]) for vector in frames[frame]}
                values: dict[str, Any] = {name: int(number in held) for number, name in names.items()}
                values["phase"] = next((phases.get(int(vector[-1]), "") for vector in frames[frame]), "")
                yield int(frame), values
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise UserError(
                f"{path}: is not understood as triplets of CholecT50 ({type(error).__name__}: {error})"
            ) from error


@dataclass
class CocoFrames:
    """COCO's JSON of pictures `{video}_{frame}.jpg` with numbers of each, such as Endoscapes' three criteria.

    Args:
        path: one file for all videos below the root.
        key: the key of the numbers in each picture's record.
        columns: names of the numbers in their order; 1 from 0.5 on, as two of three readers agree.
    """

    path: str
    columns: Sequence[str]
    key: str = "ds"

    def videos(self, path: Path) -> dict[str, list[tuple[int, dict[str, Any]]]]:
        """Video -> its frames and what is said of them; raises UserError where the file is not understood."""
        found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        try:
            for picture in read_json(path)["images"]:
                video, _, frame = Path(picture["file_name"]).stem.rpartition("_")
                values = [float(number) for number in picture[self.key]]
                named = {name: int(value >= 0.5) for name, value in zip(self.columns, values, strict=True)}
                found.setdefault(video, []).append((int(frame), named))
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{path}: is not understood as COCO with {self.key!r} of pictures ({type(error).__name__}: {error})"
            ) from error
        return found


@dataclass(kw_only=True)
class Workflow(FolderLayout):
    """A case per video, whose frames on a grid are labelled; the patient is the video unless told otherwise.

    Frames of the truth are places on the grid: frame `k * every` of the video is place k. Labels of other frames are
    left out, and so are frames that not all files label.

    Args:
        labels: file, or files, that say something of the frames of a video.
        video: pattern of the video, or folder of frames, below the root.
        features: pattern of stored features instead, an array (place on the grid, feature).
        every: frames of the video from one on the grid to the next: 25 for one a second at 25 per second.
        stored_every: the same of a folder of frames that holds those of the grid alone: 1.
        others: see `FolderLayout`; `key` of `splits` may be `{video}`.
    """

    labels: FrameSource | Sequence[FrameSource] | CocoFrames
    video: str = ""
    features: str = ""
    every: int = 1
    stored_every: int | None = None

    def entries(self, root: Path) -> list[Entry]:
        """The videos in the order of their names."""
        if self.every < 1 or not (self.video or self.features):
            raise UsageError("expected task.layout.every of 1 or more, and video or features, to say what is shown")
        if isinstance(self.labels, CocoFrames):
            path = root / self.labels.path
            named = dict.fromkeys(self.labels.videos(path), path)
        else:
            first = self.labels if not isinstance(self.labels, Sequence) else self.labels[0]
            named = {fields["video"]: path for path, fields in find(root, first.path)}
            if not named:
                raise MissingDataError(f"{root / first.path}: there is no such file")
        return [self._entry(root, name, path) for name, path in sorted(named.items())]

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The labels of the frames on the grid."""
        sources = [self.labels] if not isinstance(self.labels, Sequence) else list(self.labels)
        return _FrameTarget(root, tuple(sources), self.every)

    def _entry(self, root: Path, name: str, path: Path) -> Entry:
        row = Row(path, "", {"video": name})
        if self.features:
            shown: Any = FrameFeatures(root / row.fill(self.features))
        else:
            shown = FilmFile(root / row.fill(self.video), self.stored_every or self.every)
        return self.with_patient(Entry(name, root, (row,), (shown,), patient=name))


@dataclass(frozen=True)
class _FrameTarget:
    root: Path
    sources: tuple[Any, ...]
    every: int

    def reference(self, entry: Entry) -> Reference[FrameLabels]:
        video = entry.row.text("video")
        files = tuple(self.root / source.path.replace("{video}", video) for source in self.sources)
        return FrameTruth(files, self.sources, video, self.every, entry.image)


@dataclass(frozen=True, eq=False)
class FrameTruth:
    """Labels of the frames of one video, read when they are needed.

    Attributes:
        files: one per source.
        sources: how each is read.
        video: its name.
        every: frames of the video per place on the grid.
        image: the film.
    """

    files: tuple[Path, ...]
    sources: tuple[Any, ...]
    video: str
    every: int
    image: Reference[Image] | None = None

    def __repr__(self) -> str:
        return f"FrameTruth({self.sources!r}, {self.video!r}, {self.every})"

    def read(self) -> FrameLabels:
        """Returns the labels; raises CaseError naming the file where it is not understood, or labels no frame."""
        try:
            return _read_labels(self.files, _Sources(self.sources), self.video, self.every, _changed(self.files))
        except UserError as error:
            raise CaseError(str(error)) from error

    def geometry(self) -> Geometry:
        """The grid of the film."""
        if self.image is None:
            raise CaseError(f"{self.files[0]}: belongs to no film")
        return self.image.geometry()


class _Sources(tuple[Any, ...]):
    """Sources, told apart by what they say, so that labels are read once."""

    def __hash__(self) -> int:
        return hash(repr(list(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sources) and repr(list(self)) == repr(list(other))


def _changed(files: Sequence[Path]) -> tuple[int, ...]:
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in files)


@lru_cache(maxsize=64)
def _read_labels(
    files: tuple[Path, ...], sources: _Sources, video: str, every: int, changed: tuple[int, ...]
) -> FrameLabels:
    joined: Columns | None = None
    for path, source in zip(files, sources, strict=True):
        said = source.videos(path).get(video, []) if isinstance(source, CocoFrames) else source.read(path)
        found: Columns = {}
        for frame, values in said:
            if frame % every == 0:
                if frame in found:
                    raise UserError(f"{path}: frame {frame} is labelled a second time")
                found[frame] = values
        if not found:
            raise UserError(f"{path}: labels no frame of the grid, which has every {every} of video {video!r}")
        joined = found if joined is None else {n: joined[n] | found[n] for n in joined.keys() & found.keys()}
    joined = joined or {}
    if not joined:
        raise UserError(f"{files[0]}: no frame of video {video!r} is labelled by all of {len(files)} files")
    frames = sorted(joined)
    columns = {name: _column([joined[frame][name] for frame in frames]) for name in joined[frames[0]]}
    return FrameLabels(np.array(frames, np.int64) // every, columns)


def _column(values: Sequence[Any]) -> Array:
    """Integers or numbers where all are, else text."""
    texts = np.array([str(value) for value in values])
    for kind in (np.int64, np.float64):
        try:
            return texts.astype(kind)
        except (ValueError, OverflowError):
            continue
    return texts.astype(object)
