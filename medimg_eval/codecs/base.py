"""The contract of a codec, and what those that write files share."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from medimg_eval.errors import CaseError
from medimg_eval.system import file_digest, whole

Stored = Path | Mapping[str, Any]
"""A prediction as a run keeps it: the file it lies in, or a record that JSON can hold, for the run's own file."""

LONGEST_NAME = 150
"""Characters of a trial's id that its file keeps; file systems allow 255 bytes."""

MANY_FILES = 4_096
"""Trials of a run up to which their files stand in one folder."""

FORMS = {".nii.gz": "label map", ".b2nd": "probabilities", ".npy": "array"}
"""Suffix of a file -> its form, for lines of earlier versions, which do not say it."""


class Codec(ABC):
    """Writes predictions of one form, and reads them back.

    Attributes:
        form: what a prediction is stored as, such as `label map`; its line in the run says it.
        also: further forms that `read` takes.
        heavy: whether predictions are files that are scored one by one beside the model; light ones are scored
            together at the end.
    """

    form: ClassVar[str]
    also: ClassVar[frozenset[str]] = frozenset()
    heavy: ClassVar[bool] = True

    @abstractmethod
    def write(self, folder: Path, trial: str, value: Any) -> Stored:
        """Stores what `Task.accept` returned; its file appears whole or not at all.

        `folder` is for files of predictions, made where it is needed; `trial` is an id.
        """

    @abstractmethod
    def read(self, stored: Any) -> Any:
        """Reads what `write` returned; raises CaseError naming the file when that fails."""

    def digest(self, stored: Stored) -> str:
        """Hash of a stored prediction's content."""
        return file_digest(stored) if isinstance(stored, Path) else json_digest(stored)


class FileCodec(Codec):
    """One file for each prediction.

    Attributes:
        suffix: how its name ends.
    """

    suffix: ClassVar[str]

    def write(self, folder: Path, trial: str, value: Any) -> Path:
        """Writes the file of a trial."""
        path = prediction_file(folder, trial, self.suffix)
        self.save(path, value)
        return path

    @abstractmethod
    def save(self, path: Path, value: Any) -> None:
        """Writes a prediction; the file appears whole or not at all."""


def prediction_file(folder: Path, trial: str, suffix: str) -> Path:
    """Prediction file of a trial; ids are escaped or shortened."""
    folder.mkdir(exist_ok=True)
    name = quote(trial, safe=" ()+,=@")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}~{hashlib.sha256(trial.encode()).hexdigest()[:16]}"
    return folder / f"{name}{suffix}"


def prediction_folder(folder: Path, trial: str, among: int) -> Path:
    """Prediction folder of a trial; very many trials get 256.

    Lines of a run say where each file lies, so that a run which grows, or is of an earlier version, holds both.

    Args:
        folder: of all predictions.
        trial: an id.
        among: how many trials the run has.
    """
    if among <= MANY_FILES:
        return folder
    part = folder / hashlib.sha256(trial.encode()).hexdigest()[:2]
    part.mkdir(parents=True, exist_ok=True)
    return part


def form_of(line: Mapping[str, Any]) -> str:
    """Form of a stored prediction; "" where old versions leave it open."""
    by_file = (form for suffix, form in FORMS.items() if line.get("file", "").endswith(suffix))
    return line.get("form") or ("record" if "answer" in line else next(by_file, ""))


def json_digest(value: Any) -> str:
    """Hash of what JSON can hold, independent of key order."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON; the file appears whole or not at all."""
    with whole(path) as partial:
        partial.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Reads what `write_json` wrote; raises CaseError naming the file."""
    with CaseError.about(path, "cannot be read as a stored prediction", OSError, ValueError, mend="run test again"):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise CaseError(f"{path}: holds no stored prediction; run test again")
    return content
