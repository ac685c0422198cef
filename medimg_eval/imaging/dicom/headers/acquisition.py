"""Plain facts on how an image was acquired, none of which names a patient."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pydicom

FACTS = {
    "manufacturer": "Manufacturer",
    "model": "ManufacturerModelName",
    "body part": "BodyPartExamined",
    "view": "ViewPosition",
    "laterality": "ImageLaterality",
    "patient orientation": "PatientOrientation",
    "patient position": "PatientPosition",
    "slice thickness (mm)": "SliceThickness",
    "kVp": "KVP",
    "kernel": "ConvolutionKernel",
    "repetition time (ms)": "RepetitionTime",
    "echo time (ms)": "EchoTime",
    "field strength (T)": "MagneticFieldStrength",
    "frame time (ms)": "FrameTime",
    "units": "Units",
}
"""What is told -> the element it is read from."""

SIDE = "Laterality"
"""Where older objects say which side it is."""

NUMBERS = ("SliceThickness", "KVP", "RepetitionTime", "EchoTime", "MagneticFieldStrength", "FrameTime")

ELEMENTS = (*FACTS.values(), SIDE)


def facts(dataset: pydicom.Dataset) -> dict[str, str]:
    """What the file says of the acquisition, by the names of `FACTS`."""
    found = {}
    for name, element in FACTS.items():
        # A value that cannot be understood is one fact less, and no reason to refuse the image.
        with suppress(Exception):
            value = dataset.get(element)
            text = _text(dataset.get(SIDE) if value is None and element == "ImageLaterality" else value)
            if element in NUMBERS:
                # pydicom hands out what is no number as it stands, and that may be a name.
                [float(word) for word in text.split("\\") if word]
            if text:
                found[name] = text
    return found


def _text(value: Any) -> str:
    many = value if isinstance(value, list | tuple) or hasattr(value, "append") else [value]
    return "\\".join(str(one).strip() for one in many if one is not None)
