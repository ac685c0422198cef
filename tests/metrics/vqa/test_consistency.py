"""Protocols over sets: by hand, against brute force, for chance, and under a bootstrap that draws sets twice."""

import json
import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, available, parse
from medimg_eval.metrics.agreement.kappa import cohen_kappa
from medimg_eval.metrics.vqa.question_sets import group_accuracy
from medimg_eval.results.runs.subsets import Part
from medimg_eval.results.statistics.summaries import summarise

FEW = settings(deadline=None, max_examples=30)
NONE = -1.0
SETS = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=4), min_size=1, max_size=6)


def rows_of(sets, metric="accuracy", **attributes):
    """Rows of sets, each a list of values, with further attributes as lists of the same form."""
    flat = [(str(name), str(member), one) for name, values in enumerate(sets) for member, one in enumerate(values, 1)]
    names, members, values = zip(*flat, strict=True)
    further = {key: np.array([one for held in lists for one in held]) for key, lists in attributes.items()}
    return ScoreTable(
        np.arange(len(flat)),
        np.full(len(flat), metric),
        np.full(len(flat), "choice"),
        np.array(values, float),
        np.full(len(flat), "right"),
        {"set": np.array(names), "member": np.array(members), **further},
        len(flat),
        {},
    )


def summed(name, rows):
    found, parameter = parse(name)
    return found.function(rows) if parameter is None else found.function(rows, parameter)


def shuffled(rows, seed=0):
    return rows.where(np.random.default_rng(seed).permutation(len(rows.case)))


def mean(values):
    return sum(values) / len(values)


def before_failure(steps):
    return next((at for at, hit in enumerate(steps) if not hit), len(steps))


def test_sets_by_hand():
    rows = rows_of([[1, 1], [1, 0], [0, 0], [1]])
    assert summed("group_accuracy", rows) == 0.5
    assert summed("first_step_accuracy", rows) == 0.75
    assert summed("step_hit_rate", rows) == 4 / 7
    assert summed("weighted_prefix_score", rows) == pytest.approx((1.8 + 1 + 0 + 1) / 4)


@given(SETS, st.integers(0, 9))
@FEW
def test_sets_and_steps_equal_brute_force_in_any_order(sets, seed):
    rows = shuffled(rows_of(sets), seed)
    assert summed("group_accuracy", rows) == pytest.approx(mean([all(one) for one in sets]))
    assert summed("first_step_accuracy", rows) == pytest.approx(mean([one[0] for one in sets]))
    reached = [before_failure(one) for one in sets]
    assert summed("step_hit_rate", rows) == pytest.approx(sum(reached) / sum(map(len, sets)))
    weighted = [sum(0.8**step for step in range(steps)) for steps in reached]
    assert summed("weighted_prefix_score", rows) == pytest.approx(mean(weighted))


CHANCES = st.lists(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=3), min_size=1, max_size=2)


@pytest.mark.parametrize("name", ["group_accuracy", "first_step_accuracy", "step_hit_rate", "weighted_prefix_score"])
@given(CHANCES)
@settings(deadline=None, max_examples=10)
def test_credit_in_part_gives_the_expected_value_over_all_outcomes(name, chances):
    flat = [one for held in chances for one in held]
    expected = 0.0
    for outcome in product([0.0, 1.0], repeat=len(flat)):
        likely = math.prod(one if hit else 1 - one for hit, one in zip(outcome, flat, strict=True))
        if likely:
            left = iter(outcome)
            expected += likely * summed(name, rows_of([[next(left) for _ in held] for held in chances]))
    assert summed(name, rows_of(chances)) == pytest.approx(expected)


def test_a_tenth_member_comes_after_the_second():
    steps = [1.0] * 9 + [0.0, 1.0]
    assert summed("step_hit_rate", shuffled(rows_of([steps]))) == 9 / 11


