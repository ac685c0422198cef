"""Juries: how far each judge agrees with itself and with the others, and what its verdicts cost."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.arguments import grouped
from medimg_eval.errors import UserError
from medimg_eval.metrics.agreement import krippendorff_alpha, unanimous_share
from medimg_eval.metrics.judges import joint_verdict
from medimg_eval.results.statistics import FEWEST, draws, quantiles
from medimg_eval.results.table import Layout, Line, Sheet, Span, bounded, check_numbers

Floats = npt.NDArray[np.float64]

FILE = "ballots.jsonl"
"""Of a run, that holds what each judge of a jury said, each time that it was asked."""

TOGETHER = "all judges"
"""Name of the row on agreement between judges."""

_TITLES = {
    "verdicts": "Verdicts",
    "unparsed": "Unparsed",
    "unanimous": "Unanimous",
    "alpha": "Alpha",
    "input": "Tokens read",
    "output": "Tokens written",
    "seconds": "Seconds",
    "cost": "Cost",
}
_COSTS = ("input", "output", "seconds", "cost")
_AGREEMENTS = ("unanimous", "alpha")


class Ballots(NamedTuple):
    """Verdicts on one question, by who gave them.

    Attributes:
        jury: its id.
        question: that was asked.
        judge: name within the jury.
        cases: case -> its verdicts, one each time that the judge was asked; None where a reply holds none.
        costs: of all of them together, by `input`, `output`, `seconds`, `cost`; without what was not reported of all.
    """

    jury: str
    question: str
    judge: str
    cases: Mapping[str, Sequence[Any]]
    costs: Mapping[str, float]


def read_ballots_file(folder: str | Path) -> list[Ballots]:
    """Reads juries' ballots, per jury, question and judge.

    None where there was no jury.

    Raises:
        UserError: a line cannot be read.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return []
    lines: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            _ = [record[key] for key in ("jury", "question", "judge", "case", "repeat", "value")]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}, line {number}: expected a ballot as JSON, got {error!r}") from error
        if not isinstance(record["value"], dict | list):
            lines.append(record)
    groups = grouped(((line["jury"], line["question"], line["judge"]), line) for line in lines)
    return [
        Ballots(*about, grouped((line["case"], line["value"]) for line in some), _sum_costs(some))
        for about, some in groups.items()
    ]


