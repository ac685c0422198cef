"""Texts that already lie in a table, whichever program wrote them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from medimg_eval.case import Prompts
from medimg_eval.errors import CaseError, UserError
from medimg_eval.models.base import VisionLanguageModel
from medimg_eval.question import Decoding

if TYPE_CHECKING:
    import pandas as pd


class PrecomputedReports(VisionLanguageModel):
    """Answers each case with the text that a table holds of it.

    A case that it does not hold, or that stands there with several texts, fails; the others go on.

    Args:
        file: CSV, TSV, JSON, JSON lines or Parquet, with a row per case.
        id: the column of the case's id.
        prediction: the column of the text, alone or in a list of one; an empty cell is an empty answer.
        texts: by case what the table holds, where it has been read before.

    Raises:
        UserError: the file or a column is not there.
    """

    reads_images: ClassVar[bool] = False
    uses_torch = False
    file_arguments: ClassVar[tuple[str, ...]] = ("file",)
    preferred_batch = 1000

    def __init__(
        self,
        file: str,
        id: str = "id",  # noqa: A002 - as the column is called
        prediction: str = "prediction",
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.file, self.columns = Path(file).expanduser(), (id, prediction)
        self._texts = texts
        self._ambiguous: set[str] = set()

    @property
    def texts(self) -> Mapping[str, str]:
        """Case id -> text."""
        if self._texts is None:
            self._texts = self._read()
        return self._texts

    def _read(self) -> Mapping[str, str]:
        import pandas as pd

        kind = Path(self.file.name.removesuffix(".gz")).suffix.lower()
        with UserError.about(self.file, "cannot be read as a table", OSError, ValueError):
            if kind == ".parquet":
                table = pd.read_parquet(self.file)
            elif kind in (".json", ".jsonl", ".ndjson"):
                table = pd.read_json(self.file, lines=kind != ".json", dtype=False)
            else:
                separator = "\t" if kind == ".tsv" else ","
                table = pd.read_csv(self.file, sep=separator, dtype=str, keep_default_na=False)
        UserError.refuse_unknown(f"{self.file}: has no column", table, *self.columns)
        return self._by_case(table)

    def _by_case(self, table: pd.DataFrame) -> Mapping[str, str]:
        rows = table[list(self.columns)].copy()
        for name in self.columns:
            rows[name] = [self._text(cell, name, number) for number, cell in enumerate(rows[name], start=1)]
        rows = rows.drop_duplicates()
        twice = rows[self.columns[0]].str.strip().duplicated(keep=False)
        self._ambiguous = set(rows[self.columns[0]][twice].str.strip())
        rows = rows[~twice]
        return dict(zip(rows[self.columns[0]].str.strip(), rows[self.columns[1]], strict=True))

    def _text(self, cell: object, column: str, place: int) -> str:
        """Cell text, also of one in nested lists, as lmms-eval logs."""
        held = cell.tolist() if isinstance(cell, np.ndarray) else cell
        while isinstance(held, list) and len(held) == 1:
            held = held[0]
        if isinstance(held, list | dict):
            raise UserError(
                f"{self.file}: record {place} holds {len(held)} values in {column!r}, expected one text; "
                "set model.id and model.prediction to columns that hold one"
            )
        return "" if held is None or (isinstance(held, float) and math.isnan(held)) else str(held)

    def check_ready(self) -> None:
        """Reads the table."""
        _ = self.texts

    def held_cases(self) -> list[str]:
        """The cases that the table has texts of."""
        return list(self.texts)

    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """Texts of cases; CaseError for none or several rows."""
        texts = self.texts
        several = next((prompt.case_id for prompt in prompts if prompt.case_id in self._ambiguous), None)
        if several is not None:
            raise CaseError(f"{self.file}: id {several!r} stands there with several texts; keep one of its rows")
        missing = next((prompt.case_id for prompt in prompts if prompt.case_id not in texts), None)
        if missing is not None:
            raise CaseError(f"{self.file}: has no row for case {missing!r}")
        return [texts[prompt.case_id] for prompt in prompts]


class LoggedReplies(PrecomputedReports):
    """Replies by case and repeat from a log's rows.

    Args:
        file: CSV, TSV, JSON, JSON lines or Parquet, with a row per reply.
        first_seed: the seed of the decoding that asks for repeat 0; each further repeat has the next.

    Raises:
        UserError: the file or a column is not there.
    """

    deterministic: ClassVar[bool] = False

    def __init__(self, file: str, first_seed: int = 0) -> None:
        super().__init__(file)
        self._first_seed = first_seed
        self._by_repeat: dict[int, Mapping[str, str]] = {}

    def _by_case(self, table: pd.DataFrame) -> Mapping[str, str]:
        UserError.refuse_unknown(f"{self.file}: has no column", table, "repeat")
        repeats = table["repeat"].astype(int)
        self._by_repeat = {
            repeat: super(LoggedReplies, self)._by_case(table[repeats == repeat]) for repeat in {*repeats}
        }
        return self._by_repeat.get(0, {})

    def generate(self, prompts: Prompts, decoding: Decoding) -> Sequence[str]:
        """The replies of the repeat that the seed of the decoding stands for."""
        _ = self.texts
        self._texts = self._by_repeat.get((decoding.seed or 0) - self._first_seed, {})
        return super().generate(prompts, decoding)
