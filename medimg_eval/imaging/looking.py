"""Tools by which a model looks at stretches of the video that a question is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.image import Image
from medimg_eval.imaging.video import Video
from medimg_eval.imaging.whole import VIDEO, VideoPrompt

Shown = tuple[str, *tuple[Image, ...]]


class FramesBetween:
    """Frames of the video between two times, evenly spaced.

    Args:
        most: frames that one call may give.
        max_side: pixels that the longer side is brought down to; 0 to leave it.
    """

    def __init__(self, most: int = 16, max_side: int = 448) -> None:
        self.most, self.max_side = most, max_side

    def __call__(self, start: float, end: float, n: int = 4, *, image: Image | None = None) -> Shown:
        """Shows n frames of the video from start to end, evenly spaced, the first and the last included.

        Args:
            start: seconds from the beginning of the video.
            end: seconds from the beginning of the video, not before start.
            n: how many frames.
            image: a frame of the video, or the video; the harness gives it.
        """
        count = min(int(n), self.most)
        return _show_stretch(image, start, end, lambda first, last: np.linspace(first, last, count), self.max_side)


class ClipBetween:
    """A stretch of the video at a rate.

    Args:
        most: frames that one call may give; a longer clip is shown at a lower rate, and told.
        max_side: pixels that the longer side is brought down to; 0 to leave it.
    """

    def __init__(self, most: int = 32, max_side: int = 448) -> None:
        self.most, self.max_side = most, max_side

    def __call__(self, start: float, end: float, fps: float = 1.0, *, image: Image | None = None) -> Shown:
        """Shows the video from start to end at fps frames a second.

        Args:
            start: seconds from the beginning of the video.
            end: seconds from the beginning of the video, not before start.
            fps: frames a second.
            image: a frame of the video, or the video; the harness gives it.
        """
        if fps <= 0:
            raise ValueError(f"fps is {fps:g}, expected a rate above 0")

        def times(first: float, last: float) -> Any:
            return np.linspace(first, last, min(int((last - first) * fps) + 1, self.most))

        return _show_stretch(image, start, end, times, self.max_side)


def _show_stretch(image: Image | None, start: float, end: float, times: Any, max_side: int) -> Shown:
    path = (
        image.path if isinstance(image, VideoPrompt) else (image.attributes.get(VIDEO) if image is not None else None)
    )
    if path is None:
        raise LookupError("this question is not about a video, so no frame can be shown")
    with Video(Path(str(path))) as video:
        last = float(video.times[-1])
        if not 0 <= start <= end or start > last:
            raise ValueError(f"expected 0 <= start <= end and start at most {last:g} s, got {start:g} and {end:g}")
        numbers = list(dict.fromkeys(video.index_at(float(time)) for time in times(start, min(end, last))))
        clip = video.frames(numbers)
        seconds_text = ", ".join(f"{float(video.times[number]):g}" for number in numbers)
    pictures = [_shrink_picture(clip[:, index], max_side) for index in range(len(numbers))]
    description = f"{len(numbers)} frames, at {seconds_text} s of {last:g} s"
    return (description, *(Image(array, np.eye(4), units="pixel") for array in pictures))


def _shrink_picture(array: Any, max_side: int) -> Any:
    """Picture, (channel, row, column), shrunk with preserved mean colours."""
    if not max_side or max(array.shape[1:]) <= max_side:
        return np.ascontiguousarray(array)
    from PIL import Image as Pillow

    picture = Pillow.fromarray(np.moveaxis(array, 0, -1).squeeze())
    picture.thumbnail((max_side, max_side))
    small = np.asarray(picture)
    return np.ascontiguousarray(small[None] if small.ndim == 2 else np.moveaxis(small, -1, 0))
