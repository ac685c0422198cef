"""Features of a slide's tiles, as foundation models leave them, a file at a time: HDF5, .pt or .npy.

Folders of such files, as programs lay them out, are read by `stores`.
"""

from __future__ import annotations

import json
import pickle
import tokenize
import zipfile
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.slides.tiles import as_coordinates
from medimg_eval.imaging.voxel_data import check_own

FEATURES, COORDINATES = ("features", "feats", "embeddings"), ("coords", "coordinates")
"""What the two are called in HDF5 and .pt files."""

FEW = 64
"""Chunks up to which h5py is as fast as anything."""

_DAMAGE = (
    *(RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError),
    *(zipfile.BadZipFile, zlib.error, EOFError, MemoryError, OSError),
)
"""What `torch.load` and zipfile run into in a damaged file."""


@dataclass(frozen=True, eq=False)
class Features:
    """Features of a slide's tiles, or another bag's items.

    Attributes:
        features: float32, (tile, feature).
        coordinates: int64, (tile, 2), row and column of each tile's first pixel, in level-0 pixels (or whatever the
            file counts in: Phikon's are tile indices of a deep-zoom level); None where the file holds none.
        ids: of the tiles, such as barcodes; empty where they have none.
        labels: of the tiles, (tile,), or of the bag, (1,); None where none are stored.
        patch_size: edge of a tile in the pixels that the encoder was given; None where it is not known.
        patch_size_level0: the same in level-0 pixels.
        magnification: that the tiles were brought to, such as 20.
        attributes: what else the file says, by its own names.
    """

    features: Array
    coordinates: Array | None = None
    ids: tuple[str, ...] = ()
    labels: Array | None = None
    patch_size: int | None = None
    patch_size_level0: float | None = None
    magnification: float | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


def read_features(path: str | Path, *, coordinate_columns: int = 0) -> Features:
    """Reads a slide's features, float32, and coordinates if any.

    Args:
        path: .h5 (`features`, `coords`), .pt (a tensor, or a dict of the same), or .npy (tile, feature). An axis of
            length one in front is dropped; a single vector is one row. Coordinates are stored as x, y.
        coordinate_columns: columns of an .npy before the features, of which the last two are x and y (Phikon: 3).

    Raises:
        CaseError: the file is missing, damaged, empty, of another shape, or holds NaN or infinite features.
    """
    path = Path(path)
    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    readers = {".h5": _read_hdf5, ".hdf5": _read_hdf5, ".pt": _read_torch, ".pth": _read_torch, ".npy": _read_numpy}
    if path.suffix.lower() not in readers:
        raise CaseError(f"{path}: expected features as {', '.join(readers)}, got {path.suffix or 'no suffix'}")
    stored, coordinates = readers[path.suffix.lower()](path)
    return checked(path, stored, coordinates, coordinate_columns=coordinate_columns)


def checked(path: Path, stored: Any, coordinates: Any = None, *, coordinate_columns: int = 0) -> Features:
    """Checks stored features, and their places as x, y; raises what `read_features` raises."""
    features = _feature_rows(stored, path)
    if coordinate_columns:
        if coordinate_columns < 2 or features.shape[1] <= coordinate_columns:
            raise CaseError(f"{path}: has {features.shape[1]} columns, of which {coordinate_columns} cannot be places")
        coordinates, features = (
            features[:, coordinate_columns - 2 : coordinate_columns],
            features[:, coordinate_columns:],
        )
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(features, np.float32)
    # A sum is finite where all are, and takes no copy; one that overflows is looked at again.
    if not np.isfinite(single.sum(dtype=np.float64)) and (bad := int((~np.isfinite(single)).any(axis=1).sum())):
        raise CaseError(f"{path}: {bad} of {len(single)} tiles have NaN or infinite features; extract them again")
    coordinates_ = None if coordinates is None else as_coordinates(np.asarray(coordinates), path)
    if coordinates_ is not None and len(coordinates_) != len(single):
        raise CaseError(f"{path}: holds features of {len(single)} tiles, but places of {len(coordinates_)}")
    return Features(single, coordinates_)


def _feature_rows(stored: Any, path: Path) -> Array:
    array = np.asarray(stored)
    if array.ndim == 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise CaseError(f"{path}: expected features (tile, feature) of numbers, got {array.shape} of {array.dtype}")
    if not array.size:
        raise CaseError(f"{path}: holds no features, shape {array.shape}; was any tissue found on this slide?")
    return array


def _read_hdf5(path: Path) -> tuple[Any, Any]:
    arrays, _ = read_arrays(path, (*FEATURES, *COORDINATES))
    names, arrays = list(arrays), {name: array for name, array in arrays.items() if array is not None}
    return _named_features(arrays, path, names)


