"""DICOM headers against the basic profile of PS3.15: every attribute, its own statements, and words that repeat it.

Without the files as they were, a UID cannot be told from a replaced one, nor a date from a shifted one. Where a file
says that its dates were changed, dates are things to look at; UIDs are compared with `Past` alone.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from medimg_eval.deid.attributes import REGISTERED, SAME_DAY, Header, judge_attribute, kind_of
from medimg_eval.deid.ps3_15 import OPTIONS, rules
from medimg_eval.deid.quick_scan import DRAWN_ON, SECONDARY_CAPTURE
from medimg_eval.deid.values import Finding, Past, is_counter, like_pseudonym, names_nobody, text_of, words_of
from medimg_eval.errors import CaseError
from medimg_eval.metrics.phi import Vocabulary

_NUMERIC = frozenset(["US", "SS", "UL", "SL", "FL", "FD", "AT", "OB", "OW", "OD", "OF", "OL", "OV", "UN"])
"""Value representations whose bytes are no text."""

_HEAD = re.compile(r"(?i)head|brain|skull|face|facial|cranium|cranial|neuro|orbit|sinus|jaw")
_WORD = re.compile(rb"[A-Za-z0-9^ ]{6,}")
"""What in a preamble is text, and no head of a TIFF file."""

_SENDERS = ("SourceApplicationEntityTitle", "SendingApplicationEntityTitle", "ReceivingApplicationEntityTitle")

_NUMBERS = words_of("""
    PatientID OtherPatientIDs AccessionNumber AdmissionID MedicalRecordLocator ServiceEpisodeID PatientAddress
    PatientTelephoneNumbers InstitutionName InstitutionAddress ClinicalTrialSubjectID RequestedProcedureID
    FillerOrderNumberImagingServiceRequest PlacerOrderNumberImagingServiceRequest
""")
"""Attributes whose values no text should repeat, beside the names of persons."""


def read_whole(path: Path) -> Any:
    """Reads a whole DICOM file except its pixels.

    Raises CaseError where the header cannot be read.
    """
    from pydicom import dcmread

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydicom's warnings print values
        try:
            with path.open("rb") as stream:
                dataset = dcmread(stream, stop_before_pixels=True, force=True)
                _read_behind(stream, dataset)
        except Exception:  # noqa: BLE001 - damaged files make pydicom raise whatever its parser met
            raise CaseError(f"{path}: its header cannot be read; write or copy it again") from None
    if not len(dataset):
        raise CaseError(f"{path}: holds no attribute; write or copy it again")
    return dataset


def _read_behind(stream: Any, dataset: Any) -> None:
    """Adds what stands behind the pixels, such as padding and signatures."""
    from pydicom.filereader import read_dataset

    start = stream.read(12)
    if len(start) < 8 or not dataset.original_encoding[1] or start[:2] != b"\xe0\x7f":
        return
    long = not dataset.original_encoding[0]
    length = int.from_bytes(start[8:12] if long else start[4:8], "little")
    if not long:
        stream.seek(-4, 1)
    if length != 0xFFFFFFFF:
        stream.seek(length, 1)
    else:
        while (item := stream.read(8))[:4] == b"\xfe\xff\x00\xe0":
            stream.seek(int.from_bytes(item[4:], "little"), 1)
    if stream.read(1):
        stream.seek(-1, 1)
        dataset.update(read_dataset(stream, is_implicit_VR=not long, is_little_endian=True))


def header_findings(
    dataset: Any,
    path: Path,
    *,
    keep: Collection[str] = (),
    past: Past | None = None,
    left_out: Counter[str] | None = None,
) -> tuple[list[Finding], Vocabulary, frozenset[str]]:
    """Identifying facts, patient's names and declared options of a header.

    The path is named in the findings; `keep` are names of `OPTIONS` that the data may make use of, beside those that
    the file declares; `past` is the file, or all files, before de-identification; `left_out` counts what was taken for
    dummies.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        declared = _declared_options(dataset)
        letters = frozenset(OPTIONS[name][0] for name in {*keep, *declared})
        moved = text_of(dataset.get("LongitudinalTemporalInformationModified")) in ("MODIFIED", "REMOVED")
        removed = text_of(dataset.get("PatientIdentityRemoved")) == "YES"
        patient = (_plain_text(dataset, 0x00100010), _plain_text(dataset, 0x00100020))
        header = Header(path, letters, removed, moved, past, patient)
        header.left_out = Counter() if left_out is None else left_out
        header.terms = vocabulary_of(dataset, removed=removed)
        if past is not None:
            header.terms.update(past.terms)
        for part in (getattr(dataset, "file_meta", None), dataset):
            if part is not None:
                _look_through(header, part, "")
        _look_before(header, dataset)
        _check_statements(header, dataset, declared)
        _note_pixel_identifiers(header, dataset)
        return header.findings(), header.terms, declared


