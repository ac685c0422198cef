"""Baselines of reports that are not trained: what a score must exceed to mean that images were read."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from torch import nn

from medimg_eval.case import Array, Case, Prompt, Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.base import Embedder, Example, VisionLanguageModel, shown_images
from medimg_eval.models.baselines.questions import reports_of
from medimg_eval.question import Decoding

log = logging.getLogger(__name__)

NORMAL = (
    "The heart size is normal. The lungs are clear. There is no pleural effusion or pneumothorax. No acute "
    "cardiopulmonary abnormality."
)


class NormalReport(VisionLanguageModel):
    """Writes the same report of a normal chest X-ray for every study.

    Args:
        text: of the report.
    """

    reads_images: ClassVar[bool] = False
    preferred_batch = 64

    def __init__(self, text: str = NORMAL) -> None:
        self.written = text

    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """Writes the report of each prompt."""
        return [self.written] * len(prompts)


class MostFrequentReport(VisionLanguageModel):
    """Baseline that writes the most frequent report of the fit split.

    Case and white space do not distinguish reports. Of equally frequent ones, as where no report occurs twice, it is
    the one whose words are those of most others: the largest cosine between its set of words and the mean of all sets.
    """

    reads_images: ClassVar[bool] = False
    preferred_batch = 64

    def __init__(self) -> None:
        self.written: str | None = None

    def study(self, cases: Sequence[Case]) -> None:
        """Counts the reports.

        Raises:
            UserError: no case has a report.
        """
        spelt: dict[str, str] = {}
        counts: Counter[str] = Counter()
        for text in (text for case in cases for text in reports_of(case)):
            plain = " ".join(text.split()).casefold()
            spelt.setdefault(plain, text)
            counts[plain] += 1
        if not counts:
            raise UserError(f"most_frequent_report: none of {len(cases)} cases has a report to learn from")
        shared: Counter[str] = Counter()
        for plain, count in counts.items():
            shared.update(dict.fromkeys(set(plain.split()), count))
        most = max(counts.values())
        self.written = spelt[
            max((text for text, count in counts.items() if count == most), key=lambda p: _word_overlap(p, shared))
        ]

    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """Writes the report of each prompt; raises UserError where none was studied."""
        if self.written is None:
            raise UserError(
                "most_frequent_report: knows no reports; `study` must be called with cases before it is asked"
            )
        return [self.written] * len(prompts)


class NearestReport(nn.Module, VisionLanguageModel):
    """Baseline that writes the fit study's report with most similar images.

    Similarity is the cosine of what the embedder makes of all images of a study; of equally near ones the first counts.

    Args:
        embedder: a model with `embed`, such as `medimg_eval.models.vision_language.open_clip.OpenClip`.
        batch: studies that are embedded at once.
    """

    preferred_batch = 32
    pace_arguments: ClassVar[tuple[str, ...]] = ("batch",)

    def __init__(self, embedder: Embedder, batch: int = 32) -> None:
        super().__init__()
        self.embedder, self.batch = embedder, batch
        self._cases: list[Case] = []
        self._vectors: Array | None = None

    def check_ready(self) -> None:
        """The embedder must be."""
        self.embedder.check_ready()

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Prepares the embedder."""
        self.embedder.prepare(labels, example)

    def study(self, cases: Sequence[Case]) -> None:
        """Lists cases with reports; their images are embedded on demand.

        Raises:
            UserError: no case has a report.
        """
        self._cases = [case for case in cases if reports_of(case)]
        if not self._cases:
            raise UserError(f"nearest_report: none of {len(cases)} cases has a report to learn from")
        self._vectors = None

    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """Writes the nearest report of each prompt, "" without an image; CaseError for no picture."""
        if self._vectors is None:
            self._embed()
        image_prompts = [Prompt(prompt.case_id, tuple(shown_images(prompt))) for prompt in prompts]
        with_images = [prompt for prompt in image_prompts if prompt.images]
        vectors = iter(self.embedder.embed(with_images) if with_images else ())
        return [self._nearest(next(vectors)) if prompt.images else "" for prompt in image_prompts]

    def _nearest(self, vector: Array) -> str:
        assert self._vectors is not None  # noqa: S101 - made before
        similar = (
            (self._vectors @ _unit_vector(vector)).astype(np.float64).round(6)
        )  # further digits vary with the batch
        return reports_of(self._cases[int(similar.argmax())])[0]

    def _embed(self) -> None:
        """Embeds images of all cases, without unreadable ones."""
        if not self._cases:
            raise UserError("nearest_report: knows no reports; `study` must be called with cases before it is asked")
        log.info("nearest_report: embeds the images of %d cases", len(self._cases))
        kept_cases: list[Case] = []
        vectors: list[Array] = []
        for begin in range(0, len(self._cases), self.batch):
            some = self._cases[begin : begin + self.batch]
            read = [(case, prompt) for case in some if (prompt := _case_prompt(case)) is not None]
            kept_cases += [case for case, _ in read]
            vectors += (
                [_unit_vector(vector) for vector in self.embedder.embed([prompt for _, prompt in read])] if read else []
            )
        if not kept_cases:
            raise UserError("nearest_report: no image of the cases to learn from can be read")
        self._cases, self._vectors = kept_cases, np.stack(vectors)


def _case_prompt(case: Case) -> Prompt | None:
    """A case's images; None where missing or unreadable."""
    try:
        images = tuple(reference.read() for reference in case.images)
    except CaseError as error:
        log.warning("%s; nearest_report does without it", error)
        return None
    return Prompt(case.id, images) if images else None


def _word_overlap(text: str, shared: Counter[str]) -> float:
    """Cosine of a text's words with the sum of all, unnormalised."""
    words = set(text.split())
    return sum(shared[word] for word in words) / math.sqrt(len(words))


def _unit_vector(vector: Array) -> Array:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)
