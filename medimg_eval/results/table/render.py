"""A table as Markdown, CSV, HTML, and for the terminal; and all of its files."""

from __future__ import annotations

import html
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import rich.table
from rich.text import Text

from medimg_eval.results.runs import frame_to_csv
from medimg_eval.results.table.latex import to_latex
from medimg_eval.results.table.xlsx import write_xlsx
from medimg_eval.system import product

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medimg_eval.results.table.layout import Layout, Printable, Span, Style

__all__ = [
    "escape_markdown",
    "html_page",
    "html_table",
    "notebook_html",
    "rich_table",
    "to_csv",
    "to_html",
    "to_latex",
    "to_markdown",
    "to_rich",
    "write_all",
    "write_texts",
]

_RICH_STYLES: dict[Style, str] = {
    "plain": "",
    "best": "bold",
    "second": "underline",
    "interval": "dim",
    "quiet": "dim",
    "head": "italic",
}
_MARKDOWN: dict[Style, str] = {
    "plain": "{}",
    "best": "**{}**",
    "second": "<ins>{}</ins>",  # Markdown cannot underline, and GitHub removes <u>
    "interval": "{}",
    "quiet": "{}",
    "head": "*{}*",
}
_HTML: dict[Style, str] = {
    "plain": "{}",
    "best": "<strong>{}</strong>",
    "second": "<u>{}</u>",
    "interval": '<span class="interval">{}</span>',
    "quiet": '<span class="quiet">{}</span>',
    "head": "<em>{}</em>",
}


def to_rich(table: Printable) -> rich.table.Table:
    """Returns the table for a terminal; its footnotes are the caller's to print."""
    return rich_table(table.layout())


def rich_table(layout: Layout) -> rich.table.Table:
    """Returns a layout for a terminal."""
    # A Text is shown as it is, where a str would be searched for markup such as "[bold]".
    alone = None if layout.several_tasks else "".join(name for name, _ in layout.groups)
    grid = rich.table.Table(title=Text(alone, "bold") if alone else None, title_justify="left")
    for stub in layout.stubs:
        grid.add_column(Text(stub))
    for heading in layout.headings:
        title = f"{heading.group}\n{heading.text}" if layout.several_tasks else heading.text
        grid.add_column(Text(title), justify="center")
    for line in layout.lines:
        if line.opens:
            grid.add_section()
        grid.add_row(*map(Text, line.names), *(_rich_cell(layout, cell) for cell in line.cells))
    return grid


def _rich_cell(layout: Layout, spans: list[Span]) -> Text:
    lines = layout.cell_lines(spans)
    return Text("\n").join(Text(" ").join(Text(span.text, _RICH_STYLES[span.style]) for span in line) for line in lines)


def to_markdown(table: Printable) -> str:
    """Returns the table and its footnotes in GitHub's Markdown."""
    layout = table.layout()
    headings = [escape_markdown(stub) for stub in layout.stubs]
    for heading in layout.headings:
        group = f"{heading.group}: " if layout.several_tasks else ""
        headings.append(escape_markdown(group + heading.text))
    rows = [headings, [*["---"] * len(layout.stubs), *[":---:"] * len(layout.headings)]]
    rows += [
        [*map(escape_markdown, line.names), *(_markdown_cell(layout, cell) for cell in line.cells)]
        for line in layout.lines
    ]
    alone = "" if layout.several_tasks else "".join(name for name, _ in layout.groups)
    title = f"**{escape_markdown(alone)}**\n\n" if alone else ""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    notes = [f"- {escape_markdown(note)}" for note in layout.footnotes]
    return title + "\n".join([*lines, "", *notes]) + "\n"


def to_csv(table: Printable) -> str:
    """Returns the tidy frame of the table, with unrounded numbers."""
    return frame_to_csv(table.frame())


def to_html(table: Printable) -> str:
    """Returns a self-contained page with table and footnotes."""
    layout = table.layout()
    return html_page(layout.caption, html_table(layout))


