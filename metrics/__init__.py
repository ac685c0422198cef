"""How answers are judged: functions on arrays and strings, importable without torch."""

from medimg_eval.metrics._distances import Distances
from medimg_eval.metrics._empty import EmptyPolicy
from medimg_eval.metrics._pairs import LabelPair, Settings, Surface
from medimg_eval.metrics._rules import InstanceRule, LesionRule
from medimg_eval.metrics.registry import Metric, Rows, available, get, metric, parse, summary, title
from medimg_eval.metrics.segmentation import LabelScore, segmentation_scores, worst_scores

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
    "Surface",
    "available",
    "get",
    "metric",
    "parse",
    "segmentation_scores",
    "summary",
    "title",
    "worst_scores",
]
