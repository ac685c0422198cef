"""Baselines of questions that need no weights and see no image: what a score must exceed to mean anything."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from medimg_eval.case import Array, Case, Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.base import Chooser, VisionLanguageModel
from medimg_eval.question import Decoding, Key, Question

ALIKE = 10
"""Patients whose questions have the same options, from which on these options are classes with a majority."""

WORD = r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+"
"""A word; in Chinese and Japanese, which put no spaces between them, a character."""

NOWHERE = np.zeros(0, np.int64)

YES_NO = {"yes": "yes", "no": "no"}


class Known(NamedTuple):
    """A question and its entry in the answer key.

    Attributes:
        group: the patient, or else the set, or else the case: what counts once among questions alike.
        question: what is asked; a yes-no question has the options yes and no.
        letters: the right options; empty where there is nothing to choose from.
        answers: the right answers as texts.
    """

    group: str
    question: Question
    letters: tuple[str, ...]
    answers: tuple[str, ...]


class Baseline(VisionLanguageModel, Chooser):
    """Baseline of questions that prefers or writes without the image."""

    reads_images: ClassVar[bool] = False
    uses_torch = False
    preferred_batch = 64
    chooses_first: ClassVar[bool] = True
    """Asked to choose wherever there are options, although it also writes."""

    @abstractmethod
    def preferences(self, prompt: Prompt) -> Mapping[str, float]:
        """A number per option letter, the largest for the preferred one."""

    def text(self, prompt: Prompt) -> str:
        """Reply without options: nothing, unless it knows better."""
        return ""

    def choose(self, prompts: Prompts) -> Sequence[Mapping[str, float]]:
        """Weighs the options of each prompt."""
        return [self.preferences(prompt) for prompt in prompts]

    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """Writes answers as short as those of the answer key."""
        return [self.text(prompt) for prompt in prompts]


class Chance(Baseline):
    """Chance level: the exact expected score of drawing an option.

    A question of n options counts 1/n, a yes-no question 1/2, one without options 0.
    """

    def preferences(self, prompt: Prompt) -> Mapping[str, float]:
        """Equal preference for all options."""
        return dict.fromkeys(prompt.options, 0.0)


class LongestOption(Baseline):
    """Prefers the option with the most characters; of equally long ones, none.

    Options that are their own letters, as yes and no are, have no text whose length could give them away.
    """

    def preferences(self, prompt: Prompt) -> Mapping[str, float]:
        """The length of each option, without surplus white space."""
        if _own_letters(prompt.options):
            return dict.fromkeys(prompt.options, 0.0)
        return {letter: float(len(" ".join(text.split()))) for letter, text in prompt.options.items()}


class Majority(Baseline):
    """Gives the most frequent right answer.

    Questions that share all their option texts, in whatever order, are one classification problem: where at least ten
    patients (or sets, or cases, as far as the data know them) have such a question, the text that was right most often
    is preferred. Elsewhere texts differ from question to question, and the letter that was right most often is. Without
    options, the answer written is the one that is right most often among questions without options.
    """

    def __init__(self) -> None:
        self._letters: Counter[str] = Counter()
        self._texts: dict[frozenset[str], Counter[str]] = {}
        self._answer: str | None = None

    def study(self, cases: Sequence[Case]) -> None:
        """Counts the right answers."""
        groups: dict[frozenset[str], set[str]] = {}
        written: Counter[str] = Counter()
        spelt: dict[str, str] = {}
        self._letters, self._texts = Counter(), {}
        for item in _known_answers(cases, "majority"):
            self._letters.update(item.letters)
            if item.letters:
                options_key = _plain_texts(item.question.options.values())
                groups.setdefault(options_key, set()).add(item.group)
                self._texts.setdefault(options_key, Counter()).update(map(_normalise_text, item.answers))
            else:
                written.update(map(_normalise_text, item.answers))
                spelt = {**{_normalise_text(answer): answer for answer in item.answers}, **spelt}
        self._texts = {
            options_key: right for options_key, right in self._texts.items() if len(groups[options_key]) >= ALIKE
        }
        self._answer = spelt[written.most_common(1)[0][0]] if written else ""

    def preferences(self, prompt: Prompt) -> Mapping[str, float]:
        """How often each option was right."""
        _check_studied(self._answer, "majority")
        texts = self._texts.get(_plain_texts(prompt.options.values()))
        if texts is None:
            return {letter: float(self._letters[letter]) for letter in prompt.options}
        return {letter: float(texts[_normalise_text(text)]) for letter, text in prompt.options.items()}

    def text(self, prompt: Prompt) -> str:
        """The most frequent answer; "" where none was studied."""
        return str(_check_studied(self._answer, "majority"))


class NearestQuestion(Baseline):
    """Gives the right answer to the most similar question, by text alone.

    Similarity is the cosine of TF-IDF vectors (scikit-learn) of the question and its options. With options, the nearest
    question is that whose right answer is one of them; of equally near questions the majority decides. No preference
    where no question shares a word.
    """

    def __init__(self) -> None:
        self._vectorizer: Any = None

    def study(self, cases: Sequence[Case]) -> None:
        """Makes vectors of the questions; equal ones share theirs."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        items = _known_answers(cases, "nearest_question")
        rows: dict[str, int] = {}
        worded = (_question_wording(item.question.text, item.question.options) for item in items)
        self._row = np.array([rows.setdefault(text, len(rows)) for text in worded])
        self._vectorizer = TfidfVectorizer(token_pattern=WORD)
        try:
            self._vectors = self._vectorizer.fit_transform(rows).T.tocsr()
        except ValueError as error:
            raise UserError("nearest_question: the questions studied hold no words") from error
        spelt: dict[str, tuple[int, str]] = {}
        chosen: dict[str, list[int]] = {}
        written: list[tuple[int, int]] = []
        for index, item in enumerate(items):
            for answer in item.answers:
                if item.letters:
                    chosen.setdefault(_normalise_text(answer), []).append(index)
                else:
                    spelt.setdefault(_normalise_text(answer), (len(spelt), answer))
                    written.append((index, spelt[_normalise_text(answer)][0]))
        self._chosen = {answer: np.array(indices) for answer, indices in chosen.items()}
        self._written = np.array(written, dtype=np.int64).reshape(-1, 2)
        self._answers = [answer for _, answer in spelt.values()]

    def preferences(self, prompt: Prompt) -> Mapping[str, float]:
        """1 for what was right for the nearest question, else 0."""
        _check_studied(self._vectorizer, "nearest_question")
        texts = {letter: _normalise_text(text) for letter, text in prompt.options.items()}
        able = list(dict.fromkeys(texts.values()))
        option_indices = [self._chosen.get(text, NOWHERE) for text in able]
        numbers = np.repeat(np.arange(len(able)), [len(some) for some in option_indices])
        votes = self._votes(prompt, np.concatenate(option_indices), numbers)
        right = {able[number] for number, count in votes.items() if count == max(votes.values())}
        return {letter: float(text in right) for letter, text in texts.items()}

    def text(self, prompt: Prompt) -> str:
        """Answer of the nearest question, "" where none shares words."""
        _check_studied(self._vectorizer, "nearest_question")
        votes = self._votes(prompt, self._written[:, 0], self._written[:, 1])
        return self._answers[max(votes, key=lambda answer: (votes[answer], -answer))] if votes else ""

    def _votes(self, prompt: Prompt, places: Array, answers: Array) -> dict[int, int]:
        """How many of the nearest questions among `places` have each answer."""
        vector = self._vectorizer.transform([_question_wording(prompt.question, prompt.options)])
        similarity = (vector @ self._vectors).toarray()[0][self._row[places]].round(9)
        if not similarity.any():
            return {}
        near, counts = np.unique(answers[similarity == similarity.max()], return_counts=True)
        return dict(zip(near.tolist(), counts.tolist(), strict=True))


