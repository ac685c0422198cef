"""Ballots of a jury: written and read again, and joint verdicts by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.metrics.judges import Ballot, joint_verdict, jury_verdict, read_ballots, write_ballots


@given(st.lists(st.tuples(st.text(), st.integers(0, 9), st.text()), max_size=4))
def test_ballots_are_read_as_they_were_written(ballots):
    made = [Ballot(*one, {"output": 3}) for one in ballots]
    assert read_ballots(write_ballots(made)) == made


@pytest.mark.parametrize("reply", ["", "Yes", '{"ballots": 3}', '{"ballots": [{"judge": 1}]}', '{"ballots": [', "{}"])
def test_what_a_single_judge_writes_is_no_ballot(reply):
    assert read_ballots(reply) is None


@pytest.mark.parametrize(
    ("verdicts", "graded", "joint"),
    [
        ([], None, None),
        ([None, None], None, None),
        ([1.0], None, 1.0),
        ([1.0, 0.0], None, None),
        ([1.0, 0.0], True, 0.5),
        ([1.0, 0.0, None, 1.0], None, 1.0),
        ([3.0, 4.0], None, 3.5),
        ([3.0, 4.0, 4.0], False, 4.0),
        (["partial", "complete", "partial"], True, "partial"),
        (["a", "b"], None, None),
        ([[1], [1], [2]], None, [1]),
        ([{"a": 1}, {"a": 2}], None, None),
    ],
)
def test_grades_are_averaged_and_all_else_needs_a_majority(verdicts, graded, joint):
    assert joint_verdict(verdicts, graded=graded) == joint


def test_a_judge_that_is_asked_more_often_weighs_no_more():
    said = {"a": [1.0, 1.0, 1.0, 0.0], "b": [0.0], "c": [0.0]}
    assert jury_verdict(said) == 0.0
    assert jury_verdict({"a": [4.0, 2.0], "b": [1.0]}) == 2.0
    assert jury_verdict({"a": [None], "b": [1.0]}) == 1.0
