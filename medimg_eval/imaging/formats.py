"""Which family of formats a file or folder belongs to, by its content; names decide only where content cannot."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from medimg_eval.errors import CaseError
from medimg_eval.system import walk

FAMILIES = {
    "dicom": "medimg_eval.imaging.dicom.reading",
    "volume": "medimg_eval.imaging.volumes.reading",
    "picture": "medimg_eval.imaging.pictures.reading",
    "video": "medimg_eval.imaging.video.reading",
    "slide": "medimg_eval.imaging.slides.reading",
    "array": "medimg_eval.imaging.arrays",
}
"""The module that reads each family: it has `read(paths, **options)` and `grid(paths, **options)`."""

HEAD = 4096
"""Bytes looked at."""

SLIDE_SUFFIXES = (".svs", ".ndpi", ".mrxs", ".scn", ".bif", ".vms", ".vmu", ".svslide")
"""Slides that content alone would take for a plain TIFF or JPEG."""

BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
"""Sizes of the second header of a BMP file, which tell it from a text."""

SLIDE_CLASS = b"1.2.840.10008.5.1.4.1.1.77.1.6"
"""SOP class of whole-slide microscopy."""

SEGMENTATION_CLASS = b"1.2.840.10008.5.1.4.1.1.66."
"""How the SOP classes of segmentations begin."""

_DICOM_NAME = re.compile(r"\.(dcm|dicom|dic|ima)(\.gz)?$", re.IGNORECASE)


def identify(path: str | Path) -> str:
    """Returns the family of a file or folder, of `FAMILIES`.

    Raises:
        CaseError: there is no such file, it is empty, or of no known format; or a folder holds images of several kinds.
    """
    path = Path(path)
    if path.is_dir():
        return survey(path)[0]
    if path.exists() and not path.is_file():
        raise CaseError(f"{path}: is neither a file nor a folder")  # opening a pipe would wait for ever
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD)
    except OSError as error:
        raise CaseError(
            f"{path}: no such file" if not path.exists() else f"{path}: cannot be opened ({error})"
        ) from error
    if not head:
        raise CaseError(f"{path}: is empty; write or copy it again")
    family = "slide" if path.suffix.lower() in SLIDE_SUFFIXES else _by_content(path, head)
    if family is None:
        raise CaseError(
            f"{path}: is of no known image format; expected DICOM, NIfTI, MetaImage, NRRD, Analyze, b2nd, PNG, JPEG, "
            "TIFF, BMP, video, slide, npy, npz or HDF5"
        )
    return family


def _by_content(path: Path, head: bytes) -> str | None:
    if head[:2] == b"\x1f\x8b":
        return _compressed_format(path)
    if _is_dicom(head):
        # A segmentation of a slide names the slide's class, too.
        return "slide" if SLIDE_CLASS in head and SEGMENTATION_CLASS not in head else "dicom"
    if _is_volume(path, head):
        return "volume"
    if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        from medimg_eval.imaging.slides import is_slide

        return "slide" if is_slide(path) else "picture"
    # An .mp4 names itself after four bytes, an .avi twice; a zip file may be anything but for its name.
    signatures = {
        "picture": head.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a"))
        or (head[:2] == b"BM" and int.from_bytes(head[14:18], "little") in BMP_HEADERS),  # a table may start with BMI
        "video": head[4:8] == b"ftyp"
        or head.startswith((b"\x1aE\xdf\xa3", b"\0\0\1\xba", b"\x30\x26\xb2\x75", b"FLV\1"))
        or head[0:1] == head[188:189] == b"G"  # a transport stream marks every 188 bytes
        or (head[:4] == b"RIFF" and head[8:11] == b"AVI"),
        "array": head.startswith((b"\x93NUMPY", b"\x89HDF\r\n\x1a\n"))
        or (head[:4] == b"PK\3\4" and path.suffix == ".npz"),
    }
    return next((family for family, fits in signatures.items() if fits), None)


def _compressed_format(path: Path) -> str | None:
    # A damaged .nii.gz is still meant as a volume, a .dcm.gz as DICOM: its reader says what is wrong with it.
    try:
        with gzip.open(path) as stream:
            head = stream.read(HEAD)
    except (OSError, EOFError, zlib.error):
        return "dicom" if named_as_dicom(path) else "volume"
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    if _is_volume(plain, head):
        return "volume"
    return "dicom" if plain != path and head[128:132] == b"DICM" else None


def _is_dicom(head: bytes) -> bool:
    if head[128:132] == b"DICM":
        return True
    # Without a preamble a file starts with its first element: group 2 or 8, a low element, a short value.
    group, element = int.from_bytes(head[:2], "little"), int.from_bytes(head[2:4], "little")
    explicit = head[4:6].isalpha() and head[4:6].isupper()
    length = int.from_bytes(head[6:8] if explicit else head[4:8], "little")
    return group in (2, 8) and element <= 0x70 and length <= 256 and len(head) > 8


def _is_volume(path: Path, head: bytes) -> bool:
    header_size = {int.from_bytes(head[:4], order) for order in ("little", "big")}
    return (
        bool(header_size & {348, 540})
        or head.startswith(b"NRRD000")
        or head[2:9] == b"b2frame"
        or (path.suffix.lower() in (".mha", ".mhd") and b"=" in head)
        or path.name.lower().endswith((".nii", ".img", ".hdr", ".mgh", ".mgz", ".mnc", ".par", ".head"))
    )


def named_as_dicom(path: Path) -> bool:
    """Whether a file's name says that it is DICOM, whatever it holds."""
    return _DICOM_NAME.search(path.name) is not None


