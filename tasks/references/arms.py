"""Questions shown beside a retrieved case, as arms of one run: without it, with its text, with its images and text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from medimg_eval.case import Case, Condition, Geometry, Image
from medimg_eval.degradations import DrawKey
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging import SHOWN
from medimg_eval.store import digest
from medimg_eval.system import file_digest
from medimg_eval.tasks.base import NOBODY
from medimg_eval.tasks.questions import QuestionTask
from medimg_eval.tasks.questions.templates import Template
from medimg_eval.tasks.references.retriever import Retriever, text_of

RETRIEVED = "retrieved"
"""What the retrieved case is called among those related to a case, and the field of its id in templates."""


@dataclass(frozen=True)
class NotRetrieved:
    """Placeholder for missing retrieved images; reading it says why."""

    message: str
    files: tuple[Path, ...] = ()

    def read(self) -> Image:
        """Raises CaseError."""
        raise CaseError(self.message)

    def geometry(self) -> Geometry:
        """Raises CaseError."""
        raise CaseError(self.message)


@dataclass(frozen=True, kw_only=True)
class RetrievalQuestionTask(QuestionTask):
    """Questions that may be shown beside a case of a corpus.

    Asked as it is, nothing is retrieved (closed book). Each arm is also a condition, so that `conditions=[report,
    image_report]` asks all of them in one run; `task.arm` asks one alone. Templates of arms may name
    `{reference_report}`, the text of the retrieved case, and its images come before the case's own.

    Attributes:
        corpus: the layout of the cases to retrieve from; what is right of each is its text. One whose `root` is "" lies
            in the folder of the task's own layout.
        corpus_split: the split of it that they are.
        retriever: how one is found: settings of `Retriever`.
        encoder: gives images their features where they are retrieved by images: an extractor, or nothing.
        arms: name -> `template`, the keys of the task's template that differ, and `images`, whether the retrieved
            images are shown.
        arm: the one that is asked; "" for none.
        wording: of retrieved texts: as they are, or `sentence_case`, on one line and in lower case but for the first
            letter of each sentence.
    """

    corpus: Any = None
    corpus_split: str = "train"
    retriever: Mapping[str, Any] = field(default_factory=dict)
    encoder: Any = None
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    arm: str = ""
    wording: Literal["", "sentence_case"] = ""

    def __post_init__(self) -> None:
        """Refuses invalid settings."""
        if self.arm:
            UsageError.refuse_invalid("task.arm", self.arms, self.arm)
        UsageError.refuse_invalid("task.wording", ("", "sentence_case"), self.wording)
        for name, settings in self.arms.items():
            UsageError.refuse_unknown(f"task.arms.{name} has no key", ("template", "images"), *settings)
        if self.arms and self.corpus is None:
            raise UsageError(f"task {self.name!r}: its arms retrieve from a corpus; set task.corpus to a layout")
        if self.arms and self.shots:
            raise UsageError(f"task {self.name!r}: exemplars and retrieved cases are two things; leave task.shots out")
        super().__post_init__()

    def __getstate__(self) -> dict[str, Any]:
        """Processes that read prompts retrieve nothing."""
        return {key: value for key, value in self.__dict__.items() if key != "_retriever"} | {"encoder": None}

    def seeded(self, seed: int) -> Mapping[str, Any]:
        """Seed of decoding and of draws from the corpus."""
        return {**super().seeded(seed), "retriever": {"seed": seed, **self.retriever}}

    @property
    def asked(self) -> Mapping[str, Any]:
        """The content of the corpus, where an arm is set."""
        if not self.arm:
            return super().asked
        files = sorted({path for case in self._retriever.corpus for path in case.target.files})
        return {**super().asked, "corpus": digest([file_digest(path) for path in files])}

    def conditions(self) -> frozenset[str]:
        """Conditions of questions, and each arm where none is set."""
        return super().conditions() | (frozenset() if self.arm else frozenset(self.arms))

    def variant(self, repeat: int, condition: Condition | None) -> RetrievalQuestionTask:
        """Variant of a repeat or condition, with an arm's template."""
        variant: Any = super().variant(repeat, condition)
        named = condition.name if condition is not None and condition.name in self.arms else self.arm
        varied: RetrievalQuestionTask = replace(variant, arm=named)
        return varied

    def cases(self, part: str) -> Sequence[Case]:
        """Cases of a part, with retrieved ones for an arm."""
        cases = super().cases(part)
        return [self._beside(case, self.arm) for case in cases] if self.arm else cases

    def under(self, case: Case, condition: Condition, key: DrawKey) -> Case:
        """A case under a condition: of an arm, beside the retrieved one."""
        if condition.name in self.arms:
            return self._beside(case, condition.name)
        return super().under(case, condition, key)

    def read_images(self, case: Case) -> tuple[Image, ...]:
        """Reads shown images; the first records which case was retrieved."""
        images = super().read_images(case)
        if RETRIEVED not in case.related or not images:
            return images
        note = f"retrieved: {case.related[RETRIEVED].id}"
        notes = "; ".join(filter(None, (note, str(images[0].attributes.get(SHOWN, "")))))
        return (replace(images[0], attributes={**images[0].attributes, SHOWN: notes}), *images[1:])

    def _choices(self, provenance: Mapping[str, str] = NOBODY) -> list[str]:
        by = self.retriever.get("by", "stated")
        seeded = f", seed {self.retriever.get('seed', 0)}" if by == "random" else ""
        arm_text = f"arm {self.arm}, retrieved by {by}{seeded}" if self.arm else "closed book"
        return [*super()._choices(provenance), *([arm_text] if self.arms else [])]

    def _beside(self, case: Case, arm: str) -> Case:
        """Case with its retrieved images; a missing one explains itself."""
        question = case.question
        if question is None:
            return case
        try:
            neighbour = self._retriever.find(case)
            text = in_sentence_case(text_of(neighbour)) if self.wording else text_of(neighbour)
        except CaseError as error:
            return replace(case, images=(NotRetrieved(str(error)),))
        fields = {**question.fields, "reference_report": text, RETRIEVED: neighbour.id}
        images = (*neighbour.images, *case.images) if self.arms[arm].get("images") else case.images
        return replace(
            case,
            images=images,
            question=replace(question, fields=fields),
            related={**case.related, RETRIEVED: neighbour},
        )

    @cached_property
    def _retriever(self) -> Retriever:
        own = getattr(self.layout, "root", None)
        stands_beside = own is not None and not getattr(self.corpus, "root", "elsewhere")
        layout = replace(self.corpus, root=own) if stands_beside else self.corpus
        corpus = [case for case in layout.cases(self.corpus_split) if case.question is not None]
        return Retriever(corpus=corpus, encoder=self.encoder, **self.retriever)

    @cached_property
    def _template(self) -> Template:
        own = self.arms[self.arm].get("template", {}) if self.arm else {}
        return Template.of({**self.template, **own})


def in_sentence_case(text: str) -> str:
    """Returns a text on one line in sentence case.

    >>> in_sentence_case("NO  NODULE. 1. EFFUSION")
    'No nodule. 1. Effusion'
    """
    pieces = re.split(r"([.!?])", " ".join(text.split()).lower())
    return "".join(re.sub(r"[^\W\d_]", lambda letter: letter[0].upper(), piece, count=1) for piece in pieces)
