"""Synthesis of volumes and videos, judged by the slices of three planes, or whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Case, Image
from medimg_eval.codecs import GeneratedImages
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging import read, reorient
from medimg_eval.panels import Panel
from medimg_eval.store import digest
from medimg_eval.tasks.base import NOBODY, SCORES
from medimg_eval.tasks.synthesis import SynthesisTask
from medimg_eval.tasks.synthesis_sets import Picture, Shown

PLANES = {"sagittal": 0, "coronal": 1, "axial": 2}
"""Plane -> the axis of a volume in RAS that its slices lie across."""

WHOLE = "whole"
"""What `planes` names where extractors are shown volumes and videos whole, as those of three dimensions are."""

FAILURES = "generation_failure_rate"


@dataclass(frozen=True, kw_only=True)
class VolumeSynthesisTask(SynthesisTask):
    """Volumes to be made of prompts, compared with real ones by slices of three planes (2.5-D) or whole (3-D).

    Volumes are turned to RAS. Of each plane, `slices` lie at equal steps over the whole extent, at (i + 1/2) / slices;
    they are brought to square pixels of the smaller spacing, linearly, and to 8 bits between the values of `window`.
    Every slice is then an image of the set that metrics of sets compare. Slices of one volume belong to one patient,
    who is what intervals resample.

    With `planes: [whole]` an extractor is shown each volume once, in its own units, or each video (three channels of
    frames): one whose network has three dimensions, such as `medicalnet_50`, or reads videos, as that of FVD.

    Attributes:
        slices: how many of each plane are shown to an extractor.
        planes: those that are compared, of `axial`, `coronal` and `sagittal`; metrics are given for each plane, too. Or
            `whole` alone.
        window: values that become black and white, such as [-1000, 400] HU; None takes the smallest and the largest
            of each volume.
    """

    slices: int = field(default=16, metadata=SCORES)
    planes: Sequence[str] = field(default=("axial", "coronal", "sagittal"), metadata=SCORES)
    window: Sequence[float] | None = field(default=None, metadata=SCORES)
    groups: Sequence[str] = field(default=("plane",), metadata=SCORES)

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        super().__post_init__()
        if not isinstance(self.slices, int) or self.slices < 1:
            raise UsageError(f"task.slices: expected a whole number of at least 1, got {self.slices!r}")
        UsageError.refuse_invalid("task.planes", (*PLANES, WHOLE), *self.planes)
        if WHOLE in self.planes and len(self.planes) > 1:
            raise UsageError(f"task.planes: expected planes, or {WHOLE} alone, got {list(self.planes)}")
        if not self.planes or len(set(self.planes)) < len(self.planes):
            raise UsageError(f"task.planes: expected planes, each once, got {list(self.planes)}")
        if self.window is not None and not (len(self.window) == 2 and self.window[0] < self.window[1]):
            raise UsageError(f"task.window: expected two values, the smaller first, got {list(self.window)}")
        if unfit := sorted(set(self.case_metrics) - {FAILURES}):
            raise UsageError(f"task {self.name!r}: {', '.join(unfit)} compare pictures, and these are volumes")

    def accept(self, case: Case, answer: Any, *, what: str = "prediction") -> GeneratedImages:
        """Checks the number of volumes; CaseError for others or non-volumes."""
        if isinstance(answer, Image) or not isinstance(answer, Sequence) or len(answer) != self.pictures:
            count = len(answer) if isinstance(answer, Sequence) else 1
            raise CaseError(f"case {case.id!r}: the {what} holds {count} volumes, expected {self.pictures}")
        volumes = [
            checked_volume(volume, f"case {case.id!r}, volume {number}", videos=self.whole)
            for number, volume in enumerate(answer, 1)
        ]
        return GeneratedImages(volumes, self.seeds(case.id))

    @property
    def whole(self) -> bool:
        """Whether extractors are shown volumes whole."""
        return WHOLE in self.planes

    def answer_panels(self, case: Case, prediction: Any) -> list[Panel]:
        """The volumes that were made."""
        files = self.codec.read(prediction).pictures if isinstance(prediction, Path) else []
        return [Panel("alone", f"Volume {number}", partial(read, file)) for number, file in enumerate(files, 1)]

    def real_set(self, part: str) -> list[Shown]:
        """The slices of a set of real volumes."""
        return list(self._cut(super().real_set(part)))

    def made_set(self, cases: Sequence[Case], predictions: Mapping[str, Any]) -> list[Shown]:
        """The slices of the volumes that were made."""
        return list(self._cut(super().made_set(cases, predictions)))

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Settings that decide the numbers beside the volumes themselves."""
        if self.whole:
            return f"volumes whole, {super().signature(provenance)}"
        window_text = "each volume's own range" if self.window is None else f"{self.window[0]:g} to {self.window[1]:g}"
        return (
            f"{self.slices} slices of each of {', '.join(self.planes)}, {window_text}, {super().signature(provenance)}"
        )

    def _cut(self, shown: Sequence[Shown]) -> Iterator[Shown]:
        if self.whole:
            yield from (
                Shown(owner, case, WholeVolume(picture.name, picture.reference, picture.optional))
                for owner, case, picture in shown
            )
            return
        window = None if self.window is None else (float(self.window[0]), float(self.window[1]))
        for owner, case, picture in shown:
            for plane in self.planes:
                sliced = replace(case, attributes={**case.attributes, "plane": plane})
                for index in range(self.slices):
                    share = (index + 0.5) / self.slices
                    name = f"{picture.name}, {plane} slice {index + 1} of {self.slices}"
                    cut = VolumeSlice(name, picture.reference, picture.optional, plane, share, window)
                    yield Shown(f"{owner}/{plane}-{index}", sliced, cut)


