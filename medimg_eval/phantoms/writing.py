"""Phantoms to disk: a folder of one kind appears whole or not at all, and is never made twice."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from medimg_eval.errors import UsageError, UserError, nearest
from medimg_eval.phantoms.cohort import cohort, write_tables

VERSION = 1
"""Raised whenever the same seed comes to give other pixels or other tables."""

KINDS = {
    "ct": "CT of the torso: DICOM series, organ masks, lung nodules, liver lesions",
    "mr": "T1-weighted MR of the head: NIfTI, tissue masks, lesions",
    "xray": "chest X-rays: DICOM, lung and heart masks, findings, boxes, reports",
    "endoscopy": "endoscopy clips: MP4, frame labels, polyp masks",
    "pathology": "stained slides: tiled pyramids, tumour masks, nuclei",
}
"""What there is to make."""

STAMP = "phantom.json"
"""The file that says what a folder was made with."""


def write_phantoms(kind: str, folder: Path, *, cases: int, seed: int) -> bool:
    """Writes the phantoms of one kind, unless they are there already; safe with many processes at once.

    Args:
        kind: a key of `KINDS`.
        folder: where to; it must not exist, be empty, or hold phantoms of the same settings.
        cases: how many.
        seed: the same seed gives the same files, byte for byte; the first cases do not depend on how many follow.

    Returns:
        True when something was written, False when all of it was there.

    Raises:
        UsageError: there is no such kind, no case is asked for, or the seed is negative.
        UserError: the folder holds something else, or cannot be written.
    """
    if kind not in KINDS:
        raise UsageError(f"there is no phantom {kind!r}{nearest(kind, KINDS)}")
    if cases < 1 or seed < 0:
        raise UsageError(f"phantoms: expected at least one case and a seed from 0 on, got cases={cases}, seed={seed}")
    stamp = {"kind": kind, "version": VERSION, "cases": cases, "seed": seed}
    return write_once(folder, stamp, lambda partial: _fill(kind, partial, stamp))


def write_once(folder: Path, stamp: Mapping[str, Any], fill: Callable[[Path], None]) -> bool:
    """Has a folder of phantoms written, unless it is there; it appears whole or not at all, whoever else writes it.

    Args:
        folder: where to; it must not exist, be empty, or hold phantoms of the same stamp.
        stamp: what they are made with, as JSON holds it.
        fill: writes the files into the folder that it is given.

    Returns:
        True when it was written, False when it was there.

    Raises:
        UserError: the folder holds something else, or cannot be written.
    """
    from filelock import FileLock

    if _is_there(folder, stamp):
        return False
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if _is_there(folder, stamp):  # another process wrote it while this one waited
                return False
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            partial.mkdir()
            fill(partial)
            (partial / STAMP).write_text(json.dumps(stamp) + "\n", encoding="utf-8")
            partial.replace(folder)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error}); name a folder on a disk with room") from error
    return True


def _is_there(folder: Path, stamp: Mapping[str, Any]) -> bool:
    """Whether these very phantoms are there; raises UserError when something else is."""
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise UserError(f"{folder}: is a file; name a folder for the phantoms")
    if not any(folder.iterdir()):
        return False
    try:
        found = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: holds other files; name an empty folder for the phantoms") from error
    if found == stamp:
        return True
    words = ", ".join(f"{key}={value}" for key, value in found.items())
    wanted = ", ".join(f"{key}={value}" for key, value in stamp.items())
    raise UserError(f"{folder}: holds phantoms of {words}, not of {wanted}; name another folder, or delete this one")


def _fill(kind: str, folder: Path, stamp: dict[str, Any]) -> None:
    module = importlib.import_module(f"medimg_eval.phantoms.{kind}")
    members = cohort(kind, stamp["cases"], stamp["seed"])
    records = [module.write_case(folder, member) for member in members]
    write_tables(folder, members, records)
    if hasattr(module, "write_variants"):
        module.write_variants(folder, members[0])
    (folder / "README.txt").write_text(_readme(kind, module.TEXT, stamp), encoding="utf-8")


def _readme(kind: str, text: str, stamp: dict[str, Any]) -> str:
    return f"""These are phantoms: drawn by a program, of no patient. {KINDS[kind][0].upper()}{KINDS[kind][1:]}.
Made by: python -m medimg_eval phantom kinds=[{kind}] cases={stamp["cases"]} seed={stamp["seed"]} (version {VERSION})
Numbers measured on them show that a tool works, not how well it does on patients.

{text}.

cases.csv: case, patient, split (no patient lies in two), made-up attributes, files.
findings.csv: 1 present, 0 absent. measurements.csv: case, name, value, unit. qa.jsonl: questions with one right answer.
boxes.csv: first and last voxel or pixel inside, along the image's axes (of a picture: row, column); frame of a clip.
"""
