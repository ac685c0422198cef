"""How answers are judged: functions on arrays and strings, importable without torch."""

from medimg_eval.metrics._distances import Distances
from medimg_eval.metrics._empty import EmptyPolicy
from medimg_eval.metrics._pairs import LabelPair, Settings, Surface
from medimg_eval.metrics._rules import InstanceRule, LesionRule
from medimg_eval.metrics._text_scores import Spread, TextScores, text_scores
from medimg_eval.metrics.registry import Metric, Rows, available, get, metric, parse, summary, title
from medimg_eval.metrics.scores import LabelScore
from medimg_eval.metrics.segmentation import segmentation_scores, worst_scores

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
