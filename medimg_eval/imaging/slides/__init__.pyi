from .features import read_features as read_features
from .reading import (
    grid as grid,
    is_slide as is_slide,
    placement as placement,
    read as read,
    read_mask as read_mask,
    write_pyramid as write_pyramid,
)
from .slide import Slide as Slide
