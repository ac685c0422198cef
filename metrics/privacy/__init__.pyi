from .data_copying import copying_test as copying_test
from .membership import lira_scores as lira_scores, mia_tpr_at_fpr as mia_tpr_at_fpr, reid_rate as reid_rate
from .memorisation import (
    CurvePoint as CurvePoint,
    authenticity as authenticity,
    memorisation_curve as memorisation_curve,
    memorised_fraction as memorised_fraction,
    near_copies as near_copies,
    nnaa as nnaa,
)
from .screens import (
    Pair as Pair,
    ScreenOptions as ScreenOptions,
    closest_pairs as closest_pairs,
    dcr as dcr,
    dcr_share as dcr_share,
    nndr as nndr,
)
from .lookalikes import (
    Looks as Looks,
    joined_looks as joined_looks,
    lookalikes_between as lookalikes_between,
    looks_of as looks_of,
)
from .copies import (
    CopyFinder as CopyFinder,
    transformed_copies as transformed_copies,
)
from .screens import SetError as SetError, SetValue as SetValue  # type: ignore[attr-defined]
