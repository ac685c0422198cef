"""The report's pages put together: tables, lists of cases, images with overlays, figures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from medimg_eval.arguments import as_list
from medimg_eval.errors import UsageError, UserError
from medimg_eval.evaluation.identity import slug
from medimg_eval.evaluation.progress import tracked
from medimg_eval.results import CompareSettings, RunScores, build_table
from medimg_eval.results.comparison import FIRST, SECOND, Disagreement, disagreements
from medimg_eval.results.leaderboard import build_leaderboard, write_leaderboard
from medimg_eval.results.report import (
    CASES,
    LEADERBOARD,
    MOST,
    Report,
    TaskCases,
    by_task,
    check_wanted,
    differences_html,
    task_titles,
)
from medimg_eval.results.runs import frame_to_csv, is_set
from medimg_eval.results.table import Settings, check_numbers, named_runs
from medimg_eval.system import whole
from medimg_eval.tasks import Task
from medimg_eval.viewer.examples import draw_examples
from medimg_eval.viewer.scene import CaseView

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """Written report page, with model differences by task."""

    page: Path
    compared: Sequence[Disagreement]


MakeTask = Callable[[Path, str | None], Task]
"""Makes the task of a run folder, whose data lie at another root now where one is given."""
TaskFacts = Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, tuple[str, tuple[str, ...]]]]
"""Says of which family and modalities tasks are, by their names and stored configs."""
OF_CASES = {"cases": "worst:50", "root": None, "voxels": 2_000_000, "examples": 0, "compare": None, "metric": None}
"""Keys about pictures of cases, which a leaderboard has none of, and what they are unless they are set."""


def write_pages(
    read_runs: Callable[[], Sequence[RunScores]],
    wanted: Mapping[str, Any],
    make_task: MakeTask,
    task_facts: TaskFacts,
    warn: Callable[[str], None] = log.warning,
) -> Written:
    """Writes the report.

    Args:
        read_runs: reads the runs that it is about, once the settings are known to be meant.
        wanted: the keys of the command `report`.
        make_task: makes the task of a run.
        task_facts: says of which family and modalities tasks are.
        warn: is told what is left out.
    """
    UsageError.refuse_invalid("kind of report", (CASES, LEADERBOARD), wanted["kind"])
    if wanted["kind"] == LEADERBOARD:
        return _write_leaderboard(read_runs, wanted, task_facts)
    for key, least in (("voxels", 1000), ("examples", 0)):
        if not isinstance(wanted[key], int) or isinstance(wanted[key], bool) or wanted[key] < least:
            raise UsageError(f"{key} must be a whole number of at least {least}, got {wanted[key]!r}")
    runs = read_runs()
    tasks = by_task(runs, named_runs(runs))
    names_ = [str(name) for name in as_list(wanted["cases"])]
    check_wanted(names_, tasks)
    roots = _data_roots(wanted["root"], [task.task for task in tasks])
    table = build_table(runs, **{key: wanted[key] for key in ("resamples", "level", "seed")})
    models = as_list(wanted["compare"] or [])
    how = CompareSettings(resamples=wanted["resamples"], seed=wanted["seed"])
    compared = disagreements(runs, list(map(str, models)), wanted["metric"], how) if models else []
    if wanted["metric"] is not None and not models:
        raise UsageError("metric= is that by which two models are compared; name them by compare=[A,B]")
    report = Report(Path(wanted["out"]))
    views = (
        {task.task: _case_view(task, roots.get(task.task), wanted["voxels"], make_task) for task in tasks}
        if wanted["scores"] is None
        else {}
    )
    todo: list[tuple[int, int, TaskCases, CaseView]] = []
    names = task_titles(table, tasks)
    for task in tasks:
        view = views.get(task.task)
        what = view if isinstance(view, CaseView) else None
        differing = [each for each in compared if each.field.task == task.task]
        indices = list(dict.fromkeys([*task.chosen(names_), *task.places(_shown_of(differing))])) if what else []
        card = what.task.card if what else {}
        number = report.add_task(task, what, indices, title=names[task.task], card=card)
        if isinstance(view, str):
            report.warn(number, view)
            warn(f"{task.task}: {view}")
        if what is not None:
            todo += [(number, index, task, what) for index in indices]
    figures = _forest_figures([run for run in runs if run.task in names], wanted)
    sections = [
        _comparison_section(comparison, views.get(comparison.field.task), report.folder) for comparison in compared
    ]
    index = report.write_index(table, _report_title(wanted["title"], names), figures, sections)
    for number, index_, task, what in tracked(todo, "drawing cases"):
        case = task.cases[index_]
        report.add_scene(number, index_, what.key(case), partial(what.scene, case))
    report.tidy()
    if wanted["examples"]:
        _write_examples(tasks, views, wanted, warn)
    return Written(index, compared)


def _shown_of(compared: Sequence[Disagreement]) -> list[str]:
    """The cases that the lists of two models show, which get pictures."""
    rows = [
        comparison.listed[comparison.listed["better"] == better].head(MOST)
        for comparison in compared
        for better in (FIRST, SECOND)
    ]
    return [str(case) for some in rows for case in some.index]


def _comparison_section(compared: Disagreement, view: CaseView | str | None, folder: Path) -> str:
    """Overview section on two models, with their differing cases written."""
    stem = f"differences-{slug(compared.field.task)}"
    renamed = dict(zip((FIRST, SECOND), compared.models, strict=True))
    frame = compared.listed.assign(better=compared.listed["better"].map(renamed)).rename(columns=renamed)
    with whole(folder / f"{stem}.csv") as partial_file:
        partial_file.write_text(frame_to_csv(frame.reset_index()), encoding="utf-8")

    def texts(case: str) -> dict[str, Any]:
        return view.texts(case, compared.models) if isinstance(view, CaseView) else {}

    return differences_html(compared, texts, f"{stem}.csv")


def _write_leaderboard(
    read_runs: Callable[[], Sequence[RunScores]], wanted: Mapping[str, Any], task_facts: TaskFacts
) -> Written:
    for key, usual in OF_CASES.items():
        if wanted[key] != usual:
            raise UsageError(f"kind={LEADERBOARD} shows no cases; leave out {key}={wanted[key]}")
    check_numbers(*(wanted[key] for key in ("resamples", "level", "seed")))
    runs = read_runs()
    facts = task_facts({run.task: run.task_config for run in runs})
    board = build_leaderboard(runs, facts, **{key: wanted[key] for key in ("title", "resamples", "level", "seed")})
    return Written(write_leaderboard(board, Path(wanted["out"])), ())


def _report_title(given: str | None, names: Mapping[str, str]) -> str:
    if given is not None:
        return str(given)
    return next(iter(names.values())) if len(names) == 1 else f"Report on {len(names)} tasks"


def _data_roots(given: Any, tasks: Sequence[str]) -> Mapping[str, str]:
    """Returns present data locations of moved tasks."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        UsageError.refuse_unknown("root: no run is of task", tasks, *given)
        return {str(task): str(root) for task, root in given.items()}
    if len(tasks) > 1:
        raise UsageError(f"root={given} is one folder for {len(tasks)} tasks; give root={{TASK: FOLDER}}")
    return {tasks[0]: str(given)}