def past_of(dataset: Any) -> Past:
    """Returns what a file held before it was de-identified."""
    past = Past()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in (getattr(dataset, "file_meta", None), dataset):
            for tag, vr, text, name in _walk_elements(part, "") if part is not None else ():
                if vr == "UI" and tag in rules():
                    past.uids.update(uid for uid in text.split("\\") if uid and not uid.startswith(REGISTERED))
                elif tag in rules() and vr != "SQ":
                    past.values.setdefault(name, set()).add(text)
        past.terms = vocabulary_of(dataset, removed=False)
    return past


def vocabulary_of(dataset: Any, *, removed: bool) -> Vocabulary:
    """Returns names in a header, without dummies and stated pseudonyms."""
    words = Vocabulary()
    for _, vr, text, name in _walk_elements(dataset, ""):
        keyword = name.rpartition(".")[2]
        if (vr != "PN" and keyword not in _NUMBERS) or names_nobody(vr, text) or is_counter(text):
            continue
        if removed and like_pseudonym(text):
            continue
        if vr == "PN":
            words.add_person(text, keyword)
        else:
            words.add(text, keyword)
    return words


def _look_through(header: Header, dataset: Any, above: str) -> None:
    for tag in dataset.keys():  # noqa: SIM118 - a Dataset iterates over converted elements
        group = tag.group
        if tag.is_private:
            if "r" in header.options:
                _judge_private(header, dataset, tag, above)
            elif not tag.is_private_creator and _is_filled(dataset, tag):
                header.add("private", f"{above}private", "private attributes may hold anything", "X")
            continue
        vr, text, name = _describe_element(dataset, tag, above)
        if not text:
            continue
        if 0x5000 <= group <= 0x50FF or (0x6000 <= group <= 0x60FF and tag.element in (0x3000, 0x4000)):
            if "g" not in header.options:
                what = "a curve" if group < 0x6000 else "an overlay drawn on the picture, or its comments"
                header.add("graphics", name, f"is {what}", "X")
        elif vr == "SQ":
            _judge_sequence(header, dataset[tag].value, int(tag), name)
        else:
            judge_attribute(header, int(tag), vr, text, name)


def _judge_private(header: Header, dataset: Any, tag: Any, above: str) -> None:
    """Scans a private attribute retained by an option."""
    element = dataset[tag]
    if element.VR == "SQ":
        for item in element.value:
            _look_through(header, item, f"{above}private.")
        return
    vr, text, _ = _describe_element(dataset, tag, above)
    if vr == "UN":
        text = text_of(element.value)
        vr, text = "LT", text if text.isprintable() else ""
    judge_attribute(header, int(tag), vr, text, f"{above}private")


def _look_before(header: Header, dataset: Any) -> None:
    """Scans preamble and file meta information, by PS3.15 E.1.1."""
    if _WORD.search(getattr(dataset, "preamble", None) or b""):
        header.add("text", "preamble", "holds text before the header")
    meta = getattr(dataset, "file_meta", None) or {}
    if text_of(meta.get("PrivateInformation")):
        header.add("private", "PrivateInformation", "private attributes may hold anything")
    for keyword in _SENDERS:
        text = text_of(meta.get(keyword))
        if text and not names_nobody("AE", text):
            header.add("identity", keyword, "names a device or place", "", "look", text)


def _judge_sequence(header: Header, items: Any, tag: int, name: str) -> None:
    rule = rules().get(tag)
    if rule is not None and "U" not in rule.action and not rule.options & header.options:
        if any(True for item in items for element in _walk_elements(item, "") if element[2]):
            header.add(kind_of("SQ", rule), name, "has items", rule.action)
        return
    for item in items:
        _look_through(header, item, f"{name}.")


def _walk_elements(dataset: Any, above: str) -> Iterator[tuple[int, str, str, str]]:
    """Yields tag, VR, text and name of filled standard attributes."""
    for tag in dataset.keys():  # noqa: SIM118 - as above
        if tag.is_private:
            continue
        vr, text, name = _describe_element(dataset, tag, above)
        if not text:
            continue
        yield int(tag), vr, text, name
        if vr == "SQ":
            for item in dataset[tag].value:
                yield from _walk_elements(item, f"{name}.")


@lru_cache(maxsize=4096)
def _dictionary_entry(tag: int) -> tuple[str, str]:
    """Value representation and name of a tag by the dictionary."""
    from pydicom.datadict import dictionary_has_tag, dictionary_VR, keyword_for_tag

    vr = dictionary_VR(tag) if dictionary_has_tag(tag) else "UN"
    return vr, keyword_for_tag(tag) or f"({tag >> 16:04X},{tag & 0xFFFF:04X})"


