"""Motions of OpenSim (.mot, .sto): coordinates of a musculoskeletal model over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from medimg_eval.case import OneFile
from medimg_eval.errors import CaseError

END = "endheader"
TIME = "time"


@dataclass(frozen=True, eq=False)
class Motion:
    """Coordinates over time.

    Attributes:
        time: (frame,), seconds, ascending.
        values: coordinate -> (frame,), degrees or metres.
        degrees: whether angles are in degrees, as the header says.
    """

    time: npt.NDArray[np.float64]
    values: Mapping[str, npt.NDArray[np.float64]]
    degrees: bool = True

    def as_record(self) -> dict[str, Any]:
        """The motion as a run keeps it."""
        values = {name: series.tolist() for name, series in self.values.items()}
        return {"time": self.time.tolist(), "values": values, "degrees": self.degrees}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Reads what `as_record` gave."""
        values = {name: np.array(series, dtype=np.float64) for name, series in record["values"].items()}
        return cls(np.array(record["time"], dtype=np.float64), values, bool(record["degrees"]))


def read_motion(path: Path) -> Motion:
    """Reads a motion file: header, `endheader`, names from time, numbers.

    Raises:
        CaseError: the file cannot be read, or is no such table; the message names file and line.
    """
    with CaseError.about(path, "cannot be read as a motion", OSError, UnicodeDecodeError):
        lines = path.read_text(encoding="utf-8").splitlines()
    start = next((number for number, line in enumerate(lines) if line.strip().lower().startswith(END)), None)
    names = lines[start + 1].split() if start is not None and start + 1 < len(lines) else []
    if start is None or names[:1] != [TIME] or len(set(names)) < len(names):
        raise CaseError(
            f"{path}: table is invalid: expected {END!r} and then different names from {TIME!r} on, got {names[:3]}"
        )
    rows = []
    for number, line in enumerate(lines[start + 2 :], start=start + 3):
        if not line.strip():
            continue
        with CaseError.about(f"{path}, line {number}", "holds something that is no number", ValueError):
            numbers = [float(text) for text in line.split()]
        if len(numbers) != len(names):
            raise CaseError(f"{path}, line {number}: row is invalid: expected {len(names)} numbers, got {len(numbers)}")
        rows.append(numbers)
    table = np.array(rows, dtype=np.float64).reshape(-1, len(names))
    if not len(table) or (np.diff(table[:, 0]) <= 0).any():
        raise CaseError(f"{path}: time is invalid: expected frames of ascending time, got {len(table)} frames")
    degrees = not any(line.strip().lower().replace(" ", "") == "indegrees=no" for line in lines[:start])
    return Motion(table[:, 0], {name: table[:, column] for column, name in enumerate(names) if column}, degrees)


@dataclass(frozen=True)
class MotionFile(OneFile):
    """A motion in a file of its own."""

    def read(self) -> Motion:
        """Reads the motion."""
        return read_motion(self.path)

    def geometry(self) -> Any:
        """Raises CaseError: a motion has no grid."""
        raise CaseError(f"{self.path}: grid is invalid: expected that of an image, got a motion, which has none")
