"""Summaries of models on the cases that they share: their values, resampled and with their answers swapped."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.metrics import parse
from medimg_eval.results.runs import Part
from medimg_eval.results.statistics import MOST_RESAMPLES, Resamples, by_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from medimg_eval.metrics.registry import Weighed


class Together:
    """Models judged by a summary on shared cases.

    Args:
        metric: The summary as it is asked for, such as "auroc@macro".
        parts: What each model is judged on.

    Attributes:
        clusters: The shared cases, with what each is resampled with, by case id.
        parts: What each model is judged on of them.
        patients: How many are resampled.
        left_out: Cases that only some models were judged on.
    """

    def __init__(self, metric: str, parts: Sequence[Part]) -> None:
        self.metric = metric
        self.clusters = shared_cases(parts)
        self.parts = [_restrict_part(part, self.clusters) for part in parts]
        self.patients = int(self.clusters.nunique())
        names = {case for part in parts for case in _named_cases(part).index}
        self.left_out = len(names - set(self.clusters.index))

    @cached_property
    def _alone(self) -> list[Weighed]:
        return [_weighted_summary(self.metric, [part]) for part in self.parts]

    @cached_property
    def worth(self) -> npt.NDArray[np.float64]:
        """The value of each model: (model,), NaN where it is undefined."""
        once = np.ones((1, self.patients))
        return np.array([float(summary(once)[0]) if self.patients else math.nan for summary in self._alone])

    def resampled(self, *, resamples: int, seed: int) -> npt.NDArray[np.float64]:
        """Returns summary values on shared resamples: (model, resample).

        Patients are resampled, at most `MOST_RESAMPLES` times.
        """
        drawn = Resamples(self.patients, resamples=min(resamples, MOST_RESAMPLES), seed=seed)
        times = np.concatenate(list(drawn.times())).astype(np.float64)
        return np.stack([summary(times) for summary in self._alone])

    def swapped(self, first: int, second: int, *, draws: int, seed: int) -> npt.NDArray[np.float64]:
        """Returns differences after randomly swapping patients' answers: (draw,)."""
        both = _weighted_summary(self.metric, [self.parts[first], self.parts[second]])
        rng = np.random.default_rng(seed)
        own = rng.integers(0, 2, (random_patterns(self.metric, draws), self.patients), dtype=np.uint8).astype(
            np.float64
        )
        return both(np.hstack([own, 1 - own])) - both(np.hstack([1 - own, own]))

    @property
    def swappable(self) -> bool:
        """Whether answers alone decide the value, not model size."""
        runs = [part.run for part in self.parts]
        for index, part in enumerate(self.parts):
            for run in runs:
                if run.facts != part.run.facts:
                    moved = _weighted_summary(self.metric, [replace(part, run=replace(part.run, facts=run.facts))])
                    moved_value = float(moved(np.ones((1, self.patients)))[0])
                    if not np.isclose(moved_value, self.worth[index], rtol=1e-9, atol=0, equal_nan=True):
                        return False
        return True


def random_patterns(metric: str, wanted: int) -> int:
    """Returns the number of swap patterns, fewer for costly summaries."""
    return wanted if parse(metric)[0].pieces is not None else min(wanted, MOST_RESAMPLES)


def shared_cases(parts: Sequence[Part]) -> pd.Series[str]:
    """Returns cases shared by all, with resampling units, by id.

    A case that leaves no row, such as one without a lesion and without a candidate, was judged all the same: where
    every run has answered all of its cases, as many cases as they have count.
    """
    together = pd.concat([_named_cases(part) for part in parts])
    union = together[~together.index.duplicated()]
    counts = {(part.run.cases, part.run.predicted) for part in parts}
    (cases, predicted) = next(iter(counts))
    whole_cases = all(part.of == ("", "") or part.of[0] == "label" for part in parts)
    if len(counts) == 1 and cases == predicted and len(union) <= cases and whole_cases:
        silent = [f"\0{number}" for number in range(cases - len(union))]
        return pd.concat([union, pd.Series(silent, index=silent, dtype=union.dtype)]) if silent else union
    common = set(union.index)
    for part in parts:
        common &= set(_named_cases(part).index)
    return union.loc[[case for case in union.index if case in common]]


def _named_cases(part: Part) -> pd.Series[str]:
    """Returns the cases of a part that have a name."""
    return part.clusters[~part.clusters.index.str.startswith("\0")]


def _restrict_part(part: Part, clusters: pd.Series[str]) -> Part:
    scores = part.scores.loc[part.scores["case"].astype(str).isin(clusters.index)]
    return Part(part.run, scores, clusters, part.of)


def _weighted_summary(metric: str, parts: Sequence[Part]) -> Weighed:
    """Returns a summary as a function of patients' weights.

    It takes (draw, model and patient) to (draw,), NaN where it is undefined.
    """
    frames, clusters = [], []
    for index, part in enumerate(parts):
        # The place comes first, so that the patients of one model follow those of another in the same order.
        frames.append(part.scores.assign(case=f"{index}\x1f" + part.scores["case"].astype(str)))
        names = f"{index}\x1f" + part.clusters.astype(str)
        clusters.append(pd.Series(names.to_numpy(), index=f"{index}\x1f" + part.clusters.index.astype(str)))
    rows = pd.concat(frames, ignore_index=True)
    if "repeat" in rows.columns:
        rows["repeat"] = rows["repeat"].fillna(0)  # of a model with a single one
    return by_times(metric, Part(parts[0].run, rows, pd.concat(clusters)))
