from .label_conformity import (
    METHODS as METHODS,
    Regularisation as Regularisation,
    SetMethod as SetMethod,
    choose_regularisation as choose_regularisation,
    label_scores as label_scores,
    label_sets as label_sets,
    true_label_scores as true_label_scores,
)
from .quantiles import conformal_quantile as conformal_quantile, coverage_interval as coverage_interval
from .quantiles import fewest_cases as fewest_cases, group_quantiles as group_quantiles
from .risk_control import choose_threshold as choose_threshold, risk_bound as risk_bound
