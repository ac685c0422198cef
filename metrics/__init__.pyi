from .registry import (
    Metric as Metric,
    Rows as Rows,
    available as available,
    get as get,
    metric as metric,
    parse as parse,
    summary as summary,
    title as title,
)
from .scores import LabelScore as LabelScore
from .segmentation import (
    Distances as Distances,
    EmptyPolicy as EmptyPolicy,
    InstanceRule as InstanceRule,
    LabelPair as LabelPair,
    LesionRule as LesionRule,
    Settings as Settings,
    Surface as Surface,
    segmentation_scores as segmentation_scores,
    worst_scores as worst_scores,
)
from .text import Spread as Spread, TextScores as TextScores, text_scores as text_scores
