"""Reports whose lengths are put right by what was measured in the image."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from medimg_eval.errors import UserError
from medimg_eval.metrics.nlp import sentence_spans
from medimg_eval.metrics.reports import TUBE, measurements
from medimg_eval.models.precomputed.texts import PrecomputedReports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medimg_eval.case import Prompts
    from medimg_eval.question import Decoding


class RemeasuredReports(PrecomputedReports):
    """Stored reports whose endotracheal tube distance is replaced by a measurement.

    A stated distance becomes the measured one; where none was measured, for there is no tube, sentences that state one
    are left out. Reports that state none stay as they are, unless `add` asks for a sentence. A case that the table of
    measurements does not name stays as it is, too. After FactCheXcker (Heiman et al. 2024), whose updater is a language
    model; here it is a rule.

    Args:
        file: the reports, as for PrecomputedReports.
        measured: CSV with a row per case.
        id: the column of the case's id in the reports.
        prediction: the column of the text.
        measured_id: the column of the case's id in the measurements.
        centimetres: the column of the distance in cm; empty where there is no tube.
        where: columns of the measurements -> the value that rows must have, such as the model of a table of several.
        add: whether a report that states no distance is given a sentence with the measured one.

    Raises:
        UserError: a file or a column is not there, or a distance is no number.
    """

    file_arguments: ClassVar[tuple[str, ...]] = ("file", "measured")

    def __init__(
        self,
        file: str,
        measured: str,
        id: str = "id",  # noqa: A002 - as the column is called
        prediction: str = "prediction",
        measured_id: str = "id",
        centimetres: str = "centimetres",
        where: Mapping[str, str] | None = None,
        add: bool = False,
    ) -> None:
        super().__init__(file, id, prediction)
        self.measured = Path(measured).expanduser()
        self._measured_columns = (measured_id, centimetres)
        self._where = dict(where or {})
        self._add = add
        self._lengths: Mapping[str, float] | None = None

    @property
    def lengths(self) -> Mapping[str, float]:
        """Case -> measured distance in cm, NaN where there is no tube."""
        if self._lengths is None:
            self._lengths = self._read_lengths()
        return self._lengths

    def _read_lengths(self) -> Mapping[str, float]:
        import pandas as pd

        with UserError.about(self.measured, "cannot be read as a table", OSError, ValueError):
            table = pd.read_csv(self.measured, dtype=str, keep_default_na=False)
        UserError.refuse_unknown(f"{self.measured}: has no column", table, *self._measured_columns, *self._where)
        for column, value in self._where.items():
            table = table[table[column] == str(value)]
        cases, cells = (table[name].str.strip() for name in self._measured_columns)
        if cases.duplicated().any():
            raise UserError(
                f"{self.measured}: case {cases[cases.duplicated()].iloc[0]!r} stands there several times; "
                "set model.where to the rows that are meant"
            )
        with UserError.about(self.measured, f"{self._measured_columns[1]!r} holds what is no number", ValueError):
            return {case: float(cell) if cell else math.nan for case, cell in zip(cases, cells, strict=True)}

    def check_ready(self) -> None:
        """Reads both tables."""
        super().check_ready()
        _ = self.lengths

    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """The reports of the cases, with their distances put right."""
        texts = super().generate(prompts, decoding)
        return [
            remeasure(text, self.lengths[prompt.case_id], add=self._add) if prompt.case_id in self.lengths else text
            for prompt, text in zip(prompts, texts, strict=True)
        ]


def remeasure(text: str, centimetres: float, *, add: bool = False) -> str:
    """Report with the measured tube distance in cm; NaN drops its sentence.

    >>> remeasure("ETT tip is 9 cm above the carina. Clear lungs.", 3.25)
    'ETT tip is 3.2 cm above the carina. Clear lungs.'
    >>> remeasure("ETT tip is 9 cm above the carina. Clear lungs.", float("nan"))
    'Clear lungs.'
    """
    stated = [length for length in measurements(text) if length.thing == TUBE and length.role == "stated"]
    if not stated:
        written = f"The endotracheal tube ends {centimetres:.1f} cm above the carina."
        return f"{text.rstrip()} {written}".lstrip() if add and not math.isnan(centimetres) else text
    if not math.isnan(centimetres):
        for length in reversed(stated):
            text = f"{text[: length.start]}{centimetres:.1f} cm{text[length.end :]}"
        return text
    for start, end in reversed([*sentence_spans(text)]):
        if any(start <= length.start < end for length in stated):
            text = f"{text[:start].rstrip()} {text[end:].lstrip()}"
    return text.strip()
