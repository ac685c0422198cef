"""Where the frames of a clip come from: a video file, or a folder of pictures. `video` is the way in."""

from __future__ import annotations

import functools
import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging import pictures

FRAME_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif")
"""What counts as a frame in a folder."""


class Folder:
    """Frames that are pictures of one kind in one folder, in natural order."""

    def __init__(self, path: Path, fps: float | None) -> None:
        files = [one for one in path.iterdir() if one.suffix.lower() in FRAME_SUFFIXES and not one.name.startswith(".")]
        kinds = sorted({one.suffix.lower().replace("jpeg", "jpg").replace("tiff", "tif") for one in files})
        if len(kinds) != 1:
            found = f"frames of several kinds ({', '.join(kinds)})" if kinds else "no frames"
            raise CaseError(f"{path}: holds {found}; expected the frames of one clip, such as frame_0001.png")
        self.files = sorted(files, key=_natural)
        self.path, self.fps, self.count, self.decoded = path, fps, len(files), 0
        self.notes: list[str] = []
        self.attributes = {"fps": f"{fps:g}"} if fps else {}
        self._channels: tuple[int, np.dtype[Any]] | None = None

    @functools.cached_property
    def size(self) -> tuple[int, int]:
        """Rows and columns of the first frame."""
        rows, columns = pictures.grid([self.files[0]]).shape
        return rows, columns

    @property
    def times(self) -> Array:
        """Seconds after the first frame."""
        if self.fps is None:
            raise CaseError(f"{self.path}: is a folder of frames, which states no times; give fps=")
        return np.arange(self.count) / self.fps

    def frame(self, index: int) -> Array:
        """Reads a frame, (row, column, channel)."""
        image = pictures.read([self.files[index]])
        channels, *size = image.array.shape
        if tuple(size) != self.size:
            raise CaseError(
                f"{self.files[index]}: has {size[0]} x {size[1]} rows and columns, the first frame of its folder "
                f"{self.size[0]} x {self.size[1]}; the frames of one clip are of one size"
            )
        self._channels = self._channels or (channels, image.array.dtype)
        if self._channels != (channels, image.array.dtype):
            raise CaseError(
                f"{self.files[index]}: has {channels} channels of {image.array.dtype}, another frame of its folder "
                f"{self._channels[0]} of {self._channels[1]}; the frames of one clip are of one kind"
            )
        self.decoded += 1
        self.notes += [note for note in image.notes if note not in self.notes]
        return np.moveaxis(image.array, 0, -1)

    def close(self) -> None:
        """Nothing stays open."""


def _natural(path: Path) -> list[tuple[int, int, str]]:
    parts = [part for part in re.split(r"(\d+)", path.stem) if part]
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in parts]


_INHERITED: list[Any] = []


@dataclass(frozen=True, eq=False)
class _Index:
    """What the packets of a video stream say without being decoded.

    Attributes:
        times: float64, (frame,), seconds after the first frame, ascending.
        number: time stamp -> frame; empty where stamps do not tell frames apart and they must be counted.
        keys: the frames that decoding can start at, ascending.
        offsets: where to seek to for each of `keys`.
    """

    times: Array
    number: dict[int, int]
    keys: list[int]
    offsets: list[int]


