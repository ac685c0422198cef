"""Whether models serve groups of cases alike: a sheet of groups and one of disparities for each task and metric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results.runs import LABEL, UNKNOWN, Part, attribute_names, crossed_attributes, is_set, is_summary
from medimg_eval.results.statistics import (
    FEWEST,
    MOST_RESAMPLES,
    Disparity,
    DisparitySettings,
    disparity,
    holm,
    judged,
    odds,
    on_unit_scale,
)
from medimg_eval.results.table import (
    Cell,
    Comparison,
    Layout,
    Line,
    Settings,
    Sheet,
    Span,
    bounded,
    check_numbers,
    comparability,
    make_cell,
    make_column,
    make_columns,
    named_runs,
    one_line,
    p_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from medimg_eval.results.runs import RunScores
    from medimg_eval.results.statistics import Estimate
    from medimg_eval.results.table import Column

PROBABILITY = "probability"
"""The evidence that rates of true and false positives are counted from."""


_ODDS = """
Largest minus smallest rate between groups of true positives (equal opportunity) and of false positives, and the larger
of both, the difference in equalised odds (Hardt et al. 2016); rates are means over classes, a class being present above
0.5, or where classes exclude each other if it is the most probable. Over groups of at least {min_group_size} cases.
"""


class _Judged(NamedTuple):
    """One model under one attribute."""

    model: str
    run: RunScores
    found: Disparity
    corrected: float
    """The p-value, corrected for the number of attributes."""
    cells: dict[str, Cell]
    """Of all cases, under "", and of each group."""


def judge_fairness(
    runs: Sequence[RunScores],
    *,
    by: Sequence[str],
    metrics: Sequence[str] | None = None,
    how: DisparitySettings | None = None,
) -> Comparison:
    """Says of each model how its values differ between groups of cases.

    Args:
        runs: As `load_runs` returns them; unfinished ones are left out.
        by: Attributes of the cases, or several crossed, as in "sex*site".
        metrics: Metrics of cases, and summaries; None takes those of each task.
        how: Which groups count, and how intervals are made; None takes those of `DisparitySettings`.

    Returns:
        Sheets of each task and metric: the groups, and how they differ; then of rates, where there are probabilities.

    Raises:
        UsageError: If there is no such metric or attribute, or a setting is invalid.
        UserError: If no run is finished, or one has no value of a metric.
    """
    how = DisparitySettings() if how is None else how
    finished = [run for run in runs if run.finished]
    if not finished:
        raise UserError("No finished run to divide into groups; run `python -m medimg_eval test` first")
    _check_settings(finished, by, how)
    columns = [column for column in make_columns(finished, metrics)[0] if not is_set(column.metric)]
    if not columns:
        raise UsageError("fairness divides values of cases into groups, and there are only those of sets of pictures")
    sheets: list[Sheet] = []
    for column in columns:
        models = _models_on_task(finished, column.task)
        if empty := [name for name, run in models.items() if not judged(Part.whole(run), column.metric).n]:
            raise UserError(
                f"No case of {', '.join(empty)} has a value of {column.title} ({column.group}), so it has no groups to "
                "compare; name other metrics=, or other runs"
            )
        judged_models = list(_judge_disparities(column, models, by, how))
        sheets += [_group_sheet(column, judged_models, how), _disparity_sheet(column, judged_models, how)]
    sheets += _odds_sheets(finished, by, how)
    return Comparison(one_line(f"Groups by {', '.join(by)}"), tuple(sheets))


def _check_settings(runs: Sequence[RunScores], by: Sequence[str], how: DisparitySettings) -> None:
    check_numbers(how.resamples, how.level, how.seed)
    if not isinstance(how.min_group_size, int) or isinstance(how.min_group_size, bool) or how.min_group_size < 1:
        raise UsageError(f"min_group_size must be a whole number of cases of at least 1, got {how.min_group_size!r}")
    if not by:
        raise UsageError("by names no attribute of the cases; name at least one, such as by=sex")
    names = attribute_names(runs)
    used = [attribute_ for attribute in by for attribute_ in crossed_attributes(attribute, names)]
    for edge in used:
        if edge == LABEL:
            raise UsageError("by=label compares labels, which are no groups of cases; the table command shows them")
        UsageError.refuse_unknown("No case has an attribute", names, edge)
    for name, edges in how.bins.items():
        UsageError.refuse_unknown("bins names", used, name, then=", which by does not")
        numbers = [edge for edge in edges if isinstance(edge, int | float) and not isinstance(edge, bool)]
        if not numbers or len(numbers) < len(list(edges)) or sorted(set(numbers)) != numbers:
            raise UsageError(f"bins.{name} is {list(edges)!r}, expected ascending numbers, such as [40, 60]")


def _models_on_task(runs: Sequence[RunScores], task: str) -> dict[str, RunScores]:
    """Returns the runs on a task by what rows call them."""
    return {name: by_task[task] for name, by_task in named_runs(runs).items() if task in by_task}


def _judge_disparities(
    column: Column, models: Mapping[str, RunScores], by: Sequence[str], how: DisparitySettings
) -> Iterator[_Judged]:
    settings = Settings(how.resamples, how.level, how.seed, stratify_by=how.stratify_by)
    scaled = on_unit_scale(list(models.values()), column.metric)
    for model, run in models.items():
        whole_part = Part.whole(run)
        disparities = [disparity(run, column.metric, attribute, how, bounded=scaled) for attribute in by]
        corrected = holm([disparity.p for disparity in disparities])
        for disparity_, p in zip(disparities, corrected.tolist(), strict=True):
            cells = {"": make_cell(whole_part, column.metric, settings)}
            for name, part in whole_part.groups(disparity_.attribute, how.bins).items():
                cells[name] = make_cell(part, column.metric, settings)
            yield _Judged(model, run, disparity_, p, {name: cell for name, cell in cells.items() if cell.n or not name})


def _group_sheet(column: Column, judged: Sequence[_Judged], how: DisparitySettings) -> Sheet:
    """Returns the values of all groups, those of too few cases greyed."""
    lines, records, starred = [], [], False
    for index, judged_model in enumerate(judged):
        for name, cell in judged_model.cells.items():
            few = bool(name) and cell.n < how.min_group_size
            starred |= few
            spans = [Span(cell.text(column), "quiet" if few or not cell.n else "plain")]
            if cell.n and (text := cell.interval_text(column)):
                spans.append(Span(text, "interval"))
            count = [Span(f"{cell.n}{'*' if few else ''}", "quiet" if few else "plain")]
            names = [judged_model.model, judged_model.found.attribute, name or "all cases"]
            lines.append(Line(names, [spans, count], bool(index) and not name))
            bounds = {"value": cell.mean, "low": cell.low, "high": cell.high, "n": cell.n, "patients": cell.n_clusters}
            records.append(
                {**_row_key(column, judged_model), "quantity": "group", "group": name or "all cases", **bounds}
            )
    notes = [
        f"{column.title} {column.arrow} [{100 * how.level:g} % interval, as tables have it], n cases with a value."
    ]
    if starred:
        notes.append(f"*: fewer than {how.min_group_size} cases, which count in no worst group, gap or test.")
    if any(UNKNOWN in judged_model.cells for judged_model in judged):
        notes.append("Cases whose group is unknown count in the value of all cases, and in no comparison of groups.")
    notes += comparability(column.group, {judged_model.model: judged_model.run for judged_model in judged})
    stubs, caption = ["Model", "Attribute", "Group"], f"{column.title} of groups on {column.group}"
    content = Layout.of_block(column.group, [column.heading, "n"], lines, notes, stubs, caption)
    return Sheet(content, pd.DataFrame.from_records(records))


def _disparity_sheet(column: Column, judged: Sequence[_Judged], how: DisparitySettings) -> Sheet:
    lines, records = [], []
    for index, judged_model in enumerate(judged):
        disparity = judged_model.found
        opens = bool(index) and judged[index - 1].model != judged_model.model
        lines.append(Line([judged_model.model, disparity.attribute], _disparity_cells(column, judged_model), opens))
        values = {
            "worst group": disparity.worst_value,
            "gap": disparity.gap,
            "ratio": disparity.ratio,
            "equity": disparity.equity,
        }
        for quantity, value in values.items():
            group = disparity.worst if quantity == "worst group" else ""
            records.append({**_row_key(column, judged_model), "quantity": quantity, "group": group, **value._asdict()})
        for quantity, number in (
            *(("bias of worst group", disparity.bias), ("gap by luck", disparity.luck)),
            *(("p", disparity.p), ("corrected p", judged_model.corrected)),
        ):
            records.append({**_row_key(column, judged_model), "quantity": quantity, "group": "", "value": number})
    titles = ("Worst group", "Gap", "Gap by luck", "Worst / best", f"Equity-scaled {column.title}", "p")
    title, caption = f"{column.group}: {column.heading}", f"Disparities in {column.title} on {column.group}"
    content = Layout.of_block(
        title, titles, lines, _fairness_notes(column, judged, how), ["Model", "Attribute"], caption
    )
    return Sheet(content, pd.DataFrame.from_records(records))


def _row_key(column: Column, one: _Judged) -> dict[str, Any]:
    return {"task": column.task, "metric": column.metric, "model": one.model, "attribute": one.found.attribute}


def _disparity_cells(column: Column, one: _Judged) -> list[list[Span]]:
    disparity = one.found
    if len(disparity.by_group) < 2:
        return [[Span("fewer than 2 groups", "quiet")], *([Span("", "quiet")] for _ in range(5))]
    worst = _bounded_spans(column, disparity.worst_value)
    if disparity.worst:
        worst.insert(0, Span(one_line(disparity.worst)))
    p = p_text(one.corrected) or "undefined"
    luck = "" if np.isnan(disparity.luck) else column.text(disparity.luck)
    return [
        worst,
        _bounded_spans(column, disparity.gap),
        [Span(luck, "quiet")],
        _bounded_spans(None, disparity.ratio),
        _bounded_spans(column, disparity.equity),
        [Span(p, "quiet" if np.isnan(one.corrected) else "plain")],
    ]


def _bounded_spans(column: Column | None, one: Estimate) -> list[Span]:
    """Returns value and bounds printed with the column's decimals."""
    return bounded(*one, "{:.2f}".format if column is None else column.text)


