"""Metrics of answers: right, unanswered, near; and the summaries over classes of answers, against scikit-learn."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, recall_score

from medimg_eval.metrics import ScoreTable, available, get, parse
from medimg_eval.metrics.answers.extraction import Extraction
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.vqa.correctness import NONE_GIVEN

FEW = settings(deadline=None, max_examples=30)
OPTIONS = {"A": "pneumonia", "B": "The edema.", "C": "none of these"}
NAN = math.nan
OPEN = (
    "exact_match",
    "token_f1",
    "token_recall",
    "open_accuracy@0.75",
    "llava_med_recall",
    "answer_contains_reference",
)


def pair(kind, given, right, *, reason="unparsed", options=None, **fields):
    """A reply from which this answer was taken; None for none, for a reason."""
    made = AnsweredQuestion(
        kind, "", right, options=OPTIONS if options is None and kind == "choice" else options or {}, **fields
    )
    made.__dict__["extraction"] = Extraction(given, "test", "" if given is not None else reason)
    return made


def chosen(right="A", **preferences):
    return AnsweredQuestion("choice", "", right, options=OPTIONS, preferences=preferences)


def value(name, asked):
    found, parameter = parse(name)
    return found.function(asked) if parameter is None else found.function(asked, parameter)


def opened(name, said, right):
    return value(name, pair("open", said, right))


def summarised(name, pairs):
    """A summary of the rows that replies leave."""
    rows = [(case, need, value(need, one)) for case, one in enumerate(pairs) for need in get(name).needs]
    case, metric, values = zip(*rows, strict=True)
    texts = np.full(len(rows), "right")
    return get(name).function(
        ScoreTable(np.array(case), np.array(metric), texts, np.array(values, float), texts, {}, len(pairs), {})
    )


@pytest.mark.parametrize(
    ("asked", "credit"),
    [
        (pair("choice", "A", "A"), 1),
        (pair("choice", "B", "A"), 0),
        (pair("choice", None, "A"), 0),
        (pair("choices", ("A", "C"), ["C", "A"]), 1),
        (pair("choices", ("A",), ["C", "A"]), 0),
        (pair("yes_no", "yes", "yes"), 1),
        (pair("yes_no", "no", "yes"), 0),
        (pair("number", 3.0, 3), 1),
        (pair("number", 3.1, 3), 0),
        (pair("number", 3.1, None, more={"low": 3, "high": 4}), 1),
        (pair("number", 2.9, None, more={"low": 3, "high": 4}), 0),
        (pair("number", None, None, more={"low": 3}), 0),
        (pair("point", (5, 5), (0, 0, 4, 8)), 0),
        (pair("point", (5, 5), (0, 0, 4, 8), more={"patch": 14}), 1),
        (pair("open", "a", "a"), NAN),
        (pair("box", (0, 0, 1, 1), (0, 0, 1, 1)), NAN),
        (pair("regions", {"1": "irc"}, {"1": "irc"}), NAN),
        (pair("grades", {"a": 1}, {"a": 1}), NAN),
        (chosen(A=0.5, B=0.2, C=0.1), 1),
        (chosen(A=0.1, B=0.2, C=0.2), 0),
        (chosen(A=0.2, B=0.2, C=0.2), 1 / 3),
    ],
)
def test_accuracy_by_kind(asked, credit):
    assert value("accuracy", asked) == pytest.approx(credit, nan_ok=True)


def test_open_answers_join_the_others_in_one_column_by_exact_match():
    assert value("accuracy_or_exact_match", pair("open", "The liver.", "liver")) == 1
    assert value("accuracy_or_exact_match", pair("open", None, "liver")) == 0
    assert value("accuracy_or_exact_match", pair("yes_no", "no", "no")) == 1


@pytest.mark.parametrize(
    ("asked", "without", "declined", "of_answered"),
    [
        (pair("choice", "A", "A"), 0, 0, 1),
        (pair("choice", "B", "A"), 0, 0, 0),
        (pair("choice", None, "A"), 1, 0, NAN),
        (pair("choice", None, "A", reason="refused"), 1, 1, NAN),
        (pair("yes_no", None, "no", reason="empty"), 1, 0, NAN),
        (pair("open", None, "liver"), 1, 0, NAN),
        (pair("open", "liver", "liver"), 0, 0, NAN),
        (chosen(A=1.0, B=1.0), 0, 0, 0.5),
    ],
)
def test_answers_that_were_not_given(asked, without, declined, of_answered):
    assert value("unanswered", asked) == without
    assert value("refused", asked) == declined
    assert value("accuracy_of_answered", asked) == pytest.approx(of_answered, nan_ok=True)


@pytest.mark.parametrize(
    ("said", "right", "match", "f1", "recall"),
    [
        ("The left lung.", "left lung", 1, 1, 1),
        ("left lung", ["right lung", "Left Lung"], 1, 1, 1),
        ("left", "left lung", 0, 2 / 3, 1 / 2),
        ("the left upper lung", "left lung", 0, 2 * 2 / 5, 1),
        ("lung lung lung", "lung", 0, 2 / 4, 1),
        ("lung lung", "lung lung left", 0, 4 / 5, 1 / 2),
        ("3.5 cm", "35 cm", 0, 2 * 1 / 5, 1 / 2),
        ("右肺结节", "右肺", 0, 2 * 2 / 6, 1),
        ("右肺结节。", "右肺结节", 1, 1, 1),
        ("liver", "spleen", 0, 0, 0),
        (None, "spleen", 0, 0, 0),
    ],
)
def test_open_answers_by_hand(said, right, match, f1, recall):
    assert opened("exact_match", said, right) == match
    assert opened("token_f1", said, right) == pytest.approx(f1)
    assert opened("token_recall", said, right) == pytest.approx(recall)
    assert opened("open_accuracy@0.75", said, right) == (recall >= 0.75)


@pytest.mark.parametrize(
    ("said", "right", "recall"),
    [
        ("chest x-ray", "x-ray chest", 1),
        ("there are two", "2", 1),
        ("none", "0", 1),
        ("the lung", "the right lung", 1 / 2),
        ("lung lung lung", "right lung", 3 / 4),
        ("liver", "lung", 0),
        ("", "lung", 0),
        ("1,000 cells", "1000 cells", 1),
        ("a, b", "b", 1),
    ],
)
def test_the_recall_of_llava_med_counts_what_was_said_again(said, right, recall):
    assert opened("llava_med_recall", said, right) == pytest.approx(recall)


def as_llava_med_counts(said, right):
    """Their counting, over the words of either side."""
    hit = lacking = 0
    for word in {*said, *right}:
        if word in said and word in right:
            hit += said[word]
        elif word in right:
            lacking += right[word]
    return hit / (hit + lacking) if hit else 0.0


@given(st.lists(st.sampled_from("bcde"), max_size=8), st.lists(st.sampled_from("bcde"), min_size=1, max_size=8))
@FEW
def test_the_recall_of_llava_med_equals_a_plain_count(said, right):
    found = opened("llava_med_recall", " ".join(said), " ".join(right))
    assert found == pytest.approx(as_llava_med_counts(Counter(said), Counter(right)))


@pytest.mark.parametrize(
    ("said", "right", "held"),
    [
        ("A fracture of the hip.", "fracture", 1),
        ("no fracture", "fracture", 1),
        ("the answer is 3.14159", "3.14", 1),
        ("about 1,000 cells", "1000", 1),
        ("13", "3", 0),
        ("hip", ["knee", "Hip"], 1),
        ("hip", "knee", 0),
        (None, "knee", 0),
    ],
)
def test_an_answer_contains_the_right_one(said, right, held):
    assert opened("answer_contains_reference", said, right) == held


@pytest.mark.parametrize("name", OPEN)
def test_open_metrics_judge_open_questions_only(name):
    assert math.isnan(value(name, pair("choice", "A", "A")))
    assert math.isnan(opened(name, "liver", ""))
    assert opened(name, "The liver", "liver") == 1
    for nothing in (None, "", "  "):
        assert opened(name, nothing, "liver") == 0


@given(
    st.lists(st.sampled_from(["lung", "left", "3.5", "no"]), max_size=6),
    st.lists(st.sampled_from(["lung", "left", "3.5", "no"]), min_size=1, max_size=6),
)
@FEW
def test_open_metrics_lie_between_0_and_1_and_are_1_for_the_right_text(said, right):
    one, other = " ".join(said), " ".join(right)
    for name in OPEN:
        assert 0 <= opened(name, one, other) <= 1
        assert opened(name, other, other) == 1
        assert opened(name, one, [other, "knee"]) >= opened(name, one, other)
    assert opened("exact_match", one, other) <= opened("token_f1", one, other) + 1e-12


def test_classes_follow_the_text_and_places_the_letter():
    turned = {"A": "edema", "B": "pneumonia"}
    one, other = pair("choice", "A", "A"), pair("choice", "B", "B", options=turned)
    assert value("predicted_class", one) == value("predicted_class", other) == value("reference_class", other)
    assert value("predicted_class", pair("choice", "B", "A")) == value(
        "predicted_class", pair("choice", "A", "A", options=turned)
    )
    assert (value("predicted_position", one), value("predicted_position", other)) == (1, 2)
    assert (
        value("predicted_position", pair("yes_no", "yes", "no")),
        value("predicted_position", pair("yes_no", "no", "no")),
    ) == (
        1,
        2,
    )
    assert value("predicted_class", pair("yes_no", "yes", "no")) == value(
        "reference_class", pair("yes_no", "no", "yes")
    )
    assert value("predicted_class", pair("choices", ("C", "A"), ("A", "C"))) == value(
        "reference_class", pair("choices", None, ["A", "C"])
    )
    assert value("predicted_class", pair("open", "an edema", ["Oedema", "edema"])) == value(
        "reference_class", pair("open", None, "oedema")
    )


def test_answers_without_a_class():
    for name in ("predicted_class", "predicted_position"):
        assert value(name, pair("choice", None, "A")) == NONE_GIVEN
        assert math.isnan(value(name, chosen(A=1.0, B=1.0)))
        assert math.isnan(value(name, pair("number", 3.0, 3)))
    assert value("predicted_position", chosen(A=1.0, B=2.0)) == 2
    assert math.isnan(value("predicted_position", pair("open", "a", "a")))
    assert math.isnan(value("reference_class", pair("box", None, (0, 0, 1, 1))))


ANSWERS = st.lists(
    st.tuples(st.sampled_from(["yes", "no", "maybe", None]), st.sampled_from(["yes", "no"])), min_size=1, max_size=20
)


@given(ANSWERS)
@FEW
def test_summaries_over_classes_equal_scikit_learn(answers):
    pairs = [pair("yes_no", *one) for one in answers]
    given, right = ([str(answer) for answer in side] for side in zip(*answers, strict=True))
    labels = sorted(set(right))
    for name, average in (("macro_f1", "macro"), ("weighted_f1", "weighted")):
        theirs = f1_score(right, given, labels=labels, average=average, zero_division=0)
        assert summarised(name, pairs) == pytest.approx(theirs)
    for name, positive in (("yes_sensitivity", "yes"), ("yes_specificity", "no")):
        if positive in right:
            theirs = recall_score(right, given, labels=[positive], average="macro", zero_division=0)
            assert summarised(name, pairs) == pytest.approx(theirs)
        else:
            assert math.isnan(summarised(name, pairs))


def test_f1_over_options_whose_letters_change():
    turned = {"A": "edema", "B": "pneumonia", "C": "none of these"}
    pairs = [
        pair("choice", "A", "A"),  # pneumonia for pneumonia
        pair("choice", "B", "A", options=turned),  # pneumonia for edema
        pair("choice", None, "B"),  # nothing for edema
        pair("choice", "C", "C"),
        pair("open", "anything", ""),  # judged as no class but its own
    ]
    assert summarised("macro_f1", pairs[:4]) == pytest.approx((2 / 3 + 0 + 1) / 3)
    assert summarised("weighted_f1", pairs[:4]) == pytest.approx((2 / 3 + 0 * 2 + 1) / 4)


def test_summaries_of_nothing_are_not_known():
    for name in ("macro_f1", "weighted_f1", "yes_sensitivity", "yes_specificity"):
        assert math.isnan(summarised(name, [pair("number", 1.0, 1.0)]))


def test_every_metric_of_answers_says_what_a_table_needs():
    ours = [found for found in available("answer").values() if found.function.__module__.endswith("vqa.correctness")]
    assert len(ours) == 16
    for found in ours:
        assert found.definition.endswith(".")
        assert found.source
        assert found.intermediate == math.isnan(found.best)
    assert not get("unanswered").higher_is_better
    assert (get("unanswered").best, get("unanswered").worst) == (0, 1)


def test_the_free_form_score_takes_each_kind_of_answer_by_its_own_measure():
    from medimg_eval.metrics.vqa.correctness import free_form_score

    assert free_form_score(AnsweredQuestion("number", "90", 100.0)) == pytest.approx(0.9)
    assert free_form_score(AnsweredQuestion("open", "Left kidney.", "left kidney")) == 1
    assert free_form_score(AnsweredQuestion("yes_no", "No", "yes")) == 0
    assert free_form_score(AnsweredQuestion("choice", "B", "B", options={"A": "x", "B": "y"})) == 1
