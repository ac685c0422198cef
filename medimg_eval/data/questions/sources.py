"""Where records stand: tables, JSON of any shape, trees of one JSON a sample."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from medimg_eval.data.questions.cells import read_parquet
from medimg_eval.data.questions.records import About, Record, Repeated, literal
from medimg_eval.data.questions.streamed import MARK, read_streamed
from medimg_eval.data.records import stem
from medimg_eval.data.splits import digests
from medimg_eval.data.tables import read_text
from medimg_eval.errors import MissingDataError, UsageError, UserError, nearest

TABLES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".parquet")
"""What records are read from, each of the text formats also with `.gz`."""

HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON may write one half of a sign of two, without the other."""


@dataclass(frozen=True)
class Source:
    """Records of files below the root, by name or `*`.

    Attributes:
        at: where they lie in a JSON file: `""` for a list, or an object of lists or of objects; `.` for the whole file
            as one record; else names of keys joined by `.`, where `*` stands for every key or place, `test*` for
            some keys.
        literal: columns that hold a JSON or Python literal; `pictures`: columns that hold images.
        separator: between the fields of a text table; by its ending when empty.
        split: what `{split}` is.
        header: names of the columns, of text tables without a line of them.
    """

    files: Sequence[str]
    at: str = ""
    literal: Sequence[str] = ()
    pictures: Collection[str] = ()
    separator: str = ""
    split: str = ""
    header: Sequence[str] = ()

    def paths(self, root: Path) -> list[Path]:
        """The files, each pattern's in the order of their names.

        Raises UserError where a file is missing, or a pattern finds none.
        """
        paths: list[Path] = []
        for name in self.files:
            if any(sign in name for sign in "*?["):
                matches = sorted(path for path in root.glob(name) if path.is_file())
                if not matches:
                    raise MissingDataError(f"{root / name}: there is no such file; task.layout.records names it")
                paths += matches
            else:
                paths.append(root / name)
                if not paths[-1].is_file():
                    parent = paths[-1].parent
                    there = [path.name for path in parent.iterdir()] if parent.is_dir() else []
                    hint = nearest(paths[-1].name, there[:200]) if there else ""
                    raise MissingDataError(f"{paths[-1]}: no such file; task.layout.records names it{hint}")
        return paths

    def read(self, root: Path) -> Iterator[Record]:
        """The records, in the order of the files.

        Raises UserError, naming file and line, where a file is missing or not understood.
        """
        paths = self.paths(root)
        is_ambiguous = len({stem(path) for path in paths}) < len(paths)
        for path in paths:
            relative = path.relative_to(root) if path.is_relative_to(root) else path
            file = {"path": relative.as_posix(), "folder": relative.parent.name, "stem": stem(path)}
            if self.split:
                file["split"] = self.split
            name = f"{relative.parent.as_posix()}/{file['stem']}" if is_ambiguous else file["stem"]
            for index, (location, values, keys, fault) in enumerate(self._items(path)):
                yield self._parsed(Record(path, location, values, About(file, name, index, keys), fault))

    def _parsed(self, record: Record) -> Record:
        try:
            parsed = {name: literal(record.values[name]) for name in self.literal if name in record.values}
        except ValueError as error:
            return Record(record.path, record.place, record.values, record.about, str(error))
        return record.with_values(**parsed) if parsed else record

    def _items(self, path: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, str], str]]:
        kind = Path(path.name.removesuffix(".gz")).suffix.lower()
        if kind == ".parquet":
            for location, values in read_parquet(path, pictures=self.pictures):
                yield location, values, {}, ""
        elif kind in (".csv", ".tsv", ".txt"):
            for line in read_streamed(path, separator=self.separator, pictures=self.pictures, header=self.header):
                yield f"line {line.number}", line.values, {}, line.fault
        elif kind in (".jsonl", ".ndjson") or (kind == ".json" and not self.at and _is_lines(path)):
            yield from _read_lines(path)
        elif kind == ".json":
            for value, keys, location in walk(path, load(path), self.at):
                named = {f"key{number}": key for number, key in enumerate(keys, start=1)}
                values = dict(value) if isinstance(value, Mapping) else {"value": value}
                yield location, values, named, _describe_duplicate(value)
        else:
            raise UserError(f"{path}: is no table that is known; expected one of {', '.join(TABLES)}")


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        mapping = Repeated(mapping)
        mapping.pairs = pairs
    return mapping


def _describe_duplicate(value: Any) -> str:
    if not isinstance(value, Repeated):
        return ""
    name = next((name for name, stated in value.pairs if stated != value[name]), None)
    return "" if name is None else f"says two things of {name!r}; leave one of them out"


