"""Graphs of reports: RadGraph F1, and what RadCliQ takes of it, on annotations as RadGraph publishes them.

An annotation is `{"text": ..., "entities": {"1": {"tokens": ..., "label": ..., "start_ix": ..., "end_ix": ...,
"relations": [["located_at", "2"], ...]}, ...}}`; the number of an entity is its name in relations. Which model read the
reports decides the numbers as much as the level does, so the names of the metrics say both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, Literal

from medimg_eval.errors import CaseError, UsageError
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.declarations import answer_share
from medimg_eval.metrics.registry import read_by
from medimg_eval.metrics.text import read_value

Level = Literal["simple", "partial", "complete"]
Annotation = Mapping[str, Any]

JAIN = "Jain et al. 2021; Delbrouck et al. 2022, 2024; radgraph"
YU = "Yu et al. 2023, CXR-Report-Metric"

_MATCHED: Mapping[Level, str] = {
    "simple": "entity",
    "partial": "entity_has_relation",
    "complete": "entity_relation",
}
"""What is compared at each level, as the metrics are called."""

LEVELS: Mapping[Level, str] = {
    "simple": "The F1 of the entities (words and label) that {} finds in report and reference.",
    "partial": "The F1 of the entities that {} finds, each told apart by whether it has a relation.",
    "complete": "The F1 of the entities that {} finds, with their relations and the words that these point at.",
}
"""What each level compares."""

FAMILIES = {"radgraph": "RadGraph", "radgraph_xl": "RadGraph-XL", "modern_radgraph_xl": "Modern RadGraph-XL"}
"""Annotators whose graphs are compared."""


def radgraph_f1(reference: Annotation, prediction: Annotation, level: Level = "partial") -> float:
    """Returns RadGraph F1 of two annotations at one level.

    The F1 of two sets, of what each level makes of an entity. Words are in lower case, so that an entity that is named
    twice counts once. Delbrouck et al. 2022 call the levels RG_E, RG_ER and RG_ER with a bar; "RadGraph F1" in papers
    is mostly `partial`.

    Args:
        reference: as RadGraph publishes it.
        prediction: likewise.
        level: `simple` compares (words, label); `partial` also whether the entity has a relation; `complete`
            (words, label, relation, words of its target) for each relation, and (words, label) where there is none.

    Returns:
        In [0, 1]. 0 where either side has no entity, also where both have none.

    Raises:
        UsageError: no such level.
        CaseError: a relation points at an entity that is not there.
    """
    UsageError.refuse_invalid("level", LEVELS, level)
    return _set_f1(_annotation_facts(reference, level), _annotation_facts(prediction, level))


def radgraph_combined(reference: Annotation, prediction: Annotation) -> float:
    """Returns RadGraph's mean of entity and relation F1, in [0, 1].

    Entities are (words, label), relations (entity, entity at which it points, type), with case as it is. Unlike in
    `radgraph_f1`, relations count for themselves: identical reports without a relation have 0.5, because the F1 of two
    empty sets is 0.

    Raises:
        CaseError: a relation points at an entity that is not there.
    """
    entities = _set_f1(_annotation_entities(reference), _annotation_entities(prediction))
    return (entities + _set_f1(_annotation_relations(reference), _annotation_relations(prediction))) / 2


def _set_f1(one: Set[Any], other: Set[Any]) -> float:
    return 2 * len(one & other) / (len(one) + len(other)) if one and other else 0.0


def _annotation_facts(annotation: Annotation, level: Level) -> Set[tuple[Any, ...]]:
    facts: set[tuple[Any, ...]] = set()
    for entity in annotation["entities"].values():
        plain = (entity["tokens"].lower(), entity["label"])
        related = entity["relations"]
        if level == "simple" or not related:
            facts.add(plain)
        elif level == "partial":
            facts.add((*plain, True))
        else:
            facts |= {(*plain, kind, _relation_target(annotation, name)["tokens"].lower()) for kind, name in related}
    return facts


def _annotation_entities(annotation: Annotation) -> Set[tuple[str, str]]:
    return {(entity["tokens"], entity["label"]) for entity in annotation["entities"].values()}


def _annotation_relations(annotation: Annotation) -> Set[tuple[Any, ...]]:
    return {
        (entity["tokens"], entity["label"], target["tokens"], target["label"], kind)
        for entity in annotation["entities"].values()
        for kind, name in entity["relations"]
        for target in (_relation_target(annotation, name),)
    }


def _relation_target(annotation: Annotation, name: str) -> Mapping[str, Any]:
    try:
        target: Mapping[str, Any] = annotation["entities"][name]
    except KeyError:
        raise CaseError(
            f"a relation in the annotation of {annotation.get('text', '')[:60]!r} points at entity {name!r}, and there "
            f"are {len(annotation['entities'])}; expected RadGraph's published JSON"
        ) from None
    return target


def _compare_graphs(
    pair: AnsweredQuestion, annotator: str, compare: Callable[[Annotation, Annotation], float]
) -> float:
    return read_value(pair, annotator, lambda read: compare(read.reference, read.prediction))


def _declare_metric(family: str, title: str, level: Level) -> None:
    def judged(pair: AnsweredQuestion) -> float:
        return _compare_graphs(pair, family, lambda reference, prediction: radgraph_f1(reference, prediction, level))

    judged.__doc__ = LEVELS[level].format(title)
    answer_share(
        name=f"{family}_f1_{_MATCHED[level]}",
        title=f"{title} F1 ({level})",
        source=JAIN,
        settings=f"sets of {level} facts in lower case, mean of reports, 0 where either side has no entity",
        requires=read_by(family),
    )(judged)


for _family, _title in FAMILIES.items():
    for _level in LEVELS:
        _declare_metric(_family, _title, _level)


@answer_share(
    name="radgraph_combined",
    title="RadGraph (combined)",
    source=YU,
    settings="case kept, 0.5 at most where neither side has a relation",
    requires=read_by("radgraph"),
)
def _combined_f1(pair: AnsweredQuestion) -> float:
    """The mean of entity F1 and relation F1 that RadCliQ takes, of what RadGraph finds in report and reference."""
    return _compare_graphs(pair, "radgraph", radgraph_combined)
