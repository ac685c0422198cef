from .perceiving import perceive as perceive, refuse_unready_networks as refuse_unready_networks
from .sets import judge_sets as judge_sets, refuse_unready_sets as refuse_unready_sets
