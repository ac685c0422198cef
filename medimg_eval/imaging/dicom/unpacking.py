"""DICOM files that were compressed by gzip (`.dcm.gz`): unpacked into a folder that lasts as long as they are read."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from medimg_eval.errors import CaseError
from medimg_eval.imaging.voxel_data import check_memory
from medimg_eval.system import walk

PIECE = 1 << 20
"""Bytes unpacked at a time."""


@contextmanager
def unpacked(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Paths with decompressed DICOM copies; errors name the originals.

    Paths without compressed files are handed on as they are. Raises CaseError where one is damaged, or larger than this
    machine's memory.
    """
    if not any(_holds_packed(path) for path in paths):
        yield list(paths)
        return
    with tempfile.TemporaryDirectory(prefix="dicom-") as home:
        origins: dict[str, str] = {}
        plain = [_unpack_copy(path, Path(home, str(index)), origins) for index, path in enumerate(paths)]
        try:
            yield plain
        except CaseError as error:
            raise type(error)(renamed(str(error), origins)) from error


def renamed(text: str, origins: Mapping[str, str]) -> str:
    """Text naming compressed files instead of their copies."""
    for copy in sorted(origins, key=len, reverse=True):
        text = text.replace(copy, origins[copy])
    return text


def _holds_packed(path: Path) -> bool:
    if not path.is_dir():
        return path.is_file() and _is_packed(path)
    return any(state is not None and _is_packed(path / name) for name, state in walk(path))


def _is_packed(path: Path) -> bool:
    if path.suffix.lower() != ".gz":
        return False
    try:
        with gzip.open(path) as stream:
            return stream.read(132)[128:] == b"DICM"
    except (OSError, EOFError, zlib.error):
        return path.name.lower().endswith((".dcm.gz", ".ima.gz"))


def _unpack_copy(path: Path, home: Path, origins: dict[str, str]) -> Path:
    """Copies a file or folder, linking the other files."""
    origins[str(home)] = str(path)
    if not path.is_dir():
        return _link_copy(path, home / path.name, origins) if _is_packed(path) else path
    for name, state in walk(path):
        source, target = path / name, home / name
        if state is not None and _is_packed(source):
            _link_copy(source, target, origins)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.absolute())
    return home


def _link_copy(path: Path, target: Path, origins: dict[str, str]) -> Path:
    target = target.with_name(target.name[:-3])
    if target.exists():
        raise CaseError(f"{path}: is there a second time, not compressed; keep one of them")
    target.parent.mkdir(parents=True, exist_ok=True)
    origins[str(target)] = str(path)
    size = 0
    try:
        with gzip.open(path) as stream, target.open("wb") as out:
            while piece := stream.read(PIECE):
                size += len(piece)
                check_memory(path, 4 * size)
                out.write(piece)
    except (OSError, EOFError, zlib.error) as error:
        raise CaseError(f"{path}: is cut short or damaged ({type(error).__name__}); write or copy it again") from error
    return target
