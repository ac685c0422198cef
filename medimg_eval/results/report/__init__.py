"""Runs as a folder of pages to look at, which opens from disk without server and network."""

from medimg_eval.results.report.lists import TaskCases, by_task, check_wanted
from medimg_eval.results.report.pages import Report, Showing, task_titles, viewer

__all__ = ["Report", "Showing", "TaskCases", "by_task", "check_wanted", "task_titles", "viewer"]
