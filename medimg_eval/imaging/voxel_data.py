"""The voxels of a file, plain or compressed: never more bytes than its header asks for, never fewer."""

from __future__ import annotations

import bz2
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Protocol, cast

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.geometry import Box

Codec = Literal["", "gzip", "zlib", "bzip2"]

GZIP = b"\x1f\x8b"

PIECE = 1 << 18
"""Bytes inflated at a time: they are copied to their place while still in the processor's cache."""

DEFLATE_RATIO = 1032
"""No deflate stream grows by more than this."""

TRAILING = 1 << 20
"""Bytes past the voxels that are still inflated, to reach the checksum at the end."""


class Transform(Protocol):
    """Steps that turn stored values into the result."""

    def __call__(self, stored: Array) -> Array:
        """Returns the values of a block, of the same shape."""


def is_gzip(path: Path) -> bool:
    """Says whether a file is gzip-compressed, by its first two bytes."""
    with path.open("rb") as stream:
        return stream.read(2) == GZIP


def head(path: Path, count: int) -> bytes:
    """Returns a file's first bytes, decompressed.

    Fewer where it is shorter.
    """
    with Stream(path, 0, "gzip" if is_gzip(path) else "") as stream:
        return stream.take(count)


def check_own(path: Path, stored: Any) -> Any:
    """Returns an HDF5 array stored within its file, refusing links.

    Raises CaseError where they lie in another file: by an external link, external storage, or as a view of other files.
    """
    elsewhere = stored.file.filename != str(path) or stored.external
    if elsewhere or (stored.is_virtual and any(source.file_name != "." for source in stored.virtual_sources())):
        raise CaseError(
            f"{path}: its array {stored.name} lies in another file, which is not read; copy it into this one"
        )
    return stored


class _Zlib:
    """A zlib stream to read from; its checksum is compared at its end."""

    def __init__(self, source: BinaryIO) -> None:
        from isal import igzip_lib

        self._source = source
        self._inflate: Any = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_ZLIB)

    def read(self, count: int) -> bytes:
        """Returns up to `count` bytes, none at the end."""
        while not self._inflate.eof:
            hungry = self._inflate.needs_input
            compressed = self._source.read(PIECE) if hungry else b""
            if hungry and not compressed:
                raise EOFError("the compressed data end too early")
            piece: bytes = self._inflate.decompress(compressed, count)
            if piece:
                return piece
        return b""

    def close(self) -> None:
        """There is nothing of its own to close."""


class Stream:
    """Bytes of a plain or compressed file, in order, from `start` on.

    Several gzip members in one file are one stream. Each way a file can be damaged becomes a CaseError.
    """

    def __init__(self, path: Path, start: int, codec: Codec) -> None:
        self.path = path
        self.codec = codec
        self._file = path.open("rb")
        self._file.seek(start)
        self._stream: Any = self._file
        if codec == "gzip":
            from isal import igzip

            self._stream = igzip.IGzipFile(fileobj=self._file, mode="rb")
        elif codec == "zlib":
            self._stream = _Zlib(self._file)
        elif codec == "bzip2":
            self._stream = bz2.BZ2File(self._file)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
        self._file.close()

    def take(self, count: int) -> bytes:
        """Returns the next bytes, fewer at the end of the file."""
        with self._named():
            pieces = []
            while count and (piece := self._stream.read(min(count, PIECE))):
                pieces.append(piece)
                count -= len(piece)
            return b"".join(pieces)

    def skip(self, count: int) -> None:
        """Passes over bytes."""
        while count:
            count -= len(self._piece(min(count, PIECE)))

    def fill(self, array: Array) -> None:
        """Fills a Fortran-contiguous array with the next bytes."""
        flat = array.reshape(-1, order="F").view(np.uint8)
        at = 0
        while at < len(flat):
            piece = self._piece(min(len(flat) - at, PIECE))
            flat[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)

    def finish(self) -> list[str]:
        """Reads on to a compressed file's checksum, or returns a note."""
        if self.codec and len(self.take(TRAILING)) == TRAILING:
            return ["the file goes on long after its last voxel; what follows was not read, nor its checksum"]
        return []

    def _piece(self, count: int) -> bytes:
        with self._named():
            piece: bytes = self._stream.read(count)
        if not piece:
            raise self._short()
        return piece

    def _short(self) -> CaseError:
        return CaseError(f"{self.path}: is cut short: it ends before its last voxel; write or copy it again")

    @contextmanager
    def _named(self) -> Iterator[None]:
        from isal import isal_zlib

        isal_error = cast("type[Exception]", isal_zlib.IsalError)  # which its stub takes for an instance
        try:
            yield
        except (OSError, EOFError, ValueError, zlib.error, isal_error) as error:
            raise CaseError(f"{self.path}: is cut short or damaged ({error}); write or copy it again") from error


