"""Our readers inside MONAI's transforms."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from monai.data import ImageReader

from medimg_eval.case import Array, Image
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging import read

PathLike = str | os.PathLike[str]


class MedimgReader(ImageReader):  # type: ignore[misc]  # MONAI has no types
    """Reads what `medimg_eval.imaging.read` reads: `LoadImaged(keys, reader=MedimgReader())`.

    A file, a folder with one DICOM series, or several files of one grid, which become channels. What cannot be read in
    the right place is refused: MONAI, which goes on to its other readers after an error, then ends with ours. A
    picture stays (row, column), where MONAI's own reader gives (column, row).

    Args:
        options: of `read`, such as `series` (DICOM) or `nan`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options

    def verify_suffix(self, filename: Sequence[PathLike] | PathLike) -> bool:
        """Formats are told by their content: any name will do."""
        return True

    def read(self, data: Sequence[PathLike] | PathLike, **kwargs: Any) -> Image | UserError:
        """Returns the image, or the error that `get_data` raises."""
        paths = [data] if isinstance(data, str | os.PathLike) else list(data)
        try:
            images = [read(path, **{**self._options, **kwargs}) for path in paths]
            return images[0] if len(images) == 1 else _join_channels(images, paths)
        except UserError as error:
            return error

    def get_data(self, img: Image | UserError) -> tuple[Array, dict[str, Any]]:
        """Returns the array and what MONAI wants to know of it.

        The array is (*spatial), or (channel, *spatial) where there are several channels.

        Raises:
            CaseError: the file was refused; the message names it and the mend.
        """
        if isinstance(img, UserError):
            raise img
        several = len(img.array) > 1
        meta = {
            "affine": img.affine.copy(),
            "original_affine": img.affine.copy(),
            "space": "RAS",
            "spatial_shape": np.array(img.array.shape[1:]),
            "original_channel_dim": 0 if several else float("nan"),
            "modality": img.modality,
            "units": img.units,
            "notes": "; ".join(img.notes),
        }
        return (img.array if several else img.array[0]), meta


def _join_channels(images: Sequence[Image], paths: Sequence[PathLike]) -> Image:
    """Files as channels of one image; CaseError for differing grids."""
    first = images[0]
    for path, image in zip(paths[1:], images[1:], strict=True):
        if difference := first.geometry.difference(image.geometry):
            raise CaseError(f"{path}: {difference} of {paths[0]}; resample it onto that grid first")
    notes = tuple(dict.fromkeys(note for image in images for note in image.notes))
    return replace(first, array=np.concatenate([image.array for image in images]), notes=notes)
