from .features import Features as Features, read_features as read_features
from .reading import (
    grid as grid,
    is_slide as is_slide,
    placement as placement,
    read as read,
    read_mask as read_mask,
    write_pyramid as write_pyramid,
)
from .slide import Slide as Slide
from .spatial import (
    Expression as Expression,
    Patches as Patches,
    read_expression as read_expression,
    read_patches as read_patches,
)
from .stores import KINDS as KINDS, ForeignStore as ForeignStore, open_store as open_store
from .tiles import Tiles as Tiles, read_tiles as read_tiles, tile_grid as tile_grid, tissue_mask as tissue_mask
