"""Models compared on each task: significance maps, tests against a baseline, and groups of cases under each model."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.metrics.fairness import UNKNOWN_GROUPS
from medimg_eval.results.comparison.fields import Field, make_fields
from medimg_eval.results.comparison.footnotes import CORRECTIONS, described, found_notes, interval_note, pair_notes
from medimg_eval.results.comparison.pairwise import CompareSettings, Pair, against, every_pair
from medimg_eval.results.heatmap import to_svg
from medimg_eval.results.runs import LABEL, attribute_names, attributes, frame_to_csv
from medimg_eval.results.statistics import GroupTest, group_test
from medimg_eval.results.table import (
    SMALL,
    Comparison,
    Heading,
    Layout,
    Line,
    Map,
    Sheet,
    Span,
    cautions,
    html_page,
    html_table,
    one_line,
    p_relation,
    p_text,
    to_latex,
    to_markdown,
    write_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from medimg_eval.results.runs import RunScores
    from medimg_eval.results.table import Style


def compare(
    runs: Sequence[RunScores],
    metric: str,
    *,
    by: str | None = None,
    baseline: str | None = None,
    how: CompareSettings | None = None,
) -> Comparison:
    """Compares the models of `runs` on each task.

    Args:
        runs: As `load_runs` returns them; unfinished ones are left out.
        metric: A metric of single cases, or a summary.
        by: "label" compares on each label; an attribute of the cases compares its groups under each model; None
            compares models on all labels.
        baseline: A model that every other one is tested against; None tests every ordered pair of models.
        how: The test, its corrections and its settings; None takes those of `CompareSettings`.

    Raises:
        UsageError: If there is no such metric, attribute or model, or a setting is invalid.
        UserError: If no task has two models to compare.
    """
    how = CompareSettings() if how is None else how
    how.check()
    if not isinstance(metric, str):
        raise UsageError(f"compare takes one metric, got {metric!r}")
    fields = make_fields(runs, metric, by_label=by == LABEL, baseline=baseline)
    if by is not None and by != LABEL:
        return _critical_groups(fields, by, baseline, how)
    if baseline is not None:
        return _with_baseline(fields, baseline, how)
    pairs = {field.name: every_pair(field, how) for field in fields if len(field.models) > 1}
    _refuse_apart(fields, [pair for some in pairs.values() for pair in some])
    sheets = [significance_map(field, pairs[field.name], how) for field in fields if field.name in pairs]
    if not sheets:
        lacking = "; ".join(dict.fromkeys(reason for field in fields for reason in field.left_out))
        raise UserError(
            "No task has finished runs of two models, which a comparison needs; name more run folders"
            + (f" (left out: {lacking})" if lacking else "")
        )
    title = f"Significance of differences in {fields[0].column.title}"
    return Comparison(title, tuple(sheet for sheet, _ in sheets), tuple(drawn for _, drawn in sheets))


def _refuse_apart(fields: Sequence[Field], pairs: Sequence[Pair]) -> None:
    """Raises UserError where no pair of models shares a case."""
    if pairs and not any(pair.n for pair in pairs):
        metric = fields[0].column.metric
        raise UserError(f"No two models have a value of {metric} for the same case, so there is nothing to compare")


def _critical_groups(fields: Sequence[Field], attribute: str, baseline: str | None, how: CompareSettings) -> Comparison:
    if baseline is not None:
        raise UsageError(f"by={attribute} compares groups of cases under one model; leave out baseline={baseline}")
    for name, value, usual in (("test", how.test, "auto"), ("correction", how.correction, None)):
        if value != usual:
            raise UsageError(
                f"by={attribute} compares groups of cases, which are not paired, by Kruskal-Wallis and Mann-Whitney "
                f"tests corrected by Benjamini and Hochberg; leave out {name}={value}"
            )
    if how.margin is not None:
        raise UsageError(f"by={attribute} compares groups of cases under one model; leave out margin={how.margin}")
    if fields[0].parts:
        metric = fields[0].column.metric
        raise UsageError(
            f"{metric} is one value for a whole run, and groups are compared by values of cases; its value in each "
            f"group is shown by the table command with by={attribute}"
        )
    return compare_groups(fields, attribute, how.alpha)


def write_comparison(comparison: Comparison, folder: str | Path, stem: str = "compare") -> list[Path]:
    """Writes a comparison as .md, .tex, .csv, .html; maps as .svg.

    Into `folder`, made if needed.

    Returns:
        The files.
    """
    return write_sheets(comparison.title, comparison.sheets, comparison.frame(), comparison.maps, Path(folder) / stem)


def write_sheets(
    title: str, sheets: Sequence[Sheet], numbers: pd.DataFrame, maps: Sequence[Map], path: Path
) -> list[Path]:
    """Writes stacked sheets as .md, .tex, .html, .csv and .svg.

    Args:
        title: Of the HTML page.
        sheets: In their order.
        numbers: What the CSV holds.
        maps: May be none, and then there is no drawing.
        path: The files without their suffix; the folder is made if needed.

    Returns:
        The files.
    """
    drawing = to_svg(maps) if maps else ""
    tables = "\n".join(
        f"<h2>{html.escape(sheet.content.caption)}</h2>\n{html_table(sheet.content)}" for sheet in sheets
    )
    texts = {
        ".md": "\n".join(map(to_markdown, sheets)),
        ".tex": "\n".join(map(to_latex, sheets)),
        ".csv": frame_to_csv(numbers),
        ".html": html_page(title, f"{drawing}\n{tables}"),
    }
    if drawing:
        texts[".svg"] = drawing
    return write_texts(path, texts)


def significance_map(field: Field, pairs: Sequence[Pair], how: CompareSettings) -> tuple[Sheet, Map]:
    """Returns the significance map of a task or label."""
    test = pairs[0].test
    by_median = test == "wilcoxon"
    models = field.ordered(by_median=by_median)
    centres = field.centres(median=by_median)
    by_models = {(pair.model, pair.other): pair for pair in pairs}
    grid = [[by_models.get((model, second)) for second in models] for model in models]
    significant = sum(pair.significant for pair in pairs)
    stub = "Value" if field.parts else "Median" if by_median else "Mean"
    order = f"{stub.lower()}s over cases" if not field.parts else "values"
    method = (
        "p of the test that the model of the row is better than that of the column, in bold where below "
        f"{how.alpha:g}: one-sided {described(field, test, how)}, corrected by {CORRECTIONS[how.correction]} "
        f"over all {len(pairs)} ordered pairs; models in the order of their {order}."
    )
    notes = [
        method,
        f"{field.name}: {significant} of {len(pairs)} pairs are significant; {'; '.join(pair_notes(pairs))}.",
        *found_notes(field, pairs, how, one_sided=True),
        *cautions(field, independent=test == "wilcoxon" and field.clustered),
    ]
    lines = [
        Line([model, field.column.text(centres[model])], [_p_cell(pair) for pair in row])
        for model, row in zip(models, grid, strict=True)
    ]
    caption = f"Significance of differences in {field.column.title} on {field.name}"
    block = f"{field.name}: {field.column.heading}"
    content = Layout.of_block(block, models, lines, notes, ["Model", stub], caption)
    drawn = Map(
        title=one_line(f"{field.name}: {field.column.title}"),
        models=tuple(one_line(model) for model in models),
        better=tuple(tuple(pair is not None and pair.significant for pair in row) for row in grid),
        tested=tuple(tuple(pair is not None and not np.isnan(pair.p) for pair in row) for row in grid),
    )
    return Sheet(content, _pair_frame(pairs)), drawn


def _with_baseline(fields: Sequence[Field], baseline: str, how: CompareSettings) -> Comparison:
    """Compares every model with one, side by side for all tasks and labels."""
    models_ = {model for field in fields for model in field.models}
    UsageError.refuse_unknown("No finished run of a model", models_, baseline, then=" has such scores")
    tests = {(field.task, field.label): against(field, baseline, how) for field in fields if baseline in field.models}
    used = [field for field in fields if tests.get((field.task, field.label))]
    if not used:
        raise UserError(f"No model was run on a task that {baseline} was run on, so there is nothing to compare")
    _refuse_apart(fields, [pair for some in tests.values() for pair in some])
    columns = {field.name: {pair.model: pair for pair in tests[field.task, field.label]} for field in used}
    models = dict.fromkeys(model for pairs in columns.values() for model in pairs)
    content = Layout(
        groups=_task_spans(used),
        headings=[Heading(one_line(f.title), one_line(f"{f.label or f.column.title} {f.column.arrow}")) for f in used],
        lines=[
            Line([one_line(model)], [_difference_cell(columns[field.name].get(model), field) for field in used])
            for model in models
        ],
        footnotes=[one_line(note) for note in _baseline_notes(fields, columns, baseline, how)],
        stubs=["Model"],
        caption=one_line(f"Differences in {used[0].column.title} to {baseline}"),
    )
    pairs = [pair for field in used for pair in tests[field.task, field.label]]
    return Comparison(content.caption, (Sheet(content, _pair_frame(pairs)),))


def _baseline_notes(
    fields: Sequence[Field], columns: Mapping[str, Mapping[str, Pair]], baseline: str, how: CompareSettings
) -> list[str]:
    used = [field for field in fields if field.name in columns]
    tests = {field.name: next(iter(columns[field.name].values())).test for field in used}
    methods = dict.fromkeys(described(field, tests[field.name], how) for field in used)
    which = "; ".join(
        text + (f" ({'; '.join(_field_titles(used, tests, text, how))})" if len(methods) > 1 else "")
        for text in methods
    )
    what = "Difference" if used[0].parts else "Mean difference"
    method = (
        f"{what} to {baseline} [interval] (p): two-sided {which}, corrected by {CORRECTIONS[how.correction]} "
        f"over the models of a column. In bold: significantly better (p < {how.alpha:g}); underlined: significantly "
        "worse."
    )
    notes = [method, *dict.fromkeys(interval_note(field, tests[field.name], how) for field in used)]
    for field in used:
        pairs = list(columns[field.name].values())
        notes.append(f"{field.name}: {'; '.join(pair_notes(pairs))}.")
        notes += found_notes(field, pairs, how, one_sided=False)
    notes += [
        f"{field.name}: no other model, or no {baseline}, to compare." for field in fields if field.name not in columns
    ]
    ranked = {field.task for field in used if tests[field.name] == "wilcoxon" and field.clustered}
    for field in {field.task: field for field in used}.values():
        notes += cautions(field, independent=field.task in ranked)
    return notes


def _field_titles(fields: Sequence[Field], tests: Mapping[str, str], text: str, how: CompareSettings) -> list[str]:
    return [field.name for field in fields if described(field, tests[field.name], how) == text]


def _task_spans(fields: Sequence[Field]) -> list[tuple[str, int]]:
    """Returns the title of each task and how many columns it spans."""
    spans: dict[str, int] = {}
    for field in fields:
        spans[one_line(field.title)] = spans.get(one_line(field.title), 0) + 1
    return list(spans.items())


def _p_cell(pair: Pair | None) -> list[Span]:
    if pair is None:
        return [Span("", "quiet")]
    if not pair.n or np.isnan(pair.p):
        return [Span("not tested" if pair.n else "no cases", "quiet")]
    return [Span(p_text(pair.corrected_p), "best" if pair.significant else "quiet")]


def _difference_cell(pair: Pair | None, field: Field) -> list[Span]:
    if pair is None or not pair.n:
        return [Span("\N{EN DASH}" if pair is None else "no cases", "quiet")]
    if np.isnan(pair.p):
        return [Span("not tested", "quiet")]
    # Wilcoxon's test looks at ranks of differences, which may point another way than their mean.
    towards = pair.rank_biserial if pair.test == "wilcoxon" else pair.mean_difference
    better = (towards > 0) == bool(field.column.higher_is_better)
    sign = "+" if pair.mean_difference > 0 else ""
    text = f"{sign}{field.column.text(pair.mean_difference)}"
    style: Style = "plain"
    if pair.significant:
        style = "best" if better else "second"
    spans = [Span(text, style)]
    if not np.isnan(pair.low):
        spans.append(Span(f"[{field.column.text(pair.low)}, {field.column.text(pair.high)}]", "interval"))
    spans.append(Span(f"(p {p_relation(pair.corrected_p)})", "interval"))
    if pair.significant and towards * pair.mean_difference < 0:
        spans.append(Span(f"ranks of differences say {'better' if better else 'worse'}", "interval"))
    if pair.non_inferior is not None:
        spans.append(Span("non-inferior" if pair.non_inferior else "not shown non-inferior", "interval"))
    return spans


def _pair_frame(pairs: Sequence[Pair]) -> pd.DataFrame:
    return pd.DataFrame.from_records(pairs, columns=list(Pair._fields))


class _Tested(NamedTuple):
    """The groups of one model on one task."""

    field: Field
    model: str
    groups: dict[str, npt.NDArray[np.float64]]
    small: list[str]
    found: GroupTest


def compare_groups(fields: Sequence[Field], attribute: str, alpha: float) -> Comparison:
    """Compares the groups of cases by an attribute, under each model.

    Kruskal-Wallis over all groups of at least 10 cases, and where it finds a difference two-sided Mann-Whitney tests of
    each pair, corrected by Benjamini and Hochberg. Cases whose group is not known are left out.

    Source: the analysis of groups of Touchstone (Bassi et al., NeurIPS 2024).

    Raises:
        UsageError: If no case has the attribute.
    """
    names = attribute_names([run for field in fields for run in field.runs.values()])
    if attribute not in names:
        raise UsageError(f"No case has an attribute {attribute!r}{nearest(attribute, names | {'label'})}")
    tested = [_test_field(field, model, attribute, alpha) for field in fields for model in sorted(field.scores)]
    title = f"{fields[0].column.title} by {attribute}"
    method = (
        f"p of the Kruskal-Wallis test that the groups by {attribute} do not differ, in bold where below {alpha:g}; "
        "then two-sided Mann-Whitney tests of each pair of groups, corrected by Benjamini and Hochberg. Medians over "
        f"cases; cases of unknown {attribute} are left out."
    )
    notes = [
        method,
        *(
            f"{some.field.title}, {some.model}: groups of fewer than {SMALL} cases left out: {', '.join(some.small)}."
            for some in tested
            if some.small
        ),
    ]
    for field in fields:
        notes += cautions(field)
    titles, lines = ("p", "Medians", "Pairs that differ"), _group_lines(tested, alpha)
    content = Layout.of_block(title, titles, lines, notes, ["Task", "Model"], f"Differences in {title}")
    return Comparison(content.caption, (Sheet(content, _group_frame(tested)),))


def _test_field(field: Field, model: str, attribute: str, alpha: float) -> _Tested:
    codes, values = attributes(field.runs[model].scores)
    names = values[attribute][codes] if attribute in values else np.full(len(codes), "")
    by_case = dict(zip(field.runs[model].scores["case"], names.tolist(), strict=True))
    scores = field.scores[model]
    members = np.array([by_case[case] for case in scores.index])
    groups_ = {name: scores.to_numpy()[members == name] for name in sorted(set(by_case.values()) - UNKNOWN_GROUPS)}
    groups = {name: values for name, values in groups_.items() if len(values) >= SMALL}
    return _Tested(field, model, groups, [name for name in groups_ if name not in groups], group_test(groups, alpha))


def _group_lines(tested: Sequence[_Tested], alpha: float) -> Iterator[Line]:
    before = None
    for some in tested:
        text = some.field.column.text
        medians = ", ".join(
            f"{name} {text(float(np.median(values)))} (n = {len(values)})" for name, values in some.groups.items()
        )
        differ = ", ".join(f"{a} / {b} (p {p_relation(p)})" for (a, b), p in some.found.pairs.items() if p < alpha)
        p = some.found.p
        cells = [
            [
                Span("fewer than 2 groups", "quiet")
                if np.isnan(p)
                else Span(p_text(p), "best" if p < alpha else "plain")
            ],
            [Span(one_line(medians) or "none", "plain" if medians else "quiet")],
            [Span(one_line(differ) or "none", "plain" if differ else "quiet")],
        ]
        yield Line([some.field.title, some.model], cells, before not in (None, some.field.task))
        before = some.field.task


def _group_frame(tested: Sequence[_Tested]) -> pd.DataFrame:
    """Returns rows by task, model and pair of groups."""
    records = []
    for field, model, groups, _, values in tested:
        names = list(groups)
        for index, first in enumerate(names):
            for second in names[index + 1 :]:
                first_values, two = groups[first], groups[second]
                records.append(
                    {
                        "task": field.task,
                        "metric": field.column.metric,
                        "model": model,
                        "group": first,
                        "other": second,
                        "n": len(first_values),
                        "n_other": len(two),
                        "median": float(np.median(first_values)),
                        "median_other": float(np.median(two)),
                        "kruskal_wallis_p": values.p,
                        "corrected_p": values.pairs.get((first, second), np.nan),
                    }
                )
    return pd.DataFrame.from_records(records)
