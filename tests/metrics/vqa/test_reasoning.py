"""Steps of reasoning and grades with their place: by hand, and as properties."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.vqa.reasoning import (
    graded_box_iou,
    grounded_grades,
    reasoning_steps_ordered,
    reasoning_steps_said,
    said_at,
    steps_of,
)

STEPS = ["Find the medial patella.", "Look for bright marrow.", "Measure its share."]
BOX = [0, 0, 0, 10, 10, 10]


def asked(output, value=None, **more):
    return AnsweredQuestion("grades", output, value or {"size": 1}, more=more)


def test_steps_are_lines_and_sentences_without_their_numbers():
    text = "Step 1: Find it. 2. Look at it; then go on\n3) Measure 2.5 mm.\n- Done\n\n---\n{'size': 1}"
    assert steps_of(text) == ["Find it.", "Look at it;", "then go on", "Measure 2.5 mm.", "Done"]
    assert steps_of("") == steps_of("{}") == []


def test_a_step_is_said_by_its_words():
    assert said_at(STEPS, ["the patella medial, find", "nothing", "bright"], 0.5) == [0, -1, -1]
    assert said_at(STEPS, ["bright marrow", "bright marrow for it"], 0.5) == [-1, 1, -1]
    assert said_at(STEPS, [], 0.5) == [-1, -1, -1]


@pytest.mark.parametrize(
    ("output", "said", "ordered"),
    [
        ("\n".join(STEPS), 1, 1),
        ("\n".join(reversed(STEPS)), 1, 1 / 3),
        (" ".join([STEPS[1], STEPS[0], STEPS[2]]), 1, 2 / 3),
        ("I find the medial patella and look for bright marrow and measure its share", 1, 1),
        ("", 0, 0),
        ("No.", 0, 0),
    ],
)
def test_order_counts_apart(output, said, ordered):
    pair = asked(output, reasoning=STEPS)
    assert reasoning_steps_said(pair, 0.5) == pytest.approx(said)
    assert reasoning_steps_ordered(pair, 0.5) == pytest.approx(ordered)
    assert reasoning_steps_said(asked(output, reasoning=" ".join(STEPS)), 0.5) == pytest.approx(said)


def test_grades_and_their_box_hold_together():
    right = asked(json.dumps({"size": 1, "box": [0, 0, 5, 10, 10, 15]}), box=BOX)
    assert graded_box_iou(right) == pytest.approx(1 / 3)
    assert [grounded_grades(right, least) for least in (0.3, 0.5)] == [1, 0]
    within = asked(json.dumps({"scores": {"size": 1, "box": BOX}}), box=BOX)
    assert graded_box_iou(within) == 1
    wrong = asked(json.dumps({"size": 2, "box": BOX}), box=BOX)
    assert (graded_box_iou(wrong), grounded_grades(wrong, 0.5)) == (1, 0)
    for output in ('{"size": 1}', '{"size": 1, "box": [1, 2]}', ""):
        assert graded_box_iou(asked(output, box=BOX)) == grounded_grades(asked(output, box=BOX), 0.5) == 0


def test_what_is_not_known_has_no_value():
    pair = asked('{"size": 1}')
    assert math.isnan(graded_box_iou(pair))
    assert math.isnan(grounded_grades(pair, 0.5))
    assert math.isnan(reasoning_steps_said(pair, 0.5))
    assert math.isnan(reasoning_steps_ordered(asked("x", reasoning=[]), 0.5))
    assert math.isnan(graded_box_iou(AnsweredQuestion("open", "x", "x", more={"box": BOX})))


def longest(places):
    """The longest run that never goes back, by trying each subset of places."""
    runs = [[]]
    for place in places:
        runs += [[*run, place] for run in runs if not run or run[-1] <= place]
    return max(map(len, runs))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=7))
def test_order_equals_brute_force(order):
    """Step k of the reference is said as sentence `order[k]`."""
    sentences = [" ".join(f"w{k}" for k, place in enumerate(order) if place == number) for number in range(5)]
    said = "\n".join(f"{text} x" for text in sentences)
    pair = asked(said, reasoning=[f"w{k}" for k in range(len(order))])
    assert reasoning_steps_said(pair, 1.0) == 1
    assert reasoning_steps_ordered(pair, 1.0) == pytest.approx(longest(order) / len(order))