def html_page(title: str, body: str) -> str:
    """Returns a page around HTML."""
    page = Template((files(__package__) / "static" / "page.html").read_text(encoding="utf-8"))
    return page.substitute(title=html.escape(title), body=body)


def html_table(layout: Layout) -> str:
    """Returns the table and its footnotes as HTML to put into a page."""
    tall = ' rowspan="2"' if layout.grouped else ""
    stubs = "".join(f'<th{tall} scope="col">{html.escape(stub)}</th>' for stub in layout.stubs)
    groups = "".join(
        f'<th colspan="{span}" scope="colgroup">{html.escape(title)}</th>' for title, span in layout.groups
    )
    headings = "".join(f'<th scope="col">{html.escape(heading.text)}</th>' for heading in layout.headings)
    head = f"<tr>{stubs}{groups}</tr>\n<tr>{headings}</tr>" if layout.grouped else f"<tr>{stubs}{headings}</tr>"
    rows = []
    for line in layout.lines:
        names = "".join(f'<th scope="row">{html.escape(name)}</th>' for name in line.names)
        start = '<tr class="opens">' if line.opens else "<tr>"
        rows.append(f"{start}{names}{''.join(_html_cell(layout, cell) for cell in line.cells)}</tr>")
    body = [
        "<table>",
        f"<thead>\n{head}\n</thead>",
        "<tbody>",
        *rows,
        "</tbody>\n</table>",
        '<ul class="footnotes">',
        *(f"<li>{html.escape(note)}</li>" for note in layout.footnotes),
        "</ul>",
    ]
    return "\n".join(body)


def notebook_html(*tables: Printable, before: str = "") -> str:
    """Returns stacked tables for notebooks, with scoped style.

    Args:
        tables: each with its caption where there are several.
        before: HTML that stands before them.
    """
    style = (files(__package__) / "static" / "notebook.css").read_text(encoding="utf-8")
    parts = []
    for table in tables:
        layout = table.layout()
        alone = layout.caption if len(tables) > 1 else ""
        parts.append((f"<h4>{html.escape(alone)}</h4>\n" if alone else "") + html_table(layout))
    inner = "\n".join([before, *parts] if before else parts)
    return f'<div class="medimg-eval">\n<style>\n{style}</style>\n{inner}\n</div>\n'


def write_all(table: Printable, folder: str | Path, stem: str = "table") -> list[Path]:
    """Writes the table in five formats; returns the files.

    .md, .tex, .csv, .html and .xlsx into `folder`, made if needed.
    """
    folder = Path(folder)
    renderers = {".md": to_markdown, ".tex": to_latex, ".csv": to_csv, ".html": to_html}
    files = write_texts(folder / stem, {suffix: render(table) for suffix, render in renderers.items()})
    return [*files, write_xlsx(table, folder / f"{stem}.xlsx")]


def write_texts(path: Path, texts: Mapping[str, str]) -> list[Path]:
    """Writes texts to `path` by suffix; returns the files."""
    files = [path.with_name(f"{path.name}{end}") for end in texts]
    for file, text in zip(files, texts.values(), strict=True):
        with product(file) as partial:
            partial.write_text(text, encoding="utf-8")
    return files


def _markdown_cell(layout: Layout, spans: list[Span]) -> str:
    lines = layout.cell_lines(spans)
    return "<br>".join(
        " ".join(_MARKDOWN[span.style].format(escape_markdown(span.text)) for span in line) for line in lines
    )


def _html_cell(layout: Layout, spans: list[Span]) -> str:
    lines = (
        " ".join(_HTML[span.style].format(html.escape(span.text)) for span in line) for line in layout.cell_lines(spans)
    )
    return f"<td>{'<br>'.join(lines)}</td>"


def escape_markdown(text: str) -> str:
    """Escapes Markdown; "]" only where it could close a link."""
    text = " ".join(text.splitlines())  # a new line would end the row or the item
    text = re.sub(r"[\\`*_~#|$]", r"\\\g<0>", html.escape(text, quote=False))
    return re.sub(r"\](?=[(\[:])", r"\\]", text)
