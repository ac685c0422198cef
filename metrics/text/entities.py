"""Entities and relations that are read out of a text: precision, recall and F1 of exact and of overlapping spans."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from medimg_eval.errors import UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import evidence_metric, share_summary
from medimg_eval.metrics.nlp import normalised
from medimg_eval.metrics.proportions import quotient
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.text.texts import texts_of

SOURCE = "SemEval-2013 task 9 (strict, partial and type matching); relations as in n2c2"

MATCHES = ("exact", "partial", "type_free", "relations")
"""How two count as the same: span and type; overlapping spans of one type; the span alone; relations of exact spans."""

_LIST = re.compile(r"\{.*\}|\[.*\]", re.DOTALL)


class Entity(NamedTuple):
    """Entity: lower-case words, type, begin and end (-1 if untold)."""

    text: str
    kind: str
    start: int
    end: int

    def overlaps(self, other: Entity) -> bool:
        """Whether both share letters, or words where places are not told."""
        if self.start >= 0 and other.start >= 0:
            return self.start < other.end and other.start < self.end
        return bool(set(self.text.split()) & set(other.text.split()))


Read = tuple[list[Entity], list[tuple[Any, ...]]]
"""Entities and relations; a relation is its kind with its two entities."""


def read_entities(text: str) -> Read | None:
    """Returns entities and relations of a JSON text; else None.

    It is a list of entities `{"text", "type", "start", "end"}`, of which start and end may lack, or an object with
    `entities` and `relations` `{"type", "head", "tail"}`, whose head and tail are places in the list of entities. What
    stands about the JSON, such as a fence, is left out; entries of another form are left out too.
    """
    for candidate in [text.strip(), *(match[0] for match in _LIST.finditer(text))]:
        try:
            content = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(content, Mapping) and isinstance(content.get("entities"), list):
            entities = [_read_entity(item) for item in content["entities"]]
            relations = [_read_relation(item, entities) for item in content.get("relations") or []]
            return [entity for entity in entities if entity], [relation for relation in relations if relation]
        if isinstance(content, list):
            return [item for item in map(_read_entity, content) if item], []
    return None


def _read_entity(one: Any) -> Entity | None:
    if not isinstance(one, Mapping) or not isinstance(one.get("text"), str):
        return None
    start, end = (position if type(position) is int else -1 for position in (one.get("start"), one.get("end")))
    kind = normalised(str(one.get("type", "")))
    return Entity(normalised(one["text"]), kind, *((start, end) if min(start, end) >= 0 else (-1, -1)))


def _read_relation(one: Any, entities: Sequence[Entity | None]) -> tuple[Any, ...] | None:
    if not isinstance(one, Mapping):
        return None
    indices = [index if type(index) is int else -1 for index in (one.get("head"), one.get("tail"))]
    if not all(0 <= index < len(entities) for index in indices):
        return None
    head, tail = (entities[index] for index in indices)
    if head is None or tail is None:
        return None
    return normalised(str(one.get("type", ""))), head, tail


def matched(said: Read, due: Read, how: str) -> int:
    """Returns one-to-one matches, by one of `MATCHES`.

    Words are the span where the place of any entity is not told.

    Raises:
        UsageError: there is no such way.
    """
    UsageError.refuse_invalid("way to match entities", MATCHES, how)
    if how == "partial":
        return _count_overlapping(said[0], due[0])
    placed = all(entity.start >= 0 for entity in (*said[0], *due[0]))

    def span(entity: Entity) -> Any:
        return (entity.start, entity.end) if placed else entity.text

    keys: Mapping[str, Callable[[Read], list[Any]]] = {
        "exact": lambda read: [(span(entity), entity.kind) for entity in read[0]],
        "type_free": lambda read: [span(entity) for entity in read[0]],
        "relations": lambda read: [
            (kind, span(head), head.kind, span(tail), tail.kind) for kind, head, tail in read[1]
        ],
    }
    unmatched = list(keys[how](due))
    count = 0
    for key in keys[how](said):
        if key in unmatched:
            unmatched.remove(key)
            count += 1
    return count


def _count_overlapping(said: Sequence[Entity], due: Sequence[Entity]) -> int:
    from scipy.optimize import linear_sum_assignment

    if not said or not due:
        return 0
    fits = np.array(
        [
            [entity.kind == other_entity.kind and entity.overlaps(other_entity) for other_entity in due]
            for entity in said
        ]
    )
    rows, columns = linear_sum_assignment(~fits)
    return int(fits[rows, columns].sum())


@evidence_metric(kind="answer", title="Entities", source=SOURCE)
def entity_counts(pair: AnsweredQuestion) -> Any:
    """Entities and relations said, due, and matched in each of the ways. Evidence.

    A reply that holds no JSON says none; NaN where the key holds none.
    """
    texts = texts_of(pair)
    due = None if texts is None else read_entities(texts[1][0])
    labels = [*(f"matched {how}" for how in MATCHES), "said", "due", "said relations", "due relations"]
    if texts is None or due is None:
        return dict.fromkeys(labels, math.nan)
    read_pair = read_entities(texts[0]) or ([], [])
    counts = [matched(read_pair, due, how) for how in MATCHES]
    return dict(zip(labels, [*counts, len(read_pair[0]), len(due[0]), len(read_pair[1]), len(due[1])], strict=True))


def _entity_pieces(rows: ScoreTable, how: str) -> npt.NDArray[np.float64]:
    suffix = " relations" if how == "relations" else ""
    value = np.nan_to_num(rows.value)
    labels = (f"matched {how}", f"said{suffix}", f"due{suffix}")
    return np.stack([np.where(rows.label == label, value, 0.0) for label in labels], axis=-1)


def _check_matching(how: str) -> None:
    UsageError.refuse_invalid("way to match entities", MATCHES, how)


_of_counts = partial(
    share_summary,
    needs=("entity_counts",),
    source=SOURCE,
    settings="tokeniser: none, spans as they are stated",
    parameter=", ".join(MATCHES),
    parameter_is_text=True,
    check=_check_matching,
    pieces=_entity_pieces,
)


@_of_counts(title="Entity precision")
def entity_precision(sums: npt.NDArray[np.float64], how: str) -> Any:
    """The share of the entities or relations said that are due, over all texts; NaN where none is said."""
    return quotient(sums[..., 0], sums[..., 1])


@_of_counts(title="Entity recall")
def entity_recall(sums: npt.NDArray[np.float64], how: str) -> Any:
    """The share of the entities or relations due that are said, over all texts; NaN where none is due."""
    return quotient(sums[..., 0], sums[..., 2])


@_of_counts(title="Entity F1")
def entity_f1(sums: npt.NDArray[np.float64], how: str) -> Any:
    """The F1 of entities or relations over all texts (micro); NaN where none is said or due."""
    return quotient(2 * sums[..., 0], sums[..., 1] + sums[..., 2])
