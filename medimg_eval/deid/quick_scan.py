"""What may identify a patient: in DICOM headers, in the headers of volumes, and in names of files.

The list of attributes follows the basic application level confidentiality profile (DICOM PS3.15, table
E.1-1); age, sex, size and weight are left alone, as evaluations need them. A doubt names the attribute and
how often it is filled, never what it holds.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from medimg_eval.errors import CaseError
from medimg_eval.imaging.formats import identify

Kind = Literal["identity", "date", "text", "private", "pixels", "name"]


def _split_keywords(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAY_BE_DUMMY = _split_keywords("""
    PatientName PatientID PatientBirthDate ReferringPhysicianName ConsultingPhysicianName ContentCreatorName
    AccessionNumber StudyID PersonName VerifyingObserverName FillerOrderNumberImagingServiceRequest OperatorsName
    InstitutionName PlacerOrderNumberImagingServiceRequest StationName DeviceSerialNumber DetectorID
    ClinicalTrialSubjectID ClinicalTrialProtocolID ClinicalTrialSponsorName ContrastBolusAgent ProtocolName
    ReviewerName
""")
"""Attributes that the profile lets be filled with a dummy, where the file says that the identity was removed."""

IDENTITY = _split_keywords("""
    PatientID PatientBirthDate OtherPatientIDs OtherPatientIDsSequence IssuerOfPatientID PatientBirthName
    PatientMotherBirthName PatientAddress PatientTelephoneNumbers PatientTelecomInformation RegionOfResidence
    CountryOfResidence PatientInsurancePlanCodeSequence PatientPrimaryLanguageCodeSequence
    PatientReligiousPreference MilitaryRank BranchOfService MedicalRecordLocator EthnicGroup EthnicGroupCodeSequence
    Occupation PatientInstitutionResidence CurrentPatientLocation ResponsibleOrganization
    InsurancePlanIdentification AccessionNumber StudyID AdmissionID IssuerOfAdmissionID ServiceEpisodeID
    IssuerOfServiceEpisodeID RequestedProcedureID ScheduledProcedureStepID PerformedProcedureStepID
    FillerOrderNumberImagingServiceRequest PlacerOrderNumberImagingServiceRequest ResultsID InterpretationID
    DistributionAddress DistributionName ReferringPhysicianAddress ReferringPhysicianTelephoneNumbers
    ReferringPhysicianIdentificationSequence PhysiciansOfRecordIdentificationSequence
    PerformingPhysicianIdentificationSequence PhysiciansReadingStudyIdentificationSequence
    OperatorIdentificationSequence RequestingPhysicianIdentificationSequence PersonIdentificationCodeSequence
    PersonAddress PersonTelephoneNumbers PersonTelecomInformation InstitutionName InstitutionAddress
    InstitutionCodeSequence InstitutionalDepartmentName InstitutionalDepartmentTypeCodeSequence RequestingService
    StationName PerformedStationName ScheduledStationName PerformedLocation ScheduledProcedureStepLocation
    ScheduledStudyLocation ScheduledPatientInstitutionResidence RequestedProcedureLocation OrderEntererLocation
    OrderCallbackPhoneNumber OrderCallbackTelecomInformation HumanPerformerOrganization VerifyingOrganization
    CustodialOrganizationSequence AuthorObserverSequence ParticipantSequence DeviceSerialNumber PlateID DetectorID
    CassetteID GantryID GeneratorID XRaySourceID TreatmentMachineName ClinicalTrialSubjectID
    ClinicalTrialSubjectReadingID ClinicalTrialSiteID ClinicalTrialSiteName ClinicalTrialSponsorName
    ClinicalTrialProtocolID
""")
"""Numbers, addresses and places. Attributes that hold a person's name are told by their value representation."""