def reports_of(case: Case) -> tuple[str, ...]:
    """A case's reference reports; none where its record is unreadable."""
    try:
        return texts_of(case.target.read())
    except CaseError:
        return ()


def texts_of(key: Key) -> tuple[str, ...]:
    """Right texts of a key's entry, without empty ones."""
    values = (key.value,) if isinstance(key.value, str) else tuple(key.value or ())
    return tuple(text for text in values if isinstance(text, str) and text.strip())


def _known_answers(cases: Sequence[Case], who: str) -> list[Known]:
    """Right answers by case, without unreadable records."""
    answers = []
    for case in cases:
        try:
            key = case.target.read()
        except CaseError:
            continue
        if case.question is None or not isinstance(key, Key):
            continue
        group = case.patient or case.attributes.get("set") or case.id
        right_answer = _right_answer(group, case.question, key.value)
        if right_answer.answers:
            answers.append(right_answer)
    if not answers:
        raise UserError(f"{who}: none of {len(cases)} cases has an answer to learn from; leave this baseline out")
    return answers


def _right_answer(group: str, question: Question, value: Any) -> Known:
    values = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (value,)
    if question.kind in ("choice", "choices", "yes_no"):
        options = question.options or (YES_NO if question.kind == "yes_no" else {})
        if question.kind == "yes_no":  # options may say yes and no under other letters
            values = tuple(
                letter
                for letter, text in options.items()
                if {_normalise_text(letter), _normalise_text(text)} & {*values}
            )
        letters = tuple(sorted(letter for letter in values if letter in options))
        asked_question = Question(question.text, question.kind, options)
        return Known(group, asked_question, letters, tuple(options[letter] for letter in letters))
    if question.kind == "number":
        return Known(group, question, (), tuple(f"{number:g}" for number in values))
    texts = values if question.kind == "open" else ()
    return Known(group, question, (), tuple(text for text in texts if isinstance(text, str) and text.strip()))


def _question_wording(question: str, options: Mapping[str, str]) -> str:
    return question if _own_letters(options) else "\n".join((question, *sorted(options.values())))


def _own_letters(options: Mapping[str, str]) -> bool:
    return all(_normalise_text(letter) == _normalise_text(text) for letter, text in options.items())


def _plain_texts(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(map(_normalise_text, texts))


def _normalise_text(text: str) -> str:
    """A text without case, surplus white space and a closing full stop."""
    return re.sub(r"\s+", " ", text).strip().removesuffix(".").casefold()


def _check_studied(known: Any, who: str) -> Any:
    if known is None:
        raise UserError(f"{who}: knows no answers yet; `study` must be called with cases before it is asked")
    return known
