"""Scores by when items were released, beside what a model may have been trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.results.statistics import mean_interval

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "window", "first", "last", "items", "mean", "low", "high", "known")


def release_windows(
    scores: pd.DataFrame, edges: Sequence[str], cutoffs: Mapping[str, str] | None = None, *, resamples: int = 2000
) -> pd.DataFrame:
    """Means by release window and model, never pooled.

    Args:
        scores: columns model, value and released (YYYY-MM-DD), and maybe patient, whom intervals resample.
        edges: dates at which a window ends and the next begins; an item of that day belongs to the next.
        cutoffs: model -> the last day of what it was trained on.
        resamples: of the bootstrap.

    Returns:
        Columns `COLUMNS`: `first` and `last` are the dates of the window's own items; `known` is "yes" where all of
        them lie before the model's cut-off, "no" where all lie after, "partly" between, "" without a cut-off.

    Raises:
        UsageError: a column lacks, or a date is none.

    Source: LiveBench (White et al. 2024): dated releases, of which the newest are free of contamination.
    """
    import pandas as pd

    UsageError.refuse_unknown("scores: has no column", scores.columns, "model", "value", "released")
    released = scores["released"].map(_parse_day)
    bounds = sorted(map(_parse_day, edges))
    window = released.map(lambda day: sum(day >= bound for bound in bounds))
    limits = {model: _parse_day(day) for model, day in (cutoffs or {}).items()}
    rows = []
    for (model, release), part in scores.assign(released=released, window=window).groupby(
        ["model", "window"], sort=True
    ):
        clusters = part["patient"] if "patient" in part else np.arange(len(part))
        interval = mean_interval(part["value"].to_numpy(float), clusters, resamples=resamples)
        first, last = part["released"].min(), part["released"].max()
        is_after = _known_before(first, last, limits.get(str(model)))
        rows.append((model, release, first, last, len(part), interval.mean, interval.low, interval.high, is_after))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _parse_day(text: object) -> date:
    with UsageError.about("a date", f"is {text!r}, expected YYYY-MM-DD", ValueError, TypeError):
        return text if isinstance(text, date) else date.fromisoformat(str(text))


def _known_before(first: date, last: date, cutoff: date | None) -> str:
    if cutoff is None:
        return ""
    return "yes" if last <= cutoff else "no" if first > cutoff else "partly"


def chance_corrected(accuracy: float, options: float) -> float:
    """Chance-corrected accuracy: 0 for guessing, 1 for all right.

    On questions about what does not exist, as Glianorex's about a made-up organ, it is what a model takes from the form
    of questions alone: the line that a benchmark's own accuracy is read beside.

    Args:
        accuracy: in [0, 1].
        options: mean number of options of a question.

    Raises:
        UsageError: there are no two options.
    """
    if options < 2:
        raise UsageError(f"options={options}: expected at least 2")
    return math.nan if math.isnan(accuracy) else (accuracy - 1 / options) / (1 - 1 / options)
