from .registry import (
    Metric as Metric,
    ScoreTable as ScoreTable,
    as_known as as_known,
    available as available,
    canonical as canonical,
    get as get,
    is_declared as is_declared,
    metric as metric,
    parse as parse,
    present_name as present_name,
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
