"""Consistency between the reports of equivalent studies: by hand, beside a plain reading of ICON's rule, and fast."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.case import Case, Failure
from medimg_eval.errors import UsageError
from medimg_eval.evidence import EMPTY_EVIDENCE
from medimg_eval.metrics.answers.reply import AnsweredQuestion, Read
from medimg_eval.metrics.reports import icon_consistency as module
from medimg_eval.metrics.reports.icon_consistency import (
    Written,
    consistency,
    consistency_radgraph,
    consistency_radgraph_weighted,
    consistency_rules,
    consistency_rules_weighted,
    equivalents_by_observations,
    equivalents_in_sets,
    graph_attributes,
    overlap_coefficient,
    rule_attributes,
)
from medimg_eval.question import Key, Question
from medimg_eval.tasks import ReportTask
from tests.helpers.asking import Known, Quiz

fast = settings(deadline=None, max_examples=25)


def test_the_overlap_is_the_share_of_the_smaller_set():
    assert overlap_coefficient({"a", "b", "c"}, {"a", "b"}) == 1
    assert overlap_coefficient({"a", "b", "c", "d"}, {"a", "x", "y"}) == 1 / 3
    assert overlap_coefficient(set(), {"a"}) == overlap_coefficient(set(), set()) == 0


def test_three_studies_of_a_set_by_hand():
    references = [{"edema", "left"}, {"edema", "right"}, {"nodule"}, {"edema"}]
    predictions = [{"edema", "small"}, {"edema"}, {"edema"}, set()]
    found = consistency(predictions, references, equivalents_in_sets(["s", "s", "s", "t"]))
    # 0 and 1 agree by half in their references; 2 agrees with neither, and 3 is alone in its set.
    np.testing.assert_array_equal(found.compared, [1, 1, 0, 0])
    np.testing.assert_array_equal(found.overlap, [1, 1, np.nan, np.nan])
    np.testing.assert_array_equal(found.own, [0.5, 1, 0, 0])
    np.testing.assert_array_equal(found.weighted, [0.5, 1, np.nan, np.nan])


def test_an_empty_report_is_consistent_with_nothing():
    found = consistency([set(), {"edema"}], [{"edema"}, {"edema"}], [(0, 1), (1, 0)])
    assert found.overlap.tolist() == found.weighted.tolist() == [0, 0]
    found = consistency([set(), set()], [{"edema"}, {"edema"}], [(0, 1), (1, 0)])
    assert found.overlap.tolist() == [0, 0]
    found = consistency([{"edema"}] * 2, [set(), set()], [(0, 1), (1, 0)])
    assert np.isnan(found.overlap).all()


def test_studies_without_a_set_have_no_equivalents():
    assert equivalents_in_sets(["", None, "a", "a"]).tolist() == [[2, 3], [3, 2]]
    assert equivalents_in_sets([]).shape == equivalents_in_sets(["a"]).shape == (0, 2)


def test_equivalents_share_three_quarters_of_their_observations_and_no_study():
    observations = [{"a", "b", "c", "d"}, {"a", "b", "c", "x"}, {"a", "b"}, set(), {"a", "y"}]
    pairs = set(map(tuple, equivalents_by_observations(observations).tolist()))
    assert pairs == {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)}
    apart = equivalents_by_observations(observations, ["p", "p", "q", "r", "s"])
    assert set(map(tuple, apart.tolist())) == {(0, 2), (2, 0), (1, 2), (2, 1)}
    assert equivalents_by_observations([]).shape == (0, 2)


def plain(predictions, references, pairs):
    """ICON's loops."""
    overlaps, products = [], []
    for number in range(len(predictions)):
        others = [other for one, other in pairs if one == number]
        kept = [other for other in others if overlap_coefficient(references[number], references[other]) >= 0.5]
        if not kept:
            overlaps.append(math.nan)
            products.append(math.nan)
            continue
        own = overlap_coefficient(predictions[number], references[number])
        mean = sum(overlap_coefficient(predictions[number], predictions[other]) for other in kept) / len(kept)
        overlaps.append(mean)
        products.append(mean * own)
    return overlaps, products


attributes = st.sets(st.sampled_from("abcdef"), max_size=4)
studies = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        st.lists(attributes, min_size=n, max_size=n),
        st.lists(attributes, min_size=n, max_size=n),
        st.lists(st.sampled_from(["p", "q", ""]), min_size=n, max_size=n),
    )
)


@fast
@given(studies)
def test_any_studies_are_worth_what_the_plain_rule_says(drawn):
    predictions, references, sets = drawn
    for pairs in (equivalents_in_sets(sets), equivalents_by_observations(references)):
        overlaps, products = plain(predictions, references, pairs.tolist())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "HELD", 3)
            found = consistency(predictions, references, pairs)
            again = equivalents_by_observations(references)
        np.testing.assert_allclose(found.overlap, overlaps, atol=1e-12)
        np.testing.assert_allclose(found.weighted, products, atol=1e-12)
        assert set(map(tuple, again.tolist())) == set(map(tuple, equivalents_by_observations(references).tolist()))


@fast
@given(studies, st.randoms())
def test_order_does_not_matter_and_equal_reports_are_the_best(drawn, random):
    predictions, references, sets = drawn
    order = list(range(len(sets)))
    random.shuffle(order)
    found = consistency(predictions, references, equivalents_in_sets(sets)).overlap
    moved = consistency(
        [predictions[n] for n in order], [references[n] for n in order], equivalents_in_sets([sets[n] for n in order])
    ).overlap
    np.testing.assert_allclose(moved, found[order], atol=1e-12)
    same = [{"edema"}] * len(sets)
    known = consistency(same, same, equivalents_in_sets(sets))
    assert set(known.overlap[known.compared > 0]) <= {1.0}
    assert set(known.weighted[known.compared > 0]) <= {1.0}