def read_arrays(path: Path, wanted: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads arrays of an HDF5 file, each as one block.

    Returns:
        Every name in the file, with its array where it is wanted and else None; and attributes of the wanted ones, of
        which TRIDENT's text `None` is None, and JSON is what it says.

    Raises:
        CaseError: the file is missing or damaged, or an array lies in another file.
    """
    import h5py

    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    try:
        with h5py.File(path) as file:
            held = {name: file[name] for name in file if name in wanted}
            arrays = {name: block(path, dataset) for name, dataset in held.items() if isinstance(dataset, h5py.Dataset)}
            attributes = {
                name: _attribute_value(value) for group in held.values() for name, value in group.attrs.items()
            }
            return {name: arrays.get(name) for name in file}, attributes
    except (OSError, KeyError, RuntimeError, ValueError) as error:  # h5py raises all of them over damage
        raise CaseError(f"{path}: cannot be read as HDF5 ({error}); write or copy it again") from error


def block(path: Path, stored: Any) -> Array:
    """Reads an HDF5 array whole, fast for many small chunks.

    Past h5py, which takes ten times as long as for one block.

    TRIDENT appends row by row, in chunks of one. Where chunks are rows as they lie in memory, uncompressed, they are
    copied from the file by their places.
    """
    check_own(path, stored)
    kind = stored.dtype
    few = not stored.chunks or stored.shape[0] < FEW * stored.chunks[0]
    if few or kind.kind not in "fiu" or stored.id.get_create_plist().get_nfilters():
        return np.asarray(stored)
    if stored.chunks[1:] != stored.shape[1:]:
        return np.asarray(stored)
    chunk_positions: list[Any] = []
    stored.id.chunk_iter(chunk_positions.append)
    rows, size = stored.chunks[0], int(np.prod(stored.chunks)) * kind.itemsize
    count = -(-stored.shape[0] // rows)
    first = np.full(count, -1, np.int64)
    for chunk in chunk_positions:
        if chunk.chunk_offset[0] < stored.shape[0]:  # of an array that was made shorter, the rest stays in the file
            first[chunk.chunk_offset[0] // rows] = chunk.byte_offset
    if (first < 0).any():  # never written: h5py knows what stands for it
        return np.asarray(stored)
    array = np.empty((count * rows, *stored.shape[1:]), kind)
    flat = array.reshape(-1).view(np.uint8).reshape(count, size)
    # Chunks that follow each other in the file are copied together.
    ends = np.flatnonzero(np.diff(first, append=-1) != size) + 1
    mapped = np.memmap(path, np.uint8, "r")
    for start, stop in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        run = mapped[first[start] : first[start] + (stop - start) * size]
        flat[start:stop] = run.reshape(stop - start, size)
    return array[: stored.shape[0]]


def as_texts(stored: Any) -> tuple[str, ...]:
    """Ids as texts, of (id,) or HEST's (id, 1), also bytes."""
    return tuple(
        text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in np.asarray(stored).ravel()
    )


def _attribute_value(value: Any) -> Any:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if value == "None":
        return None
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _read_torch(path: Path) -> tuple[Any, Any]:
    content = read_tensors(path)
    if isinstance(content, list):
        raise CaseError(f"{path}: expected a tensor or a dict of tensors, got list")
    if not isinstance(content, Mapping):
        return content, None
    arrays = {name: content[name] for name in (*FEATURES, *COORDINATES) if name in content}
    return _named_features(arrays, path, [str(name) for name in content])


def read_tensors(path: Path) -> Any:
    """Reads tensors of `torch.save` as arrays, running no pickle code.

    Returns:
        An array, a list of arrays, or a dict of whatever the file holds by name.

    Raises:
        CaseError: the file is missing, damaged, or holds more than tensors.
    """
    from torch import load

    try:
        with zipfile.ZipFile(path) as archive:
            # torch compares no checksums, and inflates whatever it is given.
            if any(part.compress_type for part in archive.infolist()) or archive.testzip():
                raise CaseError(f"{path}: holds damaged or compressed parts; save it again with torch.save")
        content = _as_arrays(load(path, map_location="cpu", weights_only=True))
        if not isinstance(content, Mapping | list | np.ndarray):
            raise CaseError(f"{path}: expected a tensor or a dict of tensors, got {type(content).__name__}")
    except pickle.UnpicklingError as error:
        raise CaseError(
            f"{path}: is damaged or holds more than tensors, and what a pickle asks for is not run; "
            "save a tensor, or a dict of tensors"
        ) from error
    except _DAMAGE as error:
        raise CaseError(
            f"{path}: is damaged, or not a file of torch 1.6 or later ({type(error).__name__}); save it again"
        ) from error
    return content


def _as_arrays(stored: Any) -> Any:
    """The same with arrays in the place of tensors."""
    from torch import Tensor, bfloat16

    if isinstance(stored, Mapping):
        return {name: _as_arrays(item) for name, item in stored.items()}
    if isinstance(stored, list | tuple):
        return [_as_arrays(item) for item in stored]
    if not isinstance(stored, Tensor):
        return stored
    return (stored.float() if stored.dtype == bfloat16 else stored).numpy(force=True)


def _read_numpy(path: Path) -> tuple[Any, Any]:
    return read_array(path), None


def read_array(path: Path) -> Array:
    """Reads an .npy; CaseError for missing, damaged or object arrays."""
    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (ValueError, EOFError, OSError, SyntaxError, tokenize.TokenError) as error:
        raise CaseError(f"{path}: cannot be read as .npy ({error}); write or copy it again") from error


def _named_features(content: Mapping[str, Any], path: Path, names: list[str]) -> tuple[Any, Any]:
    features = next((content[name] for name in FEATURES if name in content), None)
    if features is None:
        raise CaseError(f"{path}: expected features as `{FEATURES[0]}`, found {', '.join(names) or 'nothing'}")
    return features, next((content[name] for name in COORDINATES if name in content), None)