def survey(folder: Path) -> tuple[str, list[str]]:
    """Returns a folder's family, and skipped files in sentences.

    Raises CaseError where it holds no image, images of several kinds, or files that are to be named one by one; the
    message counts what there is.
    """
    kinds: dict[str, list[Path]] = {}
    for name, _ in walk(folder):
        file = folder / name
        try:
            family = identify(file)
        except CaseError:  # notes and tables lie beside images
            # What is named like DICOM is meant as such: its reader says what is wrong with it.
            family = "dicom" if named_as_dicom(file) else "document" if file.suffix.lower() == ".pdf" else ""
        kinds.setdefault(family, []).append(file)
    images = {family: files for family, files in kinds.items() if family in FAMILIES}
    if not images:
        raise CaseError(f"{folder}: holds no image; expected the files of one DICOM series, or the frames of one clip")
    if len(images) > 1:
        images.pop("picture", None)  # such as a logo, or what was exported for a talk
    if len(images) > 1:
        named = " and ".join(f"{files[0]} ({family})" for family, files in images.items())
        raise CaseError(
            f"{folder}: holds {_census(kinds)}. {named} are images of several kinds, and either may be meant; name the "
            "one to read, or move the other out of the folder"
        )
    ((family, files),) = images.items()
    if family not in ("dicom", "slide", "picture"):
        many = "" if len(kinds) == len(files) == 1 else f", and holds {_census(kinds)}"
        raise CaseError(f"{folder}: is a folder; name the file, such as {files[0]}{many}")
    passed = [file for family_ in ("picture", "document") if family_ != family for file in kinds.get(family_, [])]
    notes = [f"{len(passed)} other files in the folder were passed over, such as {passed[0].name}"] if passed else []
    return "video" if family == "picture" else family, notes


def family_of(paths: Sequence[Path]) -> tuple[str, list[str]]:
    """Family of paths read as one image, else as `survey`."""
    by_family: dict[str, Path] = {}
    notes: list[str] = []
    for path in paths:
        try:
            family, passed = survey(path) if path.is_dir() else (identify(path), [])
        except CaseError:
            if not by_family:
                raise
            continue  # the reader of the family says what is wrong with it
        by_family.setdefault(family, path)
        notes += passed
    if len(by_family) > 1:
        named = " and ".join(f"{path} ({family})" for family, path in by_family.items())
        raise CaseError(f"{named}: are images of several kinds, which are not read as one; name the files of one image")
    return next(iter(by_family)), notes


def _census(found: Mapping[str, Sequence[Path]]) -> str:
    """File counts by family and suffix: `2 dicom (2 .dcm), 1 volume`."""
    counted = []
    for family, files in sorted(found.items(), key=lambda item: (item[0] not in FAMILIES, -len(item[1]))):
        endings = Counter("".join(file.suffixes[-2:] if file.suffix == ".gz" else [file.suffix]) for file in files)
        kinds = [f"{count} {ending or 'without ending'}" for ending, count in endings.most_common(3)]
        remaining = len(files) - sum(count for _, count in endings.most_common(3))
        counted.append(
            f"{len(files)} {family or 'other'} ({', '.join([*kinds, *([f'{remaining} more'] if remaining else [])])})"
        )
    return ", ".join(counted)
