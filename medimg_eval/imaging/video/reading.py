"""Video: frames by index or time out of a file or a folder of frames, without decoding the rest."""

from __future__ import annotations

import functools
import os
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medimg_eval.case import Array, Geometry, Image
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging import pictures
from medimg_eval.system import natural_order, whole

FRAME_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif")
"""What counts as a frame in a folder."""


class Folder:
    """Frames that are pictures of one kind in one folder, in natural order."""

    def __init__(self, path: Path, fps: float | None) -> None:
        files = [
            file for file in path.iterdir() if file.suffix.lower() in FRAME_SUFFIXES and not file.name.startswith(".")
        ]
        kinds = sorted({file.suffix.lower().replace("jpeg", "jpg").replace("tiff", "tif") for file in files})
        if len(kinds) != 1:
            content = f"frames of several kinds ({', '.join(kinds)})" if kinds else "no frames"
            raise CaseError(f"{path}: holds {content}; expected the frames of one clip, such as frame_0001.png")
        self.files = sorted(files, key=lambda path: natural_order(path.stem))
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


_INHERITED: list[Any] = []


@dataclass(frozen=True, eq=False)
class _Index:
    """Facts of the packets of a video stream that need no decoding.

    `times` are seconds after the first frame, ascending; `number` is time stamp -> frame, empty where stamps do not
    tell frames apart and they must be counted; `keys` are the frames that decoding can start at, ascending, and
    `offsets` where to seek to for each of them.
    """

    times: Array
    number: dict[int, int]
    keys: list[int]
    offsets: list[int]


class _Stamps(NamedTuple):
    """Packet times of display and decoding, key frame, completeness."""

    pts: Any
    dts: Any
    is_keyframe: bool
    is_corrupt: bool


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
        promised, size = _promised_bytes(path), path.stat().st_size
        if promised > size:
            raise CaseError(f"{path}: is cut short: it holds {size} of {promised} bytes; write or copy it again")
        with _name_damage(path):
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
        with _name_damage(self.path):
            return _packet_index(self.path, about.st_size, about.st_mtime_ns)

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
        """Rows and columns after rotation, which the first frame tells."""
        if self._size is None:
            self.frame(0)
        return self._size or (0, 0)

    def frame(self, index: int) -> Array:
        """Reads a frame, uint8 RGB, (row, column, channel)."""
        with _name_damage(self.path):
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
            for stream in self._container.streams.video[:1]:
                stream.thread_type = "AUTO"  # of frames as well as of slices, which few films have
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
def _name_damage(path: Path) -> Iterator[None]:
    import av

    try:
        yield
    except av.FFmpegError as error:
        raise CaseError(
            f"{path}: is damaged, or of an unknown codec ({error.strerror}); write or copy it again"
        ) from error