TEXT = _split_keywords("""
    StudyDescription SeriesDescription ProtocolName ImageComments PatientComments FrameComments StudyComments
    AdditionalPatientHistory AdmittingDiagnosesDescription AdmittingDiagnosesCodeSequence AcquisitionComments
    AcquisitionProtocolDescription AcquisitionDeviceProcessingDescription CommentsOnThePerformedProcedureStep
    CommentsOnTheScheduledProcedureStep ContrastBolusAgent ContributionDescription DerivationDescription
    DeviceDescription DischargeDiagnosisDescription IdentifyingComments ImagePresentationComments
    ImagingServiceRequestComments Impressions InterpretationText InterpretationDiagnosisDescription
    InterpretationIDIssuer LabelText MedicalAlerts Allergies ModifiedImageDescription PatientState
    PerformedProcedureStepDescription PerformedProcedureTypeDescription PreMedication ReasonForStudy
    ReasonForTheImagingServiceRequest ReasonForTheRequestedProcedure RequestAttributesSequence
    RequestedContrastAgent RequestedProcedureComments RequestedProcedureDescription ResultsComments
    ScheduledProcedureStepDescription ServiceEpisodeDescription SpecialNeeds TextComments TextString
    UnformattedTextValue VisitComments TextValue StructureSetDescription StructureSetLabel RTPlanDescription
    RTPlanLabel DoseComment BeamDescription OriginalAttributesSequence EncryptedAttributesSequence
    ModifiedAttributesSequence
""")
"""Words somebody typed, or copies of older headers."""

PIXELS = _split_keywords("IconImageSequence GraphicAnnotationSequence EncapsulatedDocument WaveformSequence")
"""Pictures and documents inside the file."""

DRAWN_ON = _split_keywords("US IVUS ES XC GM OT SC CR RF XA DOC SR OP")
"""Modalities whose pixels often show text, and so should say whether they do."""

PHILIPS: Mapping[str, Kind] = {
    "Patient name": "identity",
    "Examination name": "text",
    "Protocol name": "text",
    "Examination date/time": "date",
}
"""What identifies in the text header of a Philips PAR/REC pair."""

SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"

BLANK = frozenset(
    b"ANON ANONYMOUS ANONYMIZED ANONYMISED DEIDENTIFIED REMOVED NONE UNKNOWN UNSPECIFIED N/A NA 0".split()
)
"""What de-identifying tools put in the place of a value."""


@dataclass(frozen=True)
class Doubt:
    """Possibly identifying fact, in words, never a value.

    The kind is `identity`, `date`, `text` somebody typed, `private` attributes, `pixels`, or the file's `name`; the tag
    the attribute by DICOM keyword or header field, where it is one; the count how often it is filled in the file.
    """

    path: Path
    what: str
    kind: Kind
    tag: str = ""
    count: int = 1


def scan(path: str | Path) -> list[Doubt]:
    """Possibly identifying facts in DICOM, NIfTI, MetaImage or NRRD headers.

    Empty for other formats, and where nothing is in doubt. Raises CaseError where the file is missing or of no known
    format.
    """
    path = Path(path)
    family = identify(path)
    if family in ("dicom", "slide") and path.is_file():
        from pydicom import dcmread
        from pydicom.errors import InvalidDicomError

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pydicom's warnings print values
            try:
                dataset = dcmread(path, stop_before_pixels=True, force=family == "dicom")
            except InvalidDicomError:
                return []  # a slide of another format
            except (OSError, EOFError, ValueError, AttributeError, KeyError):
                raise CaseError(f"{path}: its header cannot be read; write or copy it again") from None
        return _scan_dicom(dataset, path)
    return _scan_volume(path) if family == "volume" else []


def identities(path: Path) -> dict[str, str]:
    """Reads PatientID and PatientName, for matching file names; never shown."""
    from pydicom import dcmread

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = dcmread(path, stop_before_pixels=True, force=True, specific_tags=["PatientID", "PatientName"])
        return {keyword: str(dataset.get(keyword)) for keyword in ("PatientID", "PatientName") if dataset.get(keyword)}


def scan_names(paths: Iterable[Path], known: Mapping[str, str]) -> list[Doubt]:
    """File names resembling people, dates or record numbers.

    No name should repeat the values `known` by the keyword of their header (see `identities`).
    """
    # A name may be written in another order: its parts are looked for.
    parted = {
        (keyword, tuple(sorted(filter(None, map(_fold_letters, re.split(r"[\^=, ]+", value))))))
        for keyword, value in known.items()
    }
    folded = {(keyword, parts) for keyword, parts in parted if sum(map(len, parts)) >= 4}
    return [
        Doubt(path, f"the file's name or folder {what}", "name")
        for path in paths
        for what in dict.fromkeys(name_doubts(path.name, folded))
    ]


def _fold_letters(text: str) -> str:
    return "".join(letter for letter in text.casefold() if letter.isalnum())


