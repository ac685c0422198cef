"""Arrays in files: .npy, .npz and HDF5, one image or a bundle of many."""

from __future__ import annotations

import hashlib
import math
import pickle
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from medimg_eval.case import Array, Geometry, Image
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.library_logs import without_values
from medimg_eval.imaging.voxel_data import check_own

ORDER = {"c": 0, "t": 1, "f": 1}
"""Axis letters that come first, whatever the others are: channel, then time or frame."""


@dataclass(frozen=True)
class Header:
    """Facts of an array in a file without its values.

    `offset` is where in the file the values lie as they are in memory; None where they do not. In `fortran` order the
    first axis varies fastest.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int | None = None
    fortran: bool = False


class Bundle:
    """Arrays of a file: .npz, HDF5 (paths as keys), or .npy.

    The one key of .npy is `array`.

    `headers` holds the shape and dtype of each key, read without the values.
    """

    def __init__(self, path: str | Path, *, cache: str | Path | None = None, allow_pickle: bool = False) -> None:
        """Reads headers; CaseError for missing, truncated, damaged or foreign files.

        Args:
            path: the file.
            cache: a folder that compressed members of an .npz are unpacked into, once, to be memory-mapped
                from then on. Several processes may share it. Without it they are unpacked at each read.
            allow_pickle: read arrays of Python objects. Pickles can run code: only for files you trust.
        """
        self.path = Path(path)
        self._cache = None if cache is None else Path(cache).expanduser()
        self._allow_pickle = allow_pickle
        with _name_damage(self.path):
            with self.path.open("rb") as stream:
                head = stream.read(8)
            self._kind = "npz" if head[:2] == b"PK" else "npy" if head.startswith(b"\x93NUMPY") else "hdf5"
            readers = {"npz": _npz_headers, "npy": _npy_headers, "hdf5": _hdf5_headers}
            self.headers: Mapping[str, Header] = readers[self._kind](self.path)

    def array(self, key: str) -> Array:
        """Reads an array, whole or memory-mapped (writable in memory, never to the file).

        Raises CaseError for no such key, Python objects without `allow_pickle`, or damage.
        """
        return self._read(key, None)

    def item(self, key: str, index: int) -> Array:
        """Reads `array(key)[index]`, of HDF5 and memory-mapped arrays without reading the rest.

        Raises CaseError as `array` does, and for an index out of range.
        """
        shape = self.header(key).shape
        if not shape or not 0 <= index < shape[0]:
            count = shape[0] if shape else "no"
            raise CaseError(f"{self.path}: {key} holds {count} items, counted from 0, so there is no item {index}")
        return self._read(key, index)

    def header(self, key: str) -> Header:
        """Header of an array; CaseError lists keys where missing."""
        CaseError.refuse_unknown(f"{self.path}: holds no array", self.headers, key)
        return self.headers[key]

    def only_key(self) -> str:
        """The only array's key; CaseError lists several."""
        if len(self.headers) != 1:
            names = ", ".join(f"{key} {header.shape}" for key, header in self.headers.items())
            raise CaseError(f"{self.path}: holds {len(self.headers)} arrays; say which with key= ({names or 'none'})")
        return next(iter(self.headers))

    def _read(self, key: str, index: int | None) -> Array:
        header = self.header(key)
        if header.dtype.hasobject and not self._allow_pickle and self._kind != "hdf5":
            raise CaseError(
                f"{self.path}: {key} holds Python objects, which are pickles and can run code; "
                "set allow_pickle=True if you trust where the file comes from"
            )
        with _name_damage(self.path):
            if self._kind == "hdf5":
                import h5py

                with h5py.File(self.path, "r") as file:
                    return np.asarray(check_own(self.path, file[key])[() if index is None else index])
            array = self._mapped(key, header)
        return array if index is None else np.asarray(array[index])

    def _mapped(self, key: str, header: Header) -> Array:
        if header.offset is not None:
            return _map_memory(self.path, header)
        if self._cache is not None and not header.dtype.hasobject:
            unpacked = self._unpacked(key, header)
            return _map_memory(unpacked, _npy_headers(unpacked)["array"])
        if self._kind == "npy":
            loaded: Array = np.load(self.path, allow_pickle=self._allow_pickle)
            return loaded
        with zipfile.ZipFile(self.path) as file, file.open(f"{key}.npy") as member:
            return np.lib.format.read_array(member, allow_pickle=self._allow_pickle)

    def _unpacked(self, key: str, header: Header) -> Path:
        """Unpacks a compressed member once, atomically, into the cache."""
        from filelock import FileLock

        about = self.path.stat()
        state = hashlib.sha256(f"{self.path.resolve()} {about.st_size} {about.st_mtime_ns}".encode()).hexdigest()[:16]
        target = Path(self._cache or ".") / f"{self.path.stem}-{state}" / f"{quote(key, safe='')}.npy"
        if target.exists():
            return target
        partial = target.with_suffix(".partial")
        with CaseError.about(target, "cannot be written", OSError, mend="give a cache with enough room"):
            target.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(target.with_suffix(".lock")):
                if target.exists():  # another process was faster
                    return target
                try:
                    with (
                        zipfile.ZipFile(self.path) as file,
                        file.open(f"{key}.npy") as member,
                        partial.open("wb") as out,
                    ):
                        shutil.copyfileobj(member, out, 1 << 20)
                    partial.replace(target)
                finally:
                    partial.unlink(missing_ok=True)
        return target


