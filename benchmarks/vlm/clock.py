"""Notes when a model is called, in any of the programs that are compared."""

import atexit
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SETTLED = 2
"""Calls after which the times between them count: the first ones wait for what reads ahead to start."""


class Clock:
    """Times the calls of a model, and writes what it found to the file `CLOCK` when the program ends."""

    def __init__(self) -> None:
        self.starts: list[tuple[float, float]] = []
        self.ends: list[tuple[float, float]] = []
        self.sizes: list[int] = []
        self.answers: dict[str, str] = {}
        atexit.register(self.write)

    def call(self, ids: Sequence[str], answer: Callable[[], list[str]]) -> list[str]:
        """Answers, between two looks at the clock: the CPU time of this thread, and of the whole process."""
        self.starts.append((time.thread_time(), time.process_time()))
        said = answer()
        self.ends.append((time.thread_time(), time.process_time()))
        self.sizes.append(len(ids))
        self.answers |= zip(ids, said, strict=True)
        return said

    def write(self) -> None:
        """Writes CPU seconds to the first call and within calls, and CPU milliseconds an item between calls."""
        between = [
            [1000 * (start[which] - end[which]) for end, start in zip(self.ends[:-1], self.starts[1:], strict=True)]
            for which in (0, 1)
        ]
        items = max(1, sum(self.sizes[SETTLED:]))
        found: dict[str, Any] = {
            "first": self.starts[0][1],
            "inside": sum(end[1] - start[1] for start, end in zip(self.starts, self.ends, strict=True)),
            "between_thread": sum(between[0][SETTLED - 1 :]) / items,
            "between_process": sum(between[1][SETTLED - 1 :]) / items,
            "answers": self.answers,
        }
        Path(os.environ["CLOCK"]).write_text(json.dumps(found), encoding="utf-8")
