"""Scores that were computed elsewhere: one CSV with a row per case, model and metric, read as runs are."""

from __future__ import annotations

import csv
import hashlib
import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from medimg_eval import metrics
from medimg_eval.errors import UsageError, UserError, nearest_path
from medimg_eval.results.runs.loading import SCORE_COLUMNS, RunScores, model_and_condition
from medimg_eval.results.runs.metric_kinds import SET, WHOLE, is_evidence, is_known, is_summary
from medimg_eval.trust import unguarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt

Better = Literal["higher", "lower"]

NEEDED = ("case", "model", "metric", "value")
UNSHARED = ("case", "patient", "value")
"""Columns that hold another text in nearly every row."""
OPTIONAL = ("patient", "task", "label", "status")
"""Columns with a meaning of their own; any other is an attribute of the cases, such as `sex` or `group`."""


LARGEST = 1e100
"""Beyond it, squares and sums of values could exceed what a number of 64 bits can hold."""

TRUTHS = {"probability": ("present", "absent"), "confidence": ("right", "wrong")}
"""Evidence whose status is the truth, and whose value is a probability -> what its status may be."""


def load_scores(
    file: str | Path, *, direction: Mapping[str, Better] | None = None, proportions: Iterable[str] = ()
) -> list[RunScores]:
    """Reads scores from a CSV, as one run for each model and task.

    Args:
        file: With the columns `case`, `model`, `metric` and `value`, and as many of `patient`, `task`, `label` and
            `status` as there are; any further column is an attribute of the cases. An empty value is undefined: it is
            left out of means, and counted. Names of metrics that the registry has, whatever their case, mean those.
        direction: For metrics that the registry lacks, whether `higher` or `lower` is better; without, they are shown
            but neither ranked nor tested.
        proportions: Metrics that the registry lacks, whose values are 1 for yes or 0 for no, so that their intervals
            are those of proportions; without, values that happen to be 0 and 1 are not taken for that.

    Returns:
        The runs, in the order in which models and tasks first occur.

    Raises:
        UserError: The file cannot be read, lacks a column, names a cell twice, holds a value that is no finite number,
            or says two things of one case; the message names the line.
        UsageError: `direction` or `proportions` names a metric that the file does not hold, `direction` says neither
            `higher` nor `lower`, or one of `proportions` is a metric of ours or has other values than 0 and 1.
    """
    file = Path(file)
    rows = _read_rows(file)
    directions, yes_or_no = _parse_directions(direction or {}, rows), _parse_proportions(proportions, rows)
    by_patient = bool((rows["patient"] != "").any())
    if by_patient and (rows["patient"] == "").any():
        line = _line(rows.index[rows["patient"] == ""][0])
        raise UserError(f"{file}, {line}: has no patient, although others have; fill the column, or leave it out")
    runs, counts = [], dict[Any, int]()
    for (task, name), model_rows in rows.groupby(["task", "model"], sort=False, observed=True):
        model, condition = model_and_condition(str(name))
        scores = model_rows.reset_index(drop=True)[list(SCORE_COLUMNS)]
        shared = scores.select_dtypes("category").columns
        scores = scores.assign(**{column: scores[column].cat.remove_unused_categories() for column in shared})
        if task not in counts:
            counts[task] = int(rows.loc[rows["task"] == task, "case"].nunique())
        runs.append(
            RunScores(
                folder=file,
                run=f"{file.stem}-{hashlib.blake2b(f'{task}/{name}'.encode(), digest_size=4).hexdigest()}",
                task=str(task),
                task_title=str(task),
                model=model,
                condition=condition,
                cases=counts[task],
                predicted=int(scores["case"].nunique()),
                failed_cases=int(scores.loc[scores["status"] == "failed", "case"].nunique()),
                resampled="patients" if by_patient else "cases",
                started=datetime.fromtimestamp(file.stat().st_mtime, UTC),
                scores=scores,
                metrics=tuple(rows.loc[rows["task"] == task, "metric"].unique()),
                baseline=bool(condition),
                directions=directions,
                proportions=yes_or_no,
            )
        )
    return runs


