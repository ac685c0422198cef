"""What is asked: one module per task family. Importable without torch."""

from medimg_eval.tasks.base import Layout, Task
from medimg_eval.tasks.segmentation import SegmentationTask

__all__ = ["Layout", "SegmentationTask", "Task"]
