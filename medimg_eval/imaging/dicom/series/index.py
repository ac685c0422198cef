"""What a tree of DICOM files holds, looked at once and remembered.

The index lies in the user's cache, for its owner alone to read. Patients and what people wrote of a series stand in
it as salted keys: what needs the words themselves reads them from the files.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from medimg_eval.errors import CaseError, UsageError, nearest
from medimg_eval.imaging.dicom.headers.header import Header, read_header, salvaged_header
from medimg_eval.imaging.dicom.series import index_damage
from medimg_eval.imaging.dicom.series import index_store as store
from medimg_eval.imaging.dicom.series.grouping import VOLUMETRIC, close, damage, is_meant, shape_of
from medimg_eval.imaging.dicom.series.index_store import Group, Stamp
from medimg_eval.patients import patient_key, salt_of
from medimg_eval.system import walk

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
    """The files of one image: slices of one geometry in a series, or one file that is an image by itself.

    Attributes:
        patient: key of the PatientID (see `patient_key`); `naming` reads the id itself.
        study: StudyInstanceUID.
        series: SeriesInstanceUID; may be empty.
        group: numbers the images of a series, from 1.
        number: SeriesNumber.
        description: key of the SeriesDescription in small letters, since people write names there.
        modality: DICOM code.
        sop_class: UID of what kind of object it is.
        localizer: whether ImageType says so.
        rows: of the first file.
        columns: of the first file.
        frames: in one file.
        spacing: mm between rows and between columns; None where not stated.
        orientation: six cosines, LPS; None where not stated.
        body_part: BodyPartExamined.
        view: ViewPosition.
        laterality: ImageLaterality, else Laterality.
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
        root: the folder.
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
        """Returns the images that match every filter.

        Args:
            filters: a field of `Series` -> the value wanted, or a list, tuple or set of them; texts are
                compared without regard to case, a PatientID to the letter. Of `patient` and `description` the words
                themselves are wanted, or keys. What a damaged image does not say fits any value.

        Raises:
            UsageError: `Series` has no such field.
        """
        known = [one.name for one in fields(Series) if one.name not in ("paths", "damaged")]
        for name in filters:
            if name not in known:
                raise UsageError(f"the index of {self.root} has no field {name!r}{nearest(name, known)}")
        filters |= {name: _keyed(name, filters[name]) for name in NAMING if name in filters}
        return [
            entry
            for entry in self.entries
            if all(
                _matches(getattr(entry, name), wanted) or (entry.damaged and not getattr(entry, name))
                for name, wanted in filters.items()
            )
        ]


def index_tree(root: Path, *, cache: Path | None = None) -> Index:
    """Looks at every file under a folder once, whatever its name, and remembers what it is.

    Later calls open only files whose size or time of change differ. The index is kept in the user's cache
    (`MEDIMG_EVAL_CACHE`, else `~/.cache/medimg_eval`), by the folder's place: a folder that moves is looked at again.

    Args:
        root: the folder; hidden files and folders are passed over.
        cache: a folder to keep the index in instead.

    Raises:
        CaseError: there is no such folder, or no DICOM file in it.
    """
    root = Path(root)
    if not root.is_dir():
        raise CaseError(f"{root}: no such folder")
    store.delete_old(root)
    place = store.place_of(root, cache)
    groups, others = store.load(place)
    present: dict[str, Stamp] = {}
    missing: dict[str, str] = {}
    for name, state in walk(root):
        if state is None:
            missing[name] = f"{root / name}: is a link to a file that is not there; fetch it, or delete the link"
        else:
            present[name] = (state.st_size, state.st_mtime_ns)
    new, dropped = _forget(groups, others, present)
    damaged: dict[str, _Damage] = {}
    table = _Table(groups)
    todo = sorted(new)
    for start in range(0, len(todo), BATCH):
        _add(root, todo[start : start + BATCH], present, table, others, damaged)
    if not table.groups:
        found = f"{len(present)} files" + (f" ({len(damaged)} of them damaged)" if damaged else "")
        raise CaseError(f"{root}: holds no DICOM file among {found}; name the folder they are in")
    if len(todo) > len(damaged) or dropped:
        store.save(place, table.groups, others)
    # What is damaged is not remembered: it is looked at again every time.
    known = {shape_of(root / name) for group in table.groups for name in group.files}
    for name in (*others, *missing):
        if is_meant(root / name, known):
            what = "is not DICOM, and named as if it were" if present.get(name, (0, 0))[0] else "is empty"
            damaged[name] = None, missing.get(name, f"{root / name}: {what}; copy it again, or delete it")
    _place(root, table, damaged)
    problems = {root / name: why for name, why in missing.items()} | {root / n: why for n, (_, why) in damaged.items()}
    if problems:
        logger.warning("%s: %d files could not be read", root, len(problems))
    return Index(root, tuple(_entries(root, table.groups)), problems, len(todo))


def _matches(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | set | frozenset) or (isinstance(wanted, tuple) and not isinstance(value, tuple)):
        return any(_matches(value, one) for one in wanted)
    if isinstance(value, str) and isinstance(wanted, str):
        return value.casefold() == wanted.casefold()
    return bool(value == wanted)


def _keyed(name: str, wanted: Any) -> Any:
    if isinstance(wanted, list | set | frozenset | tuple):
        return {_keyed(name, one) for one in wanted}
    return wanted if salt_of(str(wanted)) else _key(name, str(wanted))


def _key(name: str, text: str) -> str:
    return patient_key(text.casefold() if name == "description" else text)


def naming(path: Path) -> dict[str, str]:
    """Reads the words of a file that may name its patient: `patient` and `description`; never to be shown."""
    said = _words(path, "PatientID", "SeriesDescription")
    return dict(zip(NAMING, said, strict=True))


