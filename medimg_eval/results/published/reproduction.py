"""Computes published numbers again, and says of what kind the differences are."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from medimg_eval.errors import UserError
from medimg_eval.published_numbers import half_digit
from medimg_eval.results.published.readers import READERS, Reading
from medimg_eval.results.runs import RunScores
from medimg_eval.results.statistics import case_values
from medimg_eval.results.table import Settings, make_cell

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from medimg_eval.results.published.declaration import Benchmark, Number

Class = Literal["equal", "rounding", "extraction", "definition", "unexplained", "absent"]
CLASSES: tuple[Class, ...] = ("equal", "rounding", "extraction", "definition", "unexplained", "absent")
"""From the same to the worst; `absent` says nothing, since a file lacks."""

EQUAL = 1e-6
"""The largest difference that counts as none."""


@dataclass(frozen=True)
class Reproduced:
    """One published number beside ours.

    Attributes:
        benchmark: Whose it is.
        number: What was asked for.
        ours: On the published scale; NaN where the file is absent.
        low: Lower bound of our interval, NaN without one.
        high: Upper bound.
        kind: Of the difference.
        cases: How many cases our value rests on.
        ids: Of `extraction`, the cases that the authors' mark and ours value differently.
        why: What explains the difference, or what is absent.
    """

    benchmark: Benchmark
    number: Number
    ours: float
    low: float
    high: float
    kind: Class
    cases: int = 0
    ids: tuple[str, ...] = ()
    why: str = ""

    @property
    def difference(self) -> float:
        """Ours minus the published number."""
        return self.ours - float(self.number.published)

    @property
    def inside(self) -> bool | None:
        """Whether the published number lies within our interval; None without one."""
        if math.isnan(self.low):
            return None
        slack = half_digit(self.number.published)
        return self.low - slack <= float(self.number.published) <= self.high + slack


def classify(number: Number, ours: float, authors: float = math.nan) -> Class:
    """Says of what kind the difference between a published number and ours is.

    Args:
        number: The published number, and the deviation that is known of it.
        ours: On the published scale.
        authors: The mean of the authors' own marks of the cases, on the published scale; NaN without any. Where it
            gives the published number, any difference lies in what was taken from the replies.
    """
    published = float(number.published)
    apart, rounding = abs(ours - published), half_digit(number.published) * (1 + 1e-9)
    if apart <= EQUAL:
        return "equal"
    if apart <= rounding:
        return "rounding"
    if abs(authors - published) <= max(EQUAL, rounding):
        return "extraction"
    return "definition" if number.deviation and apart <= number.at_most else "unexplained"


def find_clone(repository: str, clones: Path) -> Path | None:
    """Returns a repository's folder, OWNER+NAME or NAME; else None."""
    owner, _, name = repository.partition("/")
    return next((folder for folder in (clones / f"{owner}+{name}", clones / name) if folder.is_dir()), None)


def reproduce(benchmark: Benchmark, clone: Path, settings: Settings) -> list[Reproduced]:
    """Computes every number of a benchmark from the files of its clone.

    Raises:
        UserError: A file is there and cannot be read, or a reader does not exist.
    """
    return [_reproduce_number(benchmark, number, clone, settings) for number in benchmark.numbers]


def _reproduce_number(benchmark: Benchmark, number: Number, clone: Path, settings: Settings) -> Reproduced:
    path = clone / number.path
    if not path.is_file():
        return Reproduced(benchmark, number, math.nan, math.nan, math.nan, "absent", why=f"{number.path} is not there")
    UserError.refuse_invalid(f"published/{benchmark.name}: reader", READERS, number.reader)
    try:
        read = READERS[number.reader](path, number.metric, number.options)
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise UserError(
            f"{path}: {number.reader} cannot read it ({error!r}); is it the file of {benchmark.commit[:7]}?"
        ) from error
    read = _choose_rows(read, number)
    cell = make_cell(_as_run(benchmark, number, read.scores, path), number.metric, settings)
    if cell.raised:
        raise UserError(f"{path}: {number.metric} cannot be computed: {cell.raised}")
    value, low, high = (number.scale * value for value in (cell.mean, cell.low, cell.high))
    authors = number.scale * sum(read.authors.values()) / len(read.authors) if read.authors else math.nan
    kind = classify(number, value, authors)
    ids: tuple[str, ...] = ()
    if kind == "extraction":  # cases in whose value ours and the authors' differ by more than their rounding
        ours = case_values(read.scores[read.scores["metric"] == number.metric])["value"]
        ids = tuple(case for case, author in read.authors.items() if abs(float(ours[case]) - author) > EQUAL)
    why = f"{len(ids)} of {len(read.authors)} replies are read differently" if ids else ""
    return Reproduced(
        benchmark, number, value, low, high, kind, cell.n, ids, number.deviation if kind == "definition" else why
    )


def _choose_rows(read: Reading, number: Number) -> Reading:
    """The rows whose attributes are as the number wants them."""
    if not number.where:
        return read
    wanted = number.where.items()
    is_wanted = [wanted <= json.loads(attributes).items() for attributes in read.scores["attributes"]]
    scores = read.scores[is_wanted].reset_index(drop=True)
    cases = set(scores["case"])
    return Reading(scores, {case: value for case, value in read.authors.items() if case in cases})


def _as_run(benchmark: Benchmark, number: Number, scores: pd.DataFrame, path: Path) -> RunScores:
    """Makes a run of scores, as of those that were computed elsewhere."""
    cases = int(scores["case"].nunique())
    return RunScores(
        folder=path,
        run=benchmark.name,
        task=benchmark.task or benchmark.name,
        task_title=benchmark.name,
        model=number.model,
        cases=cases,
        predicted=cases,
        failed_cases=0,
        resampled="patients" if (scores["patient"] != "").all() else "cases",  # whole sets, of questions in sets
        started=datetime.fromtimestamp(path.stat().st_mtime, UTC),
        scores=scores.assign(run=benchmark.name, task=benchmark.task or benchmark.name, model=number.model),
        metrics=(number.metric,),
    )