def test_a_set_that_was_drawn_twice_counts_as_two():
    once = rows_of([[1, 1], [1, 0]])
    twice = ScoreTable(
        np.array([0, 1, 2, 3, 4, 5]),
        np.full(6, "accuracy"),
        np.full(6, "choice"),
        np.array([1, 1, 1, 1, 1, 0], float),
        np.full(6, "right"),
        {"set": np.array(["0"] * 4 + ["1"] * 2), "member": np.array(["1", "2"] * 3)},
        6,
        {},
    )
    assert (summed("group_accuracy", once), summed("group_accuracy", twice)) == (0.5, 2 / 3)
    assert summed("step_hit_rate", twice) == 5 / 6
    assert summed("group_accuracy", shuffled(twice)) == 2 / 3


def part_of(cases, metric, clusters):
    """A part of a run: of each case its id, set, member, value and further attributes; and what is resampled."""
    scores = pd.DataFrame(
        {
            "case": [case for case, *_ in cases],
            "metric": metric,
            "label": "choice",
            "value": [value for *_, value, _ in cases],
            "status": "right",
            "attributes": [json.dumps({"set": name, "member": member, **more}) for _, name, member, _, more in cases],
        }
    )
    return Part(SimpleNamespace(facts={}, metrics=()), scores, pd.Series(clusters, index=scores["case"]))


def naive(cases, clusters, judge, resamples, seed):
    """What a bootstrap gives that puts whole clusters into a list, with a name of its own for each draw of a set."""
    names = sorted(set(clusters))
    values = []
    for drawn in np.random.default_rng(seed).integers(len(names), size=(resamples, len(names))):
        sets = {}
        for draw, cluster in enumerate(drawn):
            for (_, name, member, value, more), owner in zip(cases, clusters, strict=True):
                if owner == names[cluster]:
                    sets.setdefault((draw, name), {})[member] = (value, more)
        values.append(judge(list(sets.values())))
    return np.array(values)


@pytest.mark.parametrize("by_set", [True, False])
def test_the_interval_of_a_set_protocol_equals_a_naive_bootstrap(by_set):
    """Also where an image is resampled that has several sets, whose questions take turns."""
    rng = np.random.default_rng(1)
    cases = [
        (f"case{at:02d}", f"image{at // 8}/family{at % 2}", str(at % 8 // 2 + 1), float(rng.random() < 0.8), {})
        for at in range(40)
    ]
    clusters = [name if by_set else name.split("/")[0] for _, name, *_ in cases]
    found = summarise("group_accuracy", part_of(cases, "accuracy", clusters), resamples=80, level=0.9, seed=3)

    def share(sets):
        return mean([all(value for value, _ in one.values()) for one in sets])

    assert found.mean == share(
        [{m: (v, o) for _, n, m, v, o in cases if n == name} for name in {n for _, n, *_ in cases}]
    )
    expected = naive(cases, clusters, share, 80, 3)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(expected, [0.05, 0.95])))
    steps = summarise("step_hit_rate", part_of(cases, "accuracy", clusters), resamples=80, level=0.9, seed=3)
    hits = naive(cases, clusters, lambda sets: _step_hits([[v for v, _ in one.values()] for one in sets]), 80, 3)
    assert (steps.low, steps.high) == pytest.approx(tuple(np.quantile(hits, [0.05, 0.95])))


def _step_hits(sets):
    return sum(map(before_failure, sets)) / sum(map(len, sets))


def test_kappa_and_confusion_under_a_bootstrap():
    rng = np.random.default_rng(2)
    cases = [
        (f"case{at:02d}", f"item{at // 2}", str(at % 2 + 1), float(rng.integers(1, 3)), {"language": "ab"[at % 2]})
        for at in range(30)
    ]
    clusters = [name for _, name, *_ in cases]

    def same(sets):
        return mean([len({value for value, _ in one.values()}) == 1 for one in sets])

    def agreement(sets):
        sides = [[value for one in sets for value, more in one.values() if more["language"] == name] for name in "ab"]
        return cohen_kappa_score(*sides)

    for name, judge in (("confusion", same), ("kappa@language", agreement)):
        found = summarise(name, part_of(cases, "predicted_position", clusters), resamples=40, level=0.9, seed=5)
        expected = naive(cases, clusters, judge, 40, 5)
        assert (found.low, found.high) == pytest.approx(tuple(np.quantile(expected, [0.05, 0.95])))


