"""Ratings that readers gave models' answers under blinded codes: means by model, and how far readers agree.

Intervals resample cases and readers both: those of cases alone would say nothing of other readers.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.errors import UserError
from medimg_eval.metrics.agreement import intraclass_correlation, krippendorff_alpha
from medimg_eval.results.statistics import FEWEST, quantiles
from medimg_eval.results.table import Layout, Line, Sheet, bounded, check_numbers

Floats = npt.NDArray[np.float64]

NEEDED = ("case", "reader", "model", "score")


class Rating(NamedTuple):
    """One score of one reader.

    Attributes:
        case: which it is about, with its item where it has several.
        reader: who gave it.
        model: whose answer it is.
        criterion: by which.
        score: a number.
        repeat: which of several readings of the same answer by the same reader.
    """

    case: str
    reader: str
    model: str
    criterion: str
    score: float
    repeat: str


def read_ratings(path: str | Path, key: str | Path | None = None) -> list[Rating]:
    """Reads ratings from CSV, or a sheet of Excel.

    Columns are `case`, `reader`, `model`, `score`, and where they are known `item`, `criterion`, `repeat` and
    `calibration`, whose rows (yes, true, 1) are left out.

    Args:
        path: the ratings.
        key: a file of `code` and `model`, where `model` in the ratings is a blinded code.

    Raises:
        UserError: a column or a code is missing, a score is no number, or a reader rated an answer twice.
    """
    path, names = Path(path), _read_key(Path(key)) if key is not None else None
    ratings, rows = [], dict[tuple[str, ...], int]()
    for number, row in enumerate(read_rows(path, NEEDED), start=2):
        if row.get("calibration", "").lower() in ("yes", "true", "1"):
            continue
        rating = _read_rating(path, number, row, names)
        same = (rating.case, rating.reader, rating.model, rating.criterion, rating.repeat)
        if same in rows:
            raise UserError(
                f"{path}, row {number} is invalid: expected one rating of an answer by a reader, got row {rows[same]} "
                "too; tell repeats apart by a column `repeat`"
            )
        rows[same] = number
        ratings.append(rating)
    if not ratings:
        raise UserError(f"{path} is invalid: expected ratings, got none")
    return ratings


def read_rows(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    """Returns stripped cells of a CSV file or sheet; UserError without a needed column."""
    try:
        if path.suffix.lower() == ".xlsx":
            frame = pd.read_excel(path, dtype=str, keep_default_na=False)
            rows = [{str(name): str(value) for name, value in row.items()} for row in frame.to_dict("records")]
        else:
            with path.open(encoding="utf-8-sig", newline="") as stream:
                rows = [{name: value or "" for name, value in row.items() if name} for row in csv.DictReader(stream)]
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error})") from error
    if lacking := [name for name in needed if name not in (rows[0] if rows else {})]:
        raise UserError(f"{path} is invalid: expected the columns {', '.join(needed)}, got none {', '.join(lacking)}")
    return [{name: value.strip() for name, value in row.items()} for row in rows]


def _read_key(path: Path) -> dict[str, str]:
    return {row["code"]: row["model"] for row in read_rows(path, ("code", "model"))}


def _read_rating(path: Path, number: int, row: Mapping[str, str], names: Mapping[str, str] | None) -> Rating:
    where, model = f"{path}, row {number}", row["model"]
    if not all(row[name] for name in NEEDED):
        raise UserError(f"{where} is invalid: expected {', '.join(NEEDED)}, got {[row[name] for name in NEEDED]}")
    if names is not None and model not in names:
        raise UserError(f"{where}: the key holds no code {model!r}; it holds {', '.join(names)}")
    try:
        score = float(row["score"])
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise UserError(f"{where} is invalid: expected a number as score, got {row['score']!r}")
    case = f"{row['case']}/{row['item']}" if row.get("item") else row["case"]
    named = model if names is None else names[model]
    return Rating(case, row["reader"], named, row.get("criterion", ""), score, row.get("repeat", ""))


class _Rated(NamedTuple):
    """Mean ratings by one criterion, (model, case, reader); NaN without any."""

    criterion: str
    models: Sequence[str]
    readers: Sequence[str]
    scores: Floats
    again: Sequence[float]


def rating_table(
    ratings: Sequence[Rating], title: str, *, resamples: int = 1_000, level: float = 0.95, seed: int = 0
) -> Sheet:
    """Returns the table of models by criterion: the mean of all ratings, with intervals over cases and readers.

    Beside it stand how far readers agree on answers, ICC(2,1) of those that all rated and Krippendorff's alpha, and how
    far a reader agrees with the same reader's repeats.

    Raises:
        UsageError: a number of the bootstrap is invalid.
    """
    check_numbers(resamples, level, seed)
    groups: dict[str, list[Rating]] = defaultdict(list)
    for rating in ratings:
        groups[rating.criterion].append(rating)
    lines, records, notes = [], list[dict[str, Any]](), list[str]()
    for criterion, some in groups.items():
        rated = _arrange(criterion, some)
        lows, highs = _interval(rated, resamples, level, seed)
        answers = rated.scores.reshape(-1, len(rated.readers))
        agreed = {"icc": intraclass_correlation(answers), "alpha": krippendorff_alpha(answers.T, "interval")}
        for index, model in enumerate(rated.models):
            mean, counts = float(np.nanmean(rated.scores[index])), _counts(rated.scores[index])
            cells = [bounded(mean, lows[index], highs[index], "{:.3f}".format)]
            cells += [bounded(value, math.nan, math.nan, "{:.3f}".format) for value in agreed.values()]
            lines.append(Line([criterion or "\N{EN DASH}", model], cells, opens=not index))
            record = {"criterion": criterion, "model": model, "mean": mean, "low": lows[index], "high": highs[index]}
            records.append(record | counts | agreed)
        notes += _rated_notes(rated)
    first = (
        f"Mean over ratings [{100 * level:g} % interval: percentile bootstrap, {resamples:,} resamples of cases and of "
        f"readers, seed {seed}; none of fewer than {FEWEST} cases or two readers]. ICC(2,1) of answers that every "
        "reader rated, and Krippendorff's alpha (interval) of all, over the answers of all models."
    )
    columns, stubs = ["Mean", "ICC(2,1)", "Alpha"], ["Criterion", "Model"]
    content = Layout.of_block(f"{title}: ratings", columns, lines, [first, *notes], stubs, f"Ratings of {title}")
    return Sheet(content, pd.DataFrame(records))


def _arrange(criterion: str, ratings: Sequence[Rating]) -> _Rated:
    models, readers, cases = (
        sorted({getattr(rating, name) for rating in ratings}) for name in ("model", "reader", "case")
    )
    groups: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for rating in ratings:
        place = models.index(rating.model), cases.index(rating.case), readers.index(rating.reader)
        groups[place].append(rating.score)
    scores = np.full((len(models), len(cases), len(readers)), np.nan)
    for place, values in groups.items():
        scores[place] = np.mean(values)
    again = [float(np.ptp(values)) for values in groups.values() if len(values) > 1]
    return _Rated(criterion, models, readers, scores, again)


def _counts(scores: Floats) -> dict[str, int]:
    is_rated = ~np.isnan(scores)
    return {
        "ratings": int(is_rated.sum()),
        "cases": int(is_rated.any(axis=1).sum()),
        "readers": int(is_rated.any(axis=0).sum()),
    }


def _interval(rated: _Rated, resamples: int, level: float, seed: int) -> tuple[Floats, Floats]:
    """Lower and upper bounds of each model's mean, cases and readers drawn anew, both alike for all models."""
    number, cases, readers = rated.scores.shape
    bounds = np.full((2, number), np.nan)
    if cases < FEWEST or readers < 2:
        return bounds[0], bounds[1]
    random = np.random.default_rng(seed)
    case_weights = random.multinomial(cases, np.full(cases, 1 / cases), resamples).astype(float)
    reader_weights = random.multinomial(readers, np.full(readers, 1 / readers), resamples).astype(float)
    for index, scores in enumerate(rated.scores):
        filled, is_rated = np.nan_to_num(scores), (~np.isnan(scores)).astype(float)
        total = np.einsum("bc,cr,br->b", case_weights, filled, reader_weights, optimize=True)
        weight = np.einsum("bc,cr,br->b", case_weights, is_rated, reader_weights, optimize=True)
        if (means := total[weight > 0] / weight[weight > 0]).size:
            bounds[:, index] = quantiles(means, (1 - level) / 2, (1 + level) / 2)
    return bounds[0], bounds[1]


def _rated_notes(rated: _Rated) -> Iterator[str]:
    counts = _counts(rated.scores.reshape(-1, len(rated.readers)))
    name = rated.criterion or "All ratings"
    facts = [f"{counts['ratings']:,} ratings of {counts['cases']:,} answers by {counts['readers']} readers"]
    if rated.again:
        same = 100 * float(np.mean(np.array(rated.again) == 0))
        facts.append(f"readers who rated again gave the same to {same:.1f} %, apart by {np.mean(rated.again):.3f}")
    yield f"{name}: {'; '.join(facts)}."
