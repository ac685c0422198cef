"""What the parts of a task share: patients, cases, images that are equal byte for byte, and images that look alike."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from medimg_eval.case import Array, Case, Image, Reference
from medimg_eval.errors import CaseError, UserError, shortened
from medimg_eval.system import file_digest, walk
from medimg_eval.tasks import Task
from medimg_eval.tasks.base import split_source

if TYPE_CHECKING:
    from medimg_eval.metrics.privacy import Looks

log = logging.getLogger(__name__)

PARTS = ("fit", "validate", "test")

SECONDS = 2.0
"""How long images are compared where a run waits for it; `check` compares all."""

HOLDERS = frozenset((".csv", ".tsv", ".parquet", ".json", ".jsonl", ".zip", ".tar", ".h5", ".hdf5", ".h5ad", ".npz"))
"""Files that hold several images, which are then not told apart by their file."""

LARGEST = 2**28
"""Pixels of an image that is read to be compared by what it shows."""

Files = tuple[Path, ...]


class Leak(NamedTuple):
    """Cases, patients or images that two parts share.

    Attributes:
        kind: `same cases`, `patients`, `cases`, `images` or `lookalikes`.
        text: which parts, how many, and the first names.
    """

    kind: str
    text: str


class Leaks(NamedTuple):
    """Leaks found between the parts of a task.

    Attributes:
        found: of each pair of parts and kind one.
        not_looked: what was not compared, and why; "" where all was.
    """

    found: list[Leak]
    not_looked: str = ""

    def as_record(self, *, lookalikes: bool) -> dict[str, Any]:
        """Stored record; `lookalikes` tells whether appearance was compared."""
        record = {"found": [leak.text for leak in self.found], "not_looked": self.not_looked}
        return {**record, "lookalikes": True} if lookalikes else record


def find_leaks(
    task: Task,
    parts: Mapping[str, Sequence[Case]] | None = None,
    seconds: float = SECONDS,
    *,
    lookalikes: bool = False,
) -> Leaks:
    """Compares the parts of a task, of each fold where there are several.

    Args:
        task: whose.
        parts: the cases of each part, where they are there already.
        seconds: how long images are compared; files of different sizes differ, so that few are read.
        lookalikes: whether all images are read, too, and those told that look alike: stored in another format, size or
            window. Of what is left, flips and crops, `medimg_eval.metrics.privacy.CopyFinder` finds some.

    Images are equal if their files are, byte for byte.
    """
    until, leaks, unread = time.monotonic() + seconds, dict[Leak, None](), dict[str, None]()
    folds: list[tuple[int | None, Task]] = [] if task.subsets else [*task.folds().items()]
    for number, fold_task in folds or [(None, task)]:
        held = _task_parts(fold_task) if parts is None else parts
        is_same = len(held) > 1 and len({_case_identities(cases) for cases in held.values()}) == 1
        if is_same and not split_source(fold_task.layout):
            continue  # nothing says which case belongs to which part, so all serve each
        of_fold = "" if number is None else f"fold {number}: "
        for leak in _shared_patients(held):
            leaks[leak._replace(text=of_fold + leak.text)] = None
        images = _Images(until)
        for leak in images.shared(held):
            leaks[leak._replace(text=of_fold + leak.text)] = None
        unread |= dict.fromkeys(images.not_looked())
        if lookalikes:
            images_ = _Seen()
            for leak in images_.shared(held):
                leaks[leak._replace(text=of_fold + leak.text)] = None
            unread |= dict.fromkeys(images_.not_looked())
    return Leaks(list(leaks), "; ".join(unread))


def note_leaks(task: Task, leaks: Leaks, where: Path) -> None:
    """Warns of what parts share.

    Raises:
        UserError: the task refuses it (`leaks: refuse`), under a protocol that is ours.
    """
    texts = [leak.text for leak in leaks.found]
    if texts and task.leaks == "refuse" and task.protocol == "fixed":
        raise UserError(
            f"task {task.name!r}: {'; '.join(texts)}. Mend the split; or add task.leaks=warn to go on, or "
            "task.protocol=published for what its authors did"
        )
    for text in texts:
        log.warning("%s: task %s: %s", where, task.name, text)


def _task_parts(task: Task) -> dict[str, list[Case]]:
    """The cases of each part that there is."""
    cases_by_part = {}
    for part in PARTS:
        try:
            cases_by_part[part] = task.cases(part)
        except UserError:  # a dataset to test on need not hold cases to fit on, or be complete
            continue
    return cases_by_part


def _case_identities(cases: Iterable[Case]) -> frozenset[tuple[str, Files]]:
    return frozenset((case.id, case.files[:1]) for case in cases)


def _shared_patients(parts: Mapping[str, Sequence[Case]]) -> Iterator[Leak]:
    """Patients and cases shared by two parts, or their identity."""
    cases = {part: _case_identities(held) for part, held in parts.items()}
    patients = {part: {case.patient for case in held if case.patient is not None} for part, held in parts.items()}
    for first, second in itertools.combinations(parts, 2):
        both = cases[first] & cases[second]
        if both and both == cases[first] == cases[second]:
            yield Leak("same cases", f"{first} and {second} are the same {len(both):,} cases")
        elif names := sorted(patients[first] & patients[second]):
            yield Leak("patients", f"{first} and {second} share {len(names):,} patients: {shortened(names)}")
        elif both:
            names = sorted(name for name, _ in both)
            yield Leak("cases", f"{first} and {second} share {len(both):,} cases: {shortened(names)}")


class _Seen:
    """Compares images by what they show."""

    def __init__(self) -> None:
        self._unseen = 0

    def shared(self, parts: Mapping[str, Sequence[Case]]) -> Iterator[Leak]:
        """Similar images of two parts whose files differ."""
        from medimg_eval.metrics.privacy import joined_looks, lookalikes_between

        held = {part: list(self._looks(cases)) for part, cases in parts.items()}
        for first_part, second_part in itertools.combinations([part for part in held if held[part]], 2):
            pairs: dict[str, float] = {}
            (mine, theirs) = (joined_looks([looks for _, _, looks in held[part]]) for part in (first_part, second_part))
            for own_index, right, similarity in lookalikes_between(mine, theirs):
                (first, files, _), (second, other_files, _) = held[first_part][own_index], held[second_part][right]
                if files != other_files and not _equal_files(files, other_files):
                    pairs[f"{first} ~ {second}"] = max(similarity, pairs.get(f"{first} ~ {second}", 0))
            if pairs:
                named = [
                    f"{pair} ({similarity:.2f})"
                    for pair, similarity in sorted(pairs.items(), key=lambda pair: -pair[1])
                ]
                count = f"{len(pairs):,} pairs of images that look alike"
                yield Leak("lookalikes", f"{first_part} and {second_part} share {count}: {shortened(named)}")

    def not_looked(self) -> Iterator[str]:
        """Notes on what was not compared."""
        if self._unseen:
            yield f"{self._unseen:,} images could not be read, or are too large, to be compared by what they show"

    def _looks(self, cases: Sequence[Case]) -> Iterator[tuple[str, Files, Looks]]:
        from medimg_eval.metrics.privacy import looks_of

        for case in cases:
            for image in case.images:
                array = _read_pixels(image)
                if array is None:
                    self._unseen += 1
                else:
                    yield case.id, tuple(image.files), looks_of(array.mean(-1) if array.ndim == 4 else array)


def _read_pixels(image: Reference[Image]) -> Array | None:
    """Pixels by channel; None where unreadable or too many."""
    try:
        return image.read().array if math.prod(image.geometry().shape) <= LARGEST else None
    except (CaseError, OSError):
        return None


def _equal_files(files: Files, others: Files) -> bool:
    files, others = _files_below(files), _files_below(others)
    return _file_sizes(files) == _file_sizes(others) and [*map(file_digest, files)] == [*map(file_digest, others)]


def _files_below(paths: Files) -> Files:
    """Files, with visible ones below folders such as DICOM series."""
    return tuple(
        file for path in paths for file in (sorted(path / name for name, _ in walk(path)) if path.is_dir() else [path])
    )


def _file_sizes(files: Files) -> tuple[int, ...]:
    return tuple(path.stat().st_size for path in files)


class _Images:
    """Comparison of images by file size, then content, within time."""

    def __init__(self, until: float) -> None:
        self._until = until
        self._digests: dict[Files, tuple[str, ...]] = {}
        self._inside: set[Path] = set()
        self._late = 0

    def shared(self, parts: Mapping[str, Sequence[Case]]) -> Iterator[Leak]:
        """Images in both parts, beside cases that these share."""
        several = self._several(itertools.chain(*parts.values()))
        self._inside.update(itertools.chain(*several))
        held = {part: self._by_files(cases, several) for part, cases in parts.items()}
        sizes = {part: self._by_size(files) for part, files in held.items()}
        for first_, second_ in itertools.combinations(parts, 2):
            pairs = []
            for size in sizes[first_].keys() & sizes[second_].keys():
                contents: dict[tuple[str, ...], str] = {}
                for files in sizes[first_][size]:
                    contents.setdefault(self._content(files), held[first_][files])
                for files in sizes[second_][size]:
                    first, second = contents.get(self._content(files), ""), held[second_][files]
                    if first and (first != second or files not in held[first_]):
                        pairs.append(f"{first} = {second}")
            if pairs:
                yield Leak(
                    "images", f"{first_} and {second_} share {len(pairs):,} equal images: {shortened(sorted(pairs))}"
                )

    def not_looked(self) -> Iterator[str]:
        """Notes on what was not compared."""
        if self._late:
            yield f"{self._late:,} images were not compared in the time there was; python -m medimg_eval check does"
        if self._inside:
            yield f"images within {len(self._inside):,} files that hold several were not compared"

    def _several(self, cases: Iterable[Case]) -> set[Files]:
        """Files holding several images: tables, archives, regions, frames."""
        first: dict[Files, str] = {}
        images = set()
        for case in cases:
            for image in case.images:
                files = tuple(image.files)
                part = repr((getattr(image, "region", None), getattr(image, "options", None)))
                if files and (files[0].suffix.lower() in HOLDERS or first.setdefault(files, part) != part):
                    images.add(files)
        return images

    def _by_files(self, cases: Sequence[Case], several: set[Files]) -> dict[Files, str]:
        """The files of each image -> the first case that shows it."""
        case_of: dict[Files, str] = {}
        for case in cases:
            for image in case.images:
                if (files := tuple(image.files)) and files not in several:
                    case_of.setdefault(files, case.id)
        return case_of

    def _by_size(self, images: Mapping[Files, str]) -> dict[tuple[int, ...], list[Files]]:
        by_size: dict[tuple[int, ...], list[Files]] = defaultdict(list)
        for number, files in enumerate(images):
            if time.monotonic() > self._until:
                self._late += len(images) - number
                break
            try:
                by_size[_file_sizes(_files_below(files))].append(files)
            except (CaseError, OSError):  # a missing file, or a folder that cannot be opened, fails as a case
                continue
        return by_size

    def _content(self, files: Files) -> tuple[str, ...]:
        """File digests; out of time, the image's identity."""
        if files not in self._digests:
            if time.monotonic() > self._until:
                self._late += 1
                return tuple(map(str, files))
            self._digests[files] = tuple(map(file_digest, _files_below(files)))
        return self._digests[files]
