"""Patients over time: a case is a patient with the visits up to a day, and its truth is what came after that day."""

from __future__ import annotations

import datetime as dt
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from medimg_eval.case import ChangedImage, Image, Reference
from medimg_eval.data.layouts.base import texts
from medimg_eval.data.layouts.table import RowSequence, RowValues, Table
from medimg_eval.data.records import Entry, Row
from medimg_eval.errors import UsageError, UserError
from medimg_eval.image import VISIT, WHEN

log = logging.getLogger(__name__)

LANDMARKS = ("first", "last", "each")


class Visit(NamedTuple):
    """A patient's visit: rows and time on the table's clock."""

    time: float
    rows: tuple[Row, ...]


@dataclass(kw_only=True)
class Timelines(Table):
    """Table of visits' images; cases are patients up to landmarks.

    Nothing of a later visit is shown. The truth is read from the landmark's row, which gets further columns:
    `landmark`, `visits`, `until` (time from the landmark to `follow_up`), `next COLUMN` of the visit after it, and
    `COLUMN rises`.
    A patient who is followed no longer than the landmark is no case; the log says how many are left out.

    Args:
        when: column or pattern of a visit's time: a number, or a date as 2020-01-31, counted in days.
        landmark: up to which visit is shown: `last`, `first`, the number of one, counted from 1, or `each`, which makes
            a case of every visit.
        history: visits that are shown, the last ones; 0 for all.
        follow_up: column of the time of the event, or when the patient was last seen, on the clock of `when`.
        rises: columns of numbers; `COLUMN rises` is then 1 where the next visit has more, 0 where not, else empty.
        next_visit: whether visits without a later one are left out.
        others: see `Table`; `id` names the patient, or the eye.
    """

    when: str
    landmark: int | Literal["first", "last", "each"] = "last"
    history: int = 0
    follow_up: str = ""
    rises: Sequence[str] = ()
    next_visit: bool = False

    def entries(self, root: Path) -> list[Entry]:
        """The cases by their patients' first rows, and then by time."""
        if not self.id:
            raise UsageError("task.layout.id must name the patient of a visit, or the eye")
        if not isinstance(self.landmark, int):
            UsageError.refuse_invalid("task.layout.landmark", LANDMARKS, self.landmark)
        if self.history < 0 or (isinstance(self.landmark, int) and self.landmark < 1):
            raise UsageError(
                f"expected task.layout.history from 0 and a landmark from 1, got {self.history} and {self.landmark}"
            )
        entries: list[Entry] = []
        left_out = 0
        for name, visits, split in self._patients(root):
            for at in self._landmarks(visits):
                entry = self._case_at(root, name, visits, at, split)
                left_out += entry is None
                entries += [entry] if entry is not None else []
        if left_out:
            log.warning("%s: %d cases end by their landmark, and are left out", root, left_out)
        if not entries:
            raise UserError(f"{root}: no patient is followed beyond the landmark")
        return entries

    def _patients(self, root: Path) -> Iterator[tuple[str, list[Visit], str | None]]:
        """Patients with their visits in order of time."""
        held: dict[str, dict[float, list[Row]]] = {}
        splits: dict[str, tuple[str | None, Row]] = {}
        for row, split in self.rows(root):
            name = row.fill(self.id)
            if not name:
                raise row.error(f"the case id {self.id!r} is empty")
            before, first = splits.setdefault(name, (split, row))
            if before != split:
                raise row.error(f"puts {name!r} to split {split!r}, which {first.place} puts to {before!r}")
            held.setdefault(name, {}).setdefault(time_of(row, self.when), []).append(row)
        for name, by_time in held.items():
            yield name, [Visit(time, tuple(rows)) for time, rows in sorted(by_time.items())], splits[name][0]

    def _landmarks(self, visits: Sequence[Visit]) -> list[int]:
        """Places of the visits that a case ends with."""
        last = len(visits) - 1 - self.next_visit
        if self.landmark == "each":
            return list(range(last + 1))
        index = {"first": 0, "last": last}.get(str(self.landmark), 0)
        index = self.landmark - 1 if isinstance(self.landmark, int) else index
        return [index] if 0 <= index <= last else []

    def _case_at(self, root: Path, name: str, visits: Sequence[Visit], at: int, split: str | None) -> Entry | None:
        """Case ending at a visit; None after follow-up ends."""
        visits_shown = visits[max(0, at + 1 - self.history) if self.history else 0 : at + 1]
        now = visits[at]
        added: dict[str, Any] = {"landmark": now.time, "visits": len(visits_shown)}
        if self.follow_up:
            added["until"] = time_of(now.rows[0], self.follow_up) - now.time
            if added["until"] <= 0:
                return None
        added |= self._next(now, visits[at + 1] if at + 1 < len(visits) else None)
        first = now.rows[0]
        row = Row(first.path, first.place, {**first.values, **added})
        images = tuple(
            VisitImage(image, number, visit.time - now.time)
            for number, visit in enumerate(visits_shown, start=1)
            for image in self._of_visit(root, visit)
        )
        own = f"{name}@{now.time:g}" if self.landmark == "each" else name
        entry = Entry(own, root, (row,), images, split or None)
        attributes = {column: row.value(column) for column in self.attributes}
        patient = self.patient_of(entry) if self.patient else name
        return replace(entry, patient=patient, attributes=texts(attributes))

    def _of_visit(self, root: Path, visit: Visit) -> Iterator[Reference[Image]]:
        """Images of a visit, those that several rows name once."""
        paths_seen = set()
        for row in visit.rows:
            for image in self._shown(root, row):
                key = _shown_as(image)
                if key not in paths_seen:
                    paths_seen.add(key)
                    yield image

    def _next(self, now: Visit, later: Visit | None) -> dict[str, Any]:
        following = {} if later is None else later.rows[0].values
        added: dict[str, Any] = {f"next {name}": value for name, value in following.items()}
        for column in self.rises:
            before, after = (_visit_number(visit, column) for visit in (now, later))
            added[f"{column} rises"] = "" if math.isnan(before + after) else str(int(after > before))
        return added


