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
    """Refuses unknown forms of options; UsageError names the key."""
    form = form_of(config, FORMS, "options")
    if form:
        UsageError.refuse_unknown(f"task.layout.options of {form!r} have no key", {form, *FORMS[form]}, *config)


def form_of(config: Mapping[str, Any], forms: Mapping[str, Any], what: str) -> str:
    """Key naming a form; "" for empty configs, UsageError for unknown ones."""
    if not config:
        return ""
    for form in forms:
        if form in config:
            return form
    key = next(iter(config))
    raise UsageError(f"task.layout.{what} has the key {key!r}, expected one way to say it{nearest(key, forms)}")


def option_names(config: Mapping[str, Any]) -> list[str]:
    """Fields of options, each present in some record."""
    form = form_of(config, FORMS, "options")
    if form == "columns":
        columns = config["columns"]
        return [str(name) for name in (columns.values() if isinstance(columns, Mapping) else columns)]
    if form in ("list", "dict", "inside"):
        return names_in(config[form])
    if form == "answer":
        return [config[key] for key in ("answer", "letter", "distractors", "letters")]
    return []


def options_of(config: Mapping[str, Any], record: Record) -> dict[str, str]:
    """Letter -> text in order, without missing options.

    Those that are absent, empty or NaN.

    Raises CaseError where the record's options cannot be understood.
    """
    form = form_of(config, FORMS, "options")
    strip = bool(config.get("strip"))
    if form == "columns":
        return _letter_options(
            {letter: record.value(column) for letter, column in _letter_columns(config["columns"])}, strip=strip
        )
    if form in ("list", "dict"):
        stated = _read_literal(record, config[form])
        if form == "list" or (
            isinstance(stated, list) and stated and all(isinstance(item, Mapping) for item in stated)
        ):
            return listed(stated, record, strip=strip)
        if not isinstance(stated, Mapping) and not said_nothing(stated):
            raise record.error(f"options {stated!r:.60} are no object of letters and texts")
        if isinstance(stated, Repeated):
            raise record.error(f"options name a letter more than once ({', '.join(name for name, _ in stated.pairs)})")
        return _letter_options(stated or {}, strip=strip)
    if form == "answer":
        return _of_distractors(config, record)
    if form == "inside":
        return _options_inside(record.fill(config["inside"]), record)
    return _letter_options(config.get("fixed", {}), strip=strip)


def _options_inside(text: str, record: Record) -> dict[str, str]:
    options, _ = within_text(text)
    if not options:
        raise record.error(f"no options such as `A) ...` are found in the question {text!r:.80}")
    return options


def _read_literal(record: Record, column: str) -> Any:
    try:
        return literal(record.value(column))
    except ValueError as error:
        raise record.error(f"column {column!r}: {error}") from error


