from .base import Layout as Layout, Task as Task
from .classification import ClassificationTask as ClassificationTask
from .detection import DetectionTask as DetectionTask
from .landmarks import LandmarkTask as LandmarkTask
from .measurements import MeasurementTask as MeasurementTask, MotionTask as MotionTask
from .questions import AgentQuestionTask as AgentQuestionTask, QuestionTask as QuestionTask
from .reconstruction import ReconstructionTask as ReconstructionTask
from .references import RetrievalQuestionTask as RetrievalQuestionTask
from .registration import RegistrationTask as RegistrationTask
from .regression import RegressionTask as RegressionTask
from .reports import ReportTask as ReportTask
from .retrieval import RetrievalTask as RetrievalTask
from .segmentation import SegmentationTask as SegmentationTask
from .survival import SurvivalTask as SurvivalTask
from .synthesis import SynthesisTask as SynthesisTask
from .vertebrae import VertebraTask as VertebraTask
from .volume_synthesis import VolumeSynthesisTask as VolumeSynthesisTask
from .workflow import WorkflowTask as WorkflowTask
