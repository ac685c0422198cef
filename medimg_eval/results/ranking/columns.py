"""One column of a ranking: what each model is worth on a data set, its ranks, and how stable they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.arguments import grouped
from medimg_eval.errors import UserError
from medimg_eval.results.comparison import LEVEL, Field, Pair, Together, every_pair, make_fields
from medimg_eval.results.ranking.orders import rank
from medimg_eval.results.runs import Part, is_evidence, is_set, refuse_other_salts, row_of_part
from medimg_eval.results.statistics import FEWEST, MOST_RESAMPLES, Resamples
from medimg_eval.results.table import Column, make_columns, named_runs, titles

if TYPE_CHECKING:
    import numpy.typing as npt

    from medimg_eval.results.comparison import CompareSettings
    from medimg_eval.results.runs import RunScores


@dataclass(frozen=True)
class RankColumn:
    """One metric of one data set.

    Attributes:
        field: What models are compared on.
        title: The column as it is printed, different from that of any other.
        worth: The value of each model on the cases that all have; empty where there is no such case.
        n: How many those are.
        cases: How many any model has; 0 of a set.
        resampled: (resample, model), values on resamples of patients, the models as in `worth`; None of fewer than
            5 patients, and of sets.
        mean_ranks: Of each model, the mean over those cases of its rank in each; empty of what is no mean over cases.
        tests: Of every ordered pair; empty of sets, and where none were asked for.
        better: For each pair of models, the first less the second on the cases that both have, 0 being a tie and
            positive meaning better; empty of cases without tests.
    """

    field: Field
    title: str
    worth: Mapping[str, float]
    n: int
    cases: int
    resampled: npt.NDArray[np.float64] | None
    mean_ranks: Mapping[str, float]
    tests: Sequence[Pair]
    better: Mapping[tuple[str, str], float]

    @property
    def column(self) -> Column:
        """The metric as it is printed."""
        return self.field.column

    def ranks(self, ties: str) -> dict[str, float]:
        """Returns the rank of each model's value, 1 being the best."""
        higher = bool(self.column.higher_is_better)
        ranks_found = rank(_round_sums(np.array(list(self.worth.values()))), higher_is_better=higher, ties=ties)
        return dict(zip(self.worth, ranks_found.tolist(), strict=True))

    def resampled_ranks(self, ties: str) -> npt.NDArray[np.float64] | None:
        """Returns resampled ranks, (resample, model), ordered as `worth`; else None.

        None without resamples.
        """
        if self.resampled is None:
            return None
        return rank(_round_sums(self.resampled), higher_is_better=bool(self.column.higher_is_better), ties=ties)

    def bounds(self) -> dict[str, tuple[float, float]]:
        """Returns 95 % intervals of ranks over resamples; nothing without."""
        ranks = self.resampled_ranks("min")
        if ranks is None:
            return {}
        tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        low, high = np.quantile(ranks, tails, axis=0, method="inverted_cdf")
        return {model: (float(low[index]), float(high[index])) for index, model in enumerate(self.worth)}

    def shares(self) -> dict[str, dict[int, float]]:
        """Returns shares of resamples by model and rank, 0 to 1."""
        ranks = self.resampled_ranks("min")
        if ranks is None:
            return {}
        counted = (np.unique(ranks[:, index], return_counts=True) for index in range(len(self.worth)))
        return {
            model: {int(number): float(count / len(ranks)) for number, count in zip(*counts, strict=True)}
            for model, counts in zip(self.worth, counted, strict=True)
        }

    def rank_of_ranks(self) -> dict[str, float]:
        """Returns the rank of each model's mean rank over cases."""
        ranks_found = rank(_round_sums(np.array(list(self.mean_ranks.values()))), higher_is_better=False, ties="min")
        return dict(zip(self.mean_ranks, ranks_found.tolist(), strict=True))

    def rank_of_tests(self) -> dict[str, float]:
        """Returns ranks by the number of models significantly beaten."""
        wins = {model: sum(test.significant for test in self.tests if test.model == model) for model in self.worth}
        ranks_found = rank(np.array(list(wins.values()), dtype=np.float64), higher_is_better=True, ties="min")
        return dict(zip(wins, ranks_found.tolist(), strict=True)) if self.tests else {}


