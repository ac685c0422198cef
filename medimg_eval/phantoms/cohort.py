"""The made-up patients, and the tables that say what is true of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

PATTERN = (("test", 2), ("fit", 1), ("validate", 1), ("fit", 2), ("test", 1), ("fit", 1))
"""Split and number of cases of one patient after another, over and over: of 8 cases 4 to fit on, 3 to test."""

SITES, SCANNERS, AGES = ("north", "south"), ("A", "B", "C"), ("under 40", "40 to 64", "65 and over")


@dataclass(frozen=True)
class Member:
    """One case of the cohort.

    Attributes:
        case: its id, such as `ct-003`.
        index: of the case, from 0 on.
        patient: whose it is.
        number: of the patient, from 0 on.
        split: `fit`, `validate` or `test`; all cases of a patient lie in one.
        seed: of the whole cohort.
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
    """The first `cases` cases; those of a smaller cohort are the first ones of a larger one."""
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

    Attributes:
        options: what can be chosen from, the right answer among it; empty for an open question.
        frame: index in the clip, where the question is about one frame.
    """

    question: str
    answer: str
    options: tuple[str, ...] = ()
    frame: int | None = None


@dataclass
class Record:
    """What is true of one case, by construction.

    Attributes:
        files: what the case consists of -> path below the kind's folder.
        findings: name -> present or not.
        boxes: name, frame (None without), corners as `shapes.box` gives them.
        measurements: name, value, unit.
        questions: with their answers.
        report: of a radiologist, where there is one.
        texts: further ones, by their column in cases.csv.
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
        [m.case, m.patient, m.split, *m.attributes.values(), *(r.files[f] for f in files), *said.values()]
        for (m, r), said in zip(both, texts, strict=True)
    )
    _table(folder / "cases.csv", ["case", "patient", "split", *members[0].attributes, *files, *texts[0]], cases)
    names = list(records[0].findings)
    if names:
        rows = ([m.case, *(int(r.findings[name]) for name in names)] for m, r in both)
        _table(folder / "findings.csv", ["case", *names], rows)
    corners = [f"{end}_{axis}" for end in ("first", "last") for axis in range(3)]
    boxes = [
        [m.case, name, "" if frame is None else frame, *_three(found)]
        for m, r in both
        for name, frame, found in r.boxes
    ]
    if boxes:
        _table(folder / "boxes.csv", ["case", "name", "frame", *corners], boxes)
    rows = ([m.case, name, f"{value:.6g}", unit] for m, r in both for name, value, unit in r.measurements)
    _table(folder / "measurements.csv", ["case", "name", "value", "unit"], rows)
    lines = [
        json.dumps({"case": m.case, "frame": q.frame, "question": q.question, "answer": q.answer, "options": q.options})
        for m, r in both
        for q in r.questions
    ]
    (folder / "qa.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _three(corners: tuple[int, ...]) -> list[int | str]:
    """Corners of two axes leave the columns of the third empty."""
    half = len(corners) // 2
    padding: list[int | str] = [""] * (3 - half)
    return [*corners[:half], *padding, *corners[half:], *padding]


def _table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
