"""Whether a model serves groups of cases differently: one row per task, label and model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from medimg_eval.errors import UsageError, nearest
from medimg_eval.metrics.fairness import UNKNOWN_GROUPS
from medimg_eval.results.runs import attribute_names, attributes
from medimg_eval.results.statistics import GroupTest, group_test
from medimg_eval.results.table import (
    SMALL,
    Comparison,
    Heading,
    Layout,
    Line,
    Sheet,
    Span,
    cautions,
    one_line,
    p_relation,
    p_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from medimg_eval.results.comparison.fields import Field


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
    known = attribute_names([run for field in fields for run in field.runs.values()])
    if attribute not in known:
        raise UsageError(f"No case has an attribute {attribute!r}{nearest(attribute, known | {'label'})}")
    tested = [_tested(field, model, attribute, alpha) for field in fields for model in sorted(field.scores)]
    title = one_line(f"{fields[0].column.title} by {attribute}")
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
    content = Layout(
        groups=[(title, 3)],
        headings=[Heading("", text, "") for text in ("p", "Medians", "Pairs that differ")],
        lines=list(_lines(tested, alpha)),
        footnotes=[one_line(note) for note in notes],
        stubs=["Task", "Model"],
        caption=one_line(f"Differences in {title}"),
    )
    return Comparison(content.caption, (Sheet(content, _frame(tested)),))


def _tested(field: Field, model: str, attribute: str, alpha: float) -> _Tested:
    codes, values = attributes(field.runs[model].scores)
    names = values[attribute][codes] if attribute in values else np.full(len(codes), "")
    by_case = dict(zip(field.runs[model].scores["case"], names.tolist(), strict=True))
    scores = field.scores[model]
    members = np.array([by_case[case] for case in scores.index])
    found = {name: scores.to_numpy()[members == name] for name in sorted(set(by_case.values()) - UNKNOWN_GROUPS)}
    groups = {name: values for name, values in found.items() if len(values) >= SMALL}
    return _Tested(field, model, groups, [name for name in found if name not in groups], group_test(groups, alpha))


def _lines(tested: Sequence[_Tested], alpha: float) -> Iterator[Line]:
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
        yield Line([one_line(some.field.title), one_line(some.model)], cells, before not in (None, some.field.task))
        before = some.field.task


def _frame(tested: Sequence[_Tested]) -> pd.DataFrame:
    """Returns one row per task, model and pair of groups; p-values of pairs only where they were tested."""
    records = []
    for field, model, groups, _, found in tested:
        names = list(groups)
        for place, first in enumerate(names):
            for second in names[place + 1 :]:
                one, two = groups[first], groups[second]
                records.append(
                    {
                        "task": field.task,
                        "metric": field.column.metric,
                        "model": model,
                        "group": first,
                        "other": second,
                        "n": len(one),
                        "n_other": len(two),
                        "median": float(np.median(one)),
                        "median_other": float(np.median(two)),
                        "kruskal_wallis_p": found.p,
                        "corrected_p": found.pairs.get((first, second), np.nan),
                    }
                )
    return pd.DataFrame.from_records(records)
