from .table import utility_of_card as utility_of_card
from .studies import SCHEMA as SCHEMA, STUDY as STUDY, Study as Study, load_utility as load_utility
from .table import UtilityTable as UtilityTable, build_utility as build_utility
