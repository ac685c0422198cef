"""Single attributes against the basic profile of PS3.15: what is wrong with a value, and what may stay."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from medimg_eval.deid.ps3_15 import CLEANED, OPTIONS, WORDS, Rule, rules
from medimg_eval.deid.values import (
    TEXTS,
    TIMES,
    Finding,
    Kind,
    Past,
    dummy_kind,
    is_counter,
    like_pseudonym,
    mask,
    names_nobody,
    only_technical,
    suspicions,
    text_of,
)
from medimg_eval.metrics.phi import Vocabulary, folded

Level = Literal["found", "look"]

SAME_DAY = "is the date of the file before"

REGISTERED = "1.2.840.10008."
"""UIDs of the standard itself."""

_DATED_UID = re.compile(r"(?:^|\.)(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])\d{0,12}(?=\.|$)")
_PROGRAMS = frozenset(["SoftwareVersions", "ManufacturerModelName", "Manufacturer", "DeidentificationMethod"])
"""Attributes whose dates are those of programs."""

_ODD = {
    "UI": re.compile(r"[^\d.\\\s]"),
    **dict.fromkeys(("DA", "DT", "TM"), re.compile(r"[^\W\dTZ_]")),
    **dict.fromkeys(("DS", "IS"), re.compile(r"[^\W\deE_]")),
}
"""What is in no value of these value representations, and so was typed there."""

_NAME_PARTS = ("Alphabetic", "Ideographic", "Phonetic")
"""How DICOM's JSON splits the name of a person."""


@dataclass
class Header:
    """One file's header, and what it states.

    Attributes:
        options: letters of the options that the file declares or the user allows.
        removed: PatientIdentityRemoved: None where nothing is asked of it, as in a side-car.
        moved: whether it says that dates were changed.
        terms: what names its patient, as far as it still says so.
        left_out: what values are that were taken for dummies -> how many.
        seen: keys of findings -> (finding without its count, count).
    """

    path: Path
    options: frozenset[str] = frozenset()
    removed: bool | None = None
    moved: bool = False
    past: Past | None = None
    patient: tuple[str, str] = ("", "")
    terms: Vocabulary = field(default_factory=Vocabulary, repr=False)
    left_out: Counter[str] = field(default_factory=Counter, repr=False)
    seen: dict[tuple[str, str, str], tuple[Finding, int]] = field(default_factory=dict, repr=False)

    def add(
        self, kind: Kind, attribute: str, rule: str, action: str = "", level: Level = "found", text: str = ""
    ) -> None:
        """Keeps a finding, counted with those that are like it."""
        key = (kind, attribute, rule)
        held = self.seen.get(key)
        if held is None:
            done = f"{action}: {WORDS[action]}" if action else ""
            held = Finding(self.path, kind, attribute, rule, done, level, mask(text)), 0
        self.seen[key] = held[0], held[1] + 1

    def is_dummy(self, vr: str, text: str) -> bool:
        """Returns whether a value is a dummy, counting dummies."""
        nobody = names_nobody(vr, text)
        if nobody and (kind := dummy_kind(vr, text)):
            self.left_out[kind] += 1
        return nobody

    def findings(self) -> list[Finding]:
        """Returns what was found, sorted."""
        return [
            replace(finding, count=count) for _, (finding, count) in sorted(self.seen.items(), key=lambda one: one[0])
        ]


def judge_attribute(header: Header, tag: int, vr: str, text: str, name: str) -> None:
    """Judges a filled attribute, not a sequence; side-cars too.

    `header` gets what is found; `name` is what the attribute is called, with its sequences.
    """
    if not text:
        return
    rule = rules().get(tag)
    if vr in _ODD and _ODD[vr].search(text):
        action = rule.action if rule is not None else ""
        header.add("text", name, f"holds letters, which no {vr} has", action, text=text)
    elif vr == "UI":
        _judge_uid(header, rule, text, name)
    elif rule is None:
        _judge_other(header, vr, text, name)
    elif not _is_allowed(header, rule, vr, text, name):
        _judge_listed(header, rule, vr, text, name)


def _judge_uid(header: Header, rule: Rule | None, text: str, name: str) -> None:
    is_kept = "u" in header.options
    action = rule.action if rule is not None else ""
    if header.past is not None and not is_kept:
        for uid in text.split("\\"):
            if uid in header.past.uids:
                header.add("uid", name, "is a UID of the files before", action, text=uid)
    if rule is not None and rule.action == "X" and not is_kept:
        header.add("uid", name, "is filled", action, text=text)
    elif rule is not None and not is_kept and not text.startswith(REGISTERED) and _DATED_UID.search(text):
        header.add("uid", name, "is a UID that seems to hold a date", action, "look", text)


def _is_allowed(header: Header, rule: Rule, vr: str, text: str, name: str) -> bool:
    """Whether an option lets the attribute stay."""
    options = rule.options & header.options
    if not options:
        return False
    if options <= CLEANED:
        if "m" in options and vr in TIMES and _as_before(header, vr, text, name):
            header.add("date", name, SAME_DAY, rule.action, text=text)
        if vr in TEXTS:
            for what in suspicions(text, header.terms):
                header.add("text", name, what, rule.action, text=text)
    return True