@dataclass(frozen=True)
class VisitImage(ChangedImage):
    """An image of one visit of several.

    Attributes:
        image: as its layout reads it.
        visit: number of the visit among those that are shown, from 1.
        when: time of the visit after the landmark, 0 or below.
    """

    image: Reference[Image]
    visit: int
    when: float

    @property
    def part(self) -> str:
        """Kind of image within the case, such as OCT; else ""."""
        return str(getattr(self.image, "part", ""))

    def read(self) -> Image:
        """The image with visit and time as attributes."""
        image = self.image.read()
        attributes = {VISIT: str(self.visit), WHEN: f"{self.when:g}"}
        return replace(image, attributes={**image.attributes, **attributes})


def _shown_as(image: Any) -> Any:
    """Identity of an image, values or text, which rows repeat."""
    if isinstance(image, RowValues):
        return image.part, *(image.row.text(column) for column in image.columns)
    if isinstance(image, RowSequence):
        return image.part, image.row.fill(image.pattern)
    return getattr(image, "part", ""), *image.files


def _visit_number(visit: Visit | None, column: str) -> float:
    """Number of a visit's column; NaN where empty or without visit."""
    return visit.rows[0].number(column) if visit is not None and visit.rows[0].text(column) else math.nan


def time_of(row: Row, column: str) -> float:
    """Time of a column: number or date in days; else UserError."""
    text = row.fill(column)
    try:
        time = float(text)
    except ValueError:
        try:
            return float(dt.date.fromisoformat(text[:10]).toordinal())
        except ValueError:
            raise row.error(f"{column!r} holds {text!r}, expected a number or a date such as 2020-01-31") from None
    if not math.isfinite(time):
        raise row.error(f"{column!r} holds {text!r}, expected a number or a date such as 2020-01-31")
    return time
