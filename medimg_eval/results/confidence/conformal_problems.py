"""Problems of conformal prediction in a run: labels, numbers or masks of cases, ready to be split."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.metrics.conformal import (
    Regularisation,
    SetMethod,
    choose_regularisation,
    choose_threshold,
    conformal_quantile,
    group_quantiles,
    label_sets,
    true_label_scores,
)
from medimg_eval.results.confidence.scaled_runs import statements_of
from medimg_eval.results.runs import attributes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from medimg_eval.results.runs import RunScores

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

OPTIONS = ("probability", "option_probability")
NUMBERS = {"measured": "measured_reference", "volume_predicted": "volume_reference"}
"""Evidence of a predicted number -> that of the true one."""
MISSED = "missed_share"
_TUNING = 0.2
"""Of calibration cases, those that RAPS is tuned on."""


class Outcome(NamedTuple):
    """Outcome of evaluated units, (unit,).

    Attributes:
        held: 1 where the truth is held, else 0; of risk control the loss.
        size: labels in a set, the width of an interval, or the threshold.
    """

    held: Floats
    size: Floats


class Method(NamedTuple):
    """How labels are put into sets; numbers and masks have one method each."""

    name: SetMethod = "lac"
    alpha: float = 0.1
    per_group: bool = False


class Problem(Protocol):
    """Units that are calibrated on and evaluated: cases, or one label of each."""

    @property
    def title(self) -> str:
        """The label, or all."""

    @property
    def kind(self) -> str:
        """Kind of what is made: sets, intervals or thresholds."""

    @property
    def unit(self) -> str:
        """Unit of the sizes of sets or intervals."""

    @property
    def rows(self) -> pd.DataFrame:
        """A row per unit: `case`, `cluster` and `group`."""

    @property
    def most(self) -> Floats:
        """The size that says nothing, (unit,): all labels; infinite of intervals."""

    def judge(self, calibration: Ints, evaluation: Ints, how: Method, rng: np.random.Generator) -> Outcome:
        """Calibrates on some units and judges others."""


@dataclass(frozen=True, eq=False)
class LabelProblem:
    """Conformal label sets: probabilities (unit, label), truth, offered labels."""

    title: str
    rows: pd.DataFrame
    probabilities: Floats
    truth: Ints
    offered: npt.NDArray[np.bool_]
    kind: str = "sets"
    unit: str = "labels"

    @property
    def most(self) -> Floats:
        """Number of labels offered."""
        return np.asarray(self.offered.sum(axis=1), dtype=np.float64)

    def judge(self, calibration: Ints, evaluation: Ints, how: Method, rng: np.random.Generator) -> Outcome:
        """Calibrates on some units, judges others; RAPS tunes on a fifth."""
        tuned = Regularisation()
        if how.name == "raps":
            order = rng.permutation(calibration)
            cut = math.ceil(_TUNING * len(order))
            tuned = choose_regularisation(self.probabilities[order[:cut]], self.truth[order[:cut]], how.alpha)
            calibration = order[cut:]
        scores = true_label_scores(
            self.probabilities[calibration], self.truth[calibration], how.name, tuned, rng.random(len(calibration))
        )
        limit = quantiles_of(scores, self.rows, calibration, evaluation, how)
        sets = label_sets(self.probabilities[evaluation], limit, how.name, tuned) & self.offered[evaluation]
        held = sets[np.arange(len(evaluation)), self.truth[evaluation]]
        return Outcome(held.astype(np.float64), sets.sum(axis=1).astype(np.float64))


@dataclass(frozen=True, eq=False)
class NumberProblem:
    """Intervals of one measurement or volume: predicted and true values, (unit,)."""

    title: str
    rows: pd.DataFrame
    predicted: Floats
    true: Floats
    unit: str = ""
    kind: str = "intervals"

    @property
    def most(self) -> Floats:
        """No width says nothing but an infinite one."""
        return np.full(len(self.true), math.inf)

    def judge(self, calibration: Ints, evaluation: Ints, how: Method, rng: np.random.Generator) -> Outcome:
        """Calibrates absolute errors and judges others; missing predictions are uncovered."""
        del rng
        errors = np.abs(self.predicted - self.true)
        limit = quantiles_of(errors[calibration], self.rows, calibration, evaluation, how)
        held = errors[evaluation] <= limit + 1e-12
        return Outcome(held.astype(np.float64), np.broadcast_to(2 * limit, held.shape).astype(np.float64))


@dataclass(frozen=True, eq=False)
class MaskProblem:
    """Thresholds of probability of one label: the share that is missed, (unit, threshold)."""

    title: str
    rows: pd.DataFrame
    thresholds: Floats
    missed: Floats
    kind: str = "thresholds"
    unit: str = "threshold"

    @property
    def most(self) -> Floats:
        """Unused: a threshold is no size."""
        return np.full(len(self.missed), math.inf)

    def judge(self, calibration: Ints, evaluation: Ints, how: Method, rng: np.random.Generator) -> Outcome:
        """Chooses a threshold and judges misses elsewhere; NaN without one."""
        del rng
        chosen = choose_threshold(self.thresholds, self.missed[calibration], how.alpha)
        loss = np.full(len(evaluation), math.nan)
        if not math.isnan(chosen):
            loss = self.missed[evaluation, int(np.flatnonzero(self.thresholds == chosen)[0])]
        return Outcome(loss, np.full(len(evaluation), chosen))


def quantiles_of(scores: Floats, rows: pd.DataFrame, calibration: Ints, evaluation: Ints, how: Method) -> Any:
    """Returns each unit's quantile, overall or by group."""
    if not how.per_group:
        return conformal_quantile(scores, how.alpha)
    groups = rows["group"].to_numpy(dtype=object)
    limits = group_quantiles(scores, groups[calibration].tolist(), how.alpha)
    return np.array([limits.get(name, math.inf) for name in groups[evaluation]], dtype=np.float64)


