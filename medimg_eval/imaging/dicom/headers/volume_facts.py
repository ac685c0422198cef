"""What sets a slice apart from others at its position, as each vendor writes it: time, diffusion, echo, phase."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.imaging.dicom.headers.header import Header

_COMMENT = re.compile(rb"\s*b=(\d+(?:\.\d+)?)\(([-+.\d]+),([-+.\d]+),([-+.\d]+)\)")
"""How scanners of Canon state a diffusion weighting: `b=1500(0.445,0.000,0.895)`, and nothing else of the comment."""

_COMPONENTS_GE = ("magnitude", "phase", "real", "imaginary")


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """Facts of a slice's volume; None or "" where unstated.

    Attributes:
        kind: image type, and whether it is a magnitude, a phase or an average over directions (isotropic).
        b_value: s/mm2.
        direction: unit vector of the diffusion gradient, LPS; None without.
        echo_time: ms, as inversion_time, trigger_time and frame_time.
        flip_angle: degrees.
        temporal: number of the time point, as stated; acquisition likewise.
        acquired: seconds, of an unknown origin.
        begin: seconds after the scan began.
        repetition_time: seconds from volume to volume, where that is what it means.
        number: InstanceNumber, or the number of a frame in its file.
        index: dimension -> number, of enhanced files.
    """

    kind: str = ""
    b_value: float | None = None
    direction: tuple[float, ...] | None = None
    echo_time: float | None = None
    inversion_time: float | None = None
    flip_angle: float | None = None
    trigger_time: float | None = None
    frame_time: float | None = None
    temporal: str = ""
    acquisition: str = ""
    acquired: float | None = None
    begin: float | None = None
    repetition_time: float | None = None
    number: int | None = None
    index: tuple[tuple[str, int], ...] = ()


def volume_facts(header: Header) -> VolumeFacts:
    """Reads volume facts by public and vendor elements; unreadable are unstated."""
    raw = header.facts
    maker = _read_text(raw, "manufacturer").upper()
    b_value, direction = _diffusion_weighting(header, maker)
    kind = ["\\".join(header.image_type), _read_text(raw, "component").upper()]
    if maker.startswith("GE") and (part := _read_short(raw, "component_ge")) is not None and part < len(_COMPONENTS_GE):
        kind.append(_COMPONENTS_GE[part])
    if _read_text(raw, "directionality").upper() == "ISOTROPIC":
        kind.append("isotropic")
    cardiac = (_read_number(raw, "cardiac_images") or 0) > 1
    return VolumeFacts(
        kind=" ".join(word for word in kind if word),
        b_value=b_value,
        direction=direction,
        echo_time=header.echo_time,
        inversion_time=header.inversion_time,
        flip_angle=_read_number(raw, "flip_angle"),
        # GE states the moment of each slice within its volume there, Philips that of a dynamic scan.
        trigger_time=header.trigger_time if cardiac or not maker.startswith(("GE", "PHILIPS")) else None,
        frame_time=header.frame_time,
        temporal=header.temporal_position or (_read_text(raw, "repetition_uih") if maker == "UIH" else ""),
        acquisition=header.acquisition_number,
        acquired=acquired(header),
        begin=_read_float(raw, "begin_philips"),
        repetition_time=_repetition_time(raw, maker),
        number=header.instance_number,
    )


def _repetition_time(raw: Mapping[str, bytes], maker: str) -> float | None:
    """Seconds between volumes of 2-D sequences."""
    repetition = _read_number(raw, "repetition_time")
    if repetition is None or repetition <= 0 or _read_text(raw, "acquisition_type").upper() == "3D":
        return None
    delay = _read_float(raw, "delay_ge") if maker.startswith("GE") else None
    return repetition / 1000 + (delay or 0.0)


def acquired(header: Header) -> float | None:
    """Acquisition time in seconds, unknown origin; None where unstated."""
    moment = _read_text(header.facts, "acquisition_moment")
    date, time = (moment[:8], moment[8:]) if len(moment) > 8 else (_read_text(header.facts, "acquisition_date"), "")
    return seconds(date, header.acquisition_time or time) if header.acquisition_time or time else None


def seconds(date: str, time: str) -> float | None:
    """DICOM date and time in seconds; without date, of the day."""
    match = re.fullmatch(r"(\d\d):?(\d\d)?:?(\d\d(?:\.\d{1,6})?)?(?:[+-]\d{4})?", time.strip())
    if match is None:
        return None
    day = 0
    if re.fullmatch(r"\d{8}", date):
        try:
            day = dt.date(int(date[:4]), int(date[4:6]), int(date[6:])).toordinal()
        except ValueError:
            day = 0
    hours, minutes, remaining = (float(part or 0) for part in match.groups())
    return day * 86400 + hours * 3600 + minutes * 60 + remaining


def _diffusion_weighting(header: Header, maker: str) -> tuple[float | None, tuple[float, ...] | None]:
    """b-value and LPS direction, public or else vendor elements."""
    public = _read_vector(header.facts, "direction")
    if public is not None:
        return header.b_value, unit(public)
    read = next((read for name, read in _VENDORS.items() if name in maker), None)
    if read is None:
        marks = {"direction_siemens": _siemens, "direction_x_ge": _ge}
        read = next((read for name, read in marks.items() if name in header.facts), _canon)
    return read(header)


def _siemens(header: Header) -> tuple[float | None, tuple[float, ...] | None]:
    b_value = _read_number(header.facts, "b_value_csa") if header.b_value is None else header.b_value
    return b_value, unit(_read_vector(header.facts, "direction_siemens") or _read_vector(header.facts, "direction_csa"))


def _philips(header: Header) -> tuple[float | None, tuple[float, ...] | None]:
    return header.b_value, unit([_read_float(header.facts, f"direction_{axis}_philips") or 0.0 for axis in "xyz"])


def _canon(header: Header) -> tuple[float | None, tuple[float, ...] | None]:
    match = _COMMENT.match(header.facts.get("comments", b""))
    if match is None:
        return header.b_value, None
    # Stated along the rows of the image, its columns and the normal, the first two exchanged.
    down, across, through = (float(number) for number in match.groups()[1:])
    return float(match[1]), _in_patient(header, (across, down, through))


def _ge(header: Header) -> tuple[float | None, tuple[float, ...] | None]:
    """GE's phase, reading and slice directions; short vectors weaken b."""
    parts = [_read_number(header.facts, f"direction_{axis}_ge") for axis in "xyz"]
    b_value = header.b_value
    length = math.nan if None in parts else math.sqrt(sum(part * part for part in parts if part is not None))
    if not length > 0.03 or not b_value:
        return b_value, None
    if length < 0.97:
        b_value = 5 * round(b_value * length * length / 5) or 5.0
    across, down, through = (float(part or 0) / length for part in parts)
    if _read_text(header.facts, "phase_encoding").upper() == "ROW":
        across, down = down, -across
    return b_value, _in_patient(header, (across, down, -through))


