"""Video: frames by index or time out of a file or a folder of frames, without decoding the rest."""

from __future__ import annotations

import os
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Image
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.video.frames import File, Folder
from medimg_eval.system import whole

WHOLE_CLIP_BYTES = 2 * 2**30
"""A clip larger than this once decoded is read only by naming its frames."""


class Video:
    """A video file or a folder of frames: the frames by index or time.

    A file is opened when it is needed, and again in each process, so a Video may be handed to data-loader
    workers. It is not for several threads at once.

    Attributes:
        path: the file or folder.
    """

    def __init__(self, path: str | os.PathLike[str], *, fps: float | None = None) -> None:
        """Opens nothing yet.

        Args:
            path: a video file, or a folder of pictures of one kind, taken in natural order (2 before 10).
            fps: frames per second of a folder; a file states its own times.
        """
        self.path = Path(path)
        self._fps = fps
        if not self.path.exists():
            raise CaseError(f"{self.path}: no such file")
        if fps is not None and not (self.path.is_dir() and fps > 0):
            raise UsageError(f"{self.path}: fps={fps} is for folders of frames and above 0; a video file states times")
        self._source: Folder | File = Folder(self.path, fps) if self.path.is_dir() else File(self.path)

    def __enter__(self) -> Video:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "fps": self._fps}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], fps=state["fps"])  # type: ignore[misc]

    def __len__(self) -> int:
        return self._source.count

    def close(self) -> None:
        """Closes the file; it is opened again if it is needed again."""
        self._source.close()

    @property
    def shape(self) -> tuple[int, int, int]:
        """Frames, rows, columns; upright."""
        return (len(self), *self._source.size)

    @property
    def fps(self) -> float | None:
        """Frames per second on average; None of a folder that was given none."""
        return self._source.fps

    @property
    def times(self) -> Array:
        """When each frame is shown: float64, (frame,), seconds after the first.

        Of a file these are the times it states, whatever the rate; they are read without decoding.

        Raises:
            CaseError: a folder that was given no fps.
        """
        return self._source.times

    @property
    def notes(self) -> tuple[str, ...]:
        """What was mended or is doubted of the frames read so far, in words."""
        return tuple(self._source.notes)

    @property
    def attributes(self) -> dict[str, str]:
        """Codec and rate."""
        return self._source.attributes

    @property
    def decoded(self) -> int:
        """Frames decoded so far: what reading has cost."""
        return self._source.decoded

    def index_at(self, seconds: float) -> int:
        """Says which frame is shown at a time, to the microsecond.

        Raises:
            CaseError: before the first frame, or after the last.
        """
        times = self.times
        step = statistics.median(np.diff(times)) if len(times) > 1 else 1 / (self.fps or 1)
        if not -1e-6 <= seconds < times[-1] + step - 1e-6:
            raise CaseError(f"{self.path}: has no frame at {seconds:g} s: it lasts {times[-1] + step:g} s")
        return bisect_right(times, seconds + 1e-6) - 1

    def frame(self, index: int) -> Array:
        """Reads one frame, (channel, row, column), uint8 with 3 channels of a file; raises as `frames`."""
        array: Array = self.frames([index])[:, 0]
        return array

    def at(self, seconds: float) -> Array:
        """Reads the frame shown at a time; raises as `index_at` and `frames`."""
        return self.frame(self.index_at(seconds))

    def frames(self, indices: Sequence[int]) -> Array:
        """Reads frames, (channel, frame, row, column), in the order asked for; one may be asked for twice.

        Each stretch between key frames is decoded once at most, and frames asked for one after the other
        go on from where the last call stopped.

        Raises:
            CaseError: an index out of range, a damaged frame, or frames of different sizes.
        """
        indices = [int(index) for index in indices]
        if not indices:
            raise CaseError(f"{self.path}: expected at least one frame to read, got an empty list")
        wrong = next((index for index in indices if not 0 <= index < len(self)), None)
        if wrong is not None:
            raise CaseError(f"{self.path}: has {len(self)} frames, counted from 0, so there is no frame {wrong}")
        clip: Array | None = None
        for index in sorted(set(indices)):
            frame = self._source.frame(index)
            if clip is None:
                clip = np.empty((len(indices), *frame.shape), frame.dtype)
            clip[[place for place, wanted in enumerate(indices) if wanted == index]] = frame
        return np.moveaxis(np.asarray(clip), -1, 0)


