"""Scores of answers beside those of a reference answer, as judges of LLaVA's kind give both in one reply."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable, summary

LLAVA = "LLaVA and LLaVA-Med, summarize_gpt_review.py; BiMed-MBench"

_NEEDS = ("judged@answer", "judged@reference")


def _side_values(rows: ScoreTable) -> tuple[Floats, Floats]:
    """Row values of answer and reference, NaN for the other."""
    return tuple(np.where(rows.metric == name, rows.value, np.nan) for name in _NEEDS)  # type: ignore[return-value]


def _side_sums(rows: ScoreTable) -> Floats:
    parts = [np.stack([np.nan_to_num(side), ~np.isnan(side)], axis=1) for side in _side_values(rows)]
    return np.concatenate(parts, axis=1)


_of_both = partial(summary, needs=_NEEDS, higher_is_better=True, best=float("nan"), source=LLAVA)


@_of_both(title="Relative score", pieces=_side_sums)
def judge_ratio_of_means(sums: Floats) -> Any:
    """The mean of what a judge gives answers, over the mean of what it gives reference answers, times 100.

    The number that LLaVA's tables print: a ratio of two means, in percent, above 100 where answers are liked better.
    Questions without a verdict are left out of the mean that they lack in.
    """
    given_mean, due = (quotient(sums[..., index], sums[..., index + 1]) for index in (0, 2))
    return 100 * quotient(given_mean, due)


@_of_both(title="Mean relative score")
def judge_mean_of_ratios(rows: ScoreTable) -> float:
    """The mean over questions of what a judge gives an answer over what it gives the reference answer, times 100.

    In percent, as LLaVA-Med's and BiMed-MBench's scripts print it; another number than `judge_ratio_of_means`:
    questions whose reference is liked little count for more. Without questions that lack one of both, or whose
    reference has 0.
    """
    answer, reference = _side_values(rows)
    by_case: dict[int, list[float]] = {}
    for index, case in enumerate(rows.case.tolist()):
        pair_values = by_case.setdefault(case, [np.nan, np.nan])
        for side, value in enumerate((answer[index], reference[index])):
            pair_values[side] = pair_values[side] if np.isnan(value) else value
    pairs = np.array(list(by_case.values())) if by_case else np.zeros((0, 2))
    pairs = pairs[~np.isnan(pairs).any(1) & (pairs[:, 1] != 0)] if len(pairs) else pairs
    return float(100 * np.mean(pairs[:, 0] / pairs[:, 1])) if len(pairs) else float("nan")
