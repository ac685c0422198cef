from .asked import AskedFrames as AskedFrames
from .poses import PoseClassifier as PoseClassifier
from .smoothed import SmoothedFrames as SmoothedFrames
from .temporal import TemporalModel as TemporalModel
