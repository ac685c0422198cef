"""What the benchmarks' own rules of extraction share: boxes, similarity, words, answers that are compared loosely."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping

_SEED = 42
_BOX = "\\boxed{"

_MARKS = ';/[]"{}()=+\\_-><@`,?!'
"""Punctuation that the VQA challenge takes out of answers."""

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {word: str(number) for number, word in enumerate(_DIGITS)} | {"none": "0"}


class LenientAnswer(str):
    """Answer taken by a published rule whose scoring is looser than equality.

    It equals each right answer that the published scoring `accepts`, so that whoever asks whether the answer is right
    gets the published verdict; as a text it is what was compared.
    """

    __slots__ = ()

    def accepts(self, right: str) -> bool:
        """Returns whether the published scoring accepts this for `right`."""
        raise NotImplementedError

    def __eq__(self, right: object) -> bool:
        return isinstance(right, str) and self.accepts(str(right))

    def __ne__(self, right: object) -> bool:
        return not self == right

    def __hash__(self) -> int:
        return hash(str(self))


class CaseInsensitiveAnswer(LenientAnswer):
    """An answer in lower case that equals a right answer whatever the case."""

    __slots__ = ()

    def accepts(self, right: str) -> bool:
        """Returns whether they are the same in lower case."""
        return right.lower() == str(self)


class AnyOfAnswer(LenientAnswer):
    """Several accepted answers, written "yes and no", each of which counts as right."""

    __slots__ = ()

    def accepts(self, right: str) -> bool:
        """Returns whether the right answer is one of them."""
        return right in str(self).split(" and ")


def yes_no(yes: bool, no: bool) -> str | None:
    """Returns the answer of a search for the right word.

    Yes where yes is right, no where no is.
    """
    if yes and no:
        return AnyOfAnswer("yes and no")
    return "yes" if yes else "no" if no else None


def offered(letter: str | None, options: Mapping[str, str]) -> str | None:
    """Returns the letter, or None, wrong as published too, if no option has it."""
    return letter if letter in options else None


def boxed_content(text: str) -> str | None:
    r"""Returns the content of the last `\boxed{...}`, up to its own brace, or None."""
    _, box, inside = text.rpartition(_BOX)
    depth = 0
    for position, char in enumerate(inside if box else ""):
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return inside[:position].strip()
    return None


def labelled(said: str, options: Mapping[str, str]) -> str | None:
    """Returns the option `said` names, ignoring case.

    An option is named by its letter, `letter. text`, or its text. Where texts are letters of other options, several may
    fit, and each is right.
    """
    said = said.strip().lower()
    meant = [
        letter
        for letter, text in options.items()
        if said in {letter.lower(), f"{letter}. {text}".strip().lower(), text.strip().lower()}
    ]
    return AnyOfAnswer(" and ".join(meant)) if len(meant) > 1 else meant[0] if meant else None


def nearest(said: str, texts: Mapping[str, str]) -> str | None:
    """Returns the key of the most similar text by difflib.

    The first among equals; None if all ratios are 0. The ratio is 2 M / T, M the characters in matching
    blocks and T those of both texts. It depends on the order of its arguments and, from 200 characters on,
    leaves out frequent characters: both are part of the published rules.
    """
    best, highest = None, 0.0
    for key, text in texts.items():
        ratio = difflib.SequenceMatcher(None, text, said).ratio()
        if ratio > highest:
            best, highest = key, ratio
    return best


def drawn(output: str, options: Mapping[str, str], question: str) -> str | None:
    """Returns a pseudo-random option by question, options and output; None without options."""
    if not options:
        return None
    seed_text = repr((_SEED, question, list(options.items()), output))
    return list(options)[int.from_bytes(hashlib.sha256(seed_text.encode()).digest()[:8]) % len(options)]


def last_mention(output: str, forms: tuple[str, ...], texts: Mapping[str, str]) -> str | None:
    """Returns the last letter in the first form that occurs.

    Else the letter of the last text. As MMMU's code and its descendants do: punctuation around the output
    goes, blanks take its place, and texts count whatever the case in outputs of more than five words.
    """
    for mark in ",.!?;:'":
        output = output.strip(mark)
    output = f" {output} "
    for form in forms:
        positions = {letter: position for letter in texts if (position := output.rfind(form.format(letter))) >= 0}
        if positions:
            return max(positions, key=positions.__getitem__)
    lower = output.lower()
    positions = {letter: position for letter, text in texts.items() if (position := lower.rfind(text.lower())) >= 0}
    return max(positions, key=positions.__getitem__) if positions and len(output.split()) > 5 else None


def vqa_words(text: str) -> str:
    """Returns a text normalised as by LLaVA-Med and MultiMedEval.

    Lower case, few marks, no articles, digits for numbers. A mark that has a blank at one side somewhere is
    dropped, another becomes a blank; only the first 32 full stops go. They also respell contractions
    ("dont"), which makes no yes, no or not, and is left out here.
    """
    text = text.lower()
    number_has_comma = re.search(r"\d,\d", text) is not None
    cleaned = text
    for mark in _MARKS:
        dropped = number_has_comma or f"{mark} " in text or f" {mark}" in text
        cleaned = cleaned.replace(mark, "" if dropped else " ")
    cleaned = re.sub(r"\.(?!\d)", "", cleaned, count=32)
    words = (_NUMBERS.get(word, word) for word in cleaned.split())
    return " ".join(word for word in words if word not in {"a", "an", "the"}).replace(",", "")