@functools.lru_cache(maxsize=64)  # a table of frames reads the same few videos over and over
def _packet_index(path: Path, size: int, modified: int) -> _Index:
    """Packet index without decoding, with file `size` and `modified`."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        # Of each packet its stamps alone: those of a film of hours would fill the memory.
        packets = [
            _Stamps(packet.pts, packet.dts, packet.is_keyframe, packet.is_corrupt)
            for packet in container.demux(stream)
            if packet.size and not packet.is_discard
        ]
        base, late, kind = stream.time_base, bool(stream.codec_context.has_b_frames), container.format.name
    timestamps = [packet.dts if packet.pts is None else packet.pts for packet in packets]
    if not packets or None in timestamps or base is None:
        raise CaseError(f"{path}: holds no frames, or frames without times; convert it to mp4 with ffmpeg")
    if packets[-1].is_corrupt:
        raise CaseError(f"{path}: is cut short: its last frame is incomplete; write or copy it again")
    ordered = sorted(timestamps)
    times: Array = (np.array(ordered, np.int64) - ordered[0]) * base.numerator / base.denominator
    # AVI has no time stamps: frames that are stored in another order than shown carry the wrong ones.
    if len(set(timestamps)) < len(timestamps) or (kind == "avi" and late and timestamps == ordered):
        return _Index(times, {}, [0], [ordered[0]])
    number = {stamp: index for index, stamp in enumerate(ordered)}
    keys = {number[stamp]: packet for stamp, packet in zip(timestamps, packets, strict=True) if packet.is_keyframe}
    starts = {0: packets[0]} | keys
    # MP4 and Matroska are sought by when a frame is shown, others by when it is decoded, which is no later.
    exact = kind.startswith(("mov", "matroska"))
    stamps = [(starts[key].pts,) if exact else (starts[key].pts, starts[key].dts) for key in sorted(starts)]
    offsets = [min(stamp for stamp in either if stamp is not None) for either in stamps]
    return _Index(times, number, sorted(starts), offsets)


def _promised_bytes(path: Path) -> int:
    """Length that an MP4, AVI or Matroska states; else 0."""
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
    further_bytes = 8 - first.bit_length()
    value = int.from_bytes(bytes([first & (0x7F >> further_bytes)]) + stream.read(further_bytes), "big")
    return None if value == (1 << (7 * (further_bytes + 1))) - 1 else value


WHOLE_CLIP_BYTES = 2 * 2**30
"""A clip larger than this once decoded is read only by naming its frames."""


class Video:
    """Video file or folder, with frames by index or time.

    A file is opened when it is needed, and again in each process, so a Video may be handed to data-loader
    workers. It is not for several threads at once.
    """

    def __init__(self, path: str | os.PathLike[str], *, fps: float | None = None) -> None:
        """Takes a video file, or naturally ordered pictures of a folder.

        Pictures are of one kind; 2 comes before 10.

        `fps` are frames per second of a folder; a file states its own times.
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

        A file's times are those it states, whatever the rate; they are read without decoding. Raises CaseError of a
        folder that was given no fps.
        """
        return self._source.times

    @property
    def notes(self) -> tuple[str, ...]:
        """Repairs and doubts of the frames read so far, in words."""
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

        Raises CaseError before the first frame, or after the last.
        """
        times = self.times
        step = statistics.median(np.diff(times)) if len(times) > 1 else 1 / (self.fps or 1)
        if not -1e-6 <= seconds < times[-1] + step - 1e-6:
            raise CaseError(f"{self.path}: has no frame at {seconds:g} s: it lasts {times[-1] + step:g} s")
        return bisect_right(times, seconds + 1e-6) - 1

    def frame(self, index: int) -> Array:
        """Reads a frame, (channel, row, column), uint8 RGB of files.

        Raises as `frames`.
        """
        return self.frames([index])[:, 0]

    def frames(self, indices: Sequence[int]) -> Array:
        """Reads frames, (channel, frame, row, column), in the asked order.

        Each stretch between key frames is decoded once at most, and frames asked for one after the other go on from
        where the last call stopped. Raises CaseError for an index out of range, a damaged frame, or frames of different
        sizes.
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
            clip[[position for position, wanted in enumerate(indices) if wanted == index]] = frame
        return np.moveaxis(np.asarray(clip), -1, 0)


def read(
    paths: Sequence[Path],
    *,
    frames: Sequence[int] | None = None,
    seconds: Sequence[float] | None = None,
    fps: float | None = None,
) -> Image:
    """Reads a clip, (channel, frame, row, column), uint8 RGB of files.

    Args:
        paths: the one video file, or the one folder of frames.
        frames: which frames, from 0; all by default, unless that is more than `WHOLE_CLIP_BYTES`.
        seconds: the frames shown at these times after the first frame.
        fps: frames per second of a folder of frames, for `seconds`.

    Raises:
        CaseError: no video stream, cut short or damaged, too large to be read whole, a frame it does not have.
        UsageError: both `frames` and `seconds`, or `fps` of a file.
    """
    with Video(_single_path(paths), fps=fps) as video:
        wanted = _wanted_frames(video, frames, seconds)
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
    with Video(_single_path(paths), fps=fps) as video:
        wanted = _wanted_frames(video, frames, seconds)
        return Geometry((len(video) if wanted is None else len(wanted), *video.shape[1:]), np.eye(4), "pixel")


def write_video(
    path: str | Path, frames: Iterable[Array], fps: float, *, lossless: bool = True, keyframe_every: int = 24
) -> None:
    """Writes H.264, atomically and reproducibly.

    It is the same for the same frames.

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


def _single_path(paths: Sequence[Path]) -> Path:
    if len(paths) != 1:
        raise CaseError(f"{paths[0]}: expected one video or one folder of frames, got {len(paths)} paths")
    return paths[0]


def _wanted_frames(video: Video, frames: Sequence[int] | None, seconds: Sequence[float] | None) -> Sequence[int] | None:
    if frames is not None and seconds is not None:
        raise UsageError(f"{video.path}: expected frames or seconds, got both")
    return frames if seconds is None else [video.index_at(second) for second in seconds]
