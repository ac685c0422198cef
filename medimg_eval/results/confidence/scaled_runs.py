"""Runs whose confidences are scaled by what was fitted on validation cases: temperature, and Platt's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.metrics import available
from medimg_eval.metrics.calibration import EVIDENCE, fit_platt, fit_temperature, temper_probabilities

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from medimg_eval.results.runs import RunScores

SUMMARIES = (
    *("ece_mass@15", "ece_debiased@15", "ace_adaptive@15", "brier_score", "log_loss"),
    *("aurc", "eaurc", "augrc", "risk_at_coverage@0.8"),
)
"""Of classes and answers."""
MASKS = ("dice_aurc", "dice_eaurc", "dice_augrc", "expected_dice_error", "expected_dice_correlation")
"""Of masks whose Dice is estimated."""
TRUE = ("present", "right")
_KNOWN = (*TRUE, "absent", "wrong")


class Statements(NamedTuple):
    """Confidences of a run by case and label, optionally tabular.

    Exclusive ones are a table, (case, class).

    Attributes:
        rows: their numbers in the run's scores.
        value: the confidence of each.
        right: whether each is so.
        label: of each.
        case: number of the case of each.
        exclusive: whether exactly one of several classes is true in every case.
    """

    rows: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]
    right: npt.NDArray[np.bool_]
    label: npt.NDArray[np.str_]
    case: npt.NDArray[np.int64]
    exclusive: bool

    def table(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Returns probabilities, (case, class), and the place of each case's true class."""
        classes, column = np.unique(self.label, return_inverse=True)
        shape = int(self.case.max(initial=-1)) + 1, len(classes)
        values, truth = np.zeros(shape), np.zeros(shape[0], np.int64)
        values[self.case, column] = self.value
        truth[self.case[self.right]] = column[self.right]
        return values, truth

    def from_table(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns the values of a table by row."""
        return np.asarray(values[self.case, np.unique(self.label, return_inverse=True)[1]])


def statements_of(run: RunScores, metrics: Sequence[str] = EVIDENCE) -> Statements:
    """Returns a run's confidences with truth, by its first metric."""
    scores = run.scores.reset_index(drop=True)
    fine = scores["status"].isin(_KNOWN) & scores["value"].notna()
    held = [scores.loc[fine & (scores["metric"] == name)] for name in metrics]
    rows = next((part for part in held if len(part)), held[0])
    keys = rows["case"].astype(str) + "\0" + (rows["repeat"].fillna(0).astype(str) if "repeat" in rows else "")
    right = rows["status"].isin(TRUE).to_numpy()
    case = np.unique(keys.to_numpy(dtype=str), return_inverse=True)[1].astype(np.int64)
    number = np.bincount(case) if len(case) else np.zeros(0, np.int64)
    single = bool(len(number)) and bool((np.bincount(case, right) == 1).all()) and bool((number > 1).all())
    return Statements(
        rows.index.to_numpy(dtype=np.int64),
        rows["value"].to_numpy(dtype=np.float64),
        right,
        rows["label"].to_numpy(dtype=str),
        case,
        single,
    )


def confidence_metrics(run: RunScores) -> list[str]:
    """Returns confidence metrics of a run: summaries and voxel metrics."""
    held = set(run.scores["metric"].unique())
    columns = list(SUMMARIES) if held & set(EVIDENCE) else []
    voxels = available("probability")
    columns += [str(name) for name in run.scores["metric"].unique() if str(name).partition("@")[0] in voxels]
    return columns + (list(MASKS) if {"dice", "expected_dice"} <= held else [])


def scale_runs(run: RunScores, validation: RunScores) -> Iterator[RunScores]:
    """Yields a run with temperature-scaled and Platt-scaled confidences.

    Both are fitted on the validation run. Classes that exclude each other share a temperature of their softmax, and are
    scaled to add up to 1 after Platt's; others, and answers, have one of a sigmoid. Nothing is yielded of runs without
    confidences.
    """
    fitted, applied = statements_of(validation), statements_of(run)
    if not len(fitted.value) or not len(applied.value):
        return
    if fitted.exclusive and applied.exclusive:
        temperature = fit_temperature(*fitted.table())
        tempered = applied.from_table(temper_probabilities(applied.table()[0], temperature))
    else:
        temperature = fit_temperature(fitted.value, fitted.right)
        tempered = temper_probabilities(applied.value, temperature)
    yield _scaled_run(run, applied, tempered, f"temperature {temperature:.2f}")
    yield _scaled_run(run, applied, _apply_platt(fitted, applied), "Platt")


def _apply_platt(fitted: Statements, applied: Statements) -> npt.NDArray[np.float64]:
    """Returns Platt-scaled values; classes without validation cases stay."""
    values = applied.value.copy()
    answers = len(set(applied.label)) == 1 or not set(applied.label) <= set(fitted.label)
    names = [""] if answers else sorted(set(applied.label))
    for name in names:
        here, there = (np.ones(len(side.label), bool) if not name else side.label == name for side in (applied, fitted))
        if there.any():
            values[here] = fit_platt(fitted.value[there], fitted.right[there]).apply(applied.value[here])
    if applied.exclusive:
        totals = np.bincount(applied.case, values)
        values = values / totals[applied.case]
    return values


def _scaled_run(run: RunScores, applied: Statements, values: npt.NDArray[np.float64], how: str) -> RunScores:
    scores = run.scores.reset_index(drop=True).copy()
    changed = scores["value"].to_numpy(dtype=np.float64).copy()
    changed[applied.rows] = values
    scores["value"] = pd.Series(changed, index=scores.index)
    return replace(run, model=f"{run.model}, {how}", run=f"{run.run}-{how.partition(' ')[0]}", scores=scores)