def _parsed_json(text: str) -> Any:
    r"""Value of a JSON text; `\ud83d` alone, half of a sign, becomes U+FFFD.

    Raises ValueError where it is no JSON, or nests too deep.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique_object)
    except RecursionError as error:
        raise ValueError("its brackets stand in each other too deep") from error
    return _whole_signs(value) if HALF.search(text) else value


def _whole_signs(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_signs(item) for item in value]
    if isinstance(value, dict):
        pairs = value.pairs if isinstance(value, Repeated) else value.items()
        return _unique_object([(_whole_signs(key), _whole_signs(item)) for key, item in pairs])
    return value


def load(path: Path) -> Any:
    """JSON content; objects with repeated keys become `Repeated`.

    Raises UserError, naming file and line, where it is missing or no JSON.
    """
    try:
        return _parsed_json(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: is no JSON ({error.msg})") from error
    except ValueError as error:
        raise UserError(f"{path}: is no JSON ({error})") from error


def _is_lines(path: Path) -> bool:
    """Whether a JSON file holds an object a line, whatever it is called."""
    lines = [line.strip() for _, line in islice(_byte_lines(path), 2)]
    return len(lines) == 2 and all(line[:1] == b"{" for line in lines) and lines[0][-1:] == b"}"


def _byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered nonblank lines, decompressed, without BOM."""
    if not path.is_file():
        raise MissingDataError(f"{path}: no such file")
    try:
        with cast("BinaryIO", gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as stream:
            for number, line in enumerate(stream, start=1):
                content = line.removeprefix(MARK) if number == 1 else line
                if content.strip():
                    yield number, content
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({error}); copy the file again") from error


def _read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, str], str]]:
    for number, line in _byte_lines(path):
        value: Any = {}
        try:
            value = _parsed_json(line.decode())
            fault = _describe_duplicate(value)
        except UnicodeDecodeError:
            fault = "is no UTF-8 text; convert the file to UTF-8"
        except ValueError as error:
            fault = f"is no JSON ({error.msg if isinstance(error, json.JSONDecodeError) else error}); copy it again"
        if not isinstance(value, Mapping):
            value, fault = {}, f"holds {value!r:.40}, expected an object of named values"
        yield f"line {number}", dict(value), {}, fault


def walk(path: Path, content: Any, at: str) -> Iterator[tuple[Any, tuple[str, ...], str]]:
    """Records of JSON with keys at each `*`, and locations.

    Raises UserError where `at` leads nowhere.
    """
    if at == ".":
        yield content, (), "item 1"
        return
    if not at and isinstance(content, dict) and content:
        of_one_kind = any(all(isinstance(item, kind) for item in content.values()) for kind in (list, dict))
        at = "*" if of_one_kind else at
    walked = list(_walk_path(path, content, at.split(".") if at else [], ()))
    if not walked:
        raise UserError(f"{path}: holds no record at {at!r}, where task.layout.at says they lie")
    yield from walked


def _walk_path(path: Path, value: Any, parts: Sequence[str], keys: tuple[str, ...]) -> Iterator[Any]:
    if not parts:
        named = f" of {'.'.join(keys)!r}" if keys else ""
        if isinstance(value, list):
            for index, item in enumerate(value, start=1):
                yield item, keys, f"item {index}{named}"
        else:
            yield value, keys, f"item {'.'.join(keys)!r}" if keys else "item 1"
        return
    part, following = parts[0], parts[1:]
    if "*" in part and isinstance(value, list | dict):
        for key, item in _list_members(value, part):
            yield from _walk_path(path, item, following, (*keys, key))
    elif isinstance(value, dict) and part in value:
        yield from _walk_path(path, value[part], following, keys)
    elif not keys:  # of the members of a `*`, some may lack what others have
        there = nearest(part, value) if isinstance(value, dict) else "; it holds no object there"
        raise UserError(f"{path}: holds no {part!r}, which task.layout.at names{there}")


def _list_members(value: list[Any] | dict[str, Any], pattern: str) -> list[tuple[str, Any]]:
    """Members that a pattern's `*` names, with values."""
    if isinstance(value, list):
        return [(str(index), item) for index, item in enumerate(value)] if pattern == "*" else []
    pairs = value.pairs if isinstance(value, Repeated) else value.items()
    return [(key, item) for key, item in pairs if fnmatchcase(key, pattern)]


LARGE = 64 * 2**20
"""Bytes above which a file of records is known by its size and its ends: some hold all their images."""


def fingerprints(paths: Iterable[Path]) -> dict[str, str]:
    """Path -> SHA-256; above `LARGE`, of size and both end MiB."""
    several = list(dict.fromkeys(paths))
    small = [path for path in several if path.stat().st_size <= LARGE]
    return digests(small) | {str(path): _read_ends(path) for path in several if path not in small}


def _read_ends(path: Path) -> str:
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read(2**20)
        stream.seek(size - 2**20)
        return hashlib.sha256(b"%d" % size + head + stream.read()).hexdigest()


def source_of(given: Any, key: str, **more: Any) -> Source:
    """Source of a file name or list; else UsageError."""
    if isinstance(given, str):
        return Source((given,), **more)
    if isinstance(given, list | tuple) and given and all(isinstance(item, str) for item in given):
        return Source(tuple(given), **more)
    raise UsageError(f"task.layout.{key} is {given!r:.60}, expected the name of a file or a list of names")
