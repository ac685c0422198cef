"""Hints of contamination: what is answered without images, and what depends on the order of options. Never proof."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.results.runs import attributes
from medimg_eval.results.statistics import (
    Bootstrap,
    Interval,
    Sample,
    case_values,
    is_share,
    table_intervals,
    units,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from medimg_eval.results.items.response_matrix import Grid
    from medimg_eval.results.runs import RunScores

SET, ROTATION = "set", "rotation"
"""Attributes of a question that is asked once for each rotation of its options; rotation 0 is the published order."""
ORIGINAL = "0"
NO_ANSWER = -1.0

Record = dict[str, Any]


class Hints(NamedTuple):
    """Hints at contamination.

    Attributes:
        blind: A row for each pair of a model and the same model without images.
        order: A row for each model that was asked all rotations of the options.
        solved: By task and item: the share of blind runs that are right.
    """

    blind: pd.DataFrame
    order: pd.DataFrame
    solved: dict[tuple[str, str], float]


def find_hints(grids: list[Grid], metric: str, how: Bootstrap) -> Hints:
    """Returns the hints in all tasks.

    Args:
        grids: The tasks.
        metric: By which answers are judged.
        how: How intervals are made; each resamples what its run resamples.
    """
    blind = [record for grid in grids for record in _blind_rows(grid, metric, how)]
    order = [
        record
        for grid in grids
        for name, run in grid.runs.items()
        if (record := _order_row(grid, name, run, metric, how)) is not None
    ]
    solved: dict[tuple[str, str], float] = {}
    for grid in grids:
        if grid.blind and grid.graded:
            blind_values = pd.DataFrame({name: _right_values(grid, run, metric) for name, run in grid.blind.items()})
            means = blind_values.mean(axis=1)
            solved |= {(grid.task, str(case)): float(value) for case, value in means.items()}
    return Hints(pd.DataFrame.from_records(blind), pd.DataFrame.from_records(order), solved)


def _right_values(grid: Grid, run: RunScores, metric: str) -> pd.Series[float]:
    """Returns values by case; correctness as 1 for right."""
    values = case_values(run.scores.loc[run.scores["metric"] == metric])["value"]
    return 1 - values if grid.graded and grid.better < 0 else values


def _mean_interval(
    values: npt.NDArray[np.float64], unit: npt.NDArray[np.generic], how: Bootstrap, *, share: bool
) -> Interval:
    return table_intervals([Sample(values, unit, share=share)], how)[0]


def _blind_rows(grid: Grid, metric: str, how: Bootstrap) -> Iterator[Record]:
    for run in grid.blind.values():
        seeing: dict[str, RunScores | None] = {
            n: candidate for n, candidate in grid.runs.items() if candidate.model == run.model
        }
        alone = _right_values(grid, run, metric).dropna()
        chance = grid.chance if grid.better > 0 or not grid.graded else 1 - grid.chance
        for name, seeing_run in (seeing or {run.model: None}).items():
            with_images = alone if seeing_run is None else _right_values(grid, seeing_run, metric).dropna()
            both = alone.index.intersection(with_images.index)
            if not len(both):
                continue
            cases = case_values(run.scores.loc[run.scores["metric"] == metric]).loc[both]
            unit = units(run, cases)
            without = _mean_interval(np.asarray(alone[both], dtype=np.float64), unit, how, share=is_share(metric, run))
            record: Record = {"task": grid.title, "model": name, "n": len(both), "chance": chance}
            record |= _interval_fields("blind", without) | dict.fromkeys(
                ("seeing", "gain", "gain_low", "gain_high"), math.nan
            )
            if seeing_run is not None:
                record["seeing"] = float(with_images[both].mean())
                turned = (with_images[both] - alone[both]) * (1 if grid.graded else grid.better)
                gap = np.asarray(turned, dtype=np.float64)
                record |= _interval_fields("gain", _mean_interval(gap, unit, how, share=False))
            yield record | {"hint": _blind_hint(record, graded=grid.graded)}


def _interval_fields(name: str, found: Interval) -> Record:
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def _blind_hint(record: Record, *, graded: bool) -> str:
    """Returns what a blind run hints at; "" where nothing."""
    parts = []
    if graded and record["blind_low"] > record["chance"]:
        parts.append("above chance without images")
    if min(record["gain"], record["gain_low"]) <= 0:  # all equal, they have no lower bound
        parts.append("images are not shown to help")
    return " and ".join(parts)


def _order_row(grid: Grid, name: str, run: RunScores, metric: str, how: Bootstrap) -> Record | None:
    """Returns a model's sensitivity to option order; None without data."""
    sets = _rotated_answers(grid, run, metric)
    if sets.empty:
        return None
    owner = sets["owner"].to_numpy(dtype=str)
    first, other_orders = (sets[name].to_numpy(dtype=np.float64) for name in ("original", "others"))
    turn = 1 if grid.graded else grid.better
    record: Record = {"task": grid.title, "model": name, "sets": len(sets)}
    record |= {"original": float(first.mean()), "others": float(other_orders.mean())}
    record |= _interval_fields("gain", _mean_interval(turn * (first - other_orders), owner, how, share=False))
    full, changed = sets["full"].to_numpy(dtype=bool), sets["changed"].to_numpy(dtype=np.float64)
    record["answered"] = int(full.sum())
    record |= _interval_fields("changed", _mean_interval(changed[full], owner[full], how, share=True))
    return record | {"hint": "better in the published order" if record["gain_low"] > 0 else ""}


def _rotated_answers(grid: Grid, run: RunScores, metric: str) -> pd.DataFrame:
    """Returns rows of questions asked in several option orders."""
    rows = run.scores.loc[run.scores["metric"] == metric]
    codes, attribute_sets = attributes(rows)
    if SET not in attribute_sets or ROTATION not in attribute_sets:
        return pd.DataFrame()
    about = pd.DataFrame(
        {"case": rows["case"].to_numpy(), SET: attribute_sets[SET][codes], ROTATION: attribute_sets[ROTATION][codes]}
    )
    about = about.drop_duplicates("case").set_index("case")
    about["owner"] = case_values(rows)["patient"].reindex(about.index) if run.resampled == "patients" else about[SET]
    about["value"] = _right_values(grid, run, metric).reindex(about.index)
    given_classes = (
        run.scores.loc[run.scores["metric"] == "predicted_class"].drop_duplicates("case").set_index("case")["value"]
    )
    about["given"] = given_classes.reindex(about.index)
    about["answered"] = about["given"].notna() & (about["given"] != NO_ANSWER)
    about["published"] = about[ROTATION] == ORIGINAL
    about = about.loc[(about[SET] != "") & (about[ROTATION] != "")]
    sets = about.groupby(SET, sort=True).agg(
        owner=("owner", "first"),
        size=("value", "size"),
        known=("value", "count"),
        published=("published", "sum"),
        full=("answered", "all"),
        answers=("given", "nunique"),
    )
    sets["original"] = about.loc[about["published"]].groupby(SET)["value"].mean()
    sets["others"] = about.loc[~about["published"]].groupby(SET)["value"].mean()
    sets["changed"] = sets["answers"] > 1
    return sets.loc[(sets["size"] > 1) & (sets["known"] == sets["size"]) & (sets["published"] == 1)]