def test_probmeds_image_is_right_in_a_family_if_all_its_pairs_are():
    """Three images: all pairs right; the adversarial twin wrong; a normal image, which has only its adversarial one."""
    sets = [[1, 1, 1, 1], [1, 0], [1], [0]]
    kinds = [["entity_gt_1", "entity_hallu_1", "entity_gt_2", "entity_hallu_2"], ["entity_gt_1", "entity_hallu_1"]]
    rows = rows_of(sets, qa_type=[*kinds, ["entity_hallu"], ["entity_hallu"]])
    assert summed("group_accuracy", rows) == 0.5
    assert summed("group_accuracy_among@qa_type=*_gt_*", rows) == 0.75
    assert summed("group_accuracy_among@qa_type=*_hallu*", rows) == 0.5
    assert summed("group_accuracy_among@qa_type=none of these", rows) == 0.5


def test_probmeds_program_weighs_places_by_images_that_have_none():
    """Three images of CT, of which one has places, and one of X-ray; the numbers are those of calculate_score.py."""
    pair = ["grounding_gt_1", "grounding_hallu_1"]
    whole = ["modality_gt", "modality_hallu"]
    sets = [[1, 1], [1, 0], [1, 1], [1, 1], [1, 1], [0, 1]]
    kinds, asked = ["ct", "ct", "ct", "x-ray", "ct", "x-ray"], [whole] * 4 + [pair] * 2
    rows = rows_of(
        sets,
        qa_type=asked,
        image_type=[[kind] * 2 for kind in kinds],
        family=[[one[0].split("_")[0]] * 2 for one in asked],
    )
    assert summed("group_accuracy", rows) == 4 / 6
    assert summed("group_accuracy_probmed@modality", rows) == 3 / 4
    # Of CT's one image with places the share is 1 and weighs 3; of X-ray's it is 0 and weighs 1.
    assert summed("group_accuracy_probmed@grounding", rows) == 3 / 4
    assert summed("group_accuracy_probmed@*", rows) == (3 + 3) / (4 + 4)
    lost = replace(rows, status=np.where(np.arange(len(rows.case)) == 2, "failed", rows.status))
    assert summed("group_accuracy_probmed@modality", lost) == 3 / 3  # the pair whose first was not answered is left out
    assert math.isnan(summed("group_accuracy_probmed@entity", rows))


@given(SETS, st.data())
@FEW
def test_sets_among_some_members_equal_brute_force(sets, data):
    roles = [[data.draw(st.sampled_from("xy")) for _ in one] for one in sets]
    kept = [
        [value for value, role in zip(one, held, strict=True) if role == "x"] or one
        for one, held in zip(sets, roles, strict=True)
    ]
    rows = shuffled(rows_of(sets, role=roles))
    assert summed("group_accuracy_among@role=x", rows) == pytest.approx(mean([all(one) for one in kept]))


def test_macro_means_weigh_each_group_alike():
    sources = [["a", "a"], ["a", "a"], ["b", "b"]]
    rows = rows_of([[1, 1], [1, 0], [0, 0]], source=sources)
    assert summed("macro_accuracy@source", rows) == pytest.approx((3 / 4 + 0) / 2)
    assert summed("macro_group_accuracy@source", rows) == pytest.approx((1 / 2 + 0) / 2)
    lists = rows_of([[1], [0], [1]], topic=[["detection, comparison"], ["comparison"], [""]])
    assert summed("macro_accuracy@topic", lists) == pytest.approx((1 + 1 / 2) / 2)
    assert math.isnan(summed("macro_accuracy@topic", rows_of([[1]], topic=[[""]])))
    with pytest.raises(UsageError, match=r"attribute 'sources'.*'source'"):
        summed("macro_accuracy@sources", rows)
    with pytest.raises(UsageError, match="attribute=value"):
        summed("group_accuracy_among@source", rows)


