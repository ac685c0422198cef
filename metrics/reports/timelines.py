"""Findings of all studies of a patient: how they are written down, which belong together, and in which course.

A timeline is a list of rows as `lunguage` has them, with `idx`, the number of a finding among those that were given;
`entity_group`, the finding that it is one sighting of; `episode`, the course of that finding; and `sequence`, the
study. Models write it as JSON: rows, or the groups of Lunguage's second stage over findings that were given.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion, texts_among
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.registry import comparisons
from medimg_eval.metrics.reports.lunguage import ATTRIBUTES, SOURCE, Row, lunguage_of
from medimg_eval.metrics.text import read_part

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "idx": ("idx", "IDX"),
    "study_id": ("study_id",),
    "sequence": ("sequence",),
    "day": ("day", "DAY"),
    "entity": ("entity", "ent"),
    "entity_group": ("entity_group", "gt_entity_group", "LLM_cluster"),
    "episode": ("episode", "gt_temporal_group", "temporal_group"),
}
"""What a row says -> the columns that hold it in the authors' tables, gold and predicted, the first that is there."""

LEVELS = ("entity", "episode", "entity_published", "episode_published")
"""What is compared: findings, courses of a finding; or both as the authors' program numbers them."""


def timeline_row(given: Row) -> dict[str, Any]:
    """Returns a timeline row in our names, without empty cells and `loc:` before places."""
    row: dict[str, Any] = {
        name: next((given[column] for column in columns if _is_said(given.get(column))), None)
        for name, columns in COLUMNS.items()
    }
    row |= {name: given[name] for name in ATTRIBUTES if _is_said(given.get(name))}
    if isinstance(row.get("location"), str):
        row["location"] = " ".join(row["location"].replace("loc:", " ").replace("det:", " ").split())
    return {name: value for name, value in row.items() if value is not None}


def read_timeline(text: str, given: Sequence[Row] = ()) -> list[dict[str, Any]] | None:
    """Reads JSON rows within a text; None without.

    Args:
        text: with a list of rows, an object with `rows`, or `results`: groups of `group_name`, `findings` (each an
            `IDX` among those given, and its `DAY`) and `episodes` (`episode` and its `days`).
        given: rows that groups refer to, by `idx`.

    >>> read_timeline('Here: [{"ent": "edema", "temporal_group": 2}]')
    [{'entity': 'edema', 'episode': 2}]
    """
    for held in _json_in(text):
        if isinstance(held, Mapping) and isinstance(held.get("results"), list):
            return _rows_of_groups(held["results"], given)
        rows = held.get("rows") if isinstance(held, Mapping) else held
        if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows):
            return [timeline_row(row) for row in rows]
    return None


def groups_of(rows: Sequence[Row], given: Sequence[Row], level: str) -> list[Hashable]:
    """Returns each finding's group; unnamed ones have their own.

    Args:
        rows: with `idx`; of two rows of one finding the first counts.
        given: the findings, by `idx`.
        level: one of `LEVELS`. Under `_published` all findings that no row names share a group, and courses are told
            by their number alone, so that the first courses of two findings are one.
    """
    UsageError.refuse_unknown("timelines have no level", LEVELS, level)
    kind, published = level.removesuffix("_published"), level.endswith("_published")
    named: dict[str, Hashable] = {}
    for row in rows:
        group, episode = _fold_cell(row.get("entity_group")), _fold_cell(row.get("episode") or 1)
        label: Hashable = group if kind == "entity" else episode if published else (group, episode)
        named.setdefault(_fold_cell(row.get("idx")), label)
    return [
        named.get(_fold_cell(row.get("idx")), ("unmatched", 0 if published else index))
        for index, row in enumerate(given)
    ]


def pair_f1(truth: Sequence[Hashable], prediction: Sequence[Hashable]) -> float:
    """Returns the F1 of co-grouped pairs; 1 where neither has any.

    >>> pair_f1([0, 0, 1], [0, 0, 0])
    0.5
    """
    both = _count_pairs(zip(truth, prediction, strict=True))
    either = _count_pairs(truth) + _count_pairs(prediction)
    return 2 * both / either if either else 1.0


def purity(truth: Sequence[Hashable], prediction: Sequence[Hashable]) -> float:
    """Returns the purity of groups: share in the majority's group.

    >>> purity([0, 0, 1], [0, 0, 0])
    0.6666666666666666
    """
    largest: dict[Hashable, int] = {}
    for (_, group), count in Counter(zip(truth, prediction, strict=True)).items():
        largest[group] = max(largest.get(group, 0), count)
    return sum(largest.values()) / len(truth) if truth else math.nan


def _json_in(text: str) -> list[Any]:
    """Values that stand in a text as JSON, the outermost, in order."""
    decoder, rows, position = json.JSONDecoder(), [], 0
    while starts := [start for mark in "[{" if (start := text.find(mark, position)) >= 0]:
        position = min(starts)
        try:
            value, position = decoder.raw_decode(text, position)
        except ValueError:
            position += 1
        else:
            rows.append(value)
    return rows


