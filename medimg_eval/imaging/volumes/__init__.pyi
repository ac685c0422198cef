from .probabilities import (
    SUFFIX as SUFFIX,
    read_probabilities as read_probabilities,
    write_probabilities as write_probabilities,
)
from .reading import (
    Region as Region,
    format_name as format_name,
    grid as grid,
    header_of as header_of,
    read as read,
    write_image as write_image,
    write_mask as write_mask,
)
