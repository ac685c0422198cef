from .boxes import Box as Box, box_of_input as box_of_input, with_maps as with_maps
from .settings import Explanation as Explanation
from .maps import PictureMaps as PictureMaps, explain_pictures as explain_pictures
