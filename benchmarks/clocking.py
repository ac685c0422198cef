"""CPU time of calls that may be slow, for the scripts beside this one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

SLOW = 3.0
"""CPU seconds of a call that is not made again."""


def clocked(call: Callable[[], Any], turns: int) -> tuple[float, Any]:
    """The fewest CPU seconds of some calls, and what the last returned."""
    best, value = np.inf, None
    for _ in range(turns):
        begun = time.process_time()
        value = call()
        best = min(best, time.process_time() - begun)
        if best > SLOW:
            break
    return float(best), value
