"""What makes a run the same run: hashes of settings and files, and a record of where it was made."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import linecache
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from medimg_eval.case import Case
from medimg_eval.case_index import remembered
from medimg_eval.evaluation.progress import tracked
from medimg_eval.lazy_torch import sees_gpu
from medimg_eval.patients import salt_of
from medimg_eval.store import digest, digest_of_each
from medimg_eval.system import file_digest, threads

PLACES = frozenset({"accelerator", "devices", "num_nodes", "strategy", "log_every_n_steps"})
"""Trainer settings that say where and how verbosely a model is tested, not what comes out."""

LAYOUTS = ("real", "synthetic", "prompts", "layout", "train")
"""What layouts that stand on others call those."""

RECORDED = (
    *("medimg-eval", "torch", "lightning", "monai", "numpy", "scipy", "scikit-learn"),
    *("nibabel", "pydicom", "SimpleITK", "imagecodecs", "pillow", "tifffile", "av", "openslide-bin", "highdicom"),
)


def slug(name: str) -> str:
    """A name as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", name).strip("_") or "model"


def files_digest(paths: Iterable[Path]) -> str:
    """Hash of files' content, folders with all files below."""
    digests: list[tuple[str, str]] = []
    for path in paths:
        if path.is_dir():
            walked = os.walk(path, followlinks=True)  # folders of links to cases are common
            # Hidden files are indices and companions, made by whoever looked at the folder last.
            below = sorted(
                Path(folder, name) for folder, _, names in walked for name in names if not name.startswith(".")
            )
            digests += [(entry.relative_to(path).as_posix(), file_digest(entry)) for entry in below]
        else:
            digests.append(("", file_digest(path)))
    return digest(digests, 16)


def data_fingerprint(cases: Sequence[Case]) -> str:
    """Hash of case ids and file content, independent of location.

    A target that stands beside other things in its file, such as what a model wrote, has its `content` hashed instead.
    Of salted keys it counts which cases share one: the data are the same with every salt.
    """
    return remembered(cases, "data fingerprint", lambda: _data_fingerprint(cases), of_files=True)


def _data_fingerprint(cases: Sequence[Case]) -> str:
    places_: dict[str | None, int] = {}
    patients = [
        places_.setdefault(case.patient, len(places_)) if salt_of(case.patient or "") else case.patient
        for case in cases
    ]
    paths = list(dict.fromkeys(path for case in cases for path in case.files))
    # Reading and hashing let other threads go on. Few at a time, or a folder of pictures is mostly bookkeeping.
    workers = threads(len(paths)) or 1
    step = min(64, len(paths) // (8 * workers)) or 1
    digests_: dict[Path, str] = {}
    pool = ThreadPoolExecutor(workers)
    try:
        pieces = [paths[start : start + step] for start in range(0, len(paths), step)]
        for piece, digests in zip(
            tracked(pieces, "hashing the data, part"), pool.map(_content_digests, pieces), strict=True
        ):
            digests_ |= zip(piece, digests, strict=True)
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C need not wait for the rest
    return digest_of_each(
        (
            (case.id, patient, dict(case.attributes), [*(digests_[path] for path in case.files), *_content_of(case)])
            for case, patient in zip(cases, patients, strict=True)
        ),
        16,
    )


def _content_of(case: Case) -> list[Any]:
    return [case.target.content] if hasattr(case.target, "content") else []


def model_identity(
    config: Mapping[str, Any], file_arguments: Iterable[str], pace_arguments: Iterable[str] = ()
) -> dict[str, Any]:
    """A model's settings, with file content replacing paths.

    Args:
        config: the settings.
        file_arguments: those that name a file or folder; a name that is neither, such as an id on a hub, stays.
        pace_arguments: those that do not decide answers.
    """
    named, left_out = frozenset(file_arguments), {"name", "description", *pace_arguments}

    def settled(key: str, value: Any) -> Any:
        if isinstance(value, Mapping):  # such as the models of an ensemble
            return {inner: settled(inner, item) for inner, item in value.items()}
        if isinstance(value, list | tuple):
            return [settled(key, item) for item in value]
        if key not in named or not isinstance(value, str):
            return value
        path = Path(value).expanduser()
        # A fit run's folder also holds logs, which change without the weights changing.
        checkpoints = path / "checkpoints"
        best, head = checkpoints / "best.ckpt", checkpoints / "head.json"
        decisive = best if best.is_file() else checkpoints if head.is_file() else path
        return files_digest([decisive]) if path.exists() else value

    return {key: settled(key, value) for key, value in config.items() if key not in left_out}


def placeless(layout: Any) -> Any:
    """Layout config without data locations; content is hashed instead.

    That is its `root`, of `Generated` and `Reconstructed` the `run`, and the same of the layouts that it stands on.
    """
    if not isinstance(layout, Mapping):
        return layout
    stands_on_run = str(layout.get("_target_", "")).rpartition(".")[2] in ("Generated", "Reconstructed")
    keys = ("root", "run") if stands_on_run else ("root",)
    return {
        key: placeless(value) if _is_layout(key, value) else value for key, value in layout.items() if key not in keys
    }


def _is_layout(key: Any, value: Any) -> bool:
    return key in LAYOUTS and isinstance(value, Mapping) and "_target_" in value


def code_identity(wrapper: type) -> str | None:
    """Hash of the file or source of a user's wrapper; ours is recorded by version."""
    module = wrapper.__module__
    if module.partition(".")[0] == __name__.partition(".")[0]:
        return None
    try:
        source = inspect.getsourcefile(wrapper)
    except (TypeError, OSError):  # a class without Python source, or without a file
        source = None
    if source is not None and Path(source).is_file():
        return file_digest(Path(source))
    typed = _typed_source(wrapper)
    return None if typed is None else digest(typed, 16)


def _typed_source(wrapper: type) -> str | None:
    """Source of a class typed in a notebook or prompt."""
    for method in filter(inspect.isfunction, vars(wrapper).values()):
        cell = "".join(linecache.getlines(method.__code__.co_filename))
        try:
            classes = [node for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.ClassDef)]
        except SyntaxError:  # such as a cell with commands of IPython's own
            return cell
        own = [node for node in classes if node.name == wrapper.__name__]
        if own:
            return ast.get_source_segment(cell, own[-1])
    return None


def trainer_identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's settings that decide answers, such as precision."""
    return {key: value for key, value in (config.get("trainer") or {}).items() if key not in PLACES}


def provenance() -> dict[str, Any]:
    """Versions, git revision if any, and hardware."""
    return {
        "python": platform.python_version(),
        "versions": dict(_package_versions()),
        "git": _git_revision(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "cpus": os.cpu_count(),
            "gpus": _gpu_names(),
        },
    }


def _gpu_names() -> list[str]:
    """Names of the GPUs that torch sees."""
    if not sees_gpu():
        return []
    import torch

    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def _content_digests(paths: Sequence[Path]) -> list[str]:
    return [files_digest([path]) if path.is_dir() else file_digest(path) for path in paths]


@cache
def _package_versions() -> dict[str, str]:
    """Installed versions of recorded packages."""
    versions = {}
    for name in RECORDED:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _git_revision() -> dict[str, Any] | None:
    """Git revision of the working folder, with the user's wrapper."""

    def ask(*words: str) -> str | None:
        command = ["git", *words]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    revision = ask("rev-parse", "HEAD")
    return None if revision is None else {"revision": revision, "changed_files": bool(ask("status", "--porcelain"))}
