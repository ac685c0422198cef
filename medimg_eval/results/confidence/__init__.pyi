from .conformal_problems import keep_first_repeats as keep_first_repeats
from .coverage_sheets import ConformalSettings as ConformalSettings, cover_runs as cover_runs
from .scaled_runs import confidence_metrics as confidence_metrics, scale_runs as scale_runs
from .scaled_runs import statements_of as statements_of
from .validation_runs import pair_runs as pair_runs
from .votes import vote_runs as vote_runs
