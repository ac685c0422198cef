"""Features that another program has computed, such as radiomics, as a feature extractor: they are looked up by file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from medimg_eval.errors import CaseError, UserError, nearest
from medimg_eval.models.extractors.base import FeatureExtractor
from medimg_eval.models.hub import Weights

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from medimg_eval.case import Array


class FeatureTable(FeatureExtractor):
    """A table with a row per picture, and a column per feature.

    Pictures of a run lie in its folder, as `predictions/CASE/000.png`: features are computed of them once they are
    there, and `score run=DIR metrics=[...]` then judges them.

    Args:
        weights: the table, CSV.
        file: the column that names the picture: its path, or as much of its end as tells it from others.
        leave_out: columns that are no features.
        preferred_batch: pictures at once.
    """

    looks_up: ClassVar[bool] = True
    needs: ClassVar[Sequence[Weights]] = (
        Weights("weights", "a table of features, CSV", "whatever program computed them", "that of its images"),
    )

    def __init__(
        self,
        weights: str | None = None,
        file: str = "file",
        leave_out: Sequence[str] = (),
        preferred_batch: int = 1024,
    ) -> None:
        self.weights, self.file, self.preferred_batch = weights, file, preferred_batch
        self.leave_out = tuple(leave_out)
        self._table: tuple[list[str], dict[tuple[str, ...], Array], int] | None = None

    @property
    def preprocessing(self) -> str:
        """Whatever the program did."""
        return "features of a table"

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return self._read()[0]

    def embed(self, pictures: Sequence[Picture]) -> Array:
        """Raises UserError: a table knows files, not pictures."""
        raise UserError(f"extractor {self.name!r} looks features up by file, and cannot compute any")

    def look_up(self, files: Sequence[Path]) -> Array:
        """Returns the features of one picture, float32, (feature,), NaN where a cell is empty.

        Raises:
            CaseError: no row, or several, end as its path does.
        """
        _, rows, longest = self._read()
        parts = files[0].absolute().parts if files else ()
        for length in range(min(longest, len(parts)), 0, -1):
            if parts[-length:] in rows:
                return rows[parts[-length:]]
        shown = files[0] if files else "a picture without a file"
        raise CaseError(f"{shown}: {self.weights} has no row of it in column {self.file!r}")

    def _read(self) -> tuple[list[str], dict[tuple[str, ...], Array], int]:
        if self._table is None:
            self._table = self._load(self.find(self.needs[0]))
        return self._table

    def _load(self, path: Path) -> tuple[list[str], dict[tuple[str, ...], Array], int]:
        import pandas as pd

        try:
            table: Any = pd.read_csv(path)
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read as a table ({error})") from error
        columns = list(map(str, table))
        for column in (self.file, *self.leave_out):
            if column not in columns:
                raise UserError(f"{path}: has no column {column!r}{nearest(column, columns)}")
        names = [column for column in columns if column != self.file and column not in self.leave_out]
        odd = next((name for name in names if table[name].dtype.kind not in "fiub"), None)
        if odd is not None or not names:
            raise UserError(
                f"{path}: column {odd!r} holds no numbers; name such columns in extractors.{self.name}.leave_out"
                if names
                else f"{path}: has no column of features"
            )
        values = table[names].to_numpy(np.float32)
        rows: dict[tuple[str, ...], Array] = {}
        for file, row in zip(table[self.file].astype(str), values, strict=True):
            key = tuple(part for part in PurePath(file.replace("\\", "/")).parts if part not in (".", "/"))
            if not key or key in rows:
                raise UserError(f"{path}: column {self.file!r} holds {file!r} twice, or no file; expected each once")
            rows[key] = row
        return names, rows, max(map(len, rows), default=0)
