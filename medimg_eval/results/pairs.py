"""Every pair of models on the cases that both have: one map per task, or per label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval import metrics
from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.results.cells import Column, case_values, make_column
from medimg_eval.results.columns import titles
from medimg_eval.results.kinds import is_known, is_summary
from medimg_eval.results.significance import Alternative, holm, signed_rank
from medimg_eval.results.table import named_runs

if TYPE_CHECKING:
    import numpy.typing as npt

    from medimg_eval.results.load import RunScores

EVERY_LABEL = ""
"""Stands for all labels, of which a case counts with the mean."""


@dataclass(frozen=True)
class Field:
    """What models are compared on: one task, or one label of it.

    Attributes:
        title: The task's title.
        task: Its name.
        label: The label; empty for the mean over them.
        column: The metric as it is printed.
        runs: The finished runs that have such scores, by model.
        scores: Of each model, the values by case: (case,), no NaN.
        baselines: The rows that are not compared, because they are no models.
    """

    title: str
    task: str
    label: str
    column: Column
    runs: Mapping[str, RunScores]
    scores: Mapping[str, pd.Series[float]]
    baselines: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The task and the label as a heading says them."""
        return f"{self.title}, {self.label}" if self.label else self.title

    def ordered(self) -> list[str]:
        """Returns the models by median, the best first; models of one median by mean, then by name."""
        sign = -1 if self.column.higher_is_better else 1
        medians = self.medians()
        means = {model: float(values.mean()) for model, values in self.scores.items()}
        return sorted(self.scores, key=lambda model: (sign * medians[model], sign * means[model], model))

    def by_model(self) -> dict[str, npt.NDArray[np.float64]]:
        """Returns the values of each model by all cases, (case,), NaN where it has none."""
        together = pd.DataFrame(dict(self.scores))
        return {model: together[model].to_numpy(dtype=np.float64) for model in self.scores}

    def medians(self) -> dict[str, float]:
        """Returns the median over cases of each model."""
        return {model: float(values.median()) for model, values in self.scores.items()}


class Pair(NamedTuple):
    """One model against another."""

    task: str
    label: str
    metric: str
    model: str
    other: str
    n: int
    """Cases that both have a value for."""
    left_out: int
    """Cases that only one has a value for."""
    zeros: int
    """Paired cases without a difference."""
    mean_difference: float
    median_difference: float
    p: float
    corrected_p: float
    significant: bool


def make_fields(runs: Sequence[RunScores], metric: str, *, by_label: bool, baseline: str | None = None) -> list[Field]:
    """Returns what the models of `runs` can be compared on by one metric; baselines are left out.

    Args:
        runs: As `load_runs` returns them.
        metric: A metric of single cases.
        by_label: Whether every label is compared by itself.
        baseline: The one that models are to be tested against, which is kept.

    Raises:
        UsageError: If `metric` cannot be compared, or no finished run has scores of it.
        UserError: If only baselines have.
    """
    if is_summary(metric):
        needs = " or ".join(metrics.get(metric).needs)
        raise UsageError(f"{metric} is one value for a whole run, and compare tests values of cases; compare {needs}")
    finished = [run for run in runs if run.finished]
    scored = {name for run in finished for name in run.scores["metric"].unique()}
    if metric not in scored:
        raise UsageError(f"No finished run has scores of {metric!r}{nearest(metric, scored)}")
    told = next((run.directions[metric] for run in finished if metric in run.directions), None)
    if not is_known(metric) and told is None:
        raise UsageError(
            f"{metric} is not a known metric: to compare models, say whether higher is better (with scores=FILE: "
            f"'better={{{metric}: higher}}')"
        )
    if is_known(metric) and metrics.get(metric).higher_is_better is None:
        raise UsageError(f"{metric} is neither better nor worse for being higher, so models cannot be compared by it")
    by_task: dict[str, dict[str, RunScores]] = {}
    for name, named in named_runs(finished).items():
        for task, run in named.items():
            by_task.setdefault(task, {})[name] = run
    fields = []
    for task, title in titles(runs).items():
        rows = {
            name: run.scores.loc[run.scores["metric"] == metric]
            for name, run in by_task.get(task, {}).items()
            if metric in set(run.scores["metric"])
        }
        left_out = tuple(name for name in rows if by_task[task][name].baseline and name != baseline)
        rows = {name: found for name, found in rows.items() if name not in left_out}
        labels = dict.fromkeys(str(label) for found in rows.values() for label in found["label"].unique())
        chosen = labels if by_label else [EVERY_LABEL] if rows else []
        made = [_field(title, label, metric, by_task[task], rows) for label in chosen]
        fields += [replace(field, baselines=left_out) for field in made]
    if not fields:
        raise UserError(f"Only baselines have scores of {metric}, and they are not compared; name runs of models")
    return fields