NAMES = {
    "holds a caret, as names of persons do": r"\^",
    "looks like a date": r"(?<!\d)((19|20)\d\d([-_.]?)(0[1-9]|1[0-2])\3(0[1-9]|[12]\d|3[01])"
    r"|(0?[1-9]|[12]\d|3[01])([-_.])(0?[1-9]|1[0-2])\7(19|20)\d\d)(?!\d)",
    "looks like a social security number": r"(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)",
    # Neither a counter (000...) nor a part of a UID or of a digest.
    "looks like a record number": r"(?i)((?<![a-z])(mrn|pid|ssn|nhs)[-_ ]?\d{4,}"
    r"|(?<![a-z\d.])(?!000)\d{7,10}(?![a-z\d]|\.\d))",
}


def name_doubts(part: str, known: Collection[tuple[str, tuple[str, ...]]] = ()) -> Iterator[str]:
    """Doubts about a path's part; `known` holds keywords and values."""
    date = re.search(NAMES["looks like a date"], part)
    for what, pattern in NAMES.items():
        # A date of eight digits is no record number as well.
        text = part.replace(date.group(), "") if date and what == "looks like a record number" else part
        if re.search(pattern, text):
            yield what
    folded = _fold_letters(part)
    for keyword, pieces in sorted(known):
        if all(piece in folded for piece in pieces):
            yield f"repeats the {keyword} of a header"


def _scan_dicom(dataset: Any, path: Path) -> list[Doubt]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom's warnings print values
        removed = dataset.get("PatientIdentityRemoved") == "YES"
        doubts = [*_scan_attributes(dataset, path, removed=removed), *_scan_pixels(dataset, path)]
        if not removed and dataset.get("SOPClassUID"):
            what = "does not say that the patient's identity was removed"
            doubts.append(Doubt(path, what, "identity", "PatientIdentityRemoved"))
        return doubts


def _scan_attributes(dataset: Any, path: Path, *, removed: bool) -> Iterator[Doubt]:
    shifted = dataset.get("LongitudinalTemporalInformationModified") in ("MODIFIED", "REMOVED")
    counts: Counter[tuple[Kind, str]] = Counter()
    creators: set[str] = set()
    for kind, keyword in _filled_attributes(dataset, creators):
        if not (removed and keyword in MAY_BE_DUMMY) and not (shifted and kind == "date"):
            counts[kind, keyword] += 1
    for (kind, keyword), count in sorted(counts.items()):
        what = {
            "identity": f"{keyword} is filled",
            "date": f"{keyword} is filled, and the file does not say that dates were changed",
            "text": f"{keyword} is filled; it may hold a name",
            "private": f"private attributes ({count} by {_known_creators(creators)}) may hold anything",
            "pixels": f"{keyword} is a picture or document inside the file; look at it",
            "name": keyword,
        }[kind]
        yield Doubt(path, what, kind, keyword, count)


def _known_creators(creators: Collection[str]) -> str:
    """Private creators that name no person."""
    from pydicom.datadict import private_dictionaries

    creators_ = sorted(creator for creator in creators if creator in private_dictionaries)
    return ", ".join([*creators_, *(["others"] if len(creators_) < len(creators) else [])]) or "nobody"


def _filled_attributes(dataset: Any, creators: set[str]) -> Iterator[tuple[Kind, str]]:
    """Yields doubtful filled attributes, also nested; collects private creators."""
    from pydicom.datadict import dictionary_has_tag, dictionary_VR, keyword_for_tag

    for tag in dataset.keys():  # noqa: SIM118 - a Dataset iterates over converted elements
        element = dataset.get_item(tag)
        if tag.is_private_creator:
            creators.add(str(dataset[tag].value))
            continue
        if tag.is_private:
            yield "private", "private attributes"
            continue
        vr = element.VR or (dictionary_VR(tag) if dictionary_has_tag(tag) else "UN")
        if not _is_filled(element, vr):
            continue
        keyword = keyword_for_tag(tag)
        kind = _doubt_kind(keyword, vr, tag.group)
        if kind is not None:
            yield kind, keyword or str(tag)
        if vr == "SQ":
            for item in dataset[tag].value:
                yield from _filled_attributes(item, creators)


