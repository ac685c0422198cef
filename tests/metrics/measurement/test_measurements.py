"""Angles, heights and errors of measurements against hand-worked cases and independent formulas."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from medimg_eval.errors import UsageError
from medimg_eval.metrics import LabelScore
from medimg_eval.metrics.measurement.angles import cobb_angles, joint_angle, measured_between, unwrapped
from medimg_eval.metrics.measurement.measurements import (
    measurement_scores,
    relative_height_loss,
    worst_measurement_scores,
)


def spine(tilts, columns=None, step=50, top=50):
    """Corners, row and column, of vertebrae of 60 x 36 that are turned by `tilts` degrees (clockwise as seen)."""
    corners = []
    for index, tilt in enumerate(tilts):
        turn, middle = math.radians(tilt), (top + step * index, 300 if columns is None else columns[index])
        for row in (-18, 18):
            corners += [
                (
                    middle[0] + column * math.sin(turn) + row * math.cos(turn),
                    middle[1] + column * math.cos(turn) - row * math.sin(turn),
                )
                for column in (-30, 30)
            ]
    return np.array(corners)


def test_a_c_shaped_spine_is_measured_to_its_ends():
    # Tilts 5, 20, 0, -25, -10: the main curve runs from vertebra 2 to 4, its middles bulge to one side of the chord.
    angles = cobb_angles(spine([5, 20, 0, -25, -10], [300, 320, 330, 320, 300]), height=400)
    assert angles == pytest.approx((45, 15, 15))  # MT 20 to -25; PT 5 to 20; TL -25 to -10


S_SHAPE = [300, 330, 350, 330, 300, 270, 250, 270, 300]


def test_of_an_s_shaped_spine_with_a_high_main_curve_the_others_lie_above_and_below():
    # Main curve 30 to -20 between vertebrae 2 and 4; above it 30 to 10; below it -20 to 15.
    angles = cobb_angles(spine([10, 30, 0, -20, -5, 5, 15, 10, 5], S_SHAPE), height=1000)
    assert angles == pytest.approx((50, 20, 35))


def test_of_an_s_shaped_spine_with_a_low_main_curve_both_others_lie_above():
    # Main curve -30 to 25 between vertebrae 6 and 8; above it -30 to 20 (vertebra 3); above that 20 to -10.
    angles = cobb_angles(spine([-10, 5, 20, 0, -15, -30, 0, 25, 5], S_SHAPE), height=300)
    assert angles == pytest.approx((55, 50, 30))
    # The same spine high in its image: the third curve is the one below the main curve, 25 to 5.
    assert cobb_angles(spine([-10, 5, 20, 0, -15, -30, 0, 25, 5], S_SHAPE), height=3000) == pytest.approx((55, 50, 20))


def test_a_straight_spine_has_no_curve_and_nothing_exceeds_90_degrees():
    assert cobb_angles(spine([0] * 17), height=1000) == (0, 0, 0)
    assert cobb_angles(spine([50, -50], step=200), height=1000).mt == 90


@settings(deadline=None, max_examples=25)
@given(
    tilts=arrays(np.float64, 8, elements=st.floats(-35, 35)),
    columns=arrays(np.float64, 8, elements=st.floats(200, 400)),
    seed=st.integers(0, 1000),
)
def test_the_order_of_corners_and_vertebrae_does_not_matter_nor_does_scale(tilts, columns, seed):
    corners = spine(tilts, columns, step=80)
    found = cobb_angles(corners, height=700)
    rng = np.random.default_rng(seed)
    mixed = np.array([one[rng.permutation(4)] for one in corners.reshape(8, 4, 2)[rng.permutation(8)]])
    np.testing.assert_allclose(cobb_angles(mixed.reshape(-1, 2), height=700), found, atol=1e-9)
    np.testing.assert_allclose(cobb_angles(corners * 2, height=1400), found, atol=1e-6)
    assert found.mt == pytest.approx(min(90, np.ptp(tilts)), abs=1e-6)
    assert max(found) == pytest.approx(found.mt, abs=1e-9)


def ported(points, height):
    """AASCE's three angles by arc cosines of (x, y) corners in order, as its port words the rule."""
    left, right = (points[0::4] + points[2::4]) / 2, (points[1::4] + points[3::4]) / 2
    across = right - left
    across /= np.linalg.norm(across, axis=1)[:, None]
    angles = np.degrees(np.arccos(np.clip(across @ across.T, 0, 1)))
    end_of = angles.argmax(axis=1)
    upper = int(angles.max(axis=1).argmax())
    lower = int(end_of[upper])
    middles = (points[0::2] + points[1::2]) / 2
    x, y = middles.T
    side = (y[:-2] - y[-1]) / (y[0] - y[-1]) - (x[:-2] - x[-1]) / (x[0] - x[-1])
    products = np.outer(side, side)
    if abs(products.sum() - np.abs(products).sum()) < 1e-4:
        return angles[upper, lower], angles[0, upper], angles[-1, lower]
    if y[2 * upper] + y[2 * lower] < height:
        return angles[upper, lower], angles[upper, : upper + 1].max(), angles[lower, lower:].max()
    end = int(angles[upper, : upper + 1].argmax())
    return angles[upper, lower], angles[upper, end], angles[end, : end + 1].max()


