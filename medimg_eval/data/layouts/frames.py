"""Videos with tables of what is said of their frames."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Geometry, Image
from medimg_eval.data.layouts.base import FolderLayout
from medimg_eval.data.layouts.folders import find
from medimg_eval.data.records import Entry, OneFile, Row, Target
from medimg_eval.data.tables import read_table
from medimg_eval.data.targets import FrameTable
from medimg_eval.data.targets.text_targets import frame_number
from medimg_eval.errors import MissingDataError, UserError


@dataclass(kw_only=True)
class Frames(FolderLayout):
    """Video files or folders of frames, and tables of frame labels; the patient is the video unless told otherwise.

    Args:
        video: pattern of the video, or folder of frames, below the root, such as `video_{video}.mp4`.
        table: pattern of the table of one video, such as `annotations_{video}.csv`, or the table of all.
        frame: the column of frames.
        stride: frames of the video per unit of `frame`: 1 when it counts frames, the frame rate when it counts seconds.
        video_column: the column that names the video, in a table of all.
        unit: `video`: a case is a video, its truth the labels of its frames; `frame`: a case is a labelled frame, its
            truth the `target`, which may use the row's columns, and `video` and `index` in patterns.
        columns: the columns of labels, for videos; all but the frame's and the video's when empty.
        separator: between the fields of the tables; by their ending when empty.
        others: see `FolderLayout`; `key` of `splits` may be `{video}`.
    """

    video: str
    table: str
    frame: str
    stride: int = 1
    video_column: str = ""
    unit: Literal["video", "frame"] = "video"
    columns: Sequence[str] = ()
    separator: str = ""

    def entries(self, root: Path) -> list[Entry]:
        """The videos in the order of their names, or their labelled frames in the order of the tables."""
        made = []
        for name, rows in sorted(self._videos(root).items()):
            path = root / rows[0].fill(self.video)
            if not path.exists():
                raise rows[0].error(f"speaks of the video {name!r}, but there is no {path}")
            if self.unit == "frame":
                made += [self._frame(root, name, path, row) for row in rows]
            else:
                made.append(self.with_patient(Entry(name, root, tuple(rows), (self.image_file(path),), patient=name)))
        return made

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The labels of the frames."""
        if self.unit == "frame":
            return super().truth(root, entries)
        hidden = (self.frame, self.video_column, "video")
        return FrameTable(
            self.frame, self.columns or [name for name in entries[0].row.values if name not in hidden], self.stride
        )

    def _videos(self, root: Path) -> dict[str, list[Row]]:
        videos: dict[str, list[Row]] = {}
        if "{video}" in self.table:
            for path, fields in find(root, self.table):
                rows = read_table(path, separator=self.separator)
                if not rows:
                    raise UserError(f"{path}: holds no row")
                videos[fields["video"]] = [_of(row, fields["video"]) for row in rows]
        else:
            for row in read_table(root / self.table, separator=self.separator):
                name = row.text(self.video_column or "video")
                videos.setdefault(name, []).append(_of(row, name))
        if not videos:
            raise MissingDataError(f"{root / self.table}: there is no such table")
        return videos

    def _frame(self, root: Path, name: str, path: Path, row: Row) -> Entry:
        index = frame_number(row, self.frame, self.stride)
        row = Row(row.path, row.place, {**row.values, "index": index})
        image = FramePicture(path, index, self.modality, tuple(sorted(self.options.items())))
        return self.with_patient(Entry(f"{name}-{index:06d}", root, (row,), (image,), patient=name))


def _of(row: Row, video: str) -> Row:
    return Row(row.path, row.place, {**row.values, "video": video})


@dataclass(frozen=True)
class FramePicture(OneFile):
    """One frame of a video or a folder of frames, as a picture."""

    index: int
    modality: str = ""
    options: tuple[tuple[str, Any], ...] = ()

    def read(self) -> Image:
        """Returns (channel, row, column); raises CaseError when there is no such frame."""
        video = _opened(self.path, self.options, os.getpid())
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
        return Geometry(_opened(self.path, self.options, os.getpid()).shape[1:], np.eye(4), "pixel")


@lru_cache(maxsize=2)
def _opened(path: Path, options: tuple[tuple[str, Any], ...], process: int) -> Any:
    # Neighbouring frames are asked for one after the other, and an open video goes on from where it stopped; a forked
    # process opens its own.
    from medimg_eval.imaging.video import Video

    return Video(path, **dict(options))
