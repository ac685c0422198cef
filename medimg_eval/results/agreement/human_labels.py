"""What a judge said about the replies of a run, beside what people say: read, and put side by side."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from medimg_eval.errors import UsageError, UserError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

_WORDS = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


class _Judged(NamedTuple):
    """One verdict."""

    question: str
    judge: str
    case: str
    value: Any
    """None where the judge's reply could not be understood."""


@dataclass(frozen=True, eq=False)
class Verdicts:
    """What one judge said to one question, beside the labels of people, for the cases that have both.

    Attributes:
        question: Name of the judge's question.
        judge: Its id.
        case: (verdict,): which case each is of.
        human: (verdict,): what people say; float, or str where labels are names.
        said: (verdict,): what the judge said, of the same type; anything where it was not understood.
        understood: (verdict,): False where the judge's reply could not be understood.
        unlabelled: Verdicts without a label, left out.
        unjudged: Labels without a verdict, left out.
    """

    question: str
    judge: str
    case: npt.NDArray[np.str_]
    human: npt.NDArray[Any]
    said: npt.NDArray[Any]
    understood: npt.NDArray[np.bool_]
    unlabelled: int = 0
    unjudged: int = 0

    @property
    def numeric(self) -> bool:
        """Whether both are numbers."""
        return self.human.dtype.kind == "f"


def read_verdicts(folder: Path, labels: Path, *, column: str = "human", judge: str | None = None) -> list[Verdicts]:
    """Reads what judges said of a run, and the labels of people for the same cases.

    Args:
        folder: The run's, with `judgements-*.jsonl`; of several verdicts of one judge on one case the last counts.
        labels: A CSV file with the columns `case`, `question` (needed where judges were asked several) and the label.
            A label is a number, yes or no, true or false, or a name; empty ones are left out. Questions whose verdicts
            are more than that, such as lists of findings, are left out too.
        column: The column that holds the labels.
        judge: The judge's id; None takes all.

    Returns:
        One entry per question and judge that have a case in common with the labels, in the order of the run.

    Raises:
        UsageError: If there is no such judge or column, or it is not clear which question a label answers.
        UserError: If a file cannot be read, or the two have no case in common.
    """
    judged = _alone(list(_judgements(folder)), folder)
    judges = dict.fromkeys(one.judge for one in judged)
    if judge is not None and judge not in judges:
        raise UsageError(f"{folder} has no verdicts of a judge {judge!r}{nearest(judge, judges)}")
    judged = [one for one in judged if judge in (None, one.judge)]
    questions = dict.fromkeys(one.question for one in judged)
    human = _labels(labels, column, list(questions))
    found = []
    for question in questions:
        for name in judges:
            said = {one.case: one.value for one in judged if (one.question, one.judge) == (question, name)}
            given = {case: label for (about, case), label in human.items() if about == question}
            if both := sorted(said.keys() & given.keys()):
                place = f"{labels} and judge {name}"
                sides = _aligned([given[case] for case in both], [said[case] for case in both], place)
                left = len(said) - len(both), len(given) - len(both)
                found.append(Verdicts(question, name, np.array(both), *sides, *left))
    if not found:
        raise UserError(f"{labels} labels no case that {folder} has a verdict on; compare its `case` with the run's")
    return found


def _alone(judged: list[_Judged], folder: Path) -> list[_Judged]:
    """Leaves out questions whose verdicts are no numbers and no names, with what such verdicts are put together of."""
    structured = {one.question for one in judged if isinstance(one.value, dict | list)}
    found = [one for one in judged if not structured & {one.question, one.question.rpartition("/")[0]}]
    if judged and not found:
        raise UserError(
            f"{folder}: every verdict is a list or a mapping ({', '.join(sorted(structured))}), which labels cannot be "
            "compared with; ask the judge for a number or a name"
        )
    return found


def _judgements(folder: Path) -> Iterator[_Judged]:
    """Yields the last verdict of each judge on each question and case, in the order of the first."""
    found: dict[tuple[str, str, str], Any] = {}
    files = sorted(folder.glob("judgements-*.jsonl"))
    if not files:
        raise UserError(f"{folder} holds no verdicts (no judgements-*.jsonl); run or score it with a judge first")
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(keepends=True), 1):
            if not line.endswith("\n"):
                continue  # a kill left it half-written
            try:
                record = json.loads(line)
                key = str(record.get("question", "")), str(record["judge"]), str(record["case"])
                found[key] = record["value"]
            except (ValueError, KeyError, AttributeError) as error:
                raise UserError(
                    f"{file}, line {number}: expected case, judge and value as JSON, got {error!r}"
                ) from error
    for (question, judge, case), value in found.items():
        yield _Judged(question, judge, case, value)


def _labels(file: Path, column: str, questions: Sequence[str]) -> dict[tuple[str, str], str]:
    """Returns the labels by question and case."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{file}: cannot be read as CSV ({error})") from error
    columns = list(reader.fieldnames or ())
    for needed in ("case", column):
        if needed not in columns:
            raise UsageError(f"{file} has no column {needed!r}{nearest(needed, columns)}")
    if "question" not in columns and len(questions) > 1:
        raise UsageError(
            f"{file} has no column 'question', and judges were asked several: {', '.join(questions)}; add it"
        )
    found: dict[tuple[str, str], str] = {}
    for number, row in enumerate(rows, 2):
        label = (row[column] or "").strip()
        key = (row["question"] or "").strip() if "question" in columns else questions[0], (row["case"] or "").strip()
        if label and key in found:
            raise UserError(f"{file}, line {number}: a second label for case {key[1]!r}; keep one of them")
        if label:
            found[key] = label
    return found


def _aligned(
    human: Sequence[str], said: Sequence[Any], place: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Returns both as numbers, or both as names, and which of the judge's were understood."""
    understood = np.array([not (value is None or _is_nan(value)) for value in said], dtype=np.bool_)
    labels = [_number(label) for label in human]
    values = [_number(value) for value, known in zip(said, understood, strict=True) if known]
    name = next((label for label, number in zip(human, labels, strict=True) if number is None), None)
    if name is None and None not in values:
        numbers = [_number(value) if known else math.nan for value, known in zip(said, understood, strict=True)]
        return np.array(labels, dtype=np.float64), np.array(numbers, dtype=np.float64), understood
    if understood.any() and not any(isinstance(value, str) for value in said):
        raise UserError(
            f"{place}: the labels are names such as {name!r} and the verdicts numbers; write labels as numbers"
        )
    return np.array([_name(label) for label in human]), np.array([_name(value) for value in said]), understood


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _number(value: Any) -> float | None:
    if isinstance(value, bool | int | float):
        return float(value)
    text = str(value).strip().lower()
    try:
        number = _WORDS[text] if text in _WORDS else float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _name(value: Any) -> str:
    return str(value).strip().casefold()
