"""Which items deserve a look, and why in words: likely label errors, and items that tell models apart in nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtri

from medimg_eval.results.runs import listed

if TYPE_CHECKING:
    import numpy.typing as npt

    from medimg_eval.results.items.response_matrix import Grid

    Floats = npt.NDArray[np.float64]

FEWEST_STRONG = 3
"""So many strong models there are at least, where there are more than that."""
LOWEST = 0.1
"""Of measurements: the share of a model's items that counts as its worst."""
FEWEST_FOR_LOWEST = 20
"""Items below which a model has no worst tenth."""


class Flag(NamedTuple):
    """Why an item deserves a look.

    Attributes:
        kind: `all fail`, `strong fail alike`, `strong fail` (most others do not), `negative` or `all low`.
        weight: The more, the earlier it is shown.
        why: The reason in words.
    """

    kind: str
    weight: float
    why: str


def strong_models(grid: Grid) -> int:
    """Returns how many of the first models count as strong: the best third, at least three; none of too few."""
    count = len(grid.models)
    return max(FEWEST_STRONG, round(count / 3)) if count > FEWEST_STRONG else 0


def negative_bound(correlation: Floats, models: Floats, level: float) -> Floats:
    """Returns the upper end of the interval of a correlation by Fisher's z, (item,); NaN where there is none.

    Args:
        correlation: (item,).
        models: (item,): how many it was computed from; of fewer than four there is no interval.
        level: Coverage, between 0 and 1, of both sides.
    """
    usable = ~np.isnan(correlation) & (models > 3)
    reach = float(ndtri((1 + level) / 2)) / np.sqrt(np.where(usable, models - 3, 1.0))
    raised = np.arctanh(np.clip(correlation, -1 + 1e-9, 1 - 1e-9)) + reach
    return np.where(usable, np.tanh(raised), np.nan)


def flag_items(grid: Grid, correlation: Floats, level: float) -> list[list[Flag]]:
    """Returns why each item deserves a look, if it does, the weightiest reason first.

    Args:
        grid: The task.
        correlation: (item,): corrected item-total correlations.
        level: Of the interval that must lie below zero for a correlation to count as negative.
    """
    if not grid.graded:
        return _low(grid)
    bound = negative_bound(correlation, (~np.isnan(grid.scores)).sum(axis=0).astype(np.float64), level)
    flags = []
    for item in range(len(grid.items)):
        found = [*_failed(grid, item)]
        if bound[item] < 0:
            why = (
                f"the better a model is otherwise, the rather it fails here: r = {correlation[item]:.2f}, "
                f"{100 * level:g} % interval below 0"
            )
            found.append(Flag("negative", 1 - correlation[item], why))
        flags.append(sorted(found, key=lambda one: -one.weight))
    return flags


def _failed(grid: Grid, item: int) -> list[Flag]:
    """Returns at most one reason: that all models are wrong, or the strong ones."""
    right = grid.credit[:, item]
    known = ~np.isnan(right)
    wrong = right == 0
    if wrong[known].all() and known.sum() > 1:
        same = _same(grid.given[known, item])
        count = int(known.sum())
        if same:
            return [Flag("all fail", 3.0 + count / 1000, f"all {count} models gave the same wrong answer")]
        parted = ", not all by one answer" if same is False else ""
        return [Flag("all fail", 1.5, f"all {count} models are wrong{parted}")]
    strong = strong_models(grid)
    if not strong or not (known & wrong)[:strong].all():
        return []
    same = _same(grid.given[:strong, item])
    others, weak = int((known & ~wrong)[strong:].sum()), int(known[strong:].sum())
    weaker = f"; {others} of {weak} weaker ones have credit" if others else ""
    if same:
        return [Flag("strong fail alike", 2.5, f"the {strong} strongest models gave the same wrong answer{weaker}")]
    # Hard items are missed by strong models too, and by different answers; that most weaker ones are right is odd.
    return [Flag("strong fail", 0.5, f"the {strong} strongest models are wrong{weaker}")] if 2 * others > weak else []


def _same(given: Floats) -> bool | None:
    """Whether all gave one answer, and gave one; None where it is not known of all."""
    if np.isnan(given).any():
        return None
    return bool((given == given[0]).all() and given[0] != -1)


def _low(grid: Grid) -> list[list[Flag]]:
    """Returns the reason of measurements: that an item is among the worst of every model."""
    values = grid.credit
    known = ~np.isnan(values)
    enough = known.sum(axis=1) >= FEWEST_FOR_LOWEST
    limits = np.array(
        [np.nanquantile(row, LOWEST) if rich else -math.inf for row, rich in zip(values, enough, strict=True)]
    )
    middles = np.array([np.nanmedian(row) for row in values])
    low = known & (values <= limits[:, None]) & (values < middles[:, None])
    flags: list[list[Flag]] = []
    for item in range(len(grid.items)):
        count = int(known[:, item].sum())
        if count > 1 and low[known[:, item], item].all():
            why = f"among the worst {100 * LOWEST:.0f} % of items of each of the {count} models"
            flags.append([Flag("all low", 1.0 + count / 1000, why)])
        else:
            flags.append([])
    return flags


def strong_text(grid: Grid) -> str:
    """Returns which models count as strong, with how often they are right."""
    strong = strong_models(grid)
    means = np.nanmean(grid.credit[:strong], axis=1)
    return listed([f"{name} ({mean:.2f})" for name, mean in zip(grid.models[:strong], means, strict=True)])
