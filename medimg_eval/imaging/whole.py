"""Volumes and videos given whole to a model, with what it needs to make its own pictures of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from medimg_eval.case import Array, Image

SHOWN = "shown"
"""The attribute of an image that says which slices or frames of a file are shown; a run keeps it with the answer."""

VIDEO = "video"
"""The attribute of a frame that says which file it is of, so that tools can look at others; no run keeps it."""

WINDOWS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "CT": {"soft tissue": (40, 400), "lung": (-600, 1500), "bone": (400, 1800), "brain": (40, 80)},
}
"""By modality: name -> level and width of a window, in the units of the image."""


@dataclass(frozen=True, eq=False, repr=False)
class VolumePrompt(Image):
    """Whole volume for a model: (1, i, j, k), RAS+.

    Values are the modality's own (`intensity` says which), after the file's slope and intercept; no window is applied.
    The wrapper resamples, clips and scales as its network was trained.

    Attributes:
        intensity: `HU` of a CT, else `arbitrary`.
        orientation_before: of the stored axes, such as `LPS`; "" where the file states none.
        windows: name -> level and width that may be asked for, of a CT; empty of others.
        plane: of the pictures that the task shows to a model of pictures.
        slices: their numbers along that plane, from 0, counted as radiologists do (docs/data/questions.md).
        window: the values that become black and white in these pictures.
    """

    intensity: str = "arbitrary"
    orientation_before: str = ""
    windows: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    plane: str = "axial"
    slices: tuple[int, ...] = ()
    window: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class VideoPrompt(Image):
    """Whole video for a model: ruled frames, others on demand.

    Those of the task's rule are in `array`.

    The array is uint8, (channel, frame, row, column).

    Attributes:
        path: of the video file, or of a folder of frames.
        indices: of the frames in `array`, from 0.
        times: of these frames, seconds after the first; empty where the file states none.
        fps: frames per second of the file; None where it states none.
        frames_total: that the file holds.
    """

    path: str | Path = Path()
    indices: tuple[int, ...] = ()
    times: tuple[float, ...] = ()
    fps: float | None = None
    frames_total: int = 0

    def frames(self, indices: Sequence[int]) -> Array:
        """Reads frames, (channel, frame, row, column); CaseError for missing ones."""
        from medimg_eval.imaging.video import Video

        with Video(self.path) as video:
            return video.frames(indices)
