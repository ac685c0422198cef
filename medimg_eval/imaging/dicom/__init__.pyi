from .headers.header import Header as Header, salvaged_header as salvaged_header
from .objects.rtstruct import fill as fill
from .reading import grid as grid, read as read, read_mask as read_mask
from .series.grouping import (
    Group as Group,
    description_words as description_words,
    gather as gather,
    groups_of as groups_of,
    is_meant as is_meant,
    shape_of as shape_of,
)
from .series.index import NAMING as NAMING, Series as Series, index_tree as index_tree, naming as naming
from .series.index import OLD_NAME as OLD_NAME
from .series.naming import numbers as numbers
from .unpacking import renamed as renamed, unpacked as unpacked
from .writing.images import (
    write_picture as write_picture,
    write_segmentation as write_segmentation,
    write_series as write_series,
)
from .writing.modules import save as save
from .objects.rtstruct import read_structures as read_structures
from .objects.seg import read_segments as read_segments
from .objects.sr import (
    MeasuredGroup as MeasuredGroup,
    StructuredReport as StructuredReport,
    is_structured_report as is_structured_report,
    read_structured_report as read_structured_report,
)
