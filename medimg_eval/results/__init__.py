"""Scores to statistics, ranking and tables."""

from medimg_eval.results.agreement.human_labels import Verdicts, read_verdicts
from medimg_eval.results.agreement.judges import judge_agreement
from medimg_eval.results.cards.disclosure import Disclosure, disclose, write_card
from medimg_eval.results.cards.generation import build_cards
from medimg_eval.results.comparison.model_comparison import compare, write_comparison
from medimg_eval.results.comparison.pairwise import CompareSettings
from medimg_eval.results.ranking.ranking import rank_models, write_ranking
from medimg_eval.results.ranking.result import Ranking
from medimg_eval.results.runs.external import load_scores
from medimg_eval.results.runs.loading import RunScores, load_runs
from medimg_eval.results.statistics.intervals import Interval, mean_interval
from medimg_eval.results.table.cells import Cell, Column, Row
from medimg_eval.results.table.orientation import Look
from medimg_eval.results.table.published_layout import build_authors_tables
from medimg_eval.results.table.render import to_csv, to_html, to_latex, to_markdown, to_rich, write_all
from medimg_eval.results.table.sheets import Comparison
from medimg_eval.results.table.table import Table, build_table

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
