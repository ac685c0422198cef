"""What a tree of DICOM files holds, looked at once and remembered.

The index lies in the user's cache, for its owner alone to read. Patients and what people wrote of a series stand in
it as salted keys: what needs the words themselves reads them from the files.
"""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from medimg_eval.arguments import grouped
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.dicom.headers.header import Header, read_header, salvaged_header
from medimg_eval.imaging.dicom.series.grouping import VOLUMETRIC, close, damage, is_meant, shape_of
from medimg_eval.patients import patient_key, salt_name, salt_of
from medimg_eval.system import natural_order, user_cache, walk, whole

OLD_NAME = ".medimg_eval_index.parquet"
"""Where earlier versions kept it, in the data's folder and with patients' ids."""

VERSION = "2"
"""Counted up when the columns change: an index of another version, or of another salt, is built again."""

TEXTS = (
    "patient", "study", "series", "number", "description", "modality", "sop_class", "body_part", "view", "laterality",
)  # fmt: skip

Stamp = tuple[int, int]
"""Size in bytes and time of the last change in ns: what tells that a file is still the same."""


@dataclass
class Group:
    """A row of the index, with files by name relative to the root.

    The kind says slices of one geometry, a file that is an image by itself, or the files that are not DICOM; facts are
    the fields of `Series`.
    """

    kind: Literal["stack", "single", "other"]
    facts: dict[str, Any]
    files: dict[str, Stamp]


def place_of(root: Path, cache: Path | None) -> Path:
    """Place of the index: the user's cache, or `cache`."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32] + ".parquet"
    return (user_cache() / "index" if cache is None else Path(cache)) / name


def delete_old(root: Path) -> None:
    """Deletes earlier versions' index, which has patient ids in clear."""
    old = root / OLD_NAME
    if not old.is_file():
        return
    try:
        old.unlink()
        logger.warning("%s: held patients' ids and was deleted; the index now lies in your cache", old)
    except OSError:
        logger.warning("%s: is the index of an earlier version, and holds patients' ids; delete it", old)


def load_index(place: Path) -> tuple[list[Group], dict[str, Stamp]]:
    """Reads the last index: images and other files; else nothing."""
    import pyarrow as pa
    from pyarrow import parquet

    if not place.is_file():
        return [], {}
    try:
        table = parquet.read_table(place, memory_map=False)
        if (table.schema.metadata or {}).get(b"version") != _index_version():
            logger.info("%s: is of another version or salt and is built again", place)
            return [], {}
        groups = [_group_of(row) for row in table.to_pylist()]
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        logger.warning("%s: is damaged (%s) and is built again", place, type(error).__name__)
        return [], {}
    other_files = next((group.files for group in groups if group.kind == "other"), {})
    return [group for group in groups if group.kind != "other"], other_files


