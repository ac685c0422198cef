from .reliability import mass_places as mass_places
from .scaling import (
    Platt as Platt,
    fit_platt as fit_platt,
    fit_temperature as fit_temperature,
    temper_probabilities as temper_probabilities,
)
from .sampling import (
    cluster_meanings as cluster_meanings,
    semantic_confidence as semantic_confidence,
    semantic_entropy as semantic_entropy,
)
from .statements import (
    EVIDENCE as EVIDENCE,
    RIGHT as RIGHT,
    WRONG as WRONG,
    right_option as right_option,
    vote_confidence as vote_confidence,
)
