from .image_sets import (
    BY_PARTS as BY_PARTS,
    GROUPS as GROUPS,
    ImageSet as ImageSet,
    ImageSets as ImageSets,
    ONE_PICTURE as ONE_PICTURE,
    OnePrompt as OnePrompt,
    SET as SET,
    WHOLE as WHOLE,
    requirement_of as requirement_of,
)
