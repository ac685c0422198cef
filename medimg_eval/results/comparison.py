"""Models compared on each task: significance maps, and tests against a baseline."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import pandas as pd

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.results.group_tests import compare_groups
from medimg_eval.results.heatmap import to_svg
from medimg_eval.results.layout import Heading, Layout, Line, Span, one_line
from medimg_eval.results.pairs import Field, Pair, against, every_pair, make_fields, pair_notes
from medimg_eval.results.parts import LABEL
from medimg_eval.results.render import html_page, html_table, to_latex, to_markdown
from medimg_eval.results.sheets import Comparison, Map, Sheet, cautions, p_relation, p_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medimg_eval.results.layout import Style
    from medimg_eval.results.load import RunScores


def compare(
    runs: Sequence[RunScores],
    metric: str,
    *,
    by: str | None = None,
    baseline: str | None = None,
    alpha: float = 0.05,
) -> Comparison:
    """Compares the models of `runs` on each task.

    Args:
        runs: As `load_runs` returns them; unfinished ones are left out.
        metric: A metric of single cases.
        by: "label" compares on each label; an attribute of the cases compares its groups under each model; None
            compares models on the means over labels.
        baseline: A model that every other one is tested against; None tests every ordered pair of models.
        alpha: The corrected p-value below which a difference counts as significant.

    Raises:
        UsageError: If there is no such metric, attribute or model, or `alpha` is not between 0 and 1.
        UserError: If no task has two models to compare.
    """
    if not isinstance(alpha, int | float) or not 0 < alpha < 1:
        raise UsageError(f"alpha must be a number between 0 and 1, got {alpha!r}")
    if not isinstance(metric, str):
        raise UsageError(f"compare takes one metric, got {metric!r}")
    fields = make_fields(runs, metric, by_label=by == LABEL, baseline=baseline)
    if by is not None and by != LABEL:
        if baseline is not None:
            raise UsageError(f"by={by} compares groups of cases under one model; leave out baseline={baseline}")
        return compare_groups(fields, by, alpha)
    if baseline is not None:
        return _with_baseline(fields, baseline, alpha)
    sheets = [_map(field, every_pair(field, alpha), alpha) for field in fields if len(field.scores) > 1]
    if not sheets:
        raise UserError("No task has finished runs of two models, which a comparison needs; name more run folders")
    title = f"Significance of differences in {fields[0].column.title}"
    return Comparison(title, tuple(sheet for sheet, _ in sheets), tuple(drawn for _, drawn in sheets))


def write_comparison(comparison: Comparison, folder: Path, stem: str = "compare") -> list[Path]:
    """Writes a comparison as .md, .tex, .csv and .html into `folder`, made if needed; its maps also as .svg.

    Returns:
        The files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    drawing = to_svg(comparison.maps) if comparison.maps else ""
    tables = "\n".join(
        f"<h2>{html.escape(sheet.content.caption)}</h2>\n{html_table(sheet.content)}" for sheet in comparison.sheets
    )
    texts = {
        ".md": "\n".join(map(to_markdown, comparison.sheets)),
        ".tex": "\n".join(map(to_latex, comparison.sheets)),
        ".csv": comparison.frame().to_csv(index=False, lineterminator="\n"),
        ".html": html_page(comparison.title, f"{drawing}\n{tables}"),
    }
    if drawing:
        texts[".svg"] = drawing
    files = []
    for suffix, text in texts.items():
        file = folder / f"{stem}{suffix}"
        file.write_text(text, encoding="utf-8")
        files.append(file)
    return files


def _map(field: Field, pairs: Sequence[Pair], alpha: float) -> tuple[Sheet, Map]:
    """Returns the significance map of one task or label, to print and to draw."""
    models = field.ordered()
    medians = field.medians()
    found = {(pair.model, pair.other): pair for pair in pairs}
    grid = [[found.get((model, other)) for other in models] for model in models]
    significant = sum(pair.significant for pair in pairs)
    method = (
        "p of the test that the model of the row is better than that of the column, in bold where below "
        f"{alpha:g}: one-sided Wilcoxon signed-rank test on the cases that both have a value for, corrected by Holm "
        f"over all {len(pairs)} ordered pairs; models in the order of their medians over cases."
    )
    notes = [
        method,
        f"{field.name}: {significant} of {len(pairs)} pairs are significant; {'; '.join(pair_notes(pairs))}.",
        *cautions(field),
    ]
    content = Layout(
        groups=[(one_line(f"{field.name}: {field.column.title} {field.column.arrow}"), len(models))],
        headings=[Heading("", one_line(model), "") for model in models],
        lines=[
            Line([one_line(model), field.column.text(medians[model])], [_p_cell(pair) for pair in row])
            for model, row in zip(models, grid, strict=True)
        ],
        footnotes=[one_line(note) for note in notes],
        stubs=["Model", "Median"],
        caption=one_line(f"Significance of differences in {field.column.title} on {field.name}"),
    )
    drawn = Map(
        title=one_line(f"{field.name}: {field.column.title}"),
        models=tuple(one_line(model) for model in models),
        better=tuple(tuple(pair is not None and pair.significant for pair in row) for row in grid),
        tested=tuple(tuple(pair is not None and pair.n > 0 for pair in row) for row in grid),
    )
    return Sheet(content, _frame(pairs)), drawn


