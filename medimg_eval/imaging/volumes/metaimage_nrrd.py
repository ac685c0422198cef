"""MetaImage (.mha, .mhd) and NRRD (.nrrd, .nhdr).

SimpleITK says what the headers mean. The voxels are read here wherever they are plain or deflated, for ITK hands
out whatever was in memory when compressed voxels are damaged; and the text headers are read here as well, for what
it passes over in silence: voxel sizes that are not stated, negative or not a number, lengths in metres, a space
that is not a patient's. Voxels as text or in one file per slice are left to SimpleITK.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, ChannelAxis, Geometry, Image
from medimg_eval.errors import CaseError
from medimg_eval.imaging.geometry import Box, check_affine, clip_box, shifted
from medimg_eval.imaging.library_logs import without_values
from medimg_eval.imaging.voxel_data import Codec, Layout, check_room, read_voxels

NRRD = b"NRRD0"

META_TYPES = {f"MET_{sign}{name}" for sign in ("", "U") for name in ("CHAR", "SHORT", "INT", "LONG", "LONG_LONG")} | {
    "MET_FLOAT",
    "MET_DOUBLE",
}

META_FLAGS = ("BinaryData", "CompressedData", "BinaryDataByteOrderMSB", "ElementByteOrderMSB")

META_NUMBERS = {
    "DimSize": 1,
    "ElementSpacing": 1,
    "ElementSize": 1,
    "Offset": 1,
    "Position": 1,
    "Origin": 1,
    "CenterOfRotation": 1,
    "TransformMatrix": 2,
    "Rotation": 2,
    "Orientation": 2,
}
"""Fields of a MetaImage that hold as many numbers as there are axes, to this power."""

HEADER = 1 << 22
"""Bytes in which a text header is looked for: those of segmentations list every segment."""

LENGTHS = {
    "mm": 1.0,
    "millimeter": 1.0,
    "cm": 10.0,
    "m": 1000.0,
    "meter": 1000.0,
    "um": 1e-3,
    "µm": 1e-3,
    "micron": 1e-3,
}

SIGNS = {"right": 1.0, "left": -1.0, "anterior": 1.0, "posterior": -1.0, "superior": 1.0, "inferior": -1.0}
"""Which way along RAS+ an anatomical name points."""

SPATIAL = ("domain", "space", "time")
"""Kinds of NRRD axes along which voxels lie."""

LPS = "left-posterior-superior"


@dataclass(frozen=True, eq=False)
class Header:
    """Words of a header by field, and their length in bytes.

    The reader is SimpleITK's, which has read it. The shape is that of the spatial axes; the affine is float64, (4, 4),
    voxel index to RAS+ mm; units are `pixel` where no voxel size is stated.
    """

    reader: Any
    nrrd: bool
    fields: Mapping[str, str]
    length: int
    shape: tuple[int, ...]
    affine: Array
    units: Literal["mm", "pixel"]
    notes: tuple[str, ...]


def read(path: Path, box: Box | None) -> Image:
    """Reads a volume; see `medimg_eval.imaging.volumes.reading.read`."""
    header = _parse_header(path)
    box = clip_box(path, header.shape, box)
    layout = _voxel_layout(path, header)
    notes: list[str] = []
    if layout is None:
        array = _by_itk(path, header.reader, header.fields, box)
    else:
        voxels, notes = read_voxels(layout, None if box is None else (*box, (0, 1))[:3], None)
        voxels = voxels[..., 0] if layout.shape[4] == 1 else np.moveaxis(voxels[0], 3, 0)
        array = voxels[..., 0] if len(header.shape) == 2 else voxels
    return Image(
        array,
        shifted(header.affine, box),
        units=header.units,
        notes=(*header.notes, *notes),
        channels=_time_axis(header, len(array)),
    )


def _time_axis(header: Header, count: int) -> ChannelAxis | None:
    """NRRD time axis in seconds, by its spacing; None without."""
    fields = header.fields
    if "timeaxis" not in fields or count < 2:
        return None
    axis, spacings = int(fields["timeaxis"]), fields.get("spacings", "").split()
    units = re.findall(r'"([^"]*)"', fields.get("units", ""))
    unit = {"ms": 1e-3, "s": 1.0, "sec": 1.0}.get(units[axis] if axis < len(units) else "s", math.nan)
    step = float(spacings[axis]) * unit if axis < len(spacings) else math.nan
    return ChannelAxis("time", step * np.arange(count), "s")


def grid(path: Path, box: Box | None) -> Geometry:
    """Returns the grid, from the header alone."""
    header = _parse_header(path)
    layout = _voxel_layout(path, header)
    if layout is not None:
        check_room(layout)
    box = clip_box(path, header.shape, box)
    shape = header.shape if box is None else tuple(stop - start for start, stop in box)
    return Geometry(shape, shifted(header.affine, box), header.units)


def _parse_header(path: Path) -> Header:
    import SimpleITK

    with path.open("rb") as stream:
        start = stream.read(HEADER)
    nrrd = start.startswith(NRRD)
    fields, length = _nrrd_fields(start) if nrrd else _meta_fields(start)
    (_check_nrrd if nrrd else _check_meta)(path, fields)
    stated = fields.get("datafile" if nrrd else "ElementDataFile", "LOCAL")
    for name in _data_files(path, stated, start[length:] if len(start) < HEADER else b""):
        _check_data_file(path, name)
    reader = SimpleITK.ImageFileReader()
    reader.SetImageIO("NrrdImageIO" if nrrd else "MetaImageIO")
    with _for_itk(path, start[:length], fields, nrrd=nrrd) as file:
        reader.SetFileName(str(file))
        try:
            reader.ReadImageInformation()
        except RuntimeError as error:
            raise CaseError(f"{path}: cannot be read ({_itk_reason(error)}); convert it, or mend its header") from error
        return Header(reader, nrrd, fields, length, *_read_geometry(path, reader, fields, nrrd=nrrd))


@contextmanager
def _for_itk(path: Path, start: bytes, fields: dict[str, str], *, nrrd: bool) -> Iterator[Path]:
    """File, or a header without features that ITK lacks.

    The fields then say `list` as well; where time lies is told by `timeaxis`, counted from 0.
    """
    kinds = fields.get("kinds", "").split() if nrrd else []
    axis = kinds.index("time") if "time" in kinds and "time" not in fields.get("space", "").lower() else None
    packed = nrrd and fields.get("encoding", "").lower() in ("bzip2", "bz2")
    if axis is None and not packed:
        yield path
        return
    text = start.decode("utf-8", "replace")
    if packed:
        text = re.sub(r"(?im)^encoding:.*$", "encoding: gzip", text)
    if axis is not None:
        fields["timeaxis"], fields["kinds"] = str(axis), " ".join([*kinds[:axis], "list", *kinds[axis + 1 :]])
        steps = fields.get("spacings", "").split()
        steps[axis : axis + 1] = ["nan"] if axis < len(steps) else []
        text = re.sub(r"(?im)^kinds:.*$", f"kinds: {fields['kinds']}", text)
        text = re.sub(r"(?im)^spacings:.*$", f"spacings: {' '.join(steps)}", text)
    with tempfile.TemporaryDirectory(prefix="nrrd-") as home:
        copy = Path(home, "header.nrrd")
        copy.write_bytes(text.encode("utf-8"))
        yield copy


def _data_files(path: Path, stated: str, rest: bytes) -> Iterator[str]:
    """Data files a header names; none where voxels follow it."""
    if stated.startswith("LIST"):
        names = [line.strip() for line in rest.decode("utf-8", "replace").splitlines() if line.strip()]
        if not names:
            raise CaseError(f"{path}: lists no files for its voxels, or too many; convert it")
        yield from names
    elif "%" in stated:
        numbered = re.fullmatch(r"([^%]*)%(0?)([1-9]?)d([^%]*?)\s+(\d+)\s+(\d+)(?:\s+([1-9]\d*))?(?:\s+\d+)?", stated)
        if numbered is None:
            raise CaseError(f"{path}: expected a pattern such as slice%03d.raw 1 20 1, got {stated}; mend its header")
        before, zero, width, after, first, last, step = numbered.groups()
        for number in range(int(first), int(last) + 1, int(step or 1)):
            yield f"{before}{number:{zero}{width}d}{after}"
    elif stated.upper() != "LOCAL":
        yield stated


def _check_data_file(path: Path, name: str) -> None:
    """Refuses data elsewhere, which headers could expose.

    A link may lead to the folder of the header, or, where the header is a link as well, to the folder that one leads
    to.
    """
    data = path.parent / name
    homes = (path.parent.resolve(), path.resolve().parent)
    if "\\" in name or name.startswith("~") or not any(data.resolve().is_relative_to(home) for home in homes):
        raise CaseError(
            f"{path}: names {name} for its voxels, which does not lie in its own folder; copy it there, and name it "
            "without a path"
        )
    if not data.is_file():
        raise CaseError(f"{path}: its voxels lie in {name}, which is missing; copy it there")


def _by_itk(path: Path, reader: Any, fields: Mapping[str, str], box: Box | None) -> Array:
    import SimpleITK

    if _is_true(fields.get("CompressedData", "False")) or fields.get("encoding", "").lower() in ("gzip", "gz"):
        raise CaseError(f"{path}: its voxels are compressed, and in several files or an unusual order; convert it")
    if box is not None:
        remaining = reader.GetSize()[len(box) :]
        reader.SetExtractIndex([*(start for start, _ in box), *(0 for _ in remaining)])
        reader.SetExtractSize([*(stop - start for start, stop in box), *remaining])
    try:
        image = reader.Execute()
    except RuntimeError as error:
        raise CaseError(f"{path}: is cut short or damaged ({_itk_reason(error)}); write or copy it again") from error
    # SimpleITK's axes run backwards: (channel volume, slice, row, column, component).
    array: Array = SimpleITK.GetArrayFromImage(image).T
    if image.GetNumberOfComponentsPerPixel() > 1:
        return array
    return np.moveaxis(array, 3, 0) if array.ndim == 4 else array[None]


def _voxel_layout(path: Path, header: Header) -> Layout | None:
    """Returns how the voxels lie; None where that is left to SimpleITK."""
    reader, fields = header.reader, header.fields
    size, components = reader.GetSize(), reader.GetNumberOfComponents()
    dtype = _voxel_dtype(reader)
    location = _nrrd_place(fields, size, components) if header.nrrd else _meta_place(fields)
    if location is None or dtype is None:
        return None
    name, codec, offset, order, last = location
    data = path.parent / name if name else path
    grown = (*size, 1, 1)[:4]
    shape = (1, *grown[:3], components) if last else (components, *grown)
    start = 0 if name else header.length
    layout = Layout(data, codec, start if codec else 0, offset, dtype.newbyteorder(order), shape)
    if offset < 0:  # the voxels end the file
        offset = data.stat().st_size - layout.size
    elif not codec:
        offset += start
    return Layout(data, codec, layout.start, offset, layout.dtype, shape)


Place = tuple[str, Codec, int, Literal["<", ">"], bool]
"""File (empty for the same), compression, bytes before the voxels (-1 for the last), byte order, channels last."""


def _meta_place(fields: Mapping[str, str]) -> Place | None:
    name = fields["ElementDataFile"]
    if not _is_true(fields.get("BinaryData", "True")) or name.split()[0] == "LIST" or "%" in name:
        return None  # numbers as text, or one file per slice
    big = fields.get("BinaryDataByteOrderMSB", fields.get("ElementByteOrderMSB", "False"))
    codec: Codec = "zlib" if _is_true(fields.get("CompressedData", "False")) else ""
    local = name.upper() == "LOCAL"
    offset = 0 if local or codec else int(fields.get("HeaderSize", "0"))
    return "" if local else name, codec, offset, ">" if _is_true(big) else "<", False


def _nrrd_place(fields: Mapping[str, str], size: tuple[int, ...], components: int) -> Place | None:
    encoding, name = fields.get("encoding", "").lower(), fields.get("datafile", "")
    codecs: dict[str, Codec] = {"raw": "", "gzip": "gzip", "gz": "gzip", "bzip2": "bzip2", "bz2": "bzip2"}
    if encoding not in codecs or name.startswith("LIST") or "%" in name or int(fields.get("lineskip", "0")):
        return None
    sizes = [int(word) for word in fields["sizes"].split()]
    axis = _component_axis(fields) if components > 1 else None
    last = axis == len(size)
    if components > 1 and (axis is None or not (last or axis == 0) or sizes.pop(axis) != components):
        return None  # components in the middle, or of a kind that ITK takes apart
    if tuple(sizes) != tuple(size):
        return None
    order: Literal["<", ">"] = ">" if fields.get("endian", "little").lower() == "big" else "<"
    return name, codecs[encoding], int(fields.get("byteskip", "0")), order, last


def _component_axis(fields: Mapping[str, str]) -> int | None:
    """Returns the NRRD axis of components, if exactly one."""
    axes = [axis for axis, kind in enumerate(fields.get("kinds", "").split()) if kind not in SPATIAL]
    return axes[0] if len(axes) == 1 else None


def _is_true(word: str) -> bool:
    return word[:1].lower() in ("t", "1", "y")


def _voxel_dtype(reader: Any) -> np.dtype[Any] | None:
    import SimpleITK

    text = SimpleITK.GetPixelIDValueAsString(reader.GetPixelIDValue()).lower()
    match = re.search(r"^(?:vector of )?(\d+)-bit (signed integer|unsigned integer|float)$", text)
    return None if match is None else np.dtype({"s": "i", "u": "u", "f": "f"}[match[2][0]] + str(int(match[1]) // 8))


def _itk_reason(error: RuntimeError) -> str:
    """Returns what ITK says, without the place in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = re.sub(r"^.*ITK ERROR: \w+\(0x[0-9a-f]+\): ", "", lines[-1]) if lines else "no reason given"
    return without_values(message)


