"""Accuracy within a budget: how many of all answers are right and took no more than so much."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.figures import style
from medimg_eval.results.figures.figure import Drawn
from medimg_eval.results.figures.inputs import as_runs, take
from medimg_eval.results.statistics import FEWEST, draws
from medimg_eval.results.table import Settings, make_column

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.figure import Figure

    from medimg_eval.results.figures.inputs import Source
    from medimg_eval.results.figures.style import Width
    from medimg_eval.results.runs import Part

    Floats = npt.NDArray[np.float64]

RIGHT = ("accuracy_or_exact_match", "accuracy")
"""Metrics that say whether an answer is right; the first that a run has rows of."""

SPENT = (
    "output_tokens",
    "thought_tokens",
    "input_tokens",
    "answer_seconds",
    "chain_seconds",
    "answer_cost",
    "model_steps",
)
"""Metrics of what an answer took."""

COLUMNS = ["model", "budget", "accuracy", "low", "high", "n", "area"]
PLAIN = Settings(resamples=10_000, level=0.95, seed=0)
_HEIGHT, _POINTS = 55.0, 101
_MOST = 1_000
"""Resamples: a band needs fewer than an interval of a table."""


def budget(
    source: Source, metric: str, *, label: str = "", width: Width = "single", settings: Settings = PLAIN
) -> Drawn:
    """Budget curve: share of right answers within a budget, by model.

    Answers of which it is not known what they took are right within no budget. The area is that below the curve up to
    the largest budget that any answer took, over that budget. Bands resample cases or patients.

    Returns:
        A frame with a row per model and budget.

    Raises:
        UsageError: The metric says nothing of what answers took, or there is no such label.
        UserError: No run has rows of it, and of what is right.
    """
    UsageError.refuse_unknown("kind=budget is drawn of no metric", SPENT, metric)
    across = style.millimetres(width)
    runs = as_runs(source, metric)
    metric_names = {str(name) for run in runs if run.finished for name in run.scores["metric"].unique()}
    right = next((name for name in RIGHT if name in metric_names), None)
    if right is None or metric not in metric_names:
        raise UserError(f"No finished run has rows of {metric} and of accuracy; name both among the task's metrics")
    pieces = take(runs, [metric, right], label=label)
    answers = {piece.model: _budget_answers(piece.part, metric, right) for piece in pieces.members}
    most = max((float(spent[np.isfinite(spent)].max(initial=0.0)) for spent, _, _ in answers.values()), default=0.0)
    if not most > 0:
        raise UserError(f"No run says what its answers took by {metric}, so there is nothing to draw")
    grid = np.linspace(0.0, most, _POINTS)
    frames = [_budget_frame(model, *spent, grid, settings) for model, spent in answers.items()]
    frame = pd.concat(frames, ignore_index=True)
    column = make_column(pieces.task, pieces.title, metric, pieces.some)
    with style.styled():
        figure = _draw_figure(frame, style.drawable(column.title), across)
    areas = ", ".join(f"{model} {rows['area'].iloc[0]:.3f}" for model, rows in frame.groupby("model", sort=False))
    text = (
        f"Share of all answers on {pieces.title} that are right within a budget of {column.title.lower()} "
        f"(n = {len(next(iter(answers.values()))[0])}). Area up to the largest: {areas}."
    )
    if frame["low"].notna().any():
        text += f" Bands: {100 * settings.level:g} % percentile bootstrap of {pieces.unit}."
    return Drawn(figure, frame, text + pieces.end())


def _budget_answers(part: Part, metric: str, right: str) -> tuple[Floats, Floats, npt.NDArray[np.intp]]:
    """Returns each case's cost, correctness and patient index."""
    rows = part.scores[part.scores["metric"].isin([metric, right])]
    table = rows.pivot_table(
        index="case", columns="metric", values="value", aggfunc="mean", observed=True, dropna=False
    )
    table = table.reindex(index=part.clusters.index.astype(str), columns=[metric, right])
    _, owner = np.unique(part.clusters.to_numpy(str), return_inverse=True)
    spent, correct = (table[name].to_numpy(np.float64) for name in (metric, right))
    return np.where(np.isnan(spent), math.inf, spent), np.nan_to_num(correct), owner


def share_within(spent: Floats, right: Floats, budgets: Floats, weights: Floats | None = None) -> Floats:
    """Returns the share of right answers within each budget.

    >>> share_within(np.array([1.0, 3.0, 2.0]), np.array([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 3.0])).round(3).tolist()
    [0.0, 0.333, 0.667]
    """
    weights = np.ones(len(spent)) if weights is None else weights
    order = np.argsort(spent, kind="stable")
    gained = np.concatenate([[0.0], np.cumsum((right * weights)[order])])
    shares: Floats = gained[np.searchsorted(spent[order], budgets, side="right")] / weights.sum()
    return shares


def _budget_frame(
    model: str, spent: Floats, right: Floats, owner: npt.NDArray[np.intp], grid: Floats, settings: Settings
) -> pd.DataFrame:
    along = share_within(spent, right, grid)
    low = high = np.full(len(grid), np.nan)
    patients = int(owner.max()) + 1
    if patients >= FEWEST:
        drawn = [
            share_within(spent, right, grid, np.bincount(chosen, minlength=patients)[owner].astype(float))
            for some in draws(patients, resamples=min(settings.resamples, _MOST), seed=settings.seed)
            for chosen in some
        ]
        low, high = np.quantile(np.array(drawn), [(1 - settings.level) / 2, (1 + settings.level) / 2], axis=0)
    area = _area_below(spent, right, float(grid[-1]))
    columns = [[model] * len(grid), grid, along, low, high, [len(spent)] * len(grid), [area] * len(grid)]
    return pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))


def _area_below(spent: Floats, right: Floats, most: float) -> float:
    """Mean of the budget curve's steps up to a budget."""
    return float((right * np.clip(most - spent, 0.0, None)).sum() / (len(spent) * most))


def _draw_figure(frame: pd.DataFrame, title: str, width: float) -> Figure:
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(frame["model"]))
    texts = [style.wrapped(name) for name in names]
    legend = style.legend_height(texts, width)[1] if len(names) > 1 else 0.0
    figure = style.canvas(width, _HEIGHT + legend)
    axes = figure.subplots()
    handles = []
    for index, name in enumerate(names):
        rows = frame[frame["model"] == name]
        colour, _, line = style.look(index)
        at, mean, low, high = (rows[key].to_numpy(np.float64) for key in ("budget", "accuracy", "low", "high"))
        axes.fill_between(at, low, high, color=colour, alpha=0.15, lw=0, step="post")
        axes.step(at, mean, color=colour, ls=line, where="post")
        handles.append(Line2D([], [], color=colour, ls=line))
    axes.set_xlabel(f"Budget: {title.lower()}")
    axes.set_ylabel("Right within the budget")
    axes.set_ylim(bottom=0)
    if legend:
        style.add_legend(figure, handles, texts, width)
    return figure