def _field(
    title: str, label: str, metric: str, runs: Mapping[str, RunScores], rows: Mapping[str, pd.DataFrame]
) -> Field:
    some = next(iter(runs.values()))
    values = {
        name: case_values(found if label == EVERY_LABEL else found.loc[found["label"] == label])["value"].dropna()
        for name, found in rows.items()
    }
    values = {name: found for name, found in values.items() if len(found)}
    return Field(
        title,
        some.task,
        label,
        make_column(some.task, title, metric, some),
        {name: runs[name] for name in values},
        values,
    )


def every_pair(field: Field, alpha: float) -> list[Pair]:
    """Returns a one-sided test of each ordered pair of models: whether the first is better than the second.

    Wilcoxon's signed-rank test on the cases that both have a value for, corrected by Holm over all ordered pairs.

    Source: the significance maps of Touchstone (Bassi et al., NeurIPS 2024).
    """
    side: Alternative = "greater" if field.column.higher_is_better else "less"
    values = field.by_model()
    return _corrected([_tested(field, values, *pair, side) for pair in permutations(field.ordered(), 2)], alpha)


def against(field: Field, baseline: str, alpha: float) -> list[Pair]:
    """Returns a two-sided test of each model against one of them, corrected by Holm over the models."""
    others = [model for model in field.ordered() if model != baseline]
    values = field.by_model()
    return _corrected([_tested(field, values, model, baseline, "two-sided") for model in others], alpha)


def _tested(
    field: Field, values: Mapping[str, npt.NDArray[np.float64]], model: str, other: str, side: Alternative
) -> Pair:
    first, second = values[model], values[other]
    both = ~np.isnan(first) & ~np.isnan(second)
    found = signed_rank(first[both], second[both], side)
    difference = first[both] - second[both]
    return Pair(
        task=field.task,
        label=field.label,
        metric=field.column.metric,
        model=model,
        other=other,
        n=found.n,
        left_out=int((np.isnan(first) != np.isnan(second)).sum()),
        zeros=found.zeros,
        mean_difference=float(difference.mean()) if found.n else np.nan,
        median_difference=float(np.median(difference)) if found.n else np.nan,
        p=found.p,
        corrected_p=np.nan,
        significant=False,
    )


def _corrected(tests: Sequence[Pair], alpha: float) -> list[Pair]:
    corrected = holm([test.p for test in tests])
    return [
        test._replace(corrected_p=float(p), significant=bool(p < alpha))
        for test, p in zip(tests, corrected, strict=True)
    ]


def pair_notes(tests: Sequence[Pair]) -> Iterator[str]:
    """Yields on how many cases the pairs rest, and what was left out of them."""
    sizes = sorted({test.n for test in tests})
    if not sizes:
        return
    between = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    yield f"{between} cases per pair"
    if most := max(test.left_out for test in tests):
        some = max(tests, key=lambda test: test.left_out)
        yield f"up to {most} cases left out that only one of two models has a value for ({some.model}, {some.other})"
    if most := max(test.zeros for test in tests):
        some = max(tests, key=lambda test: test.zeros)
        yield f"up to {most} cases without a difference, which the test leaves out ({some.model}, {some.other})"
    if empty := sum(test.n == 0 for test in tests):
        yield f"{empty} pairs without a common case, not tested"
