"""Scores to statistics, ranking and tables."""

from medimg_eval.results.authors import build_authors_tables
from medimg_eval.results.card import build_cards
from medimg_eval.results.cells import Cell, Column, Row
from medimg_eval.results.comparison import compare, write_comparison
from medimg_eval.results.disclosure import Disclosure, disclose, write_card
from medimg_eval.results.forms import Look
from medimg_eval.results.given import load_scores
from medimg_eval.results.intervals import Interval, mean_interval
from medimg_eval.results.judges import judge_agreement
from medimg_eval.results.load import RunScores, load_runs
from medimg_eval.results.pairs.testing import CompareSettings
from medimg_eval.results.ranking import rank_models, write_ranking
from medimg_eval.results.ranking.parts import Ranking
from medimg_eval.results.render import to_csv, to_html, to_latex, to_markdown, to_rich, write_all
from medimg_eval.results.sheets import Comparison
from medimg_eval.results.table import Table, build_table
from medimg_eval.results.verdicts import Verdicts, read_verdicts

__all__ = [
    "Cell",
    "Column",
    "CompareSettings",
    "Comparison",
    "Disclosure",
    "Interval",
    "Look",
    "Ranking",
    "Row",
    "RunScores",
    "Table",
    "Verdicts",
    "build_authors_tables",
    "build_cards",
    "build_table",
    "compare",
    "disclose",
    "judge_agreement",
    "load_runs",
    "load_scores",
    "mean_interval",
    "rank_models",
    "read_verdicts",
    "to_csv",
    "to_html",
    "to_latex",
    "to_markdown",
    "to_rich",
    "write_all",
    "write_card",
    "write_comparison",
    "write_ranking",
]
