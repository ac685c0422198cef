"""Features of a slide's tiles, as foundation models leave them: HDF5, .pt or .npy."""

from __future__ import annotations

import pickle
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError
from medimg_eval.imaging.slides.tiles import as_coordinates
from medimg_eval.imaging.voxel_data import check_own

FEATURES, COORDINATES = ("features", "feats", "embeddings"), ("coords", "coordinates")
"""What the two are called in HDF5 and .pt files."""

_DAMAGE = (
    *(RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError),
    *(zipfile.BadZipFile, zlib.error, EOFError, MemoryError, OSError),
)
"""What `torch.load` and zipfile run into in a damaged file."""


@dataclass(frozen=True, eq=False)
class Features:
    """Features of the tiles of one slide, float32, (tile, feature).

    Coordinates are int64, (tile, 2), row and column of each tile, in level-0 pixels (or whatever the file counts in:
    Phikon's are tile indices of a deep-zoom level); None where the file holds none.
    """

    features: Array
    coordinates: Array | None = None


def read_features(path: str | Path, *, coordinate_columns: int = 0) -> Features:
    """Reads the features of one slide, in float32, and the coordinates where there are any.

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
    readers = {".h5": _hdf5, ".hdf5": _hdf5, ".pt": _torch, ".pth": _torch, ".npy": _numpy}
    if path.suffix.lower() not in readers:
        raise CaseError(f"{path}: expected features as {', '.join(readers)}, got {path.suffix or 'no suffix'}")
    stored, coordinates = readers[path.suffix.lower()](path)
    features = _rows(stored, path)
    if coordinate_columns:
        if coordinate_columns < 2 or features.shape[1] <= coordinate_columns:
            raise CaseError(f"{path}: has {features.shape[1]} columns, of which {coordinate_columns} cannot be places")
        coordinates, features = (
            features[:, coordinate_columns - 2 : coordinate_columns],
            features[:, coordinate_columns:],
        )
    with np.errstate(over="ignore"):
        single = np.ascontiguousarray(features, np.float32)
    bad = int((~np.isfinite(single)).any(axis=1).sum())
    if bad:
        raise CaseError(f"{path}: {bad} of {len(single)} tiles have NaN or infinite features; extract them again")
    places = None if coordinates is None else as_coordinates(np.asarray(coordinates), path)
    if places is not None and len(places) != len(single):
        raise CaseError(f"{path}: holds features of {len(single)} tiles, but places of {len(places)}")
    return Features(single, places)


def _rows(stored: Any, path: Path) -> Array:
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


def _hdf5(path: Path) -> tuple[Any, Any]:
    import h5py

    try:
        with h5py.File(path) as file:
            found = {n: np.asarray(check_own(path, file[n])) for n in (*FEATURES, *COORDINATES) if n in file}
            return _named(found, path, list(file))
    except (OSError, KeyError, RuntimeError, ValueError) as error:  # h5py raises all of them over damage
        raise CaseError(f"{path}: cannot be read as HDF5 ({error}); write or copy it again") from error


def _torch(path: Path) -> tuple[Any, Any]:
    from torch import Tensor, load

    try:
        with zipfile.ZipFile(path) as archive:
            # torch compares no checksums, and inflates whatever it is given.
            if any(part.compress_type for part in archive.infolist()) or archive.testzip():
                raise CaseError(f"{path}: holds damaged or compressed parts; save it again with torch.save")
        content = load(path, map_location="cpu", weights_only=True)
        if isinstance(content, Tensor):
            return _array(content), None
        if not isinstance(content, Mapping):
            raise CaseError(f"{path}: expected a tensor or a dict of tensors, got {type(content).__name__}")
        found = {name: _array(content[name]) for name in (*FEATURES, *COORDINATES) if name in content}
    except pickle.UnpicklingError as error:
        raise CaseError(
            f"{path}: is damaged or holds more than tensors, and what a pickle asks for is not run; "
            "save a tensor, or a dict of tensors"
        ) from error
    except _DAMAGE as error:
        raise CaseError(
            f"{path}: is damaged, or not a file of torch 1.6 or later ({type(error).__name__}); save it again"
        ) from error
    return _named(found, path, [str(name) for name in content])


def _array(stored: Any) -> Any:
    from torch import Tensor, bfloat16

    if not isinstance(stored, Tensor):
        return stored
    return (stored.float() if stored.dtype == bfloat16 else stored).numpy(force=True)


def _numpy(path: Path) -> tuple[Any, Any]:
    try:
        return np.load(path, allow_pickle=False), None
    except (ValueError, EOFError, OSError, SyntaxError, tokenize.TokenError) as error:
        raise CaseError(f"{path}: cannot be read as .npy ({error}); write or copy it again") from error


def _named(content: Mapping[str, Any], path: Path, names: list[str]) -> tuple[Any, Any]:
    features = next((content[name] for name in FEATURES if name in content), None)
    if features is None:
        raise CaseError(f"{path}: expected features as `{FEATURES[0]}`, found {', '.join(names) or 'nothing'}")
    return features, next((content[name] for name in COORDINATES if name in content), None)