def _judge_listed(header: Header, rule: Rule, vr: str, text: str, name: str) -> None:
    if header.is_dummy(vr, text):
        return
    if "d" in rule.options and only_technical(text) and not suspicions(text, header.terms):
        return
    kind = kind_of(vr, rule)
    if vr in TIMES and header.moved and rule.options & {"f", "m"}:
        if _as_before(header, vr, text, name):
            header.add(kind, name, SAME_DAY, rule.action, text=text)
        elif header.past is None or name not in header.past.values:
            header.add(kind, name, "is filled; the file says that dates were changed", rule.action, "look", text)
        elif vr == "TM" and text in header.past.values[name]:
            header.add(kind, name, "is the hour of the file before", rule.action, "look", text)
    elif not rule.replaced or (not header.removed and header.removed is not None):
        header.add(kind, name, "is filled", rule.action, text=text)
    elif header.past is not None and text in header.past.values.get(name, ()) and not is_counter(text):
        header.add(kind, name, "is as it was before", rule.action, text=text)
    elif not (vr in TEXTS | {"PN"} and _is_pseudonym(header, text, name)):
        header.add(kind, name, "is filled, and not with a dummy", rule.action, text=text)


def _is_pseudonym(header: Header, text: str, name: str) -> bool:
    """Whether a value is taken for a pseudonym, or needs looking."""
    if is_counter(text):
        return True
    if not like_pseudonym(text):
        return False
    of_patient = name in ("PatientName", "PatientID") and folded(header.patient[0]) == folded(header.patient[1])
    of_past = header.past is not None and name in header.past.values
    if not of_patient and not of_past:
        header.add("identity", name, "is filled with what may be a pseudonym", "", "look", text)
    return True


def _judge_other(header: Header, vr: str, text: str, name: str) -> None:
    """Judges attributes outside the profile: people, dates, repeated identities."""
    if vr == "PN":
        if not header.is_dummy(vr, text) and not (header.removed and like_pseudonym(text)):
            header.add("identity", name, "holds the name of a person", text=text)
    elif vr in ("DA", "DT"):
        if not header.is_dummy(vr, text) and not {"f", "m"} & header.options:
            level: Level = "look" if header.moved else "found"
            header.add("date", name, "is filled", level=level, text=text)
    elif vr in TEXTS or vr in ("CS", "AE"):
        plain = name.rpartition(".")[2]
        checked = header.terms if vr in TEXTS else Vocabulary()
        for what in suspicions(text, checked if plain not in _PROGRAMS else header.terms, dates=plain not in _PROGRAMS):
            header.add("text", name, what, text=text)


def _as_before(header: Header, vr: str, text: str, name: str) -> bool:
    """Whether the day equals the file's former one; hours do not count."""
    if header.past is None or vr == "TM" or names_nobody(vr, text):
        return False
    return text[:8] in {value[:8] for value in header.past.values.get(name, ())}


def kind_of(vr: str, rule: Rule) -> Kind:
    """Returns what kind of finding a filled attribute of the profile is."""
    if vr in TIMES:
        return "date"
    if "g" in rule.options or vr in ("OB", "OW", "UN"):
        return "graphics"
    return "text" if "d" in rule.options or vr in ("LT", "UT") else "identity"


def side_car(
    values: Mapping[str, Any], path: Path, terms: Vocabulary, keep: Collection[str], left_out: Counter[str]
) -> list[Finding]:
    """Scans a JSON side-car's DICOM attributes and other texts.

    `terms` name patients of the same folder; `keep` are names of `OPTIONS` that the data may make use of; `left_out`
    counts what was taken for dummies.
    """
    header = Header(path, frozenset(OPTIONS[name][0] for name in keep), terms=terms, left_out=left_out)
    _side_values(header, values, "")
    return header.findings()


def _side_values(header: Header, value: Any, name: str) -> None:
    from pydicom.datadict import dictionary_VR, keyword_for_tag, tag_for_keyword

    if isinstance(value, Mapping):
        inner = value.get("Value") if "vr" in value else None
        for key, item in value.items() if inner is None else [("", inner)]:
            below = "" if key in _NAME_PARTS else _masked_key(header, str(key))
            _side_values(header, item, f"{name}.{below}".strip("."))
    elif isinstance(value, list):
        for item in value:
            _side_values(header, item, name)
    elif value is not None and not isinstance(value, bool):
        last = name.rpartition(".")[2]
        tag = int(last, 16) if re.fullmatch("[0-9A-Fa-f]{8}", last) else tag_for_keyword(last)
        is_known = tag is not None and bool(keyword_for_tag(tag))
        vr = dictionary_VR(tag) if tag is not None and is_known else "LT"
        if is_known and isinstance(tag, int):
            judge_attribute(header, tag, vr, text_of(value), name)
        elif isinstance(value, str):
            _judge_other(header, "LT", text_of(value), name)


def _masked_key(header: Header, key: str) -> str:
    """Side-car key without numbers and names of patients."""
    doubts = suspicions(key.replace("_", " "), header.terms)
    for what in doubts:
        header.add("text", "a key", what, text=key)
    return mask(key) if doubts or not re.fullmatch(r"\w+", key) else key
