from .reliability import mass_places as mass_places
from .statements import EVIDENCE as EVIDENCE, RIGHT as RIGHT, WRONG as WRONG, vote_confidence as vote_confidence
