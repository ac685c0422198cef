"""Models ranked over data sets: mean ranks and their test, consensus of pairwise counts, stability of ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from medimg_eval.arguments import grouped
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.comparison import LEVEL, CompareSettings, significance_map, write_sheets
from medimg_eval.results.ranking.columns import RankColumn, make_rank_columns
from medimg_eval.results.ranking.orders import Friedman, borda, cliques, friedman, kemeny
from medimg_eval.results.ranking.sheets import Printing, data_sets, make_sheets
from medimg_eval.results.runs import LABEL, SCORE_COLUMNS, RunScores, frame_to_csv, refuse_other_salts
from medimg_eval.results.table import check_numbers, notebook_html, write_texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from medimg_eval.results.ranking.orders import Consensus
    from medimg_eval.results.table import Layout, Map, Sheet


@dataclass(frozen=True)
class Ranking:
    """Models ranked over data sets; columns are never averaged.

    Attributes:
        title: What is ranked.
        models: The models, the best first.
        overall: One row per model, in the order of `models`: `model`, `place` (from 1; equal mean ranks share it),
            `mean_rank` (of the columns that all models have, ties with their mean; NaN if there are none), `low` and
            `high` (95 % interval of the mean rank over resamples of patients), `first_share` (of resamples in which its
            mean rank is the best), `columns` (that it has a value in), `firsts` (columns in which no model is better),
            `borda` (share of the comparisons with other models that it wins, 0 to 1) and `kemeny` (its place in
            Kemeny's order).
        by_column: One row per column and model: `column` (its name as it is printed), `task`, `label`, `metric`,
            `model`, `value`, `n` (cases), `rank` (of the mean), `rank_of_ranks` (of the mean rank over cases),
            `rank_of_tests` (of the number of models that it is significantly better than), `low` and `high` (95 %
            interval of `rank` over resamples). Equal values share the smaller rank; NaN where there is none.
        distribution: The stability of ranks: `column`, `task`, `label`, `metric`, `model`, `rank` (a whole number from
            1) and `share` of the resamples in which the model has it (0 to 1, above 0). Shares of one column and model
            add up to 1. Only columns of which there are values of cases.
        significance: One row per column and ordered pair of models: `column`, `task`, `label`, `metric`, `model`,
            `other`, `n`, `p`, `corrected_p` and `significant`: whether `model` is better than `other`.
        wins: (model, other): over columns, how often the model of the row has the better value on the cases that both
            have; a tie counts one half.
        compared: (model, other): in how many columns the two could be compared.
        friedman: The test over columns.
        cliques: Groups of models, each a run of neighbours by mean rank, that do not differ by Nemenyi's test; none is
            part of another. The bars of a critical-difference diagram.
        sheets: The tables.
        maps: A significance map per column.
    """

    title: str
    models: tuple[str, ...]
    overall: pd.DataFrame
    by_column: pd.DataFrame
    distribution: pd.DataFrame
    significance: pd.DataFrame
    wins: pd.DataFrame
    compared: pd.DataFrame
    friedman: Friedman
    cliques: tuple[tuple[str, ...], ...]
    sheets: tuple[Sheet, ...]
    maps: tuple[Map, ...] = ()

    def layout(self) -> Layout:
        """Returns the main table: every text in its place and style."""
        return self.sheets[0].layout()

    def frame(self) -> pd.DataFrame:
        """Returns the numbers of the main table, one row per model."""
        return self.overall

    def _repr_html_(self) -> str:
        return notebook_html(*self.sheets)


_KEYS = ["column", "task", "label", "metric"]


def rank_models(
    runs: Sequence[RunScores],
    *,
    metrics: Sequence[str] | None = None,
    by: str | None = None,
    how: CompareSettings | None = None,
    resamples: int = 1_000,
    weights: Mapping[str, float] | None = None,
) -> Ranking:
    """Ranks the models of `runs` over data sets.

    Every column (a metric of a data set) ranks the models by itself, on the cases that all of them have; values of
    different columns are never averaged. Where all columns have all models, they are ordered by mean rank, otherwise by
    Kemeny's order of the pairwise counts, since mean ranks over different columns cannot be compared.

    Source: Demsar, Journal of Machine Learning Research 2006 (Friedman, Nemenyi); Wiesenfarth et al., Scientific
    Reports 2021 (stability of ranks and families of rankings, challengeR).

    Args:
        runs: As `load_runs` returns them; unfinished ones are left out, and baselines are not ranked.
        metrics: Metrics that models are ranked by; None takes the first of each task that has a direction.
        by: "label" makes a column of each label; None of all of them.
        how: The test that ranks by tests rest on, and the level of Nemenyi's; None takes those of `CompareSettings`.
        resamples: Of patients, for the stability of ranks; summaries make at most 1,000.
        weights: Instead of `metrics`: of the ranks by each metric in the mean rank; None weighs all columns the same.

    Raises:
        UsageError: If a metric has no scores or no direction, or a setting is invalid.
        UserError: If no task has two models.
    """
    how = CompareSettings() if how is None else how
    how.check()
    check_numbers(resamples, LEVEL, how.seed)
    if by not in (None, LABEL):
        raise UsageError(
            f"by must be label or nothing, got {by!r}: models are ranked on labels, not on groups of cases"
        )
    if weights is not None:
        metrics = check_weights(weights, metrics)
    columns, lonely = make_rank_columns(runs, metrics, how, by_label=by == LABEL, resamples=resamples)
    models = list(dict.fromkeys(model for column in columns for model in _judged_models(column)))
    complete = [column for column in columns if set(column.worth) >= set(models)]
    ranks = np.array([[column.ranks("average")[model] for model in models] for column in complete])
    shares = column_weights(complete, weights)
    test = Friedman(np.nan, np.nan, np.nan, len(complete))
    if complete and weights is None:
        test = friedman(ranks, how.alpha)
    wins, compared = _win_counts(columns, models)
    if not compared.any():
        raise UserError("No two models have a value for the same case, so there is nothing to rank")
    consensus = kemeny(wins, compared)
    means = np.average(ranks, axis=0, weights=shares) if complete else np.full(len(models), np.nan)
    if len(complete) == len(columns):
        consensual = [consensus.order.index(index) for index in range(len(models))]
        order = sorted(range(len(models)), key=lambda place: (round(float(means[place]), 9), consensual[place]))
    else:
        order = list(consensus.order)
    overall = _overall_frame(columns, (complete, shares), models, means, (wins, compared, consensus), order)
    if len(complete) == len(columns):
        overall["place"] = overall["mean_rank"].round(9).rank(method="min").astype(int)
    by_column = _by_column(columns, [models[index] for index in order])
    maps = [significance_map(column.field, column.tests, how)[1] for column in columns if column.tests]
    groups = cliques(means.tolist(), test.cd) if not np.isnan(test.cd) else []
    together = Ranking(
        title=f"Ranking of {len(models)} models over {data_sets(len(columns))}",
        models=tuple(models[index] for index in order),
        overall=overall,
        by_column=by_column,
        distribution=_rank_frame(columns),
        significance=_significance_frame(columns),
        wins=pd.DataFrame(wins, index=models, columns=models),
        compared=pd.DataFrame(compared, index=models, columns=models),
        friedman=test,
        cliques=tuple(tuple(models[index] for index in group) for group in groups),
        sheets=(),
        maps=tuple(maps),
    )
    return make_sheets(together, columns, Printing(how, consensus.exact, resamples, tuple(lonely), weights))


def write_ranking(ranking: Ranking, folder: str | Path, stem: str = "rank") -> list[Path]:
    """Writes a ranking as .md, .tex, .csv, .html and .svg.

    Into `folder`, made if needed.

    The CSV holds one row per model; `STEM_columns.csv`, `STEM_stability.csv` and `STEM_significance.csv` hold ranks on
    each column, shares of resamples, and tests of pairs.

    Returns:
        The files.
    """
    folder = Path(folder)
    files = write_sheets(ranking.title, ranking.sheets, ranking.overall, ranking.maps, folder / stem)
    frames = {
        "columns": ranking.by_column,
        "stability": ranking.distribution,
        "significance": ranking.significance,
    }
    return files + write_texts(folder / stem, {f"_{name}.csv": frame_to_csv(frame) for name, frame in frames.items()})


def _judged_models(column: RankColumn) -> list[str]:
    """Returns models judged on a column, even without shared cases."""
    return list(column.field.models or column.worth)


def _win_counts(
    columns: Sequence[RankColumn], models: Sequence[str]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns pairwise wins (ties half) and comparisons."""
    wins, compared = np.zeros((2, len(models), len(models)))
    indices = {model: number for number, model in enumerate(models)}
    for column in columns:
        # What rounding in sums adds must not decide who is better, whatever the size of the values.
        centres = column.field.centres(median=False) or column.worth
        noise = 1e-12 * max((abs(worth) for worth in centres.values()), default=0.0)
        for (first, two), gap in column.better.items():
            if not np.isnan(gap):
                compared[indices[first], indices[two]] += 1
                wins[indices[first], indices[two]] += 0.5 if abs(gap) <= noise else float(gap > 0)
    return wins, compared


def _overall_frame(
    columns: Sequence[RankColumn],
    complete: tuple[Sequence[RankColumn], npt.NDArray[np.float64]],
    models: Sequence[str],
    means: npt.NDArray[np.float64],
    counts: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Consensus],
    order: Sequence[int],
) -> pd.DataFrame:
    wins, compared, consensus = counts
    lows, highs, firsts = _resampled_means(*complete, models)
    best = [column.ranks("min") for column in columns]
    shares = borda(wins, compared)
    records = [
        {
            "model": models[index],
            "place": number,
            "mean_rank": means[index],
            "low": lows[index],
            "high": highs[index],
            "first_share": firsts[index],
            "columns": sum(models[index] in ranks for ranks in best),
            "firsts": sum(ranks.get(models[index]) == 1 for ranks in best),
            "borda": shares[index],
            "kemeny": consensus.order.index(index) + 1,
        }
        for number, index in enumerate(order, start=1)
    ]
    return pd.DataFrame.from_records(records)


