"""Files to images and back. Knows files only: no task, no model, no torch.

>>> from medimg_eval.imaging import read
>>> image = read("study/series_3")  # or a .nii.gz, .png, .mp4, .svs, ...  # doctest: +SKIP
>>> image.array.shape, image.affine, image.notes  # doctest: +SKIP
"""

from medimg_eval.imaging.files import ImageFile, MaskFile
from medimg_eval.imaging.formats import identify
from medimg_eval.imaging.geometry import orientation, reorient, resample
from medimg_eval.imaging.reading import read, read_grid, read_mask
from medimg_eval.imaging.volumes.reading import Region, write_image, write_mask

__all__ = [
    "ImageFile",
    "MaskFile",
    "Region",
    "identify",
    "orientation",
    "read",
    "read_grid",
    "read_mask",
    "reorient",
    "resample",
    "write_image",
    "write_mask",
]
