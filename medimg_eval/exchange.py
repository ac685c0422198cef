"""Images of other libraries: SimpleITK, nibabel and MONAI, each imported when it is asked for.

Arrays are (channel, *spatial) and affines RAS+ millimetres, as in `medimg_eval.case.Image`, whose methods call these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError

if TYPE_CHECKING:
    import nibabel as nib
    import SimpleITK as sitk  # noqa: N813
    from monai.data import MetaTensor

Array = npt.NDArray[Any]

LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
"""ITK and DICOM count towards the patient's left and back, our affines towards right and front."""

UNSIZED = b"medimg_eval: no physical size"
"""Description of a NIfTI image of no known physical size, so that it stays unknown."""

OWN = "medimg_eval"
"""Where an image of another library keeps what it has no field for: modality, units, and that it is a picture."""


class Parts(NamedTuple):
    """What an image of another library holds: see `medimg_eval.case.Image`."""

    array: Array
    affine: Array
    units: Literal["mm", "pixel"] = "mm"
    modality: str = ""


def plain_affine(steps: tuple[float, ...]) -> Array:
    """The affine of an image without a place in the patient: a diagonal of its steps, (4, 4)."""
    return np.diag(np.array([*steps, *[1.0] * (4 - len(steps))], np.float64))


def to_sitk(parts: Parts) -> sitk.Image:
    """Returns a SimpleITK image; see `Image.to_sitk`."""
    import SimpleITK as sitk  # noqa: N813

    array, picture = _native(parts.array), parts.array.ndim == 3
    if array.dtype.kind not in "iufc" or array.dtype == np.float16 or (array.dtype.kind == "c" and len(array) > 1):
        what = f"{len(array)} channels of {array.dtype}" if array.dtype.kind == "c" else str(array.dtype)
        raise UsageError(f"SimpleITK cannot hold {what}; convert the array first, such as to uint8 or float32")
    affine = LPS @ parts.affine
    flat = picture and np.array_equal(parts.affine, plain_affine(tuple(np.diag(parts.affine)[:2])))
    if picture:  # of a picture ITK's x is the column
        affine = affine[:, [1, 0, 2, 3]]
        array = array if flat else array[:, None]
    else:
        array = array.transpose(0, 3, 2, 1)
    made = sitk.GetImageFromArray(np.moveaxis(array, 0, -1) if len(array) > 1 else array[0], isVector=len(array) > 1)
    count = made.GetDimension()
    steps = np.linalg.norm(affine[:3, :3], axis=0)
    if flat:
        made.SetSpacing(steps[:2].tolist())
    else:
        if not steps[2]:  # a plane without thickness
            affine[:3, 2], steps[2] = np.cross(affine[:3, 0] / steps[0], affine[:3, 1] / steps[1]), 1.0
        made.SetSpacing(steps[:count].tolist())
        made.SetDirection((affine[:3, :3] / steps).ravel().tolist())
        made.SetOrigin(affine[:3, 3].tolist())
    for name, text in _said(parts, picture=picture).items():
        made.SetMetaData(f"{OWN}.{name}", text)
    return made


def from_sitk(image: sitk.Image) -> Parts:
    """Takes a SimpleITK image apart; see `Image.from_sitk`."""
    import SimpleITK as sitk  # noqa: N813

    said = {key: image.GetMetaData(f"{OWN}.{key}") for key in _KEYS if image.HasMetaDataKey(f"{OWN}.{key}")}
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
        return _parts(array, plain_affine((affine[1, 1], affine[0, 0])), said)
    affine = LPS @ affine
    if "picture" in said and array.shape[1] == 1:
        return _parts(array[:, 0], affine[:, [1, 0, 2, 3]], said)
    return _parts(array.transpose(0, 3, 2, 1), affine, said)


def to_nibabel(parts: Parts) -> nib.Nifti1Image:
    """Returns a NIfTI image in memory; see `Image.to_nibabel`."""
    import nibabel as nib

    array, picture = _native(parts.array), parts.array.ndim == 3
    if array.dtype.kind == "b" or array.dtype == np.float16:
        raise UsageError(f"NIfTI cannot store {array.dtype}; convert it to uint8 or float32")
    stored = array[0] if len(array) == 1 else np.moveaxis(array, 0, -1)
    if picture and len(array) > 1:
        stored = stored[:, :, None]  # channels are the fourth axis, of pictures too
    made = nib.Nifti1Image(stored, parts.affine, dtype=stored.dtype, extra={OWN: _said(parts, picture=picture)})
    if parts.units == "mm":
        made.header.set_xyzt_units("mm")
    else:
        made.header["descrip"] = UNSIZED
    return made


