"""What one model gains over another on the tasks of a suite, by kind of task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.results.statistics import FEWEST, mean_interval

if TYPE_CHECKING:
    import pandas as pd

ALL = "all"
"""The group of all tasks."""


def suite_gains(scores: pd.DataFrame, before: str, after: str, groups: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Paired gains over tasks, a row per group of tasks.

    A task counts once, by the difference of both models' scores on it; 95 % intervals are bootstraps of tasks, NaN of
    fewer than five. Read the median beside the mean: a few tasks on which training failed pull the mean.

    Args:
        scores: a row per model and a column per task, on one scale, higher is better.
        before: the model that is compared with, such as one from scratch.
        after: the model that may have gained, such as one that was pre-trained.
        groups: a row per task and a column per grouping, such as modality, target or size of the training set.
        seed: of the bootstrap.

    Returns:
        Rows of `by` (the grouping), `group`, `tasks`, `gain` (mean), `low`, `high`, `median`, `better` and `worse`
        (tasks), the first of all tasks.

    Raises:
        UsageError: a model, a score or a task's group lacks.

    >>> import pandas as pd
    >>> scores = pd.DataFrame({"a": [0.5, 0.6], "b": [0.7, 0.7]}, index=["scratch", "tuned"])
    >>> modalities = pd.DataFrame({"modality": {"a": "CT", "b": "MR"}})
    >>> suite_gains(scores, "scratch", "tuned", modalities)["gain"].round(2).tolist()
    [0.05, 0.1, 0.0]
    """
    import pandas as pd

    UsageError.refuse_invalid("model of the scores", list(scores.index), before, after)
    change = scores.loc[after].astype(float) - scores.loc[before].astype(float)
    lacking = [str(task) for task in change.index if np.isnan(change[task]) or task not in groups.index]
    if lacking:
        raise UsageError(f"scores: expected both models' scores and a group of each task, got none of {lacking[0]!r}")
    parts = [(ALL, ALL, change.to_numpy())]
    for by in groups:
        members = groups[by].reindex(change.index)
        parts += [(str(by), str(group), change.to_numpy()[members == group]) for group in dict.fromkeys(members)]
    rows = []
    for by, group, values in parts:
        interval = mean_interval(values, np.arange(len(values)), seed=seed)
        row = {"by": by, "group": group, "tasks": len(values), "gain": values.mean()}
        low, high = (interval.low, interval.high) if len(values) >= FEWEST else (np.nan, np.nan)
        row |= {"low": low, "high": high, "median": float(np.median(values))}
        rows.append({**row, "better": int((values > 0).sum()), "worse": int((values < 0).sum())})
    return pd.DataFrame(rows)
