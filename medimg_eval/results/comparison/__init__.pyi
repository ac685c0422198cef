from .differing_cases import (
    Disagreement as Disagreement,
    FIRST as FIRST,
    SECOND as SECOND,
    disagreements as disagreements,
)
from .fields import Field as Field, make_fields as make_fields
from .footnotes import CORRECTIONS as CORRECTIONS, described as described
from .marks import marked as marked
from .model_comparison import (
    compare as compare,
    significance_map as significance_map,
    write_comparison as write_comparison,
    write_sheets as write_sheets,
)
from .pairwise import CompareSettings as CompareSettings, LEVEL as LEVEL, Pair as Pair, every_pair as every_pair
from .summaries import Together as Together, shared_cases as shared_cases