def test_cobb_angles_are_those_of_the_challenges_rule_on_many_spines():
    rng, shapes = np.random.default_rng(0), set()
    for _ in range(150):
        rows = np.linspace(50, 950, 17)
        columns = 300 + rng.uniform(20, 120) * np.sin(rng.uniform(0.3, 2.2) * np.pi * rows / 1000 + rng.uniform(0, 6))
        tilts = np.degrees(np.gradient(columns, rows) * rng.uniform(0.5, 1)) + rng.normal(0, 2, 17)
        corners = spine(tilts, columns, step=56.25)
        expected = ported(corners[:, ::-1], 1000)
        np.testing.assert_allclose(cobb_angles(corners, 1000), expected, atol=1e-4)
        shapes.add((expected[1] == expected[0], round(expected[2] - expected[1]) > 0))
    assert len(shapes) > 1


@pytest.mark.parametrize("corners", [np.zeros((6, 2)), np.zeros((4, 2)), np.zeros((8, 3)), np.full((8, 2), math.nan)])
def test_corners_that_are_no_vertebrae_are_refused(corners):
    with pytest.raises(ValueError, match="four corners of each of at least two vertebrae"):
        cobb_angles(corners, height=100)


def test_joint_angles_of_three_and_of_four_points():
    assert joint_angle([(0, 0, 2), (0, 0, 0), (0, 3, 3)]) == pytest.approx(45)
    assert joint_angle([(1, 0), (0, 0), (-5, 0)]) == 180
    # Lines that do not meet: one runs along an axis, the other against it, and then across.
    assert joint_angle([(0, 0), (2, 0), (5, 5), (1, 5)]) == 180
    assert joint_angle([(0, 0), (2, 0), (9, 9), (9, 12)]) == pytest.approx(90)
    assert math.isnan(joint_angle([(0, 0), (0, 0), (1, 1)]))
    with pytest.raises(ValueError, match="three or four points"):
        joint_angle([(0, 0), (1, 1)])
    assert measured_between([(0, 0, 0), (2, 3, 6)]) == 7


@settings(deadline=None, max_examples=30)
@given(arrays(np.float64, (3, 3), elements=st.floats(-9, 9)), arrays(np.float64, 3, elements=st.floats(-9, 9)))
def test_a_joint_angle_is_that_of_the_dot_product_wherever_it_lies(points, shift):
    one, other = points[0] - points[1], points[2] - points[1]
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    found = joint_angle(points)
    if min(np.linalg.norm(one), np.linalg.norm(other)) < 1e-3:
        return
    assert 0 <= found <= 180
    assert math.cos(math.radians(found)) == pytest.approx(one @ other / lengths, abs=1e-6)
    assert joint_angle(points + shift) == pytest.approx(found, abs=1e-3)
    assert joint_angle(points[::-1]) == pytest.approx(found, abs=1e-9)


@pytest.mark.parametrize(
    ("value", "reference", "period", "expected"),
    [(359, 2, 360, -1), (1, 350, 360, 361), (179, 1, 180, -1), (90, 0, None, 90), (725, 4, 360, 5), (10, 10, 360, 10)],
)
def test_circular_values_are_taken_where_they_are_nearest(value, reference, period, expected):
    assert unwrapped(value, reference, period) == pytest.approx(expected)


def test_errors_and_tolerances_worked_out_by_hand():
    rows = measurement_scores(
        {"MT": 40.0, "PT": 20.0, "TL": math.nan},
        {"MT": 45.0, "TL": 3.0},
        metrics=["absolute_error", "accuracy_within@5", "accuracy_within@4", "measured", "measured_reference"],
    )
    values = {(row.label, row.metric): row.value for row in rows}
    assert {row.label: row.status for row in rows} == {"MT": "present", "PT": "missed", "TL": "hallucinated"}
    assert [
        values["MT", name] for name in ("absolute_error", "accuracy_within@5", "accuracy_within@4", "measured")
    ] == [5, 1, 0, 45]
    assert (values["PT", "accuracy_within@5"], values["PT", "measured_reference"]) == (0, 20)
    for missing in (
        ("PT", "absolute_error"),
        ("PT", "measured"),
        ("TL", "accuracy_within@5"),
        ("TL", "measured_reference"),
    ):
        assert math.isnan(values[missing])


def test_circular_measurements_differ_by_the_shorter_way():
    asked = ["angle_error", "measured", "accuracy_within@5"]
    rows = measurement_scores({"axis": 178.0}, {"axis": 1.0}, metrics=asked, periods={"axis": 180})
    assert [row.value for row in rows] == [3, 181, 1]


