"""What may be chosen from: letters and texts, out of every way that benchmarks write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Any

from medimg_eval.data.questions.records import Record, Repeated, as_text, literal, names_in, said_nothing
from medimg_eval.errors import UsageError, nearest

_SHARED = 40
"""Characters up to which options are held once for all questions that have them."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

FORMS = {
    "columns": {"strip"},
    "list": {"strip"},
    "dict": {"strip"},
    "answer": {"letter", "distractors", "letters"},
    "inside": {"remove"},
    "fixed": set(),
}
"""The ways to say options: the key that tells them apart -> the keys that go with it."""

PREFIX = re.compile(r"\s*(?:\(([A-Za-z])\)|([A-Za-z])\s*[).:：、．])\s*(.*)", re.DOTALL)
"""An option with its letter: `A) text`, `(A) text`, `A. text` or `A: text`."""

LINE = re.compile(r"^[ \t]*(?:\(([A-Z])\)|([A-Z])[).:：、．])[ \t]*(.*?)[ \t]*$", re.MULTILINE)
"""An option on a line of its own."""

MARK = re.compile(r"(?:(?<=\s)|^)(?:\(([A-Z])\)|([A-Z])[).:])\s+")
"""An option somewhere in a line."""


def check_options(config: Mapping[str, Any]) -> None:
    """Refuses a way to say options that there is not; the UsageError names the key."""
    form = form_of(config, FORMS, "options")
    if form:
        UsageError.refuse_unknown(f"task.layout.options of {form!r} have no key", {form, *FORMS[form]}, *config)


def form_of(config: Mapping[str, Any], forms: Mapping[str, Any], what: str) -> str:
    """The key that tells how something is said; empty for an empty config; raises UsageError where there is none."""
    if not config:
        return ""
    for form in forms:
        if form in config:
            return form
    key = next(iter(config))
    raise UsageError(f"task.layout.{what} has the key {key!r}, expected one way to say it{nearest(key, forms)}")


def option_names(config: Mapping[str, Any]) -> list[str]:
    """The fields of records that options are read from, of which each must be in some record."""
    form = form_of(config, FORMS, "options")
    if form == "columns":
        columns = config["columns"]
        return [str(one) for one in (columns.values() if isinstance(columns, Mapping) else columns)]
    if form in ("list", "dict", "inside"):
        return names_in(config[form])
    if form == "answer":
        return [config[key] for key in ("answer", "letter", "distractors", "letters")]
    return []


def options_of(config: Mapping[str, Any], record: Record) -> dict[str, str]:
    """Letter -> text, in their order; those that are absent, empty or NaN are left out.

    Raises CaseError where the record's options cannot be understood.
    """
    form = form_of(config, FORMS, "options")
    strip = bool(config.get("strip"))
    if form == "columns":
        return _lettered({letter: record.value(column) for letter, column in _columns(config["columns"])}, strip=strip)
    if form in ("list", "dict"):
        found = _read(record, config[form])
        if form == "list" or (isinstance(found, list) and found and all(isinstance(one, Mapping) for one in found)):
            return listed(found, record, strip=strip)
        if not isinstance(found, Mapping) and not said_nothing(found):
            raise record.error(f"options {found!r:.60} are no object of letters and texts")
        if isinstance(found, Repeated):
            raise record.error(f"options name a letter more than once ({', '.join(name for name, _ in found.pairs)})")
        return _lettered(found or {}, strip=strip)
    if form == "answer":
        return _of_distractors(config, record)
    if form == "inside":
        return _inside(record.fill(config["inside"]), record)
    return _lettered(config.get("fixed", {}), strip=strip)


def _inside(text: str, record: Record) -> dict[str, str]:
    found, _ = within_text(text)
    if not found:
        raise record.error(f"no options such as `A) ...` are found in the question {text!r:.80}")
    return found


def _read(record: Record, column: str) -> Any:
    try:
        return literal(record.value(column))
    except ValueError as error:
        raise record.error(f"column {column!r}: {error}") from error


