from .reading import (
    Region as Region,
    SUFFIX as SUFFIX,
    format_name as format_name,
    grid as grid,
    header_of as header_of,
    read as read,
    read_probabilities as read_probabilities,
    write_image as write_image,
    write_mask as write_mask,
    write_probabilities as write_probabilities,
)
