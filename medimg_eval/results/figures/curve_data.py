"""What curves are made of: confidences with the truth beside them, and sums over them on resampled clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.errors import UsageError
from medimg_eval.metrics.detection import CPM_RATES
from medimg_eval.results.figures.inputs import as_runs
from medimg_eval.results.runs import strata_of
from medimg_eval.results.statistics import Resamples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from medimg_eval.results.figures.inputs import Source
    from medimg_eval.results.runs import Part, RunScores
    from medimg_eval.results.table import Settings

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PROBABILITY, CONFIDENCE, CANDIDATE, LESIONS = "probability", "confidence", "detection_score", "n_reference_lesions"
YES = {PROBABILITY: ("present", "absent"), CONFIDENCE: ("right", "wrong"), CANDIDATE: ("hit", "false")}
"""Statuses of what is true, and of what is not; rows of any other status do not count."""
MOST_POINTS = 1_000
"""A curve of more points is drawn by so many of them, evenly spaced."""


class Stack(NamedTuple):
    """Confidences of one label from the highest down.

    Attributes:
        value: (row,).
        truth: bool (row,).
        owner: (row,): the cluster of each.
        last: Indices of the rows after which the confidence falls; equal ones are one point of a curve.
        positives: (cluster,): how much there is to find in each.
        negatives: (cluster,): what false ones are divided by: how many there are that are not true, or cases.
        cases: Cases that have rows; of detections all cases whose findings are known.
        dropped: Rows without a number.
    """

    value: Floats
    truth: npt.NDArray[np.bool_]
    owner: Ints
    last: Ints
    positives: Floats
    negatives: Floats
    cases: int
    dropped: int


class Sums(NamedTuple):
    """True and false counts above each confidence, with denominators."""

    true: Floats
    false: Floats
    positives: float
    negatives: float


def stacks(part: Part, metric: str) -> dict[str, Stack]:
    """Confidences by label of a part, from `metric`, of `YES`.

    Those of "n_reference_lesions" count too where `metric` is "detection_score".
    """
    labels = dict.fromkeys(part.scores["label"].astype(str))
    return {label: _make_stack(part, metric, part.scores["label"].astype(str) == label) for label in labels}


def pooled(part: Part, metric: str) -> Stack:
    """Returns the confidences of all labels together."""
    return _make_stack(part, metric, pd.Series(data=True, index=part.scores.index))


def _make_stack(part: Part, metric: str, chosen: pd.Series[bool]) -> Stack:
    clusters, owner_of = np.unique(part.clusters.to_numpy(dtype=str), return_inverse=True)
    cluster_of = pd.Series(owner_of, index=part.clusters.index)
    rows = part.scores.loc[chosen & (part.scores["metric"] == metric)]
    rows = rows.loc[rows["status"].isin(YES[metric])]
    held = part.scores.loc[chosen & (part.scores["metric"] == LESIONS)]
    unknown = set(held.loc[held["value"].isna(), "case"])
    is_known = rows["value"].notna()
    dropped, rows = int((~is_known).sum()), rows.loc[is_known & ~rows["case"].isin(unknown)]
    order = np.argsort(-rows["value"].to_numpy(dtype=np.float64), kind="stable")
    value = rows["value"].to_numpy(dtype=np.float64)[order]
    truth = (rows["status"] == YES[metric][0]).to_numpy()[order]
    owner = cluster_of.reindex(rows["case"].astype(str)).to_numpy(dtype=np.int64)[order]
    last = np.flatnonzero(np.append(np.diff(value) != 0, True)) if value.size else np.zeros(0, np.int64)
    size = len(clusters)
    if metric == CANDIDATE:
        defined = held.loc[held["value"].notna()]
        at = cluster_of.reindex(defined["case"].astype(str)).to_numpy(dtype=np.int64)
        positives = np.bincount(at, weights=defined["value"].to_numpy(dtype=np.float64), minlength=size).astype(
            np.float64
        )
        judged = cluster_of.loc[~cluster_of.index.isin(unknown)]
        negatives = np.bincount(judged.to_numpy(dtype=np.int64), minlength=size).astype(np.float64)
        return Stack(value, truth, owner, last, positives, negatives, len(judged), dropped)
    positives = np.bincount(owner[truth], minlength=size).astype(np.float64)
    negatives = np.bincount(owner[~truth], minlength=size).astype(np.float64)
    return Stack(value, truth, owner, last, positives, negatives, int(rows["case"].nunique()), dropped)


def answers(part: Part) -> tuple[Part, bool]:
    """Answers that probabilities of classes say, and whether classes exclude each other.

    They are rows of "confidence" that are right or wrong. Where exactly one class is true in every case, the answer is
    the most probable class, and its probability the confidence. Otherwise each class is an answer of its own: present
    at a probability of 0.5 or more, with the probability of what is answered.
    """
    rows = part.scores.loc[part.scores["metric"] == PROBABILITY]
    rows = rows.loc[rows["value"].notna() & rows["status"].isin(YES[PROBABILITY])]
    counts = (rows["status"] == "present").groupby(rows["case"]).agg(["sum", "size"])
    exclusive = bool(len(counts)) and bool((counts["sum"] == 1).all()) and bool((counts["size"] > 1).all())
    if exclusive:
        best = rows.loc[rows.sort_values(["value", "label"], ascending=[False, True]).groupby("case").head(1).index]
        right, value = best["status"] == "present", best["value"]
    else:
        best, yes = rows, rows["value"] >= 0.5
        right, value = yes == (rows["status"] == "present"), rows["value"].where(yes, 1 - rows["value"])
    scored = best.assign(metric=CONFIDENCE, value=value, status=np.where(right, *YES[CONFIDENCE]))
    return type(part)(part.run, scored, part.clusters, part.of), exclusive


def resampled(part: Part, settings: Settings) -> Iterator[Floats]:
    """Yields cluster counts of each resample, (cluster,), as for summaries."""
    names, first = np.unique(part.clusters.to_numpy(dtype=str), return_index=True)
    strata = strata_of(part.run, settings.stratify_by)
    within = None if strata is None else strata.reindex(part.clusters.index[first]).fillna("").to_numpy(dtype=str)
    for some in Resamples(len(names), resamples=settings.resamples, seed=settings.seed, strata=within).times():
        yield from some.astype(np.float64)


def sums(stack: Stack, times: Floats) -> Sums:
    """Returns the sums of a stack whose clusters count so many times, (cluster,)."""
    weights = times[stack.owner]
    true = np.append(0.0, np.cumsum(weights * stack.truth)[stack.last])
    false = np.append(0.0, np.cumsum(weights * ~stack.truth)[stack.last])
    return Sums(true, false, float(times @ stack.positives), float(times @ stack.negatives))


class Curve(NamedTuple):
    """A kind of curve.

    Attributes:
        x: What its horizontal axis is called in a frame.
        y: The same of the vertical one.
        titles: Of both axes.
        grid: Where bands are computed.
        points: Gives the points of the curve, each (point,).
        along: Gives y at each of the grid's places; NaN where there is none.
        area: Gives the number that the curve comes to.
        area_title: What that is called.
        macro: Whether labels have curves of their own, whose mean is drawn; else they are pooled.
    """

    x: str
    y: str
    titles: tuple[str, str]
    grid: Floats
    points: Callable[[Sums], tuple[Floats, Floats]]
    along: Callable[[Sums, Floats], Floats]
    area: Callable[[Sums], float]
    area_title: str
    macro: bool = True


def _upper_curve(x: Floats, y: Floats, grid: Floats) -> Floats:
    """Returns a rising curve's upper values, linear, then flat."""
    at = np.searchsorted(x, grid, side="right") - 1
    after = np.minimum(at + 1, len(x) - 1)
    wide = x[after] - x[at]
    share = np.divide(grid - x[at], wide, out=np.zeros_like(grid), where=wide > 0)
    return y[at] + share * (y[after] - y[at])


