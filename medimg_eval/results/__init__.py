"""Scores to statistics, ranking and tables."""

from medimg_eval.results.cells import Cell, Column, Row
from medimg_eval.results.comparison import compare, write_comparison
from medimg_eval.results.intervals import Interval, mean_interval
from medimg_eval.results.load import RunScores, load_runs
from medimg_eval.results.render import to_csv, to_html, to_latex, to_markdown, to_rich, write_all
from medimg_eval.results.sheets import Comparison
from medimg_eval.results.table import Table, build_table

__all__ = [
    "Cell",
    "Column",
    "Comparison",
    "Interval",
    "Row",
    "RunScores",
    "Table",
    "build_table",
    "compare",
    "load_runs",
    "mean_interval",
    "to_csv",
    "to_html",
    "to_latex",
    "to_markdown",
    "to_rich",
    "write_all",
    "write_comparison",
]
