"""Spans of time in answers, beside the definitions' oracles and a count of small steps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.vqa.time_grounding import read_spans, span_iou, span_iou_at


def said(output, right, kind="open"):
    return AnsweredQuestion(kind=kind, output=output, value=right)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("The clip is cut at 12.5-20 s.", [(12.5, 20)]),
        ("from 00:12 to 01:30", [(12, 90)]),
        ("01:00:05 – 01:00:09", [(3605, 3609)]),
        ("[3, 9] and later 20 to 30 seconds", [(3, 9), (20, 30)]),
        ("between 30s and 10s", [(10, 30)]),
        ("It lasts 10-20. Then 00:06 to 00:08.", [(10, 20), (6, 8)]),
        ("10-20.5.", [(10, 20.5)]),
        ("10%-20%", []),
        ("10-20 %", []),
        ("at 12 s", []),
        ("", []),
    ],
)
def test_spans_in_their_usual_forms(text, spans):
    assert read_spans(text) == spans


@pytest.mark.parametrize(
    ("output", "right", "iou"),
    [
        ("10 to 20 s", "15-25", 1 / 3),
        ("0-10", "10-20", 0),
        ("12-18", "10-20", 0.6),
        ("5-5", "5-5", 0),
        ("20-10", "10-20", 1),
        ("It begins at 10 s.", "10-20", 0),
        ("", "10-20", 0),
        ("10-20", ["0-5", "10-20"], 1),
    ],
)
def test_the_oracles_of_the_definitions(output, right, iou):
    assert span_iou(said(output, right)) == pytest.approx(iou)


def test_the_threshold_belongs_to_what_reaches_it():
    assert [span_iou_at(said("12-18", "10-20"), least) for least in (0.3, 0.6, 0.7)] == [1, 1, 0]


def test_questions_about_anything_else_have_no_value():
    assert math.isnan(span_iou(said("10-20", "the gallbladder")))
    assert math.isnan(span_iou(said("10-20", "A", kind="choice")))
    assert math.isnan(span_iou_at(said("10-20", "the gallbladder"), 0.5))


ENDS = st.tuples(st.integers(0, 60), st.integers(1, 40))


@given(ENDS, ENDS)
def test_it_is_a_count_of_seconds(given_span, right):
    seconds = np.arange(100)
    (start, length), (begin, width) = given_span, right
    inside, due = ((seconds >= at) & (seconds < at + more) for at, more in ((start, length), (begin, width)))
    answer = said(f"{start}-{start + length} s", f"{begin}-{begin + width}")
    assert span_iou(answer) == pytest.approx((inside & due).sum() / (inside | due).sum())
