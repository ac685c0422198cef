"""What lies beside the pixels of other formats: fields of NIfTI headers, EXIF and comments of pictures, side-cars."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from medimg_eval.deid import quick_scan as phi
from medimg_eval.deid.attributes import side_car
from medimg_eval.deid.ps3_15 import WORDS, rules
from medimg_eval.deid.values import Finding, dummy_kind, mask, names_nobody, suspicions, text_of
from medimg_eval.errors import CaseError
from medimg_eval.metrics.phi import Vocabulary

LARGEST = 1 << 24
"""Bytes of a JSON file above which it is no side-car."""

_PROGRAM = re.compile(
    r"(?i)^\W*(FSL\s*v?\d|\d+\.\d+\.\d+|SPM|dcm2nii|nibabel|ANTs|ITK|AFNI|FreeSurfer|mrtrix|MONAI|SimpleITK|TE="
    r"|\dT 3?D?)[\w .:;,=/()+-]*$"
)
_CLOCK = re.compile(r"(?i)\btime\s*=\s*\d{6}")
_HEAD = re.compile(r"_(T1w|T2w|FLAIR|PDw|T2starw|MP2RAGE|UNIT1|inplaneT[12]|angio)\.nii")
_WITHOUT_FACE = re.compile(r"(?i)defac|skull|brain|strip|bet\b|mask|_res-")

_EXIF = {
    0x010D: "DocumentName",
    0x010E: "ImageDescription",
    0x0132: "DateTime",
    0x013B: "Artist",
    0x013C: "HostComputer",
    0x8298: "Copyright",
    0x83BB: "IPTC",
    0x8825: "GPSInfo",
    0x9003: "DateTimeOriginal",
    0x9004: "DateTimeDigitized",
    0x927C: "MakerNote",
    0x9286: "UserComment",
    0x9C9B: "XPTitle",
    0x9C9C: "XPComment",
    0x9C9D: "XPAuthor",
    0x9C9E: "XPKeywords",
    0x9C9F: "XPSubject",
    0xA420: "ImageUniqueID",
    0xA430: "CameraOwnerName",
    0xA431: "BodySerialNumber",
    0xA435: "LensSerialNumber",
    0x02BC: "XMP",
}
"""Tags of EXIF and TIFF that name somebody, a place, a device or a time, or hold words."""

_FREE = frozenset(["ImageDescription", "DocumentName", "XMP", "IPTC", "Software"])
"""Those of them that programs write as well: judged by what they hold."""

_DATES = re.compile(r"(?i)date|time|creation")
_PEOPLE = re.compile(r"(?i)author|artist|owner|patient|operator|physician|name|serial|gps|host|copyright|institution")


def volume_findings(path: Path, terms: Vocabulary) -> list[Finding]:
    """Scans NIfTI, MetaImage, NRRD or PAR headers, and head-like names.

    Raises CaseError where the header cannot be read.
    """
    findings = []
    values = _nifti_texts(path)
    for doubt in phi.scan(path):
        text = values.get(doubt.tag, "")
        if doubt.tag in values and _PROGRAM.match(text):
            findings += _judge_text(path, doubt.tag, text, terms)
            if _CLOCK.search(text):
                findings.append(Finding(path, "date", doubt.tag, "holds the hour of the scan", masked=mask(text)))
            continue
        findings.append(
            Finding(path, doubt.kind, doubt.tag or "extension", doubt.what, _rule_action(doubt.tag), masked=mask(text))
        )
    if _HEAD.search(path.name) and not _WITHOUT_FACE.search(path.name):
        findings.append(Finding(path, "surface", "", "a volume of the head shows the face", level="look"))
    return findings


def _nifti_texts(path: Path) -> dict[str, str]:
    """The texts of a NIfTI header; none of another format."""
    if not path.name.lower().endswith((".nii", ".nii.gz", ".hdr", ".img")):
        return {}
    import nibabel as nib

    try:
        image: Any = nib.load(path)
    except Exception:  # noqa: BLE001 - `phi.scan` says what is wrong
        return {}
    _, texts = phi.header_texts(image)
    return {name: text_of(texts[name]) for name in ("descrip", "aux_file", "db_name", "intent_name") if name in texts}


def _rule_action(keyword: str) -> str:
    from pydicom.datadict import tag_for_keyword

    tag = tag_for_keyword(keyword) if keyword else None
    rule = rules().get(int(tag)) if tag is not None else None
    return f"{rule.action}: {WORDS[rule.action]}" if rule is not None else ""


def _judge_text(path: Path, attribute: str, text: str, terms: Vocabulary) -> list[Finding]:
    return [Finding(path, "text", attribute, what, masked=mask(text)) for what in suspicions(text, terms)]


def json_findings(path: Path, terms: Vocabulary, keep: Collection[str], left_out: Counter[str]) -> list[Finding]:
    """Scans a JSON side-car: DICOM attributes and texts.

    Raises CaseError where the file is no JSON, or too large for a side-car.
    """
    if path.stat().st_size > LARGEST:
        raise CaseError(f"{path}: is larger than a side-car ({LARGEST >> 20} MiB), and was not looked at")
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, OSError, RecursionError):
        raise CaseError(f"{path}: cannot be read as JSON; write or copy it again") from None
    try:
        return side_car(values if isinstance(values, dict) else {"": values}, path, terms, keep, left_out)
    except RecursionError:
        raise CaseError(f"{path}: is nested too deeply for a side-car") from None


def picture_findings(path: Path, terms: Vocabulary, left_out: Counter[str]) -> list[Finding]:
    """Scans EXIF, XMP, comments and text chunks, never pixels.

    Raises CaseError where the header cannot be read.
    """
    findings: dict[str, Finding] = {}
    try:
        for field, value in _text_fields(path):
            for finding in _judge_field(path, field, text_of(value), terms, left_out):
                findings.setdefault(f"{field} {finding.rule}", finding)
    except CaseError:
        raise
    except Exception:  # noqa: BLE001 - each of Pillow's formats has errors of its own
        raise CaseError(f"{path}: its header cannot be read; write or copy it again") from None
    return list(findings.values())


def _judge_field(path: Path, field: str, text: str, terms: Vocabulary, left_out: Counter[str]) -> list[Finding]:
    if names_nobody("LT", text):
        return []
    named = field.rpartition(" ")[2]
    if named not in _FREE:
        if _DATES.search(named):
            day = re.sub(r"[-:./T ]", "", text)
            if names_nobody("DT", day):
                left_out[dummy_kind("DT", day)] += 1
                return []
            return [Finding(path, "date", field, "is filled", masked=mask(text))]
        if _PEOPLE.search(named) or named in _EXIF.values():
            return [Finding(path, "identity", field, "is filled", masked=mask(text))]
    return _judge_text(path, field, text, terms)


def _text_fields(path: Path) -> Iterator[tuple[str, Any]]:
    """Named texts of a picture, also behind a PNG's pixels."""
    from PIL import Image

    with path.open("rb") as stream:
        png = stream.read(8) == b"\x89PNG\r\n\x1a\n"
        if png:
            yield from _png_chunks(stream)
    with Image.open(path) as picture:
        exif = picture.getexif()
        for part in (exif, exif.get_ifd(0x8769)):
            yield from ((f"EXIF {_EXIF[tag]}", value) for tag, value in part.items() if tag in _EXIF and tag != 0x8825)
        if exif.get_ifd(0x8825):
            yield "EXIF GPSInfo", "a place"
        for key, value in picture.info.items():
            technical = png or key in ("exif", "icc_profile", "compression", "version")
            if isinstance(value, str | bytes) and not technical:
                yield str(key), value


