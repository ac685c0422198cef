"""Films whose frames are labelled: from files to cases, each a film or a frame."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, FrameLabels, Geometry, Image, OneFile, Reference
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.films.sources import FrameSource, Labelled
from medimg_eval.data.layouts.folders import find
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.errors import CaseError, MissingDataError, UsageError, UserError
from medimg_eval.imaging.video import FilmFile, FrameFeatures, FramePictures

VIDEO = "{video}"

OTHERS = "others"
"""Stands in `every` for the videos that it does not name."""


@dataclass(kw_only=True)
class Frames(FolderLayout):
    """Films with labelled frames; the patient defaults to the video.

    Frames of the truth are places on the grid: frame `k * every` of the video is place k. Labels of other frames are
    left out, and so are frames that not all files label.

    Args:
        labels: file, or files, that label the frames of a video.
        video: pattern of the video, or folder of frames, below the root; with `{frame}` in it, of each frame's
            picture, which is told by its number. Fields of the first of `labels`, such as `{split}`, may stand in it.
        features: pattern of stored features instead, an array (place on the grid, feature).
        every: frames of the video from one on the grid to the next: 25 for one a second at 25 per second; or
            video -> these, with `others`.
        stored_every: the same of a folder of frames that holds those of the grid alone: 1.
        unit: `video`: a case is a film; `frame`: a case is a labelled frame, its truth the `target`, which may use the
            columns of `labels`, and `video` and `index` in patterns.
        others: see `FolderLayout`; `key` of `splits` may be `{video}`. A field `{split}` of `labels` names the split.
    """

    labels: FrameSource | Sequence[FrameSource]
    video: str = ""
    features: str = ""
    every: int | Mapping[str, int] = 1
    stored_every: int | None = None
    unit: Literal["video", "frame"] = "video"

    def entries(self, root: Path) -> list[Entry]:
        """The videos in the order of their names, or their labelled frames."""
        steps = self.every.values() if isinstance(self.every, Mapping) else [self.every]
        if min(steps, default=0) < 1 or not (self.video or self.features):
            raise UsageError("expected task.layout.every of 1 or more, and video or features, to say what is shown")
        films = [self._entry(root, fields, path) for path, fields in self._videos(root)]
        if self.unit == "video":
            return films
        return [entry for film in films for entry in self._frames(root, film)]

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The labels of the frames on the grid."""
        return super().truth(root, entries) if self.unit == "frame" else _FrameTarget(self)

    def read_labels(self, root: Path, row: Row) -> FrameTruth:
        """The labels of one video, which are read when they are needed."""
        video = row.text("video")
        sources = tuple(self._sources)
        files = tuple(root / row.fill(source.path) if "{" in source.path else root / source.path for source in sources)
        return FrameTruth(files, sources, video, self._step(video))

    @property
    def _sources(self) -> list[FrameSource]:
        return list(self.labels) if isinstance(self.labels, Sequence) else [self.labels]

    def _step(self, video: str) -> int:
        if isinstance(self.every, Mapping):
            step = self.every.get(video, self.every.get(OTHERS))
            if step is None:
                raise UserError(f"task.layout.every names neither {video!r} nor {OTHERS!r}")
            return int(step)
        return self.every

    def _videos(self, root: Path) -> list[tuple[Path, dict[str, str]]]:
        """Video -> its label file and pattern fields."""
        first = self._sources[0]
        files = find(root, first.path) if "{" in first.path else [(root / first.path, {})]
        if not files:
            raise MissingDataError(f"{root / first.path}: there is no such file")
        if VIDEO in first.path:
            held = files
        else:
            held = [(path, {**fields, "video": name}) for path, fields in files for name in _of_all(first, path)]
        return sorted(held, key=lambda pair: pair[1]["video"])

    def _entry(self, root: Path, fields: Mapping[str, str], path: Path) -> Entry:
        row, name = Row(path, "", dict(fields)), fields["video"]
        step = self._step(name)
        if self.features:
            shown_film: Any = FrameFeatures(root / row.fill(self.features))
        elif "{frame}" in self.video:
            shown_film = FramePictures(
                root, row.fill(self.video.replace("{frame}", "\0")).replace("\0", "{frame}"), step
            )
        else:
            shown_film = FilmFile(root / row.fill(self.video), self.stored_every or step)
        entry = Entry(name, root, (row,), (shown_film,), patient=name)
        return self.with_patient(replace(entry, split=fields["split"]) if "split" in fields else entry)

    def _frames(self, root: Path, film: Entry) -> list[Entry]:
        truth = self.read_labels(root, film.row)
        entries = []
        for index, values in sorted(truth.read_columns().items()):
            location = f"frame {index} of {film.id}"
            row = Row(truth.files[0], location, {**film.row.values, **values, "index": index})
            picture = self._picture(film.images[0], index, truth.every)
            entries.append(
                self.with_patient(replace(film, id=f"{film.id}-{index:06d}", rows=(row,), images=(picture,)))
            )
        return entries

    def _picture(self, film: Any, index: int, step: int) -> Reference[Image]:
        if isinstance(film, FramePictures):
            return self.image_file(film.picture(index))
        if isinstance(film, FrameFeatures):
            raise UsageError("task.layout.unit=frame shows pictures; set task.layout.video instead of features")
        return FramePicture(film.path, index // step * film.every, self.modality, tuple(sorted(self.options.items())))


@dataclass(frozen=True)
class FramePicture(OneFile):
    """One frame of a video or a folder of frames, as a picture."""

    index: int
    modality: str = ""
    options: tuple[tuple[str, Any], ...] = ()

    def read(self) -> Image:
        """Returns (channel, row, column); raises CaseError when there is no such frame."""
        video = _open_video(self.path, self.options, os.getpid())
        return Image(
            video.frame(self.index),
            np.eye(4),
            modality=self.modality,
            units="pixel",
            notes=video.notes,
            attributes=video.attributes,
        )

    def geometry(self) -> Geometry:
        """Rows and columns."""
        return Geometry(_open_video(self.path, self.options, os.getpid()).shape[1:], np.eye(4), "pixel")


@lru_cache(maxsize=2)
def _open_video(path: Path, options: tuple[tuple[str, Any], ...], process: int) -> Any:
    # Neighbouring frames are asked for one after the other, and an open video goes on from where it stopped; a forked
    # process opens its own.
    from medimg_eval.imaging.video import Video

    return Video(path, **dict(options))


@dataclass(frozen=True)
class _FrameTarget:
    layout: Frames

    def reference(self, entry: Entry) -> Reference[FrameLabels]:
        return replace(self.layout.read_labels(entry.root, entry.row), image=entry.image)


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
    sources: tuple[FrameSource, ...]
    video: str
    every: int
    image: Reference[Image] | None = None

    def __repr__(self) -> str:
        return f"FrameTruth({self.sources!r}, {self.video!r}, {self.every})"

    def read(self) -> FrameLabels:
        """Returns the labels; CaseError names invalid or empty files."""
        try:
            return _read_labels(
                self.files, _Sources(self.sources), self.video, self.every, _modification_times(self.files)
            )
        except UserError as error:
            raise CaseError(str(error)) from error

    def read_columns(self) -> dict[int, dict[str, Any]]:
        """Frame of the video -> column -> value; raises UserError as `read`."""
        return _join_columns(self.files, _Sources(self.sources), self.video, self.every)

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


def _modification_times(files: Sequence[Path]) -> tuple[int, ...]:
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in files)


