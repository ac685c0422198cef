"""What a reader must know of tables of questions (denominators, chance, time and cost) and of values of sets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from medimg_eval import metrics
from medimg_eval.arguments import grouped
from medimg_eval.metrics.fidelity import tracks_n
from medimg_eval.metrics.generation import GROUPS
from medimg_eval.results.runs import WHOLE, is_known, listed, set_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from medimg_eval.metrics.fidelity import SetValue
    from medimg_eval.results.runs import RunScores
    from medimg_eval.results.table.cells import Cell, Column

CHANCE = "Chance"
"""Name of the baseline that guesses."""
NULLS = {"unparsed": "not understood", "refused": "refused", "empty": "empty"}
"""Statuses of replies that no answer could be taken from."""
LEAST_SECONDS = 1.0
"""Of a run that took less, the share of the time that was not the model's says nothing."""


def question_basis(title: str, runs: Sequence[RunScores]) -> str:
    """Returns the questions or reports behind a task's numbers.

    Args:
        title: The task's title.
        runs: Its runs, finished or not.
    """
    sizes = sorted({run.cases for run in runs})
    basis = f"{title}: n = {' or '.join(f'{size:,}' for size in sizes)} {runs[0].noun}"
    grouped = [run for run in runs if run.finished and run.resampled == "patients"]
    groups = sorted({int(run.scores["patient"].nunique()) for run in grouped})
    if groups:
        counts = " or ".join(f"{size:,}" for size in groups)
        reports = runs[0].noun == "reports"
        basis += f" of {counts} patients" if reports else f" in {counts} groups (of one patient, image or set)"
    return basis


def chance_note(title: str, runs: Sequence[RunScores], shown: Sequence[str]) -> Iterator[str]:
    """Yields what guessing is worth, unless a row of the table says so.

    Args:
        title: The task's title.
        runs: Its finished runs.
        shown: The metrics of its columns.
    """
    rows = {run.data_fingerprint for run in runs if run.model == CHANCE}
    for data, chance in {run.data_fingerprint: run.chance for run in runs if run.chance}.items():
        chances = {name: value for name, value in chance.items() if name in shown and is_known(name)}
        if data not in rows and chances:
            yield f"{title}: chance {_chance_text(chances)}."


def _chance_text(values: Mapping[str, float]) -> str:
    texts = []
    for name, value in values.items():
        unit = metrics.get(name).unit
        text = f"{value:.3f} {unit}" if unit else f"{100 * value:.1f} %"
        texts.append(text if len(values) == 1 else f"{text} ({metrics.title(name)})")
    return ", ".join(texts)


def question_facts(run: RunScores) -> Iterator[str]:
    """Yields unanswered replies, harness time share and cost."""
    # Where a metric raised, its row says nothing of the reply.
    statuses = run.scores.loc[run.scores["status"] != "error"].drop_duplicates("case")["status"].value_counts()
    nulls = {word: int(statuses[status]) for status, word in NULLS.items() if status in statuses}
    if nulls:
        parts = ", ".join(f"{number:,} {word}" for word, number in nulls.items())
        total = sum(nulls.values())
        yield f"no answer in {total:,} of {run.cases:,} replies ({100 * total / run.cases:.1f} %): {parts}"
    long_enough = run.timing.get("seconds", LEAST_SECONDS) >= LEAST_SECONDS and not run.baseline
    if long_enough and (overhead := run.timing.get("overhead")) is not None:
        seconds = f" of {run.timing['seconds']:,.0f} s" if "seconds" in run.timing else ""
        yield f"harness overhead {100 * overhead:.1f} %{seconds}"
    if used := [_setting_text(name, value) for name, value in run.usage.items() if value]:
        yield f"used {', '.join(used)}"


def _setting_text(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{words} {value}"
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
    return f"{number} {words}" if words.endswith("s") else f"{words} {number}"


Found = tuple["Column", "SetValue"]

INSTEAD = {"fidelity": "real images in their place", "privacy": "hold-out images in their place"}
"""What the floor of a metric is of, by the side of the card that it belongs to."""


def set_notes(title: str, cells: Mapping[str, Iterable[tuple[Column, Cell]]]) -> Iterator[str]:
    """Yields the basis of set values, merged where shared.

    Args:
        title: Of the task.
        cells: The cells of each model.
    """
    by_fact = grouped((fact, name) for name, of_model in cells.items() for fact in _value_notes(of_model))
    for fact, names in by_fact.items():
        yield f"{title}: {fact}." if len(names) == len(cells) else f"{title}, {', '.join(names)}: {fact}."


def _value_notes(cells: Iterable[tuple[Column, Cell]]) -> Iterator[str]:
    """Yields counts and extractors, floors, intervals and flags of one model's values."""
    set_values = [(column, cell.of_set.value) for column, cell in cells if cell.of_set is not None]
    there = [(column, set_value) for column, set_value in set_values if not math.isnan(set_value.value)]
    yield from _join_notes(there, _basis_text)
    floors: dict[str, list[str]] = {}
    for column, set_value in there:
        if not math.isnan(set_value.floor):
            group = GROUPS.get(metrics.get(column.metric).name, "fidelity")
            floor_text = f"{INSTEAD[group]}, n = {set_value.floor_n}" if set_value.floor_n else "expected by chance"
            floors.setdefault(floor_text, []).append(f"{metrics.title(column.metric)} {column.text(set_value.floor)}")
    for floor_text, texts in floors.items():
        yield f"{floor_text}: {', '.join(texts)}"
    yield from _join_notes(there, lambda one: f"interval: {one.interval}" if one.interval else "no interval is known")
    for flag in dict.fromkeys(flag for _, set_value in set_values for flag in set_value.flags):
        yield f"{_metric_titles([column for column, set_value in set_values if flag in set_value.flags])}: {flag}"


def set_warnings(title: str, runs: Mapping[str, RunScores], columns: Sequence[Column]) -> Iterator[str]:
    """Yields that set values depend on sizes, hindering ranks.

    Findings follow the number of images; sets of other sizes are not ranked.
    """
    for column in columns:
        sizes_ = {}
        for name, run in runs.items():
            rows = [row for row in set_rows(run) if row.metric == column.metric]
            for row in rows:
                if (row.label, row.where) == (WHOLE, ()) and row.value.depends_on_n:
                    sizes_[name] = (row.value.n_real, row.value.n_generated)
            _, warning = tracks_n({row.label: row.value for row in rows if row.label != WHOLE})
            if warning:
                yield f"Warning: {title}, {name}, findings: {warning}"
        if len(set(sizes_.values())) > 1:
            sizes = "; ".join(f"{name} {m} against {n} real ones" for name, (n, m) in sizes_.items())
            yield f"Warning: {title}: {column.title} drifts with the number of images and is not ranked: {sizes}."


def _basis_text(one: SetValue) -> str:
    features = f", {one.d} features of {one.extractor}" if one.d else ""
    return f"{one.n_generated} pictures against {one.n_real} real images{features}"


def _join_notes(found: Sequence[Found], text: Callable[[SetValue], str]) -> Iterator[str]:
    """Yields notes per value, merging equal ones."""
    titles = grouped((text(value), column) for column, value in found)
    yield from (f"{_metric_titles(columns)}: {text}" for text, columns in titles.items())


def _metric_titles(columns: Sequence[Column]) -> str:
    return listed(list(dict.fromkeys(metrics.title(column.metric) for column in columns)))
