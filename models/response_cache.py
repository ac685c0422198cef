"""Replies that have been paid for, kept on disk as they arrive."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from medimg_eval.errors import UserError
from medimg_eval.system import user_cache

T = TypeVar("T")

FILE = "replies.sqlite"
OF_MODEL = "name another folder with model.cache=DIR, or keep none with model.cache=false"
OF_USER = "set the environment variable MEDIMG_EVAL_CACHE to a folder that can be written"
BUSY_S = 60.0
"""How long one process waits for another that is writing."""


class ReplyCache:
    """A file of replies by key, which threads and processes may share.

    A reply that `put` has returned from outlives the process, however that ends. The journal is SQLite's plain one: the
    faster write-ahead log must not lie on a network file system, where many home folders do.

    Args:
        folder: holds the file `replies.sqlite`; None keeps it in the user's cache (`MEDIMG_EVAL_CACHE`, or
            ~/.cache/medimg_eval). Written on first use.
        mend: what to do where it cannot be written.
    """

    def __init__(self, folder: Path | None = None, mend: str = OF_MODEL) -> None:
        self._mend = mend
        self.path = (folder or user_cache() / "replies") / FILE
        self._lock = threading.Lock()
        self._file: sqlite3.Connection | None = None

    def get(self, key: str) -> dict[str, Any] | None:
        """The reply kept under a key, or None; raises UserError when the file cannot be read."""
        row = self._do(lambda file: file.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone())
        return None if row is None else json.loads(row[0])

    def put(self, key: str, reply: Mapping[str, Any]) -> None:
        """Keeps a reply, in place of an earlier one; raises UserError when the file cannot be written."""
        text = json.dumps(reply)
        self._do(lambda file: file.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", (key, text)))

    def count(self) -> int:
        """How many replies are kept."""
        return int(self._do(lambda file: file.execute("SELECT count(*) FROM replies").fetchone())[0])

    def close(self) -> None:
        """Lets the file go; the next use opens it again."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

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
                    f"{self.path}: the replies that are kept cannot be read or written ({error}); {self._mend}"
                ) from error

    def _open(self) -> sqlite3.Connection:
        # Replies may say as much of patients as the questions did: the folder is the user's own.
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Every statement is a transaction, so that each reply is on disk when `put` returns.
        file = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            file.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID")
        except sqlite3.Error:
            file.close()
            raise
        return file
