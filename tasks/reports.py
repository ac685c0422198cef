"""Reports: texts about images, or about other texts, judged beside the reports that were written of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from medimg_eval.arguments import grouped
from medimg_eval.case import Case
from medimg_eval.errors import CaseError
from medimg_eval.evidence import EMPTY, JUDGE, Context, Evidence
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.nlp import Corpus, chosen
from medimg_eval.metrics.reports import Written
from medimg_eval.metrics.text import cleaner
from medimg_eval.question import Reply
from medimg_eval.store import digest
from medimg_eval.tasks.base import NOBODY, SCORES, baseline_configs
from medimg_eval.tasks.questions import QuestionTask
from medimg_eval.tasks.questions.shared_texts import SharedTexts


@dataclass(frozen=True, kw_only=True)
class ReportTask(QuestionTask):
    """Reports to be written.

    Attributes:
        sections: which sections are judged, such as `[findings]`: of texts with headings, those of models and
            references alike, these are taken; a text without headings is taken for them. All of it where none are
            named.
        clean: how metrics of words clean both texts first, by name, as the authors of a benchmark do: see
            `medimg_eval.metrics.text_scores`. Metrics of what a report says see it as it is.
    """

    sections: Sequence[str] = field(default=(), metadata=SCORES)
    clean: str = field(default="", metadata=SCORES)
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

    noun: ClassVar[str] = "reports"
    output: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        if self.clean:
            cleaner(self.clean)
        super().__post_init__()

    def baselines(self) -> Mapping[str, Mapping[str, Any]]:
        """Reports that are written without looking."""
        return baseline_configs({"Most frequent report": "MostFrequentReport", "Normal report": "NormalReport"})

    def told_to_judge(self, case: Case, packed: Mapping[str, Any]) -> Reply:
        """Report that metrics see too, without thinking and other sections."""
        if case.question is None:
            return super().told_to_judge(case, packed)
        texts = packed.get("texts") or [""]
        pair = AnsweredQuestion(case.question.kind, texts[-1], None, more={"sections": tuple(self.sections)})
        return Reply((pair.text,))

    def context(self, cases: Sequence[Case], predictions: Mapping[str, Any], evidence: Evidence) -> Context:
        """References, verdicts and set texts for comparing metrics."""
        context = super().context(cases, predictions, evidence)
        sets = grouped((name, case) for case in cases if (name := case.attributes.get("set")))
        peers: dict[str, tuple[Written, ...]] = {}
        for members in sets.values():
            written = {}
            for case in members:
                packed = predictions.get(case.id)
                with suppress(CaseError):  # the case says so itself
                    pair = self._pair(case, packed if isinstance(packed, Mapping) else {"texts": [""]}, context)
                    written[case.id] = Written(pair.references, pair.text, pair.readings)
            for name in written:
                peers[name] = tuple(text for member, text in written.items() if member != name)
        written_texts = (
            [[case.id, self._references(case)] for case in cases],
            [[name, list(peers[name])] for name in peers],
        )
        return replace(context, shared=replace(context.shared, peers=peers), digest=digest(written_texts, 16))

    def score(
        self, case: Case, prediction: Any, metrics: Sequence[str] | None = None, context: Context = EMPTY
    ) -> list[LabelScore]:
        """Scores one report as `QuestionTask.score`; alone it is the corpus."""
        if context.shared is None:
            context = replace(context, shared=SharedTexts(Corpus([self._references(case)])))
        return super().score(case, prediction, metrics, context)

    def signature(self, provenance: Mapping[str, str] = NOBODY) -> str:
        """Settings that decide the numbers beside the reports themselves."""
        # Without a template nobody was asked: the texts were there before.
        parts = [", ".join(self._choices(provenance)).removeprefix("extraction: cascade, ")] if self.template else []
        if provenance.get(JUDGE) and not self.template:
            parts.append(f"judged by {provenance[JUDGE]}")
        if self.sections:
            parts.append(f"sections: {' and '.join(self.sections)}")
        if not self.template:
            parts += self.told_language()
        if self.clean:
            parts.append(f"words cleaned as {self.clean} does")
        parts += self._read_by(provenance)
        return ", ".join(parts) or "whole texts"

    def _references(self, case: Case) -> tuple[str, ...]:
        return tuple(chosen(text, self.sections) for text in super()._references(case))

    def _pair(self, case: Case, packed: Mapping[str, Any], context: Context = EMPTY) -> AnsweredQuestion:
        pair = super()._pair(case, packed, context)
        return replace(
            pair,
            value=[chosen(reference, self.sections) for reference in pair.references] if self.sections else pair.value,
            more={
                **pair.more,
                "sections": tuple(self.sections),
                "peers": getattr(context.shared, "peers", {}).get(case.id, ()),
            },
            clean=self.clean,
        )
