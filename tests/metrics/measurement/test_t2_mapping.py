"""T2 of tissues in the maps of a reconstruction."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics.measurement.measurements import measurement_scores
from medimg_eval.metrics.measurement.t2_mapping import DessScan, RegionT2, dess_t2, t2_agreement, t2_error_ms

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


# T2 from two echoes

FIRST = np.array([100.0, 100.0, 100.0, 100.0, 100.0, 14.0, 80.0, 100.0])
SECOND = np.array([20.0, 35.0, 50.0, 60.0, 0.0, 2.0, 66.0, 74.0])
KNEE = DessScan(20.36, 6.428, 20.0, 3400.0, 3132.0)


@pytest.mark.parametrize(
    ("scan", "t1", "expected"),
    [
        # What DOSMA 0.1.2 makes of the same echoes; 0 there is NaN here.
        (KNEE, 1200.0, [20.7, 35.5, 65.1, 0, 0, 0, 0, 0]),
        (KNEE, 1000.0, [21.4, 37.5, 72.0, 0, 0, 0, 0, 0]),
        (DessScan(17.6, 5.5, 25.0, 1700.0, 1560.0), 1200.0, [16.5, 26.7, 44.0, 65.8, 0, 0, 0, 0]),
    ],
)
def test_t2_of_two_echoes_is_that_of_skm_teas_program(scan, t1, expected):
    found = dess_t2(FIRST, SECOND, scan, t1=t1)
    np.testing.assert_array_equal(np.nan_to_num(found), expected)
    np.testing.assert_array_equal(dess_t2(FIRST * 3, SECOND * 3, scan, t1=np.full(8, t1)), found)  # any unit


def test_t2_without_a_spoiler_is_the_decay_between_the_echoes():
    # With a flip angle of 180 degrees the echoes differ by exp(-2 (TR - TE) / T2) alone.
    scan = DessScan(25.0, 5.0, 180.0, 1e-6, 1e-6)
    decay = np.exp(-2 * 20.0 / np.array([30.0, 45.5, 90.0]))
    np.testing.assert_allclose(dess_t2(np.ones(3), decay, scan), [30.0, 45.5, 90.0])


def test_voxels_that_are_not_wanted_have_no_t2_and_change_no_other():
    where = np.arange(8) < 2
    found = dess_t2(FIRST, SECOND, KNEE, where=where)
    assert np.isnan(found[2:]).all()
    np.testing.assert_array_equal(found[:2], dess_t2(FIRST, SECOND, KNEE)[:2])
    assert np.isnan(dess_t2(np.zeros(3), np.zeros(3), KNEE)).all()


@given(ratio=st.floats(0.01, 0.6), more=st.floats(1.001, 1.2), scale=st.floats(1e-6, 1e6), t1=st.floats(300, 3000))
@settings(deadline=None, max_examples=30)
def test_t2_grows_with_the_second_echo_and_knows_no_unit(ratio, more, scale, t1):
    first, second = np.ones(2), np.array([ratio, ratio * more])
    found = dess_t2(first, second, KNEE, t1=t1)
    np.testing.assert_array_equal(dess_t2(scale * first, scale * second, KNEE, t1=t1), found)
    known = found[~np.isnan(found)]
    assert ((known > 0) & (known <= 100)).all()
    assert len(known) < 2 or found[1] >= found[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"second": np.ones(3)}, r"`second` to hold magnitudes \(8,\)"),
        ({"first": FIRST.astype(complex)}, "`first` to hold magnitudes"),
        ({"second": np.full(8, np.nan)}, "`second` to be finite"),
        ({"scan": KNEE._replace(flip_angle=0.0)}, "`flip_angle` of the scan to be above 0, got 0"),
        ({"scan": KNEE._replace(repetition_time=math.nan)}, "`repetition_time` of the scan"),
    ],
)
def test_echoes_that_cannot_be_meant_are_refused(change, words):
    given = {"first": FIRST, "second": SECOND, "scan": KNEE, **change}
    with pytest.raises(ValueError, match=words):
        dess_t2(given["first"], given["second"], given["scan"])


def test_t2_is_a_measurement_with_bias_error_and_limits_of_agreement():
    metrics = ["t2_error_ms", "t2_absolute_error_ms", "measured", "measured_reference"]
    subjects = [(40.0, 42.0), (35.0, 34.0), (50.0, 53.0), (44.0, math.nan)]
    scores = [measurement_scores({"femoral": one}, {"femoral": two}, metrics=metrics) for one, two in subjects]
    assert [case[0].value for case in scores[:3]] == [2.0, -1.0, 3.0]
    assert [case[1].value for case in scores] == [2.0, 1.0, 3.0, 100.0]
    assert math.isnan(scores[3][0].value)
    assert scores[3][0].status == "missed"
    assert math.isnan(measurement_scores({"femoral": math.nan}, {"femoral": 3.0}, metrics=metrics)[1].value)
    values = {"femoral": t2_error_ms(np.array([40.0]), np.array([42.0]), np.array([1]), {1: "femoral"})["femoral"]}
    assert t2_agreement([values])["femoral"].bias == scores[0][0].value