def _resampled_means(
    complete: Sequence[RankColumn], shares: npt.NDArray[np.float64], models: Sequence[str]
) -> npt.NDArray[np.float64]:
    """Returns mean rank bounds and shares of first place, (3, model)."""
    unknown = np.full((3, len(models)), np.nan)
    all_ranks = [column.resampled_ranks("average") for column in complete]
    ordered = []
    for column, ranks in zip(complete, all_ranks, strict=True):
        if ranks is None:
            return unknown
        names = list(column.worth)
        ordered.append(ranks[:, [names.index(model) for model in models]])
    if not ordered:
        return unknown
    number = min(map(len, ordered))
    means = np.average([ranks[:number] for ranks in ordered], axis=0, weights=shares)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    best = means <= means.min(axis=1, keepdims=True) + 1e-9
    return np.stack([low, high, (best / best.sum(axis=1, keepdims=True)).mean(axis=0)])


def _column_keys(column: RankColumn) -> dict[str, str]:
    field = column.field
    return dict(zip(_KEYS, (column.title, field.task, field.label, field.column.metric), strict=True))


def _by_column(columns: Sequence[RankColumn], models: Sequence[str]) -> pd.DataFrame:
    records = []
    for column in columns:
        ranks, of_ranks, of_tests = column.ranks("min"), column.rank_of_ranks(), column.rank_of_tests()
        bounds = column.bounds()
        for model in models:
            if model in _judged_models(column):
                low, high = bounds.get(model, (np.nan, np.nan))
                records.append(
                    _column_keys(column)
                    | {
                        "model": model,
                        "value": column.worth.get(model, np.nan),
                        "n": column.n,
                        "rank": ranks.get(model, np.nan),
                        "rank_of_ranks": of_ranks.get(model, np.nan),
                        "rank_of_tests": of_tests.get(model, np.nan),
                        "low": low,
                        "high": high,
                    }
                )
    return pd.DataFrame.from_records(records)