def read(
    paths: Sequence[Path],
    *,
    key: str | None = None,
    index: int | None = None,
    axes: str | None = None,
    cache: str | Path | None = None,
    allow_pickle: bool = False,
) -> Image:
    """Reads an image, (channel, *spatial), in its stored dtype.

    Steps of 1 and `units` of `pixel`.

    Args:
        paths: the one file.
        key: which array; may be left out when there is one.
        index: which item along the first axis, of an array that holds many images.
        axes: one letter for each axis of the image as stored: `c` channel, `t` or `f` frame, `d`/`z` slice,
            `h`/`y` row, `w`/`x` column, or `i`, `j`, `k`. Pictures are returned as (c, y, x), volumes as
            (c, x, y, z). Without it, a last axis of 3 is taken as colours and one of 1 is dropped, other
            axes stay as they are stored.
        cache: see `Bundle`.
        allow_pickle: see `Bundle`.

    Raises:
        CaseError: what `Bundle` raises; no numbers; axes that may mean two things.
    """
    path, bundle, name = _open_bundle(paths, key, cache, allow_pickle)
    array = bundle.array(name) if index is None else bundle.item(name, index)
    if array.dtype.kind not in "biufc" or array.size == 0:
        raise CaseError(f"{path}: expected numbers in {name}, got {array.dtype} of shape {array.shape}")
    order = _axis_order(path, name, array.shape, axes)
    array = np.transpose(array, [axis for axis in order if axis is not None])
    array = array if None not in order else array[None]
    array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return Image(array, np.eye(4), units="pixel")


def grid(
    paths: Sequence[Path],
    *,
    key: str | None = None,
    index: int | None = None,
    axes: str | None = None,
    cache: str | Path | None = None,
    allow_pickle: bool = False,
) -> Geometry:
    """Reads the shape alone, from the header; takes what `read` takes."""
    path, bundle, name = _open_bundle(paths, key, cache, allow_pickle)
    shape = bundle.header(name).shape
    shape = shape if index is None else shape[1:]
    spatial = tuple(shape[axis] for axis in _axis_order(path, name, shape, axes)[1:] if axis is not None)
    return Geometry(spatial, np.eye(4), "pixel")


def _open_bundle(
    paths: Sequence[Path], key: str | None, cache: str | Path | None, allow_pickle: bool
) -> tuple[Path, Bundle, str]:
    if len(paths) != 1:
        raise CaseError(f"{paths[0]}: expected one file of arrays, got {len(paths)}")
    bundle = Bundle(paths[0], cache=cache, allow_pickle=allow_pickle)
    return paths[0], bundle, bundle.only_key() if key is None else key


