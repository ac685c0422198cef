"""RadGraph F1 on annotations as RadGraph publishes them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import CaseError, UsageError
from medimg_eval.metrics import get
from medimg_eval.metrics.answers.reply import AnsweredQuestion, Read
from medimg_eval.metrics.nlp.corpus import Corpus
from medimg_eval.metrics.registry import Requirement
from medimg_eval.metrics.reports.radgraph import FAMILIES, LEVELS, radgraph_combined, radgraph_f1

PRESENT, ABSENT, ANATOMY = "Observation::definitely present", "Observation::definitely absent", "Anatomy"
NOTHING = {"text": "", "entities": {}}


def annotation(*entities):
    """Entities as (words, label, *relations), each relation as (type, number of the target)."""
    return {
        "text": " ".join(entity[0] for entity in entities),
        "entities": {
            str(number): {
                "tokens": words,
                "label": label,
                "start_ix": number,
                "end_ix": number,
                "relations": [[kind, str(target)] for kind, target in relations],
            }
            for number, (words, label, *relations) in enumerate(entities, start=1)
        },
    }


def three(reference, prediction):
    return [radgraph_f1(reference, prediction, level) for level in LEVELS]


REFERENCE = annotation(
    ("Edema", PRESENT, ("located_at", 2)), ("lungs", ANATOMY), ("effusion", ABSENT), ("mild", PRESENT, ("modify", 1))
)
PREDICTION = annotation(("edema", PRESENT), ("lungs", ANATOMY), ("effusion", ABSENT), ("mild", PRESENT, ("modify", 2)))


def test_each_level_by_hand():
    assert three(REFERENCE, PREDICTION) == [
        1.0,  # the same words and labels
        2 * 3 / (4 + 4),  # edema has a relation on one side alone
        2 * 2 / (4 + 4),  # and mild points at something else
    ]


def test_an_entity_with_two_relations_counts_twice_at_the_complete_level_alone():
    reference = annotation(("opacity", PRESENT, ("located_at", 2), ("suggestive_of", 3)), ("base", ANATOMY), ("p", "U"))
    prediction = annotation(("opacity", PRESENT, ("located_at", 2)), ("base", ANATOMY), ("p", "U"))
    assert three(reference, prediction) == [1.0, 1.0, pytest.approx(2 * 3 / (4 + 3))]


def test_the_values_that_the_package_prints_follow_from_graphs_of_their_shape():
    """Six entities of which one has a relation, beside eight of which others do: 4, 3 and 3 in common of 14, 14, 15."""
    prediction = annotation(
        ("acute", "D"), ("organ", "A"), ("process", "D", ("located_at", 2)), ("m", "P"), ("site", "A"), ("hernia", "P")
    )
    reference = annotation(
        *(("acute", "D"), ("lung", "A"), ("process", "D"), ("rather", "P", ("modify", 5), ("modify", 8))),
        *(("large", "P", ("modify", 8)), ("size", "P", ("modify", 8)), ("site", "A"), ("hernia", "P")),
    )
    assert three(reference, prediction) == pytest.approx([0.5714285714285715, 0.42857142857142855, 0.4])


def test_what_is_said_twice_counts_once():
    once, twice = annotation(("edema", PRESENT)), annotation(("edema", PRESENT), ("Edema", PRESENT))
    assert three(once, twice) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("pair", [(NOTHING, REFERENCE), (REFERENCE, NOTHING), (NOTHING, NOTHING)])
def test_a_side_without_entities_has_0_also_where_neither_has_any(pair):
    assert three(*pair) == [0.0, 0.0, 0.0]
    assert radgraph_combined(*pair) == 0.0


def test_combined_is_the_mean_of_entities_and_relations_with_case():
    assert radgraph_combined(REFERENCE, REFERENCE) == 1.0
    assert (
        radgraph_combined(REFERENCE, PREDICTION) == (2 * 3 / 8 + 0) / 2
    )  # "Edema" is not "edema", mild points elsewhere
    related = annotation(("Edema", PRESENT, ("located_at", 2)), ("lungs", ANATOMY))
    assert radgraph_combined(REFERENCE, related) == pytest.approx((2 * 2 / 6 + 2 * 1 / 3) / 2)


def test_combined_of_identical_reports_without_a_relation_is_a_half():
    alone = annotation(("effusion", ABSENT))
    assert radgraph_combined(alone, alone) == 0.5
    assert three(alone, alone) == [1.0, 1.0, 1.0]


def test_what_cannot_be_meant_is_said():
    with pytest.raises(UsageError, match="level is invalid: .*got 'partly'"):
        radgraph_f1(REFERENCE, REFERENCE, "partly")
    broken = annotation(("edema", PRESENT, ("modify", 7)))
    with pytest.raises(CaseError, match="points at entity '7', and there are 1"):
        radgraph_f1(broken, REFERENCE, "complete")
    with pytest.raises(CaseError, match="points at entity '7'"):
        radgraph_combined(broken, REFERENCE)


@st.composite
def annotations(draw):
    size = draw(st.integers(0, 5))
    relation = st.tuples(st.sampled_from(["modify", "located_at"]), st.integers(1, max(1, size)))
    return annotation(
        *(
            (
                draw(st.sampled_from(["edema", "Edema", "left lung", "lung"])),
                draw(st.sampled_from([PRESENT, ANATOMY])),
                *draw(st.lists(relation, max_size=2)),
            )
            for _ in range(size)
        )
    )


def naive(reference, prediction, level):
    """The definitions once more, with lists."""

    def facts(found):
        made = []
        for entity in found["entities"].values():
            fact = [entity["tokens"].lower(), entity["label"]]
            if level == "simple" or entity["relations"] == []:
                made.append(fact)
            elif level == "partial":
                made.append([*fact, "has a relation"])
            else:
                for kind, target in entity["relations"]:
                    made.append([*fact, kind, found["entities"][target]["tokens"].lower()])
        return [fact for place, fact in enumerate(made) if fact not in made[:place]]

    due, said = facts(reference), facts(prediction)
    hits = sum(fact in due for fact in said)
    if not hits:
        return 0.0
    precision, recall = hits / len(said), hits / len(due)
    return 2 * precision * recall / (precision + recall)


@given(annotations(), annotations(), st.sampled_from(list(LEVELS)))
@settings(deadline=None, max_examples=30)
def test_bounds_symmetry_and_the_definition_once_more(one, other, level):
    value = radgraph_f1(one, other, level)
    assert value == pytest.approx(naive(one, other, level))
    assert 0 <= value <= 1
    assert value == radgraph_f1(other, one, level)
    assert 0 <= radgraph_combined(one, other) <= 1
    assert radgraph_combined(one, other) == radgraph_combined(other, one)
    if one["entities"]:
        assert radgraph_f1(one, one, level) == 1.0
        assert radgraph_combined(one, one) in (0.5, 1.0)


def pair(read, text="Edema.", kind="report", family="radgraph_xl"):
    return AnsweredQuestion(kind, text, "Mild edema.", readings={family: read}, corpus=Corpus([("Mild edema.",)]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", LEVELS)
def test_metrics_are_named_after_the_model_and_the_level(family, level):
    found = get(f"{family}_{level}")
    assert found.requires == (Requirement("annotation", family),)
    assert level in found.settings
    assert FAMILIES[family] in found.title
    value = found.function(pair(Read(REFERENCE, PREDICTION), family=family))
    assert value == radgraph_f1(REFERENCE, PREDICTION, level)


def test_metrics_judge_reports_alone_and_not_where_the_annotator_failed():
    partial = get("radgraph_xl_f1_entity_has_relation").function
    assert partial(pair(Read(REFERENCE, NOTHING), text="")) == 0.0
    assert math.isnan(partial(pair(None)))
    assert math.isnan(partial(pair(Read(REFERENCE, REFERENCE), kind="number")))
    combined = get("radgraph_combined")
    assert combined.requires == (Requirement("annotation", "radgraph"),)
    assert combined.function(pair(Read(REFERENCE, REFERENCE), family="radgraph")) == 1.0
