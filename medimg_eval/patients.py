"""Keys in the place of patients' ids: the same for the same salt, and telling nothing to who has it not."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from functools import cache
from pathlib import Path

from medimg_eval.errors import UserError

SHORTEST = 16
"""Characters of a salt."""

SALTED = "salted-"
"""What every key begins with."""

KEY = re.compile(rf"{SALTED}([0-9a-f]{{6}})-[0-9a-f]{{16}}")
"""A key, and in it what tells one salt from another."""


def patient_key(name: str) -> str:
    """Returns a keyed digest of what names a patient; nothing of nothing.

    The salt is the text of the file `MEDIMG_EVAL_SALT`, else of `medimg_eval/salt` in the user's config
    (`XDG_CONFIG_HOME`, else ~/.config), which is made at first use, readable by its owner alone. Runs can be joined by
    patient where they were scored with one salt, so those who share runs share that file.

    Raises:
        UserError: the salt cannot be read or made, or is too short.
    """
    return f"{SALTED}{salt_name()}-{_salted_digest(name, 8)}" if name else ""


def salt_name() -> str:
    """Returns six letters that tell this salt from others, and nothing of it."""
    return _salted_digest("", 3)


def salt_of(key: str) -> str:
    """Returns the salt's name of a key; "" for other texts."""
    match = KEY.fullmatch(key)
    return match[1] if match else ""


def _salted_digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), key=_read_salt(_salt_path()), digest_size=size).hexdigest()


def _salt_path() -> Path:
    own = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config") / "medimg_eval" / "salt"
    path = Path(os.environ.get("MEDIMG_EVAL_SALT") or own)
    try:
        return path.expanduser()
    except RuntimeError as error:  # a user without a home, as in some containers
        raise UserError(f"{path}: {error} Name the file of the salt: export MEDIMG_EVAL_SALT=FILE") from error


@cache
def _read_salt(place: Path) -> bytes:
    try:
        if not place.exists():
            _write_salt(place)
        text = place.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{place}: the salt of patients' keys cannot be read or made ({error}); name a file that can be: "
            "export MEDIMG_EVAL_SALT=FILE"
        ) from error
    if len(text) < SHORTEST:
        raise UserError(f"{place}: a salt of patients' keys has at least {SHORTEST} characters; name another file")
    return hashlib.sha256(text.encode()).digest()


def _write_salt(place: Path) -> None:
    """Writes a salt atomically; among processes the first one wins."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = place.with_name(f".{secrets.token_hex(8)}.{place.name}")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(secrets.token_hex(32) + "\n")
        if not place.exists():
            os.link(partial, place)
    except FileExistsError:
        pass  # another process was first
    finally:
        partial.unlink(missing_ok=True)
