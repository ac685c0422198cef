"""What lies in a folder that somebody may have sent is data: nothing in it is run unless the user trusts it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from medimg_eval.errors import UserError

IN_PYTHON = "with medimg_eval.trust.trusting(): ..."

_trusted: ContextVar[bool] = ContextVar("trusted", default=False)
_allow: ContextVar[str] = ContextVar("allow", default=IN_PYTHON)

_FORMULA = re.compile(r"[\s']*[=+\-@＝＋－＠]|'*[\t\r\n]")
"""How a text begins that spreadsheets take for a formula; those that are guarded already are guarded again."""

_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters without a shape that turn the direction of what stands beside them."""


@contextmanager
def trusting(trusted: bool = True, *, allow: str = IN_PYTHON) -> Iterator[None]:
    """Says whether folders may bring code of their own.

    Args:
        trusted: whether what they name is run.
        allow: what a refusal tells the user to write instead.
    """
    before = _trusted.set(trusted), _allow.set(allow)
    try:
        yield
    finally:
        _trusted.reset(before[0])
        _allow.reset(before[1])


def require_trust(source: Path, would_run: Iterable[str]) -> None:
    """Refuses code that a folder brings or names, unless trusted.

    What would run is told with where it stands; nothing is refused where it is empty.

    Raises:
        UserError: there is such code, and it is not trusted.
    """
    strangers = [] if _trusted.get() else list(dict.fromkeys(would_run))
    if strangers:
        raise UserError(f"{source}: would run {', '.join(strangers)}; if you trust where it is from: {_allow.get()}")


def stays_inside(name: str) -> bool:
    """Whether a name stays below its folder, on any system."""
    windows = PureWindowsPath(name)
    parts = {*PurePosixPath(name).parts, *windows.parts}
    return bool(parts) and ".." not in parts and not windows.drive and not windows.root and "\0" not in name


def place_in(folder: Path, name: object) -> Path:
    """File of a stored name; UserError where outside the folder."""
    if not isinstance(name, str) or not stays_inside(name):
        raise UserError(f"{folder}: names the file {name!r}, which lies outside of it; remove that folder")
    return folder / name


def guarded(value: Any) -> Any:
    r"""Returns a text safe as cell: formulas quoted, direction marks escaped.

    These appear as `\u202e`, those after an apostrophe.

    Numbers, also those written as texts, stay as they are.
    """
    if not isinstance(value, str):
        return value
    text = _DIRECTION.sub(lambda mark: f"\\u{ord(mark.group()):04x}", value)
    return f"'{text}" if _FORMULA.match(text) and not _is_number(text) else text


def unguarded(text: str) -> str:
    """Returns a text as it was before `guarded` put an apostrophe before it."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
