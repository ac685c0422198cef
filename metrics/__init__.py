"""How answers are judged: functions on arrays and strings, importable without torch."""

from medimg_eval.metrics.registry import Metric, available, get, metric, parse, title
from medimg_eval.metrics.segmentation import LabelPair, LabelScore, segmentation_scores, worst_scores

__all__ = [
    "LabelPair",
    "LabelScore",
    "Metric",
    "available",
    "get",
    "metric",
    "parse",
    "segmentation_scores",
    "title",
    "worst_scores",
]
