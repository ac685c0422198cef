"""Keeps the values that pydicom quotes in its warnings out of everybody's logs."""

from __future__ import annotations

import logging

from medimg_eval.imaging.library_logs import without_values


class _WithoutValues(logging.Filter):
    """Puts dots in the place of whatever stands in quotes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrites the message; every record passes."""
        record.msg, record.args = without_values(record.getMessage()), ()
        return True


def silence_values() -> None:
    """Makes pydicom's logger leave out values: it quotes what it cannot understand, which may be a name."""
    logger = logging.getLogger("pydicom")
    if not any(isinstance(one, _WithoutValues) for one in logger.filters):
        logger.addFilter(_WithoutValues())
