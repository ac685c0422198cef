"""CSV that spreadsheets open as what it is: no text of others becomes a formula, or changes the direction of a line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile(r"[\s']*[=+\-@＝＋－＠]|'*[\t\r\n]")
"""How a text begins that spreadsheets take for a formula; those that are guarded already are guarded again."""

_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters without a shape that turn the direction of what stands beside them."""


def guarded(value: Any) -> Any:
    r"""Returns a text with an apostrophe before what would be a formula, and direction marks as `\u202e`.

    Numbers, also those written as texts, stay as they are.
    """
    if not isinstance(value, str):
        return value
    text = _DIRECTION.sub(lambda mark: f"\\u{ord(mark.group()):04x}", value)
    return f"'{text}" if _FORMULA.match(text) and not _is_number(text) else text


def unguarded(text: str) -> str:
    """Returns a text as it was before `guarded` put an apostrophe before it."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text


def frame_to_csv(frame: pd.DataFrame) -> str:
    """Returns a frame without its index as CSV, its texts and the names of its columns guarded."""
    safe = frame.map(guarded).rename(columns=guarded)
    return safe.to_csv(index=False, lineterminator="\n")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
