"""Zip archives unpacked without harm: nothing outside of the folder, nothing larger than the archive declares."""

from __future__ import annotations

import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medimg_eval.errors import UsageError, UserError
from medimg_eval.trust import stays_inside

MAX_RATIO = 1000
"""How many times its size an archive may unpack to: deflate reaches 1032, and pictures come nowhere near it."""

KEYS = {"zip", "strip", "below"}


@dataclass(frozen=True)
class Archive:
    """A zip archive, or several, that is unpacked beside itself.

    `name` is its path below the root, or a pattern with `*`; `strip` is taken off the names of members that begin with
    it; `below` is the folder, beside the archive, that they are put into.
    """

    name: str
    strip: str = ""
    below: str = ""

    @classmethod
    def of(cls, config: str | Mapping[str, Any]) -> Archive:
        """Archive of `card.download.unpack`: name, or `{zip, strip, below}`.

        Raises UsageError where a key is not known, or the archive is not named.
        """
        if isinstance(config, str):
            return cls(config)
        UsageError.refuse_unknown("task.card.download.unpack has no key", KEYS, *config)
        if "zip" not in config:
            raise UsageError("task.card.download.unpack: `zip`, the archive's name, is not set")
        return cls(str(config["zip"]), str(config.get("strip", "")), str(config.get("below", "")))

    def unpack(self, root: Path, say: Callable[[str], None]) -> None:
        """Extracts members below the root; complete ones stay.

        `say` is told how many; those with the right size stay.

        Raises:
            UserError: the archive is damaged, needs a password, names places outside of the folder, declares more than
                the disk holds or than an honest archive could, or a member does not hold what it declares.
        """
        paths = sorted(root.glob(self.name)) if "*" in self.name else [root / self.name]
        if not paths:
            raise UserError(f"{root}: holds no archive {self.name!r}; set task.card.download.unpack")
        for path in paths:
            folder = path.parent / self.below
            try:
                written, count = self._unpack(path, folder)
            except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
                raise UserError(
                    f"{path}: cannot be unpacked ({error}); delete it, and run the same command again"
                ) from error
            say(f"{path.relative_to(root)}: {written} of {count} members unpacked below {folder}")

    def _unpack(self, path: Path, folder: Path) -> tuple[int, int]:
        """Extracts one archive; returns written and total members."""
        with zipfile.ZipFile(path) as archive:
            members = [
                (member, folder / self._name(path, member)) for member in archive.infolist() if not member.is_dir()
            ]
            missing = [(member, target) for member, target in members if not _is_there(member, target)]
            _refuse_bomb(path, folder, [member for member, _ in missing])
            for member, path_ in missing:
                _write_member(archive, member, path_)
        return len(missing), len(members)

    def _name(self, path: Path, member: zipfile.ZipInfo) -> str:
        kind = stat.S_IFMT(member.external_attr >> 16)
        name = member.filename.removeprefix(self.strip) or member.filename  # `a//b` without `a/` begins at the root
        if not (stays_inside(member.filename) and stays_inside(name)) or kind not in (0, stat.S_IFREG):
            raise UserError(
                f"{path}: member {member.filename!r} is a link, or lies outside of the folder; it is not unpacked"
            )
        return name


def _is_there(member: zipfile.ZipInfo, place: Path) -> bool:
    return place.is_file() and place.stat().st_size == member.file_size


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raises UserError where a disk lacks `what`'s bytes."""
    there = next(existing for existing in (folder, *folder.absolute().parents) if existing.is_dir())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise UserError(
            f"{folder}: {what} needs {in_words(needed)}, and {in_words(free)} are free; make room, or set root="
        )


def in_words(size: int) -> str:
    """Bytes for people."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 2**power:
            return f"{size / 2**power:.1f} {unit}"
    return f"{size} bytes"


def _refuse_bomb(path: Path, folder: Path, members: list[zipfile.ZipInfo]) -> None:
    declared, packed = sum(member.file_size for member in members), path.stat().st_size
    if declared > MAX_RATIO * packed:
        raise UserError(
            f"{path}: declares {declared:,} bytes in {packed:,}, which may be a decompression bomb; unpack it by hand"
        )
    require_space(folder, declared, f"what {path.name} unpacks to")


def _write_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: Path) -> None:
    """Writes a member atomically, checking declared size and checksum."""
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f".{place.name}.partial")
    try:
        with archive.open(member) as source, partial.open("wb") as target:
            shutil.copyfileobj(source, target, 2**20)
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)
