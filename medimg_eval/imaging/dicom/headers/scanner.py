"""Steps through the elements of a DICOM file and keeps the few that matter."""

from __future__ import annotations

import os
import struct

WINDOW = 8192
"""Bytes read at a time."""

UNDEFINED = 0xFFFFFFFF

IMPLICIT = "1.2.840.10008.1.2"
EXPLICIT = "1.2.840.10008.1.2.1"
DEFLATED = "1.2.840.10008.1.2.1.99"
BIG_ENDIAN = "1.2.840.10008.1.2.2"

_LONG = frozenset(b"OB OD OF OL OV OW SQ SV UC UN UR UT UV".split())
_SHORT = frozenset(b"AE AS AT CS DA DS DT FD FL IS LO LT PN SH SL SS ST TM UI UL US".split())
_PIXELS = {b"\xe0\x7f\x10\x00": 0, b"\xe0\x7f\x08\x00": 32, b"\xe0\x7f\x09\x00": 64}
"""Tags that hold pixels -> bits of a floating-point sample, 0 for whole numbers."""

_ITEM = b"\xfe\xff\x00\xe0"
"""The tag that each item of a sequence starts with."""

ELEMENTS = {
    "transfer_syntax": 0x00020010,
    "media_class": 0x00020002,
    "image_type": 0x00080008,
    "sop_class": 0x00080016,
    "acquisition_time": 0x00080032,
    "modality": 0x00080060,
    "series_description": 0x0008103E,
    "slice_thickness": 0x00180050,
    "echo_time": 0x00180081,
    "inversion_time": 0x00180082,
    "spacing_between_slices": 0x00180088,
    "trigger_time": 0x00181060,
    "b_value": 0x00189087,
    "creator_19": 0x00190010,
    "b_value_siemens": 0x0019100C,
    "image_type_siemens": 0x00211175,
    "header_siemens": 0x00291010,
    "b_value_philips": 0x20011003,
    "b_value_ge": 0x00431039,
    "patient_name": 0x00100010,
    "patient": 0x00100020,
    "study_uid": 0x0020000D,
    "series_uid": 0x0020000E,
    "series_number": 0x00200011,
    "acquisition_number": 0x00200012,
    "instance_number": 0x00200013,
    "position": 0x00200032,
    "orientation": 0x00200037,
    "frame_of_reference": 0x00200052,
    "temporal_position": 0x00200100,
    "samples": 0x00280002,
    "photometric": 0x00280004,
    "planar": 0x00280006,
    "frames": 0x00280008,
    "rows": 0x00280010,
    "columns": 0x00280011,
    "pixel_spacing": 0x00280030,
    "bits_allocated": 0x00280100,
    "bits_stored": 0x00280101,
    "high_bit": 0x00280102,
    "signed": 0x00280103,
    "padding": 0x00280120,
    "padding_limit": 0x00280121,
    "intercept": 0x00281052,
    "slope": 0x00281053,
    "modality_lut": 0x00283000,
    "frame_time": 0x00541300,
}
"""Name -> tag."""

FACTS = {
    "tiles_siemens": 0x0019100A,
    "sop_instance": 0x00080018,
    "acquisition_date": 0x00080022,
    "acquisition_moment": 0x0008002A,
    "manufacturer": 0x00080070,
    "component": 0x00089208,
    "contrast": 0x00180010,
    "acquisition_type": 0x00180023,
    "repetition_time": 0x00180080,
    "echo_number": 0x00180086,
    "cardiac_images": 0x00181090,
    "kernel": 0x00181210,
    "acquisition_matrix": 0x00181310,
    "phase_encoding": 0x00181312,
    "flip_angle": 0x00181314,
    "directionality": 0x00189075,
    "direction": 0x00189089,
    "direction_siemens": 0x0019100E,
    "direction_x_ge": 0x001910BB,
    "direction_y_ge": 0x001910BC,
    "direction_z_ge": 0x001910BD,
    "comments": 0x00204000,
    "component_ge": 0x0043102F,
    "delay_ge": 0x0043107C,
    "tile_siemens": 0x0051100B,
    "b_value_uih": 0x00651009,
    "repetition_uih": 0x0065102C,
    "direction_uih": 0x00651037,
    "tiles_uih": 0x00651050,
    "begin_philips": 0x200510A0,
    "direction_x_philips": 0x200510B0,
    "direction_y_philips": 0x200510B1,
    "direction_z_philips": 0x200510B2,
    "b_number_philips": 0x20051412,
    "direction_number_philips": 0x20051413,
}
"""Name -> tag of what tells slices at one position, or series, apart; kept as written, read where it is needed."""

_NAMES = {struct.pack("<HH", tag >> 16, tag & 0xFFFF): name for name, tag in (ELEMENTS | FACTS).items()}


