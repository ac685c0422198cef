from .reading import (
    MAX_PIXELS as MAX_PIXELS,
    as_picture as as_picture,
    as_pictures as as_pictures,
    decode as decode,
    grid as grid,
    read as read,
    read_mask as read_mask,
)
