"""A table as Markdown, LaTeX, CSV, HTML, and for the terminal."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import rich.table
from rich.text import Text

from medimg_eval.results.layout import Heading, Layout, Span, Style, lay_out

if TYPE_CHECKING:
    from pathlib import Path

    from medimg_eval.results.table import Table

_RICH_STYLES: dict[Style, str] = {
    "plain": "",
    "best": "bold",
    "second": "underline",
    "interval": "dim",
    "quiet": "dim",
}
_MARKDOWN: dict[Style, str] = {
    "plain": "{}",
    "best": "**{}**",
    "second": "<ins>{}</ins>",  # Markdown cannot underline, and GitHub removes <u>
    "interval": "{}",
    "quiet": "{}",
}
_LATEX: dict[Style, str] = {
    "plain": "%s",
    "best": r"\textbf{%s}",
    "second": r"\underline{%s}",
    "interval": r"{\small %s}",
    "quiet": "%s",
}
_HTML: dict[Style, str] = {
    "plain": "{}",
    "best": "<strong>{}</strong>",
    "second": "<u>{}</u>",
    "interval": '<span class="interval">{}</span>',
    "quiet": '<span class="quiet">{}</span>',
}
_LATEX_CHARACTERS = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "_": r"\_",
        "%": r"\%",
        "&": r"\&",
        "#": r"\#",
        "$": r"\$",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "\N{EN DASH}": r"\textendash{}",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "↑": r"$\uparrow$",
        "↓": r"$\downarrow$",
    }
)
_HTML_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: system-ui, sans-serif; margin: 2rem; }}
table {{ border-collapse: collapse; border-top: 2px solid; border-bottom: 2px solid; }}
thead {{ border-bottom: 1px solid; }}
th, td {{ padding: 0.25rem 0.75rem; text-align: center; white-space: nowrap; }}
th:first-child, tbody th {{ text-align: left; font-weight: normal; }}
.interval {{ font-size: 0.85em; }}
.quiet {{ opacity: 0.6; }}
.footnotes {{ font-size: 0.85em; max-width: 60rem; padding-left: 1.2rem; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def to_rich(table: Table) -> rich.table.Table:
    """Returns the table for a terminal; its footnotes are the caller's to print."""
    layout = lay_out(table)
    # A Text is shown as it is, where a str would be searched for markup such as "[bold]".
    alone = None if layout.several_tasks else "".join(name for name, _ in layout.groups)
    grid = rich.table.Table(title=None if alone is None else Text(alone, "bold"), title_justify="left")
    grid.add_column("Model")
    for heading in layout.headings:
        title = f"{heading.title} {heading.arrow}".rstrip()
        grid.add_column(Text(f"{heading.group}\n{title}" if layout.several_tasks else title), justify="center")
    for line in layout.lines:
        cells = [Text(" ").join(Text(span.text, _RICH_STYLES[span.style]) for span in cell) for cell in line.cells]
        grid.add_row(Text(line.name), *cells)
    return grid


def to_markdown(table: Table) -> str:
    """Returns the table and its footnotes in GitHub's Markdown."""
    layout = lay_out(table)
    headings = ["Model", *(_markdown_heading(heading, layout) for heading in layout.headings)]
    rows = [headings, ["---", *[":---:"] * len(layout.headings)]]
    rows += [[_escape_markdown(line.name), *map(_markdown_cell, line.cells)] for line in layout.lines]
    title = "" if layout.several_tasks else "".join(f"**{_escape_markdown(name)}**\n\n" for name, _ in layout.groups)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    notes = [f"- {_escape_markdown(note)}" for note in layout.footnotes]
    return title + "\n".join([*lines, "", *notes]) + "\n"


