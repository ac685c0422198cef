"""Pairwise preferences of readers and judges: win rates, strengths and what the order of a pair decides."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.agreement import bradley_terry, elo_scale, rate_at_equal_length
from medimg_eval.results.agreement.ratings import read_rows
from medimg_eval.results.statistics import FEWEST, draws, quantiles
from medimg_eval.results.table import Layout, Line, Sheet, Span, bounded, check_numbers

Floats = npt.NDArray[np.float64]

VERDICTS = {"left": 1.0, "right": 0.0, "tie": 0.5, "both_bad": 0.5, "invalid": math.nan}
"""Verdicts -> what the left model has of them."""

NEEDED = ("case", "left", "right", "verdict")
STATISTICS = ("win_rate", "wins", "ties", "at_equal_length", "strength", "elo")
_TITLES = {
    "win_rate": "Win rate",
    "wins": "Wins",
    "ties": "Ties",
    "at_equal_length": "Win rate at equal length",
    "strength": "Bradley-Terry",
    "elo": "Elo",
}


class Vote(NamedTuple):
    """One verdict on two answers to a case.

    Attributes:
        case: which it is about.
        left: the model whose answer was shown first.
        right: the other one.
        share: what the left one has of it, of `VERDICTS`; NaN of a verdict that cannot be used.
        judge: who gave it, a reader or a model.
        repeat: of the same judge.
        criterion: by which they were compared.
        ratio: length of the left answer over that of the right one; NaN where it is not known.
    """

    case: str
    left: str
    right: str
    share: float
    judge: str
    repeat: str
    criterion: str
    ratio: float


def read_preferences(path: str | Path) -> list[Vote]:
    """Reads votes from a CSV file.

    Its columns are `case`, `left` (the model that was shown first), `right`, `verdict` (`left`, `right`, `tie`,
    `both_bad`, `invalid`), and where they are known `judge`, `repeat`, `criterion`, `words_left`, `words_right`.

    Raises:
        UserError: a column is missing, or a row cannot be understood; it names the row.
    """
    path = Path(path)
    votes = [_read_vote(path, number, row) for number, row in enumerate(read_rows(path, NEEDED), start=2)]
    lines: dict[tuple[str, ...], int] = {}
    for number, vote in enumerate(votes, start=2):
        key = (vote.case, vote.left, vote.right, vote.judge, vote.repeat, vote.criterion)
        if key in lines:
            raise UserError(
                f"{path}, row {number} is invalid: expected one vote of a judge on a pair, got row {lines[key]} too"
            )
        lines[key] = number
    return votes


def _read_vote(path: Path, number: int, row: Mapping[str, Any]) -> Vote:
    def text(name: str) -> str:
        return str(row.get(name) or "").strip()

    where, verdict = f"{path}, row {number}", text("verdict").lower()
    if verdict not in VERDICTS:
        raise UserError(f"{where} is invalid: expected a verdict of {', '.join(VERDICTS)}, got {verdict!r}")
    if not all(map(text, ("case", "left", "right"))) or text("left") == text("right"):
        raise UserError(
            f"{where} is invalid: expected a case and two models, got {[text(name) for name in NEEDED[:3]]}"
        )
    try:
        words = [float(text(name) or "nan") for name in ("words_left", "words_right")]
    except ValueError as error:
        raise UserError(f"{where} is invalid: expected numbers of words ({error})") from error
    ratio = words[0] / words[1] if all(value > 0 for value in words) else math.nan
    about = text("judge"), text("repeat"), text("criterion")
    return Vote(text("case"), text("left"), text("right"), VERDICTS[verdict], *about, ratio)


class Pair(NamedTuple):
    """A judge's comparison of two models on a case, unordered.

    Attributes:
        case: which.
        first: number of a model.
        second: of the other, a larger one.
        share: what the first has of it: 1, 0.5 or 0.
        ratio: its length over that of the second.
        turned: whether both orders were judged and the verdicts disagreed.
        both: whether both orders were judged.
    """

    case: int
    first: int
    second: int
    share: float
    ratio: float
    turned: bool
    both: bool


def settle_pairs(votes: Sequence[Vote], models: Sequence[str], cases: Sequence[str]) -> list[Pair]:
    """Merges both orders of each pair; disagreement is a tie."""
    numbers, case_numbers = ({name: index for index, name in enumerate(names)} for names in (models, cases))
    groups: dict[tuple[Any, ...], list[tuple[float, float]]] = defaultdict(list)
    for vote in votes:
        if math.isnan(vote.share):
            continue
        left_model, right_model = numbers[vote.left], numbers[vote.right]
        outcome = (vote.share, vote.ratio) if left_model < right_model else (1 - vote.share, 1 / vote.ratio)
        groups[
            case_numbers[vote.case],
            min(left_model, right_model),
            max(left_model, right_model),
            vote.repeat,
            vote.criterion,
        ].append(outcome)
    settled = []
    for (case, first, second, *_), verdicts in groups.items():
        shares = {share for share, _ in verdicts}
        share = next(iter(shares)) if len(shares) == 1 else 0.5
        settled.append(Pair(case, first, second, share, verdicts[0][1], len(shares) > 1, len(verdicts) > 1))
    return settled


@dataclass(frozen=True)
class Preferences:
    """Preferences of one judge.

    Attributes:
        judge: who.
        criterion: by which.
        models: their names.
        pairs: the settled verdicts.
        first_wins: P(the model that is shown first wins) of votes that are no ties; NaN where all are.
        inconsistent: share of pairs judged in both orders whose verdict changed; NaN where none was.
        unused: votes that are no verdict.
        found: statistic -> (model,).
        lows: lower bounds.
        highs: upper bounds.
    """

    judge: str
    criterion: str
    models: Sequence[str]
    pairs: Sequence[Pair]
    first_wins: float
    inconsistent: float
    unused: int
    found: Mapping[str, Floats]
    lows: Mapping[str, Floats]
    highs: Mapping[str, Floats]


def preference_table(
    votes: Sequence[Vote], title: str, *, anchor: str | None = None, resamples: int = 1_000, level: float = 0.95,
    seed: int = 0,
) -> Sheet:  # fmt: skip
    """Returns win rate, ties, length-controlled rate, Bradley-Terry and Elo.

    A table of models by judge.

    A pair that was judged in both orders counts once, as a tie where its verdict changed. Intervals come from
    resampling cases. Judges are not pooled.

    Raises:
        UsageError: no vote is of the anchor, or a number of the bootstrap is invalid.
    """
    check_numbers(resamples, level, seed)
    models = sorted({name for vote in votes for name in (vote.left, vote.right)})
    if anchor is not None:
        UsageError.refuse_invalid("anchor", models, anchor)
    groups: dict[tuple[str, str], list[Vote]] = defaultdict(list)
    for vote in votes:
        groups[vote.judge, vote.criterion].append(vote)
    measured = [_measure_preferences(*key, some, anchor, resamples, level, seed) for key, some in groups.items()]
    columns_ = [name for name in STATISTICS if any(np.isfinite(pref.found[name]).any() for pref in measured)]
    lines = [
        Line([pref.judge or DASH, pref.criterion or DASH, model], _model_spans(pref, index, columns_), opens=not index)
        for pref in measured
        for index, model in enumerate(pref.models)
    ]  # fmt: skip
    notes = _preference_notes(measured, anchor, resamples, level, seed)
    stubs, columns = ["Judge", "Criterion", "Model"], [_TITLES[name] for name in columns_]
    content = Layout.of_block(f"{title}: preferences", columns, lines, notes, stubs, f"Preferences on {title}")
    return Sheet(content, _preference_frame(measured))


DASH = "\N{EN DASH}"


def _model_spans(one: Preferences, place: int, names: Sequence[str]) -> list[list[Span]]:
    """The cells of one model."""
    parts = (one.found, one.lows, one.highs)
    cells = []
    for name in names:
        value, low, high = (float(part[name][place]) for part in parts)
        cells.append(bounded(value, low, high, _number_format(name)))
    return cells


def _number_format(name: str) -> Callable[[float], str]:
    return (lambda value: f"{value:.0f}") if name == "elo" else (lambda value: f"{round(value, 3) + 0.0:.3f}")


def _measure_preferences(
    judge: str, criterion: str, votes: Sequence[Vote], anchor: str | None, resamples: int, level: float, seed: int
) -> Preferences:
    models = sorted({name for vote in votes for name in (vote.left, vote.right)})
    cases = sorted({vote.case for vote in votes})
    pairs = settle_pairs(votes, models, cases)
    fixed = models.index(anchor) if anchor in models else None
    values = _model_statistics(pairs, len(models), fixed)
    members = [[pair for pair in pairs if pair.case == index] for index in range(len(cases))]
    drawn: dict[str, list[Floats]] = {name: [] for name in STATISTICS}
    if len(cases) >= FEWEST:
        for some in draws(len(cases), resamples=resamples, seed=seed):
            for chosen in some:
                again = _model_statistics([pair for case in chosen for pair in members[case]], len(models), fixed)
                for name, value in again.items():
                    drawn[name].append(value)
    bounds = {name: _percentile_bounds(values[name], drawn[name], level) for name in STATISTICS}
    decided = [vote.share for vote in votes if vote.share in (0.0, 1.0)]
    both = [pair.turned for pair in pairs if pair.both]
    return Preferences(
        judge, criterion, models, pairs,
        float(np.mean(decided)) if decided else math.nan,
        float(np.mean(both)) if both else math.nan,
        sum(math.isnan(vote.share) for vote in votes),
        values, *({name: bound[side] for name, bound in bounds.items()} for side in (0, 1)),
    )  # fmt: skip


def _percentile_bounds(values: Floats, drawn: Sequence[Floats], level: float) -> tuple[Floats, Floats]:
    lows, highs = np.full(len(values), np.nan), np.full(len(values), np.nan)
    for index, value in enumerate(values):
        if drawn and not math.isnan(value):
            column = np.array([sample[index] for sample in drawn])
            lows[index], highs[index] = quantiles(column, (1 - level) / 2, (1 + level) / 2)
    return lows, highs


def _model_statistics(pairs: Sequence[Pair], number: int, anchor: int | None) -> dict[str, Floats]:
    """Returns every statistic of each model on some pairs."""
    won = np.zeros((number, number))
    first = np.array([pair.first for pair in pairs], int)
    second = np.array([pair.second for pair in pairs], int)
    share = np.array([pair.share for pair in pairs], float)
    np.add.at(won, (first, second), share)
    np.add.at(won, (second, first), 1 - share)
    own = np.concatenate([first, second])
    shares = np.concatenate([share, 1 - share])
    ratio = np.array([pair.ratio for pair in pairs], float)
    ratios = np.concatenate([ratio, 1 / ratio])
    strength = bradley_terry(won)
    of_model = [own == index for index in range(number)]

    def mean(values: Floats, at: npt.NDArray[np.bool_]) -> float:
        return float(values[at].mean()) if at.any() else math.nan

    finite = np.isfinite(ratios)
    return {
        "win_rate": np.array([mean(shares, at) for at in of_model]),
        "wins": np.array([mean((shares == 1).astype(float), at) for at in of_model]),
        "ties": np.array([mean((shares == 0.5).astype(float), at) for at in of_model]),
        "at_equal_length": np.array(
            [rate_at_equal_length(shares[at & finite], ratios[at & finite]) if (at & finite).any() else math.nan
             for at in of_model]
        ),
        "strength": strength,
        "elo": elo_scale(strength, anchor),
    }  # fmt: skip


def _preference_notes(
    measured: Sequence[Preferences], anchor: str | None, resamples: int, level: float, seed: int
) -> Iterator[str]:
    yield (
        f"[{100 * level:g} % interval: percentile bootstrap, {resamples:,} resamples of cases, seed {seed}; none of "
        f"fewer than {FEWEST}]. Win rate: wins and half the ties over all pairs of a model."
    )
    yield (
        "A pair judged in both orders counts once: as both verdicts say where they agree, else as a tie. "
        "Bradley-Terry: strengths of mean 0, ties as half wins; Elo: 1000 + 400 / ln 10 times that, 1000 for "
        f"{anchor or 'the mean'}; undefined where some model never lost to, or never met, the others."
    )
    if any(np.isfinite(preferences.found["at_equal_length"]).any() for preferences in measured):
        yield "Win rate at equal length: by a logistic regression on the logarithm of the ratio of lengths."
    for preferences in measured:
        name = ", ".join(filter(None, (preferences.judge, preferences.criterion))) or "All votes"
        facts = [f"{len(preferences.pairs):,} pairs"]
        if not math.isnan(preferences.first_wins):
            facts.append(f"the answer shown first wins {100 * preferences.first_wins:.1f} % of what is no tie")
        if not math.isnan(preferences.inconsistent):
            facts.append(f"the order changes {100 * preferences.inconsistent:.1f} % of verdicts")
        if preferences.unused:
            facts.append(f"{preferences.unused:,} votes that are no verdict left out")
        yield f"{name}: {'; '.join(facts)}."


def _preference_frame(measured: Sequence[Preferences]) -> pd.DataFrame:
    """Returns one row per judge, model and number."""
    records = [
        (
            preferences.judge,
            preferences.criterion,
            model,
            name,
            preferences.found[name][index],
            preferences.lows[name][index],
            preferences.highs[name][index],
        )
        for preferences in measured
        for index, model in enumerate(preferences.models)
        for name in STATISTICS
    ]
    return pd.DataFrame.from_records(
        records, columns=["judge", "criterion", "model", "statistic", "value", "low", "high"]
    )
