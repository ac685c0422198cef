"""What is asked: one module per task family. Importable without torch."""

from medimg_eval.tasks.base import Layout, Task
from medimg_eval.tasks.classification import ClassificationTask
from medimg_eval.tasks.detection import DetectionTask
from medimg_eval.tasks.landmarks import LandmarkTask
from medimg_eval.tasks.measurements import MeasurementTask
from medimg_eval.tasks.questions import QuestionTask
from medimg_eval.tasks.reconstruction import ReconstructionTask
from medimg_eval.tasks.reports import ReportTask
from medimg_eval.tasks.retrieval import RetrievalTask
from medimg_eval.tasks.segmentation import SegmentationTask
from medimg_eval.tasks.synthesis import SynthesisTask
from medimg_eval.tasks.vertebrae import VertebraTask

__all__ = [
    "ClassificationTask",
    "DetectionTask",
    "LandmarkTask",
    "Layout",
    "MeasurementTask",
    "QuestionTask",
    "ReconstructionTask",
    "ReportTask",
    "RetrievalTask",
    "SegmentationTask",
    "SynthesisTask",
    "Task",
    "VertebraTask",
]
