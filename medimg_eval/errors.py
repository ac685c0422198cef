"""The errors people meet: one clear sentence each, printed without a traceback."""

from __future__ import annotations

import difflib
import importlib
import logging
import re
import sysconfig
import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

EXTRAS = {
    "accelerate": "vlm",
    "cryptography": "sign",
    "cv2": "copies",
    "diffusers": "synthesis",
    "highdicom": "dicom",
    "httpx2": "api",
    "inspect_ai": "inspect",
    "mlflow": "tracking",
    "openjpeg": "dicom",
    "peft": "vlm",
    "pylibjpeg": "dicom",
    "submitit": "slurm",
    "tiffslide": "slides",
    "transformers": "vlm",
    "wandb": "tracking",
    "wsidicom": "slides",
}
"""Libraries that a plain installation lacks -> the extra that brings them."""


class UserError(Exception):
    """Error that the user can repair.

    Printed as one message, without a traceback; exit code 1.
    """

    exit_code = 1

    @classmethod
    def about(cls, subject: object, fault: str, *kinds: type[Exception], mend: str = "") -> _Retelling:
        """Context that rewrites errors as `subject: fault (error); mend`."""
        return _Retelling(cls, subject, fault, kinds, mend)

    @classmethod
    def refuse_unknown(cls, told: str, options: Collection[Any], *names: Any, then: str = "", end: str = "") -> None:
        """Raises for the first unknown name, suggesting the nearest.

        `told 'name'then; did you mean ...end`.
        """
        for name in names:
            if name not in options:
                raise cls(f"{told} {name!r}{then}{nearest(str(name), map(str, options))}{end}")

    @classmethod
    def refuse_invalid(cls, setting: str, options: Collection[Any], *names: Any) -> None:
        """Raises for the first name that a setting does not take."""
        for name in names:
            if name not in options:
                raise cls(invalid(setting, name, map(str, options)))


class _Retelling(NamedTuple):
    """Context of `UserError.about`."""

    told_as: type[UserError]
    subject: object
    fault: str
    kinds: tuple[type[Exception], ...]
    mend: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, self.kinds):
            end = f"; {self.mend}" if self.mend else ""
            raise self.told_as(f"{self.subject}: {self.fault} ({error}){end}") from error


class UsageError(UserError):
    """Command line or config naming something nonexistent; exit code 2."""

    exit_code = 2


class AcceptanceError(UserError):
    """Run that fails its acceptance criteria; exit code 3."""

    exit_code = 3


class DeviationError(UserError):
    """Run or plan that deviates from its fixed form; exit code 4."""

    exit_code = 4


class LeaveError(UsageError):
    """Data would leave the machine without permission.

    `mend` is what the command lacks, "" where nothing helps.
    """

    def __init__(self, message: str, *, mend: str) -> None:
        super().__init__(message)
        self.mend = mend

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets it come back from another process, as from a job of SLURM."""
        return partial(LeaveError, mend=self.mend), (str(self),)


class SplitError(UserError):
    """Missing cases for a part that not every command needs."""


class MissingDataError(UserError):
    """The data of a task do not lie where its config says."""


class CaseError(UserError):
    """One case cannot be read, answered or judged; the other cases go on."""


@contextmanager
def interruptions() -> Iterator[None]:
    """Raises KeyboardInterrupt again where others made something else of it.

    Lightning answers with SystemExit; and a signal to all processes of a run ends those that read ahead, whose loss
    then hides why.
    """
    try:
        yield
    except SystemExit as stop:
        raise KeyboardInterrupt from stop
    except Exception as error:
        cause = error.__context__
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__context__
        if cause is None:
            raise
        raise KeyboardInterrupt from error


def error_in_words(error: BaseException) -> str:
    """Error message, with kind and place where it is technical."""
    if isinstance(error, CaseError):
        return str(error)
    frame = users_frame(error)
    location = f" ({Path(frame.filename).name}:{frame.lineno} in {frame.name})" if frame else ""
    return f"{type(error).__name__}: {error}{location}"


def users_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Last line of user code in a traceback; None without."""
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        ours = str(frame.f_globals.get("__name__")).partition(".")[0] == __name__.partition(".")[0]
        if not (ours or file.startswith(("<", *installed)) or {"site-packages", "dist-packages"} & {*Path(file).parts}):
            return traceback.FrameSummary(file, line, frame.f_code.co_name)
    return None


class ToldCauses:
    """Causes already reported, so that each is warned of once."""

    def __init__(self) -> None:
        self._causes: set[str] = set()

    def level(self, message: str, case: str) -> int:
        """Log level of a failure: warning for new causes, else debug."""
        again = (cause := cause_of(message, case)) in self._causes
        self._causes.add(cause)
        return logging.DEBUG if again else logging.WARNING


