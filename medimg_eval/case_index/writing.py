"""Writing an index of cases, block by block: memory holds one block, and 24 bytes and the id of each case."""

from __future__ import annotations

import io
import json
import pickle
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from medimg_eval.case import Case
from medimg_eval.case_index.stored_cases import BLOCK, FOOT, MARK, Allowed, id_hash
from medimg_eval.system import whole

FAST = 1
"""Level of compression: a fifth of the size for a tenth of the time it takes to make the cases."""


class CannotStoreError(Exception):
    """Cases that an index cannot hold: two of one id, or a thing of a class that is not a case's."""


def write_cases(
    path: Path,
    cases: Iterable[Case],
    key: str,
    allowed: Allowed,
    sources: Iterable[Path] = (),
    left_out: Callable[[], Mapping[str, str]] = dict,
) -> None:
    """Writes an index; the file is there whole, or stays as it was.

    Args:
        path: of the index.
        cases: in their order.
        key: of what they are made from, and how.
        allowed: the classes that they consist of.
        sources: the files that the key is made of.
        left_out: the cases that the layout left out, with the reasons, once all others are read.

    Raises:
        CannotStoreError: two cases have one id, or one holds what is none of the classes.
        OSError: the folder cannot be written to.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with whole(path) as partial, partial.open("w+b") as stream:
        writer = _Writer(stream, allowed, frozenset(sources))
        for block in _blocks(cases):
            writer.add(block)
        writer.finish(key, left_out())


def _blocks(cases: Iterable[Case]) -> Iterator[list[Case]]:
    waiting = iter(cases)
    while block := list(islice(waiting, BLOCK)):
        yield block


class _Writer:
    """One index under way."""

    def __init__(self, stream: BinaryIO, allowed: Allowed, sources: frozenset[Path]) -> None:
        self._stream, self._allowed, self._sources = stream, frozenset(allowed.values()), sources
        self._size = self._checksum = 0
        self._blocks, self._starts = array("Q", [0]), array("Q", [0])
        self._ids, self._hashes = bytearray(), array("Q")
        self._facts = {"images": False, "patients": False, "from_sources": True}

    def add(self, cases: list[Case]) -> None:
        """Packs a block."""
        packed = io.BytesIO()
        _Packer(packed, self._allowed).dump(cases)
        self._write(zlib.compress(packed.getbuffer(), FAST))
        self._blocks.append(self._size)
        for case in cases:
            self._ids += case.id.encode("utf-8", "surrogatepass")
            self._starts.append(len(self._ids))
            self._hashes.append(id_hash(case.id))
        facts = self._facts
        facts["images"] = facts["images"] or any(case.images for case in cases)
        facts["patients"] = facts["patients"] or any(case.patient is not None for case in cases)
        facts["from_sources"] = facts["from_sources"] and all(self._sources.issuperset(case.files) for case in cases)

    def finish(self, key: str, left_out: Mapping[str, str]) -> None:
        """Writes columns, facts and foot."""
        hashes = np.frombuffer(self._hashes, np.uint64) if len(self._hashes) else np.zeros(0, np.uint64)
        order = np.argsort(hashes, kind="stable")
        sorted_hashes = hashes[order]
        self._refuse_repeated(order, np.flatnonzero(sorted_hashes[1:] == sorted_hashes[:-1]))
        columns: dict[str, np.ndarray[Any, Any]] = {
            "blocks": np.frombuffer(self._blocks, np.uint64),
            "starts": np.frombuffer(self._starts, np.uint64),
            "hashes": sorted_hashes,
            "places": order.astype(np.uint32),
            "ids": np.frombuffer(bytes(self._ids), np.uint8),
        }
        places = {name: self._write_column(column) for name, column in columns.items()}
        facts = {"key": key, "count": len(self._hashes), **self._facts, **places, "left_out": dict(left_out)}
        text, start = json.dumps(facts).encode(), self._size
        self._write(text)
        self._stream.write(FOOT.pack(start, len(text), self._checksum, MARK))

    def _refuse_repeated(self, order: np.ndarray[Any, Any], alike: np.ndarray[Any, Any]) -> None:
        """Raises CannotStoreError where two ids are the same, not only their hashes."""
        for at in alike.tolist():
            first, second = (
                self._ids[self._starts[place] : self._starts[place + 1]] for place in order[at : at + 2].tolist()
            )
            if first == second:
                raise CannotStoreError(f"two cases are called {first.decode('utf-8', 'replace')!r}")

    def _write_column(self, column: np.ndarray[Any, Any]) -> tuple[int, int]:
        self._write(b"\0" * (-self._size % 8))
        start = self._size
        self._write(column.tobytes())
        return start, len(column)

    def _write(self, content: bytes) -> None:
        self._stream.write(content)
        self._size += len(content)
        self._checksum = zlib.crc32(content, self._checksum)


@cache
def _own_fields(kind: Any) -> tuple[str, ...] | None:
    """The arguments that make an instance of a class with slots; None of any other class."""
    if not is_dataclass(kind) or "__slots__" not in vars(kind):
        return None
    return tuple(field.name for field in fields(kind) if field.init)


class _Packer(pickle.Pickler):
    """Packs cases; of classes with slots their arguments, which are read in a fifth of the time."""

    def __init__(self, stream: io.BytesIO, allowed: frozenset[type]) -> None:
        super().__init__(stream, protocol=5)
        self._allowed = allowed

    def reducer_override(self, thing: Any) -> Any:
        """How a thing is packed; raises CannotStoreError for one of no class that an index holds."""
        if isinstance(thing, type):
            return NotImplemented
        kind: type = type(thing)
        if kind not in self._allowed:
            raise CannotStoreError(f"{kind.__module__}.{kind.__qualname__} is no part of a case that is kept")
        names = _own_fields(kind)
        return NotImplemented if names is None else (kind, tuple([getattr(thing, name) for name in names]))