def save_index(place: Path, groups: Sequence[Group], others: dict[str, Stamp]) -> None:
    """Writes the index atomically, readable by its owner only."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = [_index_row(group) for group in (*groups, Group("other", {}, others))]
    table = pa.Table.from_pylist(rows, schema=_index_schema())
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.parent == user_cache() / "index":
            place.parent.chmod(0o700)  # it may be that of an earlier version
        with whole(place) as partial:
            partial.touch(mode=0o600)
            parquet.write_table(table, partial, compression="zstd")
    except OSError:
        logger.warning("%s: cannot be written; every call will look at all files", place)


def _index_version() -> bytes:
    return f"{VERSION} {salt_name()}".encode()


def _index_schema() -> Any:
    import pyarrow as pa

    integer, numbers = pa.int64(), pa.list_(pa.float64())
    columns = [(name, pa.string()) for name in ("kind", *TEXTS)]
    columns += [("localizer", pa.bool_()), ("rows", integer), ("columns", integer), ("frames", integer)]
    columns += [("spacing", numbers), ("orientation", numbers)]
    columns += [("files", pa.list_(pa.binary())), ("sizes", pa.list_(integer)), ("changed", pa.list_(integer))]
    return pa.schema(columns, metadata={b"version": _index_version()})


def _group_of(row: dict[str, Any]) -> Group:
    kind = row.pop("kind")
    names = [os.fsdecode(name) for name in row.pop("files")]
    stamps = zip(row.pop("sizes"), row.pop("changed"), strict=True)
    for name in ("spacing", "orientation"):
        row[name] = None if row[name] is None else tuple(row[name])
    return Group(kind, row, dict(zip(names, stamps, strict=True)))


def _index_row(group: Group) -> dict[str, Any]:
    return group.facts | {
        "kind": group.kind,
        "files": [os.fsencode(name) for name in group.files],
        "sizes": [size for size, _ in group.files.values()],
        "changed": [time for _, time in group.files.values()],
    }


BATCH = 4096
"""Headers held at a time."""

BLOCK, THREADS = 64, 8
"""Files handed to a thread at a time, and threads."""

DIRECTORY = "1.2.840.10008.1.3.10"
"""SOP class of a DICOMDIR, which is a table of contents and no image."""

NAMING = ("patient", "description")
"""Fields of `Series` that are kept as keys."""

logger = logging.getLogger(__name__)

_Damage = tuple[Header | None, str]
"""The header, as far as it can be read, and what is wrong with the file; nothing where that is empty."""


@dataclass(frozen=True)
class Series:
    """Files of one image: a series' slices, or a file.

    Attributes:
        patient: key of the PatientID (see `patient_key`); `naming` reads the id itself.
        study: StudyInstanceUID, as series (may be empty) SeriesInstanceUID, and number SeriesNumber.
        group: numbers the images of a series, from 1.
        description: key of the SeriesDescription in small letters, since people write names there.
        modality: DICOM code.
        sop_class: UID of what kind of object it is.
        localizer: whether ImageType says so.
        rows: of the first file, as columns.
        frames: in one file.
        spacing: mm between rows and between columns; None where not stated.
        orientation: six cosines, LPS; None where not stated.
        body_part: BodyPartExamined; view: ViewPosition; laterality: ImageLaterality, else Laterality.
        paths: the files, in the order of their names; damaged ones that are meant to be among them, so that reading
            says what is wrong with them.
        damaged: whether none of the files can be read, so that what is not said may be anything.
    """

    patient: str = field(repr=False)
    study: str
    series: str
    group: int
    number: str
    description: str = field(repr=False)
    modality: str
    sop_class: str
    localizer: bool
    rows: int
    columns: int
    frames: int
    spacing: tuple[float, ...] | None
    orientation: tuple[float, ...] | None
    body_part: str
    view: str
    laterality: str
    paths: tuple[Path, ...]
    damaged: bool = False


@dataclass(frozen=True)
class Index:
    """The images under a folder.

    Attributes:
        entries: one for each image, by study, series and group.
        problems: file -> why it could not be read, links to nowhere and files that are named like DICOM and are none
            among them; it is tried again every time.
        opened: how many files were looked at this time: those that are new or have changed.
    """

    root: Path
    entries: tuple[Series, ...]
    problems: Mapping[Path, str]
    opened: int

    def series(self, **filters: Any) -> list[Series]:
        """Images matching filters on `Series` fields, by value or list.

        Texts are compared without regard to case, a PatientID to the letter. Of `patient` and `description` the words
        themselves are wanted, or keys. What a damaged image does not say fits any value. Raises UsageError where
        `Series` has no such field.
        """
        names = [field.name for field in fields(Series) if field.name not in ("paths", "damaged")]
        UsageError.refuse_unknown(f"the index of {self.root} has no field", names, *filters)
        filters |= {name: _key_wanted(name, filters[name]) for name in NAMING if name in filters}
        return [
            entry
            for entry in self.entries
            if all(
                _matches_value(getattr(entry, name), wanted) or (entry.damaged and not getattr(entry, name))
                for name, wanted in filters.items()
            )
        ]


def index_tree(root: str | Path, *, cache: str | Path | None = None) -> Index:
    """Indexes every file below a folder once.

    Later calls open only files whose size or time of change differ. The index is kept in `cache`, else in the user's
    cache (`MEDIMG_EVAL_CACHE`, else `~/.cache/medimg_eval`), by the folder's place: a folder that moves is looked at
    again. Hidden files and folders are passed over. Raises CaseError where there is no such folder, or no DICOM file in
    it.
    """
    root = Path(root)
    if not root.is_dir():
        raise CaseError(f"{root}: no such folder")
    delete_old(root)
    file = place_of(root, None if cache is None else Path(cache))
    groups, other_files = load_index(file)
    present: dict[str, Stamp] = {}
    missing: dict[str, str] = {}
    for name, state in walk(root):
        if state is None:
            missing[name] = f"{root / name}: is a link to a file that is not there; fetch it, or delete the link"
        else:
            present[name] = (state.st_size, state.st_mtime_ns)
    new, dropped = _forget_changed(groups, other_files, present)
    damaged: dict[str, _Damage] = {}
    table = _Table(groups)
    todo = sorted(new)
    for start in range(0, len(todo), BATCH):
        _add_files(root, todo[start : start + BATCH], present, table, other_files, damaged)
    if not table.groups:
        counts_text = f"{len(present)} files" + (f" ({len(damaged)} of them damaged)" if damaged else "")
        raise CaseError(f"{root}: holds no DICOM file among {counts_text}; name the folder they are in")
    if len(todo) > len(damaged) or dropped:
        save_index(file, table.groups, other_files)
    # What is damaged is not remembered: it is looked at again every time.
    shapes = {shape_of(root / name) for group in table.groups for name in group.files}
    for name in (*other_files, *missing):
        if is_meant(root / name, shapes):
            what = "is not DICOM, and named as if it were" if present.get(name, (0, 0))[0] else "is empty"
            damaged[name] = None, missing.get(name, f"{root / name}: {what}; copy it again, or delete it")
    _place_damaged(root, table, damaged)
    problems = {root / name: why for name, why in missing.items()} | {root / n: why for n, (_, why) in damaged.items()}
    if problems:
        logger.warning("%s: %d files could not be read", root, len(problems))
    return Index(root, tuple(_series_entries(root, table.groups)), problems, len(todo))


def _matches_value(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | set | frozenset) or (isinstance(wanted, tuple) and not isinstance(value, tuple)):
        return any(_matches_value(value, item) for item in wanted)
    if isinstance(value, str) and isinstance(wanted, str):
        return value.casefold() == wanted.casefold()
    return bool(value == wanted)


def _key_wanted(name: str, wanted: Any) -> Any:
    if isinstance(wanted, list | set | frozenset | tuple):
        return {_key_wanted(name, item) for item in wanted}
    return wanted if salt_of(str(wanted)) else _hash_key(name, str(wanted))


def _hash_key(name: str, text: str) -> str:
    return patient_key(text.casefold() if name == "description" else text)


def naming(path: Path) -> dict[str, str]:
    """Reads identifying words `patient` and `description`; never shown."""
    words = _description_words(path, "PatientID", "SeriesDescription")
    return dict(zip(NAMING, words, strict=True))


# --- files ------------------------------------------------------------------------------------------------------


def _forget_changed(
    groups: list[Group], others: dict[str, Stamp], present: Mapping[str, Stamp]
) -> tuple[set[str], bool]:
    """Drops changed and vanished files; returns names to reread."""
    new, dropped = set(present), False
    for files in (others, *(group.files for group in groups)):
        for name in [name for name, stamp in files.items() if present.get(name) != stamp]:
            del files[name]
            dropped = True
        new -= files.keys()
    groups[:] = [group for group in groups if group.files]
    return new, dropped


def _add_files(
    root: Path,
    names: Sequence[str],
    present: Mapping[str, Stamp],
    table: _Table,
    others: dict[str, Stamp],
    damaged: dict[str, _Damage],
) -> None:
    """Reads the headers of some files and puts each where it belongs."""
    # Threads pay where files come over a network; handing over blocks keeps them from costing where they do not.
    blocks = [[root / name for name in names[start : start + BLOCK]] for start in range(0, len(names), BLOCK)]
    with ThreadPoolExecutor(THREADS) as pool:
        headers = [header for block in pool.map(lambda block: [*map(_try_header, block)], blocks) for header in block]
    for name, (header, why) in zip(names, headers, strict=True):
        if why:
            damaged[name] = header, why
        elif header is None or header.sop_class == DIRECTORY:
            others[name] = present[name]
        else:
            table.add(header, name, present[name])


def _try_header(path: Path) -> _Damage:
    """Header, or None for non-DICOM, and the file's fault."""
    try:
        size = path.stat().st_size
        header = read_header(path) if size else None
    except (CaseError, OSError) as error:
        return None, str(error)
    wrong = "" if header is None else damage(header, size)
    return header, f"{path}: {wrong}; write or copy it again" if wrong else ""


