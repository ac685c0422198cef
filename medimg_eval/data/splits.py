"""Which case belongs to which split, from the authors' own files; patients that lie in two are refused."""

from __future__ import annotations

import hashlib
import pickle
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from medimg_eval.arguments import grouped
from medimg_eval.data.records import Entry, Row
from medimg_eval.data.tables import read_json, read_lines, read_table
from medimg_eval.errors import UserError, nearest

ALL = "all"
"""The fold that stands for all of them: each is tested by a model that was fitted without it."""

FOLD = "{fold}"
"""Stands in the names of files and columns for the number of a fold."""

SHOWN = 5
"""Offenders that a message names before it counts the rest."""


class Splits(Protocol):
    """The authors' file, or files, that say which case belongs to which split.

    The key is what its ids name: `{case}`, `{stem}` or `{name}` of the image, `{patient}`, or a column. Of several
    folds one is meant, or `all`, each by itself.
    """

    key: str

    def fold_numbers(self, root: Path) -> list[int]:
        """The folds there are, ascending; none where the file knows of none."""

    def files(self, root: Path) -> tuple[Path, ...]:
        """The files, whose SHA-256 a run's manifest holds."""

    def read(self, root: Path) -> dict[str, list[Row]]:
        """Split -> record per id; UserError names file and line."""


@dataclass
class SplitLists:
    """Text file of ids per split, with `{fold}` for folds."""

    lists: Mapping[str, str]
    key: str = "{case}"
    fold: int | str = 0

    def fold_numbers(self, root: Path) -> list[int]:
        """Numbers of the folds whose files exist."""
        return _numbered_folds(root, self.lists.values())

    def files(self, root: Path) -> tuple[Path, ...]:
        """The lists."""
        return tuple(path for name in self.lists.values() for path in _of_fold(root, name, self))

    def read(self, root: Path) -> dict[str, list[Row]]:
        """The ids of each split."""
        return {
            split: [Row(row.path, row.place, {"id": row.text("line")}) for row in read_lines(path)]
            for split, path in zip(self.lists, self.files(root), strict=True)
        }


