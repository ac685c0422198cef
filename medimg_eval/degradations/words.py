"""Degradations of questions in words: typing errors, other words, order of options, sentences beside the point."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from medimg_eval.case import Array
from medimg_eval.degradations.declaration import degradation
from medimg_eval.question import Key, Question

_words = partial(degradation, domain="words")


@dataclass(frozen=True)
class Reworded:
    """A question in other words, and what becomes of its right answer.

    Attributes:
        question: as it is asked.
        letters: letter of an option as published -> its letter now; empty where they stay.
        opposite: whether yes is right now where no was.
    """

    question: Question
    letters: Mapping[str, str] = field(default_factory=dict)
    opposite: bool = False

    def answer(self, key: Key) -> Key:
        """Returns the right answer of the changed question."""
        value = key.value
        if self.letters and isinstance(value, str):
            value = self.letters.get(value, value)
        elif self.letters and isinstance(value, list | tuple | set | frozenset):
            value = type(value)(self.letters.get(str(letter), letter) for letter in value)
        if self.opposite:
            value = {"yes": "no", "no": "yes"}.get(str(value).lower(), value)
        return replace(key, value=value)


PROTECTED = (
    re.compile(r"<[^<>\n]*>|\[[^\[\]\n]*\]"),  # marks of images
    re.compile(r"\S*\d\S*(?:\s?(?:mm|cm|ml|mg|kg|HU|years?|%))?"),
    re.compile(r"\b(?:no|not|none|never|without|neither|nor|cannot|except|absent|absence|\w+n't)\b", re.IGNORECASE),
    re.compile(
        r"\b(?:left|right|bilateral|unilateral|upper|lower|anterior|posterior|medial|lateral|superior|inferior)\b",
        re.IGNORECASE,
    ),
    re.compile(r"\b[A-Z]{2,}\b|\b[A-H]\b[.):]?"),
)
"""Parts that are never edited: marks, numbers with units, negations, sides, abbreviations and letters of options."""

NEIGHBOURS = {
    near[0]: near[1:]
    for near in (
        *("aqwsz", "bvghn", "cxdfv", "dserfcx", "ewsdr", "fdrtgvc", "gftyhbv", "hgyujnb", "iujko", "jhuikmn"),
        *("kjiolm", "lkop", "mnjk", "nbhjm", "oiklp", "pol", "qwa", "redft", "sawedxz", "trfgy", "uyhji", "vcfgb"),
        *("wqase", "xzsdc", "ytghu", "zasx"),
    )
}
"""Letters that lie beside each on an English keyboard."""

UNITS = 3
"""Random numbers that each letter has, whether it is edited or not."""


def protected_spans(text: str) -> list[str]:
    """Returns the parts of a text that no typing error may touch, sorted."""
    return sorted(match[0] for pattern in PROTECTED for match in pattern.finditer(text))


@_words("typos", levels={"share": (0.02, 0.05, 0.1, 0.15, 0.2)}, unit="share of letters of words of four or more")
def typos(question: Question, draw: np.random.Generator, *, share: float) -> Reworded:
    """Typing errors that spare numbers, sides and negations.

    Options are not touched either. Letters hit at a lower severity are hit at a higher.
    """
    return Reworded(replace(question, text=with_typos(question.text, draw, share)))


def with_typos(text: str, draw: np.random.Generator, share: float) -> str:
    """Returns a text with mistyped letters, but no first ones."""
    closed = np.zeros(len(text), bool)
    for match in (match for pattern in PROTECTED for match in pattern.finditer(text)):
        closed[match.start() : match.end()] = True
    for match in re.finditer(r"[A-Za-z]+", text):
        closed[match.start()] = True
        if len(match[0]) < 4:
            closed[match.start() : match.end()] = True
    units = draw.random((len(text), UNITS))

    def mistype(match: re.Match[str]) -> str:
        span = slice(match.start(), match.end())
        changed = _mistype_word(match[0], closed[span], units[span], share)
        # Nor may an error make a side or a negation, such as "not" of "noted".
        return changed if protected_spans(changed) == protected_spans(match[0]) else match[0]

    return re.sub(r"[A-Za-z]+", mistype, text)


def _mistype_word(word: str, closed: Array, units: Array, share: float) -> str:
    written: list[str] = []
    skip = False
    for index, letter in enumerate(word):
        if skip:
            skip = False
            continue
        hit, kind, which = units[index]
        if closed[index] or hit >= share:
            written.append(letter)
            continue
        following = word[index + 1 : index + 2]
        swaps = following and following != letter and not closed[index + 1]
        if kind < 0.25 and swaps:
            written += [following, letter]
            skip = True
        elif kind < 0.5:
            continue
        elif kind < 0.75:
            written += [letter, letter]
        else:
            near = NEIGHBOURS[letter.lower()]
            new = near[int(which * len(near))]
            written.append(new.upper() if letter.isupper() else new)
    return "".join(written)


@_words(
    "letter_case",
    levels={"rules": (1, 2, 3, 4, 5)},
    unit="of five rules: small letters, no full stop, no comma, two spaces, no question mark",
)
def letter_case(question: Question, draw: np.random.Generator, *, rules: int) -> Reworded:
    """Careless writing, a rule more at each severity; abbreviations and numbers stay."""
    changes: list[Callable[[str], str]] = [
        lambda text: re.sub(r"\b[A-Z](?=[a-z]+\b)", lambda match: match[0].lower(), text),
        lambda text: re.sub(r"(?<!\d)\.(?=\s|$)", "", text),
        lambda text: re.sub(r",(?=\s)", "", text),
        lambda text: re.sub(r"(?<=\S) (?=\S)", "  ", text),
        lambda text: re.sub(r"\?(?=\s|$)", "", text),
    ]

    def write(text: str) -> str:
        for change in changes[:rules]:
            text = change(text) or text
        return text

    return Reworded(replace(question, text=_outside_marks(question.text, write)))


def _outside_marks(text: str, change: Callable[[str], str]) -> str:
    """Changes a text but for the marks of images in it."""
    marks = [*(match[0] for match in PROTECTED[0].finditer(text)), ""]
    parts = PROTECTED[0].split(text)
    return "".join(change(part) + mark for part, mark in zip(parts, marks, strict=True))


SENTENCES = (
    "The department has several rooms.",
    "Questions like this one are asked every day.",
    "The picture was stored with others.",
    "Please keep the answer as short as is asked for.",
    "A colleague will read the answer later.",
    "The clinic is open on weekdays.",
    "Several people work on this project.",
    "The monitor was switched on this morning.",
    "Coffee is served in the next room.",
    "The archive was moved last year.",
)
"""Sentences that say nothing of a patient or a picture."""


@_words("distractors", levels={"number": (1, 2, 3, 4, 5)}, unit="sentences before the question")
def distractors(question: Question, draw: np.random.Generator, *, number: int) -> Reworded:
    """Irrelevant sentences before the question, nested by severity."""
    chosen = [SENTENCES[index] for index in draw.permutation(len(SENTENCES))[:number]]
    return Reworded(replace(question, text=" ".join([*chosen, question.text])))


@_words("option_order", levels={"order": (1, 2, 3, 4, 5)}, unit="which of five drawn orders; they are no degrees")
def option_order(question: Question, draw: np.random.Generator, *, order: int) -> Reworded:
    """Options reordered under the same letters; the key follows."""
    letters, texts = list(question.options), list(question.options.values())
    if len(letters) < 2:
        return Reworded(question)
    orders = [draw.permutation(len(letters)) for _ in range(5)]
    chosen = orders[order - 1]
    if (chosen == np.arange(len(letters))).all():
        chosen = np.roll(chosen, 1)
    options = {letters[index]: texts[old] for index, old in enumerate(chosen.tolist())}
    moved = {letters[old]: letters[index] for index, old in enumerate(chosen.tolist())}
    return Reworded(replace(question, options=options), moved)


PARAPHRASES = (
    (r"^What is shown\b", "What can be seen"),
    (r"^What is\b", "Please say what is"),
    (r"^Which\b(?= of the following\b)", "Say which"),
    (r"^(?:Is|Are) there\b", "Can one see"),
    (r"\bimages\b", "pictures"),
    (r"\bshown\b", "depicted"),
    (r"\bmost likely\b", "most probable"),
    (r"\bpresent\b", "visible"),
    (r"\bidentify\b", "name"),
    (r"\babnormality\b", "abnormal finding"),
    (r"\bevidence of\b", "signs of"),
    (r"\bX-rays\b", "radiographs"),
    (r"\bCT\b", "computed tomography"),
)
"""Pattern and what takes its place; all mean the same."""


@_words("paraphrase", levels={"rules": (3, 5, 8, 10, 13)}, unit=f"of {len(PARAPHRASES)} rules, drawn by case")
def paraphrase(question: Question, draw: np.random.Generator, *, rules: int) -> Reworded:
    """Rule-based paraphrase; unmatched questions stay as published."""
    chosen = sorted(draw.permutation(len(PARAPHRASES))[:rules].tolist())

    def write(text: str) -> str:
        for pattern, words in (PARAPHRASES[index] for index in chosen):
            text = re.sub(pattern, partial(_as_written, words), text, flags=re.IGNORECASE)
        return text

    return Reworded(replace(question, text=_outside_marks(question.text, write)))


def _as_written(words: str, match: re.Match[str]) -> str:
    return words[:1].upper() + words[1:] if match[0][:1].isupper() and not match[0].isupper() else words


NEGATIONS = (
    (r"^(Is|Are) there (?:any |an? )?", r"\1 there no "),
    (r"^(Is|Are|Was|Were) (the|this|these|that) ([\w-]+) (?!not\b)", r"\1 \2 \3 not "),
    (r"^(Does|Do|Can|Has|Have) (the|this|these|that) ([\w-]+) (?!not\b)", r"\1 \2 \3 not "),
)


@_words("negation", unit="none: the twin of a question")
def negation(question: Question, draw: np.random.Generator, *, severity: int) -> Reworded:
    """Negated twin of a yes-or-no question, with the answer inverted.

    Other questions, those with a negation already, and such as no rule fits are asked as published.
    """
    if question.kind != "yes_no" or re.search(r"\b(?:no|not|without|absent)\b", question.text, re.IGNORECASE):
        return Reworded(question)
    for pattern, words in NEGATIONS:
        text, count = re.subn(pattern, words, question.text, count=1)
        if count:
            return Reworded(replace(question, text=text), opposite=True)
    return Reworded(question)


@dataclass(frozen=True)
class RewordedKey:
    """The right answer of a question in other words."""

    target: Any
    change: Reworded

    @property
    def files(self) -> Any:
        """Files of the answer."""
        return self.target.files

    def read(self) -> Any:
        """Reads it, and says what is right now."""
        key = self.target.read()
        return self.change.answer(key) if isinstance(key, Key) else key

    def geometry(self) -> Any:
        """Grid of the answer."""
        return self.target.geometry()
