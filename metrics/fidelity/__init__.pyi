from .diversity import (
    intra_prompt_ms_ssim as intra_prompt_ms_ssim,
    radiomics_frechet_distance as radiomics_frechet_distance,
    vendi_score as vendi_score,
)
from .feature_sets import (
    Options as Options,
    SMALL as SMALL,
    SetError as SetError,
    SetValue as SetValue,
    checked_options as checked_options,
    labels_of as labels_of,
    numbered as numbered,
    one_set as one_set,
    row_numbers as row_numbers,
    same_features as same_features,
    shuffled as shuffled,
)
from .frechet import (
    frechet_distance as frechet_distance,
    frechet_distance_inf as frechet_distance_inf,
    frechet_distance_of_moments as frechet_distance_of_moments,
)
from .intervals import (
    group_sums as group_sums,
    normal_interval as normal_interval,
    share_interval as share_interval,
    variance_of_mean as variance_of_mean,
    variance_of_sum as variance_of_sum,
)
from .kernel import (
    cmmd as cmmd,
    cmmd_published as cmmd_published,
    kernel_distance as kernel_distance,
    kernel_distance_subsets as kernel_distance_subsets,
    mmd_rbf as mmd_rbf,
)
from .nearest_neighbours import (
    FeatureSet as FeatureSet,
    STRIP as STRIP,
    prepare_feature_sets as prepare_feature_sets,
    estimates as estimates,
    exact_squares as exact_squares,
    near as near,
)
from .prdc import (
    PRDC as PRDC,
    coverage as coverage,
    density as density,
    precision as precision,
    precision_recall_density_coverage as precision_recall_density_coverage,
    recall as recall,
)
from .tables import (
    SetTable as SetTable,
    compare as compare,
    conditional_table as conditional_table,
    tracks_n as tracks_n,
)
