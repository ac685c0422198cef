"""Scores of M3D-Bench's scripts: the letter that is said, and the overlap that it calls IoU."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.metrics.answers import AnsweredQuestion
from medimg_eval.metrics.vqa.grounding import box3d_iou
from medimg_eval.metrics.vqa.m3d import m3d_hull_overlap, m3d_letter_said
from tests.helpers.authors import load_functions, require_clone

RIGHT = (0.2, 0.2, 0.2, 0.4, 0.6, 0.8)


def boxed(output, right=RIGHT):
    return AnsweredQuestion(kind="boxes3d", output=output, value=right)


def chosen(output, right="B"):
    return AnsweredQuestion(kind="choice", output=output, value=right, options={"A": "yes", "B": "no"})


@pytest.mark.parametrize(("output", "worth"), [("B. no", 1), ("A. or B.", 1), ("B", 0), ("(B)", 0), ("", 0)])
def test_the_letter_counts_with_its_full_stop_wherever_it_stands(output, worth):
    assert m3d_letter_said(chosen(output)) == worth
    assert math.isnan(m3d_letter_said(boxed(output)))


def test_the_overlap_by_hand():
    # Half of the right box along the first axis alone, and as much beyond: shared 0.1, around both 0.3 of 0.4 x 0.6.
    answer = "[0.1, 0.2, 0.2, 0.3, 0.6, 0.8]"
    assert m3d_hull_overlap(boxed(answer)) == pytest.approx(1 / 3, abs=1e-4)
    # Away along two axes, the box around both is larger than both together: shared 0.1 x 0.2 x 0.6.
    answer = "[0.1, 0.4, 0.2, 0.3, 0.8, 0.8]"
    shared, around, each = 0.1 * 0.2 * 0.6, 0.3 * 0.6 * 0.6, 0.2 * 0.4 * 0.6
    assert m3d_hull_overlap(boxed(answer)) == pytest.approx(shared / around, abs=1e-4)
    assert box3d_iou(boxed(answer)) == pytest.approx(shared / (2 * each - shared))


@pytest.mark.parametrize("output", ["", "nothing there", "[0.1, 0.2]", "[0.5, 0.6, 0.8, 0.9, 0.9, 0.9]"])
def test_no_box_and_one_elsewhere_are_worth_nothing(output):
    assert m3d_hull_overlap(boxed(output)) == 0
    assert math.isnan(m3d_hull_overlap(chosen(output)))


LOW = st.tuples(*[st.integers(0, 9)] * 3)


@given(LOW, LOW, LOW, LOW)
def test_it_never_exceeds_the_iou(low, size, right_low, right_size):
    answer, right = (
        tuple(start / 10 for start in starts) + tuple((starts[axis] + more[axis] + 1) / 10 for axis in range(3))
        for starts, more in ((low, size), (right_low, right_size))
    )
    pair = boxed(str(list(answer)), right)
    assert 0 <= m3d_hull_overlap(pair) <= box3d_iou(pair) + 1e-9


@pytest.mark.slow
def test_m3ds_own_functions_give_the_same():
    clone = require_clone("BAAI-DCAI/M3D")
    authors = load_functions(clone / "Bench" / "utils.py", "extract_box_from_text", "calculate_iou", re=re)
    for answer in (
        "[0.1, 0.2, 0.2, 0.3, 0.6, 0.8]",
        "at [0.100, 0.400, 0.200, 0.300, 0.800, 0.800].",
        "[0, 0, 0, 1, 1, 1]",
    ):
        expected = authors["calculate_iou"](authors["extract_box_from_text"](answer), RIGHT)
        assert m3d_hull_overlap(boxed(answer)) == pytest.approx(expected, abs=1e-6)
