"""The table of a study of utility: value and gain by each metric for all that was trained on; that side of a card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from medimg_eval.arguments import grouped
from medimg_eval.errors import UserError
from medimg_eval.metrics.fidelity import SetValue
from medimg_eval.results.runs import listed
from medimg_eval.results.statistics import FEWEST, Estimate
from medimg_eval.results.table import (
    NO_RUN,
    Column,
    Heading,
    Layout,
    Line,
    Span,
    bounded,
    make_column,
    make_columns,
    one_line,
)
from medimg_eval.results.utility.studies import (
    AUGMENTED,
    FEW_SEEDS,
    GAIN,
    SYNTHETIC,
    TSTR,
    Study,
    Trained,
    Worth,
    find_worths,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from medimg_eval.results.runs import RunScores


@dataclass(frozen=True, eq=False)
class UtilityTable:
    """Table of the value of training on each setting and fraction.

    Attributes:
        study: the study.
        columns: a metric each.
        worths: by metric, of each row.
        footnotes: what the numbers rest on.
    """

    study: Study
    columns: tuple[Column, ...]
    worths: Mapping[str, Sequence[Worth]]
    footnotes: tuple[str, ...]

    @property
    def rows(self) -> list[list[Trained]]:
        """The models of each row."""
        return list(grouped(((trained.setting, trained.fraction), trained) for trained in self.study.trained).values())

    def layout(self) -> Layout:
        """Returns every text in its place and style."""
        headings = [Heading("", title) for title in ("Seeds", "Real", "Synthetic")]
        groups = [("", len(headings))]
        for column in self.columns:
            title = one_line(column.title)
            headings += [Heading(title, f"Value {column.arrow}".rstrip()), Heading(title, "Less real")]
            groups.append((title, 2))
        lines = [
            _table_line(members, self.columns, [self.worths[column.metric][index] for column in self.columns])
            for index, members in enumerate(self.rows)
        ]
        caption = f"Utility on {one_line(self.study.title)}"
        return Layout(groups, headings, lines, list(map(one_line, self.footnotes)), ["Setting", "Data"], caption)

    def frame(self) -> pd.DataFrame:
        """Returns one row per setting, fraction and metric, with unrounded numbers."""
        records = [
            _value_record(self.study, members, column, self.worths[column.metric][index])
            for index, members in enumerate(self.rows)
            for column in self.columns
        ]
        return pd.DataFrame.from_records(records)

    def wrapped(self, fits: Callable[[UtilityTable], bool]) -> list[UtilityTable]:
        """Returns tables of neighbouring metrics that fit, at least one.

        Args:
            fits: whether a table is narrow enough.
        """
        parts: list[UtilityTable] = []
        for column in self.columns:
            wider = None if not parts else replace(parts[-1], columns=(*parts[-1].columns, column))
            if wider is not None and fits(wider):
                parts[-1] = wider
            else:
                parts.append(replace(self, columns=(column,), footnotes=()))
        return parts


def build_utility(
    study: Study,
    *,
    metrics: Sequence[str] | None = None,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> UtilityTable:
    """Builds the table of a study.

    Args:
        study: as `load_utility` returns them.
        metrics: to show, in this order; None shows those of the task.
        resamples: of the bootstrap; summaries take at most 1,000.
        level: of the intervals.
        seed: of the bootstrap.

    Raises:
        UsageError: there are no scores of one of `metrics`.
        UserError: nothing was trained to the end.
    """
    if not study.runs:
        failures = [trained.failure for trained in study.trained if trained.failure]
        raise UserError(f"{study.folder}: no model was trained and tested to the end; {'; '.join(failures[:1])}")
    columns = [column for column in make_columns(study.runs, metrics)[0] if column.metric]
    worths = {
        column.metric: find_worths(study, column.metric, resamples=resamples, level=level, seed=seed)
        for column in columns
    }
    return UtilityTable(study, tuple(columns), worths, tuple(_study_notes(study, level)))


def _table_line(members: Sequence[Trained], columns: Sequence[Column], worths: Sequence[Worth]) -> Line:
    first = members[0]
    case_counts = [member.cases for member in members if member.run is not None]
    counts = [f"{np.mean([count[side] for count in case_counts]):.0f}" if case_counts else NO_RUN for side in (0, 1)]
    cells = [[Span(str(len(case_counts)))], *([Span(text)] for text in counts)]
    for column, worth in zip(columns, worths, strict=True):
        cells += [_value_spans(column, worth.value), _value_spans(column, worth.gain, signed=True)]
    return Line([first.setting, f"{100 * first.fraction:g} %"], cells)


def _value_spans(column: Column, found: Estimate, *, signed: bool = False) -> list[Span]:
    def text(value: float) -> str:
        plus = "+" if signed and round(value, column.decimals) > 0 else ""
        return plus + column.text(value)

    return bounded(*found, text, unknown=NO_RUN)


def _value_record(study: Study, members: Sequence[Trained], column: Column, worth: Worth) -> dict[str, Any]:
    done = [member for member in members if member.run is not None]
    return {
        "task": study.task,
        "model": study.model,
        "setting": worth.setting,
        "fraction": worth.fraction,
        "seeds": worth.seeds,
        "real_cases": float(np.mean([member.cases[0] for member in done])) if done else np.nan,
        "synthetic_cases": float(np.mean([member.cases[1] for member in done])) if done else np.nan,
        "metric": column.metric,
        "name": TSTR if worth.setting == SYNTHETIC else "",
        **worth.value._asdict(),
        "gain_name": GAIN if worth.setting == AUGMENTED else "",
        **dict(zip(("gain", "gain_low", "gain_high"), worth.gain, strict=True)),
        "paired_seeds": worth.paired,
    }


def _study_notes(study: Study, level: float) -> list[str]:
    runs = study.runs
    unit = runs[0].unit
    patients = runs[0].scores["patient" if unit == "patients" else "case"].nunique()
    tested = f"{runs[0].cases} real cases" + (f" of {patients} patients" if unit == "patients" else "")
    about = (
        f"{study.model}, trained anew for each setting, fraction and seed, tested on the same {tested}. Real and "
        "Synthetic: cases that it was trained on. Validation cases, which choose the checkpoint, are real."
    )
    names = (
        "Value of synthetic: TSTR (train on synthetic, test on real). Less real of augmented: the augmentation gain. "
        f"Less real: paired by seed, fraction and {unit}."
    )
    how = f"[{100 * level:g} % interval]: bootstrap over {unit}, the same for all rows, and Student's over seeds."
    if patients < FEWEST:
        how += f" Fewer than {FEWEST} {unit} are too few for any."
    notes = [about, names, how]
    rows = dict.fromkeys((trained.setting, trained.fraction) for trained in study.trained)
    done = {
        which: sum((trained.setting, trained.fraction) == which for trained in study.trained if trained.run)
        for which in rows
    }
    if few := [f"{setting} at {100 * fraction:g} %" for (setting, fraction), n in done.items() if n < FEW_SEEDS]:
        notes.append(
            f"Fewer than {FEW_SEEDS} seeds: {listed(few)}. Of one, the interval knows nothing of other trainings."
        )
    if missing := [trained for trained in study.trained if trained.run is None]:
        first = next((trained for trained in missing if trained.failure), None)
        why = f"; {first.name}: {first.failure.splitlines()[0]}" if first else ""
        notes.append(f"{len(missing)} of {len(study.trained)} models are missing{why}")
    if len({run.data_fingerprint for run in runs}) > 1:
        notes.append("The test cases have changed between runs, so that differences are not of the models alone.")
    failed = sum(run.failed_cases for run in runs)
    if failed:
        notes.append(f"{failed} cases failed over all models, and count with the worst value.")
    return [*notes, *dict.fromkeys(note for run in runs for note in run.notes)]


Side = dict[Column, dict[str, SetValue]]
"""By column, and by the id of a run of synthesis."""

TITLES = {TSTR: "TSTR", GAIN: "Augmentation gain"}


def utility_of_card(
    runs: Sequence[RunScores], studies: Sequence[Study], *, resamples: int = 10_000, level: float = 0.95, seed: int = 0
) -> dict[str, Side]:
    """Returns the utility side of the card of each task of synthesis.

    A study belongs to the run whose pictures were trained on, and to other runs of the same model with the same
    settings, such as one that answered other prompts. Of a study its largest fraction counts: its TSTR, and its
    augmentation gain, signed so that more is better.

    Args:
        runs: of synthesis, as `load_runs` returns them.
        studies: as `load_utility` returns them.
        resamples: of the bootstrap; summaries take at most 1,000.
        level: of the intervals.
        seed: of the bootstrap.

    Raises:
        UserError: two studies of one task and model were trained on the pictures of one run.
    """
    used = [study for study in studies if study.runs and any(_is_of(study, run) for run in runs)]
    pairs = {(study.task, study.model) for study in used}
    tasks = {task for task, _ in pairs}
    named = ["task"] * (len(tasks) > 1) + ["model"] * (len(tasks) < len(pairs))
    sides: dict[str, Side] = {}
    studies_by_key: dict[tuple[str, str, str], Study] = {}
    for study in used:
        columns = list(_study_columns(study, named, resamples=resamples, level=level, seed=seed))
        for run in (run for run in runs if _is_of(study, run)):
            first = studies_by_key.setdefault((run.run, study.task, study.model), study)
            if first is not study:
                raise UserError(
                    f"{first.folder} and {study.folder} both hold models called {study.model!r} that were trained on "
                    f"pictures of {run.model!r}; name one of them"
                )
            for column, value in columns:
                sides.setdefault(run.task, {}).setdefault(column, {})[run.run] = value
    return sides


def _is_of(study: Study, run: RunScores) -> bool:
    synthetic = study.synthetic
    is_same = (synthetic.get("task"), synthetic.get("model"), synthetic.get("settings")) == (
        run.task,
        run.model,
        run.settings,
    )
    return is_same or synthetic.get("run") == run.run


def _study_columns(
    study: Study, named: Sequence[str], *, resamples: int, level: float, seed: int
) -> Iterator[tuple[Column, SetValue]]:
    """Yields a study's columns and values; `named` distinguishes studies."""
    metrics = {metric for run in study.runs for metric in run.metrics}
    UserError.refuse_unknown(f"{study.folder}: has no scores of", metrics, study.metric)
    column = make_column(study.task, "Utility", study.metric, study.runs[0])
    worths = find_worths(study, study.metric, resamples=resamples, level=level, seed=seed)
    largest = max(worth.fraction for worth in worths)
    better = column.higher_is_better is not False
    about = ", ".join([column.title, *(getattr(study, name) for name in named)])
    for worth in (worth for worth in worths if worth.fraction == largest):
        if worth.setting == SYNTHETIC:
            column_ = Column(study.task, "Utility", TSTR, f"{TITLES[TSTR]}: {about}", better, column.decimals)
            yield column_, _set_value(study, worth, worth.value)
        if worth.setting == AUGMENTED and worth.paired:
            gain = worth.gain if better else Estimate(-worth.gain.value, -worth.gain.high, -worth.gain.low)
            column_ = Column(study.task, "Utility", GAIN, f"{TITLES[GAIN]}: {about}", True, column.decimals)
            yield column_, _set_value(study, worth, gain)


def _set_value(study: Study, worth: Worth, found: Estimate) -> SetValue:
    which = (worth.setting, worth.fraction)
    counts = [
        trained.cases[1]
        for trained in study.trained
        if trained.run is not None and (trained.setting, trained.fraction) == which
    ]
    over = f"bootstrap over {study.runs[0].unit}"
    over += f", Student's distribution over {worth.seeds} seeds" if worth.seeds > 1 else " alone, of one seed"
    return SetValue(
        metric=study.metric,
        value=found.value,
        n_real=study.runs[0].cases,
        n_generated=round(float(np.mean(counts))),
        d=0,
        low=found.low,
        high=found.high,
        interval=(
            f"{study.model} on {study.title}, {100 * worth.fraction:g} % of the data, tested on {study.runs[0].cases} "
            f"real cases; {over}"
        ),
        flags=(f"few_seeds: fewer than {FEW_SEEDS}",) if worth.seeds < FEW_SEEDS else (),
    )
