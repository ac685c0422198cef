"""T2 of tissues in the maps of a reconstruction."""

import doctest
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics import quantitative
from medimg_eval.metrics.quantitative import RegionT2, t2_agreement, t2_error_ms

NAMES = {1: "patellar", 2: "femoral"}


def test_a_tissue_is_worth_the_mean_of_the_voxels_that_can_be_believed():
    reference = np.array([[30.0, 34.0, 0.0], [50.0, 60.0, 7.0]])
    prediction = np.array([[31.0, 37.0, 33.0], [np.nan, 62.0, 9.0]])
    labels = np.array([[1, 1, 1], [2, 2, 0]])
    found = t2_error_ms(reference, prediction, labels, NAMES)
    # 0 is a fit that failed, and so is NaN; each leaves only its own map.
    assert found["patellar"] == RegionT2(32.0, pytest.approx(101 / 3), pytest.approx(5 / 3), 3, 2, 3)
    assert found["femoral"] == RegionT2(55.0, 62.0, 7.0, 2, 2, 1)


def test_values_above_the_limit_are_dropped_and_the_limit_itself_counts():
    values, labels = np.array([100.0, 100.1, 50.0]), np.ones(3, np.uint8)
    found = t2_error_ms(values, values, labels, {1: "meniscus"})["meniscus"]
    assert (found.reference, found.error, found.believed) == (75.0, 0.0, 2)
    found = t2_error_ms(values, values, labels, {1: "meniscus"}, limits=(0, 80))["meniscus"]
    assert found.reference == 50.0


def test_a_segmentation_is_judged_by_the_same_map_under_its_own_mask():
    values = np.array([30.0, 40.0, 50.0])
    found = t2_error_ms(values, values, np.array([1, 1, 0]), {1: "tibial"}, predicted_labels=np.array([0, 1, 1]))[
        "tibial"
    ]
    assert (found.reference, found.prediction, found.error) == (35.0, 45.0, 10.0)


def test_a_tissue_that_is_not_there_has_no_value():
    found = t2_error_ms(np.zeros(3), np.ones(3), np.array([1, 1, 0]), NAMES)
    assert math.isnan(found["patellar"].reference)
    assert math.isnan(found["patellar"].error)
    assert math.isnan(found["femoral"].prediction)
    assert found["femoral"].voxels == 0


def test_maps_and_masks_that_do_not_fit_are_refused():
    values, labels = np.ones((2, 3)), np.ones((2, 3), int)
    with pytest.raises(ValueError, match=r"`prediction` to have the shape \(2, 3\), got \(3, 2\)"):
        t2_error_ms(values, values.T, labels, NAMES)
    with pytest.raises(ValueError, match="`labels` to hold integers, got float64"):
        t2_error_ms(values, values, values, NAMES)
    with pytest.raises(ValueError, match=r"the lower one first, got \(100, 0\)"):
        t2_error_ms(values, values, labels, NAMES, limits=(100, 0))


def subject(*pairs):
    """Regions with these values."""
    return {
        name: RegionT2(one, two, two - one, 10, 10, 10) for name, (one, two) in zip(NAMES.values(), pairs, strict=False)
    }


def test_agreement_over_subjects_is_what_is_worked_out_by_hand():
    found = t2_agreement([subject((40, 42)), subject((30, 29)), subject((50, 55))])["patellar"]
    assert found.subjects == 3
    assert found.bias == pytest.approx(2)
    assert found.mean_absolute_error == pytest.approx(8 / 3)
    assert (found.low, found.high) == pytest.approx((2 - 1.96 * 3, 2 + 1.96 * 3))  # 2, -1, 5: standard deviation 3
    squares = [(2 / 41) ** 2 / 2, (1 / 29.5) ** 2 / 2, (5 / 52.5) ** 2 / 2]
    assert found.rms_cv == pytest.approx(math.sqrt(sum(squares) / 3))


def test_subjects_without_a_tissue_are_left_out_and_counted():
    found = t2_agreement([subject((40, 42), (20, 20)), subject((30, math.nan), (20, 26))])
    assert found["patellar"].subjects == 1
    assert math.isnan(found["patellar"].low)
    assert (found["femoral"].subjects, found["femoral"].bias) == (2, 3)
    nobody = t2_agreement([subject((math.nan, 1.0))])["patellar"]
    assert nobody.subjects == 0
    assert math.isnan(nobody.bias)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.floats(1, 99), st.floats(1, 99)), min_size=2, max_size=20), st.floats(-5, 5))
def test_exchanging_the_maps_turns_the_bias_and_leaves_the_variation(pairs, shift):
    one = t2_agreement([subject(pair) for pair in pairs])["patellar"]
    other = t2_agreement([subject(pair[::-1]) for pair in pairs])["patellar"]
    assert other.bias == pytest.approx(-one.bias, abs=1e-9)
    assert other.rms_cv == pytest.approx(one.rms_cv)
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low), abs=1e-9)
    moved = t2_agreement([subject((a, a + shift)) for a, _ in pairs])["patellar"]
    assert moved.bias == pytest.approx(shift, abs=1e-9)


def test_the_examples_in_the_docstrings_run():
    outcome = doctest.testmod(quantitative)
    assert outcome.attempted > 0
    assert outcome.failed == 0
