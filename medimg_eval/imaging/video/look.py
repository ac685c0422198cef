"""A tool that looks again at a window of a video, from coarse to fine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.errors import UserError
from medimg_eval.image import Image
from medimg_eval.imaging.video.reading import Video


class VideoLook:
    """Shows frames of a window of the case's video, as `task.tools.look` of a task on videos.

    Args:
        root: folder of the videos.
        pattern: where below it the video of a case lies; `{case}` and `{patient}` are filled in.
        most: frames in one look; a longer window is shown coarser.
    """

    def __init__(self, root: str, pattern: str = "{case}.mp4", most: int = 16) -> None:
        self.root, self.pattern, self.most = Path(root).expanduser(), pattern, most

    @property
    def version(self) -> str:
        """What decides the frames beside the videos, which are the benchmark's."""
        return f"{self.pattern} {self.most}"

    def check_ready(self) -> None:
        """Raises UserError where the folder is not there."""
        if not self.root.is_dir():
            raise UserError(f"{self.root} is not there, where the tool looks for videos; see `download` of the task")

    def __call__(self, start_s: float, end_s: float, fps: float = 1.0, case: str = "", patient: str = "") -> Any:
        """Looks at a window of the video: frames between two times, so many a second.

        Args:
            start_s: begin of the window, in seconds.
            end_s: its end, in seconds.
            fps: frames a second; fewer are shown of a long window.
            case: filled in.
            patient: filled in.
        """
        path = (self.root / self.pattern.format(case=case, patient=patient)).resolve()
        if not path.is_relative_to(self.root.resolve()) or not path.exists():
            raise FileNotFoundError(f"there is no video of {case}")
        if not (math.isfinite(start_s) and math.isfinite(end_s) and 0 < fps <= 60 and start_s <= end_s):
            raise ValueError(f"expected start_s <= end_s and fps of at most 60, got {start_s}, {end_s}, {fps}")
        with Video(path) as video:
            times = video.times
            if start_s > times[-1] or end_s < times[0]:
                raise ValueError(f"the video lasts from {times[0]:.1f} to {times[-1]:.1f} s")
            first, last = max(start_s, float(times[0])), min(end_s, float(times[-1]))
            number = math.floor((last - first) * fps + 1e-9) + 1
            wanted = first + np.arange(number) / fps if number <= self.most else np.linspace(first, last, self.most)
            places = list(dict.fromkeys(video.index_at(float(at)) for at in wanted))
            frames = [Image(video.frame(place), np.eye(4), units="pixel") for place in places]
            shown = ", ".join(f"{times[place]:.1f}" for place in places)
        return (f"Frames at {shown} s of {times[-1]:.1f} s:", *frames)
