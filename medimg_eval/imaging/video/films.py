"""Films: the frames of a case in their order, one after another, decoded ahead of a busy model and never all held."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from medimg_eval.case import Array, Geometry, Image, OneFile, Prompt
from medimg_eval.errors import CaseError
from medimg_eval.image import FEATURES
from medimg_eval.imaging import pictures
from medimg_eval.imaging.video.reading import Video

AHEAD = 8
"""Frames that are decoded before they are asked for."""

T = TypeVar("T")


@dataclass(frozen=True)
class FilmFile(OneFile):
    """Video file or folder of frames, of which some are shown.

    Attributes:
        path: of the video, or folder.
        every: frames of the video from one that is shown to the next; of a folder that already holds those, 1.
    """

    every: int = 1

    def read(self) -> Image:
        """Returns the first frame, (channel, row, column), as an example; raises CaseError."""
        with Video(self.path) as video:
            return Image(video.frame(0), np.eye(4), modality="ES", units="pixel", attributes=video.attributes)

    def geometry(self) -> Geometry:
        """Rows and columns."""
        with Video(self.path) as video:
            return Geometry(video.shape[1:], np.eye(4), "pixel")

    @property
    def rate(self) -> float | None:
        """Frames shown per second; None of a folder."""
        with Video(self.path) as video:
            return video.fps and video.fps / self.every

    def frames(self, places: Sequence[int]) -> Iterator[Array]:
        """Yields frames by grid place, uint8, (channel, row, column).

        Raises CaseError.
        """
        with Video(self.path) as video:
            for index in places:
                yield video.frame(int(index) * self.every)


@dataclass(frozen=True)
class FramePictures:
    """Pictures by frame number, of videos sharing a folder.

    Attributes:
        root: the folder that the pattern is below.
        pattern: of the pictures, such as `train/7_{frame}.jpg`.
        every: number of a picture from one that is shown to the next.
    """

    root: Path
    pattern: str
    every: int = 1

    @property
    def files(self) -> tuple[Path, ...]:
        """Their folder."""
        return ((self.root / self.pattern).parent,)

    def picture(self, number: int) -> Path:
        """Picture of a frame; CaseError without."""
        path = _list_pictures(self.root, self.pattern).get(number)
        if path is None:
            raise CaseError(f"{self.root / self.pattern}: there is no picture of frame {number}")
        return path

    def read(self) -> Image:
        """Returns the first frame, (channel, row, column), as an example; raises CaseError."""
        held = _list_pictures(self.root, self.pattern)
        return pictures.read([self.picture(min(held, default=0))])

    def geometry(self) -> Geometry:
        """Rows and columns."""
        return Geometry(self.read().array.shape[1:], np.eye(4), "pixel")

    def frames(self, places: Sequence[int]) -> Iterator[Array]:
        """Yields frames by grid place, uint8, (channel, row, column).

        Raises CaseError.
        """
        for index in places:
            yield pictures.read([self.picture(int(index) * self.every)]).array


@lru_cache(maxsize=4)
def _list_pictures(root: Path, pattern: str) -> dict[int, Path]:
    before, _, after = pattern.partition("{frame}")
    folder = (root / f"{before}0").parent
    start = before.rpartition("/")[2]
    named = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
    inner = {
        path: name.removeprefix(start).removesuffix(after) for name, path in named.items() if name.startswith(start)
    }
    return {int(text): path for path, text in inner.items() if text.isdecimal() and path.name.endswith(after)}


@dataclass(frozen=True)
class FrameFeatures(OneFile):
    """Frame features, one row each, of .npy or .h5.

    Attributes:
        path: of an array (frame, feature).
    """

    def read(self) -> Image:
        """Returns (1, frame, feature); CaseError for missing, damaged or non-finite ones."""
        array = np.asarray(self._array())
        if not np.isfinite(array).all():
            raise CaseError(f"{self.path}: holds features that are not finite")
        return Image(array[None], np.eye(4), units="pixel", attributes=dict(FEATURES))

    def geometry(self) -> Geometry:
        """Frames, and features."""
        return Geometry(self._array().shape, np.eye(4), "pixel")

    def frames(self, places: Sequence[int]) -> Iterator[Array]:
        """Yields vectors, float, (feature,); CaseError for missing rows."""
        array = self.read().array[0]
        last = max(places, default=0)
        if last >= len(array):
            raise CaseError(f"{self.path}: has {len(array)} rows, and frame {last} of the grid is asked for")
        yield from (array[index] for index in places)

    def _array(self) -> Array:
        if self.path.suffix == ".npy":
            with CaseError.about(self.path, "cannot be read as .npy", ValueError, OSError, EOFError):
                array: Array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        else:
            from medimg_eval.imaging.slides import read_features

            array = read_features(self.path).features
        if array.ndim != 2 or array.dtype.kind not in "fiu":
            raise CaseError(f"{self.path}: expected numbers (frame, feature), got {array.shape} of {array.dtype}")
        return array


class Film:
    """Frames in order, each once, as online models see them.

    Attributes:
        fps: frames per second of what is given out.
        given_out: how many frames were given out so far.
    """

    def __init__(self, source: Any, places: Sequence[int], fps: float, *, online: bool = False) -> None:
        """Takes a reference with `frames`, and their rate."""
        self._source, self._places, self.fps = source, [int(index) for index in places], fps
        self._online, self._begun, self.given_out = online, False, 0

    def count(self) -> int:
        """Number of frames; CaseError online, where it is unknown."""
        if self._online:
            raise CaseError("online: the length of the film is not known before its end")
        return len(self._places)

    def __iter__(self) -> Iterator[Array]:
        """Yields frames, online only once; CaseError for unreadable ones."""
        if self._online and self._begun:
            raise CaseError("online: the film runs once; keep what is needed of former frames")
        self._begun, self.given_out = True, 0
        for frame in decoded_ahead(self._source.frames(self._places)):
            self.given_out += 1
            yield frame

    @property
    def times(self) -> Array:
        """Seconds of each frame after the start, float64, (frame,); raises CaseError online."""
        return np.array(self._places[: self.count()]) / self.fps


@dataclass(frozen=True)
class FilmPrompt(Prompt):
    """Question to a model about one film.

    Attributes:
        film: its frames.
        phases: classes of which each frame has one.
        presence: classes of which each frame has any number.
        online: whether each frame must be answered before later ones are seen.
        delay: so many later frames may be seen.
    """

    film: Film = field(default_factory=lambda: Film(None, (), 1.0))
    phases: tuple[str, ...] = ()
    presence: tuple[str, ...] = ()
    online: bool = False
    delay: int = 0


def decoded_ahead(items: Iterable[T], ahead: int = AHEAD) -> Iterator[T]:
    """Yields items prepared ahead by a thread, forwarding its errors."""
    iterator, end = iter(items), object()
    pool = ThreadPoolExecutor(1)
    try:
        waiting = deque(pool.submit(next, iterator, end) for _ in range(ahead))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, iterator, end))
            yield item  # type: ignore[misc]
    finally:
        pool.shutdown(cancel_futures=True)
