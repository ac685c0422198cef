"""What is shown of runs: the paper table, comparisons, figures, pages to look at."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medimg_eval.api.asking import settings_of
from medimg_eval.errors import UsageError
from medimg_eval.instantiate import build_task, stored_task
from medimg_eval.results import RunScores, load_runs
from medimg_eval.run_results import RunResults, folder_of
from medimg_eval.trust import trusting

if TYPE_CHECKING:
    from medimg_eval.results import Comparison, Table
    from medimg_eval.results.comparison import Disagreement
    from medimg_eval.results.figures import Figures

Runs = RunResults | RunScores | str | Path | Sequence[RunResults | RunScores | str | Path]
"""A run or several: results of `test`, run folders, or folders that hold run folders."""


def table(runs: Runs = "runs", **settings: Any) -> Table:
    """The paper table of runs, with intervals; `to_latex()`, `to_markdown()`, `to_html()`, `to_csv()` write it.

    Args:
        runs: which.
        settings: keys of the command `table`, such as `metrics`, `by`, `mean`, `marks`, `percent`, `form`.

    Raises:
        UsageError: a setting does not exist, or the runs are of several tasks whose papers print a table each.
    """
    from medimg_eval.results.tables import tables_of

    tables = tables_of(_scores_of(runs), settings_of("table", settings))
    if len(tables) > 1:
        raise UsageError(f"table={settings['table']} makes {len(tables)} tables; give the runs of one task")
    return next(iter(tables.values()))


def compare(runs: Runs = "runs", metric: str = "", **settings: Any) -> Comparison:
    """Statistical comparison of models; settings such as `baseline` as of `compare`."""
    from medimg_eval.results.tables import comparison_of

    return comparison_of(_scores_of(runs), settings_of("compare", {**settings, "metric": metric}))


def figure(kind: str, runs: Runs = "runs", metric: str | None = None, **settings: Any) -> Figures:
    """Figures for papers, by name; by task where the kind needs.

    Args:
        kind: such as `forest`, `box` or `reliability`.
        runs: which.
        metric: whose values are drawn.
        settings: keys of the command `figure`; with `out` the files are written.
    """
    from medimg_eval.results.figures import Figures, write_figure
    from medimg_eval.viewer import every_figure

    out = settings.pop("out", None)
    wanted = settings_of("figure", {**settings, "kind": kind, "metric": metric, "out": str(out)})
    drawn = Figures(every_figure(lambda: _scores_of(runs), wanted, lambda folder: build_task(stored_task(folder))))
    for stem, drawing in drawn.items() if out is not None else ():
        write_figure(drawing, Path(out), stem)
    return drawn


class ReportPages:
    """A report on disk; a notebook shows it in a frame.

    Attributes:
        index: the page to open.
        compared: of `compare=[A, B]`, the two models case by case, one for each task.
    """

    def __init__(self, index: Path, compared: Sequence[Disagreement]) -> None:
        self.index, self.compared = index, compared

    def __fspath__(self) -> str:
        return str(self.index)

    def __repr__(self) -> str:
        return f"<report: {self.index}>"

    def _repr_html_(self) -> str:
        from html import escape

        # A page from disk may be shown by a notebook's server only below the folder that it was started in.
        resolved = self.index.resolve()
        near = resolved.relative_to(Path.cwd()) if resolved.is_relative_to(Path.cwd()) else None
        sheets = "".join(page._repr_html_() for page in self.compared)
        link = f'<p>Report: <a href="{escape(resolved.as_uri())}" target="_blank">{escape(str(self.index))}</a></p>'
        if near is None:
            return sheets + link
        frame = f'<iframe src="{escape(near.as_posix())}" title="report" width="100%" height="600"></iframe>'
        return sheets + link + frame


def report(runs: Runs, out: str | Path, *, trust: bool = False, **settings: Any) -> ReportPages:
    """Writes pages of tables, cases and images; settings as of `report`."""
    from medimg_eval.catalogue import task_facts
    from medimg_eval.viewer import write_pages

    wanted = settings_of("report", {**settings, "out": str(out)})
    with trusting() if trust else nullcontext():
        written = write_pages(
            lambda: _scores_of(runs), wanted, lambda *where: build_task(stored_task(*where)), task_facts
        )
    return ReportPages(written.page, written.compared)


def _scores_of(runs: Runs) -> list[RunScores]:
    """Runs as their tables read them, in the order given."""
    items = list(runs) if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    read = [item for item in items if isinstance(item, RunScores)]
    folders = [folder_of(item) for item in items if not isinstance(item, RunScores)]
    return read + (load_runs(folders) if folders else [])