def _rank_frame(columns: Sequence[RankColumn]) -> pd.DataFrame:
    records = [
        _column_keys(column) | {"model": model, "rank": rank, "share": share}
        for column in columns
        for model, shares in column.shares().items()
        for rank, share in shares.items()
    ]
    return pd.DataFrame.from_records(records, columns=[*_KEYS, "model", "rank", "share"])


def _significance_frame(columns: Sequence[RankColumn]) -> pd.DataFrame:
    names = ["model", "other", "n", "p", "corrected_p", "significant"]
    records = [
        _column_keys(column) | {name: getattr(test, name) for name in names}
        for column in columns
        for test in column.tests
    ]
    return pd.DataFrame.from_records(records, columns=[*_KEYS, *names])


def check_weights(weights: Mapping[str, float], metrics: Sequence[str] | None) -> list[str]:
    """Returns the metrics that are weighed; raises UsageError where weights are invalid."""
    if metrics is not None:
        raise UsageError("weights= names the metrics that models are ranked by; leave metrics= out")
    if not weights:
        raise UsageError("weights= names no metric; write weights='{ssim: 0.5, psnr: 0.5}'")
    for metric, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise UsageError(f"weights: expected a number above 0 for {metric!r}, got {weight!r}")
    return list(weights)


def column_weights(columns: Sequence[RankColumn], weights: Mapping[str, float] | None) -> npt.NDArray[np.float64]:
    """Returns column weights by metric; 1 where unweighted.

    Raises:
        UserError: A data set lacks one of the metrics, so that its sum of ranks would be of other metrics.
    """
    if weights is None:
        return np.ones(len(columns))
    held = grouped(((column.field.task, column.field.label), column.column.metric) for column in columns)
    for (task, label), columns_ in held.items():
        if lacking := [metric for metric in weights if metric not in columns_]:
            where = f"{task}, {label}" if label else task
            raise UserError(
                f"{where} has no value of {lacking[0]} for every model, which weights= names; leave that task out"
            )
    return np.array([weights[column.column.metric] for column in columns], dtype=np.float64)


