"""Degradations of films: which frame is shown at each place."""

from __future__ import annotations

from functools import partial

import numpy as np

from medimg_eval.case import Array
from medimg_eval.degradations.declaration import degradation

_frames = partial(degradation, domain="frames")

NUMBERS = 1 << 20
"""Places of a film that can be dropped."""


@_frames("video_dropped_frames", levels={"share": (0.05, 0.1, 0.2, 0.3, 0.5)}, unit="share of frames")
def dropped_frames(places: Array, draw: np.random.Generator, *, share: float) -> Array:
    """Randomly dropped frames, repeating the previous, nested by severity.

    The first frame that is shown is never lost.
    """
    size = int(places.max(initial=0)) + 1
    dropped = draw.random(min(size, NUMBERS)) < share
    dropped = dropped[places % NUMBERS]
    dropped[:1] = False
    return places[np.maximum.accumulate(np.where(dropped, 0, np.arange(len(places))))]


@_frames("video_frame_rate", levels={"factor": (2, 3, 5, 8, 12)}, unit="times fewer frames a second")
def frame_rate(places: Array, draw: np.random.Generator, *, factor: int) -> Array:
    """A lower frame rate: each frame is shown so many times."""
    return places[np.arange(len(places)) // factor * factor]


@_frames("video_freeze", levels={"share": (0.05, 0.1, 0.2, 0.3, 0.5)}, unit="share of the film that stands still")
def freeze(places: Array, draw: np.random.Generator, *, share: float) -> Array:
    """A film that stands still once; a lower severity ends earlier."""
    count = len(places)
    first = int(draw.random() * count * 0.5)
    index = np.arange(count)
    still = (index >= first) & (index < first + share * count)
    return places[np.where(still, min(first, max(count - 1, 0)), index)]
