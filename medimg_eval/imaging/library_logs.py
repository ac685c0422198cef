"""What libraries write to their logs: kept with the image instead of printed, or without the values they quote."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Kept(logging.Filter):
    """Takes records out of a logger while this thread collects them.

    A filter rather than a handler: a record that was also passed on would reach the screen, and its text may
    hold what a file says of a patient.
    """

    def __init__(self) -> None:
        super().__init__()
        self.collecting = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        notes: list[str] | None = getattr(self.collecting, "notes", None)
        if notes is None:
            return True
        note = f"{record.name}: {without_values((record.getMessage().strip().splitlines() or [''])[0])}"
        if record.levelno >= logging.WARNING and note not in notes:
            notes.append(note)
        return False


_FILTERS: dict[str, _Kept] = {}


@contextmanager
def kept_log(name: str) -> Iterator[list[str]]:
    """Collects this thread's warnings of a logger, without printing."""
    log_filter = _FILTERS.setdefault(name, _Kept())
    logging.getLogger(name).addFilter(log_filter)  # once, however often it is added
    before: list[str] | None = getattr(log_filter.collecting, "notes", None)
    notes: list[str] = []
    log_filter.collecting.notes = notes
    try:
        yield notes
    finally:
        log_filter.collecting.notes = before


def without_values(text: str) -> str:
    """Library message without quoted values, up to the last quote."""
    return re.sub(r"['\"].*['\"]", "'...'", text, flags=re.DOTALL)


class _WithoutValues(logging.Filter):
    """Puts dots in the place of whatever stands in quotes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrites the message; every record passes."""
        record.msg, record.args = without_values(record.getMessage()), ()
        return True


def silence_values() -> None:
    """Stops pydicom's logger from quoting values, perhaps names."""
    logger = logging.getLogger("pydicom")
    if not any(isinstance(filter_, _WithoutValues) for filter_ in logger.filters):
        logger.addFilter(_WithoutValues())
