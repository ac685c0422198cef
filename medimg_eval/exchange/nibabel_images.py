"""Images of nibabel: RAS+, channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.errors import UsageError
from medimg_eval.exchange.parts import OWN, Parts, as_parts, native, own_facts

if TYPE_CHECKING:
    import nibabel as nib

UNSIZED = b"medimg_eval: no physical size"
"""Description of a NIfTI image of no known physical size, so that it stays unknown."""


def to_nibabel(parts: Parts) -> nib.Nifti1Image:
    """Returns a NIfTI image in memory; see `Image.to_nibabel`."""
    import nibabel as nib

    array, picture = native(parts.array), parts.array.ndim == 3
    if array.dtype.kind == "b" or array.dtype == np.float16:
        raise UsageError(f"NIfTI cannot store {array.dtype}; convert it to uint8 or float32")
    stored = array[0] if len(array) == 1 else np.moveaxis(array, 0, -1)
    if picture and len(array) > 1:
        stored = stored[:, :, None]  # channels are the fourth axis, of pictures too
    nifti = nib.Nifti1Image(stored, parts.affine, dtype=stored.dtype, extra={OWN: own_facts(parts, picture=picture)})
    if parts.units == "mm":
        nifti.header.set_xyzt_units("mm")
    else:
        nifti.header["descrip"] = UNSIZED
    return nifti


def from_nibabel(image: Any) -> Parts:
    """Takes an image of nibabel apart; see `Image.from_nibabel`."""
    facts = dict(image.extra.get(OWN, {}))
    header = image.header
    if "descrip" in getattr(header, "keys", list)() and header["descrip"].item() == UNSIZED:
        facts["units"] = "pixel"
    array = native(np.asanyarray(image.dataobj))
    if image.affine is None:
        raise UsageError("an image of nibabel has no affine; give one, or use Image.from_array")
    if array.dtype.names:  # colours
        array = np.stack([array[name] for name in array.dtype.names], axis=-1)
    while array.ndim > 4 and 1 in array.shape[3:]:
        array = np.squeeze(array, 3 + array.shape[3:].index(1))
    if not 2 <= array.ndim <= 4:
        raise UsageError(f"expected an image of two to four axes, got the shape {image.shape}")
    array = np.moveaxis(array, 3, 0) if array.ndim == 4 else array[None]
    if "picture" in facts and array.ndim == 4 and array.shape[3] == 1:
        array = array[..., 0]
    return as_parts(array, np.array(image.affine, np.float64), facts)
