"""Which files belong together: a folder of DICOM files to stacks of slices and single objects, and which is meant."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from medimg_eval.errors import CaseError
from medimg_eval.imaging.dicom.headers.header import Header, read_header
from medimg_eval.imaging.dicom.headers.volume_facts import volume_facts
from medimg_eval.imaging.dicom.series.dynamics import Slice, Volumes, volumes_of
from medimg_eval.imaging.dicom.series.naming import began, numbers, shown_description, told
from medimg_eval.imaging.formats import named_as_dicom
from medimg_eval.system import walk

Kind = Literal["slices", "frames", "picture", "dose", "labels"]

SEGMENTATIONS = ("1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7")
"""SOP classes: binary and fractional, label map."""

STRUCTURES = "1.2.840.10008.5.1.4.1.1.481.3"
DOSE = "1.2.840.10008.5.1.4.1.1.481.2"

_STORAGE = "1.2.840.10008.5.1.4.1.1."
_FRAMED = tuple(
    _STORAGE + end
    for end in "2.1 2.2 4.1 4.3 4.4 6.2 13.1.1 13.1.2 13.1.3 14.1 14.2 30 77.1.5.4 128.1 130".split()  # noqa: SIM905
)
"""Classes whose geometry lies in functional groups, even of one frame."""

_IMAGES = "1 1.1 1.1.1 1.2 1.3 2 2.1 2.2 3.1 4 4.1 4.3 4.4 6.1 7 20 128 130".split()  # noqa: SIM905
"""Ends of the classes that are nothing without pixels: X-ray, CT, MR, PET, ..."""

VOLUMETRIC = ("CT", "MR", "PT")
"""Modalities whose single frames are slices."""

_CAPTURE = _STORAGE + "7"

DESCRIBED = "description~"
"""How a series is named by words of its description."""

SAME_PLACE = 1e-3
"""Millimetres within which two slices lie at one position."""

_SAME = 1e-4
"""What cosines, and spacings relative to their size, may differ by within a stack."""


@dataclass(frozen=True)
class Group:
    """Files of one image: slices, or a single object.

    Attributes:
        label: names the group: the series UID, with `/1`, `/2`, ... where several groups share it.
        found: the volumes it makes up, one for most.
    """

    label: str
    kind: Kind
    found: Volumes

    @property
    def headers(self) -> tuple[Header, ...]:
        """Headers of all files, volume after volume."""
        return tuple(header for volume in self.found.volumes for header in volume)

    @property
    def aside(self) -> bool:
        """Whether it is a localizer, ignored beside other images."""
        return "LOCALIZER" in self.found.volumes[0][0].image_type

    def line(self) -> str:
        """Line for choosing, without identifying text."""
        head = self.headers[0]
        volumes, count = len(self.found.volumes), len(self.found.volumes[0])
        what = f"{count} slice{'s'[: count - 1]}" if self.kind == "slices" else f"{self.kind} ({head.frames} frames)"
        what = f"{count} files, each {what}" if self.kind != "slices" and count > 1 else what
        what = "a mosaic" if head.mosaic else what
        what = f"{volumes} volumes ({self.found.axis.kind}) of {what}" if self.found.axis is not None else what
        description = shown_description(head.series_description)
        words = [head.modality or "unknown modality", *([f'"{description}"'] if description else [])]
        words += [f"{what} of {head.rows} x {head.columns}"]
        words += [facing(head)] if head.orientation else []
        words += [self._spacing()] if head.pixel_spacing else []
        words += [*told(head), *(word for word in ("localizer" if self.aside else "", self.found.value) if word)]
        return ", ".join(words)

    def _spacing(self) -> str:
        head, volume = self.headers[0], self.found.volumes[0]
        heights = np.unique(np.round(_slice_heights(volume), 3)) if self.kind == "slices" else np.empty(0)
        step = f" x {np.median(np.diff(heights)):.4g}" if len(heights) > 1 else ""
        down, across = head.pixel_spacing or (0.0, 0.0)
        return f"{down:g} x {across:g}{step} mm"


def gather(paths: Sequence[Path]) -> list[Header]:
    """Reads the headers of all DICOM files among files and folders.

    Files that are not DICOM are passed over inside folders, unless their names say that they are meant as slices: notes
    and tables lie beside images. Raises CaseError where a file that was named, or is named like the slices, is not
    DICOM; a DICOM file is damaged; or nothing is found.
    """
    headers: list[Header] = []
    unreadable: list[tuple[Path, int | None]] = []
    for path, named, size in _list_files(paths):
        header = read_header(path) if size else None
        if header is not None:
            wrong = damage(header, size or 0)
            if wrong:
                raise CaseError(f"{path}: {wrong}; write or copy it again")
            headers.append(header)
        elif named:
            raise CaseError(f"{path}: {_no_dicom(size)}; copy it again, or leave it out of the list")
        else:
            unreadable.append((path, size))
    shapes, suffixes = {shape_of(header.path) for header in headers}, {header.path.suffix.lower() for header in headers}
    for path, size in unreadable:
        # An empty file of their suffix is a slice that was not copied; others are marks that tools leave.
        if is_meant(path, shapes) or (not size and path.suffix.lower() in suffixes):
            raise CaseError(
                f"{path}: {_no_dicom(size)}, beside DICOM files or named like one; copy it again, or delete it"
            )
    if not headers:
        raise CaseError(f"{paths[0]}: holds no DICOM files")
    return headers


def _no_dicom(size: int | None) -> str:
    return "is a link to a file that is not there" if size is None else "is not DICOM" if size else "is empty"


def is_meant(path: Path, known: Collection[tuple[Path, str]]) -> bool:
    """Whether a non-DICOM file is named like DICOM."""
    return named_as_dicom(path) or shape_of(path) in known


def shape_of(path: Path) -> tuple[Path, str]:
    """Folder and name without numbers, shared by a series' slices."""
    return path.parent, re.sub(r"\d+", "#", path.name)


