"""Chooses a head's settings from a grid, on cases to validate on or by cross-validation that keeps groups apart."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.survival import harrell
from medimg_eval.models.heads.base import Features, Head, Targets


@dataclass(frozen=True)
class Trial:
    """One choice of settings, and what it was worth.

    Attributes:
        settings: those of the grid.
        value: of the criterion; NaN where it could not be fitted.
        facts: how fitting ended; of cross-validation those of the last fold.
    """

    settings: Mapping[str, Any]
    value: float
    facts: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Lessons:
    """Features, targets and groups of cases, for fitting or validation."""

    features: Features
    targets: Targets
    groups: Sequence[str]


def search(
    head: Head,
    grid: Mapping[str, Sequence[Any]],
    fit: Lessons,
    validation: Lessons | None,
    *,
    criterion: str = "loss",
    folds: int = 5,
) -> tuple[Head, list[Trial]]:
    """Fits a head for each setting of a grid; returns the best.

    Args:
        head: with the settings that the grid leaves alone.
        grid: setting -> values.
        fit: cases to fit on.
        validation: cases to judge on; None judges by cross-validation on those to fit on, and fits the best on all.
        criterion: a key of `CRITERIA`.
        folds: of cross-validation; a group is never parted.

    Returns:
        The best head, fitted on the cases to fit on, and all trials, in the order of the grid.

    Raises:
        UserError: no combination can be judged.
    """
    UsageError.refuse_invalid("criterion", CRITERIA, criterion)
    wrong = next((name for name, values in grid.items() if isinstance(values, str) or not len(values)), None)
    if wrong is not None:
        raise UsageError(f"expected model.grid.{wrong} to be a list of values, got {grid[wrong]!r}")
    changes = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if validation is not None:
        heads = head.fit_path(fit.features, fit.targets, fit.groups, changes)
        values = [_judge_head(head, validation, criterion) for head in heads]
    else:
        values, last = _cross_validated(head, changes, fit, criterion, folds)
        heads = [*last]
    trials = [
        Trial(change, value, _head_facts(head)) for change, value, head in zip(changes, values, heads, strict=True)
    ]
    able = [index for index, value in enumerate(values) if not math.isnan(value)]
    if not able:
        raise UserError(f"{criterion} cannot be computed of the cases to choose on; name others, or another criterion")
    # The first of those that no rounding error parts.
    best = max(able, key=lambda place: (round(values[place], 10), -place))
    if validation is not None:
        return heads[best], trials
    return head.changed(changes[best]).fit(fit.features, fit.targets, fit.groups), trials


def _cross_validated(
    head: Head, changes: Sequence[Mapping[str, Any]], fit: Lessons, criterion: str, folds: int
) -> tuple[list[float], Sequence[Head]]:
    """Mean value over folds per setting, and the last fold's heads."""
    fold_of = folds_of(fit.groups, fit.targets, folds)
    heads: Sequence[Head] = []
    values = []
    for fold in range(folds):
        part, remaining = (
            _select_lessons(fit, np.flatnonzero(fold_of != fold)),
            _select_lessons(fit, np.flatnonzero(fold_of == fold)),
        )
        heads = head.fit_path(part.features, part.targets, part.groups, changes)
        values.append([_judge_head(head, remaining, criterion) for head in heads])
    with np.errstate(invalid="ignore"):
        return np.mean(values, 0).tolist(), heads


def folds_of(groups: Sequence[str], targets: Targets, folds: int) -> Array:
    """Folds of cases, int64, (case,); groups stay together, classes are balanced.

    Groups are dealt, in the order of what their first case shows and of their names, to one fold after another: no seed
    decides. Raises UserError where there are fewer groups than folds.
    """
    names = sorted(set(groups))
    if len(names) < folds:
        raise UserError(
            f"there are {len(names)} patients to fit on, too few for {folds} folds; set model.folds, or name cases to "
            "validate on"
        )
    first = {group: index for index, group in reversed(list(enumerate(groups)))}
    shows = targets.values[:, 1] if targets.kind == "survival" else np.nan_to_num(targets.values).argmax(1)
    order = sorted(names, key=lambda name: (float(shows[first[name]]), name))
    fold = {name: index % folds for index, name in enumerate(order)}
    return np.array([fold[group] for group in groups], np.int64)


