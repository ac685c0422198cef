"""How alike a generated set of images is to a real one, judged by their feature vectors.

Each function takes two arrays of features, real (n, d) and generated (m, d), and returns a `SetValue`: the value with
n, its interval, the same of real against real (the floor), and flags. All arithmetic is in float64, but for searches
of neighbours, which are settled in it. `Options` lists the keyword arguments that all take. They judge sets, not
cases, so they are no metrics of the registry: a task calls them once, when all features are there.
"""

from medimg_eval.metrics.fidelity.diversity import intra_prompt_ms_ssim, radiomics_frechet_distance, vendi_score
from medimg_eval.metrics.fidelity.feature_sets import Options, SetError, SetValue
from medimg_eval.metrics.fidelity.frechet import (
    frechet_distance,
    frechet_distance_inf,
    frechet_distance_of_moments,
)
from medimg_eval.metrics.fidelity.kernel import (
    cmmd,
    cmmd_published,
    kernel_distance,
    kernel_distance_subsets,
    mmd_rbf,
)
from medimg_eval.metrics.fidelity.prdc import (
    PRDC,
    coverage,
    density,
    precision,
    precision_recall_density_coverage,
    recall,
)
from medimg_eval.metrics.fidelity.tables import SetTable, compare, conditional_table, tracks_n

__all__ = [
    "PRDC",
    "Options",
    "SetError",
    "SetTable",
    "SetValue",
    "cmmd",
    "cmmd_published",
    "compare",
    "conditional_table",
    "coverage",
    "density",
    "frechet_distance",
    "frechet_distance_inf",
    "frechet_distance_of_moments",
    "intra_prompt_ms_ssim",
    "kernel_distance",
    "kernel_distance_subsets",
    "mmd_rbf",
    "precision",
    "precision_recall_density_coverage",
    "radiomics_frechet_distance",
    "recall",
    "tracks_n",
    "vendi_score",
]
