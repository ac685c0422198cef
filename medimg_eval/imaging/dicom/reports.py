"""Structured reports: the measurements of a TID 1500 report, or of any report that nests its numbers alike."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medimg_eval.errors import CaseError

TRACKING = ("DCM:112039",)
FINDING = ("DCM:121071",)
SITE = ("SCT:363698007", "SRT:G-C0E3")
DERIVATION = ("DCM:121401",)
LIBRARY = ("DCM:111028",)
"""The report's list of images, whose numbers (pixel spacing, ...) were not measured."""


@dataclass(frozen=True)
class Measurement:
    """One number of a report.

    Attributes:
        name: what was measured, in words, such as `Diameter`.
        code: the same as `SCHEME:VALUE`, such as `SCT:81827009`.
        value: the number; NaN where the report says that there is none.
        unit: UCUM code such as `mm`; empty where there is no value.
        derivation: such as `Mean`; empty when the number is measured directly.
        tracking: identifier of the lesion, equal in all reports that follow it; empty without.
        finding: what the lesion is.
        site: where it is.
        images: SOP instance UIDs of the images or segmentations it was measured on.
        segments: numbers of the segments it was measured on.
    """

    name: str
    code: str
    value: float
    unit: str
    derivation: str = ""
    tracking: str = ""
    finding: str = ""
    site: str = ""
    images: tuple[str, ...] = ()
    segments: tuple[int, ...] = ()


def measurements(path: Path) -> list[Measurement]:
    """Reads the measurements of a structured report, in its order.

    A measurement takes its lesion, finding, site and images from the innermost group that states them, or
    from its own content.

    Raises:
        CaseError: the file is no structured report, or a number in it is damaged.
    """
    from pydicom import dcmread

    dataset = dcmread(path, force=True)
    if "ContentSequence" not in dataset:
        raise CaseError(
            f"{path}: is no structured report; expected content items, got modality {dataset.get('Modality')}"
        )
    return list(_walk(dataset, Measurement("", "", math.nan, ""), path))


def _walk(item: Any, context: Measurement, path: Path) -> Iterator[Measurement]:
    """Numbers below a content item; `context` is what the items above say."""
    context = _stated(item, context)
    for child in item.get("ContentSequence") or []:
        if _code(child.get("ConceptNameCodeSequence")) in LIBRARY:
            continue
        if child.get("ValueType") == "NUM":
            yield _number(child, context, path)
        yield from _walk(child, context, path)


def _stated(item: Any, context: Measurement) -> Measurement:
    """What the children of an item say of all measurements in it."""
    children = list(item.get("ContentSequence") or [])
    images: list[str] = []
    segments: list[int] = []
    for child in children:
        code, kind = _code(child.get("ConceptNameCodeSequence")), child.get("ValueType")
        if kind == "TEXT" and code in TRACKING:
            context = replace(context, tracking=str(child.get("TextValue", "")))
        elif kind == "CODE":
            meaning = _meaning(child.get("ConceptCodeSequence"))
            for codes, field in ((FINDING, "finding"), (SITE, "site"), (DERIVATION, "derivation")):
                if code in codes:
                    context = replace(context, **{field: meaning})  # type: ignore[arg-type]
        elif kind in ("IMAGE", "SCOORD"):
            for reference in _references(child):
                images.append(str(reference.get("ReferencedSOPInstanceUID", "")))
                segments.extend(_numbers(reference.get("ReferencedSegmentNumber")))
    if images:
        # A region (SCOORD) names its image again and again.
        context = replace(context, images=tuple(dict.fromkeys(images)), segments=tuple(dict.fromkeys(segments)))
    return context


def _references(item: Any) -> Iterator[Any]:
    """The images an item refers to, itself or through the image its outline was drawn on."""
    yield from item.get("ReferencedSOPSequence") or []
    for child in item.get("ContentSequence") or []:
        if child.get("ValueType") == "IMAGE":
            yield from child.get("ReferencedSOPSequence") or []


def _numbers(value: Any) -> list[int]:
    if value in (None, ""):
        return []
    return [int(value)] if isinstance(value, int) else [int(one) for one in value]


def _number(item: Any, context: Measurement, path: Path) -> Measurement:
    own = _stated(item, context)
    name = item.get("ConceptNameCodeSequence")
    measured = item.get("MeasuredValueSequence")
    if not measured:  # the report says why, in a qualifier; there is no number
        return replace(own, name=_meaning(name), code=_code(name))
    stated = measured[0].get("FloatingPointValue", measured[0].get("NumericValue"))
    try:
        value = float(stated)
    except (TypeError, ValueError) as error:
        raise CaseError(
            f"{path}: the measurement {_meaning(name)!r} holds no number; write the report again"
        ) from error
    units = measured[0].get("MeasurementUnitsCodeSequence")
    unit = str(units[0].get("CodeValue", "")) if units else ""
    return replace(own, name=_meaning(name), code=_code(name), value=value, unit=unit)


def _code(sequence: Any) -> str:
    """A coded concept as `SCHEME:VALUE`."""
    if not sequence:
        return ""
    value = sequence[0].get("CodeValue") or sequence[0].get("LongCodeValue") or sequence[0].get("URNCodeValue") or ""
    return f"{sequence[0].get('CodingSchemeDesignator', '')}:{value}"


def _meaning(sequence: Any) -> str:
    return str(sequence[0].get("CodeMeaning", "")) if sequence else ""
