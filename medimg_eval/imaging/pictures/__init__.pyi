from .reading import decode as decode, grid as grid, read as read, read_mask as read_mask
from .rgb8 import as_picture as as_picture, as_pictures as as_pictures
from .tiff import MAX_PIXELS as MAX_PIXELS
