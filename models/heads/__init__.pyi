from .bags import PackedBags as PackedBags
from .base import Head as Head, Kind as Kind, Targets as Targets, load_head as load_head, make_head as make_head
from .grid_search import Lessons as Lessons, search as search
