"""Checkpoints of a training: which a folder holds, which are whole, at which step each was written, which are new."""

from __future__ import annotations

import json
import logging
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medimg_eval.errors import UserError, import_optional
from medimg_eval.results.runs import MANIFEST, read_manifest
from medimg_eval.system import natural_order, whole

log = logging.getLogger(__name__)

FILES = (".ckpt", ".pt", ".pth", ".pth.tar", ".safetensors")
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "adapter_model.bin")
"""Files of weights in a folder that transformers or PEFT wrote."""
DESCRIBED = ("config.json", "adapter_config.json")
"""One of these makes a folder a checkpoint of transformers or PEFT."""
NOT_WEIGHTS = ("optimizer", "scheduler", "scaler", "rng_state", "training_args")
"""What trainers put beside weights, for going on."""
UNDER_WAY = ("tmp", ".tmp", ".part", ".incomplete")
"""How names of files that are being written begin or end."""

NAMED = {
    "step": re.compile(
        r"(?:^|[-_.\d])(?:global[-_]?step|steps?|iter(?:ation)?s?|checkpoint)[-_=]?(\d+)", re.IGNORECASE
    ),
    "epoch": re.compile(r"(?:^|[-_.\d])epochs?[-_=]?(\d+)", re.IGNORECASE),
}
"""How names of files say when they were written: `epoch=3-step=500.ckpt`, `checkpoint-500`, `iter_20000.pth`."""
STORED = {"step": ("global_step", "step", "iteration", "iter"), "epoch": ("epoch", "current_epoch")}
"""Keys under which Lightning, transformers, nnU-Net and others store the same."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is whole.

    Attributes:
        path: a file, or a folder that transformers or PEFT wrote.
        when: `step`, `epoch`, both or neither, as its name says, or else its content.
    """

    path: Path
    when: Mapping[str, float] = field(default_factory=dict)

    @property
    def argument(self) -> str:
        """The argument of a model's config that takes it."""
        return "adapter" if (self.path / "adapter_config.json").is_file() else "checkpoint"

    @property
    def title(self) -> str:
        """When it was written, in words; without that its name."""
        times = [f"{unit} {self.when[unit]:g}" for unit in ("step", "epoch") if unit in self.when]
        return times[0] if times else self.path.name

    @property
    def state(self) -> list[float]:
        """Size and time of its files, which reveal rewrites."""
        files = sorted(self.path.iterdir()) if self.path.is_dir() else [self.path]
        states = [file.stat() for file in files if file.is_file()]
        return [float(sum(state.st_size for state in states)), max(state.st_mtime for state in states)]


def find_checkpoints(folder: Path) -> tuple[list[Checkpoint], list[Path]]:
    """Checkpoints below a folder: complete ones by step, and incomplete ones.

    Raises:
        UserError: there is no such folder, or it holds neither.
    """
    folder = folder.expanduser()
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give checkpoints= the folder that a training writes into")
    if any((folder / name).is_file() for name in DESCRIBED):
        raise UserError(
            f"{folder}: is itself a checkpoint; give checkpoints={folder.parent}, or model.checkpoint={folder}"
        )
    paths = {path.resolve(): path for path in _list_candidates(folder)}  # of a link to another one, that
    done = [Checkpoint(path, _checkpoint_times(path)) for path in paths.values() if _is_whole(path)]
    partial = [path for path in paths.values() if not _is_whole(path)]
    if not done and not partial:
        expected = f"{', '.join(FILES)}, or folders with {DESCRIBED[0]}"
        raise UserError(f"{folder}: holds no checkpoint yet; expected files {expected}")
    last = float("inf")
    done.sort(key=lambda one: (one.when.get("step", last), one.when.get("epoch", last), natural_order(one.path.name)))
    return done, partial


def _list_candidates(folder: Path) -> list[Path]:
    below = folder / "checkpoints"
    entries = sorted([*folder.iterdir(), *(below.iterdir() if below.is_dir() else ())], reverse=True)
    return [
        path
        for path in entries
        if not path.name.startswith((".", *UNDER_WAY))
        and not path.name.endswith(UNDER_WAY)
        and not path.name.startswith(NOT_WEIGHTS)
        and (path.name.endswith(FILES) if path.is_file() else any((path / name).is_file() for name in DESCRIBED))
    ]