def _meta_fields(start: bytes) -> tuple[dict[str, str], int]:
    """Returns a MetaImage's fields and header end."""
    fields: dict[str, str] = {}
    at = 0
    for line in start.split(b"\n"):
        at += len(line) + 1
        key, *value = re.split("[=:]", line.decode("latin-1"), maxsplit=1)  # ITK takes either
        if value:
            fields[key.strip()] = value[0].strip()
        elif key.strip():
            fields[""] = key.strip()
        if key.strip() == "ElementDataFile":
            break
    return fields, at


def _nrrd_fields(start: bytes) -> tuple[dict[str, str], int]:
    """Returns a NRRD header's fields, and where the header ends."""
    fields: dict[str, str] = {}
    at = 0
    for line in start.splitlines(keepends=True):
        at += len(line)
        text = line.decode("utf-8", "replace").strip()
        if not text:
            break
        key, separator, value = text.partition(":")
        if separator and not text.startswith("#") and not value.startswith("="):
            fields[key.strip().lower().replace(" ", "")] = value.strip()
        if fields.get("datafile", "").startswith("LIST"):
            break  # the lines below are names of files
    return fields, at


def _parse_numbers(path: Path, text: str, field: str) -> list[float]:
    try:
        return [float(word) for word in text.replace(",", " ").split()]
    except ValueError as error:
        raise CaseError(f"{path}: expected numbers in the field {field!r} of its header; mend it") from error


