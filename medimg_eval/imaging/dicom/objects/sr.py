"""DICOM structured reports with measurements (TID 1500), as products send them beside segmentations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from medimg_eval.errors import CaseError, import_optional

STORAGE = (
    "1.2.840.10008.5.1.4.1.1.88.22",  # Enhanced SR
    "1.2.840.10008.5.1.4.1.1.88.33",  # Comprehensive SR
    "1.2.840.10008.5.1.4.1.1.88.34",  # Comprehensive 3D SR
)
TEMPLATE = "1500"
CERTAIN = frozenset({("111012", "DCM"), ("111047", "DCM")})
"""Codes of a certainty of finding, and of a probability of cancer."""
CERTAINTY_WORDS = ("probability", "certainty", "confidence", "likelihood")


class Measured(NamedTuple):
    """Measured number: name, value, UCUM unit, and whether it is confidence."""

    name: str
    value: float
    unit: str
    certainty: bool


class MeasuredGroup(NamedTuple):
    """Measurements of one finding, image or region.

    Attributes:
        tracking: its identifier.
        finding: its type; "" where none is coded.
        sites: where it lies.
        measurements: numbers.
        evaluations: name -> value of what is no number, such as an assessment.
    """

    tracking: str
    finding: str
    sites: tuple[str, ...]
    measurements: tuple[Measured, ...]
    evaluations: Mapping[str, str]

    @property
    def name(self) -> str:
        """Name of the group: finding and site, or its identifier."""
        parts = [self.finding, *([f"({', '.join(self.sites)})"] if self.sites else [])]
        return " ".join(filter(None, parts)) or self.tracking


class StructuredReport(NamedTuple):
    """One report.

    Attributes:
        path: its file.
        keys: `accession`, `study` and `patient`, by which a case may be called; "" where it has none.
        groups: in their order.
    """

    path: Path
    keys: Mapping[str, str]
    groups: tuple[MeasuredGroup, ...]


def is_structured_report(path: str | Path) -> bool:
    """Whether a file is a structured report that is read here."""
    from pydicom import dcmread
    from pydicom.errors import InvalidDicomError

    try:
        return dcmread(path, specific_tags=["SOPClassUID"], stop_before_pixels=True).get("SOPClassUID") in STORAGE
    except (OSError, InvalidDicomError):
        return False


def read_structured_report(path: str | Path) -> StructuredReport:
    """Reads a measurement report (TID 1500).

    Raises:
        CaseError: the file is no such report, or does not keep to the template.
        UserError: highdicom is not installed (extra `dicom`).
    """
    path = Path(path)
    sr = import_optional("highdicom.sr")
    from pydicom import dcmread
    from pydicom.errors import InvalidDicomError

    with CaseError.about(path, "cannot be read as DICOM", OSError, InvalidDicomError, mend="copy it again"):
        dataset = dcmread(path)
    if dataset.get("SOPClassUID") not in STORAGE:
        raise CaseError(f"{path}: is no Enhanced or Comprehensive SR; its modality is {dataset.get('Modality')}")
    template = dataset.get("ContentTemplateSequence")
    identifier = template[0].get("TemplateIdentifier") if template else None
    if identifier != TEMPLATE:
        raise CaseError(f"{path}: follows template {identifier or 'none'}; measurements are read of TID {TEMPLATE}")
    # A product that has found nothing may leave the container of measurements empty, which highdicom does not expect.
    content = [
        item
        for item in dataset.get("ContentSequence", ())
        if item.ValueType != "CONTAINER" or "ContentSequence" in item
    ]
    dataset.ContentSequence = content
    faults = (AttributeError, LookupError, TypeError, ValueError, RuntimeError)
    with CaseError.about(path, f"does not keep to TID {TEMPLATE}", *faults):
        report = sr.MeasurementReport.from_sequence([dataset])
        groups = tuple(_measured_groups(report))
    keys = {"accession": "AccessionNumber", "study": "StudyInstanceUID", "patient": "PatientID"}
    return StructuredReport(path, {key: str(dataset.get(name, "") or "") for key, name in keys.items()}, groups)


def _measured_groups(report: Any) -> Iterator[MeasuredGroup]:
    for kind in ("image", "planar_roi", "volumetric_roi"):
        for group in getattr(report, f"get_{kind}_measurement_groups")():
            finding = group.finding_type
            yield MeasuredGroup(
                str(group.tracking_identifier or ""),
                finding.meaning if finding is not None else "",
                tuple(map(_describe_site, group.finding_sites)),
                tuple(
                    _read_measurement(measurement)
                    for measurement in group.get_measurements()
                    if measurement.value is not None
                ),
                {
                    evaluation.name.meaning: evaluation.value.meaning
                    for evaluation in group.get_qualitative_evaluations()
                },
            )


def _describe_site(site: Any) -> str:
    side = site.laterality
    return str(site.value.meaning) + (f", {side.meaning.lower()}" if side is not None else "")


def _read_measurement(one: Any) -> Measured:
    name, unit = one.name, one.unit.value
    sure = any(word in name.meaning.lower() for word in CERTAINTY_WORDS)
    certainty = unit in ("1", "%") and (sure or (name.value, name.scheme_designator) in CERTAIN)
    value = float(one.value)
    return Measured(
        name.meaning, value / 100 if certainty and unit == "%" else value, "1" if certainty else unit, certainty
    )
