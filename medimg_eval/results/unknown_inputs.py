"""Unknown inputs: how well what a model says, or features, tell cases of one task from those of another."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.unknowns import (
    MEASURES,
    detection_values,
    entropy,
    joint_energy,
    mahalanobis,
    max_probability,
    nearest_neighbour,
)
from medimg_eval.results.confidence import keep_first_repeats, statements_of
from medimg_eval.results.runs import is_evidence, is_set, is_summary
from medimg_eval.results.statistics import Resamples
from medimg_eval.results.table import Layout, Line, Settings, Sheet, Span, bounded

if TYPE_CHECKING:
    from medimg_eval.results.runs import RunScores

Floats = npt.NDArray[np.float64]

COLUMNS = ("n known", "n unknown", "AUROC ↑", "AUPR unknown ↑", "AUPR known ↑", "FPR at 95 % TPR ↓", "Error ↓")
_HOW = (
    "Unknown cases are to be found; [{level:g} % interval: percentile bootstrap, {resamples:,} resamples of the "
    "patients of each side, seed {seed}; none where all agree]."
)
_WORDS = (
    "FPR at 95 % TPR: the share of known cases flagged where 95 % of the unknown ones first are. Error: the least mean "
    "of missed and wrongly flagged shares. AUPR by trapezoids, as pytorch-ood has it."
)
_FEWEST = 10
"""Known cases that a line is drawn through."""


class Scored(NamedTuple):
    """Scores of unfamiliarity on one side, with cases and units, (case,)."""

    scores: Floats
    cases: npt.NDArray[np.str_]
    clusters: npt.NDArray[np.str_]


def output_scores(run: RunScores) -> dict[str, Scored]:
    """Returns output scores of a run; higher means less known.

    Classes that exclude each other have 1 - largest probability (MSP) and entropy; other classes MSP, as the largest of
    any class, and joint energy; answers 1 - confidence; masks the mean over labels of the voxels' entropy, and of 1 -
    expected Dice.
    """
    return dict(_scores_of(run))


def _scores_of(run: RunScores) -> Iterator[tuple[str, Scored]]:
    scores = keep_first_repeats(run.scores)
    owners = scores.drop_duplicates("case").set_index(scores.drop_duplicates("case")["case"].astype(str))
    units = owners["patient" if run.resampled == "patients" else "case"].astype(str)

    def scored(values: Floats, cases: Sequence[str]) -> Scored:
        names = np.asarray(cases, dtype=str)
        is_known = ~np.isnan(values)
        return Scored(values[is_known], names[is_known], units.reindex(names[is_known]).to_numpy(dtype=str))

    stated = statements_of(replace(run, scores=scores), ("probability",))
    if len(stated.value):
        table = stated.table()[0]
        first = np.unique(stated.case, return_index=True)[1]
        cases = scores.loc[stated.rows[first], "case"].astype(str).tolist()
        yield "MSP", scored(max_probability(table), cases)
        second_score = ("entropy", entropy) if stated.exclusive else ("joint energy", joint_energy)
        yield second_score[0], scored(second_score[1](table), cases)
    for name, (metric, turned) in _BY_METRIC.items():
        rows = scores.loc[scores["metric"] == metric]
        if len(rows):
            means = rows.groupby(rows["case"].astype(str), sort=False)["value"].mean()
            yield name, scored(turned(means.to_numpy(dtype=np.float64)), means.index.tolist())


_BY_METRIC: Mapping[str, tuple[str, Callable[[Floats], Floats]]] = {
    "1 - confidence": ("confidence", lambda values: 1 - values),
    "voxel entropy": ("voxel_entropy", lambda values: values),
    "1 - expected Dice": ("expected_dice", lambda values: 1 - values),
}


def feature_scores(known: Floats, unknown: Floats, reference: Floats) -> dict[str, tuple[Floats, Floats]]:
    """Returns feature scores: Mahalanobis and k-th neighbour distances.

    Arrays are (case, feature); the reference is known and holds none of the known cases that are judged.
    """
    return {
        "Mahalanobis": (mahalanobis(known, reference), mahalanobis(unknown, reference)),
        "kNN": (nearest_neighbour(known, reference), nearest_neighbour(unknown, reference)),
    }


def judge_unknown(
    sides: Mapping[str, tuple[Scored, Scored]], names: tuple[str, str], settings: Settings, notes: Sequence[str] = ()
) -> Sheet:
    """Judges how well scores tell the cases of two sides apart.

    Args:
        sides: name of a score -> that of known and that of unknown cases.
        names: what the sides are called.
        settings: of the bootstrap, which draws the patients of each side.
        notes: what else to say below.

    Raises:
        UserError: there is no score that both sides have.
    """
    if not sides:
        raise UserError(
            "No score is there of both sides: runs need rows of probability, confidence, voxel_entropy or "
            "expected_dice; docs/evaluate/confidence.md says how they get them"
        )
    lines, records = [], []
    for name, (known_side, unknown) in sides.items():
        values, low, high = _with_interval(known_side, unknown, settings)
        counts = {"n_known": known_side.scores.size, "n_unknown": unknown.scores.size}
        cells = [[Span(str(count))] for count in counts.values()]
        for measure, *ends in zip(MEASURES, values.tolist(), low.tolist(), high.tolist(), strict=True):
            value, lower, upper = ends
            cells.append(bounded(value, lower, upper, "{:.3f}".format))
            records.append({"score": name, "measure": measure, "value": value, "low": lower, "high": upper, **counts})
        lines.append(Line([name], cells))
    caption = f"{names[1]} told from {names[0]}"
    below = [
        _HOW.format(level=100 * settings.level, resamples=settings.resamples, seed=settings.seed),
        _WORDS,
        *notes,
    ]
    return Sheet(Layout.of_block(caption, COLUMNS, lines, below, ["Score"]), pd.DataFrame.from_records(records))


def _with_interval(known: Scored, unknown: Scored, settings: Settings) -> tuple[Floats, Floats, Floats]:
    scores = np.concatenate([known.scores, unknown.scores])
    flags = np.arange(scores.size) >= known.scores.size
    names = np.concatenate([np.char.add("known/", known.clusters), np.char.add("unknown/", unknown.clusters)])
    units, owner = np.unique(names, return_inverse=True)
    sides = np.char.startswith(units, "known/")
    resamples = Resamples(len(units), resamples=settings.resamples, seed=settings.seed, strata=sides)
    drawn = np.concatenate(
        [detection_values(scores, flags, times[:, owner].astype(np.float64)) for times in resamples.times()]
    )
    ends = np.nanquantile(drawn, [(1 - settings.level) / 2, (1 + settings.level) / 2], axis=0)
    # A perfect score is perfect in every resample, however few cases there are: no interval, as in tables.
    ends[:, np.ptp(drawn, axis=0) < 1e-12] = np.nan
    return detection_values(scores, flags, np.ones((1, scores.size)))[0], ends[0], ends[1]


def judge_drop(known: RunScores, unknown: RunScores, metric: str, settings: Settings) -> Sheet:
    """Judges a metric's drop on unknown cases, and its prediction.

    A line of the metric on a score is drawn through the known cases; what it expects of the unknown ones, less their
    score, is what the score cannot foretell.

    Raises:
        UsageError: the runs have no such metric of cases in common.
    """
    shared = [name for name in _comparable_metrics(known) if name in _comparable_metrics(unknown)]
    name = metric or next(iter(shared), "")
    if name not in shared:
        raise UsageError(
            "metric is invalid: expected one that both runs have of each case "
            f"({', '.join(shared) or 'there is none'}), got {metric or 'none'}"
        )
    here, there = (_case_values(run, name) for run in (known, unknown))
    drop = here.mean() - there.mean()
    low, high = _drop_interval(known, unknown, here, there, settings)
    lines = [Line(["measured"], _drop_cells(here.mean(), there.mean(), drop, low, high, 1.0))]
    records = [
        {"score": "measured", "known": here.mean(), "unknown": there.mean(), "drop": drop, "low": low, "high": high}
    ]
    sides, outputs = output_scores(known), output_scores(unknown)
    for score in [score for score in sides if score in outputs]:
        expected = _expected_mean(sides[score], outputs[score], here)
        if math.isnan(expected):
            continue
        foretold = here.mean() - expected
        share = foretold / drop if drop else math.nan
        lines.append(Line([f"by {score}"], _drop_cells(here.mean(), expected, foretold, math.nan, math.nan, share)))
        records.append({"score": score, "known": here.mean(), "unknown": expected, "drop": foretold})
    columns = ["known", "unknown", "drop", "share of it"]
    notes = [
        "by a score: what a line of the metric on it, through the known cases, expects of the unknown ones.",
        f"n = {len(here)} known and {len(there)} unknown cases.",
    ]
    title = f"{name}: {unknown.task_title or unknown.task} against {known.task_title or known.task}"
    return Sheet(Layout.of_block(title, columns, lines, notes, ["Drop"]), pd.DataFrame.from_records(records))


def _comparable_metrics(run: RunScores) -> list[str]:
    names = [str(name) for name in (run.metrics or run.scores["metric"].unique())]
    held = set(run.scores["metric"].unique())
    return [name for name in names if name in held and not (is_summary(name) or is_set(name) or is_evidence(name))]


def _case_values(run: RunScores, metric: str) -> pd.Series[float]:
    rows = run.scores.loc[(run.scores["metric"] == metric) & run.scores["value"].notna()]
    return rows.groupby(rows["case"].astype(str), sort=False)["value"].mean()


def _drop_interval(
    known: RunScores, unknown: RunScores, here: pd.Series[float], there: pd.Series[float], settings: Settings
) -> tuple[float, float]:
    drawn = []
    for run, values in ((known, here), (unknown, there)):
        owners = run.scores.drop_duplicates("case").set_index("case")
        units = owners["patient" if run.resampled == "patients" else "case"].astype(str)
        names, owner = np.unique(units.reindex(values.index).to_numpy(dtype=str), return_inverse=True)
        sums = np.stack([np.bincount(owner, values.to_numpy()), np.bincount(owner)], axis=1).astype(np.float64)
        totals = Resamples(len(names), resamples=settings.resamples, seed=settings.seed).sums(sums)
        drawn.append(totals[:, 0] / totals[:, 1])
    # Of different patients, so the sides are drawn apart; one seed would draw equal sizes alike.
    permuted = np.random.default_rng(settings.seed).permutation(drawn[1])
    low, high = np.quantile(drawn[0] - permuted, [(1 - settings.level) / 2, (1 + settings.level) / 2])
    return float(low), float(high)


def _drop_cells(known: float, unknown: float, drop: float, low: float, high: float, share: float) -> list[list[Span]]:
    text = "{:.3f}".format
    plain = [bounded(value, math.nan, math.nan, text) for value in (known, unknown)]
    return [*plain, bounded(drop, low, high, text), bounded(share, math.nan, math.nan, "{:.2f}".format)]


def _expected_mean(known: Scored, unknown: Scored, values: pd.Series[float]) -> float:
    """Returns the expected mean of unknown cases by regression; else NaN."""
    both = pd.Series(known.scores, index=known.cases)
    both = both.loc[both.index.isin(values.index)]
    if len(both) < _FEWEST or np.ptp(both.to_numpy()) < 1e-12 or not unknown.scores.size:
        return math.nan
    slope, start = np.polyfit(both.to_numpy(), values.reindex(both.index).to_numpy(), 1)
    return float(slope * unknown.scores.mean() + start)
