"""The records that other programs wrote about cases: in one table for all, or in a file per case."""

from __future__ import annotations

import csv
import difflib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from medimg_eval.arguments import grouped
from medimg_eval.errors import CaseError, UsageError, UserError, nearest, nearest_path
from medimg_eval.models.base import Model

SEPARATORS = {".csv": ",", ".tsv": "\t"}
NOTHING = ("", "nan", "none", "null")
"""What files write where there is no number."""

ENDINGS = (".nii.gz", ".nii", ".mhd", ".mha", ".nrrd", ".dcm", ".npy", ".npz", ".png", ".jpg", ".jpeg")
"""Of image files, which some programs leave on the names of cases."""


class FromFiles(Model):
    """Base of models that read stored answers, without images or torch."""

    reads_images: ClassVar[bool] = False
    uses_torch = False
    file_arguments: ClassVar[tuple[str, ...]] = ("root",)


class FromFolder(FromFiles):
    """Base of models that read a file of each case, by `pattern` below `root`."""

    root: Path
    pattern: str

    def held_cases(self) -> list[str]:
        """The cases that the folder has files of."""
        return cases_in(self.root, self.pattern)


class FromRecords(FromFiles):
    """Base of models that read the records of cases in `files`."""

    files: ResultFiles

    def held_cases(self) -> list[str]:
        """The cases that there are results of."""
        return self.files.held_cases()


def result_folder(root: str, holds: str, pattern: str = "{case}") -> Path:
    """Folder of results; UserError where missing or a pattern lacks the case."""
    folder = Path(root).expanduser()
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder{nearest_path(folder)}; set model.root to the folder of {holds}")
    if "{case}" not in pattern:
        raise UserError(f"expected {{case}} in model.pattern, got {pattern!r}")
    return folder


def named_columns(columns: Sequence[str] | Mapping[str, str] | None, what: str) -> dict[str, str]:
    """Columns by name, from a list or mapping; {} for None, UsageError for a text."""
    if isinstance(columns, str):
        raise UsageError(f"expected model.columns to be a list or {what}: column, got {columns!r}")
    named = columns.items() if isinstance(columns, Mapping) else [(name, name) for name in columns or ()]
    return {str(name): str(column) for name, column in named}


class Line(NamedTuple):
    """One record of a file.

    Attributes:
        place: the file, and where in it.
        values: column -> text, or any value of JSON.
    """

    place: str
    values: Mapping[str, Any]

    def value(self, column: str) -> Any:
        """The value of a column; raises CaseError when there is none."""
        if column not in self.values:
            raise CaseError(f"{self.place}: there is no column {column!r}{nearest(column, self.values)}")
        return self.values[column]

    def text(self, column: str) -> str:
        """Value as text, whole numbers without decimals: a label stored as 20.0 is "20" here."""
        value = self.value(column)
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()

    def number(self, column: str) -> float:
        """Value as a number, NaN where empty; CaseError for text."""
        value = self.value(column)
        if value is None or str(value).strip().lower() in NOTHING:
            return math.nan
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise CaseError(f"{self.place}: column {column!r} holds {value!r:.60}, expected a number") from None
        if math.isinf(number):
            raise CaseError(f"{self.place}: column {column!r} holds {number}, expected a finite number")
        return number


class Table(NamedTuple):
    """Text table with lazy records: there may be a million.

    Attributes:
        path: the file.
        header: its columns.
        rows: number of the line, and its fields.
    """

    path: Path
    header: list[str]
    rows: list[tuple[int, list[str]]]

    def lines(self) -> list[Line]:
        """The records."""
        return [
            Line(f"{self.path}, line {number}", dict(zip(self.header, fields, strict=True)))
            for number, fields in self.rows
        ]


