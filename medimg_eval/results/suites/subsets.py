"""A few tasks that order models as the whole suite does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TaskSubset:
    """Tasks that were chosen for a whole suite.

    Attributes:
        tasks: their names, in the order of the suite.
        agreement: Kendall's tau-b of the models' order by these tasks with that by all, -1 to 1.
        error: mean absolute difference of a model's mean score of these tasks and of all.
        left_out_errors: model -> absolute difference of its ranks by both, where the tasks were chosen without it.
    """

    tasks: tuple[str, ...]
    agreement: float
    error: float
    left_out_errors: dict[str, float]


def representative_tasks(scores: pd.DataFrame, count: int) -> TaskSubset:
    """Chooses tasks that preserve the model order, greedily with exchanges.

    The choice maximises Kendall's tau-b, and among equals minimises the error of the means; it is the same for the same
    table. How far it serves a model that it was not made with, `left_out_errors` tell: with few models, or models much
    alike, any subset looks well by its own agreement.

    Args:
        scores: a row per model and a column per task, on one scale (percent, or ranks), higher is better.
        count: how many tasks are chosen.

    Raises:
        UsageError: fewer than three models, a score that lacks, or more tasks than there are.

    Source: the idea of representative subsets is that of carps (Benjamins et al. 2025), which minimises the star
    discrepancy of tasks; here the order of models is what is kept.
    """
    table = scores.to_numpy(float)
    if len(scores) < 3 or np.isnan(table).any():
        raise UsageError(
            f"scores: expected a number for each of at least three models in each task, got {len(scores)} models and "
            f"{int(np.isnan(table).sum())} cells without one"
        )
    if not 1 <= count <= table.shape[1]:
        raise UsageError(f"count={count}: expected 1 to {table.shape[1]}, the number of tasks")
    chosen = _choose_tasks(table, count)
    agreement, error = _subset_score(table, chosen)
    left_out = {}
    for index, name in enumerate(scores.index):
        other_tasks = np.delete(np.arange(len(table)), index)
        without = _choose_tasks(table[other_tasks], count)
        left_out[str(name)] = abs(
            float(_average_ranks(table[:, without].mean(1))[index] - _average_ranks(table.mean(1))[index])
        )
    return TaskSubset(tuple(str(scores.columns[column]) for column in chosen), agreement, -error, left_out)


def _choose_tasks(table: Floats, count: int) -> list[int]:
    tasks = range(table.shape[1])
    chosen: list[int] = []
    for _ in range(count):
        free = [task for task in tasks if task not in chosen]
        chosen.append(max(free, key=lambda task: _subset_score(table, [*chosen, task])))
    better = True
    while better:
        better = False
        for step in range(count):
            for task in tasks:
                changed = [*chosen[:step], task, *chosen[step + 1 :]]
                if task not in chosen and _subset_score(table, changed) > _subset_score(table, chosen):
                    chosen, better = changed, True
    return sorted(chosen)


def _subset_score(table: Floats, tasks: Sequence[int]) -> tuple[float, float]:
    from scipy.stats import kendalltau

    part, full = table[:, list(tasks)].mean(1), table.mean(1)
    tau = float(kendalltau(part, full).statistic)
    return (-1.0 if np.isnan(tau) else tau), -float(np.abs(part - full).mean())


def _average_ranks(values: Floats) -> Floats:
    from scipy.stats import rankdata

    ranks: Floats = rankdata(-values)
    return ranks
