"""Reader studies: whether readers can tell real images from generated ones, what grades they give, how far they agree.

Readings of one reader are alike, so that readers and not readings are the units of every interval over several readers.
Of one reader images are the units, and the interval of a share is exact.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.agreement import fleiss_kappa, intraclass_correlation
from medimg_eval.metrics.proportions import exact_interval, known_mean
from medimg_eval.results.statistics import Estimate
from medimg_eval.results.table import Layout, Line, Sheet, Span, p_text
from medimg_eval.trust import unguarded

if TYPE_CHECKING:
    from pathlib import Path

Floats = npt.NDArray[np.float64]
Record = dict[str, Any]


def d_prime(generated: Floats, real: Floats) -> tuple[float, float]:
    """Returns d' of generated against real images, and the bias.

    d' = z(H) - z(F) and c = -(z(H) + z(F)) / 2 with H the share of generated images called generated and F that of real
    ones, each with half an image added to either answer (the log-linear rule of Hautus, Behavior Research Methods 27,
    1995), so that perfect readers have a number. d' is 0 for chance.

    Args:
        generated: (image,): 1 where a generated image was called generated, else 0; NaN is left out.
        real: (image,): 1 where a real image was called generated, else 0.

    Returns:
        d' and c; NaN where either kind of image is missing.
    """
    from scipy.special import ndtri

    shares = []
    for calls in (generated, real):
        answered = calls[~np.isnan(calls)]
        if not answered.size:
            return math.nan, math.nan
        shares.append((answered.sum() + 0.5) / (answered.size + 1))
    hit, alarm = (float(ndtri(share)) for share in shares)
    return hit - alarm, -(hit + alarm) / 2


def over_readers(values: Floats, level: float = 0.95) -> Estimate:
    """Returns the mean over readers with Student's interval, whose unit is the reader.

    It is NaN of less than two readers, and of readers that are all alike: they say nothing of how others would differ.
    """
    from scipy.special import stdtrit

    defined = values[~np.isnan(values)]
    if not defined.size:
        return Estimate(math.nan)
    mean = float(defined.mean())
    if defined.size < 2 or np.ptp(defined) == 0:
        return Estimate(mean)
    reach = float(stdtrit(defined.size - 1, 0.5 + level / 2)) * float(defined.std(ddof=1)) / math.sqrt(defined.size)
    return Estimate(mean, mean - reach, mean + reach)


def superiority(generated: Floats, real: Floats) -> float:
    """Returns P(generated graded better than real), ties half; 0.5 is equal.

    Grades are ordered and nothing more, and so is this: the area under the ROC curve of the Mann-Whitney statistic.

    Args:
        generated: (image,): grades; NaN is left out.
        real: (image,).
    """
    first, second = generated[~np.isnan(generated)], real[~np.isnan(real)]
    if not first.size or not second.size:
        return math.nan
    apart = first[:, None] - second
    return float(((apart > 0) + 0.5 * (apart == 0)).mean())


def score_readers(readings: Readings, *, level: float = 0.95) -> dict[str, Sheet]:
    """Returns a study's tables: `turing` (detection) and optionally `grades`.

    Raises:
        UsageError: the level is no share.
        UserError: nobody said of any image what it is.
    """
    if not isinstance(level, int | float) or isinstance(level, bool) or not 0 < level < 1:
        raise UsageError(f"expected level to be between 0 and 1, got {level!r}")
    if np.isnan(readings.said).all() and not readings.grades:
        raise UserError("no reader said of any image whether it is real; fill in the column origin")
    sheets = {"turing": _turing_sheet(readings, level)}
    if readings.grades:
        sheets["grades"] = _grade_sheet(readings, level)
    return sheets


def _turing_sheet(readings: Readings, level: float) -> Sheet:
    records = [
        _detection_row(name, calls, readings.generated, level)
        for name, calls in zip(readings.readers, readings.said, strict=True)
    ]
    if len(readings.readers) > 1:
        records += [
            _mean_of(records, level),
            _detection_row("majority", _majority_calls(readings.said), readings.generated, level),
        ]
    frame = pd.DataFrame.from_records(records)
    columns: dict[str, tuple[str, Callable[[float], str]]] = {
        "accuracy": ("Accuracy", _share_text),
        "sensitivity": ("Generated found", _share_text),
        "specificity": ("Real found", _share_text),
        "d_prime": ("d'", _number_text),
        "criterion": ("c", _number_text),
    }
    lines = [
        Line(
            [record["reader"]],
            [
                [Span(f"{record['n']:,}")],
                *(_record_spans(record, name, text) for name, (_, text) in columns.items()),
                [Span(p_text(float(record["p"])))],
            ],
            opens=index == len(readings.readers),
        )
        for index, record in enumerate(records)
    ]
    kappa = fleiss_kappa(readings.said)
    notes = [
        f"Of one reader, and of the majority: exact {100 * level:g} % intervals (Clopper and Pearson) over images.",
        "p: exact binomial test against 0.5.",
        f"Chance is 0.5 where both kinds are equally many; here {100 * readings.generated.mean():.0f} % are generated.",
        f"Agreement of readers on the origin, Fleiss' kappa: {_number_text(kappa)}.",
        "d' adds half an image to either answer (Hautus); c above 0 leans towards calling images real.",
    ]
    if len(readings.readers) > 1:
        notes.insert(
            1, "Mean of readers: Student's interval and test over readers, who are the units. Ties have no majority."
        )
    missing = int(np.isnan(readings.said).sum())
    if missing:
        notes.append(f"{missing:,} of {readings.said.size:,} readings do not say what the image is, and are left out.")
    titles = ["n", *(title for title, _ in columns.values()), "p"]
    caption = "Whether readers tell real images from generated ones"
    return Sheet(Layout.of_block("Real or generated", titles, lines, notes, ["Reader"], caption), frame)


def _detection_row(name: str, calls: Floats, generated: npt.NDArray[np.bool_], level: float) -> Record:
    """One row: what a reader could tell."""
    from scipy.special import bdtr

    answered = ~np.isnan(calls)
    record: Record = {"reader": name, "n": int(answered.sum())}
    right = (calls == generated) & answered
    for what, chosen in (
        ("accuracy", answered),
        ("sensitivity", answered & generated),
        ("specificity", answered & ~generated),
    ):
        count, of = int(right[chosen].sum()), int(chosen.sum())
        low, high = exact_interval(count, of, level)
        record |= {what: count / of if of else math.nan, f"{what}_low": low, f"{what}_high": high}
    record["d_prime"], record["criterion"] = d_prime(calls[generated], calls[~generated])
    n, hits = int(answered.sum()), int(right.sum())
    tail = float(bdtr(min(hits, n - hits), n, 0.5)) if n else math.nan
    record["p"] = min(1.0, 2 * tail) if n else math.nan
    return record


def _mean_of(records: Sequence[Record], level: float) -> Record:
    """The row of all readers: means whose units are the readers."""
    from scipy.special import stdtr

    row: Record = {"reader": "mean of readers", "n": sum(record["n"] for record in records)}
    for name in ("accuracy", "sensitivity", "specificity", "d_prime", "criterion"):
        values = np.array([float(record[name]) for record in records])
        estimate = over_readers(values, level)
        ends = estimate[1:] if name in ("d_prime", "criterion") else np.clip(estimate[1:], 0, 1).tolist()
        row |= {name: estimate.value, f"{name}_low": ends[0], f"{name}_high": ends[1]}
    shares = np.array([float(record["accuracy"]) for record in records])
    shares = shares[~np.isnan(shares)]
    spread = float(shares.std(ddof=1)) / math.sqrt(shares.size) if shares.size > 1 else 0.0
    row["p"] = 2 * float(stdtr(shares.size - 1, -abs(shares.mean() - 0.5) / spread)) if spread else math.nan
    return row


def _majority_calls(said: Floats) -> Floats:
    """(item,): what most readers said; NaN where they are even, or silent."""
    answers = (~np.isnan(said)).sum(axis=0)
    share = np.divide(np.nansum(said, axis=0), answers, out=np.full(answers.shape, math.nan), where=answers > 0)
    return np.where(share == 0.5, math.nan, np.where(np.isnan(share), math.nan, (share > 0.5).astype(float)))


def _grade_sheet(readings: Readings, level: float) -> Sheet:
    records, lines = [], []
    for question, grades in readings.grades.items():
        record = _grade_row(question, grades, readings.generated, level)
        records.append(record)
        lines.append(
            Line(
                [question],
                [
                    *([Span(_summary_text(record, kind))] for kind in (REAL, GENERATED)),
                    _record_spans(record, "difference", _number_text),
                    _record_spans(record, "superiority", _share_text),
                    [Span(_number_text(float(record["icc"])))],
                    [Span(_number_text(float(record["icc_consistency"])))],
                ],
            )
        )
    titles = ("Real", "Generated", "Difference", "P(generated better)", "ICC(2,1)", "ICC(3,1)")
    notes = [
        f"Grades from 1, worst, to {readings.scale}, best: mean; median (quartiles) over all readings; n readings.",
        "Difference: generated less real. P(generated better): 0.5 means alike.",
        f"Both are means over readers with Student's {100 * level:g} % interval over them; one reader has none.",
        "ICC over images that all readers graded: (2,1) counts a reader's severity as disagreement, (3,1) does not.",
    ]
    missing = sum(int(np.isnan(grades).sum()) for grades in readings.grades.values())
    if missing:
        notes.append(f"{missing:,} grades are missing, and are left out.")
    layout = Layout.of_block("Grades", titles, lines, notes, ["Question"], "What grades readers give")
    return Sheet(layout, pd.DataFrame.from_records(records))


def _grade_row(question: str, grades: Floats, generated: npt.NDArray[np.bool_], level: float) -> Record:
    record: Record = {"question": question}
    for kind, chosen in ((REAL, ~generated), (GENERATED, generated)):
        answered = grades[:, chosen][~np.isnan(grades[:, chosen])]
        quartiles = np.quantile(answered, [0.25, 0.5, 0.75]) if answered.size else np.full(3, math.nan)
        record |= {
            f"{kind}_n": int(answered.size),
            f"{kind}_mean": float(answered.mean()) if answered.size else math.nan,
        }
        record |= {f"{kind}_{name}": float(q) for name, q in zip(("q1", "median", "q3"), quartiles, strict=True)}
    apart = np.array([known_mean(row[generated]) - known_mean(row[~generated]) for row in grades])
    better = np.array([superiority(row[generated], row[~generated]) for row in grades])
    for name, values in (("difference", apart), ("superiority", better)):
        estimate = over_readers(values, level)
        ends = estimate[1:] if name == "difference" else np.clip(estimate[1:], 0, 1).tolist()
        record |= {name: estimate.value, f"{name}_low": ends[0], f"{name}_high": ends[1]}
    record["icc"] = intraclass_correlation(grades.T, "2,1")
    record["icc_consistency"] = intraclass_correlation(grades.T, "3,1")
    return record


def _summary_text(record: Record, kind: str) -> str:
    mean, low, middle, high = (float(record[f"{kind}_{name}"]) for name in ("mean", "q1", "median", "q3"))
    if math.isnan(mean):
        return "-"
    return f"{mean:.2f}; {middle:g} ({low:g} to {high:g}); {record[f'{kind}_n']}"


def _record_spans(record: Record, name: str, text: Callable[[float], str]) -> list[Span]:
    value = float(record[name])
    if math.isnan(value):
        return [Span("-", "quiet")]
    low, high = (float(record.get(f"{name}_{end}", math.nan)) for end in ("low", "high"))
    spans = [Span(text(value))]
    if not math.isnan(low):
        spans.append(Span(f"({text(low)} to {text(high)})", "interval"))
    return spans


def _share_text(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _number_text(value: float) -> str:
    return "-" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}"


REAL, GENERATED = "real", "generated"
ORIGIN = "origin"
"""The column in which readers say which of the two an image is."""

_WORDS = {REAL: False, "r": False, "0": False, GENERATED: True, "g": True, "1": True, "fake": True, "synthetic": True}
_REST = frozenset(["reader", "item", ORIGIN, "comment", "study"])


@dataclass(frozen=True, eq=False)
class Readings:
    """Readings of several readers.

    Attributes:
        readers: their names.
        items: names of the images.
        generated: (item,): the truth.
        said: (reader, item): 1 where an image was called generated, 0 where real, NaN where nothing was said.
        grades: question -> (reader, item), NaN where there is none.
        scale: the best grade; the worst is 1.
    """

    readers: tuple[str, ...]
    items: tuple[str, ...]
    generated: npt.NDArray[np.bool_]
    said: Floats
    grades: Mapping[str, Floats]
    scale: int


def read_readings(files: Sequence[Path], key: Path, *, scale: int = 5) -> Readings:
    """Reads filled sheets.

    Args:
        files: CSV files with the columns reader, item, origin, and one for each question.
        key: the CSV file with the columns item and truth.
        scale: the best grade.

    Raises:
        UserError: a file is missing, lacks a column, names an unknown image or one twice, or holds an odd answer.
    """
    truth, study = _read_truth(key)
    items = tuple(sorted(truth))
    calls: dict[str, dict[str, float]] = {}
    grades: dict[str, dict[str, dict[str, float]]] = {}
    for file in files:
        for where, row in _read_sheet(file, key, study):
            reader, item = row["reader"].strip(), _item_key(row["item"].strip(), truth, where)
            if not reader:
                continue
            if item in calls.setdefault(reader, {}):
                raise UserError(f"{where}: reader {reader!r} has read item {item!r} before; keep one of the readings")
            calls[reader][item] = _parse_origin(row[ORIGIN], where)
            for name, text in row.items():
                if name not in _REST:
                    grade = _parse_grade(text, scale, where, name)
                    grades.setdefault(name, {}).setdefault(reader, {})[item] = grade
    if not calls:
        raise UserError(f"{files[0] if files else key}: holds no reading; fill in the columns reader and {ORIGIN}")
    readers = tuple(sorted(calls))
    return Readings(
        readers,
        items,
        np.array([truth[item] == GENERATED for item in items]),
        _answer_matrix(calls, readers, items),
        {name: _answer_matrix(by_reader, readers, items) for name, by_reader in grades.items()},
        scale,
    )


def _read_truth(key: Path) -> tuple[dict[str, str], str]:
    """Key's truth by item with its form, "" where unstated."""
    truth: dict[str, str] = {}
    study = ""
    for line, row in _read_rows(key, ("item", "truth")):
        if row["item"] in truth:
            raise UserError(f"{key}, line {line}: names item {row['item']!r} again; score each form with its own key")
        truth[row["item"]] = row["truth"]
        study = row.get("study", "")
    if not set(truth.values()) <= {REAL, GENERATED} or not truth:
        raise UserError(f"{key}: expected truth to be {REAL} or {GENERATED} for each item")
    return truth, study


