"""Items by models: what every model made of every case of a task, what that says of an item, which deserve a look."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtri

from medimg_eval import metrics
from medimg_eval.case import NO_IMAGE
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.results.runs import is_evidence, is_known, is_set, is_summary, listed
from medimg_eval.results.statistics import case_values
from medimg_eval.results.table import CHANCE, named_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from medimg_eval.results.runs import RunScores

    Floats = npt.NDArray[np.float64]

FEWEST_CORRELATED = 5
"""Of fewer models no correlation of an item is computed."""
GIVEN = ("predicted_class", "predicted_position")
"""Evidence of which answer was given: its text, or its place among the options. -1 is none."""


class Grid(NamedTuple):
    """The models of one task by its items.

    Attributes:
        title: Of the task.
        task: Its name.
        runs: By model, best mean first; baselines are left out.
        blind: By model: runs that were shown no images.
        items: (item,): ids of cases.
        scores: (model, item): NaN where there is none.
        given: (model, item): a number for the answer that was given, -1 for none; NaN where it is not known.
        better: 1 where higher values are better, -1 where lower are.
        graded: Whether values are right, wrong and credits between; else they are measurements.
        chance: What guessing is worth; NaN where nothing says it.
    """

    title: str
    task: str
    runs: Mapping[str, RunScores]
    blind: Mapping[str, RunScores]
    items: npt.NDArray[np.str_]
    scores: Floats
    given: Floats
    better: int
    graded: bool
    chance: float

    @property
    def models(self) -> list[str]:
        """The models, best mean first."""
        return list(self.runs)

    @property
    def credit(self) -> Floats:
        """(model, item) values oriented so that higher is better.

        A right answer is 1, a wrong one 0.
        """
        if self.better > 0:
            return self.scores
        return 1 - self.scores if self.graded else -self.scores


def make_grids(runs: Sequence[RunScores], metric: str) -> tuple[list[Grid], list[str]]:
    """Returns analysable tasks by one metric, with reasons for others.

    Args:
        runs: As `load_runs` returns them.
        metric: Of single cases.

    Raises:
        UsageError: The metric has no values of cases, or no direction, or no finished run has scores of it.
        UserError: No task can be analysed.
    """
    finished = [run for run in runs if run.finished]
    better = _metric_direction(finished, metric)
    by_task: dict[str, dict[str, RunScores]] = {}
    for name, named in named_runs(finished).items():
        for task, run in named.items():
            if (run.scores["metric"] == metric).any():
                by_task.setdefault(task, {})[name] = run
    grids, reasons = [], []
    for task, runs_of_task in by_task.items():
        grid = _make_grid(task, runs_of_task, metric, better)
        if isinstance(grid, str):
            reasons.append(grid)
        else:
            grids.append(grid)
    if not grids:
        raise UserError(" ".join(reasons))
    return grids, reasons


def _metric_direction(finished: Sequence[RunScores], metric: str) -> int:
    if is_summary(metric) or is_set(metric) or is_evidence(metric):
        raise UsageError(f"{metric} has no value of its own for each case; items need one that has, such as accuracy")
    names = {name for run in finished for name in run.scores["metric"].unique()}
    if metric not in names:
        raise UsageError(f"No finished run has scores of {metric!r}{nearest(metric, names)}")
    higher = next((run.directions[metric] for run in finished if metric in run.directions), None)
    if is_known(metric):
        higher = metrics.get(metric).higher_is_better
    if higher is None:
        raise UsageError(
            f"{metric} has no direction: say whether higher is better "
            f"(with scores=FILE: 'direction={{{metric}: higher}}')"
        )
    return 1 if higher else -1


def _make_grid(task: str, found: Mapping[str, RunScores], metric: str, better: int) -> Grid | str:
    """Returns the grid of a task, or why there is none."""
    title = next(iter(found.values())).task_title
    blind = {name: run for name, run in found.items() if run.condition == NO_IMAGE}
    columns = {
        name: case_values(run.scores.loc[run.scores["metric"] == metric])["value"]
        for name, run in found.items()
        if not run.baseline and run.model != CHANCE
    }
    columns = {name: column for name, column in columns.items() if column.notna().any()}
    if len(columns) < 2:
        return f"{title}: items are told by how several models did on them, and here are {len(columns)}; add runs."
    together = pd.DataFrame(columns)
    together = together.loc[together.notna().any(axis=1)]
    if len(together) < 2:
        return f"{title}: has one item with a value of {metric}; a single one cannot be held against others."
    values = better * together.to_numpy(dtype=np.float64).T
    order = sorted(range(len(columns)), key=lambda place: (-np.nanmean(values[place]), list(columns)[place]))
    together = together.iloc[:, order]
    values = together.to_numpy(dtype=np.float64).T
    if np.nanmin(values) == np.nanmax(values):
        return f"{title}: every value of {metric} is {np.nanmin(values):g}, so nothing tells one item from another."
    runs = {name: found[name] for name in together.columns}
    answers = np.stack([_given_answers(run, together.index) for run in runs.values()])
    items = together.index.to_numpy(dtype=str)
    graded = _is_graded(metric, values)
    return Grid(title, task, runs, blind, items, values, answers, better, graded, _chance_level(found, metric))


def _chance_level(found: Mapping[str, RunScores], metric: str) -> float:
    for run in found.values():
        if metric in run.chance:
            return run.chance[metric]
    for run in found.values():
        if run.model == CHANCE:
            return float(case_values(run.scores.loc[run.scores["metric"] == metric])["value"].mean())
    return float("nan")


def _is_graded(metric: str, values: Floats) -> bool:
    """Whether values are graded: mostly 0 or 1, all between."""
    known_values = values[~np.isnan(values)]
    return bool(
        (not is_known(metric) or metrics.get(metric).value_kind == "proportion")
        and ((known_values >= 0) & (known_values <= 1)).all()
        and 2 * ((known_values == 0) | (known_values == 1)).sum() > known_values.size
    )


def _given_answers(run: RunScores, items: pd.Index[str]) -> Floats:
    """Returns which answer a model gave to each item, (item,)."""
    for name in GIVEN:
        rows = run.scores.loc[run.scores["metric"] == name].drop_duplicates("case")
        if len(rows):
            return rows.set_index("case")["value"].reindex(items).to_numpy(dtype=np.float64)
    return np.full(len(items), np.nan)


def item_correlations(values: Floats) -> tuple[Floats, Floats]:
    """Returns how each item goes with how good models are otherwise.

    Definition: the first is Pearson's correlation over models of the item's values with the mean of the other items
    that the model has (the corrected item-total correlation), the second with the mean of all (of rights and wrongs the
    point-biserial correlation), which the item itself is part of. Where no value is missing, means and sums correlate
    alike.

    Args:
        values: (model, item); NaN where there is none.

    Returns:
        (item,) each, in [-1, 1]; NaN where fewer than `FEWEST_CORRELATED` models have the item, or where its values or
        the others' means are all equal.

    Source: Lord & Novick, Statistical Theories of Mental Test Scores (1968), chapter 15.
    """
    is_known = ~np.isnan(values)
    filled = np.where(is_known, values, 0.0)
    totals, counts = filled.sum(axis=1, keepdims=True), is_known.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        rest_means = (totals - filled) / (counts - is_known)
        total_means = np.broadcast_to(totals / counts, values.shape)
    return _correlate_columns(values, rest_means), _correlate_columns(values, total_means)


def _correlate_columns(one: Floats, other: Floats) -> Floats:
    """Returns Pearson's correlation of each column over the rows that have both, (column,)."""
    is_known = ~np.isnan(one) & ~np.isnan(other)
    counts = np.maximum(is_known.sum(axis=0), 1)

    def centred(values: Floats) -> Floats:
        filled = np.where(is_known, values, 0.0)
        return np.where(is_known, filled - filled.sum(axis=0) / counts, 0.0)

    first, second = centred(one), centred(other)
    spread = np.sqrt((first**2).sum(axis=0) * (second**2).sum(axis=0))
    # Equal numbers differ from their mean by rounding alone.
    usable = (is_known.sum(axis=0) >= FEWEST_CORRELATED) & (spread > 1e-12)
    correlation = np.divide((first * second).sum(axis=0), spread, out=np.full(spread.shape, np.nan), where=usable)
    return np.asarray(np.clip(correlation, -1.0, 1.0), dtype=np.float64)


