"""Coverage and size of conformal sets, intervals and thresholds of runs, overall and by group, as sheets."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.errors import UsageError
from medimg_eval.metrics.conformal import METHODS, coverage_interval, fewest_cases
from medimg_eval.results.confidence.conformal_problems import Method, Problem, problems_of
from medimg_eval.results.runs import attribute_names
from medimg_eval.results.statistics import Bootstrap, Sample, table_intervals
from medimg_eval.results.table import Layout, Line, Sheet, Span, bounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from medimg_eval.results.confidence.conformal_problems import Floats, Ints, Outcome
    from medimg_eval.results.runs import RunScores

SPLITS = 100
"""Random halves of test cases, where there are no validation cases."""
SHOWN = "shown "
"""Before the id of a case that is shown under a condition."""
FEWEST_OF_SIZE = 10
"""Units of a size that its coverage is judged by."""
COLUMNS = {
    "sets": ("n", "Coverage ↑", "Size ↓", "Empty", "One", "All", "Worst by size"),
    "intervals": ("n", "Coverage ↑", "Width ↓", "Endless"),
    "thresholds": ("n", "Missed share ↓", "Threshold", "Without"),
}
TITLES = {"sets": "Conformal sets", "intervals": "Conformal intervals", "thresholds": "Risk control"}


@dataclass(frozen=True, kw_only=True)
class ConformalSettings:
    """How sets are made and judged.

    Attributes:
        alpha: the share that may be missed.
        method: of sets: "lac", "aps" or "raps".
        by: attribute of the cases whose groups are shown, too; "" for none.
        per_group: whether each group has a quantile of its own (Mondrian).
        splits: random halves of the cases, by patient, of runs without a validation run.
        level: of intervals.
        seed: of splits, of randomised scores and of the bootstrap.
        resamples: of the bootstrap.
    """

    alpha: float = 0.1
    method: str = "lac"
    by: str = ""
    per_group: bool = False
    splits: int = SPLITS
    level: float = 0.95
    seed: int = 0
    resamples: int = 10_000

    def check(self, runs: Sequence[RunScores]) -> None:
        """Raises UsageError for a setting that cannot be used."""
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, int | float) or not 0 < self.alpha < 1:
            raise UsageError(f"alpha is invalid: expected a share between 0 and 1, such as 0.1, got {self.alpha!r}")
        UsageError.refuse_invalid("method", METHODS, self.method)
        if not isinstance(self.splits, int) or isinstance(self.splits, bool) or self.splits < 1:
            raise UsageError(f"splits is invalid: expected a whole number of at least 1, got {self.splits!r}")
        if self.by:
            UsageError.refuse_unknown("No case has an attribute", attribute_names(runs), self.by)
        elif self.per_group:
            raise UsageError("per_group is invalid: expected by= beside it, such as by=sex, got none")


class Row(NamedTuple):
    """One group of one problem; the fields are those of the sheet's columns."""

    model: str
    label: str
    group: str
    n: int
    coverage: float
    low: float
    high: float
    size: float
    empty: float
    single: float
    all: float
    worst: float
    calibration: float


def cover_runs(pairs: Sequence[tuple[RunScores, RunScores | None]], how: ConformalSettings) -> list[Sheet]:
    """Judges conformal coverage of runs, a sheet per kind and task.

    Args:
        pairs: as `pair_runs` makes them: with a validation run, that calibrates and all test cases are judged; without,
            random halves of the patients calibrate and the others are judged.
        how: settings.

    Raises:
        UsageError: a setting cannot be used.
    """
    how.check([run for run, _ in pairs])
    rows: dict[tuple[str, str], list[tuple[Row, Problem]]] = {}
    for run, validation in pairs:
        for problem, rows_ in (*_judge_problems(run, validation, how), *_under_conditions(run, validation, how)):
            rows.setdefault((run.task_title or run.task, problem.kind), []).extend((row, problem) for row in rows_)
    halved = any(validation is None for _, validation in pairs)
    return [_coverage_sheet(task, kind, part, how, halved=halved) for (task, kind), part in rows.items()]


def _judge_problems(
    run: RunScores, validation: RunScores | None, how: ConformalSettings
) -> Iterator[tuple[Problem, list[Row]]]:
    method = Method(how.method, how.alpha, how.per_group)  # type: ignore[arg-type]  # checked before
    if validation is None:
        for problem in problems_of(run, how.by):
            yield problem, _by_group(run.name, problem, _draw_halves(problem, how), method, how)
        return
    both = replace(run, scores=pd.concat([validation.scores, run.scores], ignore_index=True))
    fitted = set(validation.scores["case"].astype(str))
    for problem in problems_of(both, how.by):
        calibrates = problem.rows["case"].isin(fitted).to_numpy()
        yield (
            problem,
            _by_group(run.name, problem, [(np.flatnonzero(calibrates), np.flatnonzero(~calibrates))], method, how),
        )


