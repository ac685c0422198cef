"""Arithmetic of classifications: curves and counts of a run's probabilities, for many resamples at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from medimg_eval.metrics.arrays import Floats, Ints
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, Weighed

PRESENT, ABSENT = "present", "absent"
"""Statuses of rows of evidence: what is true of the class."""

AVERAGES = ("macro", "micro", "weighted")

THRESHOLD = 0.5
"""A class whose probability lies above it is said to be present."""

SETS = "class_sets"
"""The fact that names sets of classes: name -> classes."""

NAMES = "class_names"
"""The fact that names the classes in the task's order, which is that of grades."""

CLASSES, EXCLUSIVE = "classes", "exclusive"
"""The fact that says how classes belong together, and its value where exactly one is present in every case."""


@dataclass(frozen=True)
class Classified:
    """True classes of one case, and predicted ones.

    Attributes:
        truth: class -> 1 present, 0 absent, a probability between, or NaN where it is not known.
        predicted: class -> probability, 0 to 1; the same classes.
        exclusive: whether exactly one class is present in every case.
        readers: reader -> class -> what that reader said, as `truth`; empty where the truth is not of several.
    """

    truth: Mapping[str, float]
    predicted: Mapping[str, float]
    exclusive: bool = False
    readers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def known(self) -> dict[str, bool]:
        """Class -> known presence; probabilities are split at 0.5."""
        stated = {name: value for name, value in self.truth.items() if not math.isnan(value) and value != THRESHOLD}
        return {name: value > THRESHOLD for name, value in stated.items()}

    @property
    def said(self) -> dict[str, bool]:
        """Class -> predicted presence: above 0.5, or the most probable of exclusive classes."""
        if not self.exclusive:
            return {name: value > THRESHOLD for name, value in self.predicted.items()}
        largest = max(self.predicted.values())
        return {name: value == largest for name, value in self.predicted.items()}


class Choice(NamedTuple):
    """Average over classes that a parameter such as `macro-competition` asks for.

    Attributes:
        average: one of `AVERAGES`; of a single class `macro`.
        classes: which are judged; None for all.
    """

    average: str
    classes: tuple[str, ...] | None


class Curve(NamedTuple):
    """The rows of a class in the order of their probabilities.

    Attributes:
        order: (row,) places of the rows.
        positive: (row,) float64, 1 where the class is present.
        starts: (level,) the first of each group of equal probabilities.
    """

    order: Ints
    positive: Floats
    starts: Ints


Area: TypeAlias = Callable[[Floats, Curve], Floats]


def chosen(parameter: str, rows: ScoreTable) -> Choice:
    """Returns a parameter's choice of classes; unknown ones select nothing."""
    if (rows.label == parameter).any():
        return Choice("macro", (parameter,))
    average, _, name = parameter.partition("-")
    if average not in AVERAGES:
        return Choice("macro", (parameter,))
    if not name:
        return Choice(average, None)
    return Choice(average, tuple(str(name) for name in rows.facts.get(SETS, {}).get(name, ())))


def classes_of(rows: ScoreTable, choice: Choice) -> tuple[list[str], Ints]:
    """Returns judged classes and each row's class, (row,); -1 for none or unknown."""
    names, code = np.unique(rows.label, return_inverse=True)
    wanted = (
        names.tolist() if choice.classes is None else [name for name in choice.classes if name in set(names.tolist())]
    )
    number_of = np.full(len(names) + 1, -1, np.int64)
    for number, name in enumerate(wanted):
        number_of[np.searchsorted(names, name)] = number
    is_known = np.isin(rows.status, (PRESENT, ABSENT)) & ~np.isnan(rows.value)
    return wanted, np.where(is_known, number_of[code], -1)


def areas(rows: ScoreTable, parameter: str, area: Area, undefined: float = math.nan) -> Weighed:
    """Returns a judge: weights (resample, row) to curve areas, (resample,).

    Args:
        rows: of `probability`.
        parameter: such as `macro`.
        area: `roc_area` or `pr_area`.
        undefined: what a class without positives or negatives counts as; NaN leaves it out.
    """
    choice = chosen(parameter, rows)
    names, owner = classes_of(rows, choice)
    if choice.average == "micro":
        owner = np.where(owner >= 0, 0, -1)
    groups = np.split(*_group_rows(owner, 1 if choice.average == "micro" else len(names)))
    curves = [_make_curve(rows, group) for group in groups if group.size]
    weighted = choice.average == "weighted"

    def judge(times: Floats) -> Floats:
        values, weights = np.full((len(curves), len(times)), math.nan), np.ones((len(curves), len(times)))
        for number, curve in enumerate(curves):
            counted = times[:, curve.order].astype(np.float64)
            area_value = area(counted, curve)
            values[number] = np.where(np.isnan(area_value), undefined, area_value)
            weights[number] = counted @ curve.positive if weighted else 1
        return mean_of_known(values, weights, axis=0)

    return judge


def roc_area(times: Floats, curve: Curve) -> Floats:
    """Returns AUROC by resample: (resample, row) -> (resample,).

    Rows are in the curve's order. The share of pairs of a positive and a negative in which the positive has
    the higher probability, ties counting one half: DeLong's form of Mann and Whitney's statistic. NaN without
    positives or negatives.
    """
    positives, negatives = _level_counts(times, curve)
    below = np.cumsum(negatives, axis=1) - negatives
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    return quotient((positives * (below + negatives / 2)).sum(axis=1), pairs)


