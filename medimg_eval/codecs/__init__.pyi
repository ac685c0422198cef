from .alignments import Alignments as Alignments
from .arrays import Arrays as Arrays
from .attention import (
    TilePlaces as TilePlaces,
    Weighed as Weighed,
    attention_of as attention_of,
    attention_record as attention_record,
    maps_of as maps_of,
    places_of as places_of,
)
from .base import (
    Codec as Codec,
    FileCodec as FileCodec,
    Stored as Stored,
    form_of as form_of,
    prediction_file as prediction_file,
    prediction_folder as prediction_folder,
    read_json as read_json,
)
from .frames import Frames as Frames
from .masks import InstanceMasks as InstanceMasks, Masks as Masks
from .pictures import GeneratedImages as GeneratedImages, Pictures as Pictures
from .places import Places as Places
from .probabilities import ProbabilityMaps as ProbabilityMaps
from .records import Records as Records
