"""Outside `tasks/` a task is known by its contract alone: a new family changes nothing there."""

import ast
from functools import cache
from pathlib import Path

import pytest

import medimg_eval
from medimg_eval import tasks
from medimg_eval.tasks.base import left_out, split_source

PACKAGE = Path(medimg_eval.__file__).parent
OWN = ("tasks", "configs", "metrics", "models")
"""Rooms that are no place outside: the families themselves, and what knows of no task."""

DOORS = {"instantiate.py", "data/stored.py"}
"""Where a config becomes a task, which may be asked whether it is one."""

FAMILIES = {name for name in tasks.__all__ if name.endswith("Task") and name != "Task"}
ABOUT = {"task", "_task", "layout", "_layout"}


@cache  # parsing them takes seconds
def sources():
    """Every module outside, by its path below the package."""
    files = (file for file in PACKAGE.rglob("*.py") if file.relative_to(PACKAGE).parts[0] not in OWN)
    return {file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def names(node):
    """Every name and attribute within a piece of code."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return found | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def last(node):
    """What an expression ends in: `task` of `self.task`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def special_cases(tree):
    """The lines that tell one family from another, each with what it does."""
    for node in ast.walk(tree):
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if called in ("isinstance", "issubclass") and names(node.args[1]) & {*FAMILIES, "Task"}:
            yield node.lineno, "tests the class of a task"
        elif called in ("getattr", "hasattr") and last(node.args[0]) in ABOUT:
            yield node.lineno, "asks whether a task or a layout has something"
        elif isinstance(node, ast.Attribute) and node.attr.startswith("_") and last(node.value) in ("task", "_task"):
            yield node.lineno, f"uses task.{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "endswith":
            texts = [
                one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            if any(text.endswith("Task") for text in texts):
                yield node.lineno, "tests the name of a class"


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("isinstance(task, SegmentationTask | QuestionTask)", "tests the class of a task"),
        ("isinstance(self.task, tasks.ReportTask)", "tests the class of a task"),
        ("getattr(task, 'labels', {})", "asks whether a task or a layout has something"),
        ("getattr(task.layout, 'left_out', {})", "asks whether a task or a layout has something"),
        ("hasattr(self.task, 'labels')", "asks whether a task or a layout has something"),
        ("self.task._pair(case)", "uses task._pair"),
        ("made.endswith('QuestionTask')", "tests the name of a class"),
    ],
)
def test_every_kind_of_special_case_is_found(code, what):
    assert [found for _, found in special_cases(ast.parse(code))] == [what]


@pytest.mark.parametrize("code", ["isinstance(case, Case)", "getattr(model, 'cuts')", "task.panels(case)"])
def test_what_is_no_special_case_passes(code):
    assert not list(special_cases(ast.parse(code)))


def test_no_family_is_told_from_another_outside_of_tasks():
    found = {file: list(special_cases(tree)) for file, tree in sources().items() if file not in DOORS}
    assert {file: lines for file, lines in found.items() if lines} == {}


def test_no_family_is_imported_where_tasks_are_run_shown_or_compared():
    rooms = ("evaluation", "viewer", "commands", "results")
    importing = {
        file
        for file, tree in sources().items()
        if file.startswith(rooms)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and FAMILIES & {one.name for one in node.names}
    }
    assert importing == set()


def test_every_family_names_what_judges_its_cases():
    assert [name for name in sorted(FAMILIES) if not getattr(tasks, name).judges] == []


def test_a_layout_of_ones_own_needs_cases_alone():
    class Bare:
        def cases(self, split):
            return []

    class Named(Bare):
        left_out = {"c7": "has no image"}  # noqa: RUF012 - as users' layouts said it before it was a method

        def split_source(self):
            return {"split.json": "ab12"}

    told = [(dict(split_source(one)), dict(left_out(one))) for one in (Bare(), Named())]
    assert told == [({}, {}), ({"split.json": "ab12"}, {"c7": "has no image"})]
