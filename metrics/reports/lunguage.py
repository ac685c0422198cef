"""LUNGUAGESCORE: the structured findings of two reports, matched one to one by how similar they are.

A row is a finding with what is said of it, as the columns of Lunguage's tables: `entity` (or `ent`), `dx_status`,
`dx_certainty`, `location`, `severity` and so on. Rows come from annotations or from a model that structures reports;
how similar two texts are comes from models of medical names. What is here is arithmetic on both.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.arrays import Floats
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import comparisons
from medimg_eval.metrics.text import read_part

Row = Mapping[str, Any]
Similarity = Callable[[Sequence[str], Sequence[str]], npt.ArrayLike]
"""How similar each text is to each other one: (text, other), at most 1."""

ATTRIBUTES: Mapping[str, float] = {
    "dx_status": 0.5,
    "location": 0.2,
    "severity": 0.15,
    "onset": 0.15,
    "improved": 0.15,
    "worsened": 0.15,
    "placement": 0.15,
    "dx_certainty": 0.1,
    "no change": 0.1,
    "morphology": 0.05,
    "distribution": 0.05,
    "measurement": 0.05,
    "comparison": 0.03,
    "past hx": 0.01,
    "other source": 0.01,
    "assessment limitations": 0.01,
}
"""What is said of a finding -> how much it counts (metric_weights.yaml of the authors' code)."""

EXACT = frozenset(("dx_status", "dx_certainty"))
"""Attributes that are the same or not; the others are texts."""

TIMES = ("sequence", "episode")
"""When a finding was seen: which study of the patient, and which course of the finding. They count alike."""

PHRASE = (
    "location",
    "morphology",
    "distribution",
    "measurement",
    "severity",
    "onset",
    "improved",
    "worsened",
    "no change",
    "placement",
)
"""What stands behind the finding's name in the phrase that is compared."""

_TIE = 1e-9
"""What tells matchings apart whose sums are equal."""

SOURCE = "Lunguage; SuperSupermoon/Lunguage 759001b"


class Matched(NamedTuple):
    """How far two sets of rows agree, each in [0, 1]."""

    f1: float
    precision: float
    recall: float


def read_rows(path: Path | str) -> dict[str, list[dict[str, str]]]:
    """Reads structured rows: study -> its rows, in the file's order.

    Args:
        path: a CSV with one row a line and a column `study_id`; or JSON lines, each a row with `study_id`, or
            `{"study_id": ..., "rows": [...]}`, which can also say that a study has none.

    Raises:
        UserError: the file cannot be read, or a line names no study; the message names both.
    """
    file = Path(path)
    with UserError.about(file, "cannot be read as rows in CSV or JSON lines", OSError, ValueError, csv.Error):
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix.lower() == ".csv":
            lines = [*enumerate(csv.DictReader(io.StringIO(text, newline="")), 2)]
        else:
            lines = [(number, json.loads(line)) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    rows_by_report: dict[str, list[dict[str, str]]] = {}
    for number, line in lines:
        study = _cell_text(line.get("study_id")) if isinstance(line, Mapping) else ""
        if not study:
            raise UserError(f"{file}, line {number}: names no study; each row needs a `study_id`")
        rows_by_report.setdefault(study, []).extend(line.get("rows", [line]))
    return rows_by_report


def row_similarity(
    reference: Sequence[Row],
    prediction: Sequence[Row],
    similarity: Similarity,
    phrases: Similarity | None = None,
    *,
    temporal: bool = False,
) -> Floats:
    """Returns row similarities: (reference row, predicted row).

    The product of three: of the phrases (the finding with what describes it), or of a patient's studies of the groups
    of findings; of the attributes, weighted by `ATTRIBUTES`, where one that only one row has counts 0; and, of a
    patient's studies, of the times. Where neither row has any attribute, the phrases alone count. `temporal` says that
    the rows are those of all studies of a patient, with `entity_group`, `sequence`, `episode`.
    """
    named = _row_group if temporal else _row_phrase
    reference_names, predicted_names = [named(row) for row in reference], [named(row) for row in prediction]
    product = _looked_up(reference_names, predicted_names, phrases or similarity)
    product = product * _weighted_similarity(reference, prediction, ATTRIBUTES, similarity)
    if temporal:
        placed = [_place_in_time(row) for row in reference], [_place_in_time(row) for row in prediction]
        product = product * _weighted_similarity(*placed, dict.fromkeys(TIMES, 0.5), similarity)
    return product


def soft_match(similarity: npt.ArrayLike) -> Matched:
    """Returns F1, precision and recall of rows that match more or less.

    Rows are matched one to one so that the sum of similarities is largest, and of equal sums so that least is lost by
    rows left over: the order of rows does not matter, as it does in the authors' code. A match of similarity s is s
    true positives and 1 - s of each, false positives and false negatives; a row that is left over is 1 - its largest
    similarity.

    Args:
        similarity: float, (reference row, predicted row), at most 1.

    Returns:
        0 where one side has no rows, or where nothing is similar; NaN where neither side has any.

    >>> soft_match([[1.0, 0.2], [0.4, 0.5]])
    Matched(f1=0.75, precision=0.75, recall=0.75)
    """
    from scipy.optimize import linear_sum_assignment

    table = np.asarray(similarity, dtype=np.float64)
    if table.ndim != 2:
        raise UsageError(f"Expected similarities (reference row, predicted row), got an array of shape {table.shape}")
    if not table.size:
        worth = 0.0 if any(table.shape) else math.nan
        return Matched(worth, worth, worth)
    lonely = (1 - table.max(axis=1, keepdims=True)) + (1 - table.max(axis=0, keepdims=True))
    rows, columns = linear_sum_assignment(table + _TIE * lonely, maximize=True)
    hits = float(table[rows, columns].sum())
    unmatched = len(rows) - hits
    missed = unmatched + float((1 - np.delete(table, rows, axis=0).max(axis=1)).sum())
    invented = unmatched + float((1 - np.delete(table, columns, axis=1).max(axis=0)).sum())
    precision = hits / (hits + invented) if hits + invented > 0 else 0.0
    recall = hits / (hits + missed) if hits + missed > 0 else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return Matched(*(min(1.0, max(0.0, value)) for value in (f1, precision, recall)))


def lunguage_of(
    reference: Sequence[Row],
    prediction: Sequence[Row],
    similarity: Similarity,
    phrases: Similarity | None = None,
    *,
    temporal: bool = False,
) -> Matched:
    """Returns LUNGUAGESCORE of a study's or patient's rows, as `soft_match`.

    The authors' similarity of texts of attributes is the mean cosine of BioLORD-2023 and MedCPT; of phrases BioLORD
    takes the mean of all tokens. Equal rows score 1 where equal texts have a similarity of 1.
    """
    if not reference or not prediction:
        return soft_match(np.zeros((len(reference), len(prediction))))
    return soft_match(row_similarity(reference, prediction, similarity, phrases, temporal=temporal))


def lunguage_scores(
    references: Mapping[str, Sequence[Row]],
    predictions: Mapping[str, Sequence[Row]],
    similarity: Similarity,
    phrases: Similarity | None = None,
    *,
    temporal: bool = False,
) -> dict[str, Matched]:
    """Returns LUNGUAGESCORE by study, or by patient where `temporal`.

    Rows are as `read_rows` gives them, similarities as in `lunguage_of`. A study that the predictions lack scores 0;
    the authors' code leaves it out, so that a model gains by writing less.
    """
    return {
        name: lunguage_of(rows, predictions.get(name, ()), similarity, phrases, temporal=temporal)
        for name, rows in references.items()
    }


def texts_in(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    """Returns phrases and attribute texts to embed, of a study."""
    values = [_cell_text(row.get(name)) for row in rows for name in ATTRIBUTES if name not in EXACT]
    return [_row_phrase(row) for row in rows], [value for value in values if value]


def _weighted_similarity(
    reference: Sequence[Row], prediction: Sequence[Row], weights: Mapping[str, float], similarity: Similarity
) -> Floats:
    """Weighted similarity of present attributes: (reference row, predicted row)."""
    worth = np.zeros((len(reference), len(prediction)))
    norm = np.zeros_like(worth)
    for name, weight in weights.items():
        reference_texts, predicted_texts = (
            [_cell_text(row.get(name)) for row in reference],
            [_cell_text(row.get(name)) for row in prediction],
        )
        there, here = (
            np.array([bool(text) for text in reference_texts]),
            np.array([bool(text) for text in predicted_texts]),
        )
        norm += weight * (there[:, None] | here[None, :])
        both = there[:, None] & here[None, :]
        if not both.any():
            continue
        if name in EXACT or name in TIMES:
            similarities = np.array(
                [
                    [_plain_text(text) == _plain_text(predicted_text) for predicted_text in predicted_texts]
                    for text in reference_texts
                ],
                dtype=np.float64,
            )
        else:
            similarities = _looked_up(reference_texts, predicted_texts, similarity)
        worth += weight * np.where(both, similarities, 0.0)
    return quotient(worth, norm, 1.0)


def _looked_up(given: Sequence[str], said: Sequence[str], similarity: Similarity) -> Floats:
    """Similarity of text pairs, asking distinct nonempty ones once."""
    reference_texts, predicted_texts = sorted({text for text in given if text}), sorted({text for text in said if text})
    similarities = np.zeros((len(reference_texts) + 1, len(predicted_texts) + 1))
    if reference_texts and predicted_texts:
        table = np.asarray(similarity(reference_texts, predicted_texts), dtype=np.float64)
        if table.shape != (len(reference_texts), len(predicted_texts)):
            raise UsageError(
                f"Expected similarities of shape ({len(reference_texts)}, {len(predicted_texts)}), got {table.shape}"
            )
        similarities[1:, 1:] = table
    at = (
        {text: index for index, text in enumerate(reference_texts, 1)},
        {text: index for index, text in enumerate(predicted_texts, 1)},
    )
    rows, columns = [at[0].get(text, 0) for text in given], [at[1].get(text, 0) for text in said]
    return similarities[np.ix_(rows, columns)]


def _row_phrase(row: Row) -> str:
    return " ".join(text for text in (_row_entity(row), *(_cell_text(row.get(name)) for name in PHRASE)) if text)


def _row_group(row: Row) -> str:
    return _cell_text(row.get("entity_group")) or _row_entity(row)


def _row_entity(row: Row) -> str:
    entity = _cell_text(row.get("entity")) or _cell_text(row.get("ent"))
    if not entity:
        raise UsageError(f"Expected every row to name its finding as `entity` or `ent`, got {sorted(row)}")
    return entity


def _place_in_time(row: Row) -> dict[str, Any]:
    """Times of a row: missing course is first, missing place the study's."""
    return {
        "sequence": _cell_text(row.get("sequence")) or _cell_text(row.get("study_id")),
        "episode": _cell_text(row.get("episode")) or "1",
    }


def _cell_text(value: Any) -> str:
    """Cell text; "" for missing values and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = " ".join(str(value).split())
    return "" if text.lower() == "nan" else text


def _plain_text(text: str) -> str:
    """Lower-case text with plain whole numbers, for comparison."""
    lowered = text.lower()
    return lowered.removesuffix(".0") if lowered.removesuffix(".0").isdigit() else lowered


_SETTINGS = "rows of single studies; mean cosine of BioLORD-2023 and MedCPT; a report without rows scores 0"

_lunguage = partial(answer_share, source=SOURCE, settings=_SETTINGS, requires=comparisons("lunguage"))


@_lunguage(title="LUNGUAGESCORE")
def lunguage_score(pair: AnsweredQuestion) -> float:
    """The F1 of structured findings that are matched one to one, each match as far as the two are similar.

    A match of similarity s counts as s hits, and as 1 - s false ones of both kinds. In [0, 1]; NaN where neither report
    has any finding, or where the rows of one are not known.
    """
    return read_part(pair, "lunguage", "f1")


@_lunguage(title="LUNGUAGESCORE, precision")
def lunguage_precision(pair: AnsweredQuestion) -> float:
    """The share of structured findings written that are in the reference, as far as they are similar.

    Findings and their similarity are as in `lunguage_score`.
    """
    return read_part(pair, "lunguage", "precision")


@_lunguage(title="LUNGUAGESCORE, recall")
def lunguage_recall(pair: AnsweredQuestion) -> float:
    """The share of structured findings of the reference that were written, as far as they are similar.

    Findings and their similarity are as in `lunguage_score`.
    """
    return read_part(pair, "lunguage", "recall")