def test_confusion_asks_for_one_letter_and_consistency_for_one_answer():
    places = [[1, 1], [1, 2], [1, NONE], [NONE, NONE], [2, 2]]
    assert summed("confusion", rows_of(places, "predicted_position")) == pytest.approx(2 / 3)
    assert summed("consistency", rows_of(places, "predicted_class")) == pytest.approx(2 / 3)
    assert math.isnan(summed("confusion", rows_of([[1, NONE]], "predicted_position")))
    assert math.isnan(summed("confusion", rows_of([[1, math.nan]], "predicted_position")))
    assert math.isnan(summed("confusion", rows_of([[1], [2]], "predicted_position")))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=20))
@FEW
def test_kappa_equals_scikit_learn(answers):
    one, other = zip(*answers, strict=True)
    if len({*one, *other}) == 1:
        assert math.isnan(cohen_kappa(one, other))
        return
    expected = pytest.approx(cohen_kappa_score(one, other))
    assert cohen_kappa(one, other) == expected
    rows = rows_of(answers, "predicted_position", language=[["en", "es"]] * len(answers))
    assert summed("kappa@language", shuffled(rows)) == expected


def test_kappa_between_three_languages_is_the_mean_over_pairs():
    answers = [(1, 1, 2), (2, 2, 2), (1, 2, 1), (3, 3, NONE), (2, 1, 2)]
    rows = rows_of(answers, "predicted_position", language=[["en", "es", "he"]] * 5)
    one, two, three = zip(*answers, strict=True)
    answered = [at for at in range(5) if three[at] != NONE]
    pairs = [
        cohen_kappa_score(one, two),
        cohen_kappa_score([one[at] for at in answered], [three[at] for at in answered]),
        cohen_kappa_score([two[at] for at in answered], [three[at] for at in answered]),
    ]
    assert summed("kappa@language", rows) == pytest.approx(mean(pairs))
    assert math.isnan(summed("kappa@language", rows_of([[1]], "predicted_position", language=[["en"]])))
    assert math.isnan(cohen_kappa([], []))
    with pytest.raises(ValueError, match="as many readings"):
        cohen_kappa([1], [1, 2])


ALL = (
    *("group_accuracy", "group_accuracy_among@role=x", "macro_group_accuracy@role", "first_step_accuracy"),
    *("step_hit_rate", "weighted_prefix_score", "confusion", "consistency", "kappa@role"),
)


@pytest.mark.parametrize("name", ALL)
def test_questions_without_a_set_are_left_out(name):
    metric = parse(name)[0].needs[0]
    rows = rows_of([[1, 1], [1, 1]], metric, role=[["x", "y"]] * 2)
    nobody = {key: np.full(4, "") if key == "set" else values for key, values in rows.attributes.items()}
    for attributes in (nobody, {key: values for key, values in rows.attributes.items() if key == "role"}):
        alone = ScoreTable(rows.case, rows.metric, rows.label, rows.value, rows.status, attributes, 4, {})
        assert math.isnan(summed(name, alone))
    assert math.isnan(summed(name, rows.where(np.zeros(4, bool))))


def test_sets_whose_questions_have_no_number_are_refused():
    rows = rows_of([[1, 1]])
    without = ScoreTable(
        rows.case, rows.metric, rows.label, rows.value, rows.status, {"set": rows.attributes["set"]}, 2, {}
    )
    with pytest.raises(UsageError, match="attribute 'member'"):
        group_accuracy(without)


def test_questions_that_are_not_judged_do_not_count():
    assert summed("group_accuracy", rows_of([[1, math.nan], [math.nan], [0, 1]])) == 0.5


def test_every_protocol_says_what_a_table_needs():
    ours = [found for found in available("run").values() if found.function.__module__.endswith("vqa.question_sets")]
    assert {found.name for found in ours} == {
        *(name.partition("@")[0] for name in ALL),
        *("macro_accuracy", "group_accuracy_probmed", "stance_consistency"),
    }
    for found in ours:
        assert found.definition.endswith(".")
        assert found.source
        assert all(need in available("answer") for need in found.needs)
