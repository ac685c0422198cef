from .detection import MEASURES as MEASURES, Detection as Detection, detect_unknown as detect_unknown
from .detection import detection_values as detection_values
from .unlikeness import (
    energy as energy,
    entropy as entropy,
    joint_energy as joint_energy,
    mahalanobis as mahalanobis,
    max_probability as max_probability,
    nearest_neighbour as nearest_neighbour,
)