class OddError(Exception):
    """The scan met something that is better left to pydicom."""


class CutShortError(OddError):
    """An element runs past the end of the file."""


class Scan:
    """Steps through the elements of a file of little-endian order.

    It finds raw values by name, the bits of a floating-point sample (0 for whole numbers), and offset and length of the
    pixel data (length `UNDEFINED` when encapsulated).
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self.data = os.pread(descriptor, WINDOW, 0)
        self.base = 0
        self.found: dict[str, bytes] = {}
        self.floating = 0
        self.pixels: tuple[int, int] | None = None

    def begin(self) -> int | None:
        """Returns where the first element is, None when the file cannot be DICOM."""
        data = self.data
        if data[128:132] == b"DICM":
            return 132
        group, element = int.from_bytes(data[:2], "little"), int.from_bytes(data[2:4], "little")
        return 0 if group in (2, 8) and element <= 0x70 and len(data) > 8 else None

    def run(self, position: int) -> None:
        """Fills `found` and `pixels`; raises `OddError` for what only pydicom should read."""
        position = self._elements(position, explicit=True, meta=True)
        syntax = self.found.get("transfer_syntax", b"").rstrip(b"\0 ").decode("latin-1")
        if syntax in (BIG_ENDIAN, DEFLATED):
            raise OddError
        # What is written decides, not what is announced: converters are known to get this wrong.
        self._refill(position)
        kind = self.data[position - self.base + 4 : position - self.base + 6]
        explicit = kind in _LONG or kind in _SHORT
        if not syntax:
            self.found["transfer_syntax"] = (EXPLICIT if explicit else IMPLICIT).encode()
        self._elements(position, explicit=explicit, meta=False)

    def _refill(self, position: int) -> None:
        if not self.base <= position <= self.base + len(self.data) - 12:
            self.base = position
            self.data = os.pread(self.descriptor, WINDOW, position)

    def _elements(self, position: int, *, explicit: bool, meta: bool) -> int:
        """Yields elements from `position` to pixels or end of file."""
        data, base, size = self.data, self.base, self.size
        names, elements = _NAMES, self.found
        while position + 8 <= size:
            at = position - base
            if at + 12 > len(data):
                self._refill(position)
                data, base, at = self.data, self.base, position - self.base
            tag = data[at : at + 4]
            if meta and tag[:2] != b"\2\0":
                break
            start, length = _value_span(data, at, explicit=explicit)
            if tag in _PIXELS:
                self.floating = _PIXELS[tag]
                self.pixels = (base + start, length)
                break
            name = names.get(tag)
            if length == UNDEFINED:
                if name is not None and self._item(base + start)[0] == _ITEM:
                    elements[name] = _ITEM
                position = self._skip_sequence(base + start, explicit=explicit)
                data, base = self.data, self.base
                continue
            if name is not None:
                stop = start + length
                elements[name] = (
                    data[start:stop] if stop <= len(data) else os.pread(self.descriptor, length, base + start)
                )
            position = base + start + length
        if position > size:
            raise CutShortError
        return position

    def _skip_sequence(self, position: int, *, explicit: bool) -> int:
        """Returns where a sequence of undefined length ends; `position` is its first item."""
        while True:
            tag, length = self._item(position)
            position += 8
            if tag == b"\xfe\xff\xdd\xe0":
                return position
            if tag != _ITEM:
                raise OddError
            if length != UNDEFINED:
                position += length
                continue
            position = self._skip_item(position, explicit=explicit)

    def _skip_item(self, position: int, *, explicit: bool) -> int:
        """Returns where an item of undefined length ends; `position` is its first element."""
        while True:
            tag, _ = self._item(position)
            if tag == b"\xfe\xff\x0d\xe0":
                return position + 8
            at = position - self.base
            start, length = _value_span(self.data, at, explicit=explicit)
            start += self.base
            position = self._skip_sequence(start, explicit=explicit) if length == UNDEFINED else start + length

    def _item(self, position: int) -> tuple[bytes, int]:
        if position + 8 > self.size:
            raise CutShortError
        self._refill(position)
        at = position - self.base
        return self.data[at : at + 4], int.from_bytes(self.data[at + 4 : at + 8], "little")


def _value_span(data: bytes, at: int, *, explicit: bool) -> tuple[int, int]:
    """Start and length within `data` of the element's value."""
    if not explicit:
        return at + 8, int.from_bytes(data[at + 4 : at + 8], "little")
    kind = data[at + 4 : at + 6]
    if kind in _SHORT:
        return at + 8, data[at + 6] + 256 * data[at + 7]
    if kind in _LONG:
        return at + 12, int.from_bytes(data[at + 8 : at + 12], "little")
    raise OddError
