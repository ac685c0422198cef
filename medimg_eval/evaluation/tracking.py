"""Progress of a loop: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

import rich.progress
from rich.console import Console

T = TypeVar("T")

log = logging.getLogger(__name__)

PAUSE = 10.0
"""Seconds between two lines of a log."""


def tracked(items: Sequence[T], what: str) -> Iterator[T]:
    """Yields the items, showing how far it has come."""
    if sys.stderr.isatty():
        yield from rich.progress.track(items, what, console=Console(stderr=True), transient=True)
        return
    last = time.monotonic()
    for index, item in enumerate(items):
        yield item
        if time.monotonic() - last > PAUSE:
            last = time.monotonic()
            log.info("%s %d/%d", what, index + 1, len(items))
