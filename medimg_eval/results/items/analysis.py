"""Item analysis: how hard each item is, whether it tells good models from others, and which deserve a second look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError
from medimg_eval.results.comparison import write_sheets
from medimg_eval.results.items.contamination import Hints, find_hints
from medimg_eval.results.items.irt import FEWEST_MODELS, TwoParameters, fit_two_parameters
from medimg_eval.results.items.response_matrix import (
    Grid,
    cronbach_alpha,
    flag_items,
    item_correlations,
    make_grids,
    negative_bound,
)
from medimg_eval.results.items.sheets import Analysed, make_sheets
from medimg_eval.results.runs import frame_to_csv
from medimg_eval.results.statistics import Bootstrap
from medimg_eval.results.table import make_column, write_texts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from medimg_eval.results.runs import RunScores
    from medimg_eval.results.table import Sheet

Record = dict[str, Any]


@dataclass(frozen=True)
class ItemAnalysis:
    """The items of some tasks, analysed.

    Attributes:
        title: What it is.
        sheets: Its tables.
        items: A row for each task and item.
        models: A row for each task and model.
        blind: A row for each model that was also asked without images.
        order: A row for each model that was asked with options in several orders.
    """

    title: str
    sheets: tuple[Sheet, ...]
    items: pd.DataFrame
    models: pd.DataFrame
    blind: pd.DataFrame
    order: pd.DataFrame


def analyse_items(
    runs: Sequence[RunScores],
    metric: str = "accuracy",
    *,
    shown: int = 20,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> ItemAnalysis:
    """Returns item analysis of `runs`, task by task.

    Values that are right, wrong or credits between have difficulty (the share right), discrimination, from
    `items_irt.FEWEST_MODELS` models on the two-parameter logistic model, and reasons to doubt an item; measurements
    such as Dice have their mean, and the items that every model does worst on.

    Args:
        runs: As `load_runs` or `load_scores` returns them; unfinished ones are left out, baselines are no respondents.
        metric: Of single cases.
        shown: At most so many items are printed for each task; `items` holds all.
        resamples: Of the bootstrap intervals of hints.
        level: Of all intervals.
        seed: Of the bootstrap.

    Raises:
        UsageError: A setting is out of range, or the metric has no values of cases.
        UserError: No task has two models and two items whose values differ.
    """
    if not isinstance(shown, int) or isinstance(shown, bool) or shown < 1:
        raise UsageError(f"expected shown to be a whole number of at least 1, got {shown!r}")
    if not isinstance(resamples, int) or isinstance(resamples, bool) or resamples < 1:
        raise UsageError(f"expected resamples to be a whole number of at least 1, got {resamples!r}")
    if not isinstance(level, int | float) or isinstance(level, bool) or not 0 < level < 1:
        raise UsageError(f"expected level to be between 0 and 1, got {level!r}")
    grids, left_out = make_grids(runs, metric)
    hints = find_hints(grids, metric, Bootstrap(resamples, float(level), seed))
    items, models, tasks = [], [], []
    for grid in grids:
        analysed, rows = _analyse_grid(grid, metric, float(level), hints)
        tasks.append(analysed)
        items.append(rows)
        models.append(_model_frame(grid, analysed.fitted))
    unfinished = sorted({f"{run.name} on {run.task_title}" for run in runs if not run.finished})
    notes = [*left_out, *(f"{name}: its run is not finished, and is left out." for name in unfinished)]
    analysis = ItemAnalysis(
        f"Items by {make_column(grids[0].task, '', metric, next(iter(grids[0].runs.values()))).title}",
        (),
        pd.concat(items, ignore_index=True),
        pd.concat(models, ignore_index=True),
        hints.blind,
        hints.order,
    )
    sheets = make_sheets(tasks, analysis.items, hints, shown=shown, level=float(level), notes=notes)
    return ItemAnalysis(analysis.title, tuple(sheets), analysis.items, analysis.models, analysis.blind, analysis.order)


def write_items(analysis: ItemAnalysis, folder: Path, stem: str = "items") -> list[Path]:
    """Writes an analysis as .md, .tex, .html and .csv.

    Into `folder`, made if needed.

    The CSV holds one row for each item; `STEM_models.csv`, `STEM_blind.csv` and `STEM_order.csv` the models and the
    hints, where there are any.

    Returns:
        The files.
    """
    files = write_sheets(analysis.title, analysis.sheets, analysis.items, (), folder / stem)
    frames = {"models": analysis.models, "blind": analysis.blind, "order": analysis.order}
    texts = {f"_{name}.csv": frame_to_csv(frame) for name, frame in frames.items() if len(frame)}
    return files + write_texts(folder / stem, texts)


def _analyse_grid(grid: Grid, metric: str, level: float, hints: Hints) -> tuple[Analysed, pd.DataFrame]:
    values = grid.credit
    rest_correlation, total_correlation = (
        item_correlations(values) if grid.graded else np.full((2, values.shape[1]), np.nan)
    )
    flags = flag_items(grid, rest_correlation, level)
    fitted = fit_two_parameters(values) if grid.graded and len(values) >= FEWEST_MODELS else None
    is_known = ~np.isnan(values)
    counts = is_known.sum(axis=0)
    tested = ~np.isnan(negative_bound(rest_correlation, counts.astype(np.float64), level))
    rows = {
        "task": grid.task,
        "item": grid.items,
        "metric": metric,
        "models": counts,
        "difficulty": np.nanmean(values if grid.graded else grid.scores, axis=0),
    }
    if grid.graded:
        rows |= {
            "passed_by": (np.where(is_known, values, 0.0) == 1).sum(axis=0),
            "failed_by": (np.where(is_known, values, 1.0) == 0).sum(axis=0),
            "discrimination": rest_correlation,
            "point_biserial": total_correlation,
            "slope": fitted.slope if fitted else np.nan,
            "place": fitted.place if fitted else np.nan,
            "blind_right": [hints.solved.get((grid.task, item), np.nan) for item in grid.items.tolist()],
        }
    frame = pd.DataFrame(rows).assign(
        flags=["; ".join(flag.kind for flag in item_flags) for item_flags in flags],
        reasons=["; ".join(flag.why for flag in item_flags) for item_flags in flags],
        weight=[sum(flag.weight for flag in item_flags) for item_flags in flags],
    )
    alpha = cronbach_alpha(values) if grid.graded else float("nan")
    return Analysed(grid, fitted, alpha, int(tested.sum())), frame


def _model_frame(grid: Grid, fitted: TwoParameters | None) -> pd.DataFrame:
    means = np.nanmean(grid.credit if grid.graded else grid.scores, axis=1)
    rows: Record = {
        "task": grid.task,
        "model": grid.models,
        "items": (~np.isnan(grid.scores)).sum(axis=1),
        "mean": means,
    }
    if fitted is not None:
        rows |= {"ability": fitted.ability, "uncertainty": fitted.uncertainty}
    return pd.DataFrame(rows)
