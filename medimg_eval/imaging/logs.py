"""What a library writes to its log while it works, to be kept with the image instead of printed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from medimg_eval.imaging.front import without_values


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.notes: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        note = f"{record.name}: {without_values(record.getMessage().splitlines()[0])}"
        if note not in self.notes:
            self.notes.append(note)


@contextmanager
def kept_log(name: str) -> Iterator[list[str]]:
    """Collects warnings and errors that the logger `name` is given meanwhile, each once."""
    handler, logger = _Kept(), logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield handler.notes
    finally:
        logger.removeHandler(handler)
