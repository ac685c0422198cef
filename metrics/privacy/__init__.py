"""Screens for copies and attacks on membership: how much of the training set a generator gives away.

Screens take features of training, hold-out and generated images and return a `SetValue` whose floor is the same
measure of the hold-out images, real ones that were not trained on: without them no distance means anything, so they
are compulsory. A screen finds images that are too near to training images in the features it looks at. It proves
neither that nothing was memorised nor that a person can be found: distances to the closest record do not follow the
success of attacks (Yao et al. 2025). Attacks take scores and losses that others computed.

Distances are exact: near copies are measured by differences in float64, never by products of matrices.
"""

from medimg_eval.metrics.fidelity.feature_sets import SetError, SetValue
from medimg_eval.metrics.privacy.data_copying import copying_test
from medimg_eval.metrics.privacy.membership import lira_scores, mia_tpr_at_fpr, reid_rate
from medimg_eval.metrics.privacy.memorisation import (
    CurvePoint,
    authenticity,
    memorisation_curve,
    memorised_fraction,
    near_copies,
    nnaa,
)
from medimg_eval.metrics.privacy.screens import Pair, ScreenOptions, closest_pairs, dcr, dcr_share, nndr

__all__ = [
    "CurvePoint",
    "Pair",
    "ScreenOptions",
    "SetError",
    "SetValue",
    "authenticity",
    "closest_pairs",
    "copying_test",
    "dcr",
    "dcr_share",
    "lira_scores",
    "memorisation_curve",
    "memorised_fraction",
    "mia_tpr_at_fpr",
    "near_copies",
    "nnaa",
    "nndr",
    "reid_rate",
]