def _list_files(paths: Sequence[Path]) -> Iterator[tuple[Path, bool, int | None]]:
    """Files under paths, whether named, and size; None dangling."""
    for path in paths:
        if path.is_dir():
            yield from ((path / name, False, None if state is None else state.st_size) for name, state in walk(path))
        elif path.is_file():
            yield path, True, path.stat().st_size
        else:
            raise CaseError(f"{path}: no such file")


def damage(header: Header, size: int) -> str:
    """Damage of a file of `size`, which must not vanish silently.

    Left out, a series would end too early.
    """
    if header.pixel_offset is not None and header.pixel_offset + (header.pixel_length or 0) > size:
        return "is cut short within its pixels"
    kind = header.sop_class.removeprefix(_STORAGE)
    pictured = header.rows > 0 or kind in _IMAGES or kind.startswith(("7.", "12.", "13.1.", "77.1."))
    # Whatever belongs to a patient states its series, and a modality.
    nameless = not (header.modality or header.series_uid) and kind != header.sop_class
    if not header.has_pixels and (pictured or nameless or not (header.sop_class or header.modality)):
        return "is the header of an image without its pixels"
    return ""


def groups_of(headers: Sequence[Header]) -> list[Group]:
    """Groups headers into labelled images, by series number.

    Slices are one stack when they agree in patient, study, series, kind, orientation, size and pixel spacing.
    Where positions repeat, they are split by the acquisition, time, echo, b-value or image type that sets complete
    stacks apart. Headers without pixels are passed over.
    """
    singles: list[tuple[Kind, list[Header]]] = []
    stacks: list[list[Header]] = []
    for header in headers:
        if not header.has_pixels:
            continue
        kind = _header_kind(header)
        if kind != "slices":
            # Enhanced files of one series are its volumes, or parts of one.
            joined = next(
                (files for of, files in singles if of == kind == "frames" and _joins_series(header, files[0])), None
            )
            if joined is None:
                singles.append((kind, [header]))
            else:
                joined.append(header)
            continue
        stack = next((stack for stack in stacks if _belongs_together(header, stack[0])), None)
        if stack is None:
            stacks.append([header])
        else:
            stack.append(header)
    parts: list[tuple[Kind, Volumes]] = [(kind, Volumes((tuple(files),))) for kind, files in singles]
    for stack in stacks:
        parts += [("slices", part) for part in _split_stack(stack)]
    return _label_parts(sorted(parts, key=_in_list))


def _in_list(part: tuple[Kind, Volumes]) -> tuple[object, ...]:
    first, volumes = part[1].volumes[0][0], part[1]
    return (_series_number(first), first.series_uid, -sum(map(len, volumes.volumes)), volumes.value)