def _rows_of_groups(groups: Sequence[Any], given: Sequence[Row]) -> list[dict[str, Any]]:
    rows_by_id = {_fold_cell(row.get("idx")): row for row in given}
    rows = []
    for group in groups:
        if not isinstance(group, Mapping):
            continue
        courses = [course for course in group.get("episodes") or () if isinstance(course, Mapping)]
        for finding in group.get("findings") or ():
            if not isinstance(finding, Mapping) or _fold_cell(finding.get("IDX")) not in rows_by_id:
                continue
            day = _fold_cell(finding.get("DAY"))
            course = next(
                (course.get("episode") for course in courses if day in map(_fold_cell, course.get("days") or ())), 1
            )
            about = {"entity_group": group.get("group_name"), "episode": course}
            rows.append({**rows_by_id[_fold_cell(finding["IDX"])], **about})
    return rows


def _count_pairs(labels: Any) -> int:
    return sum(count * (count - 1) // 2 for count in Counter(labels).values())


def _is_said(value: Any) -> bool:
    return not (
        value is None or (isinstance(value, float) and math.isnan(value)) or str(value).strip().lower() in ("", "nan")
    )


def _fold_cell(value: Any) -> str:
    """A cell as text that is the same for 1, 1.0 and "1"."""
    text = " ".join(str("" if value is None else value).lower().split())
    return text.removesuffix(".0") if text.removesuffix(".0").isdigit() else text


def _reference_rows(pair: AnsweredQuestion) -> list[dict[str, Any]] | None:
    """The rows of the right answer; None where it holds none."""
    texts = texts_among(pair.value) if pair.kind == "open" else ()
    return read_timeline(texts[0]) if texts else None


def _by_groups(
    pair: AnsweredQuestion, level: str, compared: Callable[[list[Hashable], list[Hashable]], float]
) -> float:
    """Compares groupings; NaN of fewer than two, 0 without groups."""
    reference_rows = _reference_rows(pair) or []
    if len(reference_rows) < 2 or any("idx" not in row for row in reference_rows):
        return math.nan
    rows = [row for row in read_timeline(pair.output, reference_rows) or [] if "idx" in row]
    return (
        compared(groups_of(reference_rows, reference_rows, level), groups_of(rows, reference_rows, level))
        if rows
        else 0.0
    )


def _shared_words(texts: Sequence[str], others: Sequence[str]) -> list[list[float]]:
    """Share of common words of two texts."""
    sets = [[frozenset(text.lower().split()) for text in some] for some in (texts, others)]
    return [[len(first & second) / len(first | second) for second in sets[1]] for first in sets[0]]


_groups = partial(
    answer_share,
    source=f"{SOURCE}, llm_utils.py",
    parameter="entity, episode, or either as published",
    parameter_is_text=True,
    check=lambda level: UsageError.refuse_unknown("timelines have no level", LEVELS, level),
)


@_groups(title="Pair F1 of groups")
def timeline_pair_f1(pair: AnsweredQuestion, level: str) -> float:
    """The F1 of pairs of a patient's findings that share a group of findings (`entity`) or a course (`episode`).

    In [0, 1]; 1 where neither side has a pair, 0 of an answer that groups nothing. NaN of fewer than two findings, and
    where none were given.
    """
    return _by_groups(pair, level, pair_f1)


@_groups(title="Purity of groups")
def timeline_purity(pair: AnsweredQuestion, level: str) -> float:
    """The share of a patient's findings whose true group is the most frequent one where they were put.

    In [0, 1], and 1 where each finding is alone: it is read beside `timeline_pair_f1`. 0 and NaN as there.
    """
    return _by_groups(pair, level, purity)


@answer_share(title="LUNGUAGESCORE over words", source="this package")
def lunguage_timeline_words(pair: AnsweredQuestion) -> float:
    """The arithmetic of LUNGUAGESCORE on a patient's findings, texts compared by the share of their words alone.

    In [0, 1]; needs no weights, and is no published number, as `lunguage_timeline` is. NaN where the patient has no
    finding.
    """
    reference = _reference_rows(pair)
    if reference is None:
        return math.nan
    rows = [row for row in read_timeline(pair.output, reference) or [] if row.get("entity")]
    return lunguage_of(reference, rows, _shared_words, temporal=True).f1


_scored = partial(
    answer_share,
    source=SOURCE,
    settings="rows of all studies of a patient; mean cosine of BioLORD-2023 and MedCPT; without rows 0",
    requires=comparisons("lunguage_timeline"),
)


@_scored(title="LUNGUAGESCORE, timeline")
def lunguage_timeline(pair: AnsweredQuestion) -> float:
    """The F1 of a patient's structured findings over all studies, matched by group, attributes, study and course.

    In [0, 1]; NaN where the patient has no finding on either side.
    """
    return read_part(pair, "lunguage_timeline", "f1")


@_scored(title="LUNGUAGESCORE, timeline, precision")
def lunguage_timeline_precision(pair: AnsweredQuestion) -> float:
    """The share of structured findings written that are in the patient's studies, as far as they are similar."""
    return read_part(pair, "lunguage_timeline", "precision")


@_scored(title="LUNGUAGESCORE, timeline, recall")
def lunguage_timeline_recall(pair: AnsweredQuestion) -> float:
    """The share of structured findings of the patient's studies that were written, as far as they are similar."""
    return read_part(pair, "lunguage_timeline", "recall")


@_scored(title="LUNGUAGESCORE, timeline, as published")
def lunguage_timeline_published(pair: AnsweredQuestion) -> float:
    """The same F1 where every course is the first, as in the authors' program, whose tables name courses otherwise."""
    return read_part(pair, "lunguage_timeline", "f1_published")
