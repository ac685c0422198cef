"""What is taken from an image of another library, and given to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
"""ITK and DICOM count towards the patient's left and back, our affines towards right and front."""

OWN = "medimg_eval"
"""Where an image of another library keeps what it has no field for: modality, units, and that it is a picture."""

KEYS = ("modality", "units", "picture")
"""What is kept there."""


class Parts(NamedTuple):
    """Image content of another library: (channel, *spatial), RAS+ mm.

    It is held as in `medimg_eval.case.Image`.
    """

    array: Array
    affine: Array
    units: Literal["mm", "pixel"] = "mm"
    modality: str = ""


def plain_affine(steps: tuple[float, ...]) -> Array:
    """Diagonal affine of steps, (4, 4), for images without place."""
    return np.diag(np.array([*steps, *[1.0] * (4 - len(steps))], np.float64))


def own_facts(parts: Parts, *, picture: bool) -> dict[str, str]:
    """Facts that no field of another library holds."""
    facts = {"modality": parts.modality, "units": parts.units if parts.units != "mm" else ""}
    return {key: text for key, text in (facts | {"picture": "yes" if picture else ""}).items() if text}


def as_parts(array: Array, affine: Array, said: Mapping[str, str]) -> Parts:
    """Array and affine, with what was kept beside them."""
    return Parts(array, affine, "pixel" if said.get("units") == "pixel" else "mm", said.get("modality", ""))


def native(array: Array) -> Array:
    """Array in native byte order, which other libraries assume."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)
