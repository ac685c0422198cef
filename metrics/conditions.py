"""Summaries over conditions of a case: how much is lost when an image is degraded or taken away."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from medimg_eval.metrics.calibration import EVIDENCE
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, available, get, summary
from medimg_eval.metrics.repeats import by_repeat, case_pieces

Floats = npt.NDArray[np.float64]

_compared = partial(
    summary,
    over="conditions",
    parameter="condition, and its metric behind a colon",
    parameter_is_text=True,
)


def severities(keys: npt.NDArray[np.str_], name: str) -> dict[int, str]:
    """Returns the keys of a condition by severity, ascending: those that are the name and a number behind a dash."""
    found = {}
    for key in np.unique(keys).tolist():
        base, dash, number = key.rpartition("-")
        if dash and base == name and number.isdigit():
            found[int(number)] = key
    return dict(sorted(found.items()))


def _values(rows: ScoreTable, keys: list[str]) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Returns the mean over repeats of each case under each condition, (case, key), and a row of each case."""
    cases, first = np.unique(rows.case, return_index=True)
    values = np.full((len(cases), len(keys)), math.nan)
    for place, key in enumerate(keys):
        some = rows.where(rows.condition == key)
        if some.value.size:
            found, at = by_repeat(some)
            known = ~np.isnan(found)
            means = quotient(np.where(known, found, 0).sum(axis=1), known.sum(axis=1))
            values[np.searchsorted(cases, some.case[at]), place] = means
    return values, first


def _keys(rows: ScoreTable, parameter: str) -> list[str]:
    name = parameter.partition(":")[0]
    return [name] if (rows.condition == name).any() else list(severities(rows.condition, name).values())


def _drop_pieces(rows: ScoreTable, parameter: str) -> Floats:
    keys = _keys(rows, parameter)
    values, first = _values(rows, ["", *keys])
    lost = values[:, 0] - values[:, 1:].mean(axis=1) if keys else np.full(len(first), math.nan)
    name = str(rows.metric[0]) if rows.metric.size else ""
    lower_is_better = name.partition("@")[0] in available() and get(name).higher_is_better is False
    return case_pieces(rows, first, -lost if lower_is_better else lost)


@_compared(
    needs=(),
    title="Drop",
    higher_is_better=False,
    best=0.0,
    source="paired difference, as in MedMNIST-C and ROOD-MRI before they divide it",
    pieces=_drop_pieces,
)
def drop(sums: Floats, condition: str) -> Floats:
    """How much worse the same cases come out under a condition than as published: the mean of paired differences.

    Above 0 they come out worse, whichever direction the metric has. `drop@blur-3` is of one severity; `drop@blur` is
    of the mean over the severities of blur. Cases without a value in one of them are left out.
    """
    return quotient(sums[..., 0], sums[..., 1])


def _area_pieces(rows: ScoreTable, parameter: str) -> Floats:
    levels = severities(rows.condition, parameter.partition(":")[0])
    values, first = _values(rows, ["", *levels.values()])
    at = np.array([0, *levels], dtype=np.float64)
    steps = np.diff(at)
    area = (values[:, 1:] + values[:, :-1]) @ steps / (2 * at[-1]) if levels else np.full(len(first), math.nan)
    return case_pieces(rows, first, area)


@_compared(
    needs=(),
    title="Area under severity",
    higher_is_better=True,
    best=1.0,
    source="trapezoid over severities",
    pieces=_area_pieces,
)
def area_under_severity(sums: Floats, condition: str) -> Floats:
    """The mean area under a case's values over severity, by trapezoids from 0 (as published), over the largest.

    Rows of the condition `NAME-SEVERITY`. Cases without a value at one severity are left out.
    """
    return quotient(sums[..., 0], sums[..., 1])


@_compared(
    needs=EVIDENCE,
    title="Calibration drift",
    higher_is_better=None,
    best=0.0,
    source="MedQ-Deg, its calibration shift at a level less that without degradation",
)
def calibration_drift(rows: ScoreTable, condition: str) -> float:
    """The calibration shift under a condition less that of the same cases as published.

    Above 0 a degraded image leaves a model surer of itself than it ought to be. Repeats are pooled. In [-2, 2].
    """
    shift = get("calibration_shift").function
    keys = _keys(rows, condition)
    held = [set(rows.case[rows.condition == key].tolist()) for key in ["", *keys]]
    common = sorted(set.intersection(*held))
    if not keys or not common:
        return math.nan
    some = rows.where(np.isin(rows.case, common))
    changed = [shift(some.where(some.condition == key)) for key in keys]
    return float(np.mean(changed) - shift(some.where(some.condition == "")))
