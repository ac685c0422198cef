"""Seals: what a run predicted, hashed and dated before the truth was known."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from medimg_eval.errors import UserError

FILE = "seal.json"
"""What the seal of a run is called in its folder."""

SEALED = ("predictions-*.jsonl", "predictions/**/*")
"""Files of a run that hold what was predicted, as patterns."""


@dataclass(frozen=True)
class Seal:
    """Digest of what a run predicted.

    Attributes:
        sealed: when, in UTC, as ISO 8601.
        digests: path below the run's folder -> SHA-256 of the file.
    """

    sealed: str
    digests: dict[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of everything, publishable before the truth."""
        return hashlib.sha256(json.dumps(self.digests, sort_keys=True).encode()).hexdigest()


def seal_run(folder: Path) -> Seal:
    """Seals a run: writes `seal.json` beside its predictions, once.

    The date is this machine's word. Publish `digest`, as in a registry or a mail, for others to trust the date.

    Raises:
        UserError: the run is sealed already, or holds no predictions.
    """
    if (folder / FILE).exists():
        raise UserError(f"{folder / FILE}: the run is sealed already; check it, or make another run")
    seal = Seal(datetime.now(UTC).isoformat(timespec="seconds"), _file_digests(folder))
    (folder / FILE).write_text(json.dumps(asdict(seal), indent=1), encoding="utf-8")
    return seal


def check_seal(folder: Path, *, resolved: date | None = None) -> Seal:
    """Returns the seal of a run whose predictions are as they were.

    Args:
        folder: of the run.
        resolved: the day on which the truth became known; the seal must be older.

    Raises:
        UserError: there is no seal, a prediction was changed, added or taken away, or it was sealed too late.

    Source: after ForecastBench (Karger et al. 2024): forecasts are fixed before questions resolve.
    """
    path = folder / FILE
    with UserError.about(path, "is no seal; seal_run makes one", OSError, ValueError, KeyError, TypeError):
        stored = json.loads(path.read_text(encoding="utf-8"))
        seal = Seal(str(stored["sealed"]), dict(stored["digests"]))
        sealed_on = datetime.fromisoformat(seal.sealed).date()
    now = _file_digests(folder)
    strange = sorted(name for name in now.keys() | seal.digests.keys() if now.get(name) != seal.digests.get(name))
    if strange:
        raise UserError(f"{folder / strange[0]}: is not as it was sealed ({len(strange)} files differ)")
    if resolved is not None and sealed_on >= resolved:
        raise UserError(
            f"{path}: was sealed on {sealed_on}, expected a day before {resolved}, when the truth was known"
        )
    return seal


def _file_digests(folder: Path) -> dict[str, str]:
    files = sorted(file for pattern in SEALED for file in folder.glob(pattern) if file.is_file())
    digests = {file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    if not digests:
        raise UserError(f"{folder}: holds no predictions to seal ({', '.join(SEALED)})")
    return digests
