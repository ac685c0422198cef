from .continuous import (
    BlandAltman as BlandAltman,
    aligned as aligned,
    bland_altman as bland_altman,
    intraclass_correlation as intraclass_correlation,
)
from .kappa import cohen_kappa as cohen_kappa, fleiss_kappa as fleiss_kappa
from .outputs import AVERAGES as AVERAGES, OUTPUT_SETS as OUTPUT_SETS
from .preferences import (
    bradley_terry as bradley_terry,
    elo_scale as elo_scale,
    is_connected as is_connected,
    rate_at_equal_length as rate_at_equal_length,
)
from .repeated import (
    corrected_share as corrected_share,
    krippendorff_alpha as krippendorff_alpha,
    unanimous_share as unanimous_share,
)