def _fairness_notes(column: Column, judged: Sequence[_Judged], how: DisparitySettings) -> Iterator[str]:
    summary = is_summary(column.metric)
    resamples = min(how.resamples, MOST_RESAMPLES) if summary else how.resamples
    unit = judged[0].run.resampled
    yield (
        f"Over groups of at least {how.min_group_size} cases. Intervals of {100 * how.level:g} %: percentile "
        f"bootstrap, {resamples} resamples of all {unit}, seed {how.seed}; none where a group has fewer than "
        f"{FEWEST} {unit}."
    )
    end = "lowest" if column.higher_is_better is not False else "highest"
    yield (
        f"Worst group: the {end} of noisy values lies further out than the truth on average. Intervals of it, of gap "
        "(largest minus smallest value) and of ratio are for the groups that are truly worst, or farthest apart, "
        "whichever these are: from bounds of all (pairs of) groups, the inner ones corrected by Bonferroni."
    )
    biases = [judged_model.found.bias for judged_model in judged if not np.isnan(judged_model.found.bias)]
    if biases:
        largest = max(biases, key=abs)
        yield f"By resampling, worst values lie further out than they should by up to {column.text(abs(largest))}."
    yield (
        f"Gap by luck: the mean gap where {unit} are put into the groups at random. p: permutation test that the "
        "groups do not differ, corrected by Holm over the attributes of a model."
    )
    scaled = on_unit_scale([judged_model.run for judged_model in judged], column.metric)
    apart = "the sum of distances of the groups' values to that of all cases"
    rule = {
        (True, True): "value / (1 + D)",
        (True, False): "1 - (1 - value) / (1 + D)",
        (False, True): "value / (1 + D / value)",
        (False, False): "value + D",
    }.get((scaled, column.higher_is_better is True))
    if column.higher_is_better is not None:
        yield f"Equity-scaled: {rule}, with D {apart} (after FairSeg's ES-Dice)."
    else:
        yield f"{column.title} has no better direction, so that no group is worst; gap and p are shown."
    small = (
        f"Too small to be compared, by {judged_model.found.attribute}: {'; '.join(names)}."
        for judged_model in judged
        if (names := judged_model.found.small(how.min_group_size))
    )
    yield from dict.fromkeys(small)
    torn = dict.fromkeys(judged_model.found.attribute for judged_model in judged if judged_model.found.torn)
    if torn:
        yield (
            f"By {', '.join(torn)} some {unit} have cases in several groups, so that they cannot be put into others; p "
            "and the gap by luck are then of resampled values around those of the sample."
        )