def cronbach_alpha(values: Floats) -> float:
    """Returns Cronbach's alpha; of binary items Kuder-Richardson 20.

    How far the items order models alike.

    Definition: I / (I - 1) * (1 - sum of the items' variances / variance of the sum over items), over models.

    Args:
        values: (model, item); models without a value for some item are left out.

    Returns:
        At most 1; NaN of fewer than `FEWEST_CORRELATED` complete models, of one item, or where all sums are equal.

    Source: Cronbach, Psychometrika 16 (1951).
    """
    complete = values[~np.isnan(values).any(axis=1)]
    items = values.shape[1]
    if len(complete) < FEWEST_CORRELATED or items < 2:
        return float("nan")
    total = float(complete.sum(axis=1).var(ddof=1))
    if total < 1e-12:
        return float("nan")
    return float(items / (items - 1) * (1 - complete.var(axis=0, ddof=1).sum() / total))


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
    """Returns the number of strong models: best third, minimum three.

    None of too few.
    """
    count = len(grid.models)
    return max(FEWEST_STRONG, round(count / 3)) if count > FEWEST_STRONG else 0


def negative_bound(correlation: Floats, models: Floats, level: float) -> Floats:
    """Returns upper bounds of correlations by Fisher's z, (item,).

    NaN where there is none.

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
    """Returns reasons to inspect each item, weightiest first.

    Args:
        grid: The task.
        correlation: (item,): corrected item-total correlations.
        level: Of the interval that must lie below zero for a correlation to count as negative.
    """
    if not grid.graded:
        return _low_flags(grid)
    bound = negative_bound(correlation, (~np.isnan(grid.scores)).sum(axis=0).astype(np.float64), level)
    flags = []
    for item in range(len(grid.items)):
        flags_ = [*_failed_flags(grid, item)]
        if bound[item] < 0:
            why = (
                f"the better a model is otherwise, the rather it fails here: r = {correlation[item]:.2f}, "
                f"{100 * level:g} % interval below 0"
            )
            flags_.append(Flag("negative", 1 - correlation[item], why))
        flags.append(sorted(flags_, key=lambda one: -one.weight))
    return flags


def _failed_flags(grid: Grid, item: int) -> list[Flag]:
    """Returns whether all, or the strong models, are wrong."""
    right = grid.credit[:, item]
    is_known = ~np.isnan(right)
    wrong = right == 0
    if wrong[is_known].all() and is_known.sum() > 1:
        is_same = _all_same(grid.given[is_known, item])
        count = int(is_known.sum())
        if is_same:
            return [Flag("all fail", 3.0 + count / 1000, f"all {count} models gave the same wrong answer")]
        parted = ", not all by one answer" if is_same is False else ""
        return [Flag("all fail", 1.5, f"all {count} models are wrong{parted}")]
    strong = strong_models(grid)
    if not strong or not (is_known & wrong)[:strong].all():
        return []
    is_same = _all_same(grid.given[:strong, item])
    weak_right, weak = int((is_known & ~wrong)[strong:].sum()), int(is_known[strong:].sum())
    weaker = f"; {weak_right} of {weak} weaker ones have credit" if weak_right else ""
    if is_same:
        return [Flag("strong fail alike", 2.5, f"the {strong} strongest models gave the same wrong answer{weaker}")]
    # Hard items are missed by strong models too, and by different answers; that most weaker ones are right is odd.
    return (
        [Flag("strong fail", 0.5, f"the {strong} strongest models are wrong{weaker}")] if 2 * weak_right > weak else []
    )


def _all_same(given: Floats) -> bool | None:
    """Whether all gave one answer; None where unknown for some."""
    if np.isnan(given).any():
        return None
    return bool((given == given[0]).all() and given[0] != -1)


def _low_flags(grid: Grid) -> list[list[Flag]]:
    """Returns items among the worst of every model, for measurements."""
    values = grid.credit
    is_known = ~np.isnan(values)
    enough = is_known.sum(axis=1) >= FEWEST_FOR_LOWEST
    limits = np.array(
        [np.nanquantile(row, LOWEST) if rich else -math.inf for row, rich in zip(values, enough, strict=True)]
    )
    middles = np.array([np.nanmedian(row) for row in values])
    low = is_known & (values <= limits[:, None]) & (values < middles[:, None])
    flags: list[list[Flag]] = []
    for item in range(len(grid.items)):
        count = int(is_known[:, item].sum())
        if count > 1 and low[is_known[:, item], item].all():
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
