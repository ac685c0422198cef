"""A table as Markdown, LaTeX, CSV, HTML, and for the terminal."""

from __future__ import annotations

import html
import itertools
import math
import re
from typing import TYPE_CHECKING

import rich.table
from rich.text import Text

from medimg_eval.results.layout import Heading, Layout, Printable, Span, Style

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LATEX_COLUMNS = 12
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
.opens th, .opens td {{ border-top: 1px solid; }}
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


def to_rich(table: Printable) -> rich.table.Table:
    """Returns the table for a terminal; its footnotes are the caller's to print."""
    layout = table.layout()
    # A Text is shown as it is, where a str would be searched for markup such as "[bold]".
    alone = None if layout.several_tasks else "".join(name for name, _ in layout.groups)
    grid = rich.table.Table(title=None if alone is None else Text(alone, "bold"), title_justify="left")
    for stub in layout.stubs:
        grid.add_column(Text(stub))
    for heading in layout.headings:
        title = _heading_text(heading)
        grid.add_column(Text(f"{heading.group}\n{title}" if layout.several_tasks else title), justify="center")
    for line in layout.lines:
        if line.opens:
            grid.add_section()
        cells = [Text(" ").join(Text(span.text, _RICH_STYLES[span.style]) for span in cell) for cell in line.cells]
        grid.add_row(*map(Text, line.names), *cells)
    return grid


def to_markdown(table: Printable) -> str:
    """Returns the table and its footnotes in GitHub's Markdown."""
    layout = table.layout()
    headings = [_escape_markdown(stub) for stub in layout.stubs]
    headings += [_markdown_heading(heading, layout) for heading in layout.headings]
    rows = [headings, [*["---"] * len(layout.stubs), *[":---:"] * len(layout.headings)]]
    rows += [[*map(_escape_markdown, line.names), *map(_markdown_cell, line.cells)] for line in layout.lines]
    title = "" if layout.several_tasks else "".join(f"**{_escape_markdown(name)}**\n\n" for name, _ in layout.groups)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    notes = [f"- {_escape_markdown(note)}" for note in layout.footnotes]
    return title + "\n".join([*lines, "", *notes]) + "\n"


def to_latex(table: Printable) -> str:
    r"""Returns a `table` environment with its footnotes; the document needs `\usepackage{booktabs}`.

    More than 12 columns are broken into blocks of about equal width, one below the other.
    """
    layout = table.layout()
    blocks = [_latex_tabular(block) for block in _blocks(layout)]
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_escape_latex(layout.caption)}.}}",
        "\n\\par\\medskip\n".join(blocks),
        r"\par\smallskip",
        r"\begin{minipage}{\linewidth}",
        r"\footnotesize",
        *(rf"{_escape_latex(note)}\par" for note in layout.footnotes),
        r"\end{minipage}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _blocks(layout: Layout) -> Iterator[Layout]:
    """Yields the layout in blocks of columns that a page may hold."""
    columns = len(layout.headings)
    number = math.ceil(columns / _LATEX_COLUMNS)
    if number < 2:
        yield layout
        return
    titles = [title for title, width in layout.groups for _ in range(width)]
    for block in range(number):
        part = slice(columns * block // number, columns * (block + 1) // number)
        yield layout._replace(
            groups=[(title, len(list(same))) for title, same in itertools.groupby(titles[part])],
            headings=layout.headings[part],
            lines=[line._replace(cells=line.cells[part]) for line in layout.lines],
        )


def _latex_tabular(layout: Layout) -> str:
    spans, rules, first = [""] * len(layout.stubs), [], len(layout.stubs) + 1
    for title, width in layout.groups:
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{_escape_latex(title)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    headings = [_escape_latex(text) for text in (*layout.stubs, *map(_heading_text, layout.headings))]
    body = [
        ("\\midrule\n" if line.opens else "")
        + _latex_row([*map(_escape_latex, line.names), *map(_latex_cell, line.cells)])
        for line in layout.lines
    ]
    lines = [
        rf"\begin{{tabular}}{{{'l' * len(layout.stubs)}{'c' * len(layout.headings)}}}",
        r"\toprule",
        _latex_row(spans),
        " ".join(rules),
        _latex_row(headings),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines)


def to_csv(table: Printable) -> str:
    """Returns the tidy frame of the table, with unrounded numbers."""
    return table.frame().to_csv(index=False, lineterminator="\n")


def to_html(table: Printable) -> str:
    """Returns a page with the table and its footnotes that needs no other file and makes no request."""
    layout = table.layout()
    return html_page(layout.caption, html_table(layout))


def html_page(title: str, body: str) -> str:
    """Returns a page around HTML."""
    return _HTML_PAGE.format(title=html.escape(title), body=body)


def html_table(layout: Layout) -> str:
    """Returns the table and its footnotes as HTML to put into a page."""
    stubs = "".join(f'<th rowspan="2" scope="col">{html.escape(stub)}</th>' for stub in layout.stubs)
    groups = "".join(
        f'<th colspan="{span}" scope="colgroup">{html.escape(title)}</th>' for title, span in layout.groups
    )
    headings = "".join(f'<th scope="col">{html.escape(_heading_text(heading))}</th>' for heading in layout.headings)
    rows = []
    for line in layout.lines:
        names = "".join(f'<th scope="row">{html.escape(name)}</th>' for name in line.names)
        start = '<tr class="opens">' if line.opens else "<tr>"
        rows.append(f"{start}{names}{''.join(map(_html_cell, line.cells))}</tr>")
    body = [
        "<table>",
        f"<thead>\n<tr>{stubs}{groups}</tr>\n<tr>{headings}</tr>\n</thead>",
        "<tbody>",
        *rows,
        "</tbody>\n</table>",
        '<ul class="footnotes">',
        *(f"<li>{html.escape(note)}</li>" for note in layout.footnotes),
        "</ul>",
    ]
    return "\n".join(body)


def write_all(table: Printable, folder: Path, stem: str = "table") -> list[Path]:
    """Writes the table as .md, .tex, .csv and .html into `folder`, made if needed; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {".md": to_markdown, ".tex": to_latex, ".csv": to_csv, ".html": to_html}
    files = []
    for suffix, render in texts.items():
        file = folder / f"{stem}{suffix}"
        file.write_text(render(table), encoding="utf-8")
        files.append(file)
    return files


def _heading_text(heading: Heading) -> str:
    return f"{heading.title} {heading.arrow}".rstrip()


def _markdown_heading(heading: Heading, layout: Layout) -> str:
    text = _heading_text(heading)
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
