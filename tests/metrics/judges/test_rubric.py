"""Rubrics: points by hand, properties, undecided criteria, the meta-evaluation, a judge asked by criterion."""

import math

import numpy as np
import pytest
from asking import Quiz
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import CaseError
from medimg_eval.metrics import LabelScore, get
from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.judges import balanced_agreement, rubric_score
from medimg_eval.metrics.judges.rubric import read_criterion_met
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.tasks import QuestionTask
from medimg_eval.tasks.questions.judge_questions import read_rubric
from tests.helpers.judge_asks import judge_prompts
from tests.helpers.rows import summarised

RUBRIC = [
    {"criterion": "Names the effusion", "points": 5, "tags": ["axis:accuracy"]},
    {"criterion": "Advises a CT", "points": 3, "tags": ["axis:accuracy", "axis:plan"]},
    {"criterion": "Invents a nodule", "points": -4, "tags": ["axis:plan"]},
]


def pair(*met, rubric=RUBRIC):
    verdict = {"items": [""] * len(met), "verdicts": list(met)} if met else None
    return AnsweredQuestion("open", "An effusion.", "effusion", more={"rubric": rubric}, judged={"rubric": verdict})


def value(name, *met):
    return get(name).function(pair(*met))


def test_points_by_hand():
    assert value("rubric_points", 1.0, 0.0, 1.0) == pytest.approx(0.125)
    assert value("rubric_points", 0.0, 0.0, 1.0) == pytest.approx(-0.5)
    assert value("rubric_points", 1.0, None, 0.0) == pytest.approx(5 / 8)  # undecided is not met
    assert math.isnan(value("rubric_points"))
    assert value("rubric_tags", 1.0, 0.0, 1.0) == {
        "axis:accuracy": pytest.approx(5 / 8),
        "axis:plan": pytest.approx(-4 / 3),
    }
    failed = AnsweredQuestion("open", "", "", more={"rubric": RUBRIC}, judged={"rubric": 0.0})
    assert get("rubric_points").function(failed) == 0
    assert math.isnan(rubric_score([-1, -2], [True, False]))


def test_the_whole_is_cut_off_and_an_answer_is_not():
    def total(*values):
        n = len(values)
        table = ScoreTable(np.arange(n), np.full(n, "rubric_points"), np.full(n, "open"), np.array(values),
                           np.full(n, "ok"), {}, n, {})  # fmt: skip
        return get("rubric_total").function(table)

    assert total(0.125, -0.5) == 0
    assert total(1.0, -0.5) == pytest.approx(0.25)
    assert math.isnan(total())


@given(st.lists(st.tuples(st.integers(-10, 10).filter(bool), st.booleans()), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_a_score_is_at_most_one_and_grows_with_what_is_good(some):
    points, met = (list(column) for column in zip(*some, strict=True))
    score = rubric_score(points, met)
    if all(point < 0 for point in points):
        assert math.isnan(score)
        return
    assert score <= 1
    assert rubric_score(points, [point > 0 for point in points]) == 1
    assert rubric_score([2 * point for point in points], met) == pytest.approx(score)
    for place, point in enumerate(points):
        other = rubric_score(points, [*met[:place], True, *met[place + 1 :]])
        assert other >= score if point > 0 else other <= score


def test_a_judge_beside_physicians():
    from sklearn.metrics import f1_score

    assert balanced_agreement([True, True, False], [[True], [False, True], [False, False]]) == pytest.approx(0.8)
    draw = np.random.default_rng(0)
    predicted = draw.random(200) < 0.6
    labels = [list(draw.random(draw.integers(1, 4)) < 0.7) for _ in predicted]
    said = np.repeat(predicted, [len(one) for one in labels])
    flat = np.concatenate(labels)
    wanted = (f1_score(flat, said) + f1_score(~flat, ~said)) / 2
    assert balanced_agreement(predicted.tolist(), labels) == pytest.approx(wanted)
    assert math.isnan(balanced_agreement([True], [[True]]))


@pytest.mark.parametrize(
    ("reply", "met"),
    [
        ('{"explanation": "yes", "criteria_met": true}', 1),
        ('```json\n{"criteria_met": FALSE}\n```', 0),
        ('first "criteria_met": true, no: "criteria_met": false', 0),
        ("It is met.", None),
        ('{"criteria_met": "perhaps"}', None),
        ("[]", None),
    ],
)
def test_verdicts_are_read(reply, met):
    assert read_criterion_met(reply) == met


def test_a_judge_is_asked_about_each_criterion(tmp_path):
    items = [{"id": "q0", "text": "What is seen?", "kind": "open", "right": "effusion", "more": {"rubric": RUBRIC}}]
    task = QuestionTask(name="rubrics", layout=Quiz(items), metrics=["rubric_points", "rubric_total", "judge_failures"])
    (case,) = task.cases("test")
    asked = [prompt.text for _, prompt in judge_prompts(task, case, {"texts": ["An effusion."]})]
    assert len(asked) == 3
    assert "[-4] Invents a nodule" in asked[2]
    assert "An effusion." in asked[2]


@pytest.mark.parametrize("rubric", [None, [], "x", [{"criterion": "x"}], [{"points": 1}]])
def test_a_rubric_that_is_none_is_refused(rubric):
    with pytest.raises(CaseError, match="a rubric is invalid"):
        read_rubric(rubric)


def graded(rows):
    """Rows of a run whose criteria have these predictions, labels and families."""
    pairs = [
        AnsweredQuestion("open", MET[said], None, more={"labels": labels, "family": family})
        for said, labels, family in rows
    ]
    cases = [
        [
            LabelScore(label, "physician_labels", count, "")
            for label, count in get("physician_labels").function(pair).items()
        ]
        for pair in pairs
    ]
    return float(summarised("physician_agreement", *cases))


MET = {True: '{"criteria_met": true}', False: '{"criteria_met": false}', None: "hm"}
CRITERIA = st.lists(st.tuples(st.booleans(), st.lists(st.booleans(), min_size=1, max_size=3)), min_size=1, max_size=8)


def test_the_published_example_of_agreement_and_families_by_hand():
    first = [(True, [True], "a"), (True, [False, True], "a"), (False, [False, False], "a")]
    assert graded(first) == pytest.approx(0.8)
    second = [(True, [True], "b"), (False, [False], "b")]
    assert graded(first + second) == pytest.approx(0.9)
    assert graded([*first, (True, [True], "c")]) == pytest.approx(0.8)  # where nothing is unmet
    assert graded([(None, [False], "a"), (True, [True], "a")]) == 1.0  # an unread reply is not met
    assert math.isnan(get("physician_labels").function(pair(1.0))["all"])


@given(CRITERIA, CRITERIA)
@settings(max_examples=40, deadline=None)
def test_agreement_is_the_mean_over_families_of_each_ones_balanced_f1(one, other):
    rows = [(said, labels, family) for family, some in (("a", one), ("b", other)) for said, labels in some]
    each = [balanced_agreement([said for said, _ in some], [labels for _, labels in some]) for some in (one, other)]
    known = [value for value in each if not math.isnan(value)]
    assert graded(rows) == pytest.approx(sum(known) / len(known) if known else math.nan, nan_ok=True)