def from_nibabel(image: Any) -> Parts:
    """Takes an image of nibabel apart; see `Image.from_nibabel`."""
    said = dict(image.extra.get(OWN, {}))
    header = image.header
    if "descrip" in getattr(header, "keys", list)() and header["descrip"].item() == UNSIZED:
        said["units"] = "pixel"
    array = _native(np.asanyarray(image.dataobj))
    if image.affine is None:
        raise UsageError("an image of nibabel has no affine; give one, or use Image.from_array")
    if array.dtype.names:  # colours
        array = np.stack([array[name] for name in array.dtype.names], axis=-1)
    while array.ndim > 4 and 1 in array.shape[3:]:
        array = np.squeeze(array, 3 + array.shape[3:].index(1))
    if not 2 <= array.ndim <= 4:
        raise UsageError(f"expected an image of two to four axes, got the shape {image.shape}")
    array = np.moveaxis(array, 3, 0) if array.ndim == 4 else array[None]
    if "picture" in said and array.ndim == 4 and array.shape[3] == 1:
        array = array[..., 0]
    return _parts(array, np.array(image.affine, np.float64), said)


def to_metatensor(parts: Parts) -> MetaTensor:
    """Returns a MONAI MetaTensor; see `Image.to_metatensor`."""
    import torch
    from monai.data import MetaTensor

    meta = {"space": "RAS", "original_channel_dim": 0, "spatial_shape": np.array(parts.array.shape[1:])}
    own = {f"{OWN}.{key}": text for key, text in _said(parts, picture=parts.array.ndim == 3).items()}
    return MetaTensor(as_tensor(parts.array), affine=torch.from_numpy(parts.affine.copy()), meta={**meta, **own})


def from_metatensor(tensor: MetaTensor) -> Parts:
    """Takes a MONAI MetaTensor apart; see `Image.from_metatensor`."""
    if not 3 <= tensor.ndim <= 4:
        raise UsageError(
            f"expected a MetaTensor of (channel, *spatial) with two or three spatial axes, got {tuple(tensor.shape)}; "
            "take the images of a batch one by one"
        )
    given = np.asarray(tensor.affine.detach().cpu().numpy(), np.float64)
    if given.shape not in ((4, 4), (3, 3)):
        raise UsageError(f"expected an affine of (4, 4), or of (3, 3) for a picture, got {given.shape}")
    affine = np.eye(4)
    axes = len(given) - 1
    affine[:axes, :axes], affine[:axes, 3] = given[:axes, :axes], given[:axes, axes]
    affine = LPS @ affine if str(tensor.meta.get("space", "")).endswith("LPS") else affine
    said = {key: str(tensor.meta[name]) for key in _KEYS if (name := f"{OWN}.{key}") in tensor.meta}
    return _parts(tensor.detach().cpu().as_tensor().numpy(), affine, said)


def as_tensor(array: Array) -> Any:
    """A torch tensor of an array; it shares its memory where torch can have it so, else it is a copy."""
    import torch

    array = _native(array)
    if min(array.strides, default=0) < 0 or not array.flags.writeable:
        array = array.copy(order="C")
    return torch.from_numpy(array)


_KEYS = ("modality", "units", "picture")


def _said(parts: Parts, *, picture: bool) -> dict[str, str]:
    """What no field of another library holds."""
    found = {"modality": parts.modality, "units": parts.units if parts.units != "mm" else ""}
    return {key: text for key, text in (found | {"picture": "yes" if picture else ""}).items() if text}


def _parts(array: Array, affine: Array, said: Mapping[str, str]) -> Parts:
    return Parts(array, affine, "pixel" if said.get("units") == "pixel" else "mm", said.get("modality", ""))


def _native(array: Array) -> Array:
    """The same in the byte order of this machine, which other libraries take for granted."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
