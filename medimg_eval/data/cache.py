"""A bounded store of prepared volumes on disk: chunked, compressed, mapped into memory, shared by processes.

An entry is a folder of `NAME.b2nd` files and an `entry.json`. It is written beside the store and renamed into it,
so that it is there whole or not at all; whoever dies while writing leaves a folder nobody looks into, which the
next writer takes away. Reading a patch unpacks the chunks it touches and no others.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from medimg_eval.case import Array
from medimg_eval.errors import CaseError, UserError

CHUNK, BLOCK = 128, 32
"""Voxels along each spatial edge of what is stored, and of what is unpacked, as one piece."""

ENTRY = "entry.json"

PIECE = 1 << 22


class StoredArray:
    """Stored array unpacking only the slice asked: `array[:, 10:106, 20:116, 30:126]`.

    Shape and dtype are those that were stored, usually (channel, *spatial).
    """

    def __init__(self, path: Path) -> None:
        import blosc2

        self.path = path
        self._stored: Any = blosc2.open(str(path), mode="r", mmap_mode="r", dparams={"nthreads": 1})
        self.shape: tuple[int, ...] = tuple(self._stored.shape)
        self.dtype: np.dtype[Any] = self._stored.dtype

    def __getitem__(self, where: Any) -> Array:
        """Returns a new array of indexed voxels, by ints and slices.

        Raises CaseError where the file was damaged after it was opened.
        """
        with CaseError.about(self.path, "is damaged", RuntimeError, mend="delete the file, it is made again"):
            return np.asarray(self._stored[where])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[...], dtype=dtype)

    def __reduce__(self) -> tuple[type[StoredArray], tuple[Path]]:
        return StoredArray, (self.path,)  # another process maps the file itself


@dataclass(frozen=True, eq=False)
class Entry:
    """Arrays on disk by name, and what was stored along with them."""

    arrays: Mapping[str, StoredArray]
    meta: Mapping[str, Any]


Made = tuple[Mapping[str, Array], Mapping[str, Any]]
"""Arrays by name, and what is to be remembered of them: anything JSON can hold."""


@dataclass
class VolumeCache:
    """Folder of entries up to a limit in GiB, evicting oldest uses.

    Any number of processes may use one folder at once, on one machine or several that share it (its file system
    must know locks). An entry that is forgotten while another process reads it stays readable there: on Linux a
    mapped file lives until it is unmapped.
    """

    root: Path | str
    limit_gib: float = 50.0
    _checked: set[str] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.limit_gib > 0:
            raise UserError(f"the cache needs a limit_gib above 0, got {self.limit_gib}")
        self.root = Path(self.root)
        self._entries.mkdir(parents=True, exist_ok=True)
        self._writing.mkdir(exist_ok=True)

    def get(self, key: str) -> Entry | None:
        """Returns an entry, or None; removes a damaged one.

        The first time a process opens an entry its files are compared with their checksums.
        """
        folder = self._folder(key)
        try:
            record = json.loads((folder / ENTRY).read_text())
            expected = {folder / f"{name}.b2nd": checksum for name, checksum in record["files"].items()}
            # Before blosc2 sees a damaged file: it trusts what it finds.
            sound = key in self._checked or all(_file_checksum(path) == checksum for path, checksum in expected.items())
            arrays = {path.stem: StoredArray(path) for path in expected} if sound else {}
            os.utime(folder / ENTRY)  # used just now
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):
            sound = False
        if not sound:
            self._drop(folder)
            return None
        self._checked.add(key)
        return Entry(arrays, record["meta"])

    def put(self, key: str, arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None) -> Entry:
        """Stores arrays under a key, evicting entries beyond the limit.

        When another process stored the same key first, its entry is kept: both hold the same. Raises UserError for a
        name that is no plain word, or one entry larger than the limit.
        """
        odd = next((name for name in arrays if not re.fullmatch(r"\w+", name)), None)
        if odd is not None or not arrays:
            raise UserError(f"the cache names arrays by plain words such as 'image', got {odd!r}")
        with self._lock():
            self._clear_dead()
            folder = self._writing / f"{os.getpid()}-{uuid.uuid4().hex}"
            alive = FileLock(folder.with_suffix(".lock"))
            alive.acquire()
        try:
            size = _write_entry(folder, arrays, dict(meta or {}))
            if size > self._limit:
                raise UserError(
                    f"one entry takes {size / 2**30:.2f} GiB, the cache holds {self.limit_gib:g} GiB: raise limit_gib"
                )
            self._publish(folder, key)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_suffix(".lock").unlink(missing_ok=True)
            alive.release()
        self._checked.discard(key)
        entry = self.get(key)
        if entry is None:
            raise CaseError(f"{self._folder(key)}: was damaged or taken away while it was written; is the disk full?")
        return entry

    def fetch(self, key: str, make: Callable[[], Made]) -> Entry:
        """Returns an entry, building it where missing or damaged."""
        entry = self.get(key)
        return self.put(key, *make()) if entry is None else entry

    @property
    def size(self) -> int:
        """Bytes all entries take together."""
        return sum(size for _, size, _ in self._listed())

    @property
    def _entries(self) -> Path:
        return Path(self.root) / "entries"

    @property
    def _writing(self) -> Path:
        return Path(self.root) / "writing"

    @property
    def _limit(self) -> int:
        return int(self.limit_gib * 2**30)

    def _lock(self) -> FileLock:
        return FileLock(Path(self.root) / "lock")

    def _folder(self, key: str) -> Path:
        if not re.fullmatch(r"[\w-]{3,}", key):
            raise UserError(f"expected a key of letters and digits, got {key!r}")
        return self._entries / key[:2] / key

    def _publish(self, place: Path, key: str) -> None:
        folder = self._folder(key)
        with self._lock():
            folder.parent.mkdir(exist_ok=True)
            if not folder.exists():
                place.rename(folder)
            self._evict(keep=folder)

    def _evict(self, keep: Path) -> None:
        """Removes least recently used entries until the rest fits, under lock."""
        listed = sorted(self._listed())
        total = sum(size for _, size, _ in listed)
        for _, size, folder in listed:
            if total <= self._limit:
                return
            if folder != keep:
                self._drop(folder)
                total -= size

    def _listed(self) -> Sequence[tuple[int, int, Path]]:
        """Returns last use, bytes and folder of each entry."""
        entries = []
        for folder in self._entries.glob("*/*"):
            try:
                used = (folder / ENTRY).stat().st_mtime_ns
                entries.append((used, sum(file.stat().st_size for file in folder.iterdir()), folder))
            except FileNotFoundError:
                continue  # taken away this moment
        return entries

    def _drop(self, folder: Path) -> None:
        """Removes an entry atomically."""
        gone = self._writing / f"gone-{uuid.uuid4().hex}"
        try:
            folder.rename(gone)
        except FileNotFoundError:
            return
        shutil.rmtree(gone, ignore_errors=True)

    def _clear_dead(self) -> None:
        """Removes remains of killed writers, under the store's lock."""
        for lock in self._writing.glob("*.lock"):
            try:
                with FileLock(lock, timeout=0):
                    shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                    lock.unlink(missing_ok=True)
            except Timeout:
                continue
        for gone in self._writing.glob("gone-*"):
            if time.time() - gone.stat().st_ctime > 60:
                shutil.rmtree(gone, ignore_errors=True)