def _is_whole(path: Path) -> bool:
    """Whether its files show no pending writing."""
    if path.is_file():
        return _is_whole_file(path)
    weights = [file for pattern in WEIGHTS for file in path.glob(pattern)]
    for index in path.glob("*.index.json"):
        try:
            named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (OSError, ValueError, KeyError):
            return False
        if named - {file.name for file in weights}:
            return False
    return bool(weights) and all(map(_is_whole_file, weights))


def _is_whole_file(file: Path) -> bool:
    """Whether a file is complete by head or tail."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            head = stream.read(8)
            if file.suffix == ".safetensors":
                length = int.from_bytes(head, "little")
                tensors = json.loads(stream.read(length)) if 0 < length <= size - 8 else None
                ends = [tensor["data_offsets"][1] for name, tensor in (tensors or {}).items() if name != "__metadata__"]
                return tensors is not None and size == 8 + length + max(ends, default=0)
        return zipfile.is_zipfile(file) if head.startswith(b"PK") else size > 0
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _checkpoint_times(path: Path) -> dict[str, float]:
    name = path.name.removesuffix(".tar").rpartition(".")[0] if path.is_file() else path.name
    times = {unit: float(numbers[-1]) for unit, pattern in NAMED.items() if (numbers := pattern.findall(name))}
    if name.isdecimal():
        times = {"step": float(name)}
    return times or _read_stored_times(path)


def _read_stored_times(path: Path) -> dict[str, float]:
    """Time of writing, from a checkpoint's content; nothing if unreadable."""
    try:
        if path.is_dir():
            held = json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        elif path.suffix != ".safetensors":
            torch = import_optional("torch")
            held = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        else:
            held = {}
    except Exception as error:  # noqa: BLE001 - the model's own error tells why, once it is asked
        log.debug("%s: %s", path, error)
        held = {}
    held = held if isinstance(held, Mapping) else {}
    values = {unit: next((held[key] for key in keys if key in held), None) for unit, keys in STORED.items()}
    return {unit: float(value) for unit, value in values.items() if isinstance(value, int | float)}


@dataclass
class Evaluated:
    """Checkpoints of a folder that were evaluated under one task.

    Attributes:
        runs: their run folders, by step.
        failures: those that could not be asked, with what was said.
        new: how many of the runs were made now.
    """

    runs: list[Path] = field(default_factory=list)
    failures: dict[Path, Exception] = field(default_factory=dict)
    new: int = 0


def evaluate_new(
    found: Sequence[Checkpoint], asked: str, record: Path, evaluate: Callable[[Checkpoint], Path]
) -> Evaluated:
    """Evaluates each new checkpoint once; failures do not stop the rest.

    Args:
        found: the checkpoints.
        asked: hash of what they are asked, without the checkpoint.
        record: file that says which were evaluated.
        evaluate: brings the run of a checkpoint to its end, and returns its folder.
    """
    recorded = _read_record(record)
    done = Evaluated()
    for checkpoint in found:
        name, now = str(checkpoint.path.resolve()), {"asked": asked, "state": checkpoint.state}
        before = recorded.get(name, {})
        folder = Path(before.get("run", ""))
        if {key: before.get(key) for key in now} != now or not _is_done(folder):
            try:
                folder = evaluate(checkpoint)
            except Exception as error:  # noqa: BLE001 - whatever a checkpoint does while it is loaded
                log.warning("%s failed, the others go on: %s", checkpoint.path, error)
                done.failures[checkpoint.path] = error
                continue
            done.new += 1
            recorded[name] = {**now, "run": str(folder.resolve())}
            _write_record(record, recorded)
        if folder not in done.runs:  # the last and the best checkpoint are often the same
            done.runs.append(folder)
    return done


def _is_done(folder: Path) -> bool:
    """Whether a run has all scores; failed cases are asked again."""
    if not (folder / MANIFEST).is_file():
        return False
    manifest = read_manifest(folder / MANIFEST)
    return manifest.get("status") == "finished" and not manifest.get("failed_cases")


def _read_record(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    with UserError.about(file, "cannot be read as a record of checkpoints", ValueError, mend="remove it"):
        return dict(json.loads(file.read_text(encoding="utf-8")))


def _write_record(file: Path, known: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole(file) as partial:
        partial.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
