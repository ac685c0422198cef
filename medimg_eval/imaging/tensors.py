"""Tensors out of files that torch.save wrote, without torch and without running what a pickle asks for."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError

_TYPES = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": np.uint16,  # its bits; made float32 when a tensor is built
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


_DAMAGE = (
    *(pickle.UnpicklingError, zipfile.BadZipFile, EOFError, KeyError, ValueError),
    *(TypeError, AttributeError, IndexError, MemoryError, OverflowError, NotImplementedError, OSError),
)
"""What a damaged archive, or the opcodes of a damaged pickle, may run into."""


class _Storage:
    """A kind of storage, as data.pkl names it."""

    def __init__(self, name: str) -> None:
        self.dtype = np.dtype(_TYPES[name])
        self.bfloat = name == "BFloat16Storage"


class _Reader(pickle.Unpickler):
    """Builds containers, numbers, strings and tensors; refuses every other name a pickle may ask for."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, root: str, order: str) -> None:
        super().__init__(io.BytesIO(archive.read(f"{root}data.pkl")))
        self._path, self._archive, self._root, self._order = path, archive, root, order
        self._loaded: dict[str, tuple[Array, bool]] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _TYPES:
            return _Storage(name)
        known = {
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): _parameter,
            ("collections", "OrderedDict"): OrderedDict,
            ("torch", "Size"): tuple,
        }
        if (module, name) not in known:
            raise CaseError(
                f"{self._path}: holds more than tensors ({module}.{name}), and what a pickle asks for is not run; "
                "save a tensor, or a dict of tensors"
            )
        return known[module, name]

    def persistent_load(self, pid: Any) -> tuple[Array, bool]:
        _, storage, key, *_ = pid
        if key not in self._loaded:
            content = self._archive.read(f"{self._root}data/{key}")
            dtype = storage.dtype.newbyteorder(self._order)
            self._loaded[key] = np.frombuffer(content, dtype), storage.bfloat
        return self._loaded[key]


def read_tensors(path: str | Path) -> Any:
    """Reads what `torch.save` wrote: a tensor, or containers of tensors, numbers and strings.

    Returns:
        The same with NumPy arrays in place of tensors; bfloat16 becomes float32.

    Raises:
        CaseError: the file is missing, damaged, older than torch 1.6, or holds other objects.
    """
    path = Path(path)
    if not path.is_file():
        raise CaseError(f"{path}: no such file")
    if not zipfile.is_zipfile(path):
        raise CaseError(f"{path}: is cut short, or not a file of torch 1.6 or later; save it again with torch.save")
    try:
        with zipfile.ZipFile(path) as archive:
            return _load(path, archive)
    except CaseError:
        raise
    except _DAMAGE as error:
        raise CaseError(f"{path}: is damaged ({type(error).__name__}: {error}); save it again") from error


def _load(path: Path, archive: zipfile.ZipFile) -> Any:
    if any(one.compress_type for one in archive.infolist()):
        raise CaseError(f"{path}: holds compressed parts, which torch.save never writes; save it again")
    names = archive.namelist()
    root = next((name for name in names if name.endswith("data.pkl")), "").removesuffix("data.pkl")
    big = f"{root}byteorder" in names and archive.read(f"{root}byteorder") == b"big"
    return _Reader(path, archive, root, ">" if big else "<").load()


def _tensor(storage: tuple[Array, bool], offset: int, size: Any, stride: Any, *_: Any) -> Array:
    values, bfloat = storage
    last = offset + sum((count - 1) * step for count, step in zip(size, stride, strict=True))
    if 0 in size:
        found = np.empty(size, values.dtype)
    elif offset < 0 or min(stride, default=0) < 0 or last >= len(values):
        raise ValueError("a tensor reaches past its storage")
    else:
        steps = [step * values.itemsize for step in stride]
        found = np.lib.stride_tricks.as_strided(values[offset:], size, steps, writeable=False)
    found = found.astype(values.dtype.newbyteorder("="))
    return (found.astype(np.uint32) << 16).view(np.float32) if bfloat else found


def _parameter(data: Array, *_: Any) -> Array:
    return data
