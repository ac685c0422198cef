"""Keys of content: files, texts, prompts, pictures, arrays. What is kept under one is found again only by the same."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Array, Prompt
from medimg_eval.errors import CaseError
from medimg_eval.system import walk

VERSION = 2
"""Part of the key of files: raised when readers change what they return, so that older entries are no longer found."""

_AT_ONCE = 1_000
"""Things of a list that are made text together."""


def digest(value: Any, length: int = 8) -> str:
    """A short hash of anything JSON can hold, independent of key order."""
    text = json.dumps(_sortable_keys(value), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def digest_of_each(values: Iterable[Any], length: int = 8) -> str:
    """Hash of a list's items, streamed."""
    hasher, waiting = hashlib.sha256(b"["), iter(values)
    first = True
    while some := list(islice(waiting, _AT_ONCE)):
        hasher.update(b"" if first else b", ")
        hasher.update(json.dumps(_sortable_keys(some), sort_keys=True, default=str)[1:-1].encode())
        first = False
    hasher.update(b"]")
    return hasher.hexdigest()[:length]


def content_key(files: Iterable[Path], transform: Any) -> str:
    """Returns the key of a JSON transform applied to files.

    Where files lie and what they are called does not matter; what they hold, their order, and the transform do. Of a
    folder that is every file below it that is not hidden. A file is hashed once per process, and again when its size,
    time or inode changes. Raises CaseError where a file is missing, or a folder cannot be opened.
    """
    digests = []
    for path in files:
        # What readers look at: behind linked folders too, and nothing hidden.
        below = sorted(path / name for name, _ in walk(path)) if path.is_dir() else [path]
        for file in below:
            with CaseError.about(file, "cannot be opened", OSError):
                stat = file.stat()
                digests.append(_file_digest(str(file.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino))
    text = json.dumps([VERSION, digests, transform], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def text_key(*texts: str) -> str:
    """Key of a text that is read, or of several that are compared."""
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=16).hexdigest()


def sentence_key(text: str) -> str:
    """Key of a text that is embedded."""
    return digest(["text", text], 40)


def prompt_key(prompt: Prompt, max_new_tokens: int | None = None) -> str:
    """Key of what a judge is shown.

    `max_new_tokens` says how long it may write; None is the usual length, which is no part of the key.
    """
    pixels = [(image.array.shape, hashlib.blake2b(image.array.tobytes()).hexdigest()) for image in prompt.images]
    content: list[Any] = [[(message.role, message.parts) for message in prompt.messages], pixels]
    return digest(content if max_new_tokens is None else [*content, max_new_tokens], 32)


def picture_key(array: Array) -> str:
    """Key of a picture that lies in no file."""
    array = np.ascontiguousarray(array)
    return digest([array.shape, str(array.dtype), array.tobytes().hex()], 40)


def array_key(array: Array) -> str:
    """Key of numbers that a network is shown."""
    return f"{hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()}/{array.shape}"


@functools.lru_cache(maxsize=1 << 16)
def _file_digest(path: str, size: int, changed: int, inode: int) -> str:
    del size, changed, inode  # a file that changed is hashed again
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "blake2b").hexdigest()


def _sortable_keys(value: Any) -> Any:
    """Mapping with sortable keys, as YAML reads `on:` as true."""
    if isinstance(value, Mapping):
        mixed = len({type(key) for key in value}) > 1
        return {json.dumps(key, default=str) if mixed else key: _sortable_keys(held) for key, held in value.items()}
    return [_sortable_keys(held) for held in value] if isinstance(value, list | tuple) else value
