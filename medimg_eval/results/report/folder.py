"""A folder of pages that open from disk: whose it is, and its files, written whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import medimg_eval
from medimg_eval.errors import UserError
from medimg_eval.system import whole

MARK = "report.json"
"""The file that says that a folder holds a report, which may then be written over."""
MAKER = "medimg_eval"
CASES, LEADERBOARD = "cases", "leaderboard"
"""Kinds of reports. The mark of former reports of cases names none."""


def claim(folder: Path, kind: str) -> None:
    """Makes a folder one of reports of a kind.

    Args:
        folder: Made if needed.
        kind: `CASES` or `LEADERBOARD`.

    Raises:
        UserError: The folder holds something else, or cannot be written to.
    """
    held = _report_kind(folder / MARK)
    if held != kind and folder.is_dir() and any(folder.iterdir()):
        what = f"a report of kind={held}" if held else "files that are no report"
        raise UserError(f"{folder} holds {what}; name a new folder with out=")
    with UserError.about(folder, "cannot be written to", OSError, mend="name another folder with out="):
        made_by = f"{MAKER} {medimg_eval.__version__}"
        write_text(folder / MARK, json.dumps({"made_by": made_by, "kind": kind}) + "\n")


def _report_kind(mark: Path) -> str:
    """Returns a folder's report kind by its mark; else ""."""
    try:
        content = json.loads(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    ours = isinstance(content, dict) and str(content.get("made_by", "")).startswith(f"{MAKER} ")
    return str(content.get("kind", CASES)) if ours else ""


def copy_static(folder: Path, names: Iterable[str]) -> None:
    """Writes files shared by report pages, such as the style."""
    own = files(__package__) / "static"
    for name in names:
        write_text(folder / name, (own / name).read_text(encoding="utf-8"))


def write_text(path: Path, text: str) -> None:
    """Writes a file atomically, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def script(name: str, value: Any) -> str:
    """Returns a script passing a value under our name.

    Nothing in the value can end the script, or the text that it stands in: all is ASCII, and `<`, quotes and
    backslashes are escaped. The page parses the text as JSON, so that no name in it means anything to JavaScript.

    Args:
        name: Letters, digits, `/` and `-`.
        value: What JSON can hold; numbers that it cannot become null.
    """
    text = json.dumps(plain(value), separators=(",", ":"), allow_nan=False)
    for mark, escaped in (("\\", "\\\\"), ("'", "\\'"), ("<", "\\x3c")):
        text = text.replace(mark, escaped)
    return f"report.take('{name}','{text}')\n"


def write_script(folder: Path, name: str, value: Any) -> None:
    """Writes the script `NAME.js` below a folder, whole or not at all."""
    write_text(folder / f"{name}.js", script(name, value))


def plain(value: Any) -> Any:
    """Returns a JSON value: no NumPy, non-finite numbers or other keys."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | np.ndarray | set | frozenset):
        return [plain(item) for item in value]
    return str(value)
