"""An item analysis printed: each task at a glance, its items that deserve a look, and hints of contamination."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from medimg_eval.results.items.irt import FEWEST_MODELS
from medimg_eval.results.items.response_matrix import (
    FEWEST_CORRELATED,
    FEWEST_FOR_LOWEST,
    LOWEST,
    strong_models,
    strong_text,
)
from medimg_eval.results.table import Layout, Line, Sheet, Span, comparability, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from medimg_eval.results.items.contamination import Hints
    from medimg_eval.results.items.irt import TwoParameters
    from medimg_eval.results.items.response_matrix import Grid

_DASH = "\N{EN DASH}"
Record = dict[str, Any]
_Cell: TypeAlias = "Callable[[Mapping[Hashable, Any]], list[Span]]"


class Analysed(NamedTuple):
    """Facts of one task beside its items.

    Attributes:
        grid: Its models and items.
        fitted: The two-parameter logistic model; None where too few models, or measurements.
        alpha: Cronbach's alpha; NaN where it has none.
        tested: Items whose correlation has an interval.
    """

    grid: Grid
    fitted: TwoParameters | None
    alpha: float
    tested: int


def make_sheets(
    tasks: Sequence[Analysed],
    items: pd.DataFrame,
    hints: Hints,
    *,
    shown: int,
    level: float,
    notes: Sequence[str],
) -> list[Sheet]:
    """Returns the tables of an analysis.

    Args:
        tasks: In their order.
        items: A row for each task and item.
        hints: Of contamination.
        shown: At most so many items are printed for each task.
        level: Of the intervals.
        notes: What was left out.
    """
    sheets = [_overview_sheet(tasks, items, level, notes)]
    for task in tasks:
        rows = items.loc[items["task"] == task.grid.task]
        flagged = rows.loc[rows["flags"] != ""].sort_values(["weight", "item"], ascending=[False, True])
        if len(flagged):
            sheets.append(_flagged_sheet(task, flagged, shown))
    if len(hints.blind):
        sheets.append(_blind_sheet(hints.blind, level))
    if len(hints.order):
        sheets.append(_order_sheet(hints.order, level))
    return sheets


def _overview_sheet(tasks: Sequence[Analysed], items: pd.DataFrame, level: float, notes: Sequence[str]) -> Sheet:
    titles = ["Models", "Items", "Mean", "All fail", "All pass", "Median r", "Negative r", "Alpha", "To look at"]
    records, lines = [], []
    for task in tasks:
        record = _task_row(task, items.loc[items["task"] == task.grid.task])
        records.append(record)
        cells = [_count_spans(record["models"]), _count_spans(record["items"]), _number_spans(record["mean"], 3)]
        cells += [_count_spans(record[name]) for name in ("all_fail", "all_pass")]
        cells += [_number_spans(record["median_discrimination"], 2), _count_spans(record["negative"])]
        cells += [_number_spans(record["alpha"], 2), _count_spans(record["flagged"])]
        lines.append(Line([task.grid.title], cells))
    notes_ = [*(note for task in tasks for note in _item_notes(task, level)), *notes]
    layout = Layout.of_block("Items", titles, lines, notes_, ["Task"], "What models tell of the items")
    return Sheet(layout, pd.DataFrame.from_records(records))


def _task_row(one: Analysed, rows: pd.DataFrame) -> Record:
    record: Record = {"task": one.grid.task, "models": len(one.grid.models), "items": len(rows)}
    record["mean"] = float(rows["difficulty"].mean())
    graded = one.grid.graded
    record["all_fail"] = int((rows["failed_by"] == rows["models"]).sum()) if graded else math.nan
    record["all_pass"] = int((rows["passed_by"] == rows["models"]).sum()) if graded else math.nan
    discriminations = rows["discrimination"].dropna() if graded else pd.Series(dtype=float)
    record["median_discrimination"] = float(discriminations.median()) if len(discriminations) else math.nan
    record["negative"] = int(rows["flags"].str.contains("negative").sum()) if len(discriminations) else math.nan
    return record | {"alpha": one.alpha, "flagged": int((rows["flags"] != "").sum())}


def _item_notes(one: Analysed, level: float) -> Iterator[str]:
    grid = one.grid
    title = grid.title
    yield from comparability(title, grid.runs)
    missing = int(np.isnan(grid.scores).sum())
    if missing:
        of = grid.scores.size
        yield f"{title}: {missing:,} of {of:,} values are missing; items rest on the models that have them."
    if not grid.graded:
        yield (
            f"{title}: values are measurements, so items have a mean and no discrimination. To look at: items among "
            f"the worst {100 * LOWEST:.0f} % of each model (of models with at least {FEWEST_FOR_LOWEST} items)."
        )
        return
    yield (
        "Mean: share right, which is the difficulty of an item. r: correlation over models of an item with the mean of "
        "their other items. Alpha: Cronbach's. All fail and all pass tell no model from another."
    )
    if len(grid.models) < FEWEST_CORRELATED:
        yield f"{title}: r and alpha need at least {FEWEST_CORRELATED} models, and here are {len(grid.models)}."
    elif one.tested:
        by_chance = (1 - level) / 2 * one.tested
        yield (
            f"{title}: r counts as negative where its {100 * level:g} % interval (Fisher's z) lies below 0; of "
            f"{one.tested:,} items about {by_chance:.1f} would by chance alone."
        )
    if strong_models(grid):
        yield f"{title}: strongest models: {strong_text(grid)}. A reason to look is no proof that a label is wrong."
    yield from _fitted_notes(one)


def _fitted_notes(one: Analysed) -> Iterator[str]:
    title, models, fitted = one.grid.title, len(one.grid.models), one.fitted
    if fitted is None:
        yield (
            f"{title}: {models} models are too few for item response theory (at least {FEWEST_MODELS}); classical "
            "statistics alone."
        )
        return
    if not fitted.steps:
        yield f"{title}: too few items tell models apart for item response theory."
        return
    if not fitted.settled:
        yield f"{title}: slopes and places had not come to rest after {fitted.steps} steps; do not use them."
    yield (
        f"{title}: slope a and place b of the two-parameter logistic model, abilities with mean 0 and deviation 1, by "
        f"marginal maximum likelihood with priors. Of {models} models slopes "
        f"{'hardly differ from their prior' if models < 50 else 'are rough'}; models are no random sample of readers."
    )
    if any(run.scores["attributes"].astype(str).str.contains('"set": "[^"]').any() for run in one.grid.runs.values()):
        yield f"{title}: items of one set are not independent, which this model takes them for."


def _flagged_sheet(one: Analysed, rows: pd.DataFrame, shown: int) -> Sheet:
    graded = one.grid.graded
    names = {"difficulty": ("Share right" if graded else "Mean", 2)}
    if graded and rows["discrimination"].notna().any():
        names["discrimination"] = ("r", 2)
    if graded and rows["slope"].notna().any():
        names |= {"slope": ("a", 2), "place": ("b", 2)}
    titles = [*(title for title, _ in names.values()), "Why"]
    lines = [
        Line(
            [str(row["item"])],
            [
                *(_number_spans(row[name], digits) for name, (_, digits) in names.items()),
                [Span(one_line(row["reasons"]))],
            ],
        )
        for row in rows.head(shown).to_dict("records")
    ]
    notes = []
    if len(rows) > shown:
        notes.append(f"{one.grid.title}: {shown} of {len(rows):,} items; the CSV holds all.")
    caption = f"Items of {one.grid.title} to look at"
    return Sheet(Layout.of_block(one.grid.title, titles, lines, notes, ["Item"], caption), rows)


def _blind_sheet(rows: pd.DataFrame, level: float) -> Sheet:
    columns: Mapping[str, _Cell] = {
        "n": lambda row: _count_spans(row["n"]),
        "With images": lambda row: _number_spans(row["seeing"], 3),
        "Without": lambda row: _estimate_spans(row, "blind"),
        "Gain": lambda row: _estimate_spans(row, "gain"),
        "Chance": lambda row: _number_spans(row["chance"], 3),
    }
    how = f"on the items that both have [{100 * level:g} % interval]"
    notes = [
        f"The same model with and without images, {how}. Gain: with images better than without.",
        "Hints, never proof: text alone may give answers away (options, wording, priors), with no leak at all.",
    ]
    return _hinted_sheet(rows, columns, notes, "Asked without images")


def _order_sheet(rows: pd.DataFrame, level: float) -> Sheet:
    columns: Mapping[str, _Cell] = {
        "Questions": lambda row: _count_spans(row["sets"]),
        "Published order": lambda row: _number_spans(row["original"], 3),
        "Other orders": lambda row: _number_spans(row["others"], 3),
        "Gain": lambda row: _estimate_spans(row, "gain"),
        "Changed": lambda row: _estimate_spans(row, "changed"),
    }
    notes = [
        f"Questions asked once for each rotation of their options [{100 * level:g} % interval].",
        "Gain: the published order better than the mean of the others.",
        "Changed: share of the questions answered in full whose answer depends on the order.",
        "Hints, never proof: a model that prefers some letter depends on the order without having met the question.",
    ]
    return _hinted_sheet(rows, columns, notes, "Options in other orders")


def _hinted_sheet(rows: pd.DataFrame, columns: Mapping[str, _Cell], notes: list[str], caption: str) -> Sheet:
    """Returns a model table with a hint ending each row."""
    lines = []
    for row in rows.to_dict("records"):
        hint = Span(row["hint"] or _DASH, "plain" if row["hint"] else "quiet")
        lines.append(Line([row["task"], row["model"]], [*(of(row) for of in columns.values()), [hint]]))
    return Sheet(Layout.of_block(caption, (*columns, "Hint"), lines, notes, ["Task", "Model"]), rows)


def _count_spans(value: float) -> list[Span]:
    return [Span(_DASH, "quiet")] if math.isnan(value) else [Span(f"{int(value):,}")]


def _number_spans(value: float, digits: int) -> list[Span]:
    return [Span(_DASH, "quiet")] if math.isnan(value) else [Span(f"{round(value, digits) + 0.0:.{digits}f}")]


def _estimate_spans(row: Mapping[Hashable, Any], name: str) -> list[Span]:
    spans = _number_spans(row[name], 3)
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return spans if math.isnan(low) else [*spans, Span(f"[{low:.3f}, {high:.3f}]", "interval")]
