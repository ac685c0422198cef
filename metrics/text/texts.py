"""What metrics of texts judge: answers and reports beside one or more right texts.

The metrics judge answers in free words and reports, and are NaN of other kinds. Where several texts are right, each
definition says which counts. An answer that was not given or not understood is an empty text, which has the worst
value; a right text of nothing but blanks is none, and its answer is not judged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from medimg_eval.errors import CaseError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.nlp import ENGLISH, TOKENISER_OF, TOKENISERS, letters, stemmed_words, words
from medimg_eval.metrics.text.gram_counts import Words
from medimg_eval.metrics.text.profiles import cleaned

PAPINENI = "Papineni et al. 2002"
COCO = "Chen et al. 2015, pycocoevalcap"

RUNS = "tokeniser: runs of letters and digits, case: lower, aggregation: mean"

Tokeniser = Callable[[str], Words]
Value = TypeVar("Value")

_OF_LETTERS = (words, stemmed_words)
_FOR_ENGLISH = re.compile(r"rouge_\w+_stem\b|meteor_wordnet\b|(?:sentence_)?bleu_(?P<blanks>13a|intl)")


def texts_of(pair: AnsweredQuestion) -> tuple[str, tuple[str, ...]] | None:
    """Returns raw answer, "" for none, and right texts.

    None for a question of another kind, of a model that chose without writing, and where no right text has a letter.
    """
    if pair.kind not in ("open", "report") or pair.preferences is not None or not (right := pair.references):
        return None
    return pair.text, right


def cleaned_of(pair: AnsweredQuestion) -> tuple[str, tuple[str, ...]] | None:
    """Returns `texts_of` cleaned as the pair states; UsageError for an unknown cleaner."""
    texts = texts_of(pair)
    if texts is None or not pair.clean:
        return texts
    return cleaned(texts[0], pair.clean), tuple(cleaned(reference, pair.clean) for reference in texts[1])


def tokeniser_of(tokenise: Tokeniser, language: str) -> Tokeniser:
    """Returns the tokeniser of a language that stands for one made for English.

    One that splits at blanks becomes the language's own, and runs of letters and digits become letters where that is
    `char`; as they are, they part Chinese and kana into characters.
    """
    if language == ENGLISH:
        return tokenise
    name = TOKENISER_OF[language]
    if tokenise in _OF_LETTERS:
        return letters if name == "char" else words
    return TOKENISERS[name]


def told_in(settings: str, language: str) -> str:
    """Returns a metric's definition in a language, by tokeniser names.

    >>> told_in("tokeniser: blanks, case: kept", "zh")
    'tokeniser: zh, case: kept, language: zh'
    """
    if language == ENGLISH or "tokeniser" not in settings:
        return settings
    name = TOKENISER_OF[language]
    description = re.sub(r"tokeniser: (?:single )?blanks", f"tokeniser: {name}", settings)
    if name == "char":
        description = description.replace("runs of letters and digits", "letters and digits one by one")
    return f"{description.replace('words and stems', 'words')}, language: {language}"


def unserved(metrics: Iterable[str], language: str) -> str:
    """Returns metrics that cannot serve a language, with reasons; else "".

    Porter's stems and WordNet's synonyms are English; 13a and intl are rules of languages with blanks.
    """
    if language == ENGLISH:
        return ""
    blanks = TOKENISER_OF[language] == "intl"
    hits = [hit for name in metrics if (hit := _FOR_ENGLISH.match(name)) and not (blanks and hit["blanks"])]
    if not hits:
        return ""
    rule, what = hits[0]["blanks"], "synonyms" if "wordnet" in hits[0].group() else "stems"
    why = f"words by the rule {rule}, which needs blanks" if rule else f"{what} of English words"
    return f"metric {hits[0].string!r} has {why}, and language {language!r} none; take bleu@4 or rouge_l"


def with_others(pair: AnsweredQuestion, measure: Callable[..., Sequence[Value]], *settings: Any) -> Value:
    """Returns a pair's measurement, batched with its successors.

    Args:
        pair: the pair.
        measure: takes pairs of one corpus, cleaner and language, all with texts, and the settings; returns a value of
            each, which must not depend on the others.
        settings: what else decides the value.
    """
    key = (measure, settings)
    if key not in pair.measured:
        batch = (pair.batch and pair.batch.pairs) or {}
        further = [
            batch_pair for batch_pair in batch.values() if batch_pair is not pair and _goes_with(batch_pair, pair)
        ]
        for batch_pair, measured in zip([pair, *further], measure([pair, *further], *settings), strict=True):
            batch_pair.measured[key] = measured
    value: Value = pair.measured[key]
    return value


def _goes_with(other: AnsweredQuestion, pair: AnsweredQuestion) -> bool:
    """Whether a pair has texts, of the corpus, cleaner and language of another."""
    if other.corpus is not pair.corpus or (other.clean, other.language) != (pair.clean, pair.language):
        return False
    try:
        return texts_of(other) is not None
    except CaseError:  # which is told where it is judged itself
        return False


def best_of(pair: AnsweredQuestion, tokenise: Tokeniser, judge: Callable[[Words, Words], float]) -> float:
    """Returns the best value over right texts; NaN without."""
    texts = cleaned_of(pair)
    if texts is None:
        return math.nan
    tokenise = tokeniser_of(tokenise, pair.language)
    text = tokenise(texts[0])
    return max(judge(text, tokenise(reference)) for reference in texts[1])


def read_value(pair: AnsweredQuestion, annotator: str, value: Callable[[Any], float]) -> float:
    """Returns an annotator's reading; NaN for others and failures."""
    read = None if texts_of(pair) is None else pair.read(annotator)
    return math.nan if read is None else value(read)


def read_part(pair: AnsweredQuestion, annotator: str, which: str) -> float:
    """Returns a reading's number; NaN also where missing."""
    return read_value(pair, annotator, lambda read: math.nan if read[which] is None else float(read[which]))
