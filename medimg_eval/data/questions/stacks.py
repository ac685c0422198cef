"""Slices of volumes and frames of videos, each a picture that models are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Geometry, Image
from medimg_eval.errors import CaseError, UsageError

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
    """

    path: Path
    count: int
    wanted: tuple[int, ...] = ()
    between: tuple[int, int] | None = None
    plane: str = "axial"
    low: float | None = None
    high: float | None = None

    def numbers(self, there: int) -> list[int]:
        """Which slices or frames, of those that are there.

        Evenly spaced slices include both ends, and places between two slices are cut down to the lower one; of a video,
        each frame is the middle one of one of `count` equal stretches. Raises CaseError for a slice that there is not.
        """
        if self.plane == "frames":
            return [int((place + 0.5) * there / self.count) for place in range(self.count)]
        if self.wanted:
            numbers = [there // 2 if one == MIDDLE else one for one in self.wanted]
        else:
            first, last = self.between or (0, there - 1)
            numbers = [int(one) for one in np.linspace(first, last, self.count)]
        lost = next((one for one in numbers if not 0 <= one < there), None)
        if lost is not None:
            raise CaseError(
                f"{self.path}: has {there} {self.plane} slices, counted from 0, so there is no slice {lost}"
            )
        return numbers


MIDDLE = -1
"""Stands for the middle slice."""


@dataclass(frozen=True)
class StackPicture:
    """One picture of a stack: of a volume, uint8 of one channel; of a video, three."""

    stack: Stack
    place: int

    @property
    def files(self) -> tuple[Path, ...]:
        """The volume or video."""
        return (self.stack.path,)

    def read(self) -> Image:
        """Reads it; raises CaseError naming the file."""
        arrays, note = _pictures(self.stack, _changed(self.stack.path))
        return Image(arrays[self.place], np.eye(4), units="pixel", notes=(note,) if note else ())

    def geometry(self) -> Geometry:
        """Rows and columns."""
        return self.read().geometry


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise CaseError(f"{path}: no such file") from error


@lru_cache(maxsize=2)  # the pictures of one case are asked for one after the other
def _pictures(stack: Stack, _changed: int) -> tuple[list[Array], str]:
    if stack.plane == "frames":
        from medimg_eval.imaging.video import Video

        with Video(stack.path) as video:
            clip = video.frames(stack.numbers(len(video)))
        return [np.ascontiguousarray(clip[:, place]) for place in range(clip.shape[1])], ""
    from medimg_eval.imaging import read
    from medimg_eval.imaging.geometry import reorient

    image = read(stack.path, nan=0)
    if image.array.ndim != 4 or len(image.array) != 1:
        raise CaseError(f"{stack.path}: expected a volume of one channel, found the shape {image.array.shape}")
    volume = reorient(image, SIDES[stack.plane]).array[0]
    low = float(volume.min()) if stack.low is None else stack.low
    high = float(volume.max()) if stack.high is None else stack.high
    chosen = [volume[..., number].T for number in stack.numbers(volume.shape[2])]
    note = "" if image.units == "mm" else "states no orientation: its axes were taken as they are stored"
    return [_grey(one, low, high)[None] for one in chosen], note


def _grey(array: Array, low: float, high: float) -> Array:
    shares = (array.astype(np.float32) - low) / (max(high - low, 1e-6))
    grey: Array = np.rint(np.clip(shares, 0, 1) * 255).astype(np.uint8)
    return grey


def stack_of(path: Path, config: Mapping[str, Any]) -> Stack:
    """The stack that `{volume: ..., slices: ..., window: ...}` or `{video: ..., frames: ...}` describes.

    Raises UsageError where `slices`, `window` or `frames` is none of what is known.
    """
    if "video" in config:
        return Stack(path, _whole(config.get("frames", 8), "frames"), plane="frames")
    low, high = _values(config)
    plane = config.get("plane", "axial")
    if plane not in SIDES:
        raise UsageError(f"task.layout.images.plane is {plane!r}, expected one of {', '.join(SIDES)}")
    count, wanted, between = _slices(config.get("slices", "middle"))
    return Stack(path, count, wanted, between, plane, low, high)


def _slices(slices: Any) -> tuple[int, tuple[int, ...], tuple[int, int] | None]:
    if slices == "middle":
        return 1, (MIDDLE,), None
    if isinstance(slices, Sequence) and not isinstance(slices, str):
        wanted = tuple(_whole(one, "slices", least=0) for one in slices)
        return len(wanted), wanted, None
    if not isinstance(slices, Mapping) or not slices:
        raise UsageError(
            f"task.layout.images.slices is {slices!r}, expected middle, a list, or count with or without from and to"
        )
    between = None
    if "from" in slices or "to" in slices:
        between = _whole(slices.get("from", 0), "slices.from", least=0), _whole(slices.get("to"), "slices.to", least=0)
        if "count" not in slices:
            wanted = tuple(range(between[0], between[1] + 1))
            return len(wanted), wanted, None
    return _whole(slices.get("count"), "slices.count"), (), between


def _values(config: Mapping[str, Any]) -> tuple[float | None, float | None]:
    if "window" in config:
        level, width = _pair(config["window"], "window", "[level, width]")
        return level - width / 2, level + width / 2
    return _pair(config["clip"], "clip", "[lowest, highest]") if "clip" in config else (None, None)


def _pair(given: Any, name: str, form: str) -> tuple[float, float]:
    if isinstance(given, list | tuple) and len(given) == 2 and all(isinstance(one, int | float) for one in given):
        return float(given[0]), float(given[1])
    raise UsageError(f"task.layout.images.{name} is {given!r}, expected {form}")


def _whole(given: Any, name: str, *, least: int = 1) -> int:
    if isinstance(given, int) and given >= least:
        return given
    raise UsageError(f"task.layout.images.{name} is {given!r}, expected a whole number from {least} on")