class ResultFiles:
    """Records by case, of one table or a file per case.

    Args:
        root: the table (`.csv` or `.tsv`), or the folder.
        pattern: the file of a case in the folder, `.csv`, `.tsv` or `.json`, holding `{case}`.
        case: the table's column that names the case.
        needed: columns the table must have -> the setting that names them.

    Raises:
        UserError: the table or folder is missing, or the table is not understood.
        UsageError: the pattern names no file of a case.
    """

    def __init__(self, root: str, pattern: str, case: str, needed: Mapping[str, str]) -> None:
        self.root = Path(root).expanduser()
        self.pattern = pattern
        self.case = case
        self._cases: dict[str, Table] | None = None
        self._bare: dict[str, str] = {}
        if self.root.is_file():
            self._cases = self._by_case(read_table(self.root), {case: "case", **needed})
            self._bare = {bare: name for name in self._cases if (bare := _bare_name(name)) != name}
        elif not self.root.is_dir():
            raise UserError(f"{self.root}: no such file or folder; set model.root to the table or folder of results")
        elif "{case}" not in pattern or Path(pattern).suffix.lower() not in (*SEPARATORS, ".json"):
            raise UsageError(f"expected model.pattern to hold {{case}} and end in .csv, .tsv or .json, got {pattern!r}")

    def lines(self, case_id: str) -> tuple[Path, list[Line] | None]:
        """Returns a case's file and records; None without a row.

        Raises:
            CaseError: a case has no file of its own, or it is not understood, or the table has the case's name with
                something about it, such as the ending of its image.
        """
        if self._cases is None:
            path = self.root / self.pattern.replace("{case}", case_id)
            if not path.is_file():
                names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
                raise CaseError(f"{path}: no result for case {case_id!r}{_close_name(path.name, names)}")
            return path, _read_json(path) if path.suffix.lower() == ".json" else read_table(path).lines()
        if case_id in self._cases:
            return self.root, self._cases[case_id].lines()
        if case_id in self._bare:
            raise CaseError(
                f"{self.root}: column {self.case!r} calls case {case_id!r} {self._bare[case_id]!r}; "
                "write the case's own name there"
            )
        return self.root, None

    def held_cases(self) -> list[str]:
        """The cases of the table, or of the folder's files."""
        return cases_in(self.root, self.pattern) if self._cases is None else list(self._cases)

    def like(self, case_id: str) -> str:
        """Names the table's case that is most like one it lacks."""
        return _close_name(case_id, self._cases or ())

    def _by_case(self, table: Table, needed: Mapping[str, str]) -> dict[str, Table]:
        missing = next((column for column in needed if column not in table.header), None)
        if missing is not None:
            raise UserError(
                f"{self.root}: there is no column {missing!r}{nearest(missing, table.header)}; "
                f"set model.{needed[missing]}"
            )
        column = table.header.index(self.case)
        by_case = grouped((fields[column].strip(), (number, fields)) for number, fields in table.rows)
        return {case: table._replace(rows=rows) for case, rows in by_case.items()}


def cases_in(root: Path, pattern: str) -> list[str]:
    """Cases with files in a folder, by pattern; none where names are ambiguous."""
    if "*" in pattern or all(part in Path(pattern).name for part in ("{case}", "{class}")):
        return []
    words = re.escape(pattern.removesuffix(".gz")).replace(r"\{class\}", "[^/]+")
    words = words.replace(r"\{case\}", "(?P<case>.+)", 1).replace(r"\{case\}", "(?P=case)")
    paths = (path.relative_to(root).as_posix() for path in root.rglob("*") if not path.name.startswith("."))
    return sorted({fit["case"] for path in paths if (fit := re.fullmatch(rf"{words}(\.gz)?", path))})


def read_table(path: Path) -> Table:
    """Reads a text table; raises UserError naming file and line."""
    separator = SEPARATORS.get(path.suffix.lower())
    if separator is None:
        raise UserError(f"{path}: expected a table .csv or .tsv, or a folder with a file per case")
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=separator, strict=True)
            held = [(reader.line_num, fields) for fields in reader if any(field.strip() for field in fields)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as a table ({error})") from error
    if not held:
        raise UserError(f"{path}: is empty, expected a line with the names of columns first")
    header = [name.strip() for name in held[0][1]]
    if len(set(header)) < len(header):
        raise UserError(f"{path}: two columns have the same name, got {', '.join(header)}")
    uneven = next(((number, len(fields)) for number, fields in held if len(fields) != len(header)), None)
    if uneven is not None:
        raise UserError(f"{path}, line {uneven[0]}: has {uneven[1]} fields, and the header {len(header)}")
    return Table(path, header, held[1:])


def _read_json(path: Path) -> list[Line]:
    """Returns objects of a JSON file: a list's, or the only one."""
    with CaseError.about(path, "cannot be read as JSON", OSError, ValueError):
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    items = content if isinstance(content, list) else [content]
    odd = next((item for item in items if not isinstance(item, dict)), None)
    if odd is not None:
        raise CaseError(f"{path}: expected a list of objects, found {odd!r:.60} in it")
    return [Line(f"{path}, item {number}", item) for number, item in enumerate(items, start=1)]


def _bare_name(name: str) -> str:
    """Case name without folders or image suffix."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return next((last[: -len(ending)] for ending in ENDINGS if last.lower().endswith(ending)), last)


def _close_name(name: str, names: Iterable[str]) -> str:
    """Returns `" (there is 'x')"` for the name that is most like another."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.8)
    return f" (there is {close[0]!r})" if close else ""
