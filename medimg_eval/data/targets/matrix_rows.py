"""Numbers of cases that are rows of a matrix, such as the expression of genes in a spot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from medimg_eval.case import Findings, Image, OneFile, Reference
from medimg_eval.data.records import Entry, OnImage, below
from medimg_eval.errors import CaseError, UserError
from medimg_eval.imaging.matrices import read_matrix, read_names


@dataclass
class MatrixRow:
    """Matrix row per case, from .h5ad, .h5 or .npz.

    See `medimg_eval.imaging.matrices.read_matrix`.

    Args:
        path: a file below the root, or a pattern of files, such as `adata/{sample}.h5ad`; each file is read once.
        row: what the file calls the row of a case, a pattern, such as `{barcode}`.
        columns: which columns are meant, or a file of them below the root, as `task.outputs` may be; all without,
            which the file then names.
        log1p: whether the natural logarithm of 1 + the number is what is right, as of counts of genes.
    """

    path: str
    row: str = "{case}"
    columns: Sequence[str] | str = ()
    log1p: bool = False

    def reference(self, entry: Entry) -> Reference[Findings]:
        """The row of the case."""
        path = entry.path(self.path) if "{" in self.path else below(entry.root, self.path)
        return MatrixNumbers(path, entry.fill(self.row), self._columns(entry.root), self.log1p, entry.image)

    def _columns(self, root: Path) -> tuple[str, ...]:
        return _cached_names(root / self.columns) if isinstance(self.columns, str) else tuple(self.columns)


def _cached_names(path: Path) -> tuple[str, ...]:
    stamp = path.stat().st_mtime_ns if path.is_file() else 0
    return _read_names(path, stamp)


@lru_cache(8)
def _read_names(path: Path, _: int) -> tuple[str, ...]:
    return tuple(read_names(path))


@dataclass(frozen=True)
class MatrixNumbers(OneFile, OnImage):
    """The numbers of one row."""

    path: Path
    row: str
    columns: tuple[str, ...]
    log1p: bool
    image: Reference[Image] | None = None

    def read(self) -> Findings:
        """Returns numbers by column; CaseError for missing rows or columns."""
        try:
            matrix = read_matrix(self.path, only=self.columns)
            names = self.columns or tuple(matrix.columns)
            if not names:
                raise CaseError(f"{self.path}: does not name its columns; set task.layout.target.columns")
            numbers = matrix.row(self.row)[matrix.columns_of(names)]
        except UserError as error:
            raise CaseError(str(error)) from error
        if self.log1p:
            if (numbers < 0).any():
                raise CaseError(f"{self.path}: row {self.row!r} holds {numbers.min():g}, and log1p is of counts")
            numbers = np.log1p(numbers)
        values = [value if math.isfinite(value) else math.nan for value in numbers.tolist()]
        return Findings(dict(zip(names, values, strict=True)))