def cause_of(message: str, case: str) -> str:
    """Failure message without case-specific words; server codes stay."""
    message = re.sub(r"^\S*[/\\]\S+(?=: )", "FILE", message)
    return re.sub(r"(?<!\d)(?![45]\d\d(?!\d))\d+", "#", re.sub(rf"(?<!\w){re.escape(case)}(?!\w)", "CASE", message))


LIST = "python -m medimg_eval list"
"""The command that lists tasks, models, metrics and suites."""

LISTED = 120
"""Characters of options that an error names in full."""

SHOWN_BESIDE = 20
"""Files of a folder that are told beside one that it lacks; of more only those of a name like it."""


def nearest(name: str, options: Iterable[str], listed_by: str = "") -> str:
    """Suggestion ending a sentence: "; did you mean 'x'? (available: a, x)".

    Args:
        name: as it was typed.
        options: what there is; of many, only the three nearest are named.
        listed_by: the command that lists many.
    """
    options = sorted(set(options))
    few, hint, further = _suggestion(name, options)
    if few is not None:
        return f"{hint} (available: {few})"
    return f"{hint} ({further}; {f'{listed_by} shows all {len(options)}' if listed_by else f'{len(options)} in all'})"


def invalid(setting: str, name: object, options: Iterable[str], listed_by: str = "", *, like: str = "") -> str:
    """Error message: "test is invalid: expected one of t, wilcoxon, got 'wilcoxn'; did you mean 'wilcoxon'?".

    Args:
        setting: what was to be named, such as a key of a config.
        name: as it was typed.
        options: what there is; of many, only the three nearest are named.
        listed_by: the command that lists many.
        like: the name as options are spelt, where that differs, such as without its folder.
    """
    options = sorted(set(options))
    few, hint, further = _suggestion(like or str(name), options)
    end = "" if few is not None else f" ({further}{f'; {listed_by} shows all' if listed_by else ''})"
    expected = few if few is not None else f"{len(options)} names"
    return f"{setting} is invalid: expected one of {expected}, got {name!r}{hint}{end}"


def _suggestion(name: str, options: Sequence[str]) -> tuple[str | None, str, str]:
    """Returns all options where they are few, the nearest as a question, and the nearest of many."""
    few = ", ".join(options) or "none"
    start = [option for option in options if len(name) > 2 and option.lower().startswith(name.lower())]
    start.sort(key=len)  # the nearest first
    close = [*start, *difflib.get_close_matches(name, options, n=3, cutoff=0.5)]
    hint = f"; did you mean {close[0]!r}?" if close else ""
    near = list(dict.fromkeys([*close, *difflib.get_close_matches(name, options, n=3, cutoff=0)]))[:3]
    further = f"also near: {', '.join(near[1:])}" if close else f"nearest: {', '.join(near)}"
    return few if len(few) <= LISTED else None, hint, further


def nearest_path(path: Path) -> str:
    """The end of a sentence about a file or folder that is not there: its folder, or what lies beside it."""
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent} either"
    beside = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    if len(beside) > SHOWN_BESIDE:
        beside = difflib.get_close_matches(path.name, beside, n=3, cutoff=0.6)
    return nearest(path.name, beside) if beside else ""


def nearest_run(manifest: Path) -> str:
    """The end of a sentence about a folder without a manifest: runs below it, or beside it."""
    folder = manifest.parent
    below = sorted(
        f"{run.parent}" for run in (*folder.glob(f"*/{manifest.name}"), *folder.glob(f"*/*/{manifest.name}"))
    )
    if below:
        return f"; name one of those below it: {shortened(below)}"
    beside = {run.parent.name for run in folder.parent.glob(f"*/{manifest.name}")}
    return nearest(folder.name, beside) if beside else ""


def shortened(names: Sequence[str]) -> str:
    """The first five of many names, and that there are more."""
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def import_optional(name: str) -> Any:
    """Imports a module of a library that is not always there.

    Raises:
        UserError: it cannot be imported; the message says what installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise _not_there(name.partition(".")[0], error) from error


def missing_extra(error: ImportError) -> UserError | None:
    """Installation hint for a failed import; None for other packages."""
    module = error.name or str(error)  # libraries that look for others say their names in words
    library = next((extra for extra in EXTRAS if re.search(rf"\b{extra}\b", module)), None)
    return None if library is None else _not_there(library, error)


def _not_there(library: str, error: ImportError) -> UserError:
    install = f"'medimg-eval[{EXTRAS[library]}]'" if library in EXTRAS else library
    reason = " ".join(str(error).split())[:200]
    return UserError(f"this needs the library {library}, which cannot be imported ({reason}): pip install {install}")
