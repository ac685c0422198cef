"""Verdicts of a judge on the scale of people: a map fitted on rated cases, judged on others, and the corrected mean."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.errors import UserError
from medimg_eval.metrics.agreement import corrected_share
from medimg_eval.results.agreement.judges import Verdicts
from medimg_eval.results.agreement.jury import estimate_spans
from medimg_eval.results.statistics import FEWEST, draws, quantiles
from medimg_eval.results.table import Layout, Line, Sheet, Span, check_numbers

Floats = npt.NDArray[np.float64]

FOLDS = 5
FEWEST_RATED = 20
"""Rated cases below which no map is fitted."""

_TITLES = {
    "judge_mean": "Judge's mean",
    "bias": "Bias",
    "error": "Error",
    "held_out_error": "Error when calibrated",
    "sensitivity": "Sensitivity",
    "specificity": "Specificity",
    "corrected": "Corrected mean",
}


@dataclass(frozen=True, eq=False)
class Rated:
    """Numbers of a judge on a question, and people's on some cases.

    Attributes:
        question: that was asked.
        judge: its id.
        said: (rated case,): by the judge.
        human: (rated case,): by people.
        fold: (rated case,): in which part each is, by its id.
        rest: (other case,): by the judge, where people said nothing.
    """

    question: str
    judge: str
    said: Floats
    human: Floats
    fold: npt.NDArray[np.intp]
    rest: Floats

    @property
    def binary(self) -> bool:
        """Whether both say only 0 or 1."""
        return set(self.said.tolist()) | set(self.human.tolist()) | set(self.rest.tolist()) <= {0.0, 1.0}


def rated_cases(verdicts: Sequence[Verdicts], every: Mapping[tuple[str, str], Mapping[str, float]]) -> list[Rated]:
    """Returns judges' numbers beside people's, where enough are rated.

    Args:
        verdicts: as `read_verdicts` returns them.
        every: (question, judge) -> case -> number that the judge gave, of all cases of the run.

    Raises:
        UserError: no judge gave numbers on 20 rated cases.
    """
    rated_ = []
    for verdict in verdicts:
        if not verdict.numeric or verdict.understood.sum() < FEWEST_RATED:
            continue
        rated, cases = verdict.understood, verdict.case[verdict.understood]
        unrated = [
            value
            for case, value in every.get((verdict.question, verdict.judge), {}).items()
            if case not in set(verdict.case)
        ]
        fold = np.array([int(hashlib.sha256(case.encode()).hexdigest(), 16) % FOLDS for case in cases.tolist()])
        rated_.append(
            Rated(
                verdict.question,
                verdict.judge,
                verdict.said[rated],
                verdict.human[rated],
                fold,
                np.array(unrated, float),
            )
        )
    if not rated_:
        raise UserError(f"calibrate=true: expected a judge's numbers on {FEWEST_RATED} rated cases or more, got fewer")
    return rated_


def held_out(rated: Rated) -> tuple[Floats, Floats]:
    """Returns cross-fitted people's numbers: rated cases, then others.

    A map rises or stays with what the judge says (isotonic regression); each rated case is mapped by one that was
    fitted on the other folds, any other case by the mean of all maps.
    """
    from sklearn.isotonic import IsotonicRegression

    own, unrated = np.full(len(rated.said), np.nan), []
    for fold in np.unique(rated.fold):
        inside = rated.fold == fold
        if inside.all():
            break
        fitted = IsotonicRegression(out_of_bounds="clip").fit(rated.said[~inside], rated.human[~inside])
        own[inside] = fitted.predict(rated.said[inside])
        unrated.append(fitted.predict(rated.rest) if len(rated.rest) else rated.rest)
    unrated_means: Floats = np.mean(unrated, axis=0) if unrated else np.full(len(rated.rest), np.nan)
    return own, unrated_means


def calibrated_numbers(rated: Rated) -> dict[str, float]:
    """Returns calibration of one judge, by table columns.

    The corrected mean is over all cases: of shares by the judge's sensitivity and specificity (Rogan and Gladen 1978),
    of grades the mean of the mapped verdicts plus the mean of what the maps miss on rated cases, each by a map that
    never saw it (cross-prediction, Zrnic and Candes 2024).
    """
    every = np.concatenate([rated.said, rated.rest])
    numbers = {"judge_mean": float(every.mean()), "bias": float((rated.said - rated.human).mean())}
    numbers["error"] = float(np.abs(rated.said - rated.human).mean())
    if rated.binary:
        yes, no = rated.human == 1, rated.human == 0
        sensitivity = float(rated.said[yes].mean()) if yes.any() else math.nan
        specificity = float(1 - rated.said[no].mean()) if no.any() else math.nan
        corrected = corrected_share(numbers["judge_mean"], sensitivity, specificity)
        return numbers | {"sensitivity": sensitivity, "specificity": specificity, "corrected": corrected}
    own, unrated = held_out(rated)
    numbers["held_out_error"] = float(np.abs(own - rated.human).mean())
    mapped = np.concatenate([own, unrated])
    return numbers | {"corrected": float(mapped.mean() + (rated.human - own).mean())}


def calibration_table(
    rated: Sequence[Rated], title: str, *, resamples: int = 1_000, level: float = 0.95, seed: int = 0
) -> Sheet:
    """Returns judges calibrated by people, per question and judge.

    Args:
        rated: as `rated_cases` returns them.
        title: of what was judged.
        resamples: number of bootstrap resamples, of rated and of other cases.
        level: coverage of the intervals.
        seed: of the bootstrap.

    Raises:
        UsageError: a number of the bootstrap is invalid.
    """
    check_numbers(resamples, level, seed)
    measured = [_with_intervals(rated_case, resamples, level, seed) for rated_case in rated]
    names = [name for name in _TITLES if any(name in values for values in measured)]
    lines = [
        Line(
            [rated_case.question, rated_case.judge],
            [
                [Span(f"{len(rated_case.said):,} of {len(rated_case.said) + len(rated_case.rest):,}")],
                *(estimate_spans(values.get(n)) for n in names),
            ],
        )
        for rated_case, values in zip(rated, measured, strict=True)
    ]
    content = Layout.of_block(
        f"{title}: judges calibrated by people",
        ["Rated", *(_TITLES[name] for name in names)],
        lines,
        _calibration_notes(resamples, level, seed),
        ["Question", "Judge"],
        f"Judges calibrated by people on {title}",
    )
    records = [
        (rated_case.question, rated_case.judge, name, *values, len(rated_case.said))
        for rated_case, values_ in zip(rated, measured, strict=True)
        for name, values in values_.items()
    ]
    columns = ["question", "judge", "statistic", "value", "low", "high", "n"]
    return Sheet(content, pd.DataFrame.from_records(records, columns=columns))


def _with_intervals(one: Rated, resamples: int, level: float, seed: int) -> dict[str, tuple[float, float, float]]:
    values = calibrated_numbers(one)
    drawn: dict[str, list[float]] = {name: [] for name in values}
    if len(one.said) >= FEWEST:
        generator = np.random.default_rng(seed)
        for some in draws(len(one.said), resamples=resamples, seed=seed):
            for chosen in some:
                unrated = generator.choice(one.rest, len(one.rest)) if len(one.rest) else one.rest
                again = Rated(one.question, one.judge, one.said[chosen], one.human[chosen], one.fold[chosen], unrated)
                for name, value in calibrated_numbers(again).items():
                    if name in drawn:
                        drawn[name].append(value)
    intervals = {}
    for name, value in values.items():
        low, high = (np.nan, np.nan)
        if drawn[name] and not math.isnan(value):
            low, high = quantiles(np.array(drawn[name]), (1 - level) / 2, (1 + level) / 2)
        intervals[name] = (value, float(low), float(high))
    return intervals


def _calibration_notes(resamples: int, level: float, seed: int) -> Iterator[str]:
    yield (
        f"[{100 * level:g} % interval: percentile bootstrap, {resamples:,} resamples of rated cases and of others, "
        f"seed {seed}; none of fewer than {FEWEST}]."
    )
    yield (
        "Bias, Error: mean and mean absolute difference of the judge to people on rated cases; Error when calibrated: "
        f"the same after a rising map that was fitted on other cases ({FOLDS} folds)."
    )
    yield (
        "Corrected mean: over all cases; of grades by those maps and what they miss (cross-prediction), of yes and no "
        "by sensitivity and specificity (Rogan and Gladen), undefined where the two together are at most 1.1."
    )
