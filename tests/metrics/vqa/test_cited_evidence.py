"""Cited evidence: spans of answers, what was looked at, by hand and as properties."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.vqa.cited_evidence import (
    cited_spans,
    evidence_iou,
    evidence_iou_at,
    evidence_seen,
    evidence_union_iou,
    frames_seen,
    grounded_accuracy,
    looked_at,
    true_evidence,
)

fast = settings(deadline=None, max_examples=40)
spans = st.tuples(st.integers(0, 50), st.integers(1, 50)).map(lambda pair: (float(pair[0]), float(sum(pair))))


def asked(output, evidence, trace=(), right="B"):
    return AnsweredQuestion(
        "choice", output, right, "?", {"A": "a", "B": "b"}, more={"evidence": evidence}, trace=trace
    )


def call(start, end, images=0, **more):
    return {
        "kind": "tool",
        "name": "frames",
        "arguments": {"start": start, "end": end},
        "images": ["x"] * images,
        **more,
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Evidence: [12, 18.5]\nAnswer: B", [(12, 18.5)]),
        ("From 1-2 s. EVIDENCE 00:40 to 01:00.", [(40, 60)]),
        ("At 3 s to 5 s.", [(3, 5)]),
        ("The evidence is plain. Evidence: none", []),
        ("Evidence: 20-10", [(10, 20)]),
        ("", []),
    ],
)
def test_spans_behind_the_last_word_of_evidence(text, found):
    assert cited_spans(text) == found


@pytest.mark.parametrize(
    "given", [[[2, 4], [6, 8]], "[[2, 4], [6, 8]]", ["2-4 s", "00:06-00:08"], "2-4 s and 6-8 s", [(4, 2), [6, 8]]]
)
def test_right_spans_in_their_forms(given):
    assert true_evidence(asked("", given)) == [(2, 4), (6, 8)]
    assert true_evidence(asked("", [2, 4])) == [(2, 4)]


def test_values_by_hand():
    said = asked("Evidence: 15-25, 10-20\nAnswer: B", [[10, 20]])
    assert evidence_iou(said) == pytest.approx(1 / 3)  # the first that is cited counts
    assert evidence_union_iou(said) == pytest.approx(10 / 15)
    assert [evidence_iou_at(said, least) for least in (0.3, 0.5)] == [1, 0]
    assert [grounded_accuracy(said, least) for least in (0.3, 0.5)] == [1, 0]
    wrong = asked("Evidence: 10-20\nAnswer: A", [[10, 20]])
    assert (evidence_iou(wrong), grounded_accuracy(wrong, 0.5)) == (1, 0)
    assert evidence_iou(asked("Answer: B", [[10, 20]])) == grounded_accuracy(asked("Answer: B", [[10, 20]]), 0.3) == 0


def test_what_was_looked_at():
    trace = [
        {"kind": "model", "text": "x"},
        call(0, 12, 3),
        call(11, 14, 2),
        call(30, 40, error={"type": "tool"}),
        {"kind": "tool", "name": "note", "arguments": {"text": "x"}},
    ]
    assert looked_at(trace) == [(0, 12), (11, 14)]
    assert evidence_seen(asked("B", [[10, 20]], trace)) == pytest.approx(4 / 10)
    assert evidence_seen(asked("B", [[10, 12], [30, 32]], trace)) == pytest.approx(2 / 4)
    assert frames_seen(asked("B", [[10, 20]], trace)) == 5
    assert evidence_seen(asked("B", [[10, 20]], trace[:1])) == frames_seen(asked("B", [[10, 20]], trace[:1])) == 0


def test_without_evidence_or_a_session_there_is_no_value():
    for metric in (evidence_iou, evidence_union_iou, evidence_seen):
        assert math.isnan(metric(asked("Evidence: 1-2", [], [call(0, 1)])))
    assert math.isnan(evidence_iou_at(asked("1-2", None), 0.5))
    assert math.isnan(grounded_accuracy(asked("1-2", ""), 0.5))
    assert math.isnan(evidence_seen(asked("1-2", [[1, 2]])))
    assert math.isnan(evidence_seen(asked("1-2", [[2, 2]], [call(0, 3)])))
    assert math.isnan(frames_seen(asked("1-2", [[1, 2]])))


@fast
@given(st.lists(spans, min_size=1, max_size=4), st.lists(spans, min_size=1, max_size=4))
def test_they_are_counts_of_seconds(right, said):
    """Whole seconds, counted one by one."""
    cited = "Evidence: " + ", ".join(f"{start:g}-{end:g}" for start, end in said)
    trace = [call(start, end) for start, end in said]
    seconds = [{second for start, end in some for second in range(int(start), int(end))} for some in (right, said)]
    shared = len(seconds[0] & seconds[1])
    pair = asked(cited, [list(span) for span in right], trace)
    assert evidence_union_iou(pair) == pytest.approx(shared / len(seconds[0] | seconds[1]))
    assert evidence_seen(pair) == pytest.approx(shared / len(seconds[0]))
    assert evidence_iou(asked(cited, list(map(list, said)))) == 1
