from .compiled import spare_loading as spare_loading
from .distance_samples import Distances as Distances
from .empty_masks import EmptyPolicy as EmptyPolicy
from .label_maps import LabelMapPair as LabelMapPair
from .matching_rules import InstanceRule as InstanceRule, LesionRule as LesionRule
from .nearest_surface import StructuringBall as StructuringBall, ball as ball, step_lengths as step_lengths
from .overlap import ratio as ratio
from .pairs import LabelPair as LabelPair, Settings as Settings, CaseLabels as CaseLabels, Surface as Surface
from .probability_maps import (
    SLACK as SLACK,
    probability_metrics as probability_metrics,
    probability_scores as probability_scores,
    worst_probability_scores as worst_probability_scores,
)
from .scores import (
    Labels as Labels,
    mask_metrics as mask_metrics,
    needs_spacing as needs_spacing,
    scores_of_pairs as scores_of_pairs,
    segmentation_scores as segmentation_scores,
    worst_scores as worst_scores,
)
from .surfaces import surfel_measures as surfel_measures
