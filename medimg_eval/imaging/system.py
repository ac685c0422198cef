"""What readers and writers need of the machine: where files of our own go, how they appear, how many threads pay."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

THREADS = 8
"""At most so many work on one image at once."""


def user_cache() -> Path:
    """The folder for what can be made again: `MEDIMG_EVAL_CACHE`, or ~/.cache/medimg_eval."""
    return Path(os.environ.get("MEDIMG_EVAL_CACHE") or "~/.cache/medimg_eval").expanduser()


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Gives a path to write to, which becomes `path` when nothing was raised; otherwise nothing of it is left."""
    # Other processes and threads may write the same file; the name keeps its ending, by which libraries go.
    partial = path.with_name(f".{os.getpid()}.{threading.get_ident()}.{path.name}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def threads(pieces: int) -> int:
    """How many threads to share pieces of work among: as many as this process has cores, up to `THREADS`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, THREADS, pieces)