def _roc_points(one: Sums) -> tuple[Floats, Floats]:
    if not (one.positives and one.negatives):
        return np.zeros(0), np.zeros(0)
    return one.false / one.negatives, one.true / one.positives


def _roc_along(one: Sums, grid: Floats) -> Floats:
    x, y = _roc_points(one)
    return _upper_curve(x, y, grid) if x.size else np.full(grid.size, np.nan)


def _roc_area(one: Sums) -> float:
    x, y = _roc_points(one)
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2)) if x.size else np.nan


def _pr_points(one: Sums) -> tuple[Floats, Floats]:
    """Returns recall and precision of the highest reaching confidence."""
    if not one.positives:
        return np.zeros(0), np.zeros(0)
    gained = np.flatnonzero(np.diff(one.true) > 0) + 1
    recall, precision = one.true[gained] / one.positives, one.true[gained] / (one.true + one.false)[gained]
    return np.append(0.0, recall), np.append(precision[:1], precision)


def _pr_along(one: Sums, grid: Floats) -> Floats:
    recall, precision = _pr_points(one)
    if not recall.size:
        return np.full(grid.size, np.nan)
    at = np.searchsorted(recall[1:], grid - 1e-12, side="left")
    return precision[1:][np.minimum(at, len(recall) - 2)]


