"""Tells whose log a file is, by what it holds; nothing is unpickled."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from medimg_eval.data.logs.answer_tables import (
    is_medevalkit,
    is_vlmevalkit,
    read_medevalkit,
    read_rows,
    read_vlmevalkit,
)
from medimg_eval.data.logs.helm import is_helm, read_helm
from medimg_eval.data.logs.inspect_logs import read_inspect
from medimg_eval.data.logs.jsonl_samples import is_samples, read_samples
from medimg_eval.data.logs.records import Log, NoRepliesError
from medimg_eval.errors import UserError, nearest_path

PROGRAMS = ("lm-eval", "lmms-eval", "VLMEvalKit", "MedEvalKit", "inspect", "HELM", "nnU-Net")
READERS = (
    (is_samples, read_samples),
    (is_vlmevalkit, read_vlmevalkit),
    (is_medevalkit, read_medevalkit),
)
"""Whether a row is one of a program's -> what makes a log of the file's rows."""
SUFFIXES = (".jsonl", ".json", ".xlsx", ".tsv", ".csv", ".eval")


def read_logs(path: Path) -> list[Log]:
    """Reads a log, or all logs in a folder.

    Raises:
        UserError: it is none that is known, or cannot be read.
    """
    if path.is_dir():
        notes: list[str] = []
        logs = list(_in_folder(path, notes))
        if not logs:
            raise UserError("\n".join([f"{path}: holds no log of {', '.join(PROGRAMS)}", *notes]))
        return [replace(logs[0], notes=[*logs[0].notes, *notes]), *logs[1:]]
    if path.suffix == ".pkl":
        raise UserError(f"{path}: is a pickle, which can run code when it is read; have the program write xlsx or json")
    if not path.is_file():
        raise UserError(f"{path}: no such log{nearest_path(path)}")
    log = _read_log(path)
    if log is None:
        raise UserError(f"{path}: is no log of {', '.join(PROGRAMS)}; score answers=FILE reads any table of answers")
    return [log]


def _in_folder(folder: Path, notes: list[str]) -> Iterator[Log]:
    """Logs in a folder; `notes` is told of those without replies."""
    inner = sorted({file.parent for file in folder.rglob("scenario_state.json")})
    for path in inner:
        yield read_helm(path)
    files = sorted(file for file in folder.rglob("*") if file.suffix in SUFFIXES and file.parent not in inner)
    # A judge of VLMEvalKit's writes its verdicts beside the predictions, in a table that begins with their name.
    stems = {(file.parent, file.stem) for file in files}
    for file in files:
        parts = file.stem.split("_")
        if not any((file.parent, "_".join(parts[:end])) in stems for end in range(1, len(parts))):
            try:
                log = _read_log(file)
            except NoRepliesError as error:
                notes.append(str(error))
                continue
            if log is not None:
                yield log


def _read_log(path: Path) -> Log | None:
    """The log in a file; None where it is none."""
    if path.suffix == ".eval" or (path.suffix == ".json" and _is_inspect(path)):
        return read_inspect(path)
    if path.name == "scenario_state.json" and is_helm(path.parent):
        return read_helm(path.parent)
    if path.suffix not in SUFFIXES:
        return None
    try:  # of JSON lines the first tells, so that whole data sets in the folder are not read
        rows = _first_line(path) if path.suffix == ".jsonl" else read_rows(path)
    except (UserError, ValueError, OSError, zipfile.BadZipFile):
        return None
    read = next((read for is_kind, read in READERS if rows and is_kind(rows[0])), None)
    return None if read is None else read(path, read_rows(path) if path.suffix == ".jsonl" else rows)


def _is_inspect(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4096)
    return head.lstrip().startswith(b"{") and b'"status"' in head and b'"eval"' in head


def _first_line(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        first = json.loads(file.readline() or "null")
    return [first] if isinstance(first, dict) else []
