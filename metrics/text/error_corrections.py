"""Errors in clinical notes: whether one is told, in which sentence, and how near its correction comes."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import NamedTuple

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.text.texts import texts_of

SOURCE = "MEDIQA-CORR 2024 (Ben Abacha et al.), its evaluation script"

_LINE = re.compile(
    r"^\W{0,3}(?:[a-z]+[a-z0-9-]*-[0-9]+\s+)?([01])\s+(-?\d+)(?:\s+(.*))?$", re.IGNORECASE | re.MULTILINE
)
_NONE = "NA"
_SMALL = 1e-8


class Correction(NamedTuple):
    """Error of a note: presence, sentence number or -1, correction."""

    flag: bool
    sentence: int
    text: str


def read_correction(text: str) -> Correction | None:
    """Returns a reply's first `FLAG SENTENCE CORRECTION`.

    Flags are 1 and 0; quotes about the correction are left out, and what follows flag 0 counts as none. The word
    CORRECT alone tells none, too. None of a reply without such a line.
    """
    match = _LINE.search(text)
    if match is None:
        return Correction(False, -1, _NONE) if text.strip().rstrip(".").upper() == "CORRECT" else None
    written = (match[3] or "").strip().strip('"').strip()
    flag = match[1] == "1"
    return Correction(flag, int(match[2]), written if flag and written else _NONE)


def rouge_of_sets(text: str, reference: str, n: int) -> float:
    """Returns set-based ROUGE-N F1, as `rouge` 1.0.1.

    Full stops part words, n-grams that repeat count once, and 1e-8 keeps the quotient defined.

    >>> round(rouge_of_sets("treated with aspirin", "treated with heparin", 1), 4)
    0.6667
    """
    text_grams, due = (_gram_set(side, n) for side in (text, reference))
    if not text_grams or not due:
        return 0.0
    shared = len(text_grams & due)
    precision, recall = shared / len(text_grams), shared / len(due)
    return 2 * precision * recall / (precision + recall + _SMALL)


def _gram_set(text: str, n: int) -> frozenset[tuple[str, ...]]:
    words = [word for part in text.split(".") for word in part.split()]
    return frozenset(tuple(words[start : start + n]) for start in range(len(words) - n + 1))


def _both_corrections(pair: AnsweredQuestion) -> tuple[Correction | None, Correction] | None:
    texts = texts_of(pair)
    due = None if texts is None else read_correction(texts[1][0])
    return None if texts is None or due is None else (read_correction(texts[0]), due)


_of_note = partial(answer_share, source=SOURCE, settings="tokeniser: blanks and full stops")


@_of_note(title="Error flag", value_kind="proportion")
def error_flag_accuracy(pair: AnsweredQuestion) -> float:
    """Whether a note is rightly said to hold an error, or none; a reply that says neither is wrong."""
    both = _both_corrections(pair)
    return math.nan if both is None else float(both[0] is not None and both[0].flag == both[1].flag)


@_of_note(title="Error sentence", value_kind="proportion")
def error_sentence_accuracy(pair: AnsweredQuestion) -> float:
    """Whether the number of the sentence with the error is right, -1 for none; a reply without one is wrong."""
    both = _both_corrections(pair)
    return math.nan if both is None else float(both[0] is not None and both[0].sentence == both[1].sentence)


@_of_note(title="Correction", parameter="length of n-grams")
def correction_rouge(pair: AnsweredQuestion, n: float) -> float:
    """The ROUGE-N of a corrected sentence; 1 where both sides tell no error, and 0 where only one does.

    The mean over notes is the composite score of MEDIQA-CORR (R1FC, R2FC).
    """
    both = _both_corrections(pair)
    if both is None:
        return math.nan
    corrected, due = both
    if corrected is None or _NONE in (corrected.text, due.text):
        return float(corrected is not None and corrected.text == due.text)
    return rouge_of_sets(corrected.text, due.text, int(n))
