"""WordNet's synonyms of single words, from the files of its database, as NLTK's corpus `wordnet` holds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from medimg_eval.errors import UserError

PARTS = ("noun", "verb", "adj", "adv")
WORDNET_FILES = tuple(name.format(part) for part in PARTS for name in ("index.{}", "data.{}", "{}.exc"))

_ENDINGS = {
    "noun": "s- ses-s ves-f xes-x zes-z ches-ch shes-sh men-man ies-y",
    "verb": "s- ies-y es-e es- ed-e ed- ing-e ing-",
    "adj": "er- est- er-e est-e",
    "adv": "",
}
"""Endings of inflected forms and what stands in their place in the base form, as WordNet's `morphy` has them."""

_MARKER = re.compile(r"\([^()]*\)$")
"""Where an adjective may stand, behind its word in `data.adj`."""


class WordNet:
    """WordNet folder: synonyms of words and their base forms.

    Args:
        folder: holds `WORDNET_FILES`, such as `corpora/wordnet` of NLTK's data.

    Raises:
        UserError: a file is missing, or none of WordNet's database.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index = {part: self._lines(f"index.{part}") for part in PARTS}
        self._exceptions = {part: self._lines(f"{part}.exc") for part in PARTS}
        self._data = {part: self._read(f"data.{part}") for part in PARTS}
        self.synonyms = cache(self._synonyms)

    def _read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise UserError(f"{self.folder / name}: cannot be read as WordNet's database: {error.strerror}") from error

    def _lines(self, name: str) -> dict[str, list[str]]:
        """Returns first word -> others, skipping licence lines."""
        lines = self._read(name).decode("utf-8", "replace").splitlines()
        return {word: fields for word, *fields in (line.split() for line in lines if line[:1].strip())}

    def _synonyms(self, word: str) -> frozenset[str]:
        """Returns the word and single-word synonyms, also of base forms; UserError if damaged."""
        synonyms = {word}
        for part in PARTS:
            for form in self._forms(word, part):
                for offset in self._meanings(part, form):
                    synonyms.update(self._words(part, offset))
        return frozenset(synonyms)

    def _forms(self, word: str, part: str) -> Iterator[str]:
        bases = self._exceptions[part].get(word)
        if bases is None:
            rules = (rule.split("-") for rule in _ENDINGS[part].split())
            bases = [word.removesuffix(ending) + base for ending, base in rules if word.endswith(ending)]
        return (form for form in dict.fromkeys([word, *bases]) if form in self._index[part])

    def _meanings(self, part: str, form: str) -> list[int]:
        try:
            _, meanings, *fields = self._index[part][form]
            return [int(fields[-index]) for index in range(1, int(meanings) + 1)]
        except (IndexError, ValueError):
            raise UserError(f"{self.folder / f'index.{part}'}: the line of {form!r} is not as WordNet's are") from None

    def _words(self, part: str, offset: int) -> Iterator[str]:
        data = self._data[part]
        fields = data[offset : data.find(b"\n", offset)].decode("utf-8", "replace").split()
        try:
            own, names = int(fields[0]), fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        except (IndexError, ValueError):
            own, names = -1, []
        if own != offset:
            raise UserError(f"{self.folder / f'data.{part}'}: has no meaning at byte {offset}, where its index points")
        return (_MARKER.sub("", name) for name in names if "_" not in name)