def _read_rows(file: Path) -> pd.DataFrame:
    """Returns checked score rows, indexed as the file.

    `case` and `patient` are texts, other columns of texts categories, which rows share.
    """
    rows = _without_guards(_parse_csv(file))
    _refuse_shifted(rows, file)
    end = f"; scores need the columns {', '.join(NEEDED)}"
    UserError.refuse_unknown(f"{file}: has no column", rows.columns, *NEEDED, end=end)
    if rows.empty:
        raise UserError(f"{file}: holds no scores below its header")
    for name in ("case", "model", "metric"):
        rows[name] = _rename_texts(rows[name], str.strip)
        if (rows[name] == "").any():
            raise UserError(f"{file}, {_line(rows.index[rows[name] == ''][0])}: the {name} is empty")
    stated = _rename_texts(rows["status"], str.strip) if "status" in rows.columns else _repeat_text("", rows)
    rows["patient"] = _rename_texts(rows["patient"], str.strip) if "patient" in rows.columns else ""
    for name, value in {"task": "scores", "label": WHOLE, "status": "present"}.items():
        if name in rows.columns:
            rows[name] = _rename_texts(_rename_texts(rows[name], str.strip), partial(_text_or, value))
        else:
            rows[name] = _repeat_text(value, rows)
    rows["metric"] = _rename_texts(rows["metric"], _registered_metric)
    rows["value"] = _parse_numbers(rows["value"], file)
    _refuse_without_truth(rows, stated, file)
    _refuse_repeated(rows, file)
    rows["attributes"] = _attribute_json(rows, file)
    rows["run"] = _repeat_text("", rows)
    return rows.assign(
        **{name: _order_categories(rows[name]) for name in SCORE_COLUMNS if rows[name].dtype == "category"}
    )


