from .columns import RankColumn as RankColumn, untested_columns as untested_columns
from .orders import borda as borda, cliques as cliques, friedman as friedman, kemeny as kemeny, rank as rank
from .ranking import rank_models as rank_models, write_ranking as write_ranking
from .ranking import Ranking as Ranking
from .ranking import pool as pool
