from .concordance import (
    Concordance as Concordance,
    harrell as harrell,
    uno as uno,
)
from .horizons import (
    brier_score as brier_score,
    dynamic_auc as dynamic_auc,
    integrated_brier_score as integrated_brier_score,
    yearly_auroc as yearly_auroc,
)
from .product_limit import (
    Curve as Curve,
    LogRank as LogRank,
    censoring_curve as censoring_curve,
    kaplan_meier as kaplan_meier,
    log_rank as log_rank,
)
from .yearly_concordance import sybil_concordance as sybil_concordance
from .metrics import (
    CENSORED as CENSORED,
    EVENT as EVENT,
    FAILED as FAILED,
    HORIZONS as HORIZONS,
    Followed as Followed,
    at_horizon as at_horizon,
)
