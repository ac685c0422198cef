"""The folder of a leaderboard: an overview, a page of each task, JSON, and the ranks that filters compute with."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

import medimg_eval
from medimg_eval.results.report import LEADERBOARD, claim, copy_static, plain, write_script, write_text
from medimg_eval.results.table import Layout, Line, Span, bounded, html_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from medimg_eval.results.leaderboard.board import BoardTask, Leaderboard

_DASH = "\N{EN DASH}"
SHARED = ("report.css", "base.js")
STATIC = ("leaderboard.css", "leaderboard.js", "leaderboard.schema.json")


def write_leaderboard(board: Leaderboard, folder: Path) -> Path:
    """Writes the pages of a leaderboard and `leaderboard.json` and returns the index.

    Args:
        board: What is shown.
        folder: Made if needed; a leaderboard that it holds is written over.

    Raises:
        UserError: The folder holds something else, or cannot be written to.
    """
    content = plain(board.content())
    claim(folder, LEADERBOARD)
    copy_static(folder, SHARED)
    own = files(__package__) / "static"
    for name in STATIC:
        write_text(folder / name, (own / name).read_text(encoding="utf-8"))
    pages = _page_names(board)
    for number, described in enumerate(content["tasks"]):
        described["page"] = pages[described["task"]]
        write_script(folder, f"data/ranks-{number}", board.resampled_ranks(board.tasks[number]))
    write_text(folder / "leaderboard.json", json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    write_script(folder, "data/leaderboard", content)
    for task in board.tasks:
        body = _task_body(task)
        write_text(folder / pages[task.task], _fill_page(board, body, root="../", title=task.title, task=task.task))
    write_text(folder / "index.html", _fill_page(board, _index_body(board, pages), root="", title="", task=""))
    _remove_former(folder, {*pages.values()}, len(board.tasks))
    return folder / "index.html"


def _page_names(board: Leaderboard) -> dict[str, str]:
    """Returns page names by task, portable and stable."""
    page_names: dict[str, str] = {}
    for task in board.tasks:
        stem = re.sub(r"[^a-z0-9_.-]+", "-", task.task.lower()).strip("-.") or "task"
        taken = set(page_names.values())
        names = (f"tasks/{stem}{end}.html" for end in ("", *(f"-{number}" for number in range(2, len(taken) + 3))))
        page_names[task.task] = next(name for name in names if name not in taken)
    return page_names


def _remove_former(folder: Path, pages: set[str], tasks: int) -> None:
    """Removes the pages of tasks that an earlier leaderboard in the folder had."""
    kept_files = {folder / page for page in pages} | {folder / "data" / f"ranks-{number}.js" for number in range(tasks)}
    for path in [*folder.glob("tasks/*.html"), *folder.glob("data/ranks-*.js")]:
        if path not in kept_files:
            path.unlink()


def _fill_page(board: Leaderboard, body: str, *, root: str, title: str, task: str) -> str:
    template = Template((files(__package__) / "static" / "page.html").read_text(encoding="utf-8"))
    name = html.escape(board.title)
    return template.substitute(
        version=html.escape(medimg_eval.__version__),
        root=root,
        task=html.escape(task),
        title=f"{html.escape(title)} \N{EN DASH} {name}" if title else name,
        home=name,
        crumb=f'<span aria-current="page">{html.escape(title)}</span>' if title else "",
        body=body,
    )


def _index_body(board: Leaderboard, pages: Mapping[str, str]) -> str:
    """Returns what the overview holds where no script runs."""
    listed_tasks = []
    for group in board.standings:
        lines = [
            Line(
                [row.model],
                [
                    bounded(row.place, row.place_low, row.place_high, "{:.0f}".format),
                    bounded(row.mean_rank, row.mean_rank_low, row.mean_rank_high, "{:.2f}".format, _DASH),
                    [Span(f"{100 * row.wins:.0f} %")],
                    [Span(f"{row.tasks} of {len(group.columns)}")],
                ],
            )
            for row in group.rows
        ]
        layout = Layout.of_block("", ["Place", "Mean rank", "Wins", "Tasks"], lines, [], ["Model"], board.title)
        region = '<div class="wide" tabindex="0" role="region" aria-label="Standings">'
        listed_tasks.append(f'<section class="card"><h2>Standings</h2>{region}{html_table(layout)}</div></section>')
    tasks = "".join(f'<li><a href="{pages[task.task]}">{html.escape(task.title)}</a></li>' for task in board.tasks)
    none = "" if listed_tasks else '<p class="note">No task has two models, so none is ranked.</p>'
    return (
        f"<h1>{html.escape(board.title)}</h1>\n{none}"
        f'<div id="board">{"".join(listed_tasks)}\n<section class="card"><h2>Tasks</h2><ul>{tasks}</ul></section></div>'
    )


def _task_body(one: BoardTask) -> str:
    """Returns a task page's content without scripts, and notes."""
    facts = {
        "family": one.family,
        "modality": ", ".join(one.modalities),
        "cases": f"{one.cases:,}",
        "access": str(one.card.get("access", "")),
        "licence": str(one.card.get("licence", "")),
    }
    facts_html = "".join(
        f"<span>{name} <b{' data-modalities' * (name == 'modality')}>{html.escape(value or _DASH)}</b></span>"
        for name, value in facts.items()
    )
    description = str(one.card.get("description", ""))
    about = f'<p class="soft">{html.escape(description)}</p>' if description else ""
    # The page is of one task, whose title need not stand before each note.
    own = [re.sub(rf"^{re.escape(one.title)}[:,] ", "", note) for note in one.table.footnotes]
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in own)
    table = html_table(one.table.layout()._replace(footnotes=[]))
    return (
        f'<h1>{html.escape(one.title)}</h1>\n{about}<p class="facts">{facts_html}</p>\n'
        f'<div id="board"><section class="card"><div class="wide" tabindex="0" role="region" aria-label="Results">'
        f"{table}</div></section></div>\n"
        f'<section class="card" aria-label="Notes"><h2>Notes</h2><ul class="footnotes">{notes}</ul></section>'
    )
