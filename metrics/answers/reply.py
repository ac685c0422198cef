"""A reply beside what is right: what metrics of answers take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from medimg_eval.errors import CaseError
from medimg_eval.metrics.answers.cleaning import is_withheld
from medimg_eval.metrics.answers.extraction import Extraction, extract, extract_choice
from medimg_eval.metrics.nlp import Batch, Corpus

UNREAD = "unread"
"""The label of scores of a case whose record cannot be understood: nothing is known of what would be right."""

JUDGE = "judge"
"""What stands in the place of a rule, or behind one, where a judge says which option an output means."""


class Read(NamedTuple):
    """Annotator's reading of both texts of a pair, as JSON."""

    reference: Any
    prediction: Any


def texts_among(value: Any) -> tuple[str, ...]:
    """Returns right texts, one or several, without blank ones."""
    right = value if isinstance(value, list | tuple) else (value,)
    return tuple([text for value in right if value is not None and (text := str(value)).strip()])


@dataclass(frozen=True)
class AnsweredQuestion:
    """Model's reply to one question, with the answer key's entry.

    Attributes:
        kind: what an answer is, as in `medimg_eval.question.Kind`.
        output: what the model wrote last; "" when it wrote nothing.
        value: what is right, as in `medimg_eval.question.Key`.
        question: what was asked.
        options: letter -> text, in their order.
        preferences: of a model that chose without writing: letter -> number, the largest preferred; None otherwise.
        rule: how the answer is taken from the output: "cascade", or the name of a published rule.
        outputs: what the model wrote, turn by turn.
        more: what rules of scoring need beside the value, such as the size of the image.
        judged: name of a judge's question -> its verdict, a number, a name, or what the metric that asks takes; NaN
            or absent where it has not been judged.
        readings: of a report: name of an annotator -> what it read: of one that reads texts, `Read`; of one that
            compares pairs, what it made of this one. Absent of annotators that were not asked.
        corpus: of a report: the set that it belongs to.
        confidence: how sure the model was of the answer, 0 to 1; None where it did not say.
        language: of the right texts, by its code in ISO 639-1: metrics of words split texts by it.
        turns: by output, what is known of it beside the text: `thought`, `finish`, `usage`; empty where nothing is.
        trace: steps of a model that called tools, in order.
        clean: of a report: how metrics of words clean texts first, by name, such as "r2gen_iu"; "" for not at all.
        batch: the pairs that are judged one after the other, this one among them; None where it is judged alone.
    """

    kind: str
    output: str
    value: Any
    question: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    preferences: Mapping[str, float] | None = None
    rule: str = "cascade"
    outputs: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    judged: Mapping[str, Any] = field(default_factory=dict)
    readings: Mapping[str, Any] = field(default_factory=dict)
    corpus: Corpus | None = None
    clean: str = ""
    language: str = "en"
    confidence: float | None = None
    turns: Sequence[Mapping[str, Any]] = ()
    trace: Sequence[Mapping[str, Any]] = ()
    batch: Batch | None = field(default=None, compare=False, repr=False)

    @cached_property
    def extraction(self) -> Extraction:
        """The answer that was taken from the output, and the rule that fired.

        A rule that ends in "+judge" leaves outputs that it does not understand to the judge's question `option`; the
        rule "judge" leaves all to it.
        """
        rule, _, judge = self.rule.rpartition("+") if self.rule != JUDGE else ("", "", JUDGE)
        if judge != JUDGE or is_withheld(self.output):
            return self._extracted(self.rule)
        extraction = (
            self._extracted(rule) if rule else Extraction(None, JUDGE, "unparsed" if self.output.strip() else "empty")
        )
        named = self.judged.get("option")
        if extraction.value is None and named in (self.options or ("yes", "no")):
            return Extraction(named, JUDGE)
        return extraction

    def _extracted(self, rule: str) -> Extraction:
        extraction = extract(self.kind, self.output, self.options, rule=rule, question=self.question, more=self.more)
        if extraction.value is None and rule == "cascade" and self.kind == "yes_no" and self._lettered:
            chosen = extract_choice(self.output, self.options)
            return extraction if chosen.letter is None else Extraction(self._meant(chosen.letter), chosen.rule)
        return extraction

    @cached_property
    def text(self) -> str:
        """Text of a free-text answer or report; "" if absent."""
        return str(self.extraction.value or "")

    @cached_property
    def references(self) -> tuple[str, ...]:
        """The texts that are right, of those that hold anything but blanks."""
        return texts_among(self.value)

    @cached_property
    def measured(self) -> dict[Any, Any]:
        """Results that several metrics share, by what they are of."""
        return {}

    def read(self, annotator: str) -> Any:
        """Returns an annotator's reading; raises CaseError where none asked."""
        if annotator not in self.readings and len(self.references) > 1:
            raise CaseError(f"{annotator} compares with one reference, and there are {len(self.references)}; give one")
        if annotator not in self.readings:
            raise CaseError(f"annotator {annotator!r} has not read this report; score the run again")
        return self.readings[annotator]

    @property
    def _lettered(self) -> bool:
        """Whether yes and no stand under other letters."""
        return not {"yes", "no"} >= self.options.keys()

    def _meant(self, letter: str) -> str:
        """Meaning of an option of a question whose answer is yes or no."""
        return str(extract("yes_no", self.options[letter], {}).value)

    @cached_property
    def credit(self) -> float:
        """Credit: 1 or 0; for tied preferences, a draw's expectation.

        How right the answer is; equal preferences get the expected value of a draw among them. An answer that was
        not given or not understood is wrong. Texts, numbers and places are right or wrong only by a metric of
        their own; here they must equal the value.
        """
        if self.preferences is not None:
            right = self.value
            if self.kind == "choices":  # one option is chosen, which is all that is right or is not
                right = next(iter(right)) if len(right) == 1 else None
            return (right in self.preferred) / len(self.preferred)
        value = self.extraction.value
        if value is None:
            return 0.0
        if self.kind in ("open", "report"):
            right = self.value if isinstance(self.value, list | tuple) else (self.value,)
            return float(value in right)
        if self.kind == "choices":
            return float(set(value) == set(self.value))
        return float(value == self.value)

    @cached_property
    def preferred(self) -> tuple[str, ...]:
        """Answers that a model preferred: one, or several alike; none where it wrote.

        Letters of options; of a question whose answer is yes or no, what the options say.
        """
        if self.preferences is None:
            return ()
        best = max(self.preferences.values())
        letters = [letter for letter, number in self.preferences.items() if number == best]
        return tuple(map(self._meant, letters)) if self.kind == "yes_no" and self._lettered else tuple(letters)

    @cached_property
    def status(self) -> str:
        """`right`, `wrong`, `chosen` (without writing), `unparsed`, `refused` or `empty`.

        The last three say why there is no answer.
        """
        if self.preferences is not None:
            return "chosen"
        if self.extraction.value is None:
            return self.extraction.reason
        return "right" if self.credit == 1 else "wrong"