def _check_steps(path: Path, steps: list[float], field: str) -> None:
    if not all(np.isfinite(step) and step > 0 for step in steps):
        raise CaseError(
            f"{path}: has no usable affine: {field} is {', '.join(f'{step:g}' for step in steps)}; "
            "expected numbers above 0, mend its header"
        )


def _check_meta(path: Path, fields: Mapping[str, str]) -> None:
    """Refuses headers that ITK rejects noisily, and invalid spacings."""
    missing = [key for key in ("NDims", "DimSize", "ElementType", "ElementDataFile") if not fields.get(key)]
    if missing:
        raise CaseError(f"{path}: is no MetaImage: the field {missing[0]} is missing; write or copy it again")
    if "" in fields or any(ord(letter) < 32 and letter != "\t" for pair in fields.items() for letter in "".join(pair)):
        raise CaseError(f"{path}: is damaged: its header holds lines that are no fields; write or copy it again")
    if fields["NDims"] not in ("1", "2", "3", "4"):
        raise CaseError(f"{path}: has NDims = {fields['NDims']}; expected two or three axes, and one of channels")
    if fields["ElementType"].removesuffix("_ARRAY") not in META_TYPES:
        raise CaseError(f"{path}: is of no known data type ({fields['ElementType']}); mend ElementType in its header")
    for field in META_FLAGS:
        if fields.get(field, "True").lower() not in ("true", "false", "t", "f", "1", "0", "yes", "no"):
            raise CaseError(f"{path}: expected True or False in the field {field!r} of its header; mend it")
    _check_meta_numbers(path, fields)


