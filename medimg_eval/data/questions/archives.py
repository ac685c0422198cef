"""Pictures inside zip files and cells: zip files are found their way in by a directory that is read once."""

from __future__ import annotations

import difflib
import io
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from medimg_eval.case import Geometry, Image, OneFile
from medimg_eval.data.questions.cells import Cell
from medimg_eval.errors import CaseError

LARGEST = 2**30
"""Bytes above which a member is refused: no picture is as large, and a bomb promises less than it holds."""


@dataclass(frozen=True)
class Member:
    """Entry of a member in the archive's directory."""

    start: int
    packed: int
    size: int
    method: int
    crc: int
    locked: bool


@dataclass(frozen=True)
class ZipPicture(OneFile):
    """Picture in a zip file, readable in any process.

    The place is the record that names it, for people; the modality a DICOM code, where known; `reading` is passed to
    the reader of pictures.
    """

    member: str
    place: str
    modality: str = ""
    reading: dict[str, Any] = field(default_factory=dict, hash=False)

    def read(self) -> Image:
        """Decodes it; raises CaseError naming archive, member and record."""
        return decoded(unzipped(self.path, self.member, self.place), self._name, self.modality, self.reading)

    def geometry(self) -> Geometry:
        """Rows and columns."""
        return size_of_bytes(unzipped(self.path, self.member, self.place), self._name)

    @property
    def _name(self) -> str:
        return f"{self.path}, member {self.member!r} ({self.place})"


def unzipped(path: Path, member: str, place: str) -> bytes:
    """Member's content; CaseError for missing, damaged or oversized ones."""
    entry = _find_member(path, member, place)
    where = f"{path}, member {member!r} ({place})"
    if entry.size > LARGEST:
        raise CaseError(f"{where}: holds {entry.size:,} bytes, which may be a decompression bomb; unpack it by hand")
    if entry.locked:
        raise CaseError(f"{where}: is encrypted; unpack the archive where it lies, and move it away")
    if entry.method not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise CaseError(
            f"{where}: is packed by method {entry.method}; unpack the archive where it lies, and move it away"
        )
    with path.open("rb") as stream:
        stream.seek(entry.start)
        head = stream.read(30)
        if head[:4] != b"PK\3\4" or len(head) < 30:
            raise CaseError(f"{where}: does not stand where the archive says; copy the archive again")
        stream.seek(sum(struct.unpack("<HH", head[26:30])), 1)
        packed = stream.read(entry.packed)
    with CaseError.about(where, "is damaged", zlib.error, mend="copy the archive again"):
        data = packed if entry.method == zipfile.ZIP_STORED else zlib.decompressobj(-15).decompress(packed, entry.size)
    if len(data) != entry.size or zlib.crc32(data) != entry.crc:
        raise CaseError(f"{where}: is damaged or cut short; copy the archive again")
    return data


def _find_member(path: Path, member: str, place: str) -> Member:
    try:
        members = _archive_directory(path, path.stat().st_mtime_ns)
    except FileNotFoundError as error:
        raise CaseError(f"{path}: no such archive, of which {place} names the member {member!r}") from error
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise CaseError(f"{path}: cannot be read as a zip file ({error}); copy it again") from error
    member = _normalise_member(member)
    if member in members:
        return members[member]
    last = PurePosixPath(member).name
    close_matches = [name for name in members if PurePosixPath(name).name == last]
    if not close_matches:
        folder = PurePosixPath(member).parent
        siblings = [name for name in members if PurePosixPath(name).parent == folder] or list(members)
        close_matches = difflib.get_close_matches(member, siblings[:2000], n=1, cutoff=0.3)
    hint = f"; did you mean {close_matches[0]!r}?" if close_matches else ""
    raise CaseError(f"{path}: holds no {member!r}, which {place} names{hint} ({len(members)} members)")


@lru_cache(maxsize=64)
def _archive_directory(path: Path, _changed: int) -> dict[str, Member]:
    with zipfile.ZipFile(path) as archive:
        return {
            _normalise_member(info.filename): Member(
                info.header_offset,
                info.compress_size,
                info.file_size,
                info.compress_type,
                info.CRC,
                locked=bool(info.flag_bits & 1),
            )
            for info in archive.infolist()
            if not info.is_dir()
        }


def _normalise_member(member: str) -> str:
    r"""Member name with `/`, also from Windows' `\`."""
    return member.replace("\\", "/").removeprefix("./")


@dataclass(frozen=True)
class CellPicture:
    """A picture in a field of a table."""

    cell: Cell
    modality: str = ""
    reading: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def files(self) -> tuple[Path, ...]:
        """The table."""
        return (self.cell.path,)

    def read(self) -> Image:
        """Decodes it; raises CaseError naming table, record and column."""
        return decoded(self.cell.read(), self.cell.where, self.modality, self.reading)

    def geometry(self) -> Geometry:
        """Rows and columns."""
        return size_of_bytes(self.cell.read(), self.cell.where)


def decoded(data: bytes, name: str, modality: str, reading: Mapping[str, Any]) -> Image:
    """A picture out of the bytes of its file; raises CaseError with `name`."""
    from medimg_eval.imaging.pictures import decode

    image = decode(data, name, **reading)
    return image if image.modality else replace(image, modality=modality)


def size_of_bytes(data: bytes, name: str) -> Geometry:
    """Upright rows and columns, by the header of common formats."""
    from PIL import Image as Pillow

    from medimg_eval.imaging.pictures import MAX_PIXELS

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)
            header = Pillow.open(io.BytesIO(data))
        columns, rows = header.size
        turned = header.format == "JPEG" and header.getexif().get(274, 1) in (5, 6, 7, 8)
        # A PNG's orientation may stand behind its pixels, and a TIFF has pages.
        plain = header.format in ("JPEG", "GIF", "BMP") or (header.format == "PNG" and b"eXIf" not in data)
    except (OSError, ValueError, SyntaxError, Pillow.DecompressionBombError):
        plain = False
    if not plain or rows * columns > MAX_PIXELS:
        return decoded(data, name, "", {}).geometry
    return Geometry((columns, rows) if turned else (rows, columns), np.eye(4), "pixel")
