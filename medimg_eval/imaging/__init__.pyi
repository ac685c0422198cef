from .files import (
    PICTURES as PICTURES,
    VIDEOS as VIDEOS,
    VOLUMES as VOLUMES,
    ImageFile as ImageFile,
    MaskFile as MaskFile,
    find_label_maps as find_label_maps,
)
from .formats import identify as identify
from .geometry import orientation as orientation, reorient as reorient, resample as resample
from .label_values import distinct_values as distinct_values, unknown_values as unknown_values
from .looking import ClipBetween as ClipBetween, FramesBetween as FramesBetween
from .reading import read as read, read_grid as read_grid, read_mask as read_mask
from .volumes import Region as Region, write_image as write_image, write_mask as write_mask
from .whole import (
    SHOWN as SHOWN,
    VIDEO as VIDEO,
    WINDOWS as WINDOWS,
    VideoPrompt as VideoPrompt,
    VolumePrompt as VolumePrompt,
)
from .heat import heat_image as heat_image, heat_of as heat_of, small_picture as small_picture