def _select_lessons(lessons: Lessons, places: Array) -> Lessons:
    """Those of some cases."""
    some, held = places.tolist(), lessons.features
    features = held[places] if isinstance(held, np.ndarray) else [held[index] for index in some]
    return Lessons(features, lessons.targets.take(places), [lessons.groups[index] for index in some])


def _judge_head(head: Head, lessons: Lessons, criterion: str) -> float:
    return CRITERIA[criterion](head.predict(lessons.features), lessons.targets)


def _head_facts(head: Head) -> dict[str, Any]:
    return {name: head.facts[name] for name in ("n_iter", "converged", "objective", "losses") if name in head.facts}


def negative_loss(predicted: Array, targets: Targets) -> float:
    """Mean log-likelihood, R2 or Harrell's C, by target; higher is better."""
    if targets.kind == "survival":
        return c_index(predicted, targets)
    truth, is_known = np.nan_to_num(targets.values), ~np.isnan(targets.values)
    if targets.kind == "numbers":
        away = np.where(is_known, predicted - truth, 0.0)
        spread = np.nanvar(targets.values, 0)
        errors = (away**2).sum(0) / np.maximum(is_known.sum(0), 1)
        return float(1 - (errors / np.where(spread > 0, spread, 1)).mean())
    sure = np.clip(predicted, 1e-15, 1)
    log_likelihood = truth * np.log(sure)
    if targets.kind == "classes":
        log_likelihood = np.where(
            is_known, log_likelihood + (1 - truth) * np.log(np.clip(1 - predicted, 1e-15, 1)), 0.0
        )
        return float(log_likelihood.sum() / max(is_known.sum(), 1))
    return float(log_likelihood.sum(1).mean())


def auroc(predicted: Array, targets: Targets) -> float:
    """Mean one-against-rest AUROC over classes present in some cases."""
    from scipy.stats import rankdata

    values = []
    for scores, column in zip(predicted.T, targets.values.T, strict=True):
        is_known = ~np.isnan(column)
        present = column[is_known] >= 0.5
        positive, negative = int(present.sum()), int((~present).sum())
        if positive and negative:
            ranks = rankdata(scores[is_known])
            values.append((ranks[present].sum() - positive * (positive + 1) / 2) / (positive * negative))
    return float(np.mean(values)) if values else math.nan


def balanced_accuracy(predicted: Array, targets: Targets) -> float:
    """Mean recall over present classes, by the largest output."""
    codes, named = targets.codes, predicted.argmax(1)
    return float(np.mean([(named[codes == code] == code).mean() for code in np.unique(codes)]))


def pearson(predicted: Array, targets: Targets) -> float:
    """The mean over numbers; of those that vary."""
    values = []
    for predicted_column, true_column in zip(predicted.T, targets.values.T, strict=True):
        is_known = ~np.isnan(true_column)
        if is_known.sum() > 1 and np.ptp(predicted_column[is_known]) > 0 and np.ptp(true_column[is_known]) > 0:
            values.append(np.corrcoef(predicted_column[is_known], true_column[is_known])[0, 1])
    return float(np.mean(values)) if values else math.nan


def c_index(predicted: Array, targets: Targets) -> float:
    """Harrell's."""
    return float(harrell(targets.values[:, 0], targets.values[:, 1] > 0, predicted[:, 0]).value)


CRITERIA = {
    "loss": negative_loss,
    "auroc": auroc,
    "balanced_accuracy": balanced_accuracy,
    "pearson": pearson,
    "c_index": c_index,
}
"""What settings are chosen by: predictions and targets -> a number, larger for better."""