def _png_chunks(stream: Any) -> Iterator[tuple[str, str]]:
    while len(head := stream.read(8)) == 8:
        length, kind = int.from_bytes(head[:4], "big"), head[4:]
        if kind not in (b"tEXt", b"zTXt", b"iTXt"):
            stream.seek(length + 4, 1)
            continue
        key, _, text = stream.read(length).partition(b"\0")
        stream.seek(4, 1)
        yield f"text {key.decode('latin-1')}", text_of(_inflate_chunk(kind, text))


def _inflate_chunk(kind: bytes, rest: bytes) -> bytes:
    if kind == b"iTXt":
        packed, rest = rest[:1] == b"\1", rest[2:].split(b"\0", 2)[-1]
        return zlib.decompress(rest) if packed else rest
    return zlib.decompress(rest[1:]) if kind == b"zTXt" else rest


def slide_findings(path: Path, terms: Vocabulary, left_out: Counter[str]) -> list[Finding]:
    """Scans a slide's metadata, and looks for its label picture.

    Raises CaseError where the slide cannot be opened.
    """
    import openslide

    try:
        with openslide.OpenSlide(path) as slide:
            texts, pictures = dict(slide.properties), set(slide.associated_images)
    except openslide.OpenSlideError:
        return picture_findings(path, terms, left_out)
    findings = [
        finding
        for key, value in texts.items()
        if not key.startswith(("openslide.", "tiff.X", "tiff.Y", "tiff.Res"))
        for finding in _judge_field(path, key.replace(".", " "), text_of(value), terms, left_out)
    ]
    what = "holds a picture of a label or of the whole glass, which may show a name"
    findings += [Finding(path, "pixels", name, what, level="look") for name in sorted({"label", "macro"} & pictures)]
    return findings