def _letter_columns(columns: Sequence[str] | Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Letter -> column, by common endings such as `option_B`, else order."""
    if isinstance(columns, Mapping):
        return [(str(letter), str(column)) for letter, column in columns.items()]
    return _lettered_columns(tuple(map(str, columns)))


@lru_cache(maxsize=16)
def _lettered_columns(columns: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    own = [re.fullmatch(r"(?:.*[ _.-])?([A-Za-z])", column) for column in columns]
    letters = [match[1].upper() for match in own if match]
    if len(columns) > len(LETTERS):
        raise UsageError(f"task.layout.options.columns names {len(columns)}, expected at most {len(LETTERS)}")
    return tuple(zip(letters if len(set(letters)) == len(columns) else LETTERS, columns, strict=False))


def _letter_options(found: Mapping[Any, Any], *, strip: bool) -> dict[str, str]:
    # Options that many questions share, such as yes and no, are held once.
    texts = {intern(str(letter)): _held_once(as_text(text)) for letter, text in found.items() if not said_nothing(text)}
    return {letter: _strip_letter(text, letter) for letter, text in texts.items()} if strip else texts


def _held_once(text: str) -> str:
    """The same text, held once where it is short."""
    return intern(text) if len(text) <= _SHARED else text


def _strip_letter(text: str, letter: str) -> str:
    """A text without the letter of its own that stands before it."""
    match = PREFIX.fullmatch(text)
    return match[3].strip() if match and (match[1] or match[2]).upper() == letter else text


def listed(found: Any, record: Record, *, strip: bool) -> dict[str, str]:
    """Options of a list of texts, or of `letter` and `content`.

    Raises CaseError for what is no list, or is longer than the alphabet.
    """
    if said_nothing(found):
        return {}
    if not isinstance(found, list | tuple):
        raise record.error(f"options {found!r:.60} are no list")
    if len(found) > len(LETTERS):
        raise record.error(f"holds {len(found)} options, expected at most {len(LETTERS)}")
    if found and all(isinstance(item, Mapping) for item in found):
        if not all("letter" in item and "content" in item for item in found):
            raise record.error(f"options {found!r:.60} are objects without 'letter' and 'content'")
        letters = [str(item["letter"]) for item in found]
        if len(set(letters)) < len(letters):
            raise record.error(f"options name a letter more than once ({', '.join(letters)})")
        return _letter_options({str(item["letter"]): item["content"] for item in found}, strip=False)
    texts = [as_text(item) for item in found]
    if not strip:
        return _letter_options(dict(zip(LETTERS, texts, strict=False)), strip=False)
    prefixed = [PREFIX.fullmatch(text) for text in texts]
    letters = [(match[1] or match[2]).upper() if match else "" for match in prefixed]
    if all(letters) and len(set(letters)) == len(letters):
        return _letter_options(
            {letter: match[3].strip() for letter, match in zip(letters, prefixed, strict=True) if match}, strip=False
        )
    texts_ = [
        match[3].strip() if match and letter == LETTERS[index] else text
        for index, (text, match, letter) in enumerate(zip(texts, prefixed, letters, strict=True))
    ]
    return _letter_options(dict(zip(LETTERS, texts_, strict=False)), strip=False)


def _of_distractors(config: Mapping[str, Any], record: Record) -> dict[str, str]:
    letters, texts = _read_literal(record, config["letters"]), _read_literal(record, config["distractors"])
    if not isinstance(letters, list) or not isinstance(texts, list) or len(letters) != len(texts):
        raise record.error(f"{config['letters']!r} and {config['distractors']!r} are no lists of the same length")
    options = {record.text(config["letter"]): record.text(config["answer"])}
    for letter, text in zip(letters, texts, strict=True):
        if str(letter) in options:
            raise record.error(f"two options have the letter {letter!r}")
        options[str(letter)] = as_text(text)
    return dict(sorted(options.items()))


def within_text(text: str) -> tuple[dict[str, str], str]:
    """Options that stand in a question, and the question without them.

    Lines that start with `A)`, `(A)`, `A.` or `A:`, or such marks one after the other in one line. Letters must run
    from A without a gap; what else looks like a mark, such as `vitamin C.`, is none.
    """
    for pattern in (LINE, MARK):
        chosen = _last_letter_run([*pattern.finditer(text)])
        if len(chosen) >= 2:
            ends = [*(match.start() for match in chosen[1:]), len(text)]
            starts = [match.start(3) if pattern is LINE else match.end() for match in chosen]
            texts = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
            stem = re.sub(r"\s*(?:Answer Choices|Options|Choices):?\s*$", "", text[: chosen[0].start()]).strip()
            return dict(zip((match[1] or match[2] for match in chosen), texts, strict=True)), stem
    return {}, text


def _last_letter_run(found: Sequence[re.Match[str]]) -> list[re.Match[str]]:
    """The last run A, B, C, ... among marks."""
    chosen: list[re.Match[str]] = []
    for match in found:
        letter = match[1] or match[2]
        if letter == "A":
            chosen = [match]
        elif chosen and letter == LETTERS[len(chosen) % len(LETTERS)]:
            chosen.append(match)
    return chosen
