"""Entities and relations: spans by hand, beside sets of scikit-learn's kind, and what replies may look like."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics import parse
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.scores import LabelScore
from medimg_eval.metrics.text.entities import MATCHES, entity_counts, matched, read_entities
from tests.helpers.rows import run_of


def entity(text, kind, start=None, end=None):
    return {"text": text, "type": kind, **({} if start is None else {"start": start, "end": end})}


def value(name, *pairs):
    """A summary over texts, each given as what was said and what is due."""
    found, parameter = parse(name)
    scored = (entity_counts(AnsweredQuestion("open", said, [due])).items() for said, due in pairs)
    rows = run_of(*([LabelScore(key, "entity_counts", count, "") for key, count in one] for one in scored))
    return found.function(rows, parameter)


DUE = [entity("aspirin", "Drug", 0, 7), entity("chest pain", "Symptom", 12, 22)]
SAID = [entity("aspirin", "Drug", 0, 7), entity("pain", "Symptom", 18, 22), entity("pain", "Drug", 18, 22)]


def test_spans_by_hand():
    pair = (json.dumps(SAID), json.dumps(DUE))
    assert value("entity_precision@exact", pair) == pytest.approx(1 / 3)
    assert value("entity_recall@exact", pair) == 1 / 2
    assert value("entity_f1@exact", pair) == pytest.approx(2 / 5)
    assert value("entity_f1@partial", pair) == pytest.approx(4 / 5)
    assert value("entity_f1@type_free", pair) == pytest.approx(2 / 5)
    # Over two texts counts are added up.
    assert value("entity_f1@exact", pair, (json.dumps(DUE), json.dumps(DUE))) == pytest.approx(2 * 3 / (5 + 4))


def test_without_places_words_tell_whether_spans_overlap():
    due, said = json.dumps([entity("Chest Pain", "symptom")]), json.dumps([entity("pain", "Symptom")])
    assert value("entity_f1@exact", (said, due)) == 0
    assert value("entity_f1@partial", (said, due)) == 1


def test_relations_need_both_ends_and_their_kind():
    def told(kind, entities=DUE):
        return json.dumps({"entities": entities, "relations": [{"type": kind, "head": 0, "tail": 1}]})

    assert value("entity_f1@relations", (told("treats"), told("Treats"))) == 1
    assert value("entity_f1@relations", (told("causes"), told("treats"))) == 0
    assert value("entity_f1@relations", (told("treats", SAID), told("treats"))) == 0
    assert math.isnan(value("entity_f1@relations", (json.dumps(DUE), json.dumps(DUE))))


@pytest.mark.parametrize(
    ("reply", "count"),
    [
        ('Here they are:\n```json\n[{"text": "aspirin", "type": "Drug"}]\n```', 1),
        ('{"entities": [{"text": "aspirin"}, {"type": "Drug"}, 3]}', 1),
        ('{"entities": [{"text": "a"}], "relations": [{"type": "x", "head": 0, "tail": 5}, 1]}', 1),
        ("[]", 0),
        ("none", None),
        ('{"drugs": []}', None),
    ],
)
def test_what_replies_may_look_like(reply, count):
    found = read_entities(reply)
    assert (None if found is None else len(found[0])) == count
    assert found is None or found[1] == []


def test_words_are_the_span_where_one_side_tells_no_place():
    due = [entity("aspirin", "drug", 0, 7), entity("ulcer", "symptom", 15, 20)]
    said = [{"text": "Aspirin", "type": "Drug"}, {"text": "ulcer", "type": "drug"}]
    texts = (json.dumps(said), json.dumps(due))
    assert value("entity_f1@exact", texts) == 1 / 2
    assert value("entity_f1@type_free", texts) == 1
    bound = [{"type": "causes", "head": 0, "tail": 1}]
    texts = [
        json.dumps({"entities": some, "relations": bound}) for some in ([said[0], {**said[1], "type": "symptom"}], due)
    ]
    assert value("entity_f1@relations", texts) == 1


def test_what_is_not_said_or_due():
    due = json.dumps(DUE)
    assert value("entity_recall@exact", ("I cannot.", due)) == 0
    assert math.isnan(value("entity_precision@exact", ("I cannot.", due)))
    assert math.isnan(value("entity_f1@exact", ("[]", "[]")))
    assert math.isnan(value("entity_f1@exact", (due, "no key")))
    with pytest.raises(UsageError, match="way to match entities is invalid"):
        parse("entity_f1@loose")
    with pytest.raises(UsageError, match="way to match entities is invalid"):
        matched(([], []), ([], []), "loose")


ENTITIES = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 4), st.sampled_from(["drug", "symptom"])), max_size=6, unique=True
)


@given(ENTITIES, ENTITIES)
def test_exact_f1_is_that_of_sets_and_never_above_the_partial_one(said, due):
    texts = [json.dumps([entity("x", kind, at, at + long) for at, long, kind in one]) for one in (said, due)]
    shared = len(set(said) & set(due))
    if said or due:
        assert value("entity_f1@exact", texts) == pytest.approx(2 * shared / (len(said) + len(due)))
        assert value("entity_f1@partial", texts) >= value("entity_f1@exact", texts) - 1e-12
    for how in MATCHES[:3]:
        assert matched(read_entities(texts[1]), read_entities(texts[1]), how) == len(due)
