from .control_charts import (
    CHARTS as CHARTS,
    Chart as Chart,
    Charted as Charted,
    RULES as RULES,
    control_chart as control_chart,
    violations as violations,
)
from .hypothesis_tests import Areas as Areas, correlated_areas as correlated_areas
from .disparities import (
    Disparity as Disparity,
    DisparitySettings as DisparitySettings,
    NONE as NONE,
    SMALLEST as SMALLEST,
    disparity as disparity,
    gap_between as gap_between,
    judged as judged,
    odds as odds,
    on_unit_scale as on_unit_scale,
)
from .expansion import MANY_CLUSTERS as MANY_CLUSTERS, expand as expand
from .effect_sizes import Effects as Effects, NO_EFFECTS as NO_EFFECTS, effects as effects, many_effects as many_effects
from .hypothesis_tests import (
    GroupTest as GroupTest,
    LEAST_P as LEAST_P,
    benjamini_hochberg as benjamini_hochberg,
    group_test as group_test,
    holm as holm,
    signed_rank as signed_rank,
)
from .intervals import (
    BCA as BCA,
    Bootstrap as Bootstrap,
    EQUAL as EQUAL,
    EXACT as EXACT,
    EXPANSION as EXPANSION,
    Estimate as Estimate,
    FEWEST as FEWEST,
    Interval as Interval,
    METHODS as METHODS,
    Method as Method,
    OWN as OWN,
    PERCENTILE as PERCENTILE,
    Sample as Sample,
    TOO_FEW as TOO_FEW,
    WILSON as WILSON,
    bootstrap_intervals as bootstrap_intervals,
    mean_interval as mean_interval,
    table_intervals as table_intervals,
)
from .hypothesis_tests import (
    MOST_EXACT as MOST_EXACT,
    Sides as Sides,
    mcnemar as mcnemar,
    of_random as of_random,
    settled as settled,
    sign_flip as sign_flip,
)
from .summaries import case_values as case_values, label_values as label_values, is_share as is_share, units as units
from .summaries import sorted_places as sorted_places
from .effect_sizes import detectable_difference as detectable_difference, detectable_of_error as detectable_of_error
from .sample_sizes import (
    Design as Design,
    VALUES as VALUES,
    Value as Value,
    cautious_sd as cautious_sd,
    largest_sd as largest_sd,
    sd_of_differences as sd_of_differences,
)
from .resampling import Resamples as Resamples, draws as draws, quantiles as quantiles
from .summaries import (
    MOST_LEFT_OUT as MOST_LEFT_OUT,
    MOST_RESAMPLES as MOST_RESAMPLES,
    by_times as by_times,
    rows_of as rows_of,
    summarise as summarise,
)
