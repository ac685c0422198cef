"""Which case of a corpus is shown beside a question, so that it is never of the question's own patient."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medimg_eval.case import Array, Case, Image
from medimg_eval.degradations import DrawKey
from medimg_eval.errors import CaseError, UsageError
from medimg_eval.imaging.pictures import as_picture
from medimg_eval.store import FeatureStore, Item, digest
from medimg_eval.system import file_digest

By = Literal["stated", "images", "text", "random"]
BY: tuple[By, ...] = ("stated", "images", "text", "random")

EDGE = 16
"""Pixels along the edge of the grey thumbnails that stand for images where no encoder is named."""


@dataclass(frozen=True, kw_only=True)
class Retriever:
    """Finds the case of a corpus that is shown beside a question.

    Candidates of the question's own patients, and those that show one of its images, are left out before anything is
    compared.

    Attributes:
        corpus: cases to choose from, each with its text as what is right.
        by: `stated`: the question's field `stated` holds the id of one; `images`: the largest mean cosine of the
            features of images at the same place (the last visit with the last, the current with the current); `text`:
            the largest cosine of TF-IDF vectors of the question and the texts; `random`: drawn by the seed and the id.
        stated: the field that holds an id of the corpus.
        patients: a regular expression that finds patients in the paths of images; the case's patient where it is "".
        seed: of what is drawn.
        encoder: gives images their features (`embed_images`); None for grey thumbnails of 16 x 16 pixels.
        store: the folder in which features are kept from run to run; "" for memory alone.
    """

    corpus: Sequence[Case] = field(repr=False)
    by: By = "stated"
    stated: str = "reference"
    patients: str = ""
    seed: int = 0
    encoder: Any = None
    store: str = ""

    def __post_init__(self) -> None:
        """Refuses unknown retrieval and an empty corpus."""
        UsageError.refuse_invalid("task.retriever.by", BY, self.by)
        if not self.corpus:
            raise UsageError("task.corpus holds no case; expected at least one to retrieve")

    def find(self, case: Case) -> Case:
        """Returns the case that is shown beside a question.

        Raises:
            CaseError: none is left, the stated one is not in the corpus, or is of the case's own patient.
        """
        if self.by == "stated":
            return self._stated(case)
        own, own_files = self._patients_of(case), set(_image_files(case))
        candidates = [
            number
            for number, candidate in enumerate(self.corpus)
            if not own & self._whose[number] and not own_files & set(_image_files(candidate))
        ]
        if not candidates:
            raise CaseError(f"case {case.id!r}: all {len(self.corpus)} cases of the corpus are of its own patients")
        if self.by == "random":
            return self.corpus[candidates[DrawKey(self.seed, case.id).generator("retrieved").integers(len(candidates))]]
        likeness = self._by_images(case) if self.by == "images" else self._by_text(case)
        return self.corpus[candidates[int(np.argmax(likeness[candidates]))]]  # the first of equals

    def _stated(self, case: Case) -> Case:
        fields = {} if case.question is None else case.question.fields
        name = fields.get(self.stated, "")
        case_ = self._named.get(name)
        if case_ is None:
            raise CaseError(
                f"case {case.id!r}: the retrieved case {name!r}, which its field {self.stated!r} names, is not in the "
                f"corpus of {len(self.corpus)}; complete the corpus, or set task.retriever.by=images"
            )
        if shared := self._patients_of(case) & self._patients_of(case_):
            raise CaseError(
                f"case {case.id!r}: the retrieved case {name!r} is of its own patient, {min(shared)}, which would give "
                "the answer away; set task.retriever.by=images to retrieve another"
            )
        return case_

    def _by_images(self, case: Case) -> Array:
        """Mean cosine with candidates by image position; -1 for other counts."""
        query = self._vectors(case)
        return np.array(
            [
                float((query * vectors).sum(1).mean()) if vectors.shape == query.shape and len(query) else -1.0
                for vectors in self._known_vectors
            ]
        )

    def _by_text(self, case: Case) -> Array:
        vectorizer, vectors = self._texts
        query = vectorizer.transform(["" if case.question is None else case.question.text])
        likeness: Array = (vectors @ query.T).toarray()[:, 0]
        return likeness

    @cached_property
    def _named(self) -> Mapping[str, Case]:
        return {case.id: case for case in self.corpus}

    @cached_property
    def _whose(self) -> list[set[str]]:
        return [self._patients_of(case) for case in self.corpus]

    @cached_property
    def _known_vectors(self) -> list[Array]:
        return [self._vectors(case) for case in self.corpus]

    @cached_property
    def _texts(self) -> tuple[Any, Any]:
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer()
        return vectorizer, vectorizer.fit_transform([text_of(case) for case in self.corpus])

    def _patients_of(self, case: Case) -> set[str]:
        if not self.patients:
            return {case.patient} if case.patient else set()
        patients = {match for path in _image_files(case) for match in re.findall(self.patients, path)}
        return patients | ({case.patient} if case.patient else set())

    def _vectors(self, case: Case) -> Array:
        """Features of a case's images, float32, (image, feature), each of length 1."""
        key = digest([file_digest(path) for reference in case.images for path in reference.files])
        if self._kept is not None and key in self._kept:
            return self._kept.rows(key)
        rows = self._encoded([reference.read() for reference in case.images])
        vectors: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        if self._kept is not None:
            self._kept.add([Item(key, vectors)])
        return vectors

    def _encoded(self, images: Sequence[Image]) -> Array:
        if self.encoder is not None:
            return np.asarray(self.encoder.embed_images(images), np.float32)
        return (
            np.stack([_grey_thumbnail(image) for image in images]) if images else np.zeros((0, EDGE * EDGE), np.float32)
        )

    @cached_property
    def _kept(self) -> FeatureStore | None:
        if not self.store:
            return None
        example = next(case for case in self.corpus if case.images)
        length = self._encoded([example.images[0].read()]).shape[1]
        encoder = "grey thumbnails" if self.encoder is None else repr(getattr(self.encoder, "name", self.encoder))
        return FeatureStore.create(Path(self.store), {"encoder": encoder, "length": 1}, length)


def text_of(case: Case) -> str:
    """Returns a corpus case's first text; CaseError without any."""
    value = case.target.read().value
    text = value if isinstance(value, str) else next(iter(value), "")
    if not str(text).strip():
        raise CaseError(f"case {case.id!r} of the corpus has no text to show")
    return str(text)


def _image_files(case: Case) -> list[str]:
    """Files of a case's images, by which patients and images shared are told."""
    return [path.as_posix() for reference in case.images for path in reference.files]


def _grey_thumbnail(image: Image) -> Array:
    """Centred 16 x 16 grey thumbnail, float32, (256,)."""
    small: Array = np.asarray(as_picture(image).convert("L").resize((EDGE, EDGE)), np.float32).ravel()
    small -= small.mean()
    return small
