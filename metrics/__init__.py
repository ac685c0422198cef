"""How answers are judged: functions on arrays and strings, importable without torch."""

from medimg_eval.metrics.registry import Metric, Rows, available, get, metric, parse, summary, title
from medimg_eval.metrics.scores import LabelScore
from medimg_eval.metrics.segmentation.distance_samples import Distances
from medimg_eval.metrics.segmentation.empty_masks import EmptyPolicy
from medimg_eval.metrics.segmentation.matching_rules import InstanceRule, LesionRule
from medimg_eval.metrics.segmentation.pairs import LabelPair, Settings, Surface
from medimg_eval.metrics.segmentation.scores import segmentation_scores, worst_scores
from medimg_eval.metrics.text.scores import Spread, TextScores, text_scores

__all__ = [
    "Distances",
    "EmptyPolicy",
    "InstanceRule",
    "LabelPair",
    "LabelScore",
    "LesionRule",
    "Metric",
    "Rows",
    "Settings",
    "Spread",
    "Surface",
    "TextScores",
    "available",
    "get",
    "metric",
    "parse",
    "segmentation_scores",
    "summary",
    "text_scores",
    "title",
    "worst_scores",
]