def test_pairs_and_lists_that_do_not_fit_are_refused():
    with pytest.raises(UsageError, match="as many predictions as references, got 1 and 2"):
        consistency([{"a"}], [{"a"}, {"b"}], [])
    with pytest.raises(UsageError, match="numbered from 0 to 0, got 0, 1"):
        consistency([{"a"}], [{"a"}], [(0, 1)])


def test_two_thousand_studies_with_many_equivalents_take_a_moment():
    random = np.random.default_rng(0)
    words = np.array([f"w{n}" for n in range(60)])
    references = [set(random.choice(words[:12], 4)) for _ in range(2000)]
    predictions = [set(random.choice(words, 6)) for _ in range(2000)]
    begun = time.process_time()
    pairs = equivalents_by_observations(references)
    assert len(pairs) > 50_000
    consistency(predictions, references, pairs)
    assert time.process_time() - begun < 4


def test_attributes_are_findings_their_sides_and_their_changes():
    assert rule_attributes("Worsening left pleural effusion. No pneumothorax.") == {
        "Pleural Effusion",
        "Pleural Effusion: left",
        "Pleural Effusion: worse",
    }
    assert rule_attributes("") == rule_attributes("No edema.") == frozenset()


ANNOTATION = {
    "text": "small left effusion , no edema",
    "entities": {
        "1": {"tokens": "Small", "label": "OBS-DP", "relations": [["modify", "3"]]},
        "2": {"tokens": "left", "label": "ANAT-DP", "relations": []},
        "3": {"tokens": "effusion", "label": "OBS-DP", "relations": [["located_at", "2"]]},
        "4": {"tokens": "edema", "label": "OBS-DA", "relations": [["located_at", "5"]]},
        "5": {"tokens": "lungs", "label": "ANAT-DP", "relations": []},
    },
}


def test_a_graphs_attributes_are_what_is_there_with_its_modifiers_and_places():
    assert graph_attributes(ANNOTATION) == {"small", "left", "effusion"}
    spelt = {"entities": {"1": {"tokens": "Edema", "label": "Observation::uncertain", "relations": []}}}
    assert graph_attributes(spelt) == {"edema"}
    assert graph_attributes({"entities": {}}) == frozenset()


def pair(reference, text, *peers, **given):
    return AnsweredQuestion("report", text, reference, more={"peers": peers}, **given)


def test_a_report_is_compared_with_those_of_its_set():
    left, right = "Left pleural effusion.", "Right pleural effusion."
    peers = (
        Written((left,), "Pleural effusion.", {}),
        Written((right,), right, {}),
        Written(("Nodule.",), left, {}),  # another finding, so no equivalent
    )
    # {Effusion, left} with {Effusion}: 1; with {Effusion, right}: a half.
    assert consistency_rules(pair(left, left, *peers)) == pytest.approx(0.75)
    assert consistency_rules_weighted(pair(left, left, *peers)) == pytest.approx(0.75)
    assert consistency_rules_weighted(pair(left, right, *peers)) == pytest.approx((1 + 1) / 2 * 0.5)
    assert consistency_rules(pair(left, "", *peers)) == 0
    for judge in (consistency_rules, consistency_rules_weighted):
        assert math.isnan(judge(pair(left, left)))
        assert math.isnan(judge(pair(left, left, peers[2])))
        assert math.isnan(judge(pair("", left, *peers)))
        assert math.isnan(judge(AnsweredQuestion("choice", "A", "A", options={"A": "x", "B": "y"})))


def test_graphs_are_compared_where_there_are_any():
    read = Read(ANNOTATION, ANNOTATION)
    bare = Read(ANNOTATION, {"entities": {"1": {"tokens": "effusion", "label": "OBS-DP", "relations": []}}})
    peers = (Written(("x",), "y", {"radgraph": bare}), Written(("x",), "y", {"radgraph": None}))
    known = {"radgraph": read}
    assert consistency_radgraph(pair("x", "y", *peers, readings=known)) == 1
    assert consistency_radgraph_weighted(pair("x", "y", *peers, readings={"radgraph": bare})) == 1
    assert math.isnan(consistency_radgraph(pair("x", "y", *peers, readings={"radgraph": None})))
    assert math.isnan(consistency_radgraph(pair("x", "y", peers[1], readings=known)))


def test_the_reports_of_a_set_reach_each_other_through_their_task():
    left, edema = "Left pleural effusion.", "Mild edema."
    written = {"a": left, "b": "Pleural effusion.", "c": left, "d": left}
    cases = [
        Case(name, (), Known(Key(edema if name == "c" else left)), attributes=sets, question=Question("?", "report"))
        for name, sets in {"a": {"set": "s"}, "b": {"set": "s"}, "c": {"set": "s"}, "d": {}}.items()
    ]
    task = ReportTask(
        name="r", layout=Quiz(), template={"user": "{question}"}, splits={"test": "test"}, metrics=["consistency_rules"]
    )
    stored = {name: {"texts": [text]} for name, text in written.items()}
    context = task.context(cases, stored, EMPTY_EVIDENCE)
    found = {case.id: [score.value for score in task.score(case, stored[case.id], context=context)] for case in cases}
    assert found == {"a": [1.0], "b": [1.0], "c": [], "d": []}
    context = task.context(cases, {**stored, "b": Failure("b", "answer", "no answer")}, EMPTY_EVIDENCE)
    assert [score.value for score in task.score(cases[0], stored["a"], context=context)] == [0.0]