def _axis_order(path: Path, name: str, shape: tuple[int, ...], axes: str | None) -> list[int | None]:
    """Stored axis of each image axis; None adds a channel."""
    where = f"{path}: {name} has shape {shape}"
    if axes is not None:
        return _by_letters(where, shape, axes)
    if len(shape) < 2 or len(shape) > 4:
        raise CaseError(f"{where}; expected an image of 2 to 4 axes; pick an item with index=, or name axes=")
    if len(shape) > 2 and shape[-1] in (1, 3):
        return [len(shape) - 1, *range(len(shape) - 1)]
    if len(shape) == 4 or (len(shape) == 3 and (shape[0] in (1, 3) or shape[-1] in (2, 4))):
        raise CaseError(f"{where}, which may mean several things; name its axes, such as axes='chw' or axes='zyx'")
    return [None, *range(len(shape))]


def _by_letters(where: str, shape: tuple[int, ...], axes: str) -> list[int | None]:
    volume = len(set(axes.lower()) - {"c", "t", "f"}) == 3
    spatial = ("xwi", "yhj", "zdk") if volume else ("zdk", "yhi", "xwj")
    rank = {letter: 2 + axis for axis, letters in enumerate(spatial) for letter in letters} | ORDER
    ranks = [rank.get(letter, -1) for letter in axes.lower()]
    if len(axes) != len(shape) or -1 in ranks or len(set(ranks)) < len(ranks):
        raise UsageError(f"{where}; expected axes of {len(shape)} different letters of ctfdhwzyxijk, got {axes!r}")
    order = sorted(range(len(ranks)), key=ranks.__getitem__)
    return [*order] if 0 in ranks else [None, *order]


def _map_memory(path: Path, header: Header) -> Array:
    # Copy on write: what a caller changes stays in memory, and torch takes the array without a complaint.
    if math.prod(header.shape) == 0:
        return np.empty(header.shape, header.dtype)
    return np.memmap(path, header.dtype, "c", header.offset or 0, header.shape, "F" if header.fortran else "C")


@contextmanager
def _name_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise CaseError(f"{path}: no such file") from error
    except (
        OSError,
        EOFError,
        ValueError,
        KeyError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
        pickle.PickleError,
    ) as error:
        raise CaseError(
            f"{path}: is cut short or damaged ({without_values(str(error))}); write or copy it again"
        ) from error


def _read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"npy version {version}")
    shape, fortran, dtype = readers[version](stream)
    return tuple(shape), bool(fortran), dtype


def _npy_headers(path: Path) -> dict[str, Header]:
    with path.open("rb") as stream:
        shape, fortran, dtype = _read_header(stream)
        return {"array": _check_header(Header(shape, dtype, stream.tell(), fortran), path.stat().st_size)}


def _check_header(header: Header, end: int) -> Header:
    if header.dtype.hasobject:
        return Header(header.shape, header.dtype, None, header.fortran)
    size = math.prod(header.shape) * header.dtype.itemsize
    if header.offset is not None and header.offset + size != end:
        raise ValueError(f"{end - header.offset} bytes of values instead of {size}")
    return header


def _npz_headers(path: Path) -> dict[str, Header]:
    headers = {}
    with zipfile.ZipFile(path) as file:
        for member in file.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with file.open(member) as stream:
                shape, fortran, dtype = _read_header(stream)
                header = _check_header(Header(shape, dtype, stream.tell(), fortran), member.file_size)
            offset = None
            if member.compress_type == zipfile.ZIP_STORED and header.offset is not None:
                # The name and extra fields may be longer here than in the directory at the end of the file.
                with path.open("rb") as raw:
                    raw.seek(member.header_offset + 26)
                    lengths = int.from_bytes(raw.read(2), "little") + int.from_bytes(raw.read(2), "little")
                offset = member.header_offset + 30 + lengths + header.offset
            headers[member.filename.removesuffix(".npy")] = Header(shape, dtype, offset, fortran)
    return headers


def _hdf5_headers(path: Path) -> dict[str, Header]:
    import h5py

    headers = {}

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            headers[name] = Header(tuple(item.shape or ()), item.dtype)

    with h5py.File(path, "r") as file:
        file.visititems(note)
    return headers