def _pr_area(one: Sums) -> float:
    recall, precision = _pr_points(one)
    return float(np.diff(recall) @ precision[1:]) if recall.size else np.nan


def _froc_points(one: Sums) -> tuple[Floats, Floats]:
    along = _froc_along(one, FROC_GRID)
    return (FROC_GRID, along) if one.positives else (np.zeros(0), np.zeros(0))


def _froc_along(one: Sums, grid: Floats) -> Floats:
    return _roc_along(one, grid)


def _risk_points(one: Sums) -> tuple[Floats, Floats]:
    """Returns coverage and risk at every confidence."""
    total = one.true[-1] + one.false[-1]
    if not total:
        return np.zeros(0), np.zeros(0)
    is_counted = one.true + one.false > 0
    held = (one.true + one.false)[is_counted]
    return held / total, one.false[is_counted] / held


def _risk_along(one: Sums, grid: Floats) -> Floats:
    """Returns risk by coverage, averaging equally confident answers."""
    held = one.true + one.false
    if not held[-1]:
        return np.full(grid.size, np.nan)
    wrong: Floats = np.interp(grid * held[-1], held, one.false) / (grid * held[-1])
    return wrong


def _aurc_value(one: Sums) -> float:
    total = round(one.true[-1] + one.false[-1])
    return float(_risk_along(one, np.arange(1, total + 1) / total).mean()) if total else np.nan


FROC_GRID: Floats = 2 ** np.linspace(-3, 3, 61)
_SHARES: Floats = np.linspace(0, 1, 101)

CURVES = {
    "roc": Curve(
        "false_positive_rate",
        "sensitivity",
        ("False-positive rate (1 - specificity)", "Sensitivity"),
        _SHARES,
        _roc_points,
        _roc_along,
        _roc_area,
        "AUROC",
    ),
    "pr": Curve("recall", "precision", ("Recall", "Precision"), _SHARES, _pr_points, _pr_along, _pr_area, "AP"),
    "froc": Curve(
        "false_positives_per_case",
        "sensitivity",
        ("False positives per case", "Sensitivity"),
        FROC_GRID,
        _froc_points,
        _froc_along,
        lambda one: float(np.mean(_froc_along(one, np.array(CPM_RATES)))),
        "CPM",
    ),
    "risk_coverage": Curve(
        "coverage",
        "risk",
        ("Coverage", "Risk (share of wrong answers)"),
        _SHARES[1:],
        _risk_points,
        _risk_along,
        _aurc_value,
        "AURC",
        macro=False,
    ),
}


def need_rows(metric: str, kind: str, scored: set[str]) -> None:
    """Raises UsageError where no run has a figure's rows."""
    if metric not in scored:
        raise UsageError(
            f"kind={kind} is drawn from rows of {metric!r}, which no finished run has; name {metric} among the task's "
            "metrics and score the runs again"
        )


def scored(runs: Sequence[RunScores]) -> set[str]:
    """Returns the metrics that finished runs have rows of."""
    return {str(name) for run in runs if run.finished for name in run.scores["metric"].unique()}


def confidences(source: Source, kind: str) -> tuple[list[RunScores], str]:
    """Runs, and their metric of how sure answers are: "confidence", or else "probability".

    Raises UsageError where they have neither.
    """
    unnamed = CONFIDENCE
    if isinstance(source, pd.DataFrame) and "status" in source.columns:
        unnamed = PROBABILITY if source["status"].isin(YES[PROBABILITY]).any() else CONFIDENCE
    runs = as_runs(source, unnamed)
    names = scored(runs)
    metric = CONFIDENCE if CONFIDENCE in names else PROBABILITY
    if names:
        need_rows(metric, kind, names)
    return runs, metric