def test_without_a_value_of_its_own_the_reference_is_the_mean_of_the_readers_means():
    truth = {"MT/anna/1": 10.0, "MT/anna/2": 14.0, "MT/bo": 18.0, "MT/cy": math.nan}
    rows = measurement_scores(
        truth, {"MT": 16.0}, metrics=["measured_reference", "absolute_error", "measured_by_reader"]
    )
    assert rows[:2] == [
        LabelScore("MT", "measured_reference", 15.0, "present"),
        LabelScore("MT", "absolute_error", 1.0, "present"),
    ]
    assert [(row.label, row.value) for row in rows[2:5]] == [("MT/anna/1", 10), ("MT/anna/2", 14), ("MT/bo/1", 18)]
    assert (rows[5].label, rows[5].status) == ("MT/cy/1", "absent")
    assert measurement_scores({**truth, "MT": 12.0}, {"MT": 16.0})[0].value == 4  # its own value comes first
    around = measurement_scores({"a/x": 358.0, "a/y": 4.0}, {"a": 1.0}, periods={"a": 360})
    assert around[0].value == pytest.approx(0)  # the readers' mean is 1, not 181


def test_a_failed_case_keeps_what_the_reference_says():
    metrics = ["absolute_error", "accuracy_within@5", "measured", "measured_reference", "measured_by_reader"]
    rows = worst_measurement_scores({"MT": 20.0, "MT/anna": 21.0}, metrics)
    assert {row.status for row in rows} == {"failed"}
    np.testing.assert_array_equal([row.value for row in rows], [math.nan, 0, math.nan, 20, 21])


def test_what_the_reference_lacks_is_no_failure():
    rows = worst_measurement_scores({"MT": math.nan}, ["accuracy_within@5"])
    assert math.isnan(rows[0].value)
    assert rows[0].status == "failed"


def test_measurements_that_cannot_be_meant_are_refused():
    with pytest.raises(ValueError, match="value of 'MT' to be finite"):
        measurement_scores({"MT": 1.0}, {"MT": math.inf})
    with pytest.raises(ValueError, match="period of 'MT' to be above 0"):
        measurement_scores({"MT": 1.0}, {"MT": 1.0}, periods={"MT": 0})
    with pytest.raises(ValueError, match="name/reader/reading, got 'a/b/c/d'"):
        measurement_scores({"a/b/c/d": 1.0}, {})
    with pytest.raises(UsageError, match="'dice' judges mask, not measurements"):
        measurement_scores({}, {}, metrics=["dice"])


def test_height_losses_of_wedges_worked_out_by_hand():
    healthy = np.zeros((20, 14, 9), bool)
    healthy[2:14, 1:13, 1:8] = True  # 12 high, 12 long: thirds of 4 columns
    wedge = healthy.copy()
    wedge[2:5, 1:5] = False  # the front third lost 3 of 12
    loss = relative_height_loss(healthy, wedge)
    assert loss == pytest.approx((1 / 12, 3 / 12, 0, 0))
    biconcave = healthy.copy()
    biconcave[2:4, 5:9] = False
    assert relative_height_loss(healthy, biconcave)[1:] == pytest.approx((0, 2 / 12, 0))
    assert relative_height_loss(healthy, healthy) == (0, 0, 0, 0)
    assert relative_height_loss(wedge, healthy).anterior == pytest.approx(-1 / 3)  # (9 - 12) / 9


def test_a_lopsided_vertebra_is_measured_within_its_own_slices():
    healthy = np.zeros((6, 9, 20), bool)
    healthy[1:5, :, 16:] = True
    healthy[2, 4, 0] = True  # its middle is slice 17, and a fifth of its extent to the side is beyond the image
    crushed = healthy.copy()
    crushed[1:3, :, 16:] = False
    assert relative_height_loss(healthy, crushed).whole == 0.5


def test_low_columns_and_slices_at_the_sides_do_not_count_for_heights():
    healthy = np.zeros((20, 12, 11), bool)
    healthy[4:16, 0:12, 0:11] = True
    crushed = healthy.copy()
    crushed[4:10, 0, :] = False  # half as high as the middle column: a corner, left out
    crushed[4:15, :, 0] = False  # a slice at the side
    assert relative_height_loss(healthy, crushed) == pytest.approx((0, 0, 0, 0))
    assert relative_height_loss(healthy, crushed, lowest=0.4).anterior == pytest.approx(6 / 12 / 4)
    assert all(math.isnan(value) for value in relative_height_loss(healthy, np.zeros_like(healthy)))
    assert all(math.isnan(value) for value in relative_height_loss(np.zeros_like(healthy), healthy))
    with pytest.raises(ValueError, match="`original` to be a boolean volume"):
        relative_height_loss(healthy, healthy.astype(int))
