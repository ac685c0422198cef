"""An index of cases: one file of packed blocks and columns, of which a process reads what it asks for.

A file holds, one behind the other: blocks of packed cases; where each block starts; ids, where each starts, and a table
of their hashes; facts as JSON; a foot that says where the facts lie. It is written under another name and renamed, and
one without a sound foot, or whose checksum differs, is none.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import struct
import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from medimg_eval.case import Case
from medimg_eval.errors import UserError
from medimg_eval.system import whole

FOOT = struct.Struct("<QQI8s")
"""Where the facts start, their length, the checksum of all before the foot, and the mark."""

MARK = b"MECASES1"

BLOCK = 256
"""Cases packed together."""

RECENT = 8
"""Blocks that a process keeps unpacked."""

IDS_AT_ONCE = 4096

Allowed = Mapping[tuple[str, str], type]
"""Classes that a file may hold, by module and name; what names another is refused, for it could be anything."""

T = TypeVar("T")


def id_hash(name: str) -> int:
    """Hash of an id, of 64 bits."""
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class StoredIds(Sequence[str]):
    """Ids of stored cases in their order, read from the file as they are asked for."""

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self._size = int(facts["count"])
        self._starts = _map_column(path, facts["starts"], np.uint64)
        self._texts = _map_column(path, facts["ids"], np.uint8)
        # Views of memory are looked up without the cost of an array's scalars.
        self._hashes = memoryview(_map_column(path, facts["hashes"], np.uint64))  # type: ignore[arg-type]
        self._places = memoryview(_map_column(path, facts["places"], np.uint32))  # type: ignore[arg-type]

    def __len__(self) -> int:
        """How many there are."""
        return self._size

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        """The id at a place, or a list of those of a slice."""
        if isinstance(place, slice):
            first, stop, step = place.indices(self._size)
            if step == 1:
                return self._between(first, stop)
            return [self[index] for index in range(first, stop, step)]
        index = range(self._size)[place]
        return self._between(index, index + 1)[0]

    def __iter__(self) -> Iterator[str]:
        """Yields them in their order."""
        for start in range(0, self._size, IDS_AT_ONCE):
            yield from self._between(start, min(start + IDS_AT_ONCE, self._size))

    def __contains__(self, name: object) -> bool:
        """Whether a case has the id."""
        return isinstance(name, str) and self.place(name) is not None

    def place(self, name: str) -> int | None:
        """The place of an id; None where no case has it."""
        wanted = id_hash(name)
        at = bisect_left(self._hashes, wanted)
        while at < self._size and self._hashes[at] == wanted:
            if self[place := int(self._places[at])] == name:
                return place
            at += 1
        return None

    def _between(self, first: int, stop: int) -> list[str]:
        if stop <= first:
            return []
        starts = self._starts[first : stop + 1].tolist()
        base = starts[0]
        content = self._texts[base : starts[-1]].tobytes()
        if content.isascii():
            text = content.decode("ascii")
            return [text[begin - base : end - base] for begin, end in itertools.pairwise(starts)]
        return [
            content[begin - base : end - base].decode("utf-8", "surrogatepass")
            for begin, end in itertools.pairwise(starts)
        ]


class StoredCases(Sequence[Case]):
    """Cases of an index: each is read when it is asked for, with its neighbours.

    Attributes:
        path: the file.
        key: of what they were made from, and how.
        ids: in their order.
        has_images: whether any has an image.
        has_patients: whether any has a patient.
        from_sources: whether they are read from nothing but the files that the key is made of.
        left_out: cases that the layout left out, with the reasons.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any], allowed: Allowed) -> None:
        self.path, self.key = path, str(facts["key"])
        self.ids = StoredIds(path, facts)
        self.has_images, self.has_patients = bool(facts["images"]), bool(facts["patients"])
        self.from_sources = bool(facts["from_sources"])
        self.left_out: dict[str, str] = dict(facts["left_out"])
        self._blocks = _map_column(path, facts["blocks"], np.uint64)
        self._allowed = allowed
        self._recent: OrderedDict[int, list[Case]] = OrderedDict()
        # Mapped, so that a file that is replaced meanwhile stays as it was.
        self._content = _map_column(path, (0, int(self._blocks[-1])), np.uint8)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.ids)

    @overload
    def __getitem__(self, place: int) -> Case: ...
    @overload
    def __getitem__(self, place: slice) -> list[Case]: ...
    def __getitem__(self, place: int | slice) -> Case | list[Case]:
        """The case at a place, or a list of those of a slice."""
        if isinstance(place, slice):
            return [self[index] for index in range(*place.indices(len(self)))]
        index = range(len(self))[place]
        return self._block(index // BLOCK)[index % BLOCK]

    def __iter__(self) -> Iterator[Case]:
        """Yields them in their order, without keeping any."""
        for number in range(len(self._blocks) - 1):
            yield from self._recent[number] if number in self._recent else self._unpack(number)

    def __reduce__(self) -> tuple[Callable[..., StoredCases], tuple[Path, str, Allowed]]:
        return _opened_again, (self.path, self.key, self._allowed)

    def remember(self, name: str, make: Callable[[], T]) -> T:
        """Facts of all cases, as JSON, stored beside the file where possible.

        Args:
            name: of what is found, and of the rule by which.
            make: finds it.
        """
        notes = self.path.with_suffix(".json")
        try:
            held = json.loads(notes.read_text(encoding="utf-8"))
            found: dict[str, Any] = held["found"] if held["key"] == self.key else {}
        except (OSError, ValueError, KeyError, TypeError):
            found = {}
        if name in found:
            value: T = found[name]
            return value
        made = make()
        try:
            with whole(notes) as partial:
                partial.write_text(json.dumps({"key": self.key, "found": {**found, name: made}}), encoding="utf-8")
        except OSError:  # then it is found again
            pass
        return made

    def _block(self, number: int) -> list[Case]:
        if number not in self._recent:
            if len(self._recent) >= RECENT:
                self._recent.popitem(last=False)
            self._recent[number] = self._unpack(number)
        self._recent.move_to_end(number)
        return self._recent[number]

    def _unpack(self, number: int) -> list[Case]:
        start, stop = self._blocks[number : number + 2].tolist()
        try:
            packed = self._content[start:stop].tobytes()
            cases: list[Case] = _Unpacker(io.BytesIO(zlib.decompress(packed)), self._allowed).load()
        except (zlib.error, pickle.UnpicklingError, EOFError, ValueError, TypeError) as error:
            raise UserError(
                f"{self.path}: the index is damaged ({error}); delete the file, it is made again"
            ) from error
        return cases


def open_cases(path: Path, key: str, allowed: Allowed) -> StoredCases | None:
    """Opens an index; None where there is none, or it is torn, or was made from something else."""
    try:
        with path.open("rb") as stream:
            facts = _read_facts(stream, key)
        return None if facts is None else StoredCases(path, facts, allowed)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _opened_again(path: Path, key: str, allowed: Allowed) -> StoredCases:
    cases = open_cases(path, key, allowed)
    if cases is None:
        raise UserError(f"{path}: the index is gone, or another; give the same command again")
    return cases


def _read_facts(stream: io.BufferedReader, key: str) -> dict[str, Any] | None:
    """The facts of a sound file that was made from what the key says."""
    size = stream.seek(0, os.SEEK_END)
    if size < FOOT.size:
        return None
    stream.seek(size - FOOT.size)
    start, length, checksum, mark = FOOT.unpack(stream.read(FOOT.size))
    if mark != MARK or start + length + FOOT.size != size:
        return None
    stream.seek(start)
    facts: dict[str, Any] = json.loads(stream.read(length))
    if facts.get("key") != key:
        return None
    stream.seek(0)
    found, left = 0, size - FOOT.size
    while left and (piece := stream.read(min(left, 1 << 20))):
        found, left = zlib.crc32(piece, found), left - len(piece)
    return facts if found == checksum and not left else None


def _map_column(path: Path, place: Sequence[int], dtype: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """A column of a file, as (start, values)."""
    start, count = place
    return np.memmap(path, dtype, "r", start, (count,)) if count else np.zeros(0, dtype)


class _Unpacker(pickle.Unpickler):
    """Reads packed cases; a class that is none of those of cases is refused."""

    def __init__(self, stream: io.BytesIO, allowed: Allowed) -> None:
        super().__init__(stream)
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> Any:
        """The class; raises UnpicklingError for one that no index holds."""
        try:
            return self._allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it holds {module}.{name}") from None
