"""Facts of reports beside those of the reference: findings with sides, words of change, lengths."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval import metrics
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.registry import ScoreTable
from medimg_eval.metrics.reports.facts import CHANGE_WORDS, change_words, finding_facts, matched_measurements, set_f1
from medimg_eval.metrics.reports.labeler.labeler import measurements
from medimg_eval.metrics.reports.labeler.lengths import Measurement
from tests.metrics.reports.labeler.test_mentions import LINES

TEXTS = st.lists(st.sampled_from([text for text, _ in LINES]), max_size=6).map(" ".join)


def value(name, text, *references, kind="report"):
    return metrics.get(name).function(AnsweredQuestion(kind, text, list(references)))


def test_finding_f1_by_hand():
    reference = "Small left effusion. No pneumothorax. Possible atelectasis."
    assert value("finding_f1", reference, reference) == 1.0
    assert value("finding_f1", "Small right effusion. No pneumothorax.", reference) == pytest.approx(2 / 5)
    assert value("finding_f1", "Small left effusion. No left pneumothorax.", reference) == pytest.approx(4 / 5)
    assert value("finding_f1", "", reference) == 0.0
    assert value("finding_f1", "Nothing of note.", "Lungs are clear.") == 1.0
    assert value("finding_f1", " ", "Lungs are clear.") == 0.0
    assert value("finding_f1", "Small effusion.", "Lungs are clear.") == 0.0
    assert value("finding_f1", "Small effusion.", "Edema.", "Small effusion.") == 1.0


def test_the_facts_of_a_report():
    assert finding_facts("Small left effusion, no left pneumothorax.") == {
        ("Pleural Effusion", 1, "left"),
        ("Pneumothorax", 2, ""),
    }


def test_temporal_f1_by_hand():
    assert value("temporal_f1", "The effusion is stable.", "Stable effusion, worse edema.") == pytest.approx(2 / 3)
    assert value("temporal_f1", "Clear.", "Clear.") == 1.0
    assert value("temporal_f1", "Stable.", "Clear.") == 0.0
    assert value("temporal_f1", "Clear.", "Stable.") == 0.0
    assert value("temporal_f1", "Stable and new.", "Stable.", "New.") == 1.0
    assert value("temporal_f1", "", "New.") == 0.0


def test_there_are_44_words_of_change():
    assert len(CHANGE_WORDS) == 44
    assert change_words("New/old, long-stable_unchanged; NEW improving.") == {"stable", "unchanged", "new", "improving"}
    assert change_words("new/old") == set()


@settings(deadline=None, max_examples=30)
@given(st.text(alphabet="new stable-_/\n.,()N'", max_size=60))
def test_words_of_change_are_those_that_a_search_for_each_finds(text):
    cleaned = re.sub(r"[^\w\s.,:;()-]", "", re.sub(r"[_-]+", " ", re.sub(r"\n+", " ", text)))
    assert change_words(text) == {word for word in CHANGE_WORDS if re.search(rf"\b{word}\b", cleaned.lower())}


@pytest.mark.parametrize("name", ["finding_f1", "temporal_f1"])
@settings(deadline=None, max_examples=20)
@given(left=TEXTS, right=TEXTS)
def test_both_are_symmetric_within_0_and_1_and_1_of_the_same_text(name, left, right):
    left, right = left or "x", right or "x"
    one = metrics.get(name).function(AnsweredQuestion("report", left, right))
    other = metrics.get(name).function(AnsweredQuestion("report", right, left))
    assert 0.0 <= one <= 1.0
    assert one == pytest.approx(other)
    assert metrics.get(name).function(AnsweredQuestion("report", left, left)) == 1.0
    assert metrics.get(name).function(AnsweredQuestion("report", "", left)) == 0.0


@pytest.mark.parametrize("name", ["finding_f1", "temporal_f1"])
def test_other_questions_and_blank_references_are_not_judged(name):
    assert math.isnan(value(name, "Edema.", "Edema.", kind="choice"))
    assert math.isnan(value(name, "Edema.", "  "))
    assert all(map(math.isnan, value("measurement_counts", "Edema.", " ").values()))


def test_set_f1_of_sets():
    assert set_f1((), ()) == 1.0
    assert set_f1({"a"}, ()) == set_f1((), {"a"}) == 0.0
    assert set_f1(["a", "a", "b"], ["b", "c"]) == 0.5


def length(thing, millimetres, side=""):
    return Measurement(thing, (millimetres,), side, "stated", 0, 1)


LENGTHS = st.lists(
    st.builds(
        length,
        st.sampled_from(["nodule", "mass"]),
        st.integers(1, 30).map(float),
        st.sampled_from(["", "left", "right"]),
    ),
    max_size=4,
)


@settings(deadline=None, max_examples=30)
@given(LENGTHS, LENGTHS)
def test_lengths_are_paired_as_every_way_of_pairing_shows(said, due):
    def met(one, other):
        return one.thing == other.thing and (not one.side or not other.side or one.side == other.side)

    best = (0, 0.0)
    for size in range(min(len(said), len(due)) + 1):
        for left in itertools.combinations(said, size):
            for right in itertools.permutations(due, size):
                if all(map(met, left, right)):
                    best = max(
                        best, (size, -sum(abs(one.largest - two.largest) for one, two in zip(left, right, strict=True)))
                    )
    pairs, missing, invented = matched_measurements(said, due)
    assert all(met(one, other) for one, other in pairs)
    assert (len(pairs), -sum(abs(one.largest - other.largest) for one, other in pairs)) == pytest.approx(best)
    assert (len(missing), len(invented)) == (len(due) - len(pairs), len(said) - len(pairs))


def test_lengths_of_another_time_and_advice_take_no_part():
    said, due = measurements("Nodule of 5 mm."), measurements("Nodule of 5 mm, previously 4 mm.")
    pairs, missing, invented = matched_measurements(said, due)
    assert (len(pairs), missing, invented) == (1, [], [])


def rows(pairs):
    counted = [value("measurement_counts", text, reference) for text, reference in pairs]
    flat = [(case, label, number) for case, held in enumerate(counted) for label, number in held.items()]
    return ScoreTable(
        case=np.array([case for case, _, _ in flat], dtype=np.int64),
        metric=np.array(["measurement_counts"] * len(flat)),
        label=np.array([label for _, label, _ in flat]),
        value=np.array([number for _, _, number in flat], dtype=np.float64),
        status=np.array(["ok"] * len(flat)),
        attributes={},
        cases=len(pairs),
        facts={},
    )


REPORTS = [
    ("ETT 3 cm above the carina. 8 mm nodule.", "ETT 4.5 cm above the carina."),
    ("ETT in place.", "ETT 5 cm above the carina."),
    ("ETT 2 cm above the carina.", "ETT in place, 1 cm nodule."),
    ("7 mm nodule.", "9 mm nodule."),
    ("Clear.", "Clear."),
]


@pytest.mark.parametrize(
    ("name", "due"),
    [
        ("measurement_mae", (15 + 2) / 2),
        ("measurement_missing", 2 / 4),
        ("measurement_invented", 2 / 4),
        ("ett_carina_mae", 15.0),
        ("ett_carina_missing", 1 / 2),
        ("ett_carina_invented", 1 / 2),
    ],
)
def test_errors_missing_and_invented_lengths_over_all_reports(name, due):
    found = metrics.get(name)
    assert found.function(rows(REPORTS)) == pytest.approx(due)
    assert found.function(rows(REPORTS[::-1])) == pytest.approx(due)


@pytest.mark.parametrize("name", ["measurement_mae", "measurement_missing", "measurement_invented", "ett_carina_mae"])
def test_without_a_length_there_is_nothing_to_say_and_the_same_texts_are_without_fault(name):
    found = metrics.get(name)
    assert math.isnan(found.function(rows([("Clear.", "Clear.")])))
    assert found.function(rows([(text, text) for text, _ in REPORTS])) == 0.0


def test_empty_reports_miss_every_length_and_invent_none():
    empty = rows([("", reference) for _, reference in REPORTS])
    assert metrics.get("measurement_missing").function(empty) == 1.0
    assert math.isnan(metrics.get("measurement_invented").function(empty))
    assert math.isnan(metrics.get("measurement_mae").function(empty))


def test_of_several_references_the_one_with_most_pairs_counts():
    assert value("measurement_counts", "7 mm nodule.", "Clear.", "9 mm nodule.")["pairs"] == 1
