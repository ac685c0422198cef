"""Which lines of a fully sampled scan a model is shown."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UsageError, nearest

Lines: TypeAlias = Literal["random", "equispaced", "fastmri_random", "fastmri_equispaced"]


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Which lines of a fully sampled scan a model is shown.

    Attributes:
        acceleration: How many times fewer lines there are than in the full scan, the middle included.
        centre: The share of all lines, in the middle of k-space, that are always there.
        lines: How the others are chosen: at `random`, or `equispaced` from a random one on, so many that the
            acceleration is met to the line; or as fastMRI's code draws them for the file of that name,
            `fastmri_random` (knees) and `fastmri_equispaced` (brains), of which the acceleration is met on average.
        seed: Each case has lines of its own, which are the same for every model. Not of fastMRI's, which draws from the
            file's name alone.
    """

    acceleration: float
    centre: float = 0.08
    lines: Lines = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuses what cannot be sampled."""
        if self.lines not in get_args(Lines):
            raise UsageError(f"sampling: there are no lines {self.lines!r}{nearest(str(self.lines), get_args(Lines))}")
        if not 1 <= self.acceleration < math.inf or not 0 < self.centre <= 1 / self.acceleration:
            raise UsageError(
                "sampling: expected an acceleration of at least 1 and a centre above 0 and at most 1 / acceleration, "
                f"got {self.acceleration} and {self.centre}"
            )

    def of(self, case: str, count: int) -> Array:
        """Draws the lines of a case, bool, (line,), the same whenever it is asked.

        Args:
            case: its id; with fastMRI's lines the name of its file without `.h5`.
            count: how many lines there are.
        """
        if self.lines.startswith("fastmri"):
            return self._fastmri(f"{case}.h5", count)
        return self.mask(count, np.random.default_rng([self.seed, zlib.crc32(case.encode())]))

    def mask(self, count: int, rng: np.random.Generator) -> Array:
        """Draws which of so many lines are measured, bool, (line,), with the lowest frequency in the middle."""
        wanted = max(1, round(count / self.acceleration))
        middle = min(wanted, max(1, round(count * self.centre)))
        first = count // 2 - middle // 2
        chosen = np.zeros(count, bool)
        chosen[first : first + middle] = True
        outside = np.flatnonzero(~chosen)
        missing = wanted - middle
        if self.lines == "random":
            chosen[rng.choice(outside, missing, replace=False)] = True
        elif missing:
            places = (np.arange(missing) + rng.random()) * (len(outside) / missing)
            chosen[outside[places.astype(int)]] = True
        return chosen

    def describe(self) -> str:
        """In words."""
        return f"{self.acceleration:g} times fewer lines, {self.lines}, {100 * self.centre:g} % of them in the middle"

    def _fastmri(self, file: str, count: int) -> Array:
        """What `fastmri.data.subsample` draws for a file, seeded by the characters of its name."""
        rng = np.random.RandomState([ord(letter) for letter in file])
        rng.randint(1)  # which of one pair of acceleration and centre: it moves the generator on
        middle = round(count * self.centre)
        chosen = np.zeros(count, bool)
        if self.lines == "fastmri_random":
            chosen |= rng.uniform(size=count) < (count / self.acceleration - middle) / (count - middle)
        elif middle * self.acceleration < count:
            step = self.acceleration * (middle - count) / (middle * self.acceleration - count)
            places = np.arange(rng.randint(0, high=round(step)), count - 1, step)
            chosen[np.around(places).astype(int)] = True
        start = (count - middle + 1) // 2
        chosen[start : start + middle] = True
        return chosen