def _case_view(cases: TaskCases, root: str | None, voxels: int, make_task: MakeTask) -> CaseView | str:
    """Returns a task's displayable cases, or the reason against."""
    newest: RunScores = max(cases.runs.values(), key=lambda run: run.started)
    try:
        return CaseView(make_task(newest.folder, root), cases.runs, voxels)
    except (UserError, UsageError, KeyError) as error:
        return f"Images and texts are left out, for the task's data cannot be read: {error}"


def _write_examples(
    tasks: Sequence[TaskCases],
    shown: Mapping[str, CaseView | str],
    wanted: Mapping[str, Any],
    warn: Callable[[str], None],
) -> None:
    """Writes a grid of examples for each segmentation, as figures for a paper."""
    from medimg_eval.results.figures import write_figure

    views = [(task, what) for task in tasks if isinstance(what := shown.get(task.task), CaseView)]
    views = [(task_cases, what) for task_cases, what in views if what.labels]
    if not views:
        warn("examples: there is no segmentation whose images can be read")
    for task, what in views:
        drawn = draw_examples(task, what, count=wanted["examples"])
        files = write_figure(drawn, Path(wanted["out"]) / "examples", task.task)
        log.info("wrote %s", ", ".join(map(str, files)))


def _forest_figures(runs: Sequence[RunScores], wanted: Mapping[str, Any]) -> dict[str, str]:
    """Returns forest plots by task as SVG, of several models."""
    from medimg_eval.results.figures import forest, svg  # matplotlib takes a second to import

    settings = Settings(wanted["resamples"], wanted["level"], wanted["seed"])
    figures = {}
    for task in dict.fromkeys(run.task for run in runs):
        members = [run for run in runs if run.task == task and run.finished]
        metric = next((name for name in members[0].metrics if not is_set(name)), None) if len(members) > 1 else None
        if metric is not None:
            with suppress(UserError):  # such as a metric that no run has a value of
                figures[task] = svg(forest(members, metric, width="double", settings=settings))
    return figures
