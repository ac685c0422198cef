"""DICOM: series, single images, segmentations, structures, dose; read and written.

- `reading`: the way in
- `headers`: what is known of a file without its pixels
- `series`: from files of slices to volumes
- `objects`: what is no series of slices: enhanced images, stills, SEG, RTSTRUCT, RTDOSE
- `pixels`: decoded samples, lookup tables, colours
- `writing`: images and masks to DICOM
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