def _write_entry(place: Path, arrays: Mapping[str, Array], meta: dict[str, Any]) -> int:
    """Writes an entry's files and returns their size in bytes."""
    import blosc2

    place.mkdir()
    files = {}
    for name, array in arrays.items():
        path = place / f"{name}.b2nd"
        plain_array = np.asarray(array)
        spatial = plain_array.ndim - 3 if plain_array.ndim > 3 else 0
        edges = [(1, 1) if axis < spatial else (CHUNK, BLOCK) for axis in range(plain_array.ndim)]
        chunks = tuple(max(1, min(edge, n)) for (edge, _), n in zip(edges, plain_array.shape, strict=True))
        blosc2.asarray(
            np.ascontiguousarray(plain_array.astype(plain_array.dtype.newbyteorder("="), copy=False)),
            urlpath=str(path),
            mode="w",
            chunks=chunks,
            blocks=tuple(min(edge, n) for (_, edge), n in zip(edges, chunks, strict=True)),
            cparams={"codec": blosc2.Codec.LZ4, "clevel": 5, "nthreads": 1},
        )
        files[name] = _file_checksum(path)
    (place / ENTRY).write_text(json.dumps({"files": files, "meta": meta}))
    return sum(file.stat().st_size for file in place.iterdir())


def _file_checksum(path: Path) -> list[int]:
    """Returns a file's size and CRC-32."""
    from isal import isal_zlib

    crc = 0
    with path.open("rb") as stream:
        while piece := stream.read(PIECE):
            crc = isal_zlib.crc32(piece, crc)
    return [path.stat().st_size, crc]
