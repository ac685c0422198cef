from .frame_counts import (
    Counts as Counts,
    FrameRule as FrameRule,
    class_values as class_values,
    confusion_counts as confusion_counts,
    frame_confusion as frame_confusion,
    frame_value as frame_value,
    relaxed_counts as relaxed_counts,
)
from .metrics import (
    BACKGROUND as BACKGROUND,
    CLASSES as CLASSES,
    FramePair as FramePair,
    KIND as KIND,
    PRESENCE as PRESENCE,
    PresencePair as PresencePair,
)
from .presence import (
    COMPONENTS as COMPONENTS,
    component_columns as component_columns,
    component_groups as component_groups,
    frame_average_precision as frame_average_precision,
    mean_video_average_precision as mean_video_average_precision,
    top_k_recall as top_k_recall,
    triplet_detection_precision as triplet_detection_precision,
)
from .published import (
    fisher_mean as fisher_mean,
    macro_presence_f1 as macro_presence_f1,
    pitvis_instruments as pitvis_instruments,
    pitvis_steps as pitvis_steps,
    sar_rarp_score as sar_rarp_score,
    skill_correlation as skill_correlation,
    weighted_presence_f1 as weighted_presence_f1,
)
from .segments import (
    SegmentHits as SegmentHits,
    Segments as Segments,
    best_overlaps as best_overlaps,
    edit_distance as edit_distance,
    edit_score as edit_score,
    hits_at as hits_at,
    segment_hits as segment_hits,
    segments_of as segments_of,
)
from .time_spans import (
    event_hits as event_hits,
    onset_of as onset_of,
    read_seconds as read_seconds,
    recall_at as recall_at,
    temporal_iou as temporal_iou,
    union_iou as union_iou,
)
from .tracking import (
    TapVid as TapVid,
    mean_track_error as mean_track_error,
    tap_vid as tap_vid,
    within_radius as within_radius,
)