def _describe_element(dataset: Any, tag: Any, above: str) -> tuple[str, str, str]:
    """Value representation, text and name of an element, without decoding it."""
    element = dataset.get_item(tag)
    vr, value = element.VR, element.value
    usual, keyword = _dictionary_entry(tag)
    vr = usual if vr in (None, "UN") else vr
    name = above + keyword
    if vr == "SQ":
        return vr, "items" if value not in (None, b"") and len(value) else "", name
    if vr in _NUMERIC:
        filled = bool(value.strip(b"\0")) if isinstance(value, bytes) else value not in (None, "", 0)
        return vr, "value" if filled else "", name
    if isinstance(value, bytes):
        return vr, text_of(value), name
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = "\\".join(map(str, value))
    return vr, text_of(value), name


def _is_filled(dataset: Any, tag: Any) -> bool:
    value = dataset.get_item(tag).value
    return value is not None and (not hasattr(value, "__len__") or len(value) > 0)


def _plain_text(dataset: Any, tag: int) -> str:
    from pydicom.tag import BaseTag

    return _describe_element(dataset, BaseTag(tag), "")[1] if tag in dataset else ""


def _declared_options(dataset: Any) -> frozenset[str]:
    """The options that a file says were made use of."""
    codes = {text_of(item.get("CodeValue")) for item in dataset.get("DeidentificationMethodCodeSequence") or ()}
    return frozenset(name for name, (_, code) in OPTIONS.items() if code in codes)


def _check_statements(header: Header, dataset: Any, declared: frozenset[str]) -> None:
    """Whether what the file says of its de-identification is there and fits together."""
    if not dataset.get("SOPClassUID"):
        return
    statements = {
        keyword: text_of(dataset.get(keyword))
        for keyword in ("PatientIdentityRemoved", "DeidentificationMethod", "LongitudinalTemporalInformationModified")
    }
    method = statements["DeidentificationMethod"] or dataset.get("DeidentificationMethodCodeSequence")
    times = statements["LongitudinalTemporalInformationModified"]
    wrong = {
        "PatientIdentityRemoved": "does not say that the patient's identity was removed" if not header.removed else "",
        "DeidentificationMethod": _method_fault(bool(method), removed=bool(header.removed)),
        "LongitudinalTemporalInformationModified": _times_fault(header, times, declared),
    }
    for keyword, what in wrong.items():
        if what:
            header.add("statement", keyword, what)


def _method_fault(method: bool, *, removed: bool) -> str:
    if removed and not method:
        return "the identity is said to be removed, but not by which method"
    return "a method is named, but the identity is not said to be removed" if method and not removed else ""


def _times_fault(header: Header, times: str, declared: frozenset[str]) -> str:
    rules_broken = {finding.rule for finding, _ in header.seen.values() if finding.kind == "date"}
    if times == "REMOVED" and rules_broken:
        return "dates are said to be removed, and some are filled"
    if times == "MODIFIED" and SAME_DAY in rules_broken:
        return "dates are said to be changed, and some are as before"
    if (times == "MODIFIED" and "full_dates" in declared) or (times == "UNMODIFIED" and "modified_dates" in declared):
        return "contradicts the options that are declared"
    if header.removed and not times and rules_broken:
        return "does not say whether dates were changed"
    return ""


def _note_pixel_identifiers(header: Header, dataset: Any) -> None:
    """Notes identifiers visible only in pixels: text, faces, slide labels."""
    modality, stated = text_of(dataset.get("Modality")), text_of(dataset.get("BurnedInAnnotation"))
    captured = text_of(dataset.get("SOPClassUID")).startswith(SECONDARY_CAPTURE)
    if stated == "YES":
        header.add("pixels", "BurnedInAnnotation", "says that text is burned into its pixels", level="look")
    elif stated != "NO" and (modality in DRAWN_ON or captured):
        what = f"does not say whether text is burned in, as is common in {modality or 'screenshots'}"
        header.add("pixels", "BurnedInAnnotation", what, level="look")
    if {"LABEL", "OVERVIEW"} & set(_plain_text(dataset, 0x00080008).split("\\")):
        header.add("pixels", "ImageType", "is the picture of a slide's label, or shows it", level="look")
    if text_of(dataset.get("RecognizableVisualFeatures")) == "YES":
        header.add("surface", "RecognizableVisualFeatures", "says that the patient can be recognised", level="look")
    elif modality in ("CT", "MR", "PT") and "defac" not in text_of(dataset.get("DeidentificationMethod")).lower():
        words = " ".join(_plain_text(dataset, tag) for tag in (0x00180015, 0x00081030, 0x0008103E, 0x00181030))
        if _HEAD.search(words) and text_of(dataset.get("RecognizableVisualFeatures")) != "NO":
            header.add("surface", "BodyPartExamined", "a volume of the head shows the face", level="look")