def _with_baseline(fields: Sequence[Field], baseline: str, alpha: float) -> Comparison:
    """Compares every model with one, side by side for all tasks and labels."""
    known = {model for field in fields for model in field.scores}
    if baseline not in known:
        raise UsageError(f"No finished run of a model {baseline!r} has such scores{nearest(baseline, known)}")
    tests = {(field.task, field.label): against(field, baseline, alpha) for field in fields if baseline in field.scores}
    used = [field for field in fields if tests.get((field.task, field.label))]
    if not used:
        raise UserError(f"No model was run on a task that {baseline} was run on, so there is nothing to compare")
    columns = {field.name: {pair.model: pair for pair in tests[field.task, field.label]} for field in used}
    models = dict.fromkeys(model for pairs in columns.values() for model in pairs)
    content = Layout(
        groups=_spans(used),
        headings=[Heading(one_line(f.title), one_line(f.label or f.column.title), f.column.arrow) for f in used],
        lines=[
            Line([one_line(model)], [_difference_cell(columns[field.name].get(model), field) for field in used])
            for model in models
        ],
        footnotes=[one_line(note) for note in _baseline_notes(fields, columns, baseline, alpha)],
        stubs=["Model"],
        caption=one_line(f"Differences in {used[0].column.title} to {baseline}"),
    )
    pairs = [pair for field in used for pair in tests[field.task, field.label]]
    return Comparison(content.caption, (Sheet(content, _frame(pairs)),))


def _baseline_notes(
    fields: Sequence[Field], columns: Mapping[str, Mapping[str, Pair]], baseline: str, alpha: float
) -> list[str]:
    method = (
        f"Mean difference to {baseline} (p): two-sided Wilcoxon signed-rank test on the cases that both have a value "
        "for, corrected by Holm over the models of a column. In bold: significantly better "
        f"(p < {alpha:g}); underlined: significantly worse."
    )
    notes = [
        method,
        *(f"{name}: {'; '.join(pair_notes(list(pairs.values())))}." for name, pairs in columns.items()),
        *(
            f"{field.name}: no other model, or no {baseline}, to compare."
            for field in fields
            if field.name not in columns
        ),
    ]
    for field in {field.task: field for field in fields if field.name in columns}.values():
        notes += cautions(field)
    return notes


def _spans(fields: Sequence[Field]) -> list[tuple[str, int]]:
    """Returns the title of each task and how many columns it spans."""
    spans: dict[str, int] = {}
    for field in fields:
        spans[one_line(field.title)] = spans.get(one_line(field.title), 0) + 1
    return list(spans.items())


def _p_cell(pair: Pair | None) -> list[Span]:
    if pair is None:
        return [Span("", "quiet")]
    if not pair.n:
        return [Span("no cases", "quiet")]
    return [Span(p_text(pair.corrected_p), "best" if pair.significant else "quiet")]


def _difference_cell(pair: Pair | None, field: Field) -> list[Span]:
    if pair is None or not pair.n:
        return [Span("\N{EN DASH}" if pair is None else "no cases", "quiet")]
    better = (pair.mean_difference > 0) == bool(field.column.higher_is_better)
    sign = "+" if pair.mean_difference > 0 else ""
    text = f"{sign}{field.column.text(pair.mean_difference)}"
    style: Style = "plain"
    if pair.significant:
        style = "best" if better else "second"
    return [Span(text, style), Span(f"(p {p_relation(pair.corrected_p)})", "interval")]


def _frame(pairs: Sequence[Pair]) -> pd.DataFrame:
    return pd.DataFrame.from_records(pairs, columns=list(Pair._fields))