def _of_all(source: FrameSource, path: Path) -> dict[str, list[Labelled]]:
    return _read_videos(path, _Sources([source]), _modification_times([path]))


@lru_cache(maxsize=8)
def _read_videos(path: Path, source: _Sources, changed: tuple[int, ...]) -> dict[str, list[Labelled]]:
    videos: dict[str, list[Labelled]] = source[0].read_videos(path)
    if not videos:
        raise UserError(f"{path}: holds no labelled frame")
    return videos


@lru_cache(maxsize=64)
def _read_labels(
    files: tuple[Path, ...], sources: _Sources, video: str, every: int, changed: tuple[int, ...]
) -> FrameLabels:
    joined = _join_columns(files, sources, video, every)
    frames = sorted(joined)
    columns = {name: _typed_column([joined[frame][name] for frame in frames]) for name in joined[frames[0]]}
    return FrameLabels(np.array(frames, np.int64) // every, columns)


def _join_columns(files: Sequence[Path], sources: _Sources, video: str, every: int) -> dict[int, dict[str, Any]]:
    """Frames on the common grid of all files, with labels."""
    joined: dict[int, dict[str, Any]] | None = None
    for path, source in zip(files, sources, strict=True):
        pairs = source.read_frames(path) if VIDEO in source.path else _of_all(source, path).get(video, [])
        labels: dict[int, dict[str, Any]] = {}
        for frame, values in pairs:
            if frame % every == 0:
                if frame in labels:
                    raise UserError(f"{path}: frame {frame} is labelled a second time")
                labels[frame] = values
        if not labels:
            raise UserError(f"{path}: labels no frame of the grid, which has every {every} of video {video!r}")
        joined = labels if joined is None else {n: joined[n] | labels[n] for n in joined.keys() & labels.keys()}
    if not joined:
        raise UserError(f"{files[0]}: no frame of video {video!r} is labelled by all of {len(files)} files")
    return joined


def _typed_column(values: Sequence[Any]) -> Array:
    """Integers or numbers where all are, else text."""
    texts = np.array([str(value) for value in values])
    for kind in (np.int64, np.float64):
        try:
            return texts.astype(kind)
        except (ValueError, OverflowError):
            continue
    return texts.astype(object)