def _under_conditions(
    run: RunScores, validation: RunScores | None, how: ConformalSettings
) -> Iterator[tuple[Problem, list[Row]]]:
    """Judges conditions by calibration on other patients' published cases."""
    method = Method(how.method, how.alpha)  # type: ignore[arg-type]  # checked before
    fitting = _own_clusters(run if validation is None else validation)
    for condition in run.conditions:
        degraded = _own_clusters(run.under(condition))
        degraded["case"] = SHOWN + degraded["case"].astype(str)
        both = replace(run, resampled="patients", scores=pd.concat([fitting, degraded], ignore_index=True))
        for problem in problems_of(both, ""):
            varied = problem.rows["case"].str.startswith(SHOWN).to_numpy()
            splits = [(np.flatnonzero(~varied), np.flatnonzero(varied))]
            if validation is None:
                halves = _draw_halves(problem, how)
                splits = [(first[~varied[first]], second[varied[second]]) for first, second in halves]
            rows = _by_group(run.name, problem, splits, method, replace(how, by="", per_group=False))
            yield problem, [row._replace(group=condition) for row in rows]


def _own_clusters(run: RunScores) -> pd.DataFrame:
    """Returns scores whose patient is what is resampled."""
    return run.scores.assign(patient=run.scores["patient" if run.resampled == "patients" else "case"].astype(str))