def _doubt_kind(keyword: str, vr: str, group: int) -> Kind | None:
    if vr == "PN" or keyword in IDENTITY:
        return "identity"
    if keyword in TEXT:
        return "text"
    if keyword in PIXELS or keyword.startswith("OverlayData") or 0x5000 <= group <= 0x50FF:
        return "pixels"
    return "date" if vr in ("DA", "DT") else None


def _is_filled(element: Any, vr: str) -> bool:
    """Whether an attribute is filled meaningfully, without decoding it."""
    value = element.value
    if vr == "SQ" or value is None:
        return value not in (None, b"") and len(value) > 0
    if not isinstance(value, bytes):
        value = str(value).encode()
    return value.strip(b"\0 ^=\\").upper() not in BLANK | {b"", b"[]"}


def _scan_pixels(dataset: Any, path: Path) -> Iterator[Doubt]:
    modality = str(dataset.get("Modality") or "")
    stated = dataset.get("BurnedInAnnotation")
    captured = str(dataset.get("SOPClassUID") or "").startswith(SECONDARY_CAPTURE)
    if stated == "YES":
        yield Doubt(path, "says that text is burned into its pixels", "pixels", "BurnedInAnnotation")
    elif stated != "NO" and (modality in DRAWN_ON or captured):
        what = f"does not say whether text is burned into its pixels, as is common in {modality or 'screenshots'}"
        yield Doubt(path, what, "pixels", "BurnedInAnnotation")
    if dataset.get("RecognizableVisualFeatures") == "YES":
        yield Doubt(path, "says that the patient can be recognised in it", "pixels", "RecognizableVisualFeatures")


def _scan_volume(path: Path) -> list[Doubt]:
    with path.open("rb") as stream:
        head = stream.read(1 << 18)
    if head.startswith(b"NRRD0") or path.suffix.lower() in (".mha", ".mhd"):
        return _scan_text_header(path, head)
    if path.suffix.lower() == ".par":
        return [
            Doubt(path, f"the header's {field!r} is filled; it may hold a name", kind, field)
            for field, kind in PHILIPS.items()
            if re.search(rf"(?im)^\.\s*{re.escape(field)}[ \t]*:[ \t]*\S", head.decode("latin-1"))
        ]
    import nibabel as nib

    try:
        image: Any = nib.load(path)
    except Exception as error:  # each of nibabel's formats has errors of its own
        if head[2:9] == b"b2frame":
            return []  # chunks of voxels, without free text
        raise CaseError(f"{path}: its header cannot be read ({type(error).__name__}); copy it again") from error
    header, texts = header_texts(image)
    doubts = [
        Doubt(path, f"the header's {field} is filled; it may hold a name", "text", field)
        for field, text in texts.items()
        if text.strip(b"\0 ")
    ]
    codes = Counter(int(extension.get_code()) for extension in getattr(header, "extensions", []))
    for code, count in sorted(codes.items()):
        what = "holds a DICOM header" if code == 2 else f"of code {code} may hold anything"
        doubts.append(Doubt(path, f"a header extension {what}", "identity" if code == 2 else "private", "", count))
    return doubts


def header_texts(image: Any) -> tuple[Any, dict[str, bytes]]:
    """The header of an image that nibabel opened, and its fields of text."""
    header = getattr(image, "nifti_header", image.header)  # a CIFTI file has two
    stated = header.keys() if hasattr(header, "keys") else ()
    fields = ("descrip", "aux_file", "db_name", "intent_name", "patient_id", "exp_date")
    return header, {field: header[field].tobytes() for field in fields if field in stated}


def _scan_text_header(path: Path, head: bytes) -> list[Doubt]:
    """DICOM attributes that ITK and 3D Slicer copy into headers of text."""
    from pydicom.datadict import dictionary_VR, keyword_for_tag

    doubts = []
    pattern = rb"(?m)^(?:DICOM_)?([0-9A-Fa-f]{4})[|_,]([0-9A-Fa-f]{4})[ \t]*:?=[ \t]*(\S[^\r\n]*)"
    for group, element, value in re.findall(pattern, head):
        tag = int(group + element, 16)
        keyword = keyword_for_tag(tag)
        kind = _doubt_kind(keyword, dictionary_VR(tag), tag >> 16) if keyword else None
        if kind is not None and value.strip().upper() not in BLANK:
            doubts.append(Doubt(path, f"{keyword} was copied into the header", kind, keyword))
    return doubts