@dataclass(frozen=True)
class Layout:
    """How voxels lie in a file.

    Attributes:
        codec: how the file is compressed, from `start` on, which is 0 of a plain file.
        offset: bytes before the first voxel, inflated.
        dtype: as stored, byte order included.
        shape: (component, i, j, k, channel), the first running fastest; components are the numbers of
            one voxel (colours), channels whole volumes one after the other.
    """

    path: Path
    codec: Codec
    start: int
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, int, int, int, int]

    @property
    def size(self) -> int:
        """Bytes of voxels."""
        return math.prod(self.shape) * self.dtype.itemsize


def check_room(layout: Layout) -> None:
    """Refuses files too small for their header, before allocating memory.

    Raises CaseError where it is too short, or the voxels would not fit in this machine's memory.
    """
    size = layout.path.stat().st_size
    # What bzip2 makes of zeros is bounded by nothing but memory.
    most = size if not layout.codec else (size - layout.start) * (1 << 24 if layout.codec == "bzip2" else DEFLATE_RATIO)
    if layout.offset + layout.size > most:
        raise CaseError(
            f"{layout.path}: is cut short, or its header is wrong: the header asks for {layout.size} bytes of voxels "
            f"after {layout.offset} bytes, and a file of {size} bytes holds at most {most}; write or copy it again"
        )
    check_memory(layout.path, layout.size)


def check_memory(path: Path, count: int) -> None:
    """Raises CaseError for voxels that would not fit in this machine's memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if count > memory:
        raise CaseError(
            f"{path}: its header asks for {count / 2**30:.0f} GiB of voxels, and this machine has "
            f"{memory / 2**30:.0f} GiB of memory; cut the volume into parts"
        )


def read_voxels(layout: Layout, box: Box | None, transform: Transform | None) -> tuple[Array, list[str]]:
    """Reads voxels, or a box, in native byte order, with notes.

    They are (component, i, j, k, channel), Fortran-contiguous; a transform turns stored into real values. Memory holds
    the result and one piece of the file. What is read whole, unchanged, from a plain file is a private (copy-on-write)
    map of it: nothing is read until it is touched, and writing to the array leaves the file alone. Raises CaseError
    where the file is cut short or damaged.
    """
    check_room(layout)
    with Stream(layout.path, layout.start, layout.codec) as stream:
        if transform is None and box is None and layout.dtype.isnative and not layout.codec:
            return np.asarray(_map_voxels(layout)), []
        if transform is None and box is None and layout.codec:
            array: Array = np.empty(layout.shape, layout.dtype, order="F")
            stream.skip(layout.offset)
            stream.fill(array)
            notes = stream.finish()
            if not layout.dtype.isnative:
                array = array.byteswap(inplace=True).view(layout.dtype.newbyteorder("="))
            return array, notes
        return _by_blocks(stream, layout, box, transform)


def _by_blocks(stream: Stream, layout: Layout, box: Box | None, transform: Transform | None) -> tuple[Array, list[str]]:
    components, columns, rows, slices, channels = layout.shape
    (i, i_end), (j, j_end), (k, k_end) = box or ((0, columns), (0, rows), (0, slices))
    selected = np.tile((np.arange(slices) >= k) & (np.arange(slices) < k_end), channels)
    native = layout.dtype.newbyteorder("=")
    transform = transform or (lambda stored: stored.astype(native, copy=False))
    kind = transform(np.zeros(1, native)).dtype
    array: Array = np.empty((components, i_end - i, j_end - j, int(selected.sum())), kind, order="F")
    at = 0
    for start, block in _iterate_blocks(stream, layout):
        wanted = selected[start : start + block.shape[3]]
        cut = block[:, i:i_end, j:j_end] if wanted.all() else block[:, i:i_end, j:j_end, wanted]
        array[..., at : at + cut.shape[3]] = transform(cut)
        at += cut.shape[3]
    return array.reshape((*array.shape[:3], k_end - k, channels), order="F"), stream.finish()


def _iterate_blocks(stream: Stream, layout: Layout) -> Iterator[tuple[int, Array]]:
    """Yields (first slice, slices as (component, i, j, slice)) by blocks."""
    plane, count = layout.shape[:3], layout.shape[3] * layout.shape[4]
    step = max(1, PIECE // (math.prod(plane) * layout.dtype.itemsize))
    mapped = None if layout.codec else _map_voxels(layout).reshape((*plane, count), order="F")
    stream.skip(layout.offset if layout.codec else 0)
    for start in range(0, count, step):
        stop = min(start + step, count)
        if mapped is None:
            block: Array = np.empty((*plane, stop - start), layout.dtype, order="F")
            stream.fill(block)
        else:
            block = mapped[..., start:stop]
        yield start, block


def _map_voxels(layout: Layout) -> Array:
    return np.memmap(layout.path, layout.dtype, "c", layout.offset, layout.shape, order="F")
