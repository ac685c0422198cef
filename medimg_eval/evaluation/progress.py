"""Progress of a loop: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from typing import Protocol, TypeVar

import rich.progress
from rich.console import Console

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

log = logging.getLogger(__name__)

PAUSE = 10.0
"""Seconds between two lines of a log."""


class Counted(Protocol[T_co]):
    """Items counted in advance, as a data loader's."""

    def __len__(self) -> int:
        """How many there will be."""

    def __iter__(self) -> Iterator[T_co]:
        """Yields them."""


def tracked(items: Counted[T], what: str) -> Iterator[T]:
    """Yields the items, showing how far it has come."""
    if sys.stderr.isatty():
        console = Console(stderr=True)
        yield from rich.progress.track(items, what, total=len(items), console=console, transient=True)
        return
    last = time.monotonic()
    for index, item in enumerate(items):
        yield item
        if time.monotonic() - last > PAUSE:
            last = time.monotonic()
            log.info("%s %d/%d", what, index + 1, len(items))