def choose(groups: Sequence[Group], series: str | None, path: Path) -> tuple[Group, list[str]]:
    """Picks the group to read, and notes what was left out.

    A series is a series UID, the label of a group, its number as the list shows it, or `description~` and a part of its
    SeriesDescription; None stands for the one that is clearly meant, beside which there are only localizers, single
    pictures and strays. Raises CaseError where
    there is no such group, or several could be meant; the message lists them.
    """
    if series is not None:
        wanted = [group for group in groups if series in (group.label, group.headers[0].series_uid)]
        wanted = wanted or [volume for group in groups if (volume := _one_volume(group, series)) is not None]
        by_number = zip(numbers([group.headers[0] for group in groups]), groups, strict=True)
        wanted = wanted or [group for number, group in by_number if number == series]
        if not wanted and (words := description_words(series)) is not None:
            wanted = _choose_described(groups, words, series, path)
        if not wanted:
            raise CaseError(f"{path}: holds no series {series}; it holds {_list_groups(groups)}")
        groups = wanted
    if len(groups) == 1:
        return groups[0], []
    inside = [group for group in groups if not group.aside]
    meant = [group for group in inside if group.kind == "frames" or len(group.headers) > 1] or inside
    if len(meant) != 1:
        raise CaseError(
            f"{path}: holds several images, say which with series=NUMBER or series=UID: {_list_groups(groups)}"
        )
    remaining = [group for group in groups if group is not meant[0]]
    for group in remaining:
        _require_other(group, meant[0])
    left_out = sum(len(group.headers) for group in remaining)
    why = sorted({_why_left(group, meant[0]) for group in remaining})
    return meant[0], [f"{left_out} of the images in the folder were left out: {', '.join(why)}"]


def _one_volume(group: Group, series: str) -> Group | None:
    """Volume of a series, labelled by group and number: `UID/2`."""
    label, _, number = series.rpartition("/")
    volumes = group.found.volumes
    if group.kind == "frames":
        volumes = tuple((header,) for header in sorted(volumes[0], key=lambda header: header.instance_number or 0))
    if label != group.label or not number.isdecimal() or not 0 < int(number) <= len(volumes):
        return None
    return Group(series, group.kind, replace(group.found, volumes=(volumes[int(number) - 1],), axis=None))


def _require_other(group: Group, meant: Group) -> None:
    """Refuses dropping a probable slice of the stack."""
    head, other_head = group.headers[0], meant.headers[0]
    names = ("modality", "sop_class", "frames")
    if (
        meant.kind != "slices"
        or group.aside
        or _series_key(head) != _series_key(other_head)
        or any(getattr(head, name) != getattr(other_head, name) for name in names)
    ):
        return
    if head.position is None or head.orientation is None:
        wrong = "has no ImagePositionPatient or no ImageOrientationPatient"
    elif not close(head.orientation, other_head.orientation):
        return  # such as a scout
    elif (head.rows, head.columns, head.samples) != (other_head.rows, other_head.columns, other_head.samples):
        wrong = f"has {head.rows} x {head.columns} rows and columns instead of {other_head.rows} x {other_head.columns}"
    else:
        wrong = "has another PixelSpacing, or none"
    raise CaseError(
        f"{head.path}: is of one series with {len(meant.headers)} slices, and {wrong}; copy it again, or read the "
        f"others alone with series={meant.label}"
    )


def _why_left(group: Group, meant: Group) -> str:
    head, other_head = group.headers[0], meant.headers[0]
    if group.aside:
        return "localizers"
    if group.kind != "slices":
        return {"picture": "pictures without a place in the patient"}.get(group.kind, group.kind)
    if _series_key(head) != _series_key(other_head):
        return "images of other series"
    if (head.modality, head.sop_class) != (other_head.modality, other_head.sop_class):
        return "images of other kinds"
    return "images of other orientations"


def description_words(series: str) -> str | None:
    """Casefolded words of `description~WORDS`; None for other names."""
    return series.removeprefix(DESCRIBED).strip().casefold() if series.startswith(DESCRIBED) else None


def _choose_described(groups: Sequence[Group], words: str, series: str, path: Path) -> list[Group]:
    """Groups of the series described by words; CaseError for several."""
    matches = [group for group in groups if words and words in group.headers[0].series_description.casefold()]
    if len({_series_key(group.headers[0]) for group in matches}) > 1:
        raise CaseError(
            f"{path}: {series} fits {len(matches)} images, name one of them: {_list_groups(matches, groups)}"
        )
    return matches


def _list_groups(groups: Sequence[Group], among: Sequence[Group] = ()) -> str:
    """Groups by overall number, with start after the first."""
    among = among or groups
    by_group = dict(zip(map(id, among), numbers([group.headers[0] for group in among]), strict=True))
    starts = [began(group.headers) for group in groups[:12]]
    times = [start for start in starts if start is not None]
    lines = []
    for group, start in zip(groups[:12], starts, strict=True):
        later = (
            f", begun {start - min(times):.0f} s after the first" if start is not None and start > min(times) else ""
        )
        lines.append(f"{by_group[id(group)]}) {group.line()}{later}: series={group.label or '(empty UID)'}")
    return "; ".join(lines) + (f"; and {len(groups) - 12} more" if len(groups) > 12 else "")


