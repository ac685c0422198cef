"""The made-up patients, the tables that say what is true of them, their folder, and the cases of a task in it."""

from __future__ import annotations

import csv
import importlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from medimg_eval.case import Case, Image, Mask, Reference
from medimg_eval.data.layouts.films import FramePicture
from medimg_eval.errors import UsageError, UserError
from medimg_eval.imaging import ImageFile, MaskFile
from medimg_eval.system import user_cache

PATTERN = (("test", 2), ("fit", 1), ("validate", 1), ("fit", 2), ("test", 1), ("fit", 1))
"""Split and number of cases of one patient after another, over and over: of 8 cases 4 to fit on, 3 to test."""

SITES, SCANNERS, AGES = ("north", "south"), ("A", "B", "C"), ("under 40", "40 to 64", "65 and over")


@dataclass(frozen=True)
class Member:
    """One case of the cohort, with an id such as `ct-003`.

    `index` counts cases, `number` patients, each from 0 on; the split is `fit`, `validate` or `test`, and all cases of
    a patient lie in one.
    """

    case: str
    index: int
    patient: str
    number: int
    split: str
    seed: int

    @property
    def healthy(self) -> bool:
        """Whether there is nothing to find in this patient: every fifth."""
        return self.number % 5 == 4

    @property
    def own(self) -> np.random.Generator:
        """Numbers that belong to the case: pose, noise, lesions."""
        return np.random.default_rng([self.seed, self.index])

    @property
    def words(self) -> np.random.Generator:
        """Numbers that choose how things are said of the case."""
        return np.random.default_rng([self.seed, 3_000_000 + self.index])

    @property
    def body(self) -> np.random.Generator:
        """Numbers that belong to the patient: anatomy, sex, site."""
        return np.random.default_rng([self.seed, 1_000_000 + self.number])

    @property
    def attributes(self) -> dict[str, str]:
        """Made-up subgroups."""
        rng = np.random.default_rng([self.seed, 2_000_000 + self.number])
        return {
            "sex": "F" if rng.random() < 0.5 else "M",
            "age_group": AGES[rng.integers(3)],
            "site": SITES[rng.integers(2)],
            "scanner": SCANNERS[rng.integers(3)],
        }


def cohort(kind: str, cases: int, seed: int) -> list[Member]:
    """First `cases` cases; larger cohorts extend smaller ones."""
    members: list[Member] = []
    number = 0
    while len(members) < cases:
        split, count = PATTERN[number % len(PATTERN)]
        for _ in range(min(count, cases - len(members))):
            index = len(members)
            members.append(Member(f"{kind}-{index:03d}", index, f"{kind}-p{number:03d}", number, split, seed))
        number += 1
    return members


@dataclass(frozen=True)
class Question:
    """A question about a case with one right answer.

    Without `options` it is an open one; `frame` is an index in the clip, where it is about one frame.
    """

    question: str
    answer: str
    options: tuple[str, ...] = ()
    frame: int | None = None


