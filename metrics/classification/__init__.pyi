from .curves import (
    ABSENT as ABSENT,
    AVERAGES as AVERAGES,
    CLASSES as CLASSES,
    Classified as Classified,
    Curve as Curve,
    EXCLUSIVE as EXCLUSIVE,
    NAMES as NAMES,
    PRESENT as PRESENT,
    SETS as SETS,
    THRESHOLD as THRESHOLD,
    decided as decided,
    roc_area as roc_area,
)
