"""The language of a task's texts: what splits them into words, and which metrics cannot read them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from medimg_eval.case import Case
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.evidence import Context
from medimg_eval.metrics.nlp import ENGLISH, TOKENISER_OF, check_language, in_english
from medimg_eval.metrics.text import unserved
from medimg_eval.tasks.base import SCORES

_FIELD = re.compile(r"\{(\w+)\}")
_READ_ENGLISH = re.compile(r"rule_labeler_|finding_f1|temporal_f1")
"""Metrics of rules and lists of words that are English alone."""


@dataclass(frozen=True, kw_only=True)
class InLanguage:
    """A task whose right texts are in some language.

    Attributes:
        language: their language by its code in ISO 639-1, such as `zh`, by which metrics of words split texts; or a
            field of the cases that holds it, as `"{language}"`.
    """

    language: str = field(default=ENGLISH, metadata=SCORES)

    def check_languages(self: Any) -> None:
        """Raises UsageError for unknown languages and metrics that cannot serve."""
        if _FIELD.fullmatch(self.language):
            return
        check_language(self.language)
        if lacking := unserved(self.metrics, self.language):
            raise UsageError(f"task {self.name!r}: {lacking}")

    def language_of(self, case: Case) -> str:
        """Returns the language of a case; raises CaseError where its field holds none."""
        match = _FIELD.fullmatch(self.language)
        if match is None:
            return self.language
        language = str(case.attributes.get(match[1], ""))
        try:
            check_language(language)
        except UsageError as error:
            raise CaseError(f"case {case.id!r}, field {match[1]!r}: {error}") from error
        return language

    def told_language(self: Any) -> list[str]:
        """Language in a signature: nothing of English."""
        if self.language == ENGLISH:
            return []
        if _FIELD.fullmatch(self.language):
            return [f"language: as field {self.language} says"]
        return [f"language: {self.language}, words by {TOKENISER_OF[self.language]} instead of blanks"]

    def notes(self: Any, cases: Sequence[Case], context: Context) -> list[str]:
        """Table notes on language, counting cases left out by English rules."""
        notes: list[str] = super().notes(cases, context)  # type: ignore[misc]
        if not any(_READ_ENGLISH.match(name) for name in self.metrics):
            return notes
        texts = [*self._right_texts(cases)]
        out = sum(not in_english(language, texts) for language, texts in texts)
        if out:
            notes.append(
                f"rules for English leave out {out} of {len(texts)} reports: their references are in other languages"
            )
        return notes

    def _right_texts(self: Any, cases: Sequence[Case]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for case in cases:
            try:
                language, texts = self.language_of(case), self._references(case)
            except CaseError:  # the case says so itself
                continue
            if texts:
                yield language, texts
