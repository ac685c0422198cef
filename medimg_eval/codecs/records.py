"""Small predictions, such as replies, class probabilities or vectors: a record in the run's own file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from medimg_eval.codecs.base import Codec
from medimg_eval.errors import CaseError


class Recorded(Protocol):
    """A prediction that knows its own record."""

    def as_record(self) -> dict[str, Any]:
        """Record of values that JSON can hold."""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Reads what `as_record` gave; raises KeyError, TypeError or ValueError for another record."""


class Records(Codec):
    """Codec of predictions that have an `as_record` of their own."""

    form = "record"
    heavy = False

    def __init__(self, kind: type[Recorded]) -> None:
        self._kind = kind

    def write(self, folder: Path, trial: str, value: Recorded) -> dict[str, Any]:
        """Returns the record."""
        return value.as_record()

    def read(self, stored: Mapping[str, Any]) -> Any:
        """Makes the prediction of its record again."""
        try:
            return self._kind.from_record(stored)
        except (KeyError, TypeError, ValueError) as error:
            what = f"{type(error).__name__}: {error}"
            raise CaseError(f"the stored record is no {self._kind.__name__} ({what}); run test again") from error
