"""Metrics of answers: right or wrong, answered or not, and how near an open answer comes to the right one.

Each takes an `AnsweredQuestion` and judges the kinds of questions that its definition can judge; of others it is NaN,
which no mean counts, so that a column never mixes what cannot be compared. An answer that was not given, was refused,
or was not understood counts as wrong unless a metric says that it is left out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from medimg_eval.metrics.agreement import aligned
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import answer_share, share_summary
from medimg_eval.metrics.nlp import normalised, words
from medimg_eval.metrics.registry import ScoreTable, metric
from medimg_eval.metrics.text import overlap, texts_of
from medimg_eval.metrics.vqa.grounding import in_box, in_limits, limits_of, relative_accuracy

RAJPURKAR = "Rajpurkar et al. 2016 (SQuAD)"
LLAVA_MED = "LLaVA-Med, its evaluate_metrics.py"
MULTIMEDEVAL = "Royer et al. 2024 (MultiMedEval)"
MMMU = "Yue et al. 2024 (MMMU)"

NONE_GIVEN = -1.0
"""The class and the place of an answer that was not given."""

_CHOSEN_FROM = ("choice", "choices", "yes_no")
_UNANSWERED = ("unparsed", "refused", "empty")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

_COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DIGITS = {"none": "0"} | {word: str(number) for number, word in enumerate(_COUNTED)}
_REMOVED = ';/[]"{}()=+\\_-><@`,?!'
"""Punctuation of the evaluation of VQA v2, which LLaVA-Med took over."""

_not_given = partial(metric, kind="answer", higher_is_better=False, best=0, worst=1, value_kind="proportion")


@answer_share(title="Accuracy", source="the share of right answers", value_kind="proportion")
def accuracy(pair: AnsweredQuestion) -> float:
    """Whether the answer is right.

    It judges choices, several choices (all and no other), yes and no; a number is right if it equals the right one or
    lies within its limits `low` and `high`, a point if it lies in the box. Where a model has no preference among
    several options, it is the expected value of a draw. Texts, boxes, regions and grades are NaN, for they are right by
    degrees: see `exact_match`, and `accuracy_or_exact_match` for both in one column.
    """
    if pair.kind in _CHOSEN_FROM:
        return pair.credit
    if pair.kind == "number":
        limits = limits_of(pair)
        return pair.credit if limits is None else in_limits(pair, *limits)
    if pair.kind == "point":
        return in_box(pair, float(pair.more.get("patch", 0)))
    return math.nan


@answer_share(title="Accuracy", source="the share of right answers, open ones by exact match", value_kind="proportion")
def accuracy_or_exact_match(pair: AnsweredQuestion) -> float:
    """Whether the answer is right, where an open one is right if it is the same text.

    The "overall" of VQA-RAD, SLAKE and PathVQA: `accuracy` of closed questions and `exact_match` of open ones, one
    denominator for both.
    """
    if pair.kind != "open":
        return accuracy(pair)
    return max(exact_match(pair), pair.credit)  # a published rule may count more than the same text as right


@answer_share(title="Free-form score", source="DeepTumorVQA, its evaluation of free-form answers")
def free_form_score(pair: AnsweredQuestion) -> float:
    """How right an answer is: a number by its relative accuracy, a text by exact match, any other by accuracy.

    In [0, 1].
    """
    if pair.kind == "number":
        return relative_accuracy(pair)
    return accuracy_or_exact_match(pair)


@answer_share(
    title="Accuracy of answered", source="ChestAgentBench; KorMedMCQA-V", worst=math.nan, value_kind="proportion"
)
def accuracy_of_answered(pair: AnsweredQuestion) -> float:
    """Whether the answer is right, of questions that were answered.

    As `accuracy`, but questions whose answer was not given, was refused or was not understood leave the denominator, as
    in some authors' code. A model that answers only what it knows wins; read it beside `unanswered`.
    """
    return math.nan if pair.status in _UNANSWERED else accuracy(pair)


@_not_given(title="Unanswered", source="the share of questions without an answer")
def unanswered(pair: AnsweredQuestion) -> float:
    """Whether no answer could be taken from what was written: nothing, a refusal, or nothing that was understood.

    LMOD and MediConfusion call its mean the rate of invalid responses. 0 for a model that chooses without writing.
    """
    return float(pair.status in _UNANSWERED)


@_not_given(title="Refused", source="the share of questions that were refused")
def refused(pair: AnsweredQuestion) -> float:
    """Whether the model declined to answer.

    A part of `unanswered`. 0 for a model that chooses without writing.
    """
    return float(pair.status == "refused")


@answer_share(title="Exact match", source=RAJPURKAR, value_kind="proportion")
def exact_match(pair: AnsweredQuestion) -> float:
    """Whether an open answer is the same text as a right one, but for case, articles and punctuation.

    Decimal points, minus signs and an article at the end ("hepatitis A") count. Full-width characters are plain ones.
    """
    texts = texts_of(pair)
    return math.nan if texts is None else float(normalised(texts[0]) in map(normalised, texts[1]))


@answer_share(title="Token F1", source=RAJPURKAR)
def token_f1(pair: AnsweredQuestion) -> float:
    """The F1 of the words that an open answer and the right text share, but for case, articles and punctuation.

    A word counts as often as both have it. Each Han or kana character is a word. Of several right texts the best.
    """
    return _best_value(pair, lambda said, due: 2 * overlap(said, due) / (len(said) + len(due)))


@answer_share(title="Token recall", source=MULTIMEDEVAL)
def token_recall(pair: AnsweredQuestion) -> float:
    """The share of the right text's words that an open answer has.

    Each different word counts once; nothing is lost by saying more. Without case, articles and punctuation. Of several
    right texts the best.
    """
    return _best_value(pair, lambda said, due: len(set(said) & set(due)) / len(set(due)))


@answer_share(
    title="Open accuracy", source=MULTIMEDEVAL, parameter="least recall", parameter_most=1.0, value_kind="proportion"
)
def open_accuracy(pair: AnsweredQuestion, least: float) -> float:
    """Whether an open answer has at least so large a share of the right text's words.

    MultiMedEval asks for 0.75: `open_accuracy@0.75`. By `token_recall`, so that long answers win.
    """
    recall = token_recall(pair)
    return math.nan if math.isnan(recall) else float(recall >= least)


@answer_share(title="Recall (LLaVA-Med)", source=LLAVA_MED)
def llava_med_recall(pair: AnsweredQuestion) -> float:
    """The recall of an open answer as LLaVA-Med counts it: hits by how often the answer says the word.

    Hits are the answer's words that the right text has, every repetition counted; recall is hits / (hits + the right
    text's words that are lacking). Saying a word again raises it, which is the authors' rule and not a recommendation;
    `token_recall` does without. Words by their rule: number words are digits, "none" is 0, articles and punctuation go.
    Of several right texts the best. Their table of contractions without an apostrophe is not applied.
    """
    texts = texts_of(pair)
    if texts is None:
        return math.nan
    predicted_counts = Counter(_llava_med_words(texts[0]))
    return max(_recall_by_repetition(predicted_counts, Counter(_llava_med_words(right))) for right in texts[1])


@answer_share(title="Contains", source=MMMU, value_kind="proportion")
def answer_contains_reference(pair: AnsweredQuestion) -> float:
    """Whether an open answer contains a right one: the text, or for numbers an equal number to two decimals.

    MMMU's rule for open questions. It does not look at word boundaries or negation: "no fracture" contains "fracture".
    """
    texts = texts_of(pair)
    if texts is None:
        return math.nan
    predicted_text = normalised(texts[0])
    numbers = {round(float(number), 2) for number in _NUMBER.findall(_without_commas(texts[0]))}
    return float(any(_is_contained(right, predicted_text, numbers) for right in texts[1]))


def _is_contained(right: str, said: str, numbers: set[float]) -> bool:
    if _NUMBER.fullmatch(_without_commas(right)):
        return round(float(_without_commas(right)), 2) in numbers
    return normalised(right) in said


def _without_commas(text: str) -> str:
    return text.replace(",", "").strip()


def _best_value(pair: AnsweredQuestion, judge: Callable[[tuple[str, ...], tuple[str, ...]], float]) -> float:
    """Returns the best value over nonempty right texts; else NaN."""
    texts = texts_of(pair)
    due = [reference_words for right in (texts[1] if texts else ()) if (reference_words := words(normalised(right)))]
    if texts is None or not due:
        return math.nan
    predicted_words = words(normalised(texts[0]))
    return max(judge(predicted_words, reference_words) for reference_words in due)


def _llava_med_words(text: str) -> list[str]:
    """Returns words by VQA v2's rules, as LLaVA-Med copied.

    A mark of punctuation that touches a blank anywhere in the text vanishes, another becomes a blank; all vanish where
    a comma stands between digits.
    """
    text = text.lower()
    thousands = re.search(r"\d,\d", text) is not None
    marked = f"\0{text}\0"
    for mark in _REMOVED:
        beside_blank = f" {mark}" in text or f"{mark} " in text
        marked = marked.replace(mark, "" if thousands or beside_blank else " ")
    plain = re.sub(r"\.(?!\d)", "", marked.strip("\0"))
    return [_DIGITS.get(word, word) for word in plain.split() if word not in ("a", "an", "the")]


def _recall_by_repetition(said: Counter[str], due: Counter[str]) -> float:
    hits = sum(count for word, count in said.items() if word in due)
    lacking = sum(count for word, count in due.items() if word not in said)
    return hits / (hits + lacking) if hits else 0.0


_evidence = partial(metric, kind="answer", intermediate=True, best=math.nan, worst=math.nan, higher_is_better=True)


@_evidence(title="Class given", source="evidence")
def predicted_class(pair: AnsweredQuestion) -> float:
    """A number that stands for what was answered: the same for the same option text, yes or no, or open answer.

    -1 where no answer was given; NaN for other kinds, and where a model prefers several options alike. Evidence for
    summaries that ask which answers were given. The number is the CRC-32 of the text without case, articles and
    punctuation, so it does not depend on letters, which options may change.
    """
    letter = _given_answer(pair)
    if letter is None or letter == "":
        return math.nan if letter is None else NONE_GIVEN
    if pair.kind == "open" and exact_match(pair) == 1:
        return reference_class(pair)
    return _class_of(pair, letter)


@_evidence(title="Class due", source="evidence")
def reference_class(pair: AnsweredQuestion) -> float:
    """A number that stands for what is right, as in `predicted_class`.

    Several right texts have the first. It is evidence for summaries that ask which answers were given.
    """
    if pair.kind not in (*_CHOSEN_FROM, "open"):
        return math.nan
    several = pair.kind == "open" and isinstance(pair.value, list | tuple)
    return _class_of(pair, pair.value[0] if several else pair.value)


@_evidence(title="Place given", source="evidence")
def predicted_position(pair: AnsweredQuestion) -> float:
    """The place of the option that was answered, from 1; yes is 1 and no is 2.

    -1 where no answer was given; NaN for other kinds, and where a model prefers several options alike. Evidence for
    `confusion` and `kappa`, which compare letters.
    """
    if pair.kind not in ("choice", "yes_no"):
        return math.nan
    letter = _given_answer(pair)
    if letter is None or letter == "":
        return math.nan if letter is None else NONE_GIVEN
    letters = list(pair.options) if pair.kind == "choice" else ["yes", "no"]
    return float(letters.index(letter) + 1) if letter in letters else NONE_GIVEN


@_evidence(title="Options offered", source="evidence")
def offered_options(pair: AnsweredQuestion) -> float:
    """The number of options that a question with one right answer offers; of yes and no 2.

    NaN for other kinds. Evidence for `vote_shift`, whose entropy is a share of the largest there can be.
    """
    if pair.kind == "choice" and len(pair.options) > 1:
        return float(len(pair.options))
    return 2.0 if pair.kind == "yes_no" else math.nan


def _given_answer(pair: AnsweredQuestion) -> Any:
    """Returns the given answer, "" for none; None without classes."""
    if pair.kind not in (*_CHOSEN_FROM, "open"):
        return None
    if pair.preferences is not None:
        return pair.preferred[0] if len(pair.preferred) == 1 else None
    return "" if pair.extraction.value is None else pair.extraction.value


def _class_of(pair: AnsweredQuestion, answer: Any) -> float:
    letters = sorted(answer) if pair.kind == "choices" else [answer]
    texts = sorted(normalised(str(pair.options.get(letter, letter))) for letter in letters)
    return float(crc32("\n".join(texts).encode()))


_YES, _NO = float(crc32(b"yes")), float(crc32(b"no"))

CLASSES = ("predicted_class", "reference_class")

_of_classes = partial(share_summary, needs=CLASSES)


@_of_classes(title="Sensitivity", source="DeepTumorVQA; sensitivity of yes/no answers")
def yes_sensitivity(rows: ScoreTable) -> float:
    """The share of questions whose answer is yes that were answered yes.

    In [0, 1]; NaN without such questions. A question that was not answered counts as missed.
    """
    return _recall_of(rows, _YES)


@_of_classes(title="Specificity", source="specificity of yes/no answers")
def yes_specificity(rows: ScoreTable) -> float:
    """The share of questions whose answer is no that were answered no.

    In [0, 1]; NaN without such questions. A question that was not answered is not a no; DeepTumorVQA's code takes it
    for one.
    """
    return _recall_of(rows, _NO)


@_of_classes(title="Macro F1", source="TemMed-Bench; scikit-learn's f1_score")
def macro_f1(rows: ScoreTable) -> float:
    """The mean over the classes of the answer key of each class's F1.

    A class is an option's text, yes or no, or an open answer. In [0, 1]. An answer that is no class of the key, or was
    not given, is a miss of the right class and no one's false positive.
    """
    scores, _ = _f1_by_class(rows)
    return float(scores.mean()) if len(scores) else math.nan


@_of_classes(title="Weighted F1", source="3MDBench; scikit-learn's f1_score")
def weighted_f1(rows: ScoreTable) -> float:
    """The mean of each class's F1 over the questions that it is the answer of.

    It is `macro_f1` with each class weighing as often as it is right.
    """
    scores, weights = _f1_by_class(rows)
    return float(scores @ weights / weights.sum()) if len(scores) else math.nan


def _answer_classes(rows: ScoreTable) -> tuple[Floats, Floats]:
    """Returns given and right classes, where both are known."""
    _, _, values = aligned(rows, CLASSES)
    values = values[~np.isnan(values).any(axis=1)]
    return values[:, 0], values[:, 1]


def _recall_of(rows: ScoreTable, wanted: float) -> float:
    given_classes, right = _answer_classes(rows)
    due = right == wanted
    return float((given_classes[due] == wanted).mean()) if due.any() else math.nan


def _f1_by_class(rows: ScoreTable) -> tuple[Floats, Floats]:
    """Returns each key class's F1 and frequency."""
    given_classes, right = _answer_classes(rows)
    names, support = np.unique(right, return_counts=True)
    hits = (given_classes == right).astype(float)
    hit = np.bincount(np.searchsorted(names, right), hits, minlength=len(names))
    known_classes = given_classes[np.isin(given_classes, names)]
    given_counts = np.bincount(np.searchsorted(names, known_classes), minlength=len(names))
    return 2 * hit / (given_counts + support), support.astype(float)
