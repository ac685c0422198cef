"""Values by the key of the content that they were made of, on disk as they come."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from medimg_eval.errors import UserError
from medimg_eval.system import user_cache

T = TypeVar("T")

REPLIES = "replies.sqlite"
OF_MODEL = "name another folder with model.cache=DIR, or keep none with model.cache=false"
OF_USER = "delete the file, or set the environment variable MEDIMG_EVAL_CACHE to a folder that can be written"
BUSY_S = 60.0
"""How long one process waits for another that is writing."""

AT_ONCE = 900
"""Keys that are looked up at once; SQLite takes no more than 999 places in a statement everywhere."""

FOLDERS = {"verdict": "replies", "features": "features"}
"""Kind of what a provider says -> folder of the user's cache; `annotations` for the others."""

WRAPPED = {"replies": "text", "annotations": "reading"}
"""Folder -> the key under which its former file, `replies.sqlite`, holds what was said."""

COLUMNS = {
    "content": "value, encoding, meta",
    "replies": "reply, 'json', '{}'",
    "features": "vector, 'float32', json_object('shape', shape, 'constant', constant)",
}
"""Table -> value, encoding and meta in it; the last two are read only, of files that earlier versions wrote."""


class Stored(NamedTuple):
    """Content kept under a key.

    The value is what JSON holds, or a float32 array (feature,); `meta` has facts about the content, such as the size of
    a picture.
    """

    value: Any
    meta: Mapping[str, Any] = {}


class ContentStore:
    """Key-value file shared by threads and processes, made on demand.

    What `put` has returned from outlives the process, however that ends. The journal is SQLite's plain one: the faster
    write-ahead log must not lie on a network file system, where many home folders do. Tables that earlier versions
    wrote are read, too, and a former file for keys that this one lacks, `wrapped` in an object under that key. `mend`
    says what to do where the file cannot be used.
    """

    def __init__(self, path: Path, mend: str = OF_USER, *, former: Path | None = None, wrapped: str = "") -> None:
        self.path, self._mend, self._wrapped = path, mend, wrapped
        self._former = ContentStore(former, mend) if former is not None and former.is_file() else None
        self._lock = threading.Lock()
        self._file: sqlite3.Connection | None = None
        self._tables: list[str] = []

    def get(self, keys: Sequence[str]) -> dict[str, Stored]:
        """Returns those that are kept; raises UserError when the file cannot be read."""
        stored = self._do(lambda file: self._look_up(file, self._tables, keys))
        if self._former is not None:
            former = self._former.get([key for key in keys if key not in stored])
            stored |= {key: Stored(stored.value[self._wrapped]) for key, stored in former.items()}
        return stored

    def put(self, values: Mapping[str, Stored]) -> None:
        """Stores values, replacing earlier ones; UserError where unwritable."""
        rows = [(key, *_encode_value(stored.value), json.dumps(dict(stored.meta))) for key, stored in values.items()]

        def write(file: sqlite3.Connection) -> None:
            with file:  # rolls back where a row fails
                file.execute("BEGIN IMMEDIATE")
                file.executemany("INSERT OR REPLACE INTO content VALUES (?, ?, ?, ?)", rows)

        self._do(write)

    def count(self) -> int:
        """How many values the file holds."""

        def count(file: sqlite3.Connection) -> int:
            every = " UNION ".join(f"SELECT key FROM {table}" for table in self._tables)  # noqa: S608
            return int(file.execute(f"SELECT count(*) FROM ({every})").fetchone()[0])  # noqa: S608

        return self._do(count)

    def close(self) -> None:
        """Lets the file go; the next use opens it again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
        if self._former is not None:
            self._former.close()

    def __del__(self) -> None:
        self.close()

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                if self._file is None:
                    self._file = self._open()
                return work(self._file)
            except (OSError, sqlite3.Error) as error:
                raise UserError(
                    f"{self.path}: what is kept there cannot be read or written ({error}); {self._mend}"
                ) from error

    def _open(self) -> sqlite3.Connection:
        # Replies may say as much of patients as the questions did: the folder is the user's own.
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            file.execute(
                "CREATE TABLE IF NOT EXISTS content "
                "(key TEXT PRIMARY KEY, value BLOB NOT NULL, encoding TEXT NOT NULL, meta TEXT NOT NULL)"
            )
            present = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.Error:
            file.close()
            raise
        self._tables = [table for table in COLUMNS if table in present]
        return file

    @staticmethod
    def _look_up(file: sqlite3.Connection, tables: Sequence[str], keys: Sequence[str]) -> dict[str, Stored]:
        stored: dict[str, Stored] = {}
        for table in tables:
            missing = [key for key in keys if key not in stored]
            for start in range(0, len(missing), AT_ONCE):
                some = missing[start : start + AT_ONCE]
                marks = ",".join("?" * len(some))
                query = f"SELECT key, {COLUMNS[table]} FROM {table} WHERE key IN ({marks})"  # noqa: S608
                for key, value, encoding, meta in file.execute(query, some):
                    stored[key] = Stored(_decode_value(value, encoding), json.loads(meta))
        return stored


def reply_store(folder: Path | None = None) -> ContentStore:
    """Store of paid replies, in a folder or the user's cache."""
    return ContentStore((folder or user_cache() / "replies") / REPLIES, OF_MODEL)


def observation_store(kind: str, identity: str) -> ContentStore:
    """Statements of a provider, in the user's cache.

    The kind is verdict, annotation, comparison, features or distance; the identity the provider's name with a hash of
    its settings and weights.
    """
    folder = FOLDERS.get(kind, "annotations")
    path = user_cache() / folder
    wrapped = WRAPPED.get(folder, "")
    return ContentStore(path / f"{identity}.sqlite", former=path / REPLIES if wrapped else None, wrapped=wrapped)


def _encode_value(value: Any) -> tuple[Any, str]:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value, np.float32).tobytes(), "float32"
    return json.dumps(value), "json"


def _decode_value(value: Any, encoding: str) -> Any:
    return np.frombuffer(value, np.float32) if encoding == "float32" else json.loads(value)
