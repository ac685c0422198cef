"""Attacks on right answers: by hand, and what holds for any trace."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics import get
from medimg_eval.metrics.answers import AnsweredQuestion

NAMES = ("right_before_attack", "attack_success", "attack_edits", "attack_p")
RIGHTS = st.lists(st.booleans(), max_size=6)


def values(answers, controls=()):
    steps = [{"kind": kind, "right": right} for kind, of in (("model", answers), ("control", controls)) for right in of]
    pair = AnsweredQuestion("choice", "A", "A", options={"A": "a", "B": "b"}, trace=tuple(steps))
    return [get(name).function(pair) for name in NAMES]


@pytest.mark.parametrize(
    ("answers", "controls", "expected"),
    [
        # Right, right after one edit, wrong after two; of four controls one is answered wrong: p = (1 + 1) / (1 + 4).
        ([True, True, False], [True, False, True, True], [1, 1, 2, 2 / 5]),
        ([True, False], [], [1, 1, 1, math.nan]),
        ([True, True, True], [], [1, 0, math.nan, math.nan]),
        ([False], [], [0, math.nan, math.nan, math.nan]),
        ([], [], [math.nan] * 4),
        # No control misleads: the smallest p of three, 1 / 4. All mislead: 1.
        ([True, False], [True] * 3, [1, 1, 1, 1 / 4]),
        ([True, False], [False] * 3, [1, 1, 1, 1]),
    ],
)
def test_attacks_by_hand(answers, controls, expected):
    assert values(answers, controls) == pytest.approx(expected, nan_ok=True)


@settings(deadline=None)
@given(answers=RIGHTS, controls=RIGHTS)
def test_bounds_of_attacks(answers, controls):
    before, success, edits, p = values(answers, controls)
    assert math.isnan(before) == (not answers)
    assert math.isnan(success) == (before != 1)
    assert math.isnan(edits) == (success != 1)
    assert math.isnan(p) == (success != 1 or not controls)
    assert math.isnan(p) or 1 / (1 + len(controls)) <= p <= 1
    # One more control that misleads never lowers p.
    assert math.isnan(p) or values(answers, [*controls, False])[3] >= p
