"""LUNGUAGESCORE's models of medical names, on rows that reports were structured into beforehand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from medimg_eval.case import Array
from medimg_eval.errors import CaseError, UserError
from medimg_eval.evidence import TextPair
from medimg_eval.metrics.nlp import Corpus
from medimg_eval.metrics.reports import lunguage_of, read_timeline, texts_in
from medimg_eval.models.annotators.base import PairAnnotator
from medimg_eval.models.hub import Weights
from medimg_eval.models.text_encoders import NameVectors

LONGEST = 512
"""Tokens that are read of a phrase."""

Pooling = Literal["first", "mean"]

_ROWS = Weights(
    argument="rows",
    what='the rows of every report and reference, JSON lines of {"report": text, "rows": [{"entity": ...}, ...]}',
    source="a structurer of reports, such as that of SuperSupermoon/Lunguage, or annotations",
    licence="that of the reports",
)
_BIOLORD = Weights.of_encoder(
    "biolord", "FremyCompany/BioLORD-2023", "see the model card: its terms include those of UMLS and SNOMED CT"
)
_MEDCPT = Weights.of_encoder("medcpt", "ncbi/MedCPT-Query-Encoder", "see the model card")


class Lunguage(PairAnnotator):
    """Similarity of structured reports: mean cosine of BioLORD-2023 and MedCPT.

    BioLORD's vector of a phrase is the mean over tokens; all others are those of the first token, as in the authors'
    code. A text without a word has no rows; one whose rows are not in the file cannot be compared.

    Args:
        rows: JSON lines, one report each, found by its text; blanks do not matter.
        biolord: a folder, or a repository in the hub's cache.
        medcpt: likewise.
    """

    needs: ClassVar[Sequence[Weights]] = (_ROWS, _BIOLORD, _MEDCPT)
    file_arguments: ClassVar[tuple[str, ...]] = ("rows", "biolord", "medcpt")

    def __init__(
        self,
        rows: str | None = None,
        biolord: str | None = "FremyCompany/BioLORD-2023",
        medcpt: str | None = "ncbi/MedCPT-Query-Encoder",
        device: str = "auto",
        preferred_batch: int = 32,
    ) -> None:
        self.rows, self.biolord, self.medcpt = rows, biolord, medcpt
        self.device, self.preferred_batch = device, preferred_batch

    def compare(self, pairs: Sequence[TextPair], corpus: Corpus) -> list[dict[str, float | None]]:
        """Returns `f1`, `precision`, `recall` per pair; None without any rows.

        Raises:
            CaseError: the rows of a report are not in the file.
            UserError: the file or the weights cannot be used.
        """
        structured = [(self._of(pair.reference), self._of(pair.prediction)) for pair in pairs]
        texts = [texts_in(rows) for both in structured for rows in both]
        names = [text for _, values in texts for text in values]
        wanted = [text for phrases, _ in texts for text in phrases]
        values = _Cosines(((model, "first") for model, _ in self._encoders), names)
        phrases = _Cosines(self._encoders, wanted)
        scores = [lunguage_of(*both, values, phrases) for both in structured]
        return [
            {key: None if np.isnan(value) else value for key, value in matched._asdict().items()} for matched in scores
        ]

    def _of(self, text: str) -> list[Mapping[str, Any]]:
        key = " ".join(text.split())
        if not key:
            return []
        if key not in self._known:
            raise CaseError(f"{self.rows}: has no rows of the report that begins {key[:60]!r}; add its line")
        return self._known[key]

    @cached_property
    def _known(self) -> dict[str, list[Mapping[str, Any]]]:
        """Text of a report, blanks folded -> its rows."""
        path = self.find(_ROWS)
        with UserError.about(path, "cannot be read as JSON lines", OSError, ValueError):
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        rows_by_report: dict[str, list[Mapping[str, Any]]] = {}
        for line in lines:
            try:
                rows_by_report[" ".join(line["report"].split())] = [dict(row) for row in line["rows"]]
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise UserError(
                    f'{path}: expected lines of {{"report": text, "rows": [...]}}, got {str(line)[:60]!r}'
                ) from error
        return rows_by_report

    @cached_property
    def _encoders(self) -> tuple[tuple[NameVectors, Pooling], ...]:
        """Both models, each with how it puts the tokens of a phrase together."""
        biolord, medcpt = (NameVectors(self.find(need), self.device, LONGEST) for need in (_BIOLORD, _MEDCPT))
        return (biolord, "mean"), (medcpt, "first")


class LunguageTimeline(PairAnnotator):
    """Similarity of a patient's structured studies, JSON texts, as in `Lunguage`.

    Args:
        biolord: a folder, or a repository in the hub's cache.
        medcpt: likewise.
    """

    needs: ClassVar[Sequence[Weights]] = (_BIOLORD, _MEDCPT)
    file_arguments: ClassVar[tuple[str, ...]] = ("biolord", "medcpt")

    def __init__(
        self,
        biolord: str | None = "FremyCompany/BioLORD-2023",
        medcpt: str | None = "ncbi/MedCPT-Query-Encoder",
        device: str = "auto",
        preferred_batch: int = 8,
    ) -> None:
        self.biolord, self.medcpt = biolord, medcpt
        self.device, self.preferred_batch = device, preferred_batch

    def compare(self, pairs: Sequence[TextPair], corpus: Corpus) -> list[dict[str, float | None]]:
        """Returns `f1`, `precision`, `recall`, `f1_published` per pair; None without rows.

        Raises:
            CaseError: a reference holds no rows.
            UserError: the weights cannot be used.
        """
        patient_rows = [self._rows(pair) for pair in pairs]
        every = [row for rows in patient_rows for side in rows for row in side]
        biolord, medcpt = (NameVectors(self.find(need), self.device, LONGEST) for need in (_BIOLORD, _MEDCPT))
        values = _Cosines(((biolord, "first"), (medcpt, "first")), texts_in(every)[1])
        named = [str(row.get("entity_group") or row["entity"]) for row in every]
        groups = _Cosines(((biolord, "mean"), (medcpt, "first")), [" ".join(name.split()) for name in named])
        scores = []
        for rows in patient_rows:
            matched = lunguage_of(*rows, values, groups, temporal=True)._asdict()
            first, second = ([{**row, "episode": 1} for row in side] for side in rows)
            matched["f1_published"] = lunguage_of(first, second, values, groups, temporal=True).f1
            scores.append({key: None if np.isnan(value) else value for key, value in matched.items()})
        return scores

    @staticmethod
    def _rows(pair: TextPair) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        reference = read_timeline(pair.reference)
        if reference is None:
            raise CaseError(f"the reference holds no rows as JSON: {pair.reference[:60]!r}")
        rows = read_timeline(pair.prediction, reference) or []
        return reference, [row for row in rows if row.get("entity")]


class _Cosines:
    """The mean cosine of several models, of texts that they have embedded together."""

    def __init__(self, encoders: Iterable[tuple[NameVectors, Pooling]], texts: Sequence[str]) -> None:
        distinct = list(dict.fromkeys(texts))
        self._at = {text: index for index, text in enumerate(distinct)}
        self._vectors = [encoder.of(distinct, pooling) for encoder, pooling in encoders]

    def __call__(self, ones: Sequence[str], others: Sequence[str]) -> Array:
        """The cosines of texts, (text, other)."""
        rows, columns = [self._at[text] for text in ones], [self._at[text] for text in others]
        cosines = [vectors[rows] @ vectors[columns].T for vectors in self._vectors]
        mean: Array = np.mean(cosines, axis=0)
        return mean