@dataclass
class Record:
    """Facts of one case, true by construction.

    Files are paths below the kind's folder by what they are; boxes are name, frame (None without), and corners as
    `shapes.box` gives them; measurements are name, value, unit; texts go beside the report, by their column in
    cases.csv.
    """

    files: dict[str, str] = field(default_factory=dict)
    findings: dict[str, bool] = field(default_factory=dict)
    boxes: list[tuple[str, int | None, tuple[int, ...]]] = field(default_factory=list)
    measurements: list[tuple[str, float, str]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    report: str = ""
    texts: dict[str, str] = field(default_factory=dict)


def yes_or_no(question: str, answer: bool) -> Question:
    """A question that is answered by yes or no."""
    return Question(question, "yes" if answer else "no", ("yes", "no"))


def write_tables(folder: Path, members: Sequence[Member], records: Sequence[Record]) -> None:
    """Writes cases.csv, and findings.csv, boxes.csv, measurements.csv, reports.csv and qa.jsonl where there are any."""
    both = list(zip(members, records, strict=True))
    files = list(records[0].files)
    texts = [{"report": r.report} | r.texts if r.report else r.texts for r in records]
    cases: Iterable[Sequence[object]] = (
        [m.case, m.patient, m.split, *m.attributes.values(), *(r.files[f] for f in files), *text.values()]
        for (m, r), text in zip(both, texts, strict=True)
    )
    write_rows(folder / "cases.csv", ["case", "patient", "split", *members[0].attributes, *files, *texts[0]], cases)
    names = list(records[0].findings)
    if names:
        rows = ([m.case, *(int(r.findings[name]) for name in names)] for m, r in both)
        write_rows(folder / "findings.csv", ["case", *names], rows)
    corners = [f"{end}_{axis}" for end in ("first", "last") for axis in range(3)]
    boxes = [
        [m.case, name, "" if frame is None else frame, *_three_columns(corners)]
        for m, r in both
        for name, frame, corners in r.boxes
    ]
    if boxes:
        write_rows(folder / "boxes.csv", ["case", "name", "frame", *corners], boxes)
    rows = ([m.case, name, f"{value:.6g}", unit] for m, r in both for name, value, unit in r.measurements)
    write_rows(folder / "measurements.csv", ["case", "name", "value", "unit"], rows)
    lines = [
        json.dumps({"case": m.case, "frame": q.frame, "question": q.question, "answer": q.answer, "options": q.options})
        for m, r in both
        for q in r.questions
    ]
    (folder / "qa.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _three_columns(corners: tuple[int, ...]) -> list[int | str]:
    """Corners of two axes leave the columns of the third empty."""
    half = len(corners) // 2
    padding: list[int | str] = [""] * (3 - half)
    return [*corners[:half], *padding, *corners[half:], *padding]


def read_rows(path: Path) -> list[dict[str, str]]:
    """Reads a CSV table."""
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes a CSV table."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


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

REPORTS = "chest_reports"
"""The kind that is not segmented but has reports; see the module of that name."""

STAMP = "phantom.json"
"""The file that says what a folder was made with."""


def write_phantoms(kind: str, folder: Path, *, cases: int, seed: int) -> bool:
    """Writes the phantoms of one kind; False when all of them were there.

    The same seed gives the same files, byte for byte; the first cases do not depend on how many follow.

    Raises:
        UsageError: there is no such kind, no case is asked for, or the seed is negative.
        UserError: the folder holds something else, or cannot be written.
    """
    if kind != REPORTS:
        UsageError.refuse_invalid("phantom", KINDS, kind)
    if cases < 1 or seed < 0:
        raise UsageError(f"phantoms: expected at least one case and a seed from 0 on, got cases={cases}, seed={seed}")
    stamp = {"kind": kind, "version": VERSION, "cases": cases, "seed": seed}
    return write_once(folder, stamp, lambda partial: _fill_folder(kind, partial, stamp))


def write_once(folder: Path, stamp: Mapping[str, Any], fill: Callable[[Path], None]) -> bool:
    """Writes phantoms by `fill`; False if of the same stamp.

    It appears whole or not at all, whoever else writes it. The stamp says what they are made with, as JSON holds it.
    Raises UserError where the folder holds something else, or cannot be written.
    """
    from filelock import FileLock

    if _is_there(folder, stamp):
        return False
    partial = folder.with_name(f".{folder.name}.partial")
    with UserError.about(folder, "cannot be written", OSError, mend="name a folder on a disk with room"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if _is_there(folder, stamp):  # another process wrote it while this one waited
                return False
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            partial.mkdir()
            fill(partial)
            (partial / STAMP).write_text(json.dumps(stamp) + "\n", encoding="utf-8")
            partial.replace(folder)
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
        content = json.loads((folder / STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: holds other files; name an empty folder for the phantoms") from error
    if content == stamp:
        return True
    words = ", ".join(f"{key}={value}" for key, value in content.items())
    wanted = ", ".join(f"{key}={value}" for key, value in stamp.items())
    raise UserError(f"{folder}: holds phantoms of {words}, not of {wanted}; name another folder, or delete this one")


def _fill_folder(kind: str, folder: Path, stamp: dict[str, Any]) -> None:
    module = importlib.import_module(f"medimg_eval.phantoms.{kind}")
    members = cohort(kind, stamp["cases"], stamp["seed"])
    records = [module.write_case(folder, member) for member in members]
    write_tables(folder, members, records)
    if hasattr(module, "write_variants"):
        module.write_variants(folder, members[0])
    text = (
        _readme_text(kind, module.TEXT, stamp) if kind in KINDS else f"{module.README.format(**stamp)}{module.TEXT}.\n"
    )
    (folder / "README.txt").write_text(text, encoding="utf-8")


def _readme_text(kind: str, text: str, stamp: dict[str, Any]) -> str:
    return f"""These are phantoms: drawn by a program, of no patient. {KINDS[kind][0].upper()}{KINDS[kind][1:]}.
Made by: python -m medimg_eval phantom kinds=[{kind}] cases={stamp["cases"]} seed={stamp["seed"]} (version {VERSION})
Numbers measured on them show that a tool works, not how well it does on patients.

{text}.

cases.csv: case, patient, split (no patient lies in two), made-up attributes, files.
findings.csv: 1 present, 0 absent. measurements.csv: case, name, value, unit. qa.jsonl: questions with one right answer.
boxes.csv: first and last voxel or pixel inside, along the image's axes (of a picture: row, column); frame of a clip.
"""


SPLITS = ("fit", "validate", "test")

SLIDE_UM = 2.0
"""Micrometres per pixel that slides are read at, those of their masks."""

ATTRIBUTES = ("sex", "age_group", "site", "scanner")

Row = Mapping[str, str]


@dataclass
class Phantom:
    """Phantoms of one kind: `ct`, `mr`, `xray`, `endoscopy` or `pathology`.

    Args:
        root: folder that holds the kind's own folder, as `python -m medimg_eval phantom out=ROOT` makes it;
            None keeps them in the cache (`MEDIMG_EVAL_CACHE`, or ~/.cache/medimg_eval). Written on first use.
        count: how many are made, over all splits; of `endoscopy`, how many clips.
    """

    kind: str
    root: str | None = None
    count: int = 16
    seed: int = 0

    def cases(self, split: str) -> list[Case]:
        """Cases of `fit`, `validate` or `test`, disjoint by patient.

        Raises UserError where there is no such kind or split, or the phantoms cannot be written.
        """
        UserError.refuse_unknown("phantoms have no split", SPLITS, split)
        UserError.refuse_invalid("phantom", KINDS, self.kind)
        folder = folder_of(self.kind, self.root, self.count, self.seed)
        write_phantoms(self.kind, folder, cases=self.count, seed=self.seed)
        rows = [row for row in read_rows(folder / "cases.csv") if row["split"] == split]
        return [case for row in rows for case in _MAKERS[self.kind](folder, row)]


def cohort_folder(
    kind: str, root: str | None, count: int, seed: int, fill: Callable[[Path, Mapping[str, Any]], None]
) -> Path:
    """Folder of a phantom kind, written by `fill` where missing.

    Raises:
        UsageError: count is below 1, or the seed below 0.
        UserError: the folder holds something else, or cannot be written.
    """
    if count < 1 or seed < 0:
        raise UsageError(f"phantoms: expected count from 1 and seed from 0 on, got {count} and {seed}")
    folder = folder_of(kind, root, count, seed)
    stamp = {"kind": kind, "version": VERSION, "cases": count, "seed": seed}
    write_once(folder, stamp, lambda partial: fill(partial, stamp))
    return folder


def folder_of(kind: str, root: str | None, count: int, seed: int) -> Path:
    """Folder of a phantom kind: below the root, or cache."""
    if root is not None:
        return Path(root).expanduser() / kind
    return user_cache() / "phantoms" / f"{kind}-v{VERSION}-{count}-{seed}"


def _make_case(row: Row, image: Reference[Image], target: Reference[Mask], case: str = "") -> Case:
    attributes = {name: row[name] for name in ATTRIBUTES}
    return Case(case or row["case"], (image,), target, row["patient"], attributes)


def _image_cases(modality: str, folder: Path, row: Row, **options: Any) -> Iterator[Case]:
    image = ImageFile(folder / row["image"], modality=modality, options=options)
    yield _make_case(row, image, MaskFile(folder / row["mask"]))


def _frame_cases(folder: Path, row: Row) -> Iterator[Case]:
    """The labelled frames that show a polyp."""
    from medimg_eval.phantoms.endoscopy import mask_file

    rows = read_rows(folder / row["frames"])
    labelled = [int(r["frame"]) for r in rows if (r["labelled"], r["polyp"]) == ("1", "1")]
    for index in labelled:
        image = FramePicture(folder / row["image"], index, modality="ES")
        target = MaskFile(folder / mask_file(row["case"], index))
        yield _make_case(row, image, target, f"{row['case']}-{index:03d}")


_MAKERS: Mapping[str, Callable[[Path, Row], Iterator[Case]]] = {
    "ct": partial(_image_cases, "CT"),
    "mr": partial(_image_cases, "MR"),
    "xray": partial(_image_cases, "DX"),
    "endoscopy": _frame_cases,
    "pathology": partial(_image_cases, "SM", um_per_px=SLIDE_UM),
}
