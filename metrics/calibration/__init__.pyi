from .reliability import mass_places as mass_places
from .scaling import Platt as Platt, fit_platt as fit_platt, fit_temperature as fit_temperature, temper as temper
from .statements import EVIDENCE as EVIDENCE, RIGHT as RIGHT, WRONG as WRONG, vote_confidence as vote_confidence
