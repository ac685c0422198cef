"""The page part on two models: how often one is right and the other wrong, and the cases of it with what both said."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from medimg_eval.results.comparison import FIRST, SECOND
from medimg_eval.results.table import html_table

if TYPE_CHECKING:
    import pandas as pd

    from medimg_eval.results.comparison import Disagreement

MOST = 100
"""Cases that each list shows; the CSV beside the page has all."""


def differences_html(found: Disagreement, texts: Callable[[str], Mapping[str, Any]], csv: str) -> str:
    """Overview section: counts and cases where two models differ.

    Args:
        found: the two models on one task.
        texts: by case, what was asked, what is right and what each model answered, in the order of `found.models`.
        csv: name of the file beside the page that has all cases.
    """
    first, second = found.models
    title = html.escape(f"{first} and {second}: {found.field.title}")
    parts = [f'<section class="card" aria-label="{title}"><h2>{title}</h2>']
    parts.append(f'<div class="wide">{html_table(found.sheet.layout())}</div>')
    for better, name, rival in ((FIRST, first, second), (SECOND, second, first)):
        rows = found.listed[found.listed["better"] == better]
        heading = f"{name} is right and {rival} wrong" if found.yes_no else f"{name} is better than {rival}"
        parts.append(f"<h3>{html.escape(heading)}: {len(rows):,} cases</h3>")
        if len(rows):
            parts.append(_case_table(found, rows.head(MOST), texts))
        if len(rows) > MOST:
            parts.append(f'<p class="soft small">The first {MOST}; <a href="{html.escape(csv)}">{csv}</a> has all.</p>')
    return "\n".join([*parts, "</section>"])


def _case_table(found: Disagreement, rows: pd.DataFrame, texts: Callable[[str], Mapping[str, Any]]) -> str:
    """Table of cases: question, reference, values and replies of both."""
    column = found.field.column
    answers = {str(case): texts(str(case)) for case in rows.index}
    has_questions = any(answer.get("question") for answer in answers.values())
    right = any("reference" in answer for answer in answers.values())
    head = ["Case", *(["Question"] * has_questions), *(["Reference"] * right), *found.models]
    cells = "".join(f'<th class="left" scope="col">{html.escape(name)}</th>' for name in head)
    lines = [f'<div class="wide"><table class="differences"><thead><tr>{cells}</tr></thead><tbody>']
    for case, first_value, two in zip(map(str, rows.index), rows[FIRST], rows[SECOND], strict=True):
        answer_ = answers[case]
        where = {"task": found.field.task, "case": case, "model": found.models[0], "versus": found.models[1]}
        link = "#" + "&amp;".join(f"{key}={quote(value, safe='')}" for key, value in where.items())
        lines.append(f'<tr><th scope="row"><a href="{link}">{html.escape(case)}</a></th>')
        lines += [_cell_html(answer_.get("question"))] * has_questions + [_cell_html(answer_.get("reference"))] * right
        for value, answer in zip((first_value, two), answer_.get("answers") or (None, None), strict=True):
            lines.append(_cell_html(_short_reply(answer), f"<b>{html.escape(column.text(float(value)))}</b> "))
        lines.append("</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _short_reply(answer: Mapping[str, Any] | None) -> str | None:
    """Short reply: the extracted answer, or the end."""
    if not answer:
        return None
    if answer.get("extracted") is not None:
        return str(answer["extracted"])
    return str(answer.get("failure") or (answer.get("outputs") or [""])[-1])


def _cell_html(text: Any, before: str = "") -> str:
    return f'<td class="left">{before}{html.escape(" ".join(str(text or "").split())[:300])}</td>'
