"""Reports: texts about images, or about other texts, judged beside the reports that were written of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from medimg_eval.case import Case
from medimg_eval.errors import CaseError
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.metrics.reports import Written
from medimg_eval.metrics.text import cleaner
from medimg_eval.tasks.base import baseline_configs
from medimg_eval.tasks.questions import QuestionTask


@dataclass(kw_only=True)
class ReportTask(QuestionTask):
    """Reports to be written.

    Attributes:
        sections: which sections are judged, such as `[findings]`: of what a model writes under headings, these are
            taken; a text without headings is taken for them. All of it where none are named.
        clean: how metrics of words clean both texts first, by name, as the authors of a benchmark do: see
            `medimg_eval.metrics.text_scores`. Metrics of what a report says see it as it is.
    """

    sections: Sequence[str] = ()
    clean: str = ""
    metrics: Sequence[str] = (
        "bleu@1",
        "bleu@4",
        "rouge_l",
        "meteor_no_synonyms",
        "cider_d",
        "length_ratio",
        "unanswered",
    )
    monitor: str = "rouge_l"

    peers: Mapping[str, Sequence[Written]] = field(default_factory=dict, init=False)
    """By case: what was written of the others of its set."""
    _sets: dict[str, list[Case]] = field(default_factory=dict, init=False, repr=False)

    noun: ClassVar[str] = "reports"
    output: ClassVar[str] = "text"
    scoring_fields: ClassVar[frozenset[str]] = QuestionTask.scoring_fields | {"sections", "clean"}

    def __post_init__(self) -> None:
        """Refuses settings that cannot be meant."""
        if self.clean:
            cleaner(self.clean)
        super().__post_init__()

    def baselines(self) -> Mapping[str, Mapping[str, Any]]:
        """Reports that are written without looking."""
        return baseline_configs({"Most frequent report": "MostFrequentReport", "Normal report": "NormalReport"})

    def gather(self, cases: Sequence[Case]) -> None:
        """Takes note of all references, and of which cases form a set."""
        super().gather(cases)
        self._sets = {}
        for case in cases:
            if name := case.attributes.get("set"):
                self._sets.setdefault(name, []).append(case)

    def take(self, predictions: Mapping[str, Any]) -> None:
        """Takes note of what was written of the members of each set, for metrics that compare them."""
        self.peers = {}
        found: dict[str, tuple[Written, ...]] = {}
        for members in self._sets.values():
            written = {}
            for case in members:
                packed = predictions.get(case.id)
                with suppress(CaseError):  # the case says so itself
                    pair = self._pair(case, packed if isinstance(packed, Mapping) else {"texts": [""]})
                    written[case.id] = Written(pair.references, pair.text, pair.readings)
            for one in written:
                found[one] = tuple(other for name, other in written.items() if name != one)
        self.peers = found

    def score(self, case: Case, prediction: Any, metrics: Sequence[str] | None = None) -> list[LabelScore]:
        """Judges one report, as `QuestionTask.score` does an answer."""
        if self.corpus is None:
            self.corpus = Corpus([self._references(case)])
        return super().score(case, prediction, metrics)

    def signature(self) -> str:
        """What decides the numbers beside the reports themselves."""
        # Without a template nobody was asked: the texts were there before.
        parts = [", ".join(self._choices()).removeprefix("extraction: cascade, ")] if self.template else []
        if self.judged_by and not self.template:
            parts.append(f"judged by {self.judged_by}")
        if self.sections:
            parts.append(f"sections: {' and '.join(self.sections)}")
        if self.clean:
            parts.append(f"words cleaned as {self.clean} does")
        parts += self._read_by()
        return ", ".join(parts) or "whole texts"

    def _pair(self, case: Case, packed: Mapping[str, Any]) -> AnsweredQuestion:
        pair = super()._pair(case, packed)
        return replace(
            pair,
            more={**pair.more, "sections": tuple(self.sections), "peers": self.peers.get(case.id, ())},
            clean=self.clean,
        )
