"""Numbers of cases that already lie on disk, whichever program made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from medimg_eval.case import Array, Prompts
from medimg_eval.imaging.matrices import SUFFIXES, Matrix, read_matrix
from medimg_eval.models.base import Example, Regressor
from medimg_eval.models.precomputed.files import FromFiles, named_columns
from medimg_eval.models.precomputed.points_boxes import PrecomputedNumbers


class PrecomputedValues(FromFiles, Regressor):
    """Stored numbers: one table or matrix, or a file per case.

    Args:
        root: a table (`.csv`, `.tsv`); a matrix (`.npz` or `.h5` with `values`, `ids` and perhaps `columns`, or
            `.h5ad`); or a folder with a file per case.
        columns: the outputs' columns, or output -> column; None takes the task's outputs for columns, and the columns
            of a matrix without names in the task's order.
        pattern: the file of a case in the folder, `.csv`, `.tsv` or `.json` (an object of numbers).
        case: the column that names the case, in a table for all.

    Raises:
        UserError: root is missing, or not understood, or lacks a column.
        UsageError: columns is no list or mapping.
    """

    preferred_batch = 64

    def __init__(
        self,
        root: str,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        *,
        pattern: str = "{case}.json",
        case: str = "case",
    ) -> None:
        self._columns = named_columns(columns, "output")
        self._source: Matrix | PrecomputedNumbers
        if Path(root).suffix.lower() in SUFFIXES and not Path(root).expanduser().is_dir():
            self._source = read_matrix(root)
        else:
            self._source = PrecomputedNumbers(root, columns, pattern=pattern, case=case)

    def prepare(self, labels: Mapping[int, str], example: Example) -> None:
        """Refuses a matrix that lacks a column of the task."""
        if isinstance(self._source, Matrix):
            self._places(self._source, labels)

    def held_cases(self) -> list[str]:
        """The cases that there are results of."""
        return list(self._source.rows) if isinstance(self._source, Matrix) else self._source.held_cases()

    def regress(self, prompts: Prompts) -> Sequence[Array | Mapping[str, float]]:
        """Reads numbers; CaseError names the file of invalid ones."""
        if isinstance(self._source, Matrix):
            columns = self._places(self._source, prompts[0].labels) if prompts else []
            return [self._source.row(prompt.case_id)[columns] for prompt in prompts]
        return self._source.complete(prompts)

    def _places(self, matrix: Matrix, labels: Mapping[int, str]) -> list[int]:
        return matrix.columns_of([self._columns.get(name, name) for name in labels.values()])
