"""The order of a patient's studies in time, and that of a study's images by view."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.case import Array
from medimg_eval.errors import UserError

YEAR_LAST = re.compile(r"\d{1,2}[-/. ]\d{1,2}[-/. ](\d{4}|\d{2}\b)")
"""The beginning of a date such as 31.05.2024."""

UNKNOWN = -1
"""The rank of what has no time."""


def ranks(columns: Sequence[Sequence[str]]) -> Array:
    """Ranks of rows in time, int64; ties share, missing are `UNKNOWN`.

    Columns are texts by row, the coarsest first, such as dates and then times of day. A column of numbers alone, such
    as 93014.531 for half past nine, counts as numbers, any other by the letters, as dates like 2024-05-31 want.

    Raises:
        UserError: letters would not put a column in order: it holds numbers among texts, or texts whose first numbers
            are not as long, such as 9:30 and 10:15, or dates whose year comes last.
    """
    keys = [_time_numbers(column) for column in columns]
    is_known = ~np.any([np.isnan(key) for key in keys], axis=0)
    order = np.lexsort([key[is_known] for key in reversed(keys)])
    steps = np.zeros(len(order), dtype=np.int64)
    for key in keys:
        ordered = key[is_known][order]
        steps[1:] |= ordered[1:] != ordered[:-1]
    ranked = np.full(len(is_known), UNKNOWN, dtype=np.int64)
    indices = np.flatnonzero(is_known)[order]
    ranked[indices] = np.cumsum(steps)
    return ranked


def _time_numbers(column: Sequence[str]) -> Array:
    texts = np.asarray(column, dtype=object)
    blank = np.array([not text for text in column], dtype=bool)
    values: Array = np.full(len(texts), np.nan)
    try:
        values[~blank] = texts[~blank].astype(np.float64)
    except ValueError:
        _check_times(texts[~blank].tolist())
        values[~blank] = np.unique(texts[~blank].astype(str), return_inverse=True)[1]
    return values


def _check_times(texts: Sequence[str]) -> None:
    first: dict[int, str] = {}
    for text in texts:
        if YEAR_LAST.match(text):
            raise UserError(f"a time is {text!r}, whose letters do not tell what was earlier; write it as 2024-05-31")
        length = len(text) - len(text.lstrip("0123456789"))
        first.setdefault(length, text)
        if len(first) > 1:
            first_text, second_text = first.values()
            raise UserError(
                f"times are {first_text!r} and {second_text!r}, which are put in order by no rule; write all in one way"
            )


def priors(patients: Mapping[str, str], times: Mapping[str, int]) -> dict[str, str]:
    """Previous study of each: the patient's last strictly earlier one.

    Studies without one, or of unknown time, are left out. Of several earlier ones of the very same time it is the last
    in the order of `patients`, the table's; times are ranks.
    """
    own = grouped((patient, study) for study, patient in patients.items() if patient and times[study] != UNKNOWN)
    priors = {}
    for studies in own.values():
        ordered = sorted(studies, key=times.__getitem__)  # stable: the table's order among equals
        before: str | None = None
        for index, study in enumerate(ordered):
            if index and times[study] != times[ordered[index - 1]]:
                before = ordered[index - 1]
            if before is not None:
                priors[study] = before
    return priors


OTHERS = "*"
"""Among views: all that are not named, and images of which no view is said."""


class View(NamedTuple):
    """An image of a study."""

    file: str
    view: str


@dataclass(frozen=True)
class Views:
    """Shown views, and maximum images per study (0 for all).

    A view in upper case has its place in the order; without any all are shown as they come.
    """

    ranks: Mapping[str, int]
    most: int = 0

    @classmethod
    def of(cls, views: Sequence[Any], most: int) -> Views:
        """Takes views in their order, several that count as one as a list."""
        several = [[view] if isinstance(view, str) else list(view) for view in views]
        return cls({str(name).upper(): rank for rank, some in enumerate(several) for name in some}, most)

    def shown(self, images: Sequence[tuple[str, str]]) -> list[View]:
        """Shown images by file and view, in view order.

        Those of one view stay in the order given. One without a file is left out.
        """
        other_rank = self.ranks.get(OTHERS)
        ranked = [
            (self.ranks.get(view.upper(), other_rank) if self.ranks else 0, View(file, view)) for file, view in images
        ]
        there = [(rank, view) for rank, view in ranked if rank is not None and view.file]
        return [view for _, view in sorted(there, key=lambda pair: pair[0])][: self.most or None]

    def __str__(self) -> str:
        """The views, for people."""
        return ", ".join(self.ranks)
