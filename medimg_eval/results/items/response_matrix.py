"""Items by models: what every model made of every case of a task, and what is said of an item by that alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval import metrics
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.results.runs import BLIND, is_evidence, is_known, is_set, is_summary
from medimg_eval.results.statistics import case_values, is_share
from medimg_eval.results.table import CHANCE, named_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from medimg_eval.results.runs import RunScores

    Floats = npt.NDArray[np.float64]

FEWEST_CORRELATED = 5
"""Of fewer models no correlation of an item is computed."""
GIVEN = ("given_class", "given_place")
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
        """(model, item): values turned so that higher is better, of rights and wrongs 1 for right."""
        if self.better > 0:
            return self.scores
        return 1 - self.scores if self.graded else -self.scores


def make_grids(runs: Sequence[RunScores], metric: str) -> tuple[list[Grid], list[str]]:
    """Returns the tasks whose items can be analysed by one metric, and why others cannot.

    Args:
        runs: As `load_runs` returns them.
        metric: Of single cases.

    Raises:
        UsageError: The metric has no values of cases, or no direction, or no finished run has scores of it.
        UserError: No task can be analysed.
    """
    finished = [run for run in runs if run.finished]
    better = _direction(finished, metric)
    by_task: dict[str, dict[str, RunScores]] = {}
    for name, named in named_runs(finished).items():
        for task, run in named.items():
            if (run.scores["metric"] == metric).any():
                by_task.setdefault(task, {})[name] = run
    grids, reasons = [], []
    for task, found in by_task.items():
        made = _grid(task, found, metric, better)
        if isinstance(made, str):
            reasons.append(made)
        else:
            grids.append(made)
    if not grids:
        raise UserError(" ".join(reasons))
    return grids, reasons


def is_blind(run: RunScores) -> bool:
    """Whether a run is of a model that was shown no images."""
    return run.model.endswith(BLIND)


def _direction(finished: Sequence[RunScores], metric: str) -> int:
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
            f"{metric} has no direction: say whether higher is better (with scores=FILE: 'better={{{metric}: higher}}')"
        )
    return 1 if higher else -1


def _grid(task: str, found: Mapping[str, RunScores], metric: str, better: int) -> Grid | str:
    """Returns the grid of a task, or why there is none."""
    title = next(iter(found.values())).task_title
    blind = {name: run for name, run in found.items() if is_blind(run)}
    columns = {
        name: case_values(run.scores.loc[run.scores["metric"] == metric])["value"]
        for name, run in found.items()
        if not run.baseline and name not in blind and run.model != CHANCE
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
    given = np.stack([_given(run, together.index) for run in runs.values()])
    items = together.index.to_numpy(dtype=str)
    graded = _is_graded(metric, values)
    return Grid(title, task, runs, blind, items, values, given, better, graded, _chance(found, metric))


def _chance(found: Mapping[str, RunScores], metric: str) -> float:
    for run in found.values():
        if metric in run.chance:
            return run.chance[metric]
    for run in found.values():
        if run.model == CHANCE:
            return float(case_values(run.scores.loc[run.scores["metric"] == metric])["value"].mean())
    return float("nan")


def _is_graded(metric: str, values: Floats) -> bool:
    """Whether values are right, wrong and credits: most are 0 or 1, and none lies outside."""
    known = values[~np.isnan(values)]
    return bool(
        is_share(metric)
        and ((known >= 0) & (known <= 1)).all()
        and 2 * ((known == 0) | (known == 1)).sum() > known.size
    )


def _given(run: RunScores, items: pd.Index[str]) -> Floats:
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
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    totals, counts = filled.sum(axis=1, keepdims=True), known.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        rest = (totals - filled) / (counts - known)
        whole = np.broadcast_to(totals / counts, values.shape)
    return _correlated(values, rest), _correlated(values, whole)


def _correlated(one: Floats, other: Floats) -> Floats:
    """Returns Pearson's correlation of each column over the rows that have both, (column,)."""
    known = ~np.isnan(one) & ~np.isnan(other)
    counts = np.maximum(known.sum(axis=0), 1)

    def centred(values: Floats) -> Floats:
        filled = np.where(known, values, 0.0)
        return np.where(known, filled - filled.sum(axis=0) / counts, 0.0)

    first, second = centred(one), centred(other)
    spread = np.sqrt((first**2).sum(axis=0) * (second**2).sum(axis=0))
    # Equal numbers differ from their mean by rounding alone.
    usable = (known.sum(axis=0) >= FEWEST_CORRELATED) & (spread > 1e-12)
    found = np.divide((first * second).sum(axis=0), spread, out=np.full(spread.shape, np.nan), where=usable)
    return np.asarray(np.clip(found, -1.0, 1.0), dtype=np.float64)


def cronbach_alpha(values: Floats) -> float:
    """Returns how far the items order models alike: Cronbach's alpha, of rights and wrongs Kuder and Richardson's 20.

    Definition: I / (I - 1) * (1 - sum of the items' variances / variance of the sum over items), over models.

    Args:
        values: (model, item); models without a value for some item are left out.

    Returns:
        At most 1; NaN of fewer than `FEWEST_CORRELATED` complete models, of one item, or where all sums are equal.

    Source: Cronbach, Psychometrika 16 (1951).
    """
    whole = values[~np.isnan(values).any(axis=1)]
    items = values.shape[1]
    if len(whole) < FEWEST_CORRELATED or items < 2:
        return float("nan")
    total = float(whole.sum(axis=1).var(ddof=1))
    if total < 1e-12:
        return float("nan")
    return float(items / (items - 1) * (1 - whole.var(axis=0, ddof=1).sum() / total))