def _sum_costs(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    usages = [line.get("usage") or {} for line in lines]
    return {
        name: math.fsum(usage[name] for usage in usages) for name in _COSTS if all(name in usage for usage in usages)
    }


def jury_table(
    ballots: Sequence[Ballots], title: str, *, resamples: int = 1_000, level: float = 0.95, seed: int = 0
) -> Sheet:
    """Returns juries' agreement, per question and judge, and overall.

    Of a judge, `Unanimous` is the share of cases on which all its verdicts are equal and `Alpha` Krippendorff's of its
    repeats; of all judges, both are between their joint verdicts. Numbers of more than two values are compared by
    their squared distance, all others as names.

    Args:
        ballots: as `read_ballots_file` returns them.
        title: of what was judged.
        resamples: number of bootstrap resamples, of cases.
        level: coverage of the intervals.
        seed: of the bootstrap.

    Raises:
        UsageError: a number of the bootstrap is invalid.
    """
    check_numbers(resamples, level, seed)
    rows: list[tuple[str, str, dict[str, tuple[float, float, float]]]] = []
    for (_, question), some in grouped(((ballot.jury, ballot.question), ballot) for ballot in ballots).items():
        together = {
            case: [joint_verdict(ballot.cases.get(case, ())) for ballot in some]
            for case in dict.fromkeys(case for ballot in some for case in ballot.cases)
        }
        for judge, cases, costs in [
            *((ballot.judge, ballot.cases, ballot.costs) for ballot in some),
            (TOGETHER, together, {}),
        ]:
            if judge != TOGETHER or len(some) > 1:
                numbers = {**_count_verdicts(cases), **_measure_agreements(cases, resamples, level, seed)}
                rows.append(
                    (question, judge, numbers | {name: (value, np.nan, np.nan) for name, value in costs.items()})
                )
    names = [name for name in _TITLES if any(name in numbers for _, _, numbers in rows)]
    lines = [
        Line([question, judge], [_value_spans(name, numbers.get(name)) for name in names])
        for question, judge, numbers in rows
    ]
    content = Layout.of_block(
        f"{title}: the judges of a jury",
        [_TITLES[name] for name in names],
        lines,
        _jury_notes(resamples, level, seed),
        ["Question", "Judge"],
        f"The judges of a jury on {title}",
    )
    records = [
        (question, judge, name, *values) for question, judge, numbers in rows for name, values in numbers.items()
    ]
    columns = ["question", "judge", "statistic", "value", "low", "high"]
    return Sheet(content, pd.DataFrame.from_records(records, columns=columns))


def _count_verdicts(cases: Mapping[str, Sequence[Any]]) -> dict[str, tuple[float, float, float]]:
    verdicts = [value for values in cases.values() for value in values]
    unparsed = sum(value is None for value in verdicts) / len(verdicts) if verdicts else math.nan
    return {"verdicts": (len(verdicts), np.nan, np.nan), "unparsed": (unparsed, np.nan, np.nan)}


def _measure_agreements(
    cases: Mapping[str, Sequence[Any]], resamples: int, level: float, seed: int
) -> dict[str, tuple[float, float, float]]:
    """Both with their intervals; nothing where no case has two verdicts."""
    ratings, numeric = _rating_matrix(cases)
    if not ((~np.isnan(ratings)).sum(axis=0) >= 2).any():
        return {}
    scaled = numeric and len(np.unique(ratings[~np.isnan(ratings)])) > 2

    def measure(of: Floats) -> tuple[float, float]:
        return unanimous_share(of), krippendorff_alpha(of, "interval" if scaled else "nominal")

    values, drawn = measure(ratings), []
    if ratings.shape[1] >= FEWEST:
        for some in draws(ratings.shape[1], resamples=resamples, seed=seed):
            drawn += [measure(ratings[:, chosen]) for chosen in some]
    agreements = {}
    for index, name in enumerate(_AGREEMENTS):
        bounds = (np.nan, np.nan)
        if drawn and not math.isnan(values[index]):
            bounds = quantiles(np.array([sample[index] for sample in drawn]), (1 - level) / 2, (1 + level) / 2)
        agreements[name] = (values[index], float(bounds[0]), float(bounds[1]))
    return agreements


def _rating_matrix(cases: Mapping[str, Sequence[Any]]) -> tuple[Floats, bool]:
    """Verdicts (repeat, case) as numbers or codes; NaN where missing."""
    stated = [value for values in cases.values() for value in values if value is not None]
    numeric = all(isinstance(value, int | float) for value in stated)
    number = {name: index for index, name in enumerate(dict.fromkeys(map(normalise_name, stated)))}
    ratings = np.full((max(map(len, cases.values()), default=0), len(cases)), np.nan)
    for column, values in enumerate(cases.values()):
        for row, value in enumerate(values):
            if value is not None:
                ratings[row, column] = float(value) if numeric else number[normalise_name(value)]
    return ratings, numeric


def normalise_name(value: Any) -> str:
    """Returns a verdict's name, without case and outer blanks."""
    return str(value).strip().casefold()


def _value_spans(name: str, found: tuple[float, float, float] | None) -> list[Span]:
    if found is not None and name in ("verdicts", "input", "output"):
        return [Span(f"{found[0]:,.0f}")]
    if found is not None and name in ("seconds", "cost"):
        return [Span(f"{found[0]:,.2f}")]
    return estimate_spans(found)


def estimate_spans(numbers: Sequence[float] | None) -> list[Span]:
    """Returns value, low and high to three decimals; a dash for None."""
    if numbers is None:
        return [Span("\N{EN DASH}", "quiet")]
    value, low, high = numbers[:3]
    return bounded(value, low, high, lambda number: f"{round(number, 3) + 0.0:.3f}")


def _jury_notes(resamples: int, level: float, seed: int) -> Iterator[str]:
    yield (
        f"[{100 * level:g} % interval: percentile bootstrap, {resamples:,} resamples of cases, seed {seed}; none of "
        f"fewer than {FEWEST}]."
    )
    yield (
        "Unanimous: share of cases whose verdicts are all equal; Alpha: Krippendorff's. Of a judge, of its repeats; of "
        f"{TOGETHER}, of the joint verdict of each."
    )
    yield "Tokens, seconds and cost: of all verdicts of a judge; an en dash where it did not report them."
