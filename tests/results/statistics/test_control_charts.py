"""Control charts by hand, by textbook constants, and by how often they raise an alarm without a reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special

from medimg_eval.results.statistics import RULES, control_chart, violations
from medimg_eval.results.statistics.control_charts import EIGHT, FOUR_OF_FIVE, LIMIT, TWO_OF_THREE, Charted

NAN = math.nan


def test_a_p_chart_by_hand():
    # 100, 100 and 400 cases; centre 0.9 of the first two, so sigma is 0.03, 0.03, 0.015.
    chart = control_chart("p", [0.88, 0.92, 0.84], [100, 100, 400], [NAN] * 3, 2)
    assert chart.centre == pytest.approx(0.9)
    assert chart.low.tolist() == pytest.approx([0.81, 0.81, 0.855])
    assert chart.high.tolist() == pytest.approx([0.99, 0.99, 0.945])
    assert chart.z.tolist() == pytest.approx([-2 / 3, 2 / 3, -4])
    assert violations(chart) == [[], [], [LIMIT]]


def test_limits_of_shares_stay_shares_and_weigh_by_cases():
    chart = control_chart("p", [0.99, 0.9], [300, 100], [NAN, NAN], 2)
    assert chart.centre == pytest.approx(0.9675)
    assert chart.high.tolist() == pytest.approx([0.9675 + 3 * math.sqrt(0.9675 * 0.0325 / 300), 1.0])


def test_laneys_chart_widens_by_what_periods_differ_more_than_chance():
    means, sizes = [0.45, 0.55, 0.45, 0.55, 0.5], [10_000] * 5
    narrow, wide = (control_chart(kind, means, sizes, [NAN] * 5, 5) for kind in ("p", "laney"))
    sigma = 0.5 / 100
    ratio = np.abs(np.diff((np.array(means) - 0.5) / sigma)).mean() / 1.1283792
    assert (wide.high - 0.5)[0] == pytest.approx(3 * sigma * ratio)
    assert narrow.high[0] - 0.5 == pytest.approx(3 * sigma)


def test_an_x_bar_chart_pools_the_spread_within_periods():
    # Pooled variance (4 * 0.04 + 9 * 0.09) / 13; the last period has 4 cases.
    chart = control_chart("xbar", [0.8, 0.7, 0.5], [5, 10, 4], [0.2, 0.3, 9.0], 2)
    pooled = math.sqrt((4 * 0.04 + 9 * 0.09) / 13)
    assert chart.centre == pytest.approx(11 / 15)
    assert chart.high[2] == pytest.approx(11 / 15 + 3 * pooled / 2)


def test_individual_values_have_limits_of_the_moving_range():
    # Ranges 2, 4, 2: mean 8/3, sigma = (8/3) / 1.128; 2.66 moving ranges are 3 sigma.
    chart = control_chart("individuals", [10, 12, 8, 10], [1] * 4, [NAN] * 4, 4)
    assert chart.high[0] - chart.centre == pytest.approx(2.66 * 8 / 3, rel=1e-3)


def test_an_ewma_by_hand():
    chart = control_chart("ewma", [1.0, -1.0, 3.0], [1] * 3, [NAN] * 3, 2)
    sigma = 2 / 1.1283792  # of the one moving range, 2
    assert chart.plotted.tolist() == pytest.approx([0.2, -0.04, 0.568])
    factor = [math.sqrt(0.2 / 1.8 * (1 - 0.8 ** (2 * n))) for n in (1, 2, 3)]
    assert chart.high.tolist() == pytest.approx([2.86 * sigma * one for one in factor])


def test_a_cusum_by_hand():
    # z: 1, -1, 2, 3, 2 -> upwards 0.5, 0, 1.5, 4, 5.5, which is above 4.77.
    sigma = 2 / 1.1283792
    chart = control_chart("cusum", np.array([1, -1, 2, 3, 2]) * 1.0, [1] * 5, [NAN] * 5, 2)
    z = np.array([1, -1, 2, 3, 2]) / sigma
    up, last = [], 0.0
    for value in z:
        last = max(0.0, last + value - 0.5)
        up.append(last)
    assert chart.plotted[2:].tolist() == pytest.approx(up[2:])
    assert chart.plotted[1] == pytest.approx(-(1 / sigma - 0.5))


def chart_of(z):
    z = np.asarray(z, dtype=float)
    ends = np.full(z.shape, 3.0)
    return Charted(z, 0.0, -ends, ends, z)


@pytest.mark.parametrize(
    ("z", "rule"),
    [
        ([0, 3.1], LIMIT),
        ([0, -3.1], LIMIT),
        ([2.1, 0, 2.1], TWO_OF_THREE),
        ([-2.1, -2.1], TWO_OF_THREE),
        ([1.1, 1.1, -1, 1.1, 1.1], FOUR_OF_FIVE),
        ([0.1] * 8, EIGHT),
    ],
)
def test_each_rule_is_seen_with_the_period_that_completes_it(z, rule):
    found = violations(chart_of(z))
    assert rule in found[-1]
    assert all(rule not in broken for broken in found[:-1])
    assert rule in RULES


@pytest.mark.parametrize("z", [[2.1, 0, -2.1], [2.9], [1.1, 1.1, 1.1, 0, 0], [0.1] * 7, [2.1, 2.1, 0][::-1][:2]])
def test_what_breaks_no_rule(z):
    assert not any(violations(chart_of(z)))


def test_alarms_without_a_reason_are_as_rare_as_published():
    """Champ and Woodall (1987): with these four rules one alarm in 91.75 periods; with the limits alone in 370.4."""
    rng = np.random.default_rng(0)
    lengths = []
    for _ in range(250):
        z = rng.normal(size=700)
        alarms = (place for place in range(700) if any(violations(chart_of(z[max(0, place - 7) : place + 1]))[-1:][0]))
        lengths.append(next(alarms, 700) + 1)
    assert np.mean(lengths) == pytest.approx(91.75, abs=20)
    assert 1 / (2 * scipy.special.ndtr(-3)) == pytest.approx(370.4, abs=0.1)


@pytest.mark.parametrize("kind", ["ewma", "cusum"])
def test_slow_charts_have_as_few_false_alarms_and_find_small_shifts(kind):
    rng = np.random.default_rng(1)

    def length(shift):
        z = rng.normal(size=1_500) + shift
        z[:2] = (-0.5641896, 0.5641896)  # a baseline of centre 0 and sigma 1
        chart = control_chart(kind, z, [1] * z.size, [NAN] * z.size, 2)
        outside = np.flatnonzero((chart.plotted < chart.low) | (chart.plotted > chart.high))
        return outside[0] if outside.size else z.size

    assert np.mean([length(0.0) for _ in range(150)]) == pytest.approx(370, abs=100)
    assert np.mean([length(1.0) for _ in range(150)]) == pytest.approx(11, abs=3)  # the limits alone take 44


@pytest.mark.parametrize(
    ("means", "baseline", "told"),
    [([0.5, 0.6], 3, "baseline of 2 to 2"), ([0.5, NAN, 0.6], 2, "a value"), ([0.5, 0.5, 0.7], 2, "do not differ")],
)
def test_charts_that_cannot_be_made(means, baseline, told):
    with pytest.raises(ValueError, match=told):
        control_chart("individuals", means, [1] * len(means), [NAN] * len(means), baseline)