@dataclass
class SplitTable:
    """Table of ids and splits, or one table per split.

    Args:
        table: below the root; or split -> such a table.
        id: the column of ids, or a pattern.
        within: the list that holds the records, of a JSON file that holds others too, such as `images` of COCO's.
        split: the column of splits, of one table; rows that leave it empty belong to none.
        separator: between the fields of a text table.
        key: what the ids name.
        fold: which of several folds, where `{fold}` stands in the name of the table, or of the column `split`.
    """

    table: str | Mapping[str, str]
    id: str
    split: str = "split"
    separator: str = ""
    within: str = ""
    key: str = "{case}"
    fold: int | str = 0

    def fold_numbers(self, root: Path) -> list[int]:
        """Numbers of the folds whose tables, or columns, exist."""
        names = [self.table] if isinstance(self.table, str) else list(self.table.values())
        if FOLD not in self.split:
            return _numbered_folds(root, names)
        columns = read_table(root / names[0], separator=self.separator)[0].values
        pattern = re.compile(re.escape(self.split).replace(re.escape(FOLD), r"(\d+)"))
        return sorted(int(fit[1]) for column in columns if (fit := pattern.fullmatch(column)))

    def files(self, root: Path) -> tuple[Path, ...]:
        """The table, or tables."""
        names = [self.table] if isinstance(self.table, str) else self.table.values()
        return tuple(path for name in names for path in _of_fold(root, name, self))

    def read(self, root: Path) -> dict[str, list[Row]]:
        """The ids of each split."""
        rows_by_split: dict[str, list[Row]] = defaultdict(list)
        single = isinstance(self.table, str)
        for path, own in zip(self.files(root), [""] if isinstance(self.table, str) else self.table, strict=True):
            for row in self._within(path) if self.within else read_table(path, separator=self.separator):
                split = row.text(self.split.replace(FOLD, str(self.fold))) if single else str(own)
                if split:
                    rows_by_split[split].append(Row(row.path, row.place, {"id": row.fill(self.id)}))
        return dict(rows_by_split)

    def _within(self, path: Path) -> list[Row]:
        content = read_json(path)
        items = content.get(self.within) if isinstance(content, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise UserError(f"{path}: expected a list of objects {self.within!r}")
        return [Row(path, f"item {number} of {self.within!r}", item) for number, item in enumerate(items, start=1)]


@dataclass
class SplitColumns:
    """Table with an id column per split, as in CLAM.

    Several folds have a table each, with `{fold}` in its name: `splits_{fold}.csv`.
    """

    table: str
    columns: Sequence[str] = ("train", "val", "test")
    key: str = "{case}"
    fold: int | str = 0

    def fold_numbers(self, root: Path) -> list[int]:
        """Numbers of the folds whose tables exist."""
        return _numbered_folds(root, [self.table])

    def files(self, root: Path) -> tuple[Path, ...]:
        """The table."""
        return tuple(_of_fold(root, self.table, self))

    def read(self, root: Path) -> dict[str, list[Row]]:
        """The ids of each split."""
        rows = read_table(self.files(root)[0])
        return {
            split: [Row(row.path, row.place, {"id": row.text(split)}) for row in rows if row.text(split)]
            for split in self.columns
        }


@dataclass
class SplitJson:
    """JSON lists of ids per split, or per fold, as nnU-Net.

    The fold says which of the objects, from 0; None is for a file of one object.
    """

    file: str
    fold: int | str | None = None
    key: str = "{case}"

    def fold_numbers(self, root: Path) -> list[int]:
        """The places of the objects in a list."""
        content = read_json(root / self.file)
        return list(range(len(content))) if isinstance(content, list) else []

    def files(self, root: Path) -> tuple[Path, ...]:
        """The file."""
        return (root / self.file,)

    def read(self, root: Path) -> dict[str, list[Row]]:
        """The ids of each split."""
        path = root / self.file
        content = read_json(path)
        if self.fold is not None:
            if not isinstance(content, list) or not isinstance(self.fold, int) or not 0 <= self.fold < len(content):
                folds = len(content) if isinstance(content, list) else 0
                raise UserError(f"{path}: holds {folds} folds, so there is no fold {self.fold} (the first is 0)")
            content = content[self.fold]
        if not isinstance(content, dict) or not all(isinstance(ids, list) for ids in content.values()):
            raise UserError(f"{path}: expected one list of ids per split; for a list of folds, name one with fold=0")
        return {
            split: [
                Row(path, f"item {number} of {split!r}", {"id": str(case_id)})
                for number, case_id in enumerate(ids, start=1)
            ]
            for split, ids in content.items()
        }


class _WithoutFiles:
    """Split that the config decides, without a file or published folds."""

    def fold_numbers(self, root: Path) -> list[int]:
        """None."""
        return []

    def files(self, root: Path) -> tuple[Path, ...]:
        """None."""
        return ()


@dataclass
class SplitFolds(_WithoutFiles):
    """Seeded folds as nnU-Net draws, where none are published.

    Patients, or cases where no patient is known, are sorted by name, shuffled, and cut into as many pieces as there are
    folds: what `KFold(folds, shuffle=True, random_state=seed)` of scikit-learn does. The piece `fold`, from 0, is
    `val`, the others are `train`. Cases that the layout has put into a split of another name than `train` or `training`
    stay there.
    """

    fold: int | str = 0
    folds: int = 5
    seed: int = 12345

    def fold_numbers(self, root: Path) -> list[int]:
        """Numbers of all folds that are to be drawn."""
        return list(range(self.folds))

    def divide(self, entries: Sequence[Entry], root: Path) -> list[Entry]:
        """Divides cases into `train` and `val`; UserError for impossible folds."""
        divided = [entry for entry in entries if entry.split in (None, "train", "training")]
        if not isinstance(self.fold, int) or not 0 <= self.fold < self.folds:
            raise UserError(f"there is no fold {self.fold} of {self.folds} (the first is 0)")
        count = len({_patient_key(entry) for entry in divided})
        if count < self.folds:
            raise UserError(f"{root}: {count} patients or cases cannot be cut into {self.folds} folds")
        held = _draw_fold(divided, self.fold, self.folds, self.seed)
        parted = [replace(entry, split="val" if _patient_key(entry) in held else "train") for entry in divided]
        return parted + [entry for entry in entries if entry.split not in (None, "train", "training")]


@dataclass
class SplitNames(_WithoutFiles):
    """Names listed in the config; cases without one share a split.

    It serves where others' code holds the split and no file does.

    Args:
        names: split -> its names.
        rest: the split of all other cases; those stay out when empty.
        key: what the names are of, as of the other splits.
    """

    names: Mapping[str, Sequence[str]]
    rest: str = ""
    key: str = "{case}"

    def divide(self, entries: Sequence[Entry], root: Path) -> list[Entry]:
        """Divides cases by name; UserError for unknown or repeated names."""
        pairs = [(name, str(split)) for split, names in self.names.items() for name in map(str, names)]
        splits = dict(pairs)
        twice = next((name for name, split in pairs if splits[name] != split), None)
        if twice is not None:
            raise UserError(f"task.layout.splits.names has {twice!r} in two splits")
        assigned = [
            (entry, next((name for name in _case_keys(entry, self.key) if name in splits), None)) for entry in entries
        ]
        missing = sorted(splits.keys() - {name for _, name in assigned})
        if missing:
            raise UserError(f"{root}: task.layout.splits.names has {_shorten_names(missing)}, which no case is called")
        divided = [replace(entry, split=self.rest if name is None else splits[name]) for entry, name in assigned]
        return [entry for entry in divided if entry.split]


@dataclass
class SplitGroups(_WithoutFiles):
    r"""Leave-one-group-out: group `fold` is `test`, others `train`.

    Counted from 0 in the order of names.

    Args:
        group: a column or pattern that names the group of a case, such as `{video~_([A-I])\d+}` for its surgeon.
        fold: which group.
    """

    group: str
    fold: int | str = 0

    def divide(self, entries: Sequence[Entry], root: Path) -> list[Entry]:
        """Puts each case into `train` or `test`; raises UserError for no such fold."""
        groups = sorted({entry.fill(self.group) for entry in entries})
        if not isinstance(self.fold, int) or not 0 <= self.fold < len(groups):
            raise UserError(
                f"task.layout.splits.fold is invalid: expected 0 to {len(groups) - 1}, for the groups "
                f"{', '.join(groups)}, got {self.fold}"
            )
        held_out = groups[self.fold]
        return [replace(entry, split="test" if entry.fill(self.group) == held_out else "train") for entry in entries]


class _PlainValues(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"holds {module}.{name}")


@dataclass
class SplitPickles:
    """Dictionary keys of pickles by split, as MultiBypass140; plain values only.

    Args:
        lists: split -> pickle below the root, or several, of which those count that are there; `{fold}` as elsewhere.
        key: what the ids name.
        fold: which of several folds.
    """

    lists: Mapping[str, str | Sequence[str]]
    key: str = "{case}"
    fold: int | str = 0

    def fold_numbers(self, root: Path) -> list[int]:
        """Numbers of the folds whose files exist."""
        return _numbered_folds(root, [names if isinstance(names, str) else names[0] for names in self.lists.values()])

    def files(self, root: Path) -> tuple[Path, ...]:
        """The pickles."""
        return tuple(path for names in self.lists.values() for path in self._paths(root, names))

    def read(self, root: Path) -> dict[str, list[Row]]:
        """The ids of each split."""
        splits: dict[str, list[Row]] = {}
        for split, names in self.lists.items():
            for path in self._paths(root, names):
                with path.open("rb") as stream, UserError.about(path, "is no pickle of plain values", Exception):
                    content = dict(_PlainValues(stream).load())
                splits.setdefault(split, []).extend(Row(path, f"key {name!r}", {"id": str(name)}) for name in content)
        return splits

    def _paths(self, root: Path, names: str | Sequence[str]) -> list[Path]:
        each = [names] if isinstance(names, str) else list(names)
        paths = [path for name in each for path in _of_fold(root, name, self)]
        there = [path for path in paths if path.is_file()]
        if not there:
            raise UserError(f"{paths[0]}: there is no such pickle")
        return there


Divided = SplitFolds | SplitNames | SplitGroups
"""Splits that no file holds."""


def tuned(entries: Sequence[Entry], split: str) -> list[Entry]:
    """Moves one patient in ten into a split `tune`.

    Who is taken depends on the names alone: the first of ten folds that `SplitFolds` would draw.
    """
    chosen = [entry for entry in entries if entry.split == split]
    count = len({_patient_key(entry) for entry in chosen})
    held = _draw_fold(chosen, 0, min(10, count), SplitFolds.seed) if count > 1 else frozenset()
    return [
        replace(entry, split="tune") if entry.split == split and _patient_key(entry) in held else entry
        for entry in entries
    ]


def _patient_key(entry: Entry) -> str:
    return entry.patient or entry.id


def _draw_fold(entries: Sequence[Entry], fold: int, folds: int, seed: int) -> frozenset[str]:
    names = sorted({_patient_key(entry) for entry in entries})
    order = np.arange(len(names))
    np.random.RandomState(seed).shuffle(order)  # the generator that KFold uses
    return frozenset(names[index] for index in np.array_split(order, folds)[fold])


def _numbered_folds(root: Path, names: Iterable[str]) -> list[int]:
    """Fold numbers with a file of each `{fold}` name."""
    each = []
    for name in names:
        if FOLD in name:
            pattern = re.compile(re.escape(name).replace(re.escape(FOLD), r"(\d+)"))
            paths = (path.relative_to(root).as_posix() for path in root.glob(name.replace(FOLD, "*")))
            each.append({int(fit[1]) for path in paths if (fit := pattern.fullmatch(path))})
    return sorted(set.intersection(*each)) if each else []


def _of_fold(root: Path, name: str, splits: SplitLists | SplitTable | SplitColumns | SplitPickles) -> Iterable[Path]:
    """A fold's file, or those of all."""
    if FOLD not in name:
        return [root / name]
    numbers = splits.fold_numbers(root) if splits.fold == ALL else [splits.fold]
    return [root / name.replace(FOLD, str(number)) for number in numbers]


def assign(entries: Sequence[Entry], splits: Splits | Divided, root: Path) -> list[Entry]:
    """Assigns entries their published split; unlisted ones are dropped.

    Entries come in the order of the file; one that it puts into two splits comes twice. Raises UserError where an id is
    listed twice in a split, or names no entry.
    """
    if isinstance(splits, SplitFolds | SplitNames | SplitGroups):
        return splits.divide(entries, root)
    by_name = grouped((name, entry) for entry in entries for name in _case_keys(entry, splits.key))
    chosen = []
    for split, rows in splits.read(root).items():
        missing = [row for row in rows if row.text("id") not in by_name]
        if missing:
            names = _shorten_names([row.text("id") for row in missing])
            raise missing[0].error(
                f"split {split!r} lists {names}, of which {root} holds no file"
                + (nearest(missing[0].text("id"), by_name) if len(by_name) <= SHOWN else "")
            )
        assigned: set[str] = set()
        cases: dict[int, Entry] = {}
        for row in rows:
            if row.text("id") in assigned:
                raise row.error(f"split {split!r} lists {row.text('id')!r} a second time")
            assigned.add(row.text("id"))
            cases.update((id(entry), entry) for entry in by_name[row.text("id")])
        chosen += [replace(entry, split=split) for entry in cases.values()]
    return chosen


def _case_keys(entry: Entry, key: str) -> set[str]:
    """Keys of a case, or of its slides."""
    rows = entry.alike if len(entry.rows) > 1 else entry.rows
    return {replace(entry, rows=(row,)).fill(key) for row in rows}


def joined(entries: Sequence[Entry], folds: Mapping[str, Any], root: Path) -> list[Entry]:
    """Merges folds' cases into splits; unassigned folds are dropped.

    `folds` says of which fold, or folds, a split is made. Raises UserError where there is no such fold.
    """
    held = {entry.split for entry in entries if entry.split is not None}
    chosen = []
    for split, wanted in folds.items():
        names = [str(fold) for fold in wanted] if isinstance(wanted, list | tuple) else [str(wanted)]
        UserError.refuse_unknown(f"{root}: task.layout.folds names", held, *names)
        chosen += [replace(entry, split=str(split)) for entry in entries if entry.split in names]
    return chosen


def refuse_overlap(entries: Iterable[Entry], root: Path) -> None:
    """Raises UserError naming patients, or images, in several splits."""
    parts: dict[tuple[str, str], set[str]] = defaultdict(set)
    for entry in entries:
        if entry.split is not None:
            # Without patients, two cases of one name may well be two images: 0001.png of train and of test.
            who = (entry.id, repr(entry.images)) if entry.patient is None else (entry.patient, "")
            parts[who].add(entry.split)
    shared = {name: sorted(splits) for (name, _), splits in sorted(parts.items()) if len(splits) > 1}
    if shared:
        named = _shorten_names([f"{name!r} ({', '.join(splits)})" for name, splits in shared.items()], quoted=True)
        raise UserError(
            f"{root}: {len(shared)} patients or cases lie in more than one split: {named}; a model would be tested on "
            "what it has seen. Mend the split, or state why it is accepted: task.layout.allow_overlap='...'"
        )


def digests(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file, by its path."""
    digests = {}
    for path in files:
        with path.open("rb") as stream:
            digests[str(path)] = hashlib.file_digest(stream, "sha256").hexdigest()
    return digests


def _shorten_names(names: Sequence[str], *, quoted: bool = False) -> str:
    text = ", ".join(name if quoted else repr(name) for name in names[:SHOWN])
    return text if len(names) <= SHOWN else f"{text} and {len(names) - SHOWN} more"
