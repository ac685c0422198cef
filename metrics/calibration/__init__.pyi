from .curves import RIGHT as RIGHT, WRONG as WRONG, mass_places as mass_places
from .metrics import vote_confidence as vote_confidence
