"""Files to images and back. Knows files only: no task, no model, no torch.

>>> from medimg_eval.imaging import read
>>> image = read("study/series_3")  # or a .nii.gz, .png, .mp4, .svs, ...  # doctest: +SKIP
>>> image.array.shape, image.affine, image.notes  # doctest: +SKIP

`formats` tells families of formats apart, and each has a room: `dicom`, `volumes`, `pictures`, `video`, `slides`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