def _header_kind(header: Header) -> Kind:
    if header.sop_class in SEGMENTATIONS:
        return "labels"
    if header.sop_class == DOSE or header.modality == "RTDOSE":
        return "dose"
    if header.sop_class in _FRAMED:
        return "frames"
    placed = header.position is not None and header.orientation is not None
    volumetric = header.modality in VOLUMETRIC and not header.sop_class.startswith(_CAPTURE)
    if header.mosaic:
        return "slices"
    if header.frames > 1:
        return "frames" if volumetric or placed or header.modality == "NM" else "picture"
    return "slices" if placed or volumetric else "picture"


def _series_key(header: Header) -> tuple[str, ...]:
    # Converters are known to give the series of two patients, or of two studies, one UID.
    named = (header.series_uid,) if header.series_uid else ("", header.series_number, header.series_description)
    return (header.patient, header.study_uid, *named)


def _series_number(header: Header) -> tuple[int, str]:
    number = header.series_number
    return (int(number), "") if number.isdecimal() else (1 << 31, number)


def _belongs_together(header: Header, other: Header) -> bool:
    return (
        _series_key(header) == _series_key(other)
        and (header.rows, header.columns, header.samples) == (other.rows, other.columns, other.samples)
        and (header.modality, header.sop_class) == (other.modality, other.sop_class)
        and ("LOCALIZER" in header.image_type) == ("LOCALIZER" in other.image_type)
        and (header.position is None) == (other.position is None)
        and close(header.orientation, other.orientation)
        and close(header.pixel_spacing, other.pixel_spacing)
    )


def close(some: tuple[float, ...] | None, others: tuple[float, ...] | None) -> bool:
    """Whether cosines or spacings agree, but for written precision."""
    if some is None or others is None:
        return some is others
    return some == others or all(
        abs(first - second) <= _SAME * max(1.0, abs(second)) for first, second in zip(some, others, strict=True)
    )


def _joins_series(header: Header, other: Header) -> bool:
    names = ("sop_class", "modality", "rows", "columns", "samples", "photometric", "bits_allocated", "image_type")
    return (
        header.sop_class in _FRAMED
        and bool(header.series_uid)
        and _series_key(header) == _series_key(other)
        and all(getattr(header, name) == getattr(other, name) for name in names)
    )


def _label_parts(parts: Sequence[tuple[Kind, Volumes]]) -> list[Group]:
    uids = [volumes.volumes[0][0].series_uid for _, volumes in parts]
    groups = []
    for index, (kind, volumes) in enumerate(parts):
        uid = uids[index]
        label = uid if uids.count(uid) == 1 else f"{uid}/{uids[: index + 1].count(uid)}"
        groups.append(Group(label, kind, volumes))
    return groups


def facing(header: Header) -> str:
    """Which way a slice lies: sagittal, coronal, axial or oblique."""
    normal = np.abs(normal_of(header))
    return ("sagittal", "coronal", "axial")[int(normal.argmax())] if normal.max() > 0.9 else "oblique"


def normal_of(header: Header) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The direction slices are stacked in, LPS: float64, (3,)."""
    cosines = np.array(header.orientation or (1, 0, 0, 0, 1, 0), dtype=np.float64)
    normal = np.cross(cosines[:3], cosines[3:])
    return normal / (np.linalg.norm(normal) or 1.0)


def _split_stack(stack: list[Header]) -> list[Volumes]:
    """Splits slices with repeated positions into volumes; else one."""
    if len(stack) == 1 or any(header.position is None and not header.mosaic for header in stack):
        return [Volumes((tuple(stack),))]
    # A mosaic is a volume by itself, wherever it says that it lies.
    heights = np.array([0.0] * len(stack) if stack[0].mosaic else _slice_heights(stack))
    if not stack[0].mosaic and (np.diff(np.sort(heights)) > SAME_PLACE).all():
        return [Volumes((tuple(stack),))]
    return volumes_of([Slice(header, volume_facts(header)) for header in stack], heights)


def _slice_heights(headers: Sequence[Header]) -> list[float]:
    normal = normal_of(headers[0]).tolist()
    return [
        sum(coordinate * component for coordinate, component in zip(header.position or (0, 0, 0), normal, strict=True))
        for header in headers
    ]