# --- files ------------------------------------------------------------------------------------------------------


def _forget(groups: list[Group], others: dict[str, Stamp], present: Mapping[str, Stamp]) -> tuple[set[str], bool]:
    """Takes out what changed or vanished; returns the names to look at, and whether anything was taken out."""
    new, dropped = set(present), False
    for files in (others, *(group.files for group in groups)):
        for name in [name for name, stamp in files.items() if present.get(name) != stamp]:
            del files[name]
            dropped = True
        new -= files.keys()
    groups[:] = [group for group in groups if group.files]
    return new, dropped


def _add(
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
        headers = [header for block in pool.map(_try_headers, blocks) for header in block]
    for name, (header, why) in zip(names, headers, strict=True):
        if why:
            damaged[name] = header, why
        elif header is None or header.sop_class == DIRECTORY:
            others[name] = present[name]
        else:
            table.add(header, name, present[name])


def _try_headers(paths: Sequence[Path]) -> list[_Damage]:
    return [_try_header(path) for path in paths]


def _try_header(path: Path) -> _Damage:
    """The header, None for what is not DICOM or has none, and what is wrong with the file."""
    try:
        size = path.stat().st_size
        header = read_header(path) if size else None
    except (CaseError, OSError) as error:
        return None, str(error)
    wrong = "" if header is None else damage(header, size)
    return header, f"{path}: {wrong}; write or copy it again" if wrong else ""


def _place(root: Path, table: _Table, damaged: Mapping[str, _Damage]) -> None:
    """Puts what is damaged into the images it is meant for, or makes images of it that cannot be read."""
    left = {}
    for name, (header, _) in damaged.items():
        if header is not None and header.series_uid:
            table.add(replace(header, has_pixels=True), name, index_damage.UNKNOWN)
        else:
            left[name] = salvaged_header(root / name)
    index_damage.take_back(table.groups)
    for names in index_damage.place(table.groups, left):
        header = left[names[0]]
        unknown = dict.fromkeys(("body_part", "view", "laterality"), "")
        facts = _facts(header) | unknown | {"patient": _key("patient", header.patient), "damaged": True}
        table.groups.append(Group("single", facts, dict.fromkeys(names, index_damage.UNKNOWN)))


# --- grouping ---------------------------------------------------------------------------------------------------


class _Table:
    """The groups, found by what their files must agree in."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        self.known: dict[tuple[Any, ...], list[Group]] = {}
        self.people: dict[tuple[str, ...], str] = {}
        for group in groups:
            if group.kind == "stack":
                self.known.setdefault(_identity(group.facts), []).append(group)

    def add(self, header: Header, name: str, stamp: Stamp) -> None:
        """Puts a file into the group it belongs to, or into a new one."""
        placed = header.position is not None and header.orientation is not None
        stacked = header.has_pixels and header.frames == 1 and (placed or header.modality in VOLUMETRIC)
        facts = _facts(header) | {"patient": self._patient(header, name)}
        alike = self.known.setdefault(_identity(facts), []) if stacked else []
        group = next((group for group in alike if _parallel(group.facts, facts)), None)
        if group is not None:
            group.files[name] = stamp
            return
        group = Group("stack" if stacked else "single", facts | _details(header.path), {name: stamp})
        self.groups.append(group)
        alike.append(group)

    def _patient(self, header: Header, name: str) -> str:
        """Key of the PatientID: the scan of headers leaves its character set aside, so pydicom reads it once."""
        place = (header.patient, header.study_uid, header.series_uid, name.rpartition("/")[0])
        if place not in self.people:
            self.people[place] = _key("patient", naming(header.path)["patient"])
        return self.people[place]


def _facts(header: Header) -> dict[str, Any]:
    return {
        "study": header.study_uid,
        "series": header.series_uid,
        "number": header.series_number,
        "description": _key("description", header.series_description),
        "modality": header.modality,
        "sop_class": header.sop_class,
        "localizer": "LOCALIZER" in header.image_type,
        "rows": header.rows,
        "columns": header.columns,
        "frames": header.frames,
        "spacing": header.pixel_spacing,
        "orientation": header.orientation,
    }


def _details(path: Path) -> dict[str, str]:
    part, view, image_side, side = _words(path, "BodyPartExamined", "ViewPosition", "ImageLaterality", "Laterality")
    return {"body_part": part, "view": view, "laterality": image_side or side}


def _words(path: Path, *keywords: str) -> list[str]:
    import pydicom

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = pydicom.dcmread(path, force=True, stop_before_pixels=True, specific_tags=list(keywords))
        return [str(dataset.get(word) or "").strip() for word in keywords]


def _identity(facts: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the slices of one group agree in to the letter."""
    named = (facts["series"],) if facts["series"] else ("", facts["number"], facts["description"])
    same = ("patient", "study", "modality", "sop_class", "localizer", "rows", "columns")
    return (*named, *(facts[name] for name in same))


def _parallel(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return all(close(some[name], others[name]) for name in ("spacing", "orientation"))


def _entries(root: Path, groups: Iterable[Group]) -> Iterator[Series]:
    def order(group: Group) -> tuple[Any, ...]:
        facts = group.facts
        return (*(facts[name] for name in ("study", "series", "number")), min(group.files))

    counted: dict[tuple[str, ...], int] = {}
    for group in sorted(groups, key=order):
        key = tuple(group.facts[name] for name in ("patient", "study", "series"))
        counted[key] = counted.get(key, 0) + 1
        yield Series(**group.facts, group=counted[key], paths=tuple(root / name for name in sorted(group.files)))
