"""The folder of a report: one page that opens from disk, and the data that it loads piece by piece, as scripts."""

from __future__ import annotations

import html
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import medimg_eval
from medimg_eval.results.report.folder import CASES, claim, copy_static, write_script, write_text
from medimg_eval.results.report.lists import PIECE, TaskCases
from medimg_eval.results.table import html_table, titles

if TYPE_CHECKING:
    from medimg_eval.results.table import Table

STATIC = ("report.css", "base.js", "report.js", "sessions.js", "viewer.js")
VIEWER = "niivue.js"
NOTICES = "niivue-licences.txt"


class Showing(Protocol):
    """Views of the cases of a task beside their scores."""

    warnings: list[str]

    def key(self, case_id: str) -> str:
        """Changes when what is shown of a case would."""

    def about(self, case_id: str) -> str:
        """The beginning of what is asked about a case."""

    def texts(self, case_id: str) -> dict[str, Any]:
        """Texts of question, right answer and reply."""

    def scene(self, case_id: str, folder: Path) -> dict[str, Any]:
        """Scene of the case; pictures are written into `folder`."""


def viewer() -> Path | None:
    """The viewer of volumes, where it was built into this installation."""
    viewer_file = Path(str(files(__package__) / "viewer" / VIEWER))
    return viewer_file if viewer_file.is_file() else None