def make_rank_columns(
    runs: Sequence[RunScores], metrics: Sequence[str] | None, how: CompareSettings, *, by_label: bool, resamples: int
) -> tuple[list[RankColumn], list[str]]:
    """Returns a ranking's columns, and titles with one model only.

    Columns are the first metric of each task, or the metrics asked for.

    Args:
        runs: As `load_runs` returns them; unfinished ones are left out.
        metrics: Metrics that models are ranked by; None takes the first of each task that has a direction.
        how: The test of the ranks by tests.
        by_label: Whether each label is a column.
        resamples: Of the stability of ranks.

    Raises:
        UsageError: If a metric has no scores or no direction.
        UserError: If no task has two models.
    """
    finished = [run for run in runs if run.finished]
    columns, _ = make_columns(finished, metrics)
    if metrics is None:
        firsts: dict[str, Column] = {}
        for column in columns:
            if column.higher_is_better is not None and not is_evidence(column.metric):
                firsts.setdefault(column.task, column)
        columns = list(firsts.values())
    if not columns:
        raise UserError(
            "No finished run has scores of a metric that says whether higher is better; name runs, or say so (with "
            "scores=FILE: 'direction={my_metric: higher}')"
        )
    tasks = list(dict.fromkeys(column.task for column in columns))
    fields = grouped(
        ((field.task, metric), field)
        for metric in dict.fromkeys(column.metric for column in columns)
        for field in _ranked_fields(runs, metric, by_label=by_label)
    )
    wanted = [field for column in columns for field in fields.get((column.task, column.metric), [])]
    names = _column_titles(wanted)
    several = {name: field for field, name in zip(wanted, names, strict=True) if len(field.models or field.runs) > 1}
    if not several:
        raise UserError("No task has finished runs of two models, which a ranking needs; name more run folders")
    # Data sets are resampled by themselves; metrics of one data set meet the same resamples.
    columns_ = [
        _rank_column(field, name, how, resamples=resamples, seed=how.seed + tasks.index(field.task))
        for name, field in several.items()
    ]
    return columns_, [name for name in names if name not in several]


def untested_columns(
    runs: Sequence[RunScores], columns: Sequence[Column], *, resamples: int, seed: int
) -> list[RankColumn]:
    """Returns ranks and stability by metric and task, without tests.

    Columns without a direction, and those that fewer than two models have a value of, are left out.

    Args:
        runs: As `load_runs` returns them; unfinished ones are left out, and baselines are not ranked.
        columns: Metrics of tasks, as a table has them.
        resamples: Of patients, for the stability of ranks; summaries make at most 1,000.
        seed: Of the resamples; metrics of one task meet the same.
    """
    tasks = list(dict.fromkeys(column.task for column in columns))
    columns_ = []
    for index, task in enumerate(tasks):
        members = [run for run in runs if run.task == task and run.finished and not run.baseline]
        for column in columns:
            if column.task != task or column.higher_is_better is None:
                continue
            if not any(len(run.scores) or len(run.sets) for run in members):
                continue
            columns_ += [
                _rank_column(field, column.title, None, resamples=resamples, seed=seed + index)
                for field in _fields_with_values(members, column.metric)
                if len(field.models or field.runs) > 1
            ]
    return columns_


def _fields_with_values(runs: Sequence[RunScores], metric: str) -> list[Field]:
    """Returns a metric's fields; none where undefined or unscored."""
    refuse_other_salts(runs)
    try:
        return _ranked_fields(runs, metric, by_label=False)
    except UserError:
        return []


def _ranked_fields(runs: Sequence[RunScores], metric: str, *, by_label: bool) -> list[Field]:
    if not is_set(metric):
        return make_fields(runs, metric, by_label=by_label)
    fields = []
    finished = [run for run in runs if run.finished]
    named = named_runs([run for run in finished if not run.baseline])
    for column in make_columns(finished, [metric])[0]:
        of_task = {name: by_task[column.task] for name, by_task in named.items() if column.task in by_task}
        fields.append(Field(titles(runs)[column.task], column.task, "", column, of_task, {}))
    return fields