def to_latex(table: Table) -> str:
    r"""Returns a `table` environment with its footnotes; the document needs `\usepackage{booktabs}`."""
    layout = lay_out(table)
    spans, rules, first = [""], [], 2
    for title, width in layout.groups:
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{_escape_latex(title)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    headings = ["Model", *(_escape_latex(f"{h.title} {h.arrow}".rstrip()) for h in layout.headings)]
    body = [[_escape_latex(line.name), *(_latex_cell(cell) for cell in line.cells)] for line in layout.lines]
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{Results on {_escape_latex(_listed(layout))}.}}",
        rf"\begin{{tabular}}{{l{'c' * len(layout.headings)}}}",
        r"\toprule",
        _latex_row(spans),
        " ".join(rules),
        _latex_row(headings),
        r"\midrule",
        *map(_latex_row, body),
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip",
        r"\begin{minipage}{\linewidth}",
        r"\footnotesize",
        *(rf"{_escape_latex(note)}\par" for note in layout.footnotes),
        r"\end{minipage}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Returns the tidy frame of the table, with unrounded numbers."""
    return table.frame().to_csv(index=False, lineterminator="\n")


def to_html(table: Table) -> str:
    """Returns a page with the table and its footnotes that needs no other file and makes no request."""
    layout = lay_out(table)
    groups = "".join(
        f'<th colspan="{span}" scope="colgroup">{html.escape(title)}</th>' for title, span in layout.groups
    )
    headings = "".join(
        f'<th scope="col">{html.escape(f"{heading.title} {heading.arrow}".rstrip())}</th>'
        for heading in layout.headings
    )
    rows = [
        f'<tr><th scope="row">{html.escape(line.name)}</th>{"".join(map(_html_cell, line.cells))}</tr>'
        for line in layout.lines
    ]
    body = [
        "<table>",
        f'<thead>\n<tr><th rowspan="2" scope="col">Model</th>{groups}</tr>\n<tr>{headings}</tr>\n</thead>',
        "<tbody>",
        *rows,
        "</tbody>\n</table>",
        '<ul class="footnotes">',
        *(f"<li>{html.escape(note)}</li>" for note in layout.footnotes),
        "</ul>",
    ]
    return _HTML_PAGE.format(title=html.escape(f"Results on {_listed(layout)}"), body="\n".join(body))


def write_all(table: Table, folder: Path, stem: str = "table") -> list[Path]:
    """Writes the table as .md, .tex, .csv and .html into `folder`, made if needed; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {".md": to_markdown, ".tex": to_latex, ".csv": to_csv, ".html": to_html}
    files = []
    for suffix, render in texts.items():
        file = folder / f"{stem}{suffix}"
        file.write_text(render(table), encoding="utf-8")
        files.append(file)
    return files


def _listed(layout: Layout) -> str:
    """Returns the titles of the tasks as they are listed in a sentence."""
    *others, last = [title for title, _ in layout.groups]
    return f"{', '.join(others)} and {last}" if others else last


def _markdown_heading(heading: Heading, layout: Layout) -> str:
    text = f"{heading.title} {heading.arrow}".rstrip()
    return _escape_markdown(f"{heading.group}: {text}" if layout.several_tasks else text)


def _markdown_cell(spans: list[Span]) -> str:
    return " ".join(_MARKDOWN[span.style].format(_escape_markdown(span.text)) for span in spans)


def _latex_cell(spans: list[Span]) -> str:
    return " ".join(_LATEX[span.style] % _escape_latex(span.text) for span in spans)


def _html_cell(spans: list[Span]) -> str:
    return f"<td>{' '.join(_HTML[span.style].format(html.escape(span.text)) for span in spans)}</td>"


def _latex_row(cells: list[str]) -> str:
    row = rf"{' & '.join(cells)} \\"
    # At the start of a row these two would be read as an argument of the \\ that ends the row before.
    return f"{{}}{row}" if row.startswith(("[", "*")) else row


def _escape_markdown(text: str) -> str:
    """Escapes what Markdown would read; "]" only where it could close a link, so intervals stay legible."""
    text = re.sub(r"[\\`*_~#|$]", r"\\\g<0>", html.escape(text, quote=False))
    return re.sub(r"\](?=[(\[:])", r"\\]", text)


def _escape_latex(text: str) -> str:
    """Escapes what LaTeX would read, and keeps neighbouring hyphens from joining into a dash."""
    return re.sub("-(?=-)", "-{}", text.translate(_LATEX_CHARACTERS))