class Report:
    """A report in a folder.

    Args:
        folder: Made if needed.

    Raises:
        UserError: The folder holds something else, or cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        claim(folder, CASES)
        self._entries: list[dict[str, Any]] = []
        self._kept: set[str] = set()

    def add_task(
        self, cases: TaskCases, shown: Showing | None, wanted: Collection[int], *, title: str, card: Mapping[str, Any]
    ) -> int:
        """Writes a task's list, scores and texts, and returns its number.

        Args:
            cases: The cases.
            shown: What can be shown of them; None where nothing but scores is there.
            wanted: Places of the cases that get pictures.
            title: Of the task.
            card: Its description, among other things.
        """
        number = len(self._entries)
        listing = cases.listing() | {"pictured": sorted(wanted) if shown else []}
        about = [shown.about(case) for case in cases.cases] if shown else []
        if len(set(about)) > 1:
            listing["about"] = about
        write_script(self.folder, f"data/{number}", listing)
        for piece, rows in enumerate(cases.pieces()):
            ids = cases.cases[piece * PIECE : piece * PIECE + len(rows)]
            details = [
                {"scores": scores, "texts": (shown.texts(case) if shown else {}) or None}
                for case, scores in zip(ids, rows, strict=True)
            ]
            write_script(self.folder, f"details/{number}/{piece}", details)
            self._kept.add(f"details/{number}/{piece}")
        self._kept.add(f"data/{number}")
        self._entries.append(
            {
                "number": number,
                "task": cases.task,
                "title": title,
                "description": str(card.get("description", "")),
                "warnings": shown.warnings if shown else [],
                "drawable": shown is not None,
                "cases": len(cases.cases),
                "models": list(cases.runs),
            }
        )
        return number

    def warn(self, number: int, warning: str) -> None:
        """Says something on all pages of a task."""
        self._entries[number]["warnings"] = [*self._entries[number]["warnings"], warning]

    def add_scene(self, number: int, place: int, key: str, make: Callable[[Path], Mapping[str, Any]]) -> bool:
        """Draws a case unless drawn before; returns whether it did.

        Args:
            number: Of the task.
            place: Of the case in its list; ids of cases are no names of files.
            key: Changes when the scene would.
            make: Writes pictures into the folder that it is given, and returns the scene.
        """
        name = f"cases/{number}/{place}"
        self._kept.add(name)
        mark = self.folder / f"{name}.key"
        if mark.is_file() and mark.read_text(encoding="ascii") == key and (self.folder / f"{name}.js").is_file():
            return False
        mark.unlink(missing_ok=True)
        shutil.rmtree(self.folder / name, ignore_errors=True)
        scene = make(self.folder / name)
        write_script(self.folder, name, scene)
        if not scene.get("problems"):  # what could not be read may have been mended by the next time
            mark.write_text(key, encoding="ascii")
        return True

    def write_index(
        self, table: Table, title: str, figures: Mapping[str, str] | None = None, sections: Sequence[str] = ()
    ) -> Path:
        """Writes the page itself and returns it.

        Args:
            table: Of all tasks.
            title: Of the report.
            figures: By task, a figure as SVG.
            sections: Further parts of the overview as HTML, below its tables.
        """
        own = files(__package__) / "static"
        copy_static(self.folder, STATIC)
        built = viewer()
        for name in (VIEWER, NOTICES):
            if built is not None:
                shutil.copyfile(built.parent / name, self.folder / name)
        for task, svg in (figures or {}).items():
            write_text(self.folder / "figures" / f"{self._number(task)}.svg", svg)
        write_script(self.folder, "data/report", {"title": title, "niivue": built is not None, "tasks": self._entries})
        page = Template((own / "index.html").read_text(encoding="utf-8"))
        page_html = page.substitute(
            version=html.escape(medimg_eval.__version__),
            title=html.escape(title),
            overview=self._overview(table, title, set(figures or {}), sections),
        )
        write_text(self.folder / "index.html", page_html)
        return self.folder / "index.html"

    def tidy(self) -> None:
        """Removes leftovers of an earlier report, such as pictures."""
        for part in ("data", "details", "cases"):
            for path in sorted((self.folder / part).rglob("*.js")):
                name = path.relative_to(self.folder).with_suffix("").as_posix()
                if name not in self._kept and name != "data/report":
                    path.unlink()
                    path.with_suffix(".key").unlink(missing_ok=True)
                    shutil.rmtree(path.with_suffix(""), ignore_errors=True)

    def _number(self, task: str) -> int:
        return [entry["task"] for entry in self._entries].index(task)

    def _overview(self, table: Table, title: str, drawn: Collection[str], sections: Sequence[str]) -> str:
        """Returns the tables as HTML, task by task; unfinished tasks are among them."""
        entries = {entry["task"]: entry for entry in self._entries}
        parts = [
            f'<h1>{html.escape(title)}</h1>\n<p class="soft">{_count_text(self._entries)}</p>',
            '<div class="tables">',
        ]
        tables = {part.columns[0].task: part for part in table.by_task()}
        for task in dict.fromkeys([*tables, *entries]):
            part, entry = tables.get(task), entries.get(task)
            name = html.escape(part.columns[0].group if part else entries[task]["title"])
            known_as = "" if entry is None else f' id="task-{entry["number"]}"'
            inner = [f'<section class="card"{known_as} aria-label="{name}">', '<div class="head">']
            if entry is None:
                inner.append(f"<h2>{name}</h2></div>")
            else:
                link = f"#task={quote(task, safe='')}"
                inner.append(
                    f'<h2><a href="{link}">{name}</a></h2><span class="soft small">{entry["cases"]:,} cases, '
                    f'<a href="{link}">open the list</a></span></div>'
                )
                inner += [f'<p class="note">{html.escape(text)}</p>' for text in entry["warnings"]]
                if entry["description"]:
                    inner.append(f'<p class="soft small">{html.escape(entry["description"])}</p>')
            if part is not None:  # of probabilities alone there is none
                region = f'<div class="wide" tabindex="0" role="region" aria-label="Results, {name}">'
                inner.append(f"{region}{html_table(part.layout())}</div>")
            if entry is not None and task in drawn:
                inner.append(
                    f'<img class="figure" src="figures/{entry["number"]}.svg" alt="Means with intervals, {name}">'
                )
            parts.append("\n".join([*inner, "</section>"]))
        parts += ["</div>", *sections]
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in table.footnotes)
        parts.append(
            f'<section class="card" aria-label="Notes"><h2>Notes</h2><ul class="footnotes">{notes}</ul></section>'
        )
        return "\n".join(parts)


def task_titles(table: Table, cases: Sequence[TaskCases]) -> dict[str, str]:
    """Returns the title of each task as the table has it."""
    titles_ = titles([run for case in cases for run in case.runs.values()])
    return titles_ | {column.task: column.group for column in table.columns}


def _count_text(entries: Sequence[Mapping[str, Any]]) -> str:
    models = {name for entry in entries for name in entry["models"]}
    cases = sum(entry["cases"] for entry in entries)
    counts = ((len(entries), "task"), (len(models), "model"), (cases, "case"))
    return ", ".join(f"{count:,} {noun}{'s' * (count != 1)}" for count, noun in counts)
