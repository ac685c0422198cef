"""The files under a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from medimg_eval.errors import CaseError


def walk(root: Path, *, hidden: bool = False) -> Iterator[tuple[str, os.stat_result | None]]:
    """Every file under a folder by its relative name, and what the system says of it: None for a link to nowhere.

    Links are followed, and no folder is entered twice. Hidden files and folders are passed over unless they are
    wanted, and so is what is no file: opening a pipe would wait for ever.

    Raises:
        CaseError: a folder cannot be opened.
    """
    state = root.stat()
    waiting, seen = [(str(root), "")], {(state.st_dev, state.st_ino)}
    while waiting:
        folder, prefix = waiting.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            raise CaseError(f"{folder}: cannot be opened ({error.strerror}); mend its permissions") from error
        below = []
        for entry in entries:
            if entry.name.startswith(".") and not hidden:
                continue
            try:
                state = entry.stat()
            except OSError:
                yield prefix + entry.name, None
                continue
            if entry.is_file():
                yield prefix + entry.name, state
            elif entry.is_dir() and (state.st_dev, state.st_ino) not in seen:
                seen.add((state.st_dev, state.st_ino))
                below.append((entry.path, f"{prefix}{entry.name}/"))
        waiting += reversed(below)  # the first of them is looked into next
