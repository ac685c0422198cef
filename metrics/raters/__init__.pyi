from .fusion import (
    EVEN as EVEN,
    FUSIONS as FUSIONS,
    Fusion as Fusion,
    fuse_masks as fuse_masks,
    estimate_staple as estimate_staple,
)
from .masks import RaterPair as RaterPair, rater_metrics as rater_metrics, rater_scores as rater_scores
from .masks import worst_rater_scores as worst_rater_scores
from .sample_sets import (
    generalised_energy_distance as generalised_energy_distance,
    matched_iou as matched_iou,
    share_covered as share_covered,
)
from .texts import against_readers as against_readers, among_readers as among_readers