def _check_meta_numbers(path: Path, fields: Mapping[str, str]) -> None:
    axes, order = int(fields["NDims"]), list(fields)
    for field, power in META_NUMBERS.items():
        if field not in fields:
            continue
        numbers = _parse_numbers(path, fields[field], field)
        if len(numbers) != axes**power or order.index(field) < order.index("NDims"):
            raise CaseError(
                f"{path}: expected {axes**power} numbers in the field {field!r}, after NDims = {axes}, got "
                f"{len(numbers)}; mend its header"
            )
        if field in ("ElementSpacing", "ElementSize"):
            _check_steps(path, numbers, field)
        elif field == "DimSize" and not all(size >= 1 and size.is_integer() for size in numbers):
            raise CaseError(f"{path}: has axes of {fields[field]} voxels; expected axes of at least 1")


def _check_nrrd(path: Path, fields: Mapping[str, str]) -> None:
    """Refuses spacings that NRRD's reader takes for 1."""
    # An axis of channels has no spacing: NaN stands in its place.
    spacings = _parse_numbers(path, fields.get("spacings", ""), "spacings")
    kinds = fields.get("kinds", "").split() or ["domain"] * len(spacings)
    if "time" in kinds[1:-1] or kinds.count("time") > 1:
        raise CaseError(
            f"{path}: has its axis of time between those of space (kinds: {' '.join(kinds)}); put it first, or last"
        )
    lists = sum(kind not in SPATIAL for kind in kinds)
    stated = [step for step in spacings if not math.isnan(step)]
    if len(spacings) - len(stated) > lists or any(step <= 0 or math.isinf(step) for step in stated):
        _check_steps(path, spacings, "spacings")


