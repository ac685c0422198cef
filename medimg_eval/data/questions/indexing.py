"""Index of the questions of large files, in the user's cache: what it is made from, and where it lies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import medimg_eval.case
import medimg_eval.question
from medimg_eval.case import Case
from medimg_eval.case_index import CannotStoreError, StoredCases, open_cases, write_cases
from medimg_eval.data import records as plain_records
from medimg_eval.data.questions import answers, archives, cells, pictures, records, sources, stacks
from medimg_eval.data.resized import ShrunkPicture
from medimg_eval.errors import UserError
from medimg_eval.question import Question
from medimg_eval.store import digest
from medimg_eval.system import file_digest, user_cache

log = logging.getLogger(__name__)

LEAST = 8 << 20
"""Bytes of records from which an index is worth a file: less is read in two seconds."""

ELSEWHERE = ("join", "cross", "listed")
"""Steps that read further files, of which no index knows."""

_CLASSES = (
    *(Case, Question, answers.KeyOf, answers.Faulty, answers.LabelBoxes),
    *(records.Record, records.About, records.Repeated, type(Path())),
    *(pictures.FilePicture, archives.CellPicture, ShrunkPicture, stacks.Stack, stacks.StackPicture),
    *(cells.StreamedCell, cells.ParquetCell),
)

ALLOWED: Mapping[tuple[str, str], type] = {(kind.__module__, kind.__qualname__): kind for kind in _CLASSES}
"""What questions consist of. A cell that is held in memory is no part of it: the index would hold all pictures."""


@dataclass(frozen=True)
class QuestionIndex:
    """An index that may be there, or is to be made.

    Attributes:
        path: where it lies.
        key: of what it is made from: the files' content, the layout's settings, and the code that reads them.
        sources: the files.
    """

    path: Path
    key: str
    sources: tuple[Path, ...]

    def cases(
        self, read: Callable[[], Iterable[Case]], left_out: Callable[[], Mapping[str, str]]
    ) -> StoredCases | None:
        """The cases, which are read and stored where no index is sound; None where they cannot be stored.

        Args:
            read: reads them, and raises what is wrong with all of them.
            left_out: those that were left out, once they are read.
        """
        stored = open_cases(self.path, self.key, ALLOWED)
        if stored is not None:
            return stored
        log.info("%s: is read once for its index, %s", self.sources[0], self.path)
        try:
            write_cases(self.path, read(), self.key, ALLOWED, self.sources, left_out)
        except CannotStoreError as error:
            log.info("%s: has no index (%s)", self.sources[0], error)
            return None
        except OSError as error:
            log.warning(
                "%s: no index of %s can be written (%s), so that it is read whole at each start; make room, or name "
                "another folder by the environment variable MEDIMG_EVAL_CACHE",
                self.path.parent,
                self.sources[0],
                error,
            )
            return None
        return open_cases(self.path, self.key, ALLOWED)


def index_of(settings: Mapping[str, Any], source: sources.Source, root: Path) -> QuestionIndex | None:
    """The index of a layout's questions; None of files that are small, and where cases rest on further files.

    Args:
        settings: all of the layout's, by name.
        source: its records.
        root: the folder.

    Raises:
        UserError: a file is missing.
    """
    if _rests_on_others(settings):
        return None
    paths = tuple(source.paths(root))
    if sum(path.stat().st_size for path in paths) < LEAST:
        return None
    try:
        folder = user_cache() / "questions"
    except UserError:  # without a home there is nowhere to keep it
        return None
    place = [str(root), str(Path.cwd()), source.split, settings, list(map(str, paths))]
    content = [(file_digest(path), path.stat().st_mtime_ns) for path in paths]
    name, key = digest(place, 24), digest([place, content, _code()], 32)
    return QuestionIndex(folder / f"{name}.index", key, paths)


def _rests_on_others(settings: Mapping[str, Any]) -> bool:
    """Whether what a case is depends on more than the records, such as on which files there are."""
    steps = [step for step in settings["expand"] if isinstance(step, Mapping)]
    joined = any(name in step for step in steps for name in ELSEWHERE)
    zipped = any("zip" in spec for spec in pictures.specs_of(settings["images"]))
    return bool(settings["min_side"] or joined or "labels" in settings["answer"] or zipped)


@cache
def _code() -> str:
    """Hash of the code that makes cases of records, and packs them."""
    from medimg_eval.data.layouts import questions

    modules = (questions, medimg_eval.case, medimg_eval.question, plain_records)
    rooms = (Path(__file__).parent, Path(medimg_eval.case_index.__file__ or "").parent)
    files = [
        *(Path(module.__file__ or "") for module in modules),
        *(file for room in rooms for file in room.glob("*.py")),
    ]
    return digest([file_digest(file) for file in sorted(files)], 32)
