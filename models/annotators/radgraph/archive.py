"""What an archive of a RadGraph model holds: `config.json`, `vocabulary/*.txt` and `weights.th`, in a folder or tar."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

from medimg_eval.errors import UserError

CONFIG, WEIGHTS, VOCABULARY = "config.json", "weights.th", "vocabulary"
NER, RELATIONS = "__ner_labels", "__relation_labels"


class Archive(NamedTuple):
    """A RadGraph model as its authors' program (DyGIE++ on AllenNLP) stores it.

    Attributes:
        settings: of `config.json`.
        labels: by head, such as `radgraph-xl__ner_labels`: names of the classes, in their order.
        tensors: name -> tensor.
    """

    settings: Mapping[str, Any]
    labels: Mapping[str, tuple[str, ...]]
    tensors: Mapping[str, Any]

    def head(self, kind: str, dataset: str) -> str:
        """Returns a head's name by kind and training set.

        An archive with one head has that.

        Raises:
            UserError: none, or several and none of that data set.
        """
        heads = [name for name in self.labels if name.endswith(kind)]
        wanted = f"{dataset}{kind}"
        if wanted in heads or len(heads) == 1:
            return wanted if wanted in heads else heads[0]
        raise UserError(f"the archive holds {len(heads)} heads {sorted(heads)}; expected one, or one named {wanted!r}")


def read_archive(path: Path) -> Archive:
    """Reads an archive, a folder or a tar file; UserError where it is incomplete."""
    import torch

    def read(name: str, file: IO[bytes]) -> Any:
        if name == CONFIG:
            return json.load(file)
        if name == WEIGHTS:
            # torch goes back and forth in the file, which in a compressed one would mean to start again each time.
            return torch.load(io.BytesIO(file.read()), map_location="cpu", weights_only=True)
        lines = file.read().decode("utf-8").split("\n")
        return tuple(lines[:-1] if lines[-1] == "" else lines)

    members = _read_members(path, read)
    for name in (CONFIG, WEIGHTS):
        if name not in members:
            raise UserError(
                f"{path}: holds no {name}; expected an archive of a RadGraph model, such as radgraph.tar.gz"
            )
    settings, tensors = members.pop(CONFIG), members.pop(WEIGHTS)
    return Archive(settings, {PurePosixPath(name).stem: labels for name, labels in members.items()}, tensors)


def encoder_of(settings: Mapping[str, Any]) -> str:
    """Returns the hub model of the archive's encoder; UserError if settings lack it."""
    try:
        return str(settings["model"]["embedder"]["token_embedders"]["bert"]["model_name"])
    except (KeyError, TypeError):
        raise UserError(f"the archive's {CONFIG} names no encoder; expected the settings of a DyGIE++ model") from None


def read_settings(path: Path) -> Mapping[str, Any]:
    """Reads `config.json` alone, the first of AllenNLP's tar files; UserError without."""
    settings_ = _read_members(path, lambda name, file: json.load(file), only=CONFIG)
    if CONFIG not in settings_:
        raise UserError(f"{path}: holds no {CONFIG}; expected an archive of a RadGraph model, such as radgraph.tar.gz")
    settings: Mapping[str, Any] = settings_[CONFIG]
    return settings


def _read_members(path: Path, read: Callable[[str, IO[bytes]], Any], only: str = "") -> dict[str, Any]:
    """Reads an archive's model files by relative name; `only` one."""
    members: dict[str, Any] = {}
    try:
        if path.is_dir():
            for file in (path / CONFIG, path / WEIGHTS, *sorted((path / VOCABULARY).glob("*.txt"))):
                if file.is_file() and only in ("", name := file.relative_to(path).as_posix()):
                    with file.open("rb") as opened:
                        members[name] = read(name, opened)
            return members
        with tarfile.open(path) as tar:
            for member in tar:
                name = _relative_member(member.name)
                stream = tar.extractfile(member) if name and only in ("", name) else None
                if stream is not None:
                    members[name] = read(name, stream)
                if only in members:
                    break
    except (OSError, EOFError, tarfile.TarError, pickle.UnpicklingError, ValueError, RuntimeError) as error:
        raise UserError(f"{path}: cannot be read as an archive of a RadGraph model ({error})") from error
    return members


def _relative_member(member: str) -> str:
    """Returns a tar member's path below the model; else ""."""
    parts = PurePosixPath(member).parts
    if parts and parts[-1] in (CONFIG, WEIGHTS):
        return parts[-1]
    return "/".join(parts[-2:]) if parts[-2:-1] == (VOCABULARY,) and parts[-1].endswith(".txt") else ""