def _read_geometry(
    path: Path, reader: Any, fields: Mapping[str, str], *, nrrd: bool
) -> tuple[tuple[int, ...], Array, Literal["mm", "pixel"], tuple[str, ...]]:
    """Returns spatial shape, affine in RAS+ mm, units, and doubts."""
    size, axes = reader.GetSize(), reader.GetDimension()
    if not 2 <= axes <= 4 or (axes == 4 and reader.GetNumberOfComponents() > 1):
        raise CaseError(f"{path}: has {axes} axes; expected two or three, and at most one of channels or components")
    space = min(axes, 3)
    direction = np.reshape(reader.GetDirection(), (axes, axes))
    affine = np.eye(4)
    affine[:space, :space] = direction[:space, :space] * np.asarray(reader.GetSpacing()[:space])
    affine[:space, 3] = reader.GetOrigin()[:space]
    notes: list[str] = []
    letters = _nrrd_space(path, reader, fields, affine, notes) if nrrd else LPS
    affine = np.diag([*(SIGNS[word] for word in letters.split("-")[:3]), 1.0]) @ affine
    stated = {"spacings", "spacedirections"} if nrrd else {"ElementSpacing", "ElementSize"}
    units: Literal["mm", "pixel"] = "mm" if stated & fields.keys() else "pixel"
    if units == "pixel":
        notes.append("the file states no voxel size: distances are in voxels")
    check_affine(path, affine)
    return tuple(size[:space]), affine, units, tuple(notes)


def _nrrd_space(path: Path, reader: Any, fields: Mapping[str, str], affine: Array, notes: list[str]) -> str:
    """Returns the axes' orientation from ITK; converts lengths to mm."""
    letters = reader.GetMetaData("NRRD_space") if reader.HasMetaDataKey("NRRD_space") else ""
    words = letters.split("-")
    if len(words) < 3 or not all(word in SIGNS for word in words[:3]):
        complaint = f"the space {letters!r} is no patient's" if letters else "the file states no space"
        notes.append(f"{complaint}: its axes were taken to run left, posterior, superior, which is a guess")
        letters = LPS
    units = re.findall(r'"([^"]*)"', fields.get("spaceunits", "") or fields.get("units", ""))
    scales = {LENGTHS[unit] for unit in units if unit in LENGTHS}
    if len(scales) > 1:
        raise CaseError(f"{path}: states lengths in different units along its axes; mend its header")
    factor = scales.pop() if scales else 1.0
    if factor != 1:
        affine[:3] *= factor
        notes.append(f"lengths are stated in units of {factor:g} mm and were converted to mm")
    return letters