def _draw_halves(problem: Problem, how: ConformalSettings) -> list[tuple[Ints, Ints]]:
    """Returns random halves of the clusters: units to calibrate on, and to judge."""
    names, owner = np.unique(problem.rows["cluster"].to_numpy(dtype=str), return_inverse=True)
    rng = np.random.default_rng(how.seed)
    halves = []
    for _ in range(how.splits):
        chosen = np.zeros(len(names), bool)
        chosen[rng.permutation(len(names))[: len(names) // 2]] = True
        halves.append((np.flatnonzero(chosen[owner]), np.flatnonzero(~chosen[owner])))
    return halves


def _by_group(
    model: str, problem: Problem, splits: Sequence[tuple[Ints, Ints]], method: Method, how: ConformalSettings
) -> list[Row]:
    rng = np.random.default_rng(how.seed)
    judged = [(ends, problem.judge(*ends, method, rng)) for ends in splits if len(ends[0]) and len(ends[1])]
    if not judged:
        return []
    names = problem.rows["group"].to_numpy(dtype=str)
    groups = ["", *sorted(set(names) - {""})] if how.by else [""]
    return [_summary_row(model, problem, group, judged, how) for group in groups]


def _summary_row(
    model: str,
    problem: Problem,
    group: str,
    made: Sequence[tuple[tuple[Ints, Ints], Outcome]],
    how: ConformalSettings,
) -> Row:
    """Summarises a group: mean with percentiles, or a table's interval."""
    names, clusters = (problem.rows[name].to_numpy(dtype=str) for name in ("group", "cluster"))
    parts = []
    for (calibration, evaluation), outcome in made:
        chosen = (names[evaluation] == group) if group else np.ones(len(evaluation), bool)
        ruling = calibration[names[calibration] == group] if group and how.per_group else calibration
        most = problem.most[evaluation][chosen]
        parts.append((outcome.held[chosen], outcome.size[chosen], most, clusters[evaluation][chosen], len(ruling)))
    coverages = np.array([held.mean() if held.size else math.nan for held, *_ in parts])
    defined = coverages[~np.isnan(coverages)]
    low = high = math.nan
    if len(parts) == 1:
        held, _, _, owner, _ = parts[0]
        share = problem.kind != "thresholds"
        bootstrap = Bootstrap(how.resamples, how.level, how.seed)
        interval = table_intervals([Sample(held, owner, share=share)], bootstrap)[0]
        low, high = interval.low, interval.high
    elif defined.size:
        low, high = np.quantile(defined, [(1 - how.level) / 2, (1 + how.level) / 2])
    sizes = np.concatenate([size for _, size, *_ in parts])
    held = np.concatenate([part[0] for part in parts])
    most = np.concatenate([part[2] for part in parts])
    units = int(np.count_nonzero(names[made[0][0][1]] == group)) if group and len(made) == 1 else len(held) // len(made)
    return Row(
        model=model,
        label=problem.title,
        group=group or "all cases",
        n=units,
        coverage=_defined_mean(defined),
        low=float(low),
        high=float(high),
        size=_defined_mean(sizes[~np.isnan(sizes)]),
        empty=_defined_mean(np.nan_to_num(sizes) == 0),
        single=_defined_mean(sizes == 1),
        all=_defined_mean(sizes == most),
        worst=_worst_by_size(held, sizes) if problem.kind == "sets" else math.nan,
        calibration=float(np.mean([part[4] for part in parts])),
    )


def _defined_mean(values: npt.NDArray[Any]) -> float:
    return float(values.mean()) if values.size else math.nan


def _worst_by_size(held: Floats, sizes: Floats) -> float:
    """Returns the lowest coverage among frequent set sizes."""
    counted = [size for size in np.unique(sizes[sizes > 0]) if (sizes == size).sum() >= FEWEST_OF_SIZE]
    shares = [held[sizes == size].mean() for size in counted]
    return float(min(shares)) if shares else math.nan


def _coverage_sheet(
    task: str, kind: str, rows: Sequence[tuple[Row, Problem]], how: ConformalSettings, *, halved: bool
) -> Sheet:
    lines, records, before = [], [], ""
    for row, problem in rows:
        lines.append(
            Line([row.model, row.label, row.group], _row_cells(row, problem), bool(before) and before != row.model)
        )
        before = row.model
        records.append({"task": task, "kind": kind, "alpha": how.alpha, "unit": problem.unit, **row._asdict()})
    title = f"{TITLES[kind]}{f' ({how.method.upper()})' if kind == 'sets' else ''}"
    caption = f"{title} for {1 - how.alpha:g} coverage on {task}"
    if kind == "thresholds":
        caption = f"{title} for a missed share of {how.alpha:g} at most on {task}"
    stubs = ["Model", "Label", "Group"]
    content = Layout.of_block(caption, COLUMNS[kind], lines, list(_coverage_notes(kind, rows, how, halved)), stubs)
    return Sheet(content, pd.DataFrame.from_records(records))


def _shows_cases(problem: Problem) -> bool:
    """Whether cases of a problem are shown under a condition."""
    return bool(problem.rows["case"].str.startswith(SHOWN).any())


def _row_cells(row: Row, problem: Problem) -> list[list[Span]]:
    def text(value: float) -> str:
        return "undefined" if math.isnan(value) else "endless" if math.isinf(value) else f"{value:.3f}"

    coverage = bounded(row.coverage, row.low, row.high, text)
    cells = [[Span(str(row.n))], coverage, [Span(f"{text(row.size)} {problem.unit}".strip())]]
    if problem.kind == "sets":
        cells[2] = [Span(text(row.size))]
        cells += [[Span(text(value))] for value in (row.empty, row.single, row.all, row.worst)]
    elif problem.kind == "intervals":
        cells.append([Span(text(row.all))])
    else:
        cells[2:] = [[Span(text(row.size))], [Span(text(row.empty))]]
    return cells


def _coverage_notes(
    kind: str, rows: Sequence[tuple[Row, Problem]], how: ConformalSettings, halved: bool
) -> Iterator[str]:
    conditions = dict.fromkeys(row.group for row, problem in rows if _shows_cases(problem))
    percent = f"{100 * how.level:g} %"
    if halved:
        yield (
            f"No validation run: means over {how.splits} random halves of the patients, of which one calibrates and "
            f"the other is judged, with the {percent} range of the halves."
        )
    else:
        yield f"Calibrated on the validation run alone; [{percent} interval, as tables have it]."
    if kind != "thresholds":
        first = rows[0][0]
        low, high = coverage_interval(round(first.calibration), max(first.n, 1), how.alpha, how.level)
        yield (
            f"By chance alone coverage of {first.n} cases after {first.calibration:.0f} calibration cases lies in "
            f"[{low:.3f}, {high:.3f}] where cases are independent."
        )
        yield f"Fewer than {fewest_cases(how.alpha)} calibration cases give sets of all labels and endless intervals."
    if kind == "sets":
        yield f"Worst by size: the lowest coverage among sets of one size above 0, of {FEWEST_OF_SIZE} sets at least."
    if conditions:
        yield f"Under {', '.join(conditions)}: calibrated on cases as published, which other patients have."
    if kind == "thresholds":
        yield "Without: the share of splits, or of cases, for which no threshold of those asked for misses as little."
    if how.per_group:
        yield f"Each group by {how.by} has a quantile of its own (Mondrian)."
