"""The metrics of `medimg_eval.metrics` on tensors, on the device they lie on: the one room of metrics with torch."""

from medimg_eval.tensors.metric import SegmentationScore, SegmentationScores
from medimg_eval.tensors.segmentation import segmentation_scores

__all__ = ["SegmentationScore", "SegmentationScores", "segmentation_scores"]
