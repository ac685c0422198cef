"""Debiased and adaptive calibration errors and AUGRC: by hand, by plain loops, and beside netcal where it is there."""

import math

import numpy as np
import pytest
from calibration_rows import classes, made, rows, value
from hypothesis import given, settings
from hypothesis import strategies as st

SURE = [0.95, 0.9, 0.85, 0.8, 0.7, 0.65, 0.6, 0.55, 0.5, 0.4]
RIGHT = [True, True, True, False, True, True, False, True, False, False]


def test_a_worked_vector_of_ten_decisions():
    ten = rows(SURE, RIGHT)
    # Bins of two: shares 0, 1/2, 1/2, 1, 1/2 against 0.45, 0.575, 0.625, 0.75, 0.825 ... of (0.4, 0.5), (0.55, 0.6) ...
    gaps = [abs(0 - 0.45), abs(0.5 - 0.575), abs(1 - 0.675), abs(0.5 - 0.825), abs(1 - 0.925)]
    assert value("ace_adaptive@5", ten) == pytest.approx(np.mean(gaps)) == pytest.approx(0.25)
    assert value("augrc", ten) == pytest.approx(0.12)
    assert value("brier_score", ten) == pytest.approx(0.186)
    assert value("calibration_shift", ten) == pytest.approx(0.09)
    assert value("confidence_auroc", ten) == pytest.approx(0.8333333, abs=1e-6)
    assert value("aurc", ten) == pytest.approx(0.188571, abs=1e-6)
    # Wrong ones last: 4 of 10, so e^2 / 2.
    assert value("augrc", rows(np.where(RIGHT, 0.9, 0.1), RIGHT)) == pytest.approx(0.08)


def test_the_bias_of_a_bin_is_taken_off():
    # One bin: a = 3/4, mean confidence 0.5: 0.0625 - 0.1875 / 3 = 0.
    four = rows([0.5] * 4, [True, True, True, False])
    assert value("ece_debiased@1", four) == pytest.approx(0)
    # One of 16, a = 3/4: 0.0625 - 0.1875 / 15 = 0.05.
    sixteen = rows([0.5] * 16, [True] * 12 + [False] * 4)
    assert value("ece_debiased@1", sixteen) == pytest.approx(math.sqrt(0.05))


def test_the_debiased_error_of_honest_confidences_is_nearer_to_0():
    rng = np.random.default_rng(1)
    squares, biased = [], []
    for _ in range(100):
        sure = rng.random(300)
        honest = rows(sure, rng.random(300) < sure)
        squares.append(value("ece_debiased@15", honest))
        biased.append(value("ece_mass@15", honest))
    assert np.mean(squares) < np.mean(biased) / 1.5


def test_the_debiased_error_is_that_of_a_plain_loop():
    sure, right = made(digits=9)
    total = 0.0
    for part in np.array_split(np.argsort(sure), 15):
        share = right[part].mean()
        total += len(part) * ((share - sure[part].mean()) ** 2 - share * (1 - share) / (len(part) - 1))
    assert value("ece_debiased@15", rows(sure, right)) == pytest.approx(math.sqrt(max(total / len(sure), 0)))


def test_classes_have_bins_of_their_own():
    given_rows = classes([[1, 0], [0, 1]], [[0.7, 0.4], [0.2, 0.5]])
    assert value("ace_adaptive@1", given_rows) == pytest.approx((abs(0.5 - 0.45) + abs(0.5 - 0.45)) / 2)
    assert value("ace_adaptive@2", given_rows) == pytest.approx((0.2 + 0.3 + 0.4 + 0.5) / 4)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=30),
)
@settings(max_examples=50, deadline=None)
def test_augrc_follows_from_auroc_and_stays_in_its_range(pairs):
    sure, right = np.array([place / 9 for place, _ in pairs]), np.array([yes for _, yes in pairs])
    ten = rows(sure, right)
    area, share = value("augrc", ten), right.mean()
    assert -1e-12 <= area <= 0.5 + 1e-12
    if 0 < share < 1:
        expected = (1 - value("confidence_auroc", ten)) * share * (1 - share) + (1 - share) ** 2 / 2
        assert area == pytest.approx(expected)
    for name in ("ece_debiased@3", "ace_adaptive@3"):
        assert 0 <= value(name, ten) <= 1


def test_netcal_has_the_same_errors_in_bins_of_equal_width():
    netcal = pytest.importorskip("netcal.metrics", reason="netcal is not installed")
    sure, right = made(digits=9)
    assert netcal.ECE(10).measure(sure, right.astype(int)) == pytest.approx(value("ece_width@10", rows(sure, right)))