def _place_damaged(root: Path, table: _Table, damaged: Mapping[str, _Damage]) -> None:
    """Assigns damaged files to images, or makes unreadable ones."""
    salvaged = {}
    for name, (header, _) in damaged.items():
        if header is not None and header.series_uid:
            table.add(replace(header, has_pixels=True), name, UNKNOWN)
        else:
            salvaged[name] = salvaged_header(root / name)
    take_back(table.groups)
    for names in place_damaged(table.groups, salvaged):
        header = salvaged[names[0]]
        unknown = dict.fromkeys(("body_part", "view", "laterality"), "")
        facts = _header_facts(header) | unknown | {"patient": _hash_key("patient", header.patient), "damaged": True}
        table.groups.append(Group("single", facts, dict.fromkeys(names, UNKNOWN)))


# --- grouping ---------------------------------------------------------------------------------------------------


class _Table:
    """The groups, found by what their files must agree in."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        self.known: dict[tuple[Any, ...], list[Group]] = {}
        self.people: dict[tuple[str, ...], str] = {}
        for group in groups:
            if group.kind == "stack":
                self.known.setdefault(_group_identity(group.facts), []).append(group)

    def add(self, header: Header, name: str, stamp: Stamp) -> None:
        """Adds a file to its group, or a new one."""
        placed = header.position is not None and header.orientation is not None
        stacked = header.has_pixels and header.frames == 1 and (placed or header.modality in VOLUMETRIC)
        facts = _header_facts(header) | {"patient": self._patient(header, name)}
        similar = self.known.setdefault(_group_identity(facts), []) if stacked else []
        group = next((group for group in similar if _are_parallel(group.facts, facts)), None)
        if group is not None:
            group.files[name] = stamp
            return
        names = ("BodyPartExamined", "ViewPosition", "ImageLaterality", "Laterality")
        part, view, image_side, side = _description_words(header.path, *names)
        facts |= {"body_part": part, "view": view, "laterality": image_side or side}
        group = Group("stack" if stacked else "single", facts, {name: stamp})
        self.groups.append(group)
        similar.append(group)

    def _patient(self, header: Header, name: str) -> str:
        """Key of the PatientID, by pydicom for its character set."""
        key = (header.patient, header.study_uid, header.series_uid, name.rpartition("/")[0])
        if key not in self.people:
            self.people[key] = _hash_key("patient", naming(header.path)["patient"])
        return self.people[key]


def _header_facts(header: Header) -> dict[str, Any]:
    return {
        "study": header.study_uid,
        "series": header.series_uid,
        "number": header.series_number,
        "description": _hash_key("description", header.series_description),
        "modality": header.modality,
        "sop_class": header.sop_class,
        "localizer": "LOCALIZER" in header.image_type,
        "rows": header.rows,
        "columns": header.columns,
        "frames": header.frames,
        "spacing": header.pixel_spacing,
        "orientation": header.orientation,
    }


def _description_words(path: Path, *keywords: str) -> list[str]:
    import pydicom

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = pydicom.dcmread(path, force=True, stop_before_pixels=True, specific_tags=list(keywords))
        return [str(dataset.get(word) or "").strip() for word in keywords]


def _group_identity(facts: Mapping[str, Any]) -> tuple[Any, ...]:
    """Identity that the slices of one group share to the letter."""
    named = (facts["series"],) if facts["series"] else ("", facts["number"], facts["description"])
    names = ("patient", "study", "modality", "sop_class", "localizer", "rows", "columns")
    return (*named, *(facts[name] for name in names))


def _are_parallel(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return all(close(some[name], others[name]) for name in ("spacing", "orientation"))


def _series_entries(root: Path, groups: Iterable[Group]) -> Iterator[Series]:
    def order(group: Group) -> tuple[Any, ...]:
        facts = group.facts
        return (*(facts[name] for name in ("study", "series", "number")), min(group.files))

    counted: dict[tuple[str, ...], int] = {}
    for group in sorted(groups, key=order):
        key = tuple(group.facts[name] for name in ("patient", "study", "series"))
        counted[key] = counted.get(key, 0) + 1
        yield Series(**group.facts, group=counted[key], paths=tuple(root / name for name in sorted(group.files)))


# --- damaged files: which image each is meant for ---------------------------------------------------------------

UNKNOWN = (0, 0)
"""Stands for size and time of a damaged file, which is never remembered."""


def take_back(groups: list[Group]) -> None:
    """Returns a deviating file to its series' stack, for error reports.

    As an image by itself it would be a case more; in its stack, reading names it. What faces another way stays, such
    as a scout.
    """
    stacks = grouped(
        (_series_of(group.facts), group) for group in groups if group.kind == "stack" and len(group.files) > 1
    )
    for group in [group for group in groups if len(group.files) == 1 and group.facts["frames"] == 1]:
        groups_ = stacks.get(_series_of(group.facts), [])
        facing = group.facts["orientation"]
        if len(groups_) == 1 and (facing is None or close(facing, groups_[0].facts["orientation"])):
            groups_[0].files.update(group.files)
            groups.remove(group)


def _series_of(facts: Mapping[str, Any]) -> tuple[Any, ...]:
    named = ("patient", "study", "series", "number", "modality", "sop_class", "localizer")
    return tuple(facts[name] for name in named)


def place_damaged(groups: Sequence[Group], damaged: Mapping[str, Header]) -> Iterator[list[str]]:
    """Assigns damaged files to their images.

    name -> what is left of the header.

    That is the stack of the series that the rest of the header names; without that the stack in the same folder, and of
    several those that its neighbours by name belong to. The `files` of these groups grow. Yields the files of each
    image of which nothing else is known: of a series, of a folder of damaged files alone, or one.
    """
    by_series: dict[str, list[Group]] = defaultdict(list)
    by_folder: dict[str, list[tuple[str, Group]]] = defaultdict(list)
    for group in groups:
        by_series[group.facts["series"]].append(group)
        for name in group.files:
            by_folder[_parent_folder(name)].append((name, group))
    alone: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, header in sorted(damaged.items()):
        series, folder_stacks = _complete_uid(header.series_uid, by_series), by_folder.get(_parent_folder(name), [])
        homes = _largest_stack(by_series.get(series, [])) if series else _neighbour_stacks(name, folder_stacks)
        for home in homes:
            home.files[name] = UNKNOWN
        if not homes:
            own = series in by_series if series else bool(folder_stacks)
            alone[(series, name if own else "" if series else _parent_folder(name) + "/")].append(name)
    yield from alone.values()


def _complete_uid(series: str, by_series: Mapping[str, Any]) -> str:
    """Series UID completed from a truncated beginning."""
    longer = [series_uid for series_uid in by_series if series and series_uid.startswith(series)]
    return longer[0] if len(longer) == 1 and series not in by_series else series


def _parent_folder(name: str) -> str:
    return name.rpartition("/")[0]


def _largest_stack(groups: Sequence[Group]) -> list[Group]:
    """The stack with most files; none among images of one file each."""
    stacks = [group for group in groups if group.kind == "stack"]
    return [max(stacks, key=lambda group: len(group.files))] if stacks else []


def _neighbour_stacks(name: str, beside: Sequence[tuple[str, Group]]) -> list[Group]:
    """Stacks of the folder near a file by name."""
    stacks = {id(group): group for _, group in beside if group.kind == "stack"}
    if len(stacks) == 1:
        return list(stacks.values())
    ordered = sorted((natural_order(stack_name), id(group)) for stack_name, group in beside if len(group.files) > 1)
    ordered = [(key, group) for key, group in ordered if group in stacks]
    before = [group for key, group in ordered if key < natural_order(name)][-1:]
    after = [group for key, group in ordered if key > natural_order(name)][:1]
    return [stacks[group] for group in dict.fromkeys(before + after)]
