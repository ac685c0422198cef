"""How many decimals a column is printed with, and which columns are printed in percent."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.results.runs import is_known
from medimg_eval.results.statistics import is_share
from medimg_eval.results.table.cells import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medimg_eval.results.table.cells import Cell, Row

AUTO = "auto"
"""As many decimals as the width of the intervals supports."""
DIGITS = 2
"""Significant digits of an interval's half-width that are printed."""
MOST_DECIMALS = 6


def supported(half_width: float) -> int:
    """Returns the decimals that show two significant digits of an interval's half-width, from 0 to 6.

    The half-width is rounded to two digits first, so that 0.0999 counts as 0.10 and gets two decimals.
    """
    digits = float(f"{half_width:.{DIGITS - 1}e}")
    return min(max(DIGITS - 1 - math.floor(math.log10(digits)), 0), MOST_DECIMALS)


def restyled(
    columns: Sequence[Column], rows: Sequence[Row], *, percent: bool, precision: int | str | None
) -> list[Column]:
    """Returns the columns with the scale and the decimals that they are printed with.

    Args:
        columns: Of the table.
        rows: Of the table; `precision="auto"` looks at their intervals.
        percent: Whether columns of shares are printed times 100.
        precision: Decimals of every column, as they are printed; "auto" for two significant digits of the median
            half-width of the column's intervals, models before baselines; None for those of the metrics. A column
            without any interval keeps those of its metric.
    """
    made = []
    for place, column in enumerate(columns):
        one = _in_percent(column) if percent else column
        if precision == AUTO:
            widths = _half_widths([row.cells[place] for row in rows])
            if widths:
                one = replace(one, decimals=supported(one.scale * float(np.median(widths))))
        elif isinstance(precision, int):
            one = replace(one, decimals=precision)
        made.append(one)
    return made


def _in_percent(column: Column) -> Column:
    """Returns the column times 100 if it holds shares; what the registry does not know may be anything."""
    if column.scale != 1 or not is_known(column.metric) or not is_share(column.metric):
        return column
    return replace(column, scale=100.0, decimals=max(column.decimals - 2, 0))


def _half_widths(cells: Sequence[Cell]) -> list[float]:
    """Returns the half-widths above 0 of the models' intervals; of the baselines', where models have none."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for cell in cells:
        if cell.run is not None and cell.high > cell.low:
            found[cell.run.baseline].append((cell.high - cell.low) / 2)
    return found[False] or found[True]