def _odds_sheets(runs: Sequence[RunScores], by: Sequence[str], how: DisparitySettings) -> list[Sheet]:
    """Returns a sheet of rate gaps per task with probabilities."""
    sheets = []
    for task in dict.fromkeys(run.task for run in runs):
        models = {
            name: run
            for name, run in _models_on_task(runs, task).items()
            if (run.scores["metric"] == PROBABILITY).any()
        }
        if not models:
            continue
        title = next(iter(models.values())).task_title
        column = make_column(task, title, "class_sensitivity@macro", next(iter(models.values())))
        lines, records = [], []
        for index, (model, run) in enumerate(models.items()):
            for number, attribute in enumerate(by):
                odds_found = odds(run, attribute, how)
                cells = [_bounded_spans(column, value) for value in odds_found.values()]
                lines.append(Line([model, attribute], cells, bool(index) and not number))
                key = {"task": task, "metric": "equalised odds", "model": model, "attribute": attribute}
                records += [
                    {**key, "quantity": f"gap of {name}", **value._asdict()} for name, value in odds_found.items()
                ]
        titles = ("True positives ↓", "False positives ↓", "Equalised odds ↓")
        notes = [_ODDS.format(min_group_size=how.min_group_size)]
        caption = f"Equalised odds on {title}"
        content = Layout.of_block(title, titles, lines, notes, ["Model", "Attribute"], caption)
        sheets.append(Sheet(content, pd.DataFrame.from_records(records)))
    return sheets
