"""Failure detection of masks: by hand, and as plain loops over sorted masks."""

import math

import numpy as np
import pytest
from calibration_rows import value
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics import ScoreTable, parse

NAMES = ("dice_aurc", "dice_eaurc", "dice_augrc", "expected_dice_error", "expected_dice_correlation")


def masks(estimates, dice):
    """Rows of an estimate and of the Dice of one mask of each case."""
    number = len(dice)
    return ScoreTable(
        case=np.tile(np.arange(number), 2),
        metric=np.repeat(["expected_dice", "dice"], number),
        label=np.full(2 * number, "liver"),
        value=np.concatenate([np.asarray(estimates, float), np.asarray(dice, float)]),
        status=np.full(2 * number, "present"),
        attributes={},
        cases=number,
        facts={},
    )


def test_four_masks_by_hand():
    four = masks([0.9, 0.8, 0.7, 0.6], [0.8, 0.9, 0.2, 0.6])
    # Risks 0.2, 0.1, 0.8, 0.4: means of the first k 0.2, 0.15, 1.1/3, 1.5/4; at best 0.1, 0.15, 0.7/3, 1.5/4.
    assert value("dice_aurc", four) == pytest.approx((0.2 + 0.15 + 1.1 / 3 + 1.5 / 4) / 4)
    assert value("dice_eaurc", four) == pytest.approx((0.1 + 0.4 / 3) / 4)
    # Trapezoids between 0, 0.2, 0.3, 1.1 and 1.5, over 4 masks twice.
    assert value("dice_augrc", four) == pytest.approx((0.1 + 0.25 + 0.7 + 1.3) / 16)
    assert value("expected_dice_error", four) == pytest.approx((0.1 + 0.1 + 0.5 + 0.0) / 4)
    expected = np.corrcoef([0.9, 0.8, 0.7, 0.6], [0.8, 0.9, 0.2, 0.6])[0, 1]
    assert value("expected_dice_correlation", four) == pytest.approx(expected)


def test_masks_without_either_value_do_not_count():
    assert value("dice_aurc", masks([0.9, math.nan, 0.5], [0.8, 0.1, math.nan])) == pytest.approx(0.2)


@pytest.mark.parametrize("name", NAMES)
def test_without_masks_there_is_no_value(name):
    assert math.isnan(value(name, masks([], [])))
    assert math.isnan(value("expected_dice_correlation", masks([0.5, 0.5], [0.1, 0.9])))


@pytest.mark.parametrize("name", NAMES)
def test_counted_twice_is_the_same_as_standing_there_twice(name):
    rng = np.random.default_rng(0)
    estimates, dice = rng.random(20), rng.random(20)
    times = rng.integers(0, 3, 20)
    drawn = np.repeat(np.arange(20), times)
    found = parse(name)[0]
    weights = np.tile(times, 2).astype(float)
    rows = masks(estimates, dice)
    quick = found.total(weights @ found.pieces(rows)) if found.pieces else found.weighed(rows)(weights[None])[0]
    assert quick == pytest.approx(value(name, masks(estimates[drawn], dice[drawn])))


@given(st.lists(st.tuples(st.integers(0, 8), st.floats(0, 1)), min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_values_stay_in_their_range(pairs):
    rows = masks([place / 8 for place, _ in pairs], [dice for _, dice in pairs])
    assert 0 <= value("dice_aurc", rows) <= 1
    assert -1e-9 <= value("dice_eaurc", rows) <= value("dice_aurc", rows) + 1e-9
    assert 0 <= value("dice_augrc", rows) <= 0.5 + 1e-9
    best = masks([dice for _, dice in pairs], [dice for _, dice in pairs])
    assert value("dice_eaurc", best) == pytest.approx(0, abs=1e-9)
