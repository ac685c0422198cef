from .applying import (
    DegradedImage as DegradedImage,
    MovedTarget as MovedTarget,
    UNCHANGED as UNCHANGED,
    degrade_case as degrade_case,
    degrade_image as degrade_image,
    is_clip as is_clip,
    refuse_unsuitable as refuse_unsuitable,
)
from .declaration import (
    OF_IMAGES as OF_IMAGES,
    SEVERITIES as SEVERITIES,
    Degradation as Degradation,
    conditions_on as conditions_on,
    degradation as degradation,
    degradations as degradations,
    find_degradation as find_degradation,
)
from .drawing import DrawKey as DrawKey
from .moves import Move as Move
from .parts import (
    is_part_condition as is_part_condition,
    part_conditions as part_conditions,
    without_parts as without_parts,
)
from .suites import (
    read_severities as read_severities,
    read_suite as read_suite,
    suite_names as suite_names,
    sweep as sweep,
)
