from .smoothed import SmoothedFrames as SmoothedFrames
from .temporal import TemporalModel as TemporalModel
