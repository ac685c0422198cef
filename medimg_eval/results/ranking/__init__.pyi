from .orders import borda as borda, cliques as cliques, friedman as friedman, kemeny as kemeny
from .ranking import rank_models as rank_models, write_ranking as write_ranking
from .result import Ranking as Ranking
from .weights import pool as pool
