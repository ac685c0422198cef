"""Images of SimpleITK: LPS, x first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.exchange.parts import KEYS, LPS, OWN, Parts, as_parts, native, own_facts, plain_affine

if TYPE_CHECKING:
    import SimpleITK as sitk  # noqa: N813


def to_sitk(parts: Parts) -> sitk.Image:
    """Returns a SimpleITK image; see `Image.to_sitk`."""
    import SimpleITK as sitk  # noqa: N813

    array, picture = native(parts.array), parts.array.ndim == 3
    if array.dtype.kind not in "iufc" or array.dtype == np.float16 or (array.dtype.kind == "c" and len(array) > 1):
        what = f"{len(array)} channels of {array.dtype}" if array.dtype.kind == "c" else str(array.dtype)
        raise UsageError(f"SimpleITK cannot hold {what}; convert the array first, such as to uint8 or float32")
    affine = LPS @ parts.affine
    steps = np.diag(parts.affine)[:2]
    flat = picture and bool((steps > 0).all()) and np.array_equal(parts.affine, plain_affine(tuple(steps)))
    if picture:  # of a picture ITK's x is the column
        affine = affine[:, [1, 0, 2, 3]]
        array = array if flat else array[:, None]
    else:
        array = array.transpose(0, 3, 2, 1)
    sitk_image = sitk.GetImageFromArray(
        np.moveaxis(array, 0, -1) if len(array) > 1 else array[0], isVector=len(array) > 1
    )
    count = sitk_image.GetDimension()
    steps = np.linalg.norm(affine[:3, :3], axis=0)
    if flat:
        sitk_image.SetSpacing(steps[:2].tolist())
    else:
        if not steps[2]:  # a plane without thickness
            affine[:3, 2], steps[2] = np.cross(affine[:3, 0] / steps[0], affine[:3, 1] / steps[1]), 1.0
        sitk_image.SetSpacing(steps[:count].tolist())
        sitk_image.SetDirection((affine[:3, :3] / steps).ravel().tolist())
        sitk_image.SetOrigin(affine[:3, 3].tolist())
    for name, text in own_facts(parts, picture=picture).items():
        sitk_image.SetMetaData(f"{OWN}.{name}", text)
    return sitk_image


def from_sitk(image: sitk.Image) -> Parts:
    """Takes a SimpleITK image apart; see `Image.from_sitk`."""
    import SimpleITK as sitk  # noqa: N813

    facts = {key: image.GetMetaData(f"{OWN}.{key}") for key in KEYS if image.HasMetaDataKey(f"{OWN}.{key}")}
    count, array = image.GetDimension(), sitk.GetArrayFromImage(image)
    several = image.GetNumberOfComponentsPerPixel() > 1
    array = np.moveaxis(array, -1, 0) if several else array[None]
    if count == 4 and not several:
        array = array[0]  # of four axes the last is one of volumes, which comes first in the array
    elif count not in (2, 3):
        raise UsageError(f"expected an image of two or three axes, or of four with one value per voxel, got {count}")
    affine = np.eye(4)
    spatial = min(count, 3)
    direction = np.array(image.GetDirection()).reshape(count, count)[:spatial, :spatial]
    affine[:spatial, :spatial] = direction * np.array(image.GetSpacing())[:spatial]
    affine[:spatial, 3] = image.GetOrigin()[:spatial]
    if count == 2:
        if not np.array_equal(affine[:2, :2], np.diag(np.diag(affine)[:2])) or affine[:2, 3].any():
            raise UsageError(
                "a picture of SimpleITK lies turned or shifted in its plane, which is no place in a patient"
            )
        return as_parts(array, plain_affine((affine[1, 1], affine[0, 0])), facts)
    affine = LPS @ affine
    if "picture" in facts and array.shape[1] == 1:
        return as_parts(array[:, 0], affine[:, [1, 0, 2, 3]], facts)
    return as_parts(array.transpose(0, 3, 2, 1), affine, facts)
