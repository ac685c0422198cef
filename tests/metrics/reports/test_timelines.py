"""Timelines of findings: what is read of answers, groups by hand, beside scikit-learn, and as properties."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics import get
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.reports import groups_of, pair_f1, purity, read_timeline, timeline_row
from medimg_eval.metrics.reports.timelines import (
    lunguage_timeline_words,
    timeline_pair_f1,
    timeline_purity,
)

fast = settings(deadline=None, max_examples=40)
labels = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12)

GOLD = [
    {"idx": 0, "ent": "effusion", "gt_entity_group": "left effusion", "gt_temporal_group": 1, "sequence": 1},
    {"idx": 1, "ent": "fluid", "gt_entity_group": "left effusion", "gt_temporal_group": 2, "sequence": 2},
    {"idx": 2, "ent": "edema", "gt_entity_group": "edema", "gt_temporal_group": 1, "sequence": 2},
]
TRUTH = [timeline_row(row) for row in GOLD]


def answered(text, truth=TRUTH):
    return AnsweredQuestion("open", text, json.dumps(truth))


def test_rows_go_by_the_names_of_gold_and_predicted_tables():
    gold = {"subject_id": 1, "study_id": "s5", "ent": "edema", "location": "loc: left, det: base", "severity": math.nan}
    gold |= {"gt_entity_group": "edema", "gt_temporal_group": 2, "dx_status": "positive", "onset": "nan"}
    assert timeline_row(gold) == {
        "study_id": "s5",
        "entity": "edema",
        "entity_group": "edema",
        "episode": 2,
        "dx_status": "positive",
        "location": "left, base",
    }
    predicted = {"IDX": 3, "LLM_cluster": "edema left", "temporal_group": 1, "entity": "edema"}
    assert timeline_row(predicted) == {"idx": 3, "entity": "edema", "entity_group": "edema left", "episode": 1}


@pytest.mark.parametrize(
    "text",
    [
        '[{"entity": "edema"}]',
        'I think [sic] {of} it:\n```json\n{"rows": [{"ent": "edema"}]}\n```\nDone.',
        '{"rows": [{"entity": "edema", "severity": ""}], "note": "x"}',
    ],
)
def test_rows_are_found_wherever_they_stand(text):
    assert read_timeline(text) == [{"entity": "edema"}]


@pytest.mark.parametrize("text", ["", "none", "[1, 2]", '{"results": 3}', '[{"entity": "edema"', '["edema"]'])
def test_what_holds_no_rows(text):
    assert read_timeline(text) is None


def test_groups_refer_to_findings_that_were_given():
    said = {
        "results": [
            {
                "group_name": "fluid",
                "findings": [{"IDX": 0, "DAY": 0}, {"IDX": "1", "DAY": 9.0}, {"IDX": 7, "DAY": 9}, "x"],
                "episodes": [{"episode": 1, "days": [0]}, {"episode": 2, "days": ["9"]}],
            },
            "not a group",
        ]
    }
    rows = read_timeline(json.dumps(said), TRUTH)
    assert [(row["idx"], row["entity_group"], row["episode"]) for row in rows] == [(0, "fluid", 1), (1, "fluid", 2)]
    assert groups_of(rows, TRUTH, "entity") == ["fluid", "fluid", ("unmatched", 2)]
    assert groups_of(rows, TRUTH, "episode") == [("fluid", "1"), ("fluid", "2"), ("unmatched", 2)]
    assert groups_of(rows, TRUTH, "episode_published") == ["1", "2", ("unmatched", 0)]
    with pytest.raises(UsageError, match="no level 'episodes'"):
        groups_of(rows, TRUTH, "episodes")


def test_published_courses_of_unlike_findings_are_one():
    alike = json.dumps([{**row, "entity_group": f"g{row['idx']}"} for row in TRUTH])  # each finding alone
    # Truth: one pair of findings; courses are all alone, but by number alone the first two of unlike findings are one.
    assert timeline_pair_f1(answered(alike), "entity") == 0
    assert timeline_pair_f1(answered(alike), "episode") == 1
    assert timeline_pair_f1(answered(alike), "episode_published") == 1
    moved = json.dumps([{**row, "episode": row["idx"] + 1} for row in TRUTH])
    assert timeline_pair_f1(answered(moved), "episode") == 1
    assert timeline_pair_f1(answered(moved), "episode_published") == 0


def test_answers_that_group_nothing_and_patients_with_one_finding():
    for text in ("", "no idea", json.dumps([{"entity": "edema"}])):
        assert timeline_pair_f1(answered(text), "entity") == timeline_purity(answered(text), "entity") == 0
    assert math.isnan(timeline_purity(answered("x", TRUTH[:1]), "entity"))
    assert math.isnan(timeline_purity(AnsweredQuestion("number", "1", 1.0), "entity"))
    assert math.isnan(lunguage_timeline_words(answered("x", [])))
    assert lunguage_timeline_words(answered("x")) == 0


def test_the_words_of_a_timeline_by_hand():
    right = json.dumps(TRUTH)
    assert lunguage_timeline_words(answered(right)) == pytest.approx(1)
    # One of three rows in another study: half the times agree, so 1/2; nothing is left over.
    later = [{**TRUTH[0], "sequence": 3}, *TRUTH[1:]]
    assert lunguage_timeline_words(answered(json.dumps(later))) == pytest.approx(2.5 / 3)
    # In another course likewise, which as published is no difference.
    course = [{**TRUTH[0], "episode": 9}, *TRUTH[1:]]
    assert lunguage_timeline_words(answered(json.dumps(course))) == pytest.approx(2.5 / 3)


def by_matrix(truth, prediction):
    """The authors' F1 of pairs, by scikit-learn over all pairs."""
    from sklearn.metrics import f1_score

    first, second = np.triu_indices(len(truth), 1)
    same = [
        np.array([one[i] == one[j] for i, j in zip(first, second, strict=True)], int) for one in (truth, prediction)
    ]
    return f1_score(*same) if len(same[0]) and (same[0].any() or same[1].any()) else 1.0


@fast
@given(labels)
def test_groups_equal_scikit_learns(pairs):
    from sklearn.metrics.cluster import contingency_matrix

    truth, prediction = map(list, zip(*pairs, strict=True))
    assert pair_f1(truth, prediction) == pytest.approx(by_matrix(truth, prediction))
    table = contingency_matrix(truth, prediction)
    assert purity(truth, prediction) == pytest.approx(table.max(axis=0).sum() / table.sum())


@fast
@given(labels, st.randoms())
def test_neither_names_nor_order_of_groups_matter(pairs, random):
    truth, prediction = map(list, zip(*pairs, strict=True))
    assert pair_f1(truth, truth) == purity(truth, truth) == 1
    renamed = [f"group {9 - label}" for label in prediction]
    places = random.sample(range(len(pairs)), len(pairs))
    for score in (pair_f1, purity):
        assert score(truth, renamed) == score(truth, prediction)
        shuffled = [[some[place] for place in places] for some in (truth, prediction)]
        assert score(*shuffled) == pytest.approx(score(truth, prediction))
        assert 0 <= score(truth, prediction) <= 1


def test_levels_are_checked_where_a_metric_is_named():
    assert get("timeline_pair_f1@entity_published").name == "timeline_pair_f1"
    with pytest.raises(UsageError, match="no level 'group'"):
        get("timeline_pair_f1@group")