@dataclass(frozen=True)
class VolumeSlice(Picture):
    """A slice of a volume, as extractors are shown it.

    Attributes:
        plane: one of `PLANES`.
        share: where it lies across the plane, 0 to 1.
        window: values that become black and white; None for the range of the volume.
    """

    plane: str = "axial"
    share: float = 0.5
    window: tuple[float, float] | None = None

    def key(self) -> str:
        """Key of its content; raises as `read` does."""
        return digest([super().key(), self.plane, self.share, self.window], 40)

    def read(self) -> Image:
        """Cuts the slice, reading its volume unless cached; raises as `Picture.read` does."""
        volume, window = _LAST.volume_of(self)
        try:
            pixels, step = cut_slice(volume, self.plane, self.share, self.window or window)
        except CaseError as error:
            raise self._error(error) from error
        return Image(pixels[None], np.diag([step, step, 1.0, 1.0]), volume.modality)


@dataclass(frozen=True)
class WholeVolume(Picture):
    """A volume, or a video, as extractors of three dimensions are shown it."""

    def read(self) -> Image:
        """Reads it; raises as `Picture.read` does."""
        image = super().read()
        try:
            return checked_volume(image, self.name, videos=True)
        except CaseError as error:
            raise self._error(error) from error


class _LastVolume:
    """Cache of the last volume, for slices from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Any, Image, tuple[float, float]] | None = None

    def volume_of(self, cut: VolumeSlice) -> tuple[Image, tuple[float, float]]:
        """A slice's volume in RAS, with its finite minimum and maximum."""
        with self._lock:
            if self._held is None or self._held[0] != (cut.files or id(cut.reference)):
                image = checked_volume(Picture.read(cut), cut.name)
                finite = image.array[np.isfinite(image.array)]
                window = (float(finite.min()), float(finite.max()))
                self._held = (cut.files or id(cut.reference), reorient(image), window)
            return self._held[1], self._held[2]


_LAST = _LastVolume()


def checked_volume(given: Any, what: str, *, videos: bool = False) -> Image:
    """Returns a volume of one channel, or video frames of three; CaseError otherwise."""
    channels = (1, 3) if videos else (1,)
    if not isinstance(given, Image) or given.array.ndim != 4 or given.array.shape[0] not in channels:
        got = f"shape {given.array.shape}" if isinstance(given, Image) else type(given).__name__
        expected = "an Image (1, i, j, k)" + " or a video (3, frame, row, column)" * videos
        raise CaseError(f"{what} is invalid: expected {expected}, got {got}")
    if not given.array.size:
        raise CaseError(f"{what} is invalid: expected an Image (1, i, j, k), got shape {given.array.shape}")
    if given.array.dtype.kind not in "iuf" or not np.isfinite(given.array).any():
        raise CaseError(f"{what} is invalid: expected finite numbers, got {given.array.dtype}")
    return given


def cut_slice(volume: Image, plane: str, share: float, window: tuple[float, float]) -> tuple[Array, float]:
    """Returns a slice, uint8 (row, column), and its pixel size in mm.

    Pixels are square; rows run from superior or anterior, columns from left or posterior. The volume, (1, i, j, k), is
    in RAS; `share`, 0 to 1, is where across the plane the slice lies, `window` the values that become black and white.
    """
    from PIL import Image as Pictures

    across = PLANES[plane]
    size = volume.array.shape[1 + across]
    cut = volume.array[0].take(min(int(share * size), size - 1), axis=across).T[::-1]
    width, height = (step for axis, step in enumerate(volume.spacing) if axis != across)
    step = float(min(width, height))
    low, high = window
    grey = np.nan_to_num(cut.astype(np.float32), nan=low, posinf=high, neginf=low)
    grey = np.clip((grey - low) / (high - low), 0, 1) if high > low else np.zeros_like(grey)
    square = (max(1, round(cut.shape[1] * width / step)), max(1, round(cut.shape[0] * height / step)))
    if square != cut.shape[::-1]:
        grey = np.asarray(Pictures.fromarray(np.ascontiguousarray(grey)).resize(square, Pictures.Resampling.BILINEAR))
    pixels: Array = np.rint(grey * 255).astype(np.uint8)
    return pixels, step
