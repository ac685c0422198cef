"""Which values name nobody, how a value is shown without being told, and what a file knows of its patient."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from medimg_eval.metrics.phi import Vocabulary, folded, spans_of

Kind = Literal[
    "identity", "date", "uid", "text", "private", "graphics", "statement", "name", "unread", "pixels", "surface"
]

KINDS: dict[str, str] = {
    "identity": "names, numbers, addresses, devices",
    "date": "dates and times",
    "uid": "UIDs that were not replaced",
    "text": "words somebody typed",
    "private": "private attributes and extensions",
    "graphics": "curves, overlays, documents, pictures inside",
    "statement": "what files say of their de-identification",
    "name": "names of files and folders",
    "unread": "files that cannot be read",
    "pixels": "text in pixels",
    "surface": "faces in volumes of the head",
}
"""Kind of a finding -> what it is."""


def words_of(text: str) -> frozenset[str]:
    """A set of words, written as they follow each other."""
    return frozenset(text.split())


TEXTS = frozenset(["LO", "SH", "ST", "LT", "UT", "UC", "UR"])
TIMES = frozenset(["DA", "DT", "TM"])
LONGEST_MASK = 24


@dataclass(frozen=True, slots=True)
class Finding:
    """Place that identifies a patient, or needs looking at.

    Attributes:
        attribute: DICOM keyword or tag, with the sequences it is in; a header's or side-car's field.
        rule: what is wrong, in words; never a value.
        action: what the profile wants done with it, such as "X: remove"; "" where it says nothing.
        level: `found` where it breaks a rule, `look` where only a person can tell.
        masked: the value's shape, with `A`, `a` and `9` for letters and digits; "" where there is none to show.
        count: how often it is in the file.
    """

    path: Path
    kind: Kind
    attribute: str
    rule: str
    action: str = ""
    level: Literal["found", "look"] = "found"
    masked: str = ""
    count: int = 1


@dataclass
class Past:
    """Identifiers that files held before they were de-identified.

    Values are those of one file, by attribute with its sequences; UIDs those of all files that identify an instance;
    terms name a patient: of one file, or of all where files are not paired.
    """

    values: dict[str, set[str]] = field(default_factory=dict, repr=False)
    uids: set[str] = field(default_factory=set, repr=False)
    terms: Vocabulary = field(default_factory=Vocabulary, repr=False)


_NOBODY = re.compile(
    r"(?i)^\W*(anon\w*|de-?ident\w*|removed|redacted|none|null|nil|unknown|unspecified|not (specified|available|known)"
    r"|n/?a|dummy|masked|withheld|blank|empty|deleted|scrubbed|undefined|default|test|phantom|synthetic|pseudonym\w*"
    r"|(patient|subject|case|no)(\W*name)?)(\W+(anon\w*|de-?ident\w*|removed|redacted|value|name|patient|id|\d{1,5}))*\W*$"
)
"""What tools put in the place of a value."""

_COUNTER = re.compile(r"\d{1,4}")
_PSEUDONYM = re.compile(
    r"(?=[^\d]*\d)(?!(?i:mrn|pid|ssn|nhs))[A-Za-z][A-Za-z0-9]*([-_. ]+[A-Za-z]*\d*)*|[0-9a-fA-F]{16,}"
)


_TECHNICAL = words_of("""
    abdomen adc angio angiography ap arterial axial body bone brain breast cardiac cervical chest cine contrast cor
    coronal ct cta delayed diffusion dwi dynamic early echo enhanced epi fat fdg femur fl flair foot fse gre hand
    head heart helical hip image images kidney knee l late lateral left liver localiser localizer lower lumbar lung
    lungs map mask mm mr mra mri native neck oblique pa pancreas pd pelvis perfusion pet phase plain portal post pre
    prostate r recon right routine sag sagittal sat scan scout se series shoulder sinus skull slice soft spin spine
    spiral standard stir swi t1 t1w t2 t2w thin thoracic thorax tissue topogram tra transverse tse unenhanced upper
    us venous vibe view volume w whole with without wo wrist xray
