from .angles import cobb_angles as cobb_angles, measured_between as measured_between
from .knee_anatomy import DIVISIONS as DIVISIONS, knee_subregions as knee_subregions
from .landmarks import (
    Missed as Missed,
    landmark_metrics as landmark_metrics,
    landmark_scores as landmark_scores,
    worst_landmark_scores as worst_landmark_scores,
)
from .measurements import (
    HeightLoss as HeightLoss,
    measurement_metrics as measurement_metrics,
    measurement_scores as measurement_scores,
    relative_height_loss as relative_height_loss,
    worst_measurement_scores as worst_measurement_scores,
)
from .t2_mapping import (
    DessScan as DessScan,
    T1_KNEE as T1_KNEE,
    dess_t2 as dess_t2,
    mean_t2 as mean_t2,
    t2_agreement as t2_agreement,
    t2_error_ms as t2_error_ms,
)
from .vertebral_fractures import (
    GENANT as GENANT,
    LEAST as LEAST,
    genant_by_loss as genant_by_loss,
    vertebra_scores as vertebra_scores,
)
from .joint_angles import (
    motion_metrics as motion_metrics,
    motion_scores as motion_scores,
    worst_motion_scores as worst_motion_scores,
)
