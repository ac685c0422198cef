"""How data come onto a page: as scripts that hold one text of JSON, since pages from disk may not fetch files."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from medimg_eval.system import whole

if TYPE_CHECKING:
    from pathlib import Path


def script(name: str, value: Any) -> str:
    """Returns a script that hands a value to the page under a name of ours.

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
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as partial:
        partial.write_text(script(name, value), encoding="ascii")


def plain(value: Any) -> Any:
    """Returns a value as JSON can hold it: no NumPy, no number that is not finite, keys as text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, Sequence | np.ndarray | set | frozenset):
        return [plain(one) for one in value]
    return str(value)