def keep_first_repeats(scores: pd.DataFrame) -> pd.DataFrame:
    """Returns rows of each case's first repeat, numbered 0."""
    if "repeat" not in scores.columns:
        return scores.reset_index(drop=True)
    repeat = scores["repeat"].fillna(0)  # rows of a run without repeats, beside one with them, name none
    first = repeat.groupby(scores["case"].astype(str)).transform("min")
    return scores.loc[repeat == first].drop(columns="repeat").reset_index(drop=True)


def problems_of(run: RunScores, by: str) -> Iterator[Problem]:
    """Yields the conformal problems of a run, grouped by `by`."""
    scores = keep_first_repeats(run.scores)
    first = scores.assign(group=_case_groups(scores, by))
    first["cluster"] = first["patient" if run.resampled == "patients" else "case"].astype(str)
    first["case"] = first["case"].astype(str)
    yield from _label_problems(run, first)
    for predicted, true in NUMBERS.items():
        yield from _number_problems(first, predicted, true)
    yield from _mask_problems(first)


def _case_groups(scores: pd.DataFrame, by: str) -> npt.NDArray[np.str_]:
    if not by:
        return np.full(len(scores), "")
    codes, values = attributes(scores)
    return values[by][codes] if by in values else np.full(len(scores), "")


def _label_problems(run: RunScores, scores: pd.DataFrame) -> Iterator[Problem]:
    stated = statements_of(replace(run, scores=scores), OPTIONS)
    if not len(stated.value):
        return
    rows = scores.loc[stated.rows, ["case", "cluster", "group"]].reset_index(drop=True)
    if stated.exclusive:
        probabilities, truth = stated.table()
        offered = np.zeros(probabilities.shape, bool)
        offered[stated.case, np.unique(stated.label, return_inverse=True)[1]] = True
        first = np.unique(stated.case, return_index=True)[1]
        yield LabelProblem("all labels", rows.iloc[first].reset_index(drop=True), probabilities, truth, offered)
        return
    for label in dict.fromkeys(stated.label.tolist()):
        chosen = np.flatnonzero(stated.label == label)
        both = np.stack([1 - stated.value[chosen], stated.value[chosen]], axis=1)
        part = rows.iloc[chosen].reset_index(drop=True)
        yield LabelProblem(label, part, both, stated.right[chosen].astype(np.int64), np.ones(both.shape, bool))


def _number_problems(scores: pd.DataFrame, predicted: str, true: str) -> Iterator[Problem]:
    keys = ["case", "label"]
    due = scores.loc[(scores["metric"] == true) & scores["value"].notna()]
    predicted_values = scores.loc[scores["metric"] == predicted].set_index(keys)["value"]
    for label, rows in due.groupby("label", sort=False, observed=True):
        values = predicted_values.reindex(pd.MultiIndex.from_frame(rows[keys])).to_numpy(dtype=np.float64)
        part = rows[["case", "cluster", "group"]].reset_index(drop=True)
        unit = "ml" if predicted == "volume_predicted" else ""
        yield NumberProblem(str(label), part, values, rows["value"].to_numpy(dtype=np.float64), unit)


def _mask_problems(scores: pd.DataFrame) -> Iterator[Problem]:
    rows = scores.loc[scores["metric"].str.startswith(f"{MISSED}@") & scores["value"].notna()]
    for label, part in rows.groupby("label", sort=False, observed=True):
        steps = part["metric"].str.partition("@")[2].astype(float)
        table = part.assign(step=steps).pivot_table(index="case", columns="step", values="value", observed=True)
        table = table.sort_index(axis=1).dropna()
        units = part.drop_duplicates("case").set_index("case").reindex(table.index)
        named = units.reset_index()[["case", "cluster", "group"]]
        thresholds = table.columns.to_numpy(dtype=np.float64)
        yield MaskProblem(str(label), named, thresholds, table.to_numpy(dtype=np.float64))
