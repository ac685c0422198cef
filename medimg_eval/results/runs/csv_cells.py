"""CSV that spreadsheets open as what it is: no text of others becomes a formula, or changes the direction of a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from medimg_eval.trust import guarded

if TYPE_CHECKING:
    import pandas as pd


def frame_to_csv(frame: pd.DataFrame) -> str:
    """Returns a frame as CSV with guarded texts and names."""
    safe = frame.map(guarded).rename(columns=guarded)
    return safe.to_csv(index=False, lineterminator="\n")