def _columns(columns: Sequence[str] | Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Letter and column: the letter that all names end in, such as `option_B` and `Choice B`; else by their order."""
    if isinstance(columns, Mapping):
        return [(str(letter), str(column)) for letter, column in columns.items()]
    return _lettered_columns(tuple(map(str, columns)))


@lru_cache(maxsize=16)
def _lettered_columns(columns: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    own = [re.fullmatch(r"(?:.*[ _.-])?([A-Za-z])", column) for column in columns]
    letters = [one[1].upper() for one in own if one]
    if len(columns) > len(LETTERS):
        raise UsageError(f"task.layout.options.columns names {len(columns)}, expected at most {len(LETTERS)}")
    return tuple(zip(letters if len(set(letters)) == len(columns) else LETTERS, columns, strict=False))


def _lettered(found: Mapping[Any, Any], *, strip: bool) -> dict[str, str]:
    # Options that many questions share, such as yes and no, are held once.
    texts = {intern(str(letter)): _held_once(as_text(text)) for letter, text in found.items() if not said_nothing(text)}
    return {letter: _unprefixed(text, letter) for letter, text in texts.items()} if strip else texts


def _held_once(text: str) -> str:
    """The same text, held once where it is short."""
    return intern(text) if len(text) <= _SHARED else text


def _unprefixed(text: str, letter: str) -> str:
    """A text without the letter of its own that stands before it."""
    found = PREFIX.fullmatch(text)
    return found[3].strip() if found and (found[1] or found[2]).upper() == letter else text


def listed(found: Any, record: Record, *, strip: bool) -> dict[str, str]:
    """Options of a list: of texts, whose letters are by their order, or of objects with `letter` and `content`.

    Raises CaseError for what is no list, or is longer than the alphabet.
    """
    if said_nothing(found):
        return {}
    if not isinstance(found, list | tuple):
        raise record.error(f"options {found!r:.60} are no list")
    if len(found) > len(LETTERS):
        raise record.error(f"holds {len(found)} options, expected at most {len(LETTERS)}")
    if found and all(isinstance(one, Mapping) for one in found):
        if not all("letter" in one and "content" in one for one in found):
            raise record.error(f"options {found!r:.60} are objects without 'letter' and 'content'")
        letters = [str(one["letter"]) for one in found]
        if len(set(letters)) < len(letters):
            raise record.error(f"options name a letter more than once ({', '.join(letters)})")
        return _lettered({str(one["letter"]): one["content"] for one in found}, strip=False)
    texts = [as_text(one) for one in found]
    if not strip:
        return _lettered(dict(zip(LETTERS, texts, strict=False)), strip=False)
    prefixed = [PREFIX.fullmatch(text) for text in texts]
    letters = [(one[1] or one[2]).upper() if one else "" for one in prefixed]
    if all(letters) and len(set(letters)) == len(letters):
        return _lettered(
            {letter: one[3].strip() for letter, one in zip(letters, prefixed, strict=True) if one}, strip=False
        )
    kept = [
        one[3].strip() if one and letter == LETTERS[place] else text
        for place, (text, one, letter) in enumerate(zip(texts, prefixed, letters, strict=True))
    ]
    return _lettered(dict(zip(LETTERS, kept, strict=False)), strip=False)


def _of_distractors(config: Mapping[str, Any], record: Record) -> dict[str, str]:
    letters, texts = _read(record, config["letters"]), _read(record, config["distractors"])
    if not isinstance(letters, list) or not isinstance(texts, list) or len(letters) != len(texts):
        raise record.error(f"{config['letters']!r} and {config['distractors']!r} are no lists of the same length")
    found = {record.text(config["letter"]): record.text(config["answer"])}
    for letter, text in zip(letters, texts, strict=True):
        if str(letter) in found:
            raise record.error(f"two options have the letter {letter!r}")
        found[str(letter)] = as_text(text)
    return dict(sorted(found.items()))


def within_text(text: str) -> tuple[dict[str, str], str]:
    """Options that stand in a question, and the question without them.

    Lines that start with `A)`, `(A)`, `A.` or `A:`, or such marks one after the other in one line. Letters must run
    from A without a gap; what else looks like a mark, such as `vitamin C.`, is none.
    """
    for pattern in (LINE, MARK):
        chosen = _run([*pattern.finditer(text)])
        if len(chosen) >= 2:
            ends = [*(one.start() for one in chosen[1:]), len(text)]
            starts = [one.start(3) if pattern is LINE else one.end() for one in chosen]
            texts = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
            stem = re.sub(r"\s*(?:Answer Choices|Options|Choices):?\s*$", "", text[: chosen[0].start()]).strip()
            return dict(zip((one[1] or one[2] for one in chosen), texts, strict=True)), stem
    return {}, text


def _run(found: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """The last run A, B, C, ... among marks."""
    chosen: list[re.Match[str]] = []
    for one in found:
        letter = one[1] or one[2]
        if letter == "A":
            chosen = [one]
        elif chosen and letter == LETTERS[len(chosen) % len(LETTERS)]:
            chosen.append(one)
    return chosen
