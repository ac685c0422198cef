from .image_sets import (
    ABILITIES as ABILITIES,
    BY_FINDINGS as BY_FINDINGS,
    BY_PARTS as BY_PARTS,
    GROUPS as GROUPS,
    ImageSet as ImageSet,
    ImageSets as ImageSets,
    NEEDED as NEEDED,
    ONE_PICTURE as ONE_PICTURE,
    OnePrompt as OnePrompt,
    SET as SET,
    WHOLE as WHOLE,
)