def _read_sheet(file: Path, key: Path, study: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Location and cells of filled rows; empty ones name no reader."""
    for line, row in _read_rows(file, ("reader", "item", ORIGIN)):
        where = f"{file}, line {line}"
        if study and row.get("study", "").strip() not in ("", study):
            raise UserError(f"{where}: belongs to another form than {key}; score each sheet with the key of its form")
        filled = any(text.strip() for name, text in row.items() if name not in ("reader", "item", "study"))
        if filled and not row["reader"].strip():
            raise UserError(f"{where}: names no reader; fill in the column reader")
        yield where, row


def _read_rows(file: Path, needed: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line and cells of every row; a comment may take several lines."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({type(error).__name__}); expected a CSV file in UTF-8") from None
    first = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=";" if first.count(";") > first.count(",") else ",")
    columns = [unguarded((name or "").strip()) for name in rows.fieldnames or []]
    for name in needed:
        if name not in columns:
            raise UserError(f"{file}: has no column {name!r}; its columns are {', '.join(columns) or 'none'}")
    rows.fieldnames = columns
    for row in rows:
        yield rows.line_num, {name: unguarded(text or "") for name, text in row.items() if name}


def _item_key(item: str, truth: Mapping[str, str], where: str) -> str:
    if item in truth:
        return item
    padded = item.zfill(max(map(len, truth)))  # spreadsheets make 7 of 007
    if padded not in truth:
        raise UserError(f"{where}: item {item!r} is not in the key; score each sheet with the key of its form")
    return padded


def _parse_origin(text: str, where: str) -> float:
    word = text.strip().casefold()
    if not word:
        return math.nan
    if word not in _WORDS:
        raise UserError(f"{where}: expected {REAL} or {GENERATED} in the column {ORIGIN}, got {text.strip()!r}")
    return float(_WORDS[word])


def _parse_grade(text: str, scale: int, where: str, name: str) -> float:
    if not text.strip():
        return math.nan
    try:
        grade = float(text)
    except ValueError:
        grade = math.nan
    if not (1 <= grade <= scale and grade == int(grade)):
        raise UserError(f"{where}: expected a grade from 1 to {scale} in the column {name}, got {text.strip()!r}")
    return grade


def _answer_matrix(said: Mapping[str, Mapping[str, float]], readers: Sequence[str], items: Sequence[str]) -> Floats:
    return np.array([[said.get(reader, {}).get(item, math.nan) for item in items] for reader in readers])