def pool(runs: Sequence[RunScores]) -> list[RunScores]:
    """Returns a run per model pooling all its tasks' cases.

    Each case counts the same.

    Patients keep their names, so that a patient of two tasks is drawn for both; where a task names none its case does,
    as the same scan with fewer samples has the same name. Unfinished runs are left out, and so are values of sets.

    Raises:
        UserError: No run is finished, or a model has two runs of one task.
    """
    finished = [run for run in runs if run.finished]
    if not finished:
        raise UserError("No run is finished, so there is nothing to rank")
    refuse_other_salts(finished)
    tasks = list(dict.fromkeys(run.task for run in finished))
    if len(tasks) == 1:
        return finished
    models: dict[str, dict[str, RunScores]] = {}
    for run in finished:
        own = models.setdefault(run.name, {})
        if run.task in own:
            raise UserError(
                f"{run.name} has two runs of {run.task}, {own[run.task].folder} and {run.folder}; name the one to pool"
            )
        own[run.task] = run
    return [_pool_runs([own[task] for task in tasks if task in own], tasks) for own in models.values()]


def _pool_runs(runs: Sequence[RunScores], tasks: Sequence[str]) -> RunScores:
    parts = []
    for run in runs:
        owners = run.scores["patient" if run.resampled == "patients" else "case"]
        rows = run.scores.assign(task=" + ".join(tasks), patient=owners)
        parts.append(rows.assign(case=f"{run.task}/" + rows["case"].astype(str)))
    return replace(
        runs[0],
        task=" + ".join(tasks),
        task_title=" + ".join(tasks),
        cases=sum(run.cases for run in runs),
        predicted=sum(run.predicted for run in runs),
        failed_cases=sum(run.failed_cases for run in runs),
        data_fingerprint=" ".join(run.data_fingerprint for run in runs),
        resampled="patients",
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        scores=pd.concat(parts, ignore_index=True),
        sets=pd.DataFrame(columns=list(SCORE_COLUMNS)),
    )