def _parse_csv(file: Path) -> pd.DataFrame:
    """Returns a CSV as it is: `UNSHARED` columns as texts, others as categories.

    What Arrow does not take, such as a row of too many values, is read by pandas, which says what is wrong.
    """
    if not file.exists():
        raise UserError(f"{file}: no such table{nearest_path(file)}")
    with UserError.about(file, "cannot be read as CSV", OSError, ValueError):
        with file.open("rb") as opened:
            header = next(csv.reader([opened.readline().decode("utf-8-sig")]), [])
        if all(header) and len(set(header)) == len(header) and (rows := _by_arrow(file, header)) is not None:
            return rows
        rows = pd.read_csv(file, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    parts = [part if part.name in UNSHARED else part.astype("category") for _, part in rows.items()]
    return pd.concat(parts, axis=1) if parts else rows


def _by_arrow(file: Path, header: Sequence[str]) -> pd.DataFrame | None:
    """Returns named CSV columns by Arrow, saving memory; else None."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    shared = pa.dictionary(pa.int32(), pa.string())
    kinds = {name: pa.string() if name in UNSHARED else shared for name in header}
    try:
        table = arrow_csv.read_csv(
            file,
            read_options=arrow_csv.ReadOptions(use_threads=False),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(column_types=kinds, include_columns=list(header)),
        )
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None
    rows: pd.DataFrame = table.unify_dictionaries().to_pandas()
    del table
    pa.default_memory_pool().release_unused()  # else it keeps as much as it has read
    return rows


def _without_guards(rows: pd.DataFrame) -> pd.DataFrame:
    """Returns rows without the apostrophes that guard formulas."""
    named = rows.rename(columns=unguarded)
    for index, name in enumerate(named.columns):
        part = rows.iloc[:, index]
        texts = part if part.dtype != "category" else pd.Series(part.cat.categories, dtype=str)
        if texts.str.startswith("'").any():
            named[name] = _rename_texts(part, unguarded)
    return named


def _rename_texts(column: pd.Series[str], name: Callable[[str], str]) -> pd.Series[str]:
    """Returns texts under other names; categories that are now called alike are one."""
    if column.dtype != "category":
        return column.str.strip() if name is str.strip else column.map(name)
    before = column.cat.categories.tolist()
    after = [name(str(text)) for text in before]
    if after == before:
        return column
    codes_, names = pd.factorize(np.array(after, dtype=object))
    codes = column.cat.codes.to_numpy()
    return pd.Series(pd.Categorical.from_codes(codes_[codes], pd.Index(names)), index=column.index, name=column.name)


def _text_or(usual: str, text: str) -> str:
    return text or usual


def _order_categories(column: pd.Series[str]) -> pd.Series[str]:
    """Returns categories that sort and compare as their texts do."""
    texts = pd.Categorical(column, sorted(column.cat.categories), ordered=True)
    return pd.Series(texts, index=column.index, name=column.name)


def _repeat_text(text: str, rows: pd.DataFrame) -> pd.Series[str]:
    """Returns the same text for every row."""
    return pd.Series(pd.Categorical.from_codes(np.zeros(len(rows), dtype=np.int8), pd.Index([text])), index=rows.index)


def _refuse_shifted(rows: pd.DataFrame, file: Path) -> None:
    """Refuses headers that do not fit the rows."""
    mark = next((mark for mark in ";\t|" if len(rows.columns) == 1 and mark in str(rows.columns[0])), "")
    if mark:
        raise UserError(f"{file}: its columns are separated by {mark!r}, expected commas; save it as CSV with commas")
    if not isinstance(rows.index, pd.RangeIndex):  # values beyond the header make pandas take the first for an index
        raise UserError(
            f"{file}: rows hold more values than the header has columns; name all columns, or end no row in ','"
        )
    with file.open(encoding="utf-8-sig", newline="") as opened:
        names = [name for name in next(csv.reader(opened), []) if name]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{file}: two columns are called {twice!r}; rename or remove one")


def _registered_metric(name: str) -> str:
    """Registry name of a case metric; others stay as written."""
    known_name = str(metrics.as_known(name))
    if not is_known(known_name):
        return name
    if is_summary(known_name) or metrics.get(known_name).kind == SET:
        if known_name.casefold() == name.casefold():
            raise UsageError(f"metric {name!r} is one value for a whole run, and scores are of cases; rename it")
        return name  # such as AUC, a column of somebody's own
    return known_name


def _parse_numbers(texts: pd.Series[str], file: Path) -> pd.Series[float]:
    values = pd.to_numeric(texts, errors="coerce").astype(np.float64)
    # Whatever is no number within the bounds, of which there are few: text that stands for none, or is wrong.
    odd = texts[~(values.abs() <= LARGEST)]
    wrong = odd[~odd.str.strip().str.lower().isin(["", "nan", "na", "null", "none"])]
    if len(wrong):
        first = wrong.index[0]
        raise UserError(
            f"{file}, {_line(first)}: the value is {texts[first]!r}, expected a number within {LARGEST:g} "
            "of 0, or nothing where it is undefined"
        )
    return values


def _refuse_without_truth(rows: pd.DataFrame, stated: pd.Series[str], file: Path) -> None:
    """Refuses probabilities without truth, or outside 0 to 1."""
    for name, truths in TRUTHS.items():
        chosen = rows["metric"] == name
        odd = chosen & ~stated.isin(truths)
        if odd.any():
            first = rows.index[odd][0]
            raise UserError(
                f"{file}, {_line(first)}: the status of a {name} is the truth, expected {truths[0]} or {truths[1]}, "
                f"got {stated[first]!r}; leave out rows whose truth is not known"
            )
        outside = chosen & ~rows["value"].between(0, 1)  # NaN neither
        if outside.any():
            first = rows.index[outside][0]
            raise UserError(f"{file}, {_line(first)}: a {name} is {rows.loc[first, 'value']:g}, expected 0 to 1")


def _refuse_repeated(rows: pd.DataFrame, file: Path) -> None:
    keys = ["task", "model", "case", "label", "metric"]
    # Other evidence may hold several rows for a label, such as one per candidate of a detector.
    evidence = [name for name in rows["metric"].unique() if name != "probability" and is_evidence(name)]
    several = rows["metric"].isin(evidence)
    repeated = rows.duplicated(keys) & ~several
    if repeated.any():
        second = rows.index[repeated][0]
        is_repeated = (rows[keys] == rows.loc[second, keys]).all(axis=1)
        repeated_ = rows.loc[second]
        raise UserError(
            f"{file}, {_line(rows.index[is_repeated][0])} and {_line(second)}: both give {repeated_['metric']} of case "
            f"{repeated_['case']!r} for {repeated_['model']!r}; keep one, or tell them apart by a column label or task"
        )


def _attribute_json(rows: pd.DataFrame, file: Path) -> pd.Series[str]:
    """Returns further columns as each case's JSON attributes."""
    names = [name for name in rows.columns if name not in (*NEEDED, *OPTIONAL) and not str(name).startswith("Unnamed")]
    cases = _combine_codes([rows["task"], rows["case"]])
    for name in ("patient", *names):
        both = _combine_codes([cases, rows[name]])
        if both.max() > cases.max():
            # Of a case that has two values, the first such in the order of tasks and cases.
            counts = rows.groupby(["task", "case"], observed=True)[name].nunique()
            task, case = min(counts.index[counts > 1])
            chosen = (rows["task"] == task) & (rows["case"] == case)
            values = rows.loc[chosen, name].unique()
            raise UserError(f"{file}: case {case!r} has two values of {name}: {values[0]!r} and {values[1]!r}")
    together = _combine_codes([rows[name] for name in names]) if names else np.zeros(len(rows), dtype=np.int64)
    _, first = np.unique(together, return_index=True)
    attributes = [{str(name): str(rows[name].iloc[row]).strip() for name in names} for row in first.tolist()]
    texts = pd.Categorical.from_codes(together, pd.RangeIndex(len(attributes)))
    return _rename_texts(
        pd.Series(texts, index=rows.index), lambda place: json.dumps(attributes[int(place)], sort_keys=True)
    )


def _combine_codes(columns: Sequence[pd.Series[str] | npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Returns codes of column combinations, in order of appearance."""
    together: npt.NDArray[np.int64] = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        codes: npt.NDArray[np.int64]
        if not isinstance(column, pd.Series):
            codes = column
        elif column.dtype == "category":
            codes = np.asarray(column.cat.codes, dtype=np.int64)
        else:
            codes = np.asarray(pd.factorize(column)[0], dtype=np.int64)
        together = np.asarray(pd.factorize(together * (int(codes.max()) + 1) + codes)[0], dtype=np.int64)
    return together


def _parse_directions(direction: Mapping[str, Any], rows: pd.DataFrame) -> dict[str, bool]:
    held = set(rows["metric"].cat.categories)
    for name, direction_ in direction.items():
        UsageError.refuse_unknown("direction names", held, name, then=", of which there are no scores")
        if direction_ not in ("higher", "lower"):
            raise UsageError(f"direction.{name} is {direction_!r}, expected higher or lower")
    return {name: direction == "higher" for name, direction in direction.items()}


def _parse_proportions(proportions: Iterable[str], rows: pd.DataFrame) -> frozenset[str]:
    names, held = frozenset(proportions), set(rows["metric"].cat.categories)
    for name in sorted(names):
        UsageError.refuse_unknown("proportions names", held, name, then=", of which there are no scores")
        if is_known(name):
            raise UsageError(f"proportions names {name!r}, a metric of ours that says itself what it is; take it out")
        odd = rows.loc[(rows["metric"] == name) & ~rows["value"].isin([0, 1]) & rows["value"].notna(), "value"]
        if len(odd):
            raise UsageError(
                f"proportions names {name!r}, which is {odd.iloc[0]:g} in {_line(odd.index[0])}; values of yes or no "
                "are 1 and 0, and others have a bootstrap"
            )
    return names


def _line(place: int) -> str:
    """Says where a row stands in the file, its header being line 1."""
    return f"line {place + 2}"
