from .agreement import Verdicts as Verdicts, judge_agreement as judge_agreement, read_verdicts as read_verdicts
from .agreement import (
    calibration_table as calibration_table,
    jury_table as jury_table,
    numbers_of as numbers_of,
    preference_table as preference_table,
    rating_table as rating_table,
    read_ratings as read_ratings,
    rated_cases as rated_cases,
    read_ballots_file as read_ballots_file,
    read_jury as read_jury,
    read_preferences as read_preferences,
)
from .agreement import verdicts_of as verdicts_of
from .cards import Disclosure as Disclosure, build_cards as build_cards, disclose as disclose, write_card as write_card
from .comparison import CompareSettings as CompareSettings, compare as compare, write_comparison as write_comparison
from .ranking import Ranking as Ranking, rank_models as rank_models, write_ranking as write_ranking
from .runs import RunScores as RunScores, load_runs as load_runs, load_scores as load_scores
from .statistics import Interval as Interval, mean_interval as mean_interval
from .table import (
    Cell as Cell,
    Column as Column,
    Comparison as Comparison,
    Look as Look,
    Row as Row,
    Table as Table,
    build_authors_tables as build_authors_tables,
    build_table as build_table,
    to_csv as to_csv,
    to_html as to_html,
    to_latex as to_latex,
    to_markdown as to_markdown,
    to_rich as to_rich,
    write_all as write_all,
)
