"""The errors people meet: one clear sentence each, printed without a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can mend. Printed as one message, without a traceback; exit code 1."""

    exit_code = 1


class UsageError(UserError):
    """A command line or config that asks for something that does not exist; exit code 2."""

    exit_code = 2


class LeaveError(UsageError):
    """Data would leave this machine that may not; `mend` is what the command lacks, "" where nothing helps."""

    def __init__(self, message: str, *, mend: str) -> None:
        super().__init__(message)
        self.mend = mend


class SplitError(UserError):
    """The data hold no cases for a part of the work, which not every command needs."""


class CaseError(UserError):
    """One case cannot be read, answered or judged; the other cases go on."""


def nearest(name: str, options: Iterable[str]) -> str:
    """Returns `"; did you mean 'x'? (available: a, x)"` for a name that is not among `options`."""
    options = sorted(set(options))
    close = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{hint} (available: {', '.join(options) or 'none'})"