def read(
    paths: Sequence[Path],
    *,
    frames: Sequence[int] | None = None,
    seconds: Sequence[float] | None = None,
    fps: float | None = None,
) -> Image:
    """Reads a clip, (channel, frame, row, column): uint8 RGB of a file, of a folder what its pictures hold.

    Args:
        paths: the one video file, or the one folder of frames.
        frames: which frames, from 0; all by default, unless that is more than `WHOLE_CLIP_BYTES`.
        seconds: the frames shown at these times after the first frame.
        fps: frames per second of a folder of frames, for `seconds`.

    Raises:
        CaseError: no video stream, cut short or damaged, too large to be read whole, a frame it does not have.
        UsageError: both `frames` and `seconds`, or `fps` of a file.
    """
    with Video(_one(paths), fps=fps) as video:
        wanted = _wanted(video, frames, seconds)
        if wanted is None:
            wanted = range(len(video))
            size = 3 * int(np.prod(video.shape, dtype=np.int64))
            if size > WHOLE_CLIP_BYTES:
                raise CaseError(
                    f"{video.path}: holds {len(video)} frames, {size / 2**30:.1f} GiB once decoded; "
                    "say which to read with frames=[...] or seconds=[...]"
                )
        array = video.frames(wanted)
        return Image(array, np.eye(4), units="pixel", notes=video.notes, attributes=video.attributes)


def grid(
    paths: Sequence[Path],
    *,
    frames: Sequence[int] | None = None,
    seconds: Sequence[float] | None = None,
    fps: float | None = None,
) -> Geometry:
    """Reads frames, rows and columns without decoding; takes what `read` takes."""
    with Video(_one(paths), fps=fps) as video:
        wanted = _wanted(video, frames, seconds)
        return Geometry((len(video) if wanted is None else len(wanted), *video.shape[1:]), np.eye(4), "pixel")


def write_video(
    path: str | Path, frames: Iterable[Array], fps: float, *, lossless: bool = True, keyframe_every: int = 24
) -> None:
    """Writes H.264; the file appears whole or not at all, and is the same for the same frames.

    Args:
        path: where to, `.mp4` or `.mkv`; its folder exists.
        frames: uint8, (frame, row, column, 3), or an iterator of such frames.
        fps: frames per second.
        lossless: keep every pixel; otherwise what cameras write (4:2:0, even sizes only).
        keyframe_every: frames from one key frame to the next.

    Raises:
        UsageError: not uint8 of three channels, no frame, or an odd size that 4:2:0 cannot hold.
    """
    import av

    path = Path(path)

    codec, layout, quality = ("libx264rgb", "rgb24", {"qp": "0"}) if lossless else ("libx264", "yuv420p", {"qp": "18"})
    stream: Any = None
    # Stating neither versions nor the number of threads makes the bytes depend on the frames alone.
    with whole(path) as partial, av.open(str(partial), "w", options={"fflags": "+bitexact"}) as container:
        for number, frame in enumerate(frames):
            if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
                raise UsageError(f"{path}: expected frames of uint8 (row, column, 3), got {frame.dtype} {frame.shape}")
            if not lossless and (frame.shape[0] % 2 or frame.shape[1] % 2):
                raise UsageError(f"{path}: expected even rows and columns for lossless=False, got {frame.shape[:2]}")
            if stream is None:
                rate = Fraction(fps).limit_denominator(10_000)
                stream = container.add_stream(
                    codec, rate=rate, options={**quality, "threads": "1", "flags": "+bitexact", "sc_threshold": "0"}
                )
                stream.height, stream.width = frame.shape[:2]
                stream.pix_fmt, stream.gop_size = layout, keyframe_every
            picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
            picture.pts = number
            container.mux(stream.encode(picture))
        if stream is None:
            raise UsageError(f"{path}: expected at least one frame to write, got none")
        container.mux(stream.encode(None))


def _one(paths: Sequence[Path]) -> Path:
    if len(paths) != 1:
        raise CaseError(f"{paths[0]}: expected one video or one folder of frames, got {len(paths)} paths")
    return paths[0]


def _wanted(video: Video, frames: Sequence[int] | None, seconds: Sequence[float] | None) -> Sequence[int] | None:
    if frames is not None and seconds is not None:
        raise UsageError(f"{video.path}: expected frames or seconds, got both")
    return frames if seconds is None else [video.index_at(second) for second in seconds]