""")
_STOCK = words_of("acquisitionequipmentofthesourceimages softwarelibraryusedtocreatethisinstance")
"""Sentences that highdicom writes into every file."""

_SHORT_NUMBER = re.compile(r"\d{1,3}|\d{1,3}(mm|cm|kv|s|d)|[bt]\d{1,4}")

_SUFFIX = re.compile(r"(?i)\.(nii\.gz|dcm|ima|nii|mha|mhd|nrrd|png|jpe?g|tiff?|svs|json|csv|txt|mp4|avi|npz)$")
"""Endings of names that tell the format alone."""


def text_of(value: Any) -> str:
    """Returns a value as text without padding.

    Bytes by UTF-8 or else byte by byte, so that equal stays equal.
    """
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            value = value.decode("latin-1")
    return "" if value is None else str(value).strip("\0 ^=\\")


def names_nobody(vr: str, text: str) -> bool:
    """Whether a value is empty or an unlikely dummy, as `REMOVED`.

    Further dummies are 1 January, midnight, `XXXX` and age 000.
    """
    bare = folded(text)
    if not bare.strip("0") or _NOBODY.match(text):
        return True
    if len(set(bare)) == 1 and len(bare) > 1:
        return True
    if vr in TIMES:
        return _dummy_time(vr, re.sub(r"[-:./T ]", "", text))
    if vr == "AS":
        return not text[:-1].strip("0")
    if vr in ("DS", "IS"):
        return not re.search("[1-9]", text)
    return vr == "CS" and text.upper() in ("O", "U")


def dummy_kind(vr: str, text: str) -> str:
    """Kind of dummy that `names_nobody` accepts; "" when empty."""
    if not folded(text).strip("0"):
        return ""
    if vr in TIMES:
        return "hours of midnight or noon" if vr == "TM" else "dates on 1 January, or of a year alone"
    return "words such as ANON, and letters repeated"


def only_technical(text: str) -> bool:
    """Whether a description holds imaging words only: `axial portal 3 mm`."""
    words = re.findall(r"[^\W_]+", text.casefold())
    if folded(text) in _STOCK:
        return True
    return bool(words) and all(word in _TECHNICAL or _SHORT_NUMBER.fullmatch(word) for word in words)


def _dummy_time(vr: str, digits: str) -> bool:
    """Whether a date is 1 January, or a time midnight or noon."""
    if vr == "TM":
        return not digits[:6].strip("0") or digits[:6] == "120000"
    return digits[4:8] in ("", "0101", "01", "0000")


def is_counter(text: str) -> bool:
    """Whether a value is a counter of at most four digits."""
    return bool(_COUNTER.fullmatch(text))


def like_pseudonym(text: str) -> bool:
    """Whether a value looks like a pseudonym: letters with digits, or digest."""
    longest = max(map(len, re.findall(r"\d+", text)), default=0)
    digest = re.fullmatch("[0-9a-fA-F]{16,}", text) is not None
    return digest or (bool(_PSEUDONYM.fullmatch(text)) and longest <= 5)


def mask(text: str) -> str:
    """Returns the shape of a value: `Aaa^Aaaa`, `99999999`."""
    shape = "".join(
        ("A" if letter.isupper() else "a" if letter.isalpha() else "9") if letter.isalnum() else letter
        for letter in text[:LONGEST_MASK].replace("\n", " ").replace("\r", " ")
    )
    return shape if len(text) <= LONGEST_MASK else f"{shape}... ({len(text)} characters)"


def suspicions(text: str, vocabulary: Vocabulary, *, dates: bool = True) -> list[str]:
    """Reasons why a text may name a patient, each once.

    `dates` says whether a date tells anything; a version of a program is often written as one.
    """
    texts = [
        f"repeats the {span.kind}" if span.known else f"holds what looks like a {span.kind}"
        for span in spans_of(text, vocabulary)
        if dates or span.kind != "date"
    ]
    return list(dict.fromkeys(texts))


def shown(path: Path, doubtful: Collection[str]) -> str:
    """Returns a relative path with identifying parts as shapes."""
    return "/".join(_mask_part(part) if part in doubtful else part for part in path.parts)


def _mask_part(part: str) -> str:
    suffix = _SUFFIX.search(part)
    return mask(part[: suffix.start()]) + suffix.group() if suffix else mask(part)