def pr_area(times: Floats, curve: Curve) -> Floats:
    """Returns average precision by resample: (resample, row) -> (resample,).

    Rows are in the curve's order. The sum over the levels of probability of the precision there, times what
    the level adds to the recall. NaN without positives or negatives.
    """
    positives, negatives = (side[:, ::-1] for side in _level_counts(times, curve))
    positive_sums = np.cumsum(positives, axis=1)
    precision = quotient(positive_sums, positive_sums + np.cumsum(negatives, axis=1), 0.0)
    number = positives.sum(axis=1)
    value = quotient((positives * precision).sum(axis=1), number)
    return np.where(negatives.sum(axis=1) > 0, value, math.nan)


def counts(rows: ScoreTable, parameter: str) -> Floats:
    """Returns rows' TP, FP, FN and TN per class.

    What each row adds: (row, 4 * class). Of an average of `micro` these are those of all classes together.
    Where classes exclude each other, the most probable one of a case is predicted present, and of equally
    probable ones each in part.
    """
    choice = chosen(parameter, rows)
    names, owner = classes_of(rows, choice)
    decided_rows, present = decided(rows), rows.status == PRESENT
    cells = np.stack(
        [decided_rows * present, decided_rows * ~present, (1 - decided_rows) * present, (1 - decided_rows) * ~present],
        axis=1,
    )
    width = 1 if choice.average == "micro" else len(names)
    added = np.zeros((len(owner), 4, width))
    judged = np.flatnonzero(owner >= 0)
    added[judged, :, 0 if choice.average == "micro" else owner[judged]] = cells[judged]
    return added.reshape(len(owner), 4 * width)


def decided(rows: ScoreTable) -> Floats:
    """Returns rows' class predictions, float64, (row,): 0, 1, or a part of a tie."""
    if rows.facts.get(CLASSES) != EXCLUSIVE:
        return (rows.value > THRESHOLD).astype(np.float64)
    _, owner = np.unique(rows.case, return_inverse=True)
    largest = np.full(int(owner.max()) + 1 if owner.size else 0, -math.inf)
    np.maximum.at(largest, owner, rows.value)
    first = (rows.value == largest[owner]).astype(np.float64)
    shared: Floats = first / np.maximum(np.bincount(owner, weights=first), 1)[owner]
    return shared


def averaged(sums: Floats, parameter: str, score: Callable[[Floats], Floats]) -> Floats:
    """Returns a score's average over classes, from `counts` sums.

    (..., 4 * class) -> (...).

    Args:
        sums: of rows.
        parameter: such as `macro`; of `weighted` the weight of a class is how often it is present.
        score: of (..., 4, class) -> (..., class), NaN where it is undefined.
    """
    table = sums.reshape(*sums.shape[:-1], 4, -1)
    values = score(table)
    weighted = parameter.partition("-")[0] == "weighted"
    weights = table[..., 0, :] + table[..., 2, :] if weighted else np.ones_like(values)
    return mean_of_known(values, weights, axis=-1)


def mean_of_known(values: Floats, weights: Floats, axis: int) -> Floats:
    """Returns the weighted mean of non-NaN values; else NaN."""
    is_known = ~np.isnan(values)
    held = np.where(is_known, weights, 0)
    return quotient((np.where(is_known, values, 0) * held).sum(axis=axis), held.sum(axis=axis))


def lacking(rows: ScoreTable, parameter: str, needs: Sequence[str]) -> str:
    """Names classes an average leaves out for want of truths.

    No row of theirs has a truth that it needs; "" for none.

    Args:
        rows: of `probability`.
        parameter: such as `macro`; `micro` leaves none out.
        needs: `PRESENT`, `ABSENT` or both.
    """
    choice = chosen(parameter, rows)
    names, owner = classes_of(rows, choice)
    unknown = [name for name in choice.classes or () if name not in names]
    out = [f"{name} (not judged)" for name in unknown]
    for number, name in enumerate(names if choice.average != "micro" else ()):
        held = set(rows.status[owner == number].tolist())
        missing = [need for need in needs if need not in held]
        if missing:
            out.append(f"{name} (never {' or '.join(missing)})")
    return f"undefined, and in no average: {', '.join(out)}" if out else ""


def _make_curve(rows: ScoreTable, places: Ints) -> Curve:
    order = places[np.argsort(rows.value[places], kind="stable")]
    value = rows.value[order]
    starts = np.flatnonzero(np.concatenate([[True], value[1:] != value[:-1]])).astype(np.int64)
    return Curve(order, (rows.status[order] == PRESENT).astype(np.float64), starts)


def _group_rows(owner: Ints, number: int) -> tuple[Ints, Ints]:
    """Places of rows by class, and where each class begins."""
    order = np.argsort(owner, kind="stable").astype(np.int64)
    order = order[int((owner < 0).sum()) :]
    sizes = np.bincount(owner[owner >= 0], minlength=number)
    return order, np.cumsum(sizes)[:-1].astype(np.int64)


def _level_counts(times: Floats, curve: Curve) -> tuple[Floats, Floats]:
    """How many positives and negatives each level of probability has, ascending: (resample, level)."""
    positives = times * curve.positive
    negatives = times - positives
    if len(curve.starts) == len(curve.order):
        return positives, negatives
    return np.add.reduceat(positives, curve.starts, axis=1), np.add.reduceat(negatives, curve.starts, axis=1)
