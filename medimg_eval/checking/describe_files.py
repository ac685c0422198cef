"""What a file or folder is, in plain words, and every doubt about it: what `check path=...` prints."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from medimg_eval.case import Array, Image, Mask
from medimg_eval.errors import CaseError
from medimg_eval.imaging.formats import identify
from medimg_eval.imaging.geometry import orientation
from medimg_eval.imaging.library_logs import kept_log
from medimg_eval.imaging.reading import guarded, read, read_mask
from medimg_eval.imaging.volumes import format_name, header_of
from medimg_eval.system import walk

if TYPE_CHECKING:
    from medimg_eval.imaging.dicom import Group

FEW = 40
"""Distinct whole numbers up to which an image may be a label map."""


@dataclass(frozen=True)
class Description:
    """One image, or files that are none.

    Attributes:
        path: the file, or the folder of a series.
        kind: what it is, such as `CT series of 30 files`.
        facts: name -> text: shape, spacing, orientation, values, labels.
        doubts: what is odd about it, one sentence each; nothing that identifies a patient.
        readable: False when its reader refused it; the last doubt says why.
    """

    path: Path
    kind: str
    facts: dict[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    readable: bool = True


def describe(path: str | Path) -> Iterator[Description]:
    """Describes a file or folder of images, grouping DICOM series.

    Raises:
        CaseError: there is no such file or folder, or the folder is empty.
    """
    path = Path(path)
    if not path.is_dir():
        yield from _describe_by_kind([path], named=True)
        return
    entries = sorted((name, state is not None) for name, state in walk(path))
    if not entries:
        raise CaseError(f"{path}: holds no files")
    for name, there in entries:
        if not there:
            doubt = f"{path / name}: is a link to nowhere; fetch the file it stands for"
            yield Description(path / name, "link", doubts=(doubt,), readable=False)
    yield from _describe_by_kind([path / name for name, there in entries if there], named=False)


def _describe_by_kind(files: Sequence[Path], *, named: bool) -> Iterator[Description]:
    from medimg_eval.imaging.dicom import is_meant, shape_of

    families: dict[Path, str | CaseError] = {}
    for file in files:
        try:
            families[file] = identify(file)
        except CaseError as error:
            if named:
                raise
            families[file] = error
    dicom = [file for file, family in families.items() if family == "dicom"]
    shapes = {shape_of(file) for file in dicom}
    remaining: list[Path] = []
    for file, family in families.items():
        empty = file.stat().st_size == 0
        if empty or (family not in ("dicom", "slide") and is_meant(file, shapes)):
            wrong = "is empty" if empty else "is not DICOM, and named as if it were"
            doubt = f"{file}: {wrong}; copy it again, or delete it"
            yield Description(file, "empty file" if empty else "file", doubts=(doubt,), readable=False)
        elif isinstance(family, CaseError):
            remaining.append(file)
        elif family != "dicom" and (named or header_of(file) is None):  # a pair is described once, at its header
            yield _describe_file(file, family)
    if dicom:
        yield from _describe_dicom(dicom)
    if remaining:
        suffixes = Counter(file.suffix.lower() or "no suffix" for file in remaining)
        counts = ", ".join(f"{count} x {suffix}" for suffix, count in suffixes.most_common(5))
        yield Description(Path(os.path.commonpath(remaining)), f"{len(remaining)} other files ({counts})")


def _describe_file(file: Path, family: str) -> Description:
    try:
        with guarded([file]) as notes:
            kind, facts, doubts = _FACTS[family](file)
            with kept_log("nibabel.global"), kept_log("tifffile"):  # said once already
                doubts += _identifying_facts([file])
    except CaseError as error:
        return Description(file, family, doubts=(str(error),), readable=False)
    return Description(file, kind, facts, (*doubts, *notes))


def _identifying_facts(files: Sequence[Path]) -> list[str]:
    """Identifying facts in the first header and file names."""
    from medimg_eval.deid import identities, scan, scan_names

    doubts = scan(files[0])
    doubts += scan_names(files, identities(files[0]) if identify(files[0]) == "dicom" else {})
    sentences = []
    for kind, words in _FILLED.items():
        tags = dict.fromkeys(doubt.tag for doubt in doubts if doubt.kind == kind and "is filled" in doubt.what)
        sentences += [f"{words}: {', '.join(tags)}"] if tags else []
    counts = Counter(doubt.what for doubt in doubts if doubt.kind not in _FILLED or "is filled" not in doubt.what)
    return sentences + [what if count == 1 else f"{what} ({count} files)" for what, count in counts.items()]


_FILLED = {
    "identity": "attributes that identify are filled",
    "date": "dates are filled, and the file does not say that they were changed",
    "text": "free text is filled, which may hold a name",
}


def _describe_dicom(files: Sequence[Path]) -> Iterator[Description]:
    """Describes DICOM files; those that gzip has compressed by their copies."""
    from medimg_eval.imaging.dicom import renamed, unpacked

    with unpacked(files) as plain:
        names = {str(copy): str(file) for copy, file in zip(plain, files, strict=True) if copy != file}
        if not names:
            yield from _describe_series(plain)
            return
        folder = os.path.commonpath([copy.parent for copy in plain if str(copy) in names])
        names |= {folder: os.path.commonpath([Path(name).parent for name in names.values()])}
        for description in _describe_series(plain):
            doubts = tuple(renamed(doubt, names) for doubt in description.doubts)
            yield replace(description, path=Path(renamed(str(description.path), names)), doubts=doubts)


def _describe_series(files: Sequence[Path]) -> Iterator[Description]:
    from medimg_eval.imaging.dicom import Header, gather, groups_of, numbers

    headers: list[Header] = []
    for file in files:
        try:
            headers += gather([file])
        except CaseError as error:
            yield Description(file, "DICOM", doubts=(str(error),), readable=False)
    grouped = groups_of(headers)
    for number, group in zip(numbers([group.headers[0] for group in grouped]), grouped, strict=True):
        yield _describe_group(group, number)
    inside = {header.path for group in grouped for header in group.headers}
    for header in headers:
        if header.path not in inside:
            doubts = tuple(_identifying_facts([header.path]))
            yield Description(header.path, f"DICOM without pixels ({header.modality or 'no modality'})", {}, doubts)


_ALONE = {"slices": "single slice"}


def _describe_group(group: Group, number: str) -> Description:
    head = group.headers[0]
    paths = [header.path for header in group.headers]
    identifying = _identifying_facts(paths)
    path = paths[0] if len(paths) == 1 else Path(os.path.commonpath(paths))
    many = f"series of {len(paths)} files" if len(paths) > 1 else _ALONE.get(group.kind, group.kind)
    kind = f"DICOM {head.modality or 'without modality'} {many}" + (", localizer" if group.aside else "")
    try:
        if group.kind == "labels":
            facts, doubts = _mask_facts(read_mask(paths))
        else:
            image = read(paths)
            facts, doubts = _image_facts(image)
    except CaseError as error:
        named = {"series": f"{number}, {group.line()}"}
        return Description(path, kind, named, doubts=(*identifying, str(error)), readable=False)
    return Description(path, kind, {"series": f"{number}, {group.line()}"} | facts, (*doubts, *identifying))


def _describe_volume(file: Path) -> tuple[str, dict[str, str], list[str]]:
    return (f"{format_name(file)} volume", *_image_facts(read(file)))


def _describe_picture(file: Path) -> tuple[str, dict[str, str], list[str]]:
    image = read(file)
    return (f"{image.attributes['format']} picture", *_image_facts(image))


def _describe_slide(file: Path) -> tuple[str, dict[str, str], list[str]]:
    from medimg_eval.imaging.slides import Slide

    with Slide(file) as slide:
        step = slide.um_per_px
        facts = {
            "shape": f"{slide.size[0]} x {slide.size[1]} (row x column)",
            "spacing": "unknown" if step is None else f"{step[0]:g} x {step[1]:g} um",
            "levels": ", ".join(f"1/{max(level.downsample):.3g}" for level in slide.levels),
            "vendor": slide.vendor or "unknown",
        }
        return "slide", facts, list(slide.doubts)


def _describe_video(file: Path) -> tuple[str, dict[str, str], list[str]]:
    from medimg_eval.imaging.video import Video

    with Video(file) as video:
        steps = np.diff(video.times)
        uneven = len(steps) > 1 and float(np.ptp(steps)) > 0.1 * float(np.median(steps))
        doubts = ["frames do not follow each other evenly: name them by time"] if uneven else []
        facts = {
            "shape": f"{video.shape[0]} frames of {video.shape[1]} x {video.shape[2]} (row x column)",
            "rate": "unknown: a single frame" if video.fps is None else f"{video.fps:.4g} frames a second",
        }
        return "video", facts, [*doubts, *video.notes]


def _describe_arrays(file: Path) -> tuple[str, dict[str, str], list[str]]:
    from medimg_eval.imaging.arrays import Bundle

    headers = Bundle(file).headers
    return (
        "arrays",
        {key: f"{' x '.join(map(str, header.shape))} {header.dtype}" for key, header in headers.items()},
        [],
    )


_FACTS = {
    "volume": _describe_volume,
    "picture": _describe_picture,
    "slide": _describe_slide,
    "video": _describe_video,
    "array": _describe_arrays,
}


def _image_facts(image: Image) -> tuple[dict[str, str], list[str]]:
    array = image.array
    channels = f", {array.shape[0]} channels" if array.shape[0] > 1 else ""
    facts = {"shape": " x ".join(map(str, array.shape[1:])) + channels}
    facts |= _placement_facts(image)
    low, high = (array.min(), array.max()) if array.size else (0, 0)
    facts["values"] = f"{array.dtype}, {low:g} to {high:g}" if array.dtype.kind != "c" else str(array.dtype)
    doubts = list(image.notes)
    if array.size and low == high:
        doubts.append("every voxel has the same value")
    labels = _describe_labels(array)
    if labels:
        facts["labels"] = labels
        if array.dtype.kind == "f":
            doubts.append(f"few whole numbers stored as {array.dtype}: if these are labels, store integers")
    return facts, doubts


def _mask_facts(mask: Mask) -> tuple[dict[str, str], list[str]]:
    facts = {"shape": " x ".join(map(str, mask.labels.shape))} | _placement_facts(mask)
    facts["labels"] = ", ".join(f"{label} {name}" for label, name in mask.names.items()) or _describe_labels(
        mask.labels[None]
    )
    return facts, list(mask.notes) + ([] if mask.labels.any() else ["the segmentation is empty"])


def _placement_facts(thing: Image | Mask) -> dict[str, str]:
    grid = thing.geometry
    if grid.units == "pixel":
        return {"spacing": "unknown: the file states no physical size"}
    facts = {"spacing": " x ".join(f"{step:.4g}" for step in grid.spacing) + " mm"}
    if len(grid.shape) == 3:
        cosines = grid.affine[:3, :3] / np.linalg.norm(grid.affine[:3, :3], axis=0)
        off = float(np.degrees(np.arccos(np.clip(np.abs(cosines).max(axis=0).min(), 0, 1))))
        facts["orientation"] = orientation(grid.affine) + (f", {off:.1f} degrees oblique" if off > 0.1 else "")
    return facts


def _describe_labels(array: Array) -> str:
    """Labels with their share of voxels, for label-like values."""
    if array.shape[0] != 1 or array.size == 0 or array.dtype.kind not in "iubf":
        return ""
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 1000:
        return ""
    if array.dtype.kind == "f" and not np.array_equal(np.rint(array), array):
        return ""
    counts = np.bincount(array.astype(np.intp).ravel(order="K"))
    indices = np.flatnonzero(counts)
    if len(indices) > FEW:
        return ""
    return ", ".join(f"{label} ({100 * counts[label] / array.size:.2g} %)" for label in indices)
