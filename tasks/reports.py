"""Reports: texts about images, or about other texts, judged beside the reports that were written of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

import yaml

from medimg_eval.case import Case
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.metrics import LabelScore, parse
from medimg_eval.metrics._corpus import Corpus
from medimg_eval.metrics._replies import ReplyPair
from medimg_eval.metrics._text_profiles import cleaner
from medimg_eval.metrics.report_consistency import Written
from medimg_eval.tasks.questions import QuestionTask

JUDGING = "medimg_eval.configs"


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
        "meteor_stem",
        "cider_d",
        "length_ratio",
        "unanswered",
    )
    monitor: str = "rouge_l"

    corpus: Corpus | None = field(default=None, init=False)
    peers: Mapping[str, Sequence[Written]] = field(default_factory=dict, init=False)
    """By case: what was written of the others of its set."""
    _sets: dict[str, list[Case]] = field(default_factory=dict, init=False, repr=False)
    readings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, init=False)
    """By case: what annotators made of it; the harness says."""
    annotated_by: Mapping[str, str] = field(default_factory=dict, init=False)
    """Annotator -> the weights that it read with; the harness says."""

    scoring_fields: ClassVar[frozenset[str]] = QuestionTask.scoring_fields | {"sections", "clean"}

    def __post_init__(self) -> None:
        """Refuses settings that cannot be meant, and adds the questions that metrics have a judge asked."""
        self.metrics = [self.metrics] if isinstance(self.metrics, str) else list(self.metrics)
        if self.clean:
            cleaner(self.clean)
        asked = dict.fromkeys(question for name in self.case_metrics for question in parse(name)[0].asks)
        self.judge = {**{name: _judging(name) for name in asked if name not in self.judge}, **self.judge}
        super().__post_init__()

    @property
    def annotators(self) -> list[str]:
        """Names of the annotators whose readings the metrics need."""
        return list(dict.fromkeys(one for name in self.case_metrics for one in parse(name)[0].reads))

    def gather(self, cases: Sequence[Case]) -> None:
        """Takes note of all references, and of which cases form a set."""
        self.corpus = Corpus([references for case in cases if (references := self._references(case))])
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

    def texts(self, case: Case, packed: Mapping[str, Any] | None) -> tuple[str, str]:
        """The reference and the prediction of a case, as annotators are given them; "" for no prediction.

        Raises:
            CaseError: the record cannot be read, or has several references, which annotators do not compare with.
        """
        pair = self._pair(case, packed or {"texts": [""]})
        if len(pair.references) > 1:
            raise CaseError(
                f"case {case.id!r} has {len(pair.references)} references, and {', '.join(self.annotators)} compare "
                "with one; leave such metrics out, or give one reference"
            )
        return (pair.references[0] if pair.references else ""), pair.text

    def score(self, case: Case, prediction: Any, metrics: Sequence[str] | None = None) -> list[LabelScore]:
        """Judges one report, as `QuestionTask.score` does an answer."""
        if self.corpus is None:
            self.corpus = Corpus([self._references(case)])
        return super().score(case, prediction, metrics)

    def signature(self) -> str:
        """What decides the numbers beside the reports themselves."""
        # Without a template nobody was asked: the texts were there before.
        parts = [super().signature().removeprefix("extraction: cascade, ")] if self.template else []
        if self.judged_by and not self.template:
            parts.append(f"judged by {self.judged_by}")
        if self.sections:
            parts.append(f"sections: {' and '.join(self.sections)}")
        if self.clean:
            parts.append(f"words cleaned as {self.clean} does")
        parts += [f"{name} by {self.annotated_by[name]}" for name in self.annotators if name in self.annotated_by]
        return ", ".join(parts) or "whole texts"

    def _references(self, case: Case) -> tuple[str, ...]:
        try:
            return super()._pair(case, {"texts": [""]}).references
        except CaseError:  # the case says so itself, when it is asked or judged
            return ()

    def _pair(self, case: Case, packed: Mapping[str, Any]) -> ReplyPair:
        pair = super()._pair(case, packed)
        return replace(
            pair,
            more={**pair.more, "sections": tuple(self.sections), "peers": self.peers.get(case.id, ())},
            corpus=self.corpus,
            clean=self.clean,
            readings=self.readings.get(case.id, {}),
        )


@cache
def _judging(name: str) -> Mapping[str, Any]:
    """The question to a judge that a metric of reports asks, from `configs/judging`."""
    place = files(JUDGING) / "judging" / f"{name}.yaml"
    if not place.is_file():
        raise UsageError(f"task.judge.{name}: a metric needs the question {name!r} to a judge, which is not set")
    loaded: Mapping[str, Any] = yaml.safe_load(place.read_text(encoding="utf-8"))
    return loaded