def _column_titles(fields: Sequence[Field]) -> list[str]:
    """Returns column names: data set, and metric where several."""
    several = len({field.column.metric for field in fields}) > 1
    return [f"{field.name}: {field.column.title}" if several else field.name for field in fields]


def _rank_column(field: Field, title: str, how: CompareSettings | None, *, resamples: int, seed: int) -> RankColumn:
    if is_set(field.column.metric):
        return _of_set(field, title)
    tests = [] if how is None else every_pair(field, how, sized=False)
    better = {(test.model, test.other): test.mean_difference * field.sign for test in tests if test.n}
    if field.parts:
        return _of_summary(field, title, tests, better, resamples=resamples, seed=seed)
    together = pd.DataFrame(dict(field.scores))
    complete = together.notna().all(axis=1).to_numpy()
    values = together.to_numpy(dtype=np.float64)[complete]
    owners = np.unique(field.owners[complete], return_inverse=True)[1]
    names = [str(name) for name in together.columns]
    if not len(values):
        return RankColumn(field, title, {}, 0, len(together), None, {}, tests, better)
    ranks = rank(values, higher_is_better=field.sign > 0).mean(axis=0)
    return RankColumn(
        field,
        title,
        dict(zip(names, values.mean(axis=0).tolist(), strict=True)),
        len(values),
        len(together),
        _resampled_means(values, owners, resamples=resamples, seed=seed),
        dict(zip(names, ranks.tolist(), strict=True)),
        tests,
        better,
    )


def _resampled_means(
    values: npt.NDArray[np.float64], owners: npt.NDArray[np.intp], *, resamples: int, seed: int
) -> npt.NDArray[np.float64] | None:
    """Returns means on patient resamples: (case, model) to (resample, model)."""
    size = int(owners.max()) + 1
    if size < FEWEST:
        return None
    sums = np.zeros((size, values.shape[1] + 1))
    np.add.at(sums, owners, np.column_stack([values, np.ones(len(values))]))
    sums_drawn = Resamples(size, resamples=resamples, seed=seed).sums(sums)
    return np.asarray(sums_drawn[:, :-1] / sums_drawn[:, -1:], dtype=np.float64)


def _of_summary(
    field: Field,
    title: str,
    tests: Sequence[Pair],
    better: Mapping[tuple[str, str], float],
    *,
    resamples: int,
    seed: int,
) -> RankColumn:
    together = Together(field.column.metric, list(field.parts.values()))
    is_defined = bool(together.patients) and not np.isnan(together.worth).any()
    values = dict(zip(field.parts, together.worth.tolist(), strict=True)) if is_defined else {}
    resampled = None
    if is_defined and together.patients >= FEWEST:
        drawn = together.resampled(resamples=resamples, seed=seed).T
        drawn = drawn[~np.isnan(drawn).any(axis=1)]
        resampled = drawn if 2 * len(drawn) >= min(resamples, MOST_RESAMPLES) else None
    cases = len(together.clusters)
    return RankColumn(field, title, values, cases, cases + together.left_out, resampled, {}, tests, better)


def _of_set(field: Field, title: str) -> RankColumn:
    set_rows = {name: row_of_part(Part.whole(run), field.column.metric) for name, run in field.runs.items()}
    values = {
        name: row.value.value for name, row in set_rows.items() if row is not None and not np.isnan(row.value.value)
    }
    sizes = {
        (row.value.n_real, row.value.n_generated)
        for row in set_rows.values()
        if row is not None and row.value.depends_on_n
    }
    if len(sizes) > 1:
        values = {}  # such values grow or shrink with the size of the set
    better = {(first, two): field.sign * (values[first] - values[two]) for first, two in permutations(values, 2)}
    most = max((row.value.n_generated for row in set_rows.values() if row is not None), default=0)
    return RankColumn(field, title, values, most, 0, None, {}, [], better)


def _round_sums(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns values without rounding noise, which must not rank models."""
    scale = float(np.nanmax(np.abs(values), initial=0.0))
    return values if not scale else np.round(values / scale, 12)