class File:
    """The first video stream of a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.decoded = path, 0
        self.notes: list[str] = []
        self._colours: Any = None
        self._container: Any = None
        self._process = self._next = 0
        self._numbered: Iterator[tuple[int, Any]] = iter(())
        self._size: tuple[int, int] | None = None
        promised, found = _promised_bytes(path), path.stat().st_size
        if promised > found:
            raise CaseError(f"{path}: is cut short: it holds {found} of {promised} bytes; write or copy it again")
        with _damage(path):
            context = self._open().codec_context
            if context.format is not None and context.format.components[0].bits > 8:
                self.notes.append(f"its {context.format.components[0].bits} bits per colour were reduced to 8")
            shape = context.sample_aspect_ratio
            if shape and shape != 1:
                self.notes.append(f"its pixels are {float(shape):.3g} times as wide as high; it was not resampled")
            self._codec = str(context.name)

    @functools.cached_property
    def index(self) -> _Index:
        """Time stamps and key frames."""
        about = self.path.stat()
        with _damage(self.path):
            return _index(self.path, about.st_size, about.st_mtime_ns)

    @property
    def count(self) -> int:
        """How many frames there are."""
        return len(self.index.times)

    @property
    def times(self) -> Array:
        """Seconds after the first frame."""
        return self.index.times.copy()

    @property
    def fps(self) -> float | None:
        """Frames per second on average; None of a single frame."""
        times = self.index.times
        return float((len(times) - 1) / times[-1]) if len(times) > 1 else None

    @property
    def attributes(self) -> dict[str, str]:
        """Codec and rate."""
        return {"codec": self._codec} | ({} if self.fps is None else {"fps": f"{self.fps:g}"})

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns; only the frames say whether they are to be turned, so the first is decoded."""
        if self._size is None:
            self.frame(0)
        return self._size or (0, 0)

    def frame(self, index: int) -> Array:
        """Reads a frame, uint8 RGB, (row, column, channel)."""
        with _damage(self.path):
            picture = self._decode(index)
            frame: Array = self._colours.reformat(picture, format="rgb24").to_ndarray()
        if picture.rotation:
            frame = np.rot90(frame, round(picture.rotation / 90))
            note = f"was turned by {picture.rotation} degrees as it says"
            self.notes += [note] if note not in self.notes else []
        size = (frame.shape[0], frame.shape[1])
        self._size = self._size or size
        if size != self._size:
            raise CaseError(
                f"{self.path}: frame {index} has {size[0]} x {size[1]} rows and columns, another {self._size[0]} x "
                f"{self._size[1]}; cut the video where its size changes"
            )
        return frame

    def close(self) -> None:
        """Closes the file."""
        if self._container is not None and self._process == os.getpid():
            self._numbered = iter(())
            self._container.close()
            self._container = None

    def _open(self) -> Any:
        import av
        from av.video.reformatter import VideoReformatter

        # A file position is shared with the process this one was forked from, so each opens its own. What was
        # inherited is kept: closing it would wait for decoder threads that were left behind in the other process.
        if self._container is not None and self._process != os.getpid():
            _INHERITED.append((self._container, self._numbered, self._colours))
            self._container = None
        if self._container is None:
            self._container, self._process = av.open(str(self.path)), os.getpid()
            self._numbered, self._next = iter(()), -1
            self._colours = VideoReformatter()  # kept: making one costs more than the colours of a frame
        streams = self._container.streams.video
        if not streams:
            raise CaseError(f"{self.path}: holds no video stream; it may be a sound recording")
        return streams[0]

    def _decode(self, wanted: int) -> Any:
        # From the key frame before it; should that fail, as after a wrong key frame, once more from the start.
        for start in (bisect_right(self.index.keys, wanted) - 1, None):
            self._go_to(start, wanted)
            for number, picture in self._numbered:
                self.decoded += 1
                self._next = number + 1
                if number == wanted and not picture.is_corrupt:
                    return picture
                if number >= wanted:
                    break
        raise CaseError(f"{self.path}: frame {wanted} is damaged or missing; write or copy the file again")

    def _go_to(self, start: int | None, wanted: int) -> None:
        stream = self._open()
        if start is not None and self.index.keys[start] <= self._next <= wanted:
            return
        if start is None or not self.index.number:
            self.close()
            stream = self._open()
        else:
            self._container.seek(self.index.offsets[start], stream=stream)
        self._numbered = self._count(stream)

    def _count(self, stream: Any) -> Iterator[tuple[int, Any]]:
        for count, picture in enumerate(self._container.decode(stream)):
            number = self.index.number.get(picture.pts) if self.index.number else count
            if number is not None:
                yield number, picture


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    import av

    try:
        yield
    except av.FFmpegError as error:
        raise CaseError(
            f"{path}: is damaged, or of an unknown codec ({error.strerror}); write or copy it again"
        ) from error


@functools.lru_cache(maxsize=64)  # a table of frames reads the same few videos over and over
def _index(path: Path, size: int, modified: int) -> _Index:
    """Reads every packet, decodes none; `size` and `modified` tell one state of the file from the next."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size and not packet.is_discard]
        base, late, kind = stream.time_base, bool(stream.codec_context.has_b_frames), container.format.name
    shown = [packet.dts if packet.pts is None else packet.pts for packet in packets]
    if not packets or None in shown or base is None:
        raise CaseError(f"{path}: holds no frames, or frames without times; convert it to mp4 with ffmpeg")
    if packets[-1].is_corrupt:
        raise CaseError(f"{path}: is cut short: its last frame is incomplete; write or copy it again")
    ordered = sorted(shown)
    times: Array = (np.array(ordered, np.int64) - ordered[0]) * base.numerator / base.denominator
    # AVI has no time stamps: frames that are stored in another order than shown carry the wrong ones.
    if len(set(shown)) < len(shown) or (kind == "avi" and late and shown == ordered):
        return _Index(times, {}, [0], [ordered[0]])
    number = {stamp: place for place, stamp in enumerate(ordered)}
    keys = {number[stamp]: packet for stamp, packet in zip(shown, packets, strict=True) if packet.is_keyframe}
    starts = {0: packets[0]} | keys
    # MP4 and Matroska are sought by when a frame is shown, others by when it is decoded, which is no later.
    exact = kind.startswith(("mov", "matroska"))
    stamps = [(starts[key].pts,) if exact else (starts[key].pts, starts[key].dts) for key in sorted(starts)]
    offsets = [min(stamp for stamp in either if stamp is not None) for either in stamps]
    return _Index(times, number, sorted(starts), offsets)


def _promised_bytes(path: Path) -> int:
    """How long an MP4, AVI or Matroska file says it is; 0 where it does not."""
    with path.open("rb") as stream:
        head = stream.read(16)
        if head[:4] == b"RIFF":
            return 8 + int.from_bytes(head[4:8], "little")
        if head[:4] == b"\x1aE\xdf\xa3":
            stream.seek(4)
            stream.seek(_matroska_length(stream) or 0, os.SEEK_CUR)
            if stream.read(4) != b"\x18S\x80g":
                return 0
            length = _matroska_length(stream)
            return 0 if length is None else stream.tell() + length
        end, boxes = 0, head[4:8] == b"ftyp"
        while boxes and len(head) >= 8:
            length = int.from_bytes(head[:4], "big")
            length = int.from_bytes(head[8:16], "big") if length == 1 else length
            if length < 8:  # the last box may reach to the end of the file, whatever that is
                break
            end += length
            stream.seek(end)
            head = stream.read(16)
        return end


def _matroska_length(stream: Any) -> int | None:
    """Reads a length; None where it is unknown, as of a live recording."""
    first = stream.read(1)[0]
    more = 8 - first.bit_length()
    value = int.from_bytes(bytes([first & (0x7F >> more)]) + stream.read(more), "big")
    return None if value == (1 << (7 * (more + 1))) - 1 else value
