"""Summaries of a run that are told how often each row counts, so that a resample costs no new table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.registry import Weighed


@dataclass(frozen=True, eq=False)
class OfRows:
    """A `Weighed` that reads only the counts of some rows.

    All rows may be a hundred times more.

    Attributes:
        rows: int64, (some,): their places.
        judge: how often these count, (resample, some), to values, (resample,).
    """

    rows: npt.NDArray[np.int64]
    judge: Weighed

    def __call__(self, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """As any other `Weighed`."""
        return self.judge(times[:, self.rows])
