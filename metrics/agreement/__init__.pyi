from .continuous import (
    BlandAltman as BlandAltman,
    aligned as aligned,
    bland_altman as bland_altman,
    intraclass_correlation as intraclass_correlation,
)
from .kappa import cohen_kappa as cohen_kappa, fleiss_kappa as fleiss_kappa
from .outputs import AVERAGES as AVERAGES, OUTPUT_SETS as OUTPUT_SETS
