"""Tables of reports, of reports beside what was written in their place, and R2Gen's and LLaVA's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from medimg_eval.case import Case, Geometry
from medimg_eval.data.layouts.table import Table
from medimg_eval.data.records import Entry, Row, Target
from medimg_eval.data.tables import read_table
from medimg_eval.data.targets import ReportText
from medimg_eval.errors import CaseError, SplitError, UsageError, UserError, nearest
from medimg_eval.question import Key, Question
from medimg_eval.tasks.base import Layout

COLUMNS = ("id", "reference", "prediction")
OPTIONAL = ("subject", "study", "view", "set")

MISSING = frozenset(("nan", "<na>"))
"""What tables write where there is no text, in lower case; no report says only that."""


@dataclass(frozen=True)
class Stated:
    """Reference of a table beside predictions; equal references agree.

    `content` is the reference, or several; `wrong` says what is wrong with the row. `files` are none, for the table
    holds more than the reference.
    """

    content: str | tuple[str, ...]
    wrong: str = ""
    files: tuple[Path, ...] = ()

    def read(self) -> Key:
        """Returns it; raises CaseError saying what is wrong with the row."""
        if self.wrong:
            raise CaseError(self.wrong)
        return Key(self.content)

    def geometry(self) -> Geometry:
        """Raises CaseError: a report in a table has no grid."""
        raise CaseError("a report in a table belongs to no image, so it has no grid")


@dataclass(kw_only=True)
class ReportTable(Layout):
    """Table of reports: id, reference, prediction, optional subject, study, view, set.

    A row that is not understood, without a reference, or of an id that an earlier row has with other texts, is a case
    that fails and is not judged; the others are. A blank prediction is an empty text. Intervals resample subjects,
    else studies, else reports. A row that stands twice counts once.

    Args:
        root: the file: CSV, TSV, JSON, JSON lines or Parquet. In JSON a reference may be a list of several.
        columns: what the columns are called: `id`, `reference`, `prediction`, `subject`, `study`, `view`, `set`. Of
            those that are not named, `subject`, `study`, `view` and `set` are used if the table has them.
        attributes: further columns to divide tables by.
        separator: between the fields of a text table.

    Raises:
        UsageError: there is no such column.
        UserError: the file cannot be read at all.
    """

    root: str
    columns: Mapping[str, str] = field(default_factory=dict)
    attributes: Sequence[str] = ()
    separator: str = ""

    def __post_init__(self) -> None:
        """Refuses columns that there are not."""
        UsageError.refuse_invalid("columns: role", (*COLUMNS, *OPTIONAL), *self.columns)

    def cases(self, split: str) -> Sequence[Case]:
        """The reports in the order of their ids; there is one split, `test`."""
        if split != "test":
            raise SplitError(f"{self.root}: a table of reports has one split, test, not {split!r}")
        return [case for case, _ in self._read]

    @property
    def predictions(self) -> dict[str, str]:
        """Case id -> the text that was written."""
        return {case.id: text for case, text in self._read}

    @cached_property
    def _read(self) -> list[tuple[Case, str]]:
        path = Path(self.root).expanduser()
        strays: list[UserError] = []
        rows = read_table(path, separator=self.separator, strays=strays)
        if not rows and not strays:
            raise UserError(f"{path}: holds no report")
        named = self._columns(rows, path)
        cases: dict[str, tuple[Case, str]] = {}
        texts: dict[str, tuple[str, str]] = {}
        for row in rows:
            case, text = self._case(row, named)
            reference = (repr(row.values.get(named["reference"])), text)
            if texts.get(case.id) == reference:
                continue
            if case.id in cases:
                message = (
                    f"{path}, {row.place}: id {case.id!r} stands on an earlier row with other texts; "
                    "give every report an id of its own"
                )
                case = replace(case, id=f"{case.id} ({row.place})", target=Stated("", message))
            cases[case.id] = case, text
            texts[case.id] = reference
        for stray in strays:
            location = str(stray).removeprefix(f"{path}, ").partition(":")[0]
            cases[location] = Case(id=location, images=(), target=Stated("", str(stray))), ""
        # In the order of ids, so that tables of the same reports in another order are the same data.
        return [cases[name] for name in sorted(cases)]

    def _columns(self, rows: Sequence[Row], path: Path) -> dict[str, str]:
        """Names of the columns that there are."""
        there = list(dict.fromkeys(name for row in rows for name in row.values)) if rows else list(COLUMNS)
        named = {}
        for name in (*COLUMNS, *OPTIONAL):
            called = self.columns.get(name, name)
            if called in there:
                named[name] = called
            elif name in COLUMNS or name in self.columns:
                raise UsageError(
                    f"{path}: has no column {called!r}{nearest(called, there)}; name that of the {name} with "
                    f"columns.{name}=COLUMN"
                )
        UsageError.refuse_unknown(f"{path}: has no column", there, *self.attributes, then=" to divide by")
        return named

    def _case(self, row: Row, named: Mapping[str, str]) -> tuple[Case, str]:
        # In JSON a record may lack what others have.
        row = replace(row, values={**dict.fromkeys((*named.values(), *self.attributes), ""), **row.values})
        name = row.text(named["id"])
        attributes = {key: row.text(named[key]) for key in ("view", "set") if key in named}
        attributes |= {key: row.text(key) for key in self.attributes}
        cluster = next((row.text(named[key]) for key in ("subject", "study") if key in named), "")
        written = ""
        try:
            if not name:
                raise row.error("the id is empty; give every report one")
            target = Stated(self._reference(row, named["reference"]))
            written = _report_text(row, named["prediction"], row.value(named["prediction"]))
        except UserError as error:
            target = Stated("", str(error))
        case = Case(
            id=name or row.place,
            images=(),
            target=target,
            patient=cluster or None,
            attributes=attributes,
            question=Question("", "report"),
        )
        return case, written

    def _reference(self, row: Row, column: str) -> str | tuple[str, ...]:
        value = row.value(column)
        several = isinstance(value, list)
        texts = tuple(text for item in (value if several else [value]) if (text := _report_text(row, column, item)))
        if not texts:
            raise row.error(f"the reference is empty; leave the row out, or fill column {column!r}")
        return texts if several else texts[0]


def _report_text(row: Row, column: str, value: Any) -> str:
    """Report text of a cell, stripped; "" for missing ones."""
    if isinstance(value, list | dict):
        raise row.error(f"column {column!r} holds {'a list' if isinstance(value, list) else 'an object'}, not a text")
    text = "" if value is None else str(value).strip()
    return "" if text.lower() in MISSING else text


@dataclass(kw_only=True)
class R2Gen(Table):
    """R2Gen's `annotation.json`: an object of lists of {id, image_path: [...], report, split}.

    `views` says how many first images are shown, such as 1 for MIMIC-CXR; all when 0. Others are as of `Table`.
    """

    table: str | Mapping[str, str] = "annotation.json"
    image: str | Sequence[str] = "images/{image_path}"
    id: str = "id"
    split: str = "split"
    views: int = 0

    def entries(self, root: Path) -> list[Entry]:
        """The studies in the file's order."""
        entries = super().entries(root)
        return [replace(entry, images=entry.images[: self.views]) for entry in entries] if self.views else entries

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The report."""
        return ReportText("report")


@dataclass(kw_only=True)
class Llava(Table):
    """LLaVA's conversations as JSON lists.

    Each record is {id, image, conversations: [{from: human, value}, {from: gpt, value}]}.

    Each question is a case, with the question (without its `<image>`) among the attributes and the answer as the truth.
    Of an item of several questions, the cases are called `id-1`, `id-2`, ... Arguments are those of `Table`.
    """

    image: str | Sequence[str] = "images/{image}"
    id: str = "id"

    def rows(self, root: Path) -> list[tuple[Row, str | None]]:
        """One row per question, with `question` and `answer`."""
        return [(turn, split) for row, split in super().rows(root) for turn in _chat_rows(row, self.id)]

    def _entry(self, root: Path, row: Row, split: str | None) -> Entry:
        return replace(super()._entry(root, row, split), id=row.text("question_id"))

    def truth(self, root: Path, entries: Sequence[Entry]) -> Target:
        """The answer."""
        return ReportText("answer")

    def __post_init__(self) -> None:
        """Keeps the question with the case."""
        self.attributes = tuple(dict.fromkeys([*self.attributes, "question"]))


def _chat_rows(row: Row, column: str) -> list[Row]:
    turns = row.value("conversations")
    if not isinstance(turns, list) or not turns or len(turns) % 2:
        raise row.error("'conversations' is no list of questions and answers in turn")
    rows = []
    for index in range(0, len(turns), 2):
        human, model = turns[index : index + 2]
        for turn, speaker in ((human, "human"), (model, "gpt")):
            if not isinstance(turn, dict) or turn.get("from") != speaker or not isinstance(turn.get("value"), str):
                raise row.error(f"'conversations' holds {turn!r:.60}, expected a text 'value' from {speaker!r}")
        question = human["value"].replace("<image>", "").strip()
        number = f"-{index // 2 + 1}" if len(turns) > 2 else ""
        fields = {"question": question, "answer": model["value"], "question_id": f"{row.fill(column)}{number}"}
        rows.append(Row(row.path, row.place, {**row.values, **fields}))
    return rows