def _uih(header: Header) -> tuple[float | None, tuple[float, ...] | None]:
    b_value = _read_float(header.facts, "b_value_uih")
    vector = unit(_read_vector(header.facts, "direction_uih"))
    return (header.b_value if b_value is None else b_value), None if vector is None else _in_patient(header, vector)


_VENDORS = {
    "SIEMENS": _siemens, "GE ": _ge, "PHILIPS": _philips, "UIH": _uih, "CANON": _canon, "TOSHIBA": _canon,
}  # fmt: skip
"""Who says it how, by a part of the Manufacturer."""


def _in_patient(header: Header, vector: tuple[float, ...]) -> tuple[float, ...] | None:
    """Direction in image axes converted to patient LPS."""
    if header.orientation is None:
        return None
    across, down = np.reshape(header.orientation, (2, 3))
    return unit(vector @ np.stack([across, down, np.cross(across, down)]))


def unit(vector: Any) -> tuple[float, ...] | None:
    """Unit vector; None for zero or invalid ones."""
    if vector is None or len(vector) != 3:
        return None
    values: Array = np.asarray(vector, dtype=np.float64)
    length = float(np.linalg.norm(values))
    if not math.isfinite(length) or length < 1e-6 or np.abs(values).max() > 1.5:
        return None
    return tuple((values / length).tolist())


# --- raw values -----------------------------------------------------------------------------------------------


def _read_text(raw: Mapping[str, bytes], name: str) -> str:
    return raw.get(name, b"").decode("latin-1").strip(" \0\n")


def _read_number(raw: Mapping[str, bytes], name: str) -> float | None:
    try:
        number = float(raw.get(name, b"").strip(b" \0").split(b"\\")[0])
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _read_short(raw: Mapping[str, bytes], name: str) -> int | None:
    value = raw.get(name, b"")
    return int.from_bytes(value, "little") if len(value) == 2 else None


def _read_float(raw: Mapping[str, bytes], name: str) -> float | None:
    """Binary number of 4 or 8 bytes, or pydicom's text."""
    value = raw.get(name, b"")
    if len(value) not in (4, 8):
        return _read_number(raw, name)
    number = float(struct.unpack("<d" if len(value) == 8 else "<f", value)[0])
    return number if math.isfinite(number) else None


def _read_vector(raw: Mapping[str, bytes], name: str) -> tuple[float, ...] | None:
    """Three binary numbers of 8 bytes, or pydicom's texts."""
    value = raw.get(name, b"")
    if len(value) == 24:
        numbers = struct.unpack("<3d", value)
    else:
        try:
            numbers = tuple(float(word) for word in value.strip(b" \0").split(b"\\"))
        except ValueError:
            return None
    return numbers if len(numbers) == 3 and all(math.isfinite(number) for number in numbers) else None
