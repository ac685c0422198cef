"""Slices of volumes and frames of videos, each a picture that models are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from medimg_eval.case import Array, GridAsRead, Image
from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.imaging import SHOWN, VIDEO, WINDOWS, VideoPrompt, VolumePrompt

if TYPE_CHECKING:
    from medimg_eval.imaging.video import Video

SIDES = {"axial": "LPS", "coronal": "LIP", "sagittal": "PIL"}
"""Where a picture's columns, its rows and the slices go in the patient.

Radiologists see an axial slice from the feet (the patient's right is on the left, the front above), a coronal one from
the front (right on the left, the head above), and a sagittal one with the face to the left and the head above.
"""


@dataclass(frozen=True)
class Stack:
    """Pictures out of one volume or video.

    Attributes:
        wanted: which slices: their numbers, from 0; or empty for `count` of them, evenly spaced.
        between: the first and the last of evenly spaced slices; None for the first and last there are.
        plane: `axial`, `coronal` or `sagittal`; `frames` of a video.
        low: the value that becomes black, as `high` white; None for the least, or largest, in the volume.
        seconds: of a video, when the frames are shown that are wanted; empty for `count` of them, evenly spaced.
        modality: DICOM code, where the file says none.
        axes: of a volume in an array file, such as `czyx`.
        stored: where the axes x, y, z of such a file go in the patient, such as `LPS`; "" for RAS+.
    """

    path: Path
    count: int
    wanted: tuple[int, ...] = ()
    between: tuple[int, int] | None = None
    plane: str = "axial"
    low: float | None = None
    high: float | None = None
    seconds: tuple[float, ...] = ()
    modality: str = ""
    axes: str = ""
    stored: str = ""

    def numbers(self, there: int) -> list[int]:
        """Numbers of the slices or frames shown, of those there.

        Evenly spaced slices include both ends, and places between two slices are cut down to the lower one; of a video,
        each frame is the middle one of one of `count` equal stretches. Raises CaseError for a slice that there is not.
        """
        if self.plane == "frames":
            return [int((index + 0.5) * there / self.count) for index in range(self.count)]
        if self.wanted:
            numbers = [there // 2 if number == MIDDLE else number for number in self.wanted]
        else:
            first, last = self.between or (0, there - 1)
            numbers = [int(number) for number in np.linspace(first, last, self.count)]
        outside = next((number for number in numbers if not 0 <= number < there), None)
        if outside is not None:
            raise CaseError(
                f"{self.path}: has {there} {self.plane} slices, counted from 0, so there is no slice {outside}"
            )
        return numbers


MIDDLE = -1
"""Stands for the middle slice."""


@dataclass(frozen=True)
class StackPicture(GridAsRead):
    """Picture of a stack, uint8: one channel of volumes, three of videos."""

    stack: Stack
    place: int

    @property
    def files(self) -> tuple[Path, ...]:
        """The volume or video."""
        return (self.stack.path,)

    @property
    def whole(self) -> WholeStack:
        """Volume or video of the picture, for models taking it whole."""
        return WholeStack(self.stack)

    def read(self) -> Image:
        """Reads it; raises CaseError naming the file."""
        arrays, note, description = _cached_pictures(self.stack, _modification_time(self.stack.path))
        notes = (note,) if note else ()
        about = {SHOWN: description} | ({VIDEO: str(self.stack.path)} if self.stack.plane == "frames" else {})
        return Image(arrays[self.place], np.eye(4), units="pixel", notes=notes, attributes=about)


@dataclass(frozen=True)
class WholeStack(GridAsRead):
    """Whole volume or video, with its rule for pictures."""

    stack: Stack

    @property
    def view(self) -> Literal["volume", "video"]:
        """View a stack makes: `video` of frames, else `volume`."""
        return "video" if self.stack.plane == "frames" else "volume"

    @property
    def files(self) -> tuple[Path, ...]:
        """The volume or video."""
        return (self.stack.path,)

    def read(self) -> Image:
        """Reads a `VideoPrompt` or a `VolumePrompt`; raises CaseError naming the file."""
        _modification_time(self.stack.path)
        return _whole_video(self.stack) if self.view == "video" else _whole_volume(self.stack)


def _whole_video(stack: Stack) -> VideoPrompt:
    from medimg_eval.imaging.video import Video

    with Video(stack.path) as video:
        numbers = _frame_numbers(stack, video)
        times = _frame_times(video, numbers)
        return VideoPrompt(
            video.frames(numbers),
            np.eye(4),
            units="pixel",
            notes=video.notes,
            attributes={**video.attributes, SHOWN: _frames_in_words(numbers, len(video), times)},
            path=stack.path,
            indices=tuple(numbers),
            times=times,
            fps=video.fps,
            frames_total=len(video),
        )


def _whole_volume(stack: Stack) -> VolumePrompt:
    from medimg_eval.imaging import orientation, reorient

    image, note = _read_volume(stack)
    upright = reorient(image, "RAS")
    low, high = _grey_span(stack, image)
    count = reorient(image, SIDES[stack.plane]).array.shape[3]
    modality = image.modality or stack.modality
    size = " x ".join(map(str, upright.array.shape[1:]))
    return VolumePrompt(
        np.ascontiguousarray(upright.array),
        upright.affine,
        modality,
        image.units,
        (*image.notes, *((note,) if note else ())),
        {**image.attributes, SHOWN: f"the volume whole, {size} voxels, RAS+"},
        intensity="HU" if modality == "CT" else "arbitrary",
        orientation_before="" if note else orientation(image.affine),
        windows=WINDOWS.get(modality, {}),
        plane=stack.plane,
        slices=tuple(stack.numbers(count)),
        window=(low, high),
    )


def _read_volume(stack: Stack) -> tuple[Image, str]:
    from medimg_eval.imaging import read

    image = read(stack.path, nan=0, **({"axes": stack.axes} if stack.axes else {}))
    if image.array.ndim != 4 or len(image.array) != 1:
        raise CaseError(f"{stack.path}: expected a volume of one channel, found the shape {image.array.shape}")
    if image.units == "mm":
        return image, ""
    if not stack.stored:
        return image, "states no orientation: its axes were taken as they are stored"
    affine = np.zeros((4, 4))
    affine[3, 3] = 1
    for axis, letter in enumerate(stack.stored):
        row = next(row for row, ends in enumerate(("LR", "PA", "IS")) if letter in ends)
        affine[row, axis] = 1 if letter in "RAS" else -1
    return replace(image, affine=affine), ""


def _grey_span(stack: Stack, image: Image) -> tuple[float, float]:
    """The values that become black and white."""
    low = float(image.array.min()) if stack.low is None else stack.low
    return low, float(image.array.max()) if stack.high is None else stack.high


def _frame_numbers(stack: Stack, video: Video) -> list[int]:
    return [video.index_at(second) for second in stack.seconds] or stack.numbers(len(video))


def _frame_times(video: Video, numbers: Sequence[int]) -> tuple[float, ...]:
    """When frames are shown; nothing of a folder, which does not say."""
    return () if video.fps is None else tuple(float(video.times[number]) for number in numbers)


def _frames_in_words(numbers: Sequence[int], there: int, times: Sequence[float]) -> str:
    seconds = f", at {' '.join(f'{time:g}' for time in times)} s" if times else ""
    return f"frames {' '.join(map(str, numbers))} of {there}{seconds}"


def _modification_time(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise CaseError(f"{path}: no such file") from error


@lru_cache(maxsize=2)  # the pictures of one case are asked for one after the other
def _cached_pictures(stack: Stack, _changed: int) -> tuple[list[Array], str, str]:
    """The pictures, what is doubted of them, and which they are in words."""
    if stack.plane == "frames":
        from medimg_eval.imaging.video import Video

        with Video(stack.path) as video:
            numbers = _frame_numbers(stack, video)
            clip = video.frames(numbers)
            description = _frames_in_words(numbers, len(video), _frame_times(video, numbers))
        return [np.ascontiguousarray(clip[:, index]) for index in range(clip.shape[1])], "", description
    from medimg_eval.imaging import reorient

    image, note = _read_volume(stack)
    low, high = _grey_span(stack, image)
    volume = reorient(image, SIDES[stack.plane]).array[0]
    numbers = stack.numbers(volume.shape[2])
    slices = f"{stack.plane} slices {' '.join(map(str, numbers))} of {volume.shape[2]}"
    description = f"{slices}, {low:g} as black and {high:g} as white"
    return [_as_grey(volume[..., number].T, low, high)[None] for number in numbers], note, description


def _as_grey(array: Array, low: float, high: float) -> Array:
    shares = (array.astype(np.float32) - low) / (max(high - low, 1e-6))
    grey: Array = np.rint(np.clip(shares, 0, 1) * 255).astype(np.uint8)
    return grey


def stack_of(path: Path, config: Mapping[str, Any], modality: str = "") -> Stack:
    """Stack of a config: `volume`, `slices`, `window`; or `video`, `frames`.

    `modality` is a DICOM code. Raises UsageError where `slices`, `window` or `frames` is none of what is known.
    """
    if "video" in config:
        seconds = _parse_seconds(config)
        return Stack(
            path, len(seconds) or _parse_whole(config.get("frames", 8), "frames"), plane="frames", seconds=seconds
        )
    low, high = _parse_values(config)
    plane = config.get("plane", "axial")
    if plane not in SIDES:
        raise UsageError(f"task.layout.images.plane is {plane!r}, expected one of {', '.join(SIDES)}")
    count, wanted, between = _parse_slices(config.get("slices", "middle"))
    axes, stored = str(config.get("axes", "")), str(config.get("stored", ""))
    if stored and sorted("LRPAIS".index(letter) // 2 for letter in stored if letter in "LRPAIS") != [0, 1, 2]:
        raise UsageError(f"task.layout.images.stored is {stored!r}, expected three directions such as LPS")
    return Stack(path, count, wanted, between, plane, low, high, (), modality, axes, stored)


def _parse_seconds(config: Mapping[str, Any]) -> tuple[float, ...]:
    seconds = config.get("seconds", ())
    if "frames" in config and "seconds" in config:
        raise UsageError("task.layout.images is invalid: expected frames or seconds of a video, got both")
    if not isinstance(seconds, list | tuple) or not all(
        isinstance(second, int | float) and second >= 0 for second in seconds
    ):
        raise UsageError(f"task.layout.images.seconds is {seconds!r}, expected a list of seconds such as [0, 2.5]")
    return tuple(map(float, seconds))


def _parse_slices(slices: Any) -> tuple[int, tuple[int, ...], tuple[int, int] | None]:
    if slices == "middle":
        return 1, (MIDDLE,), None
    if isinstance(slices, Sequence) and not isinstance(slices, str):
        wanted = tuple(_parse_whole(number, "slices", least=0) for number in slices)
        return len(wanted), wanted, None
    if not isinstance(slices, Mapping) or not slices:
        raise UsageError(
            f"task.layout.images.slices is {slices!r}, expected middle, a list, or count with or without from and to"
        )
    between = None
    if "from" in slices or "to" in slices:
        between = (
            _parse_whole(slices.get("from", 0), "slices.from", least=0),
            _parse_whole(slices.get("to"), "slices.to", least=0),
        )
        if "count" not in slices:
            wanted = tuple(range(between[0], between[1] + 1))
            return len(wanted), wanted, None
    return _parse_whole(slices.get("count"), "slices.count"), (), between


def _parse_values(config: Mapping[str, Any]) -> tuple[float | None, float | None]:
    if "window" in config:
        named = config["window"]
        if isinstance(named, str):
            presets = {name: window for windows in WINDOWS.values() for name, window in windows.items()}
            if named not in presets:
                raise UsageError(
                    f"task.layout.images.window is {named!r}, expected a known name{nearest(named, presets)}"
                )
            config = {**config, "window": presets[named]}
        level, width = _parse_pair(config["window"], "window", "[level, width]")
        return level - width / 2, level + width / 2
    return _parse_pair(config["clip"], "clip", "[lowest, highest]") if "clip" in config else (None, None)


def _parse_pair(given: Any, name: str, form: str) -> tuple[float, float]:
    if isinstance(given, list | tuple) and len(given) == 2 and all(isinstance(number, int | float) for number in given):
        return float(given[0]), float(given[1])
    raise UsageError(f"task.layout.images.{name} is {given!r}, expected {form}")


def _parse_whole(given: Any, name: str, *, least: int = 1) -> int:
    if isinstance(given, int) and given >= least:
        return given
    raise UsageError(f"task.layout.images.{name} is {given!r}, expected a whole number from {least} on")
