"""U-Score: the published fixture, its parts by hand, and its behaviour at the ends of the scales."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics import ScoreTable
from medimg_eval.metrics.efficiency import u_score, u_score_of

UNET = {"parameters": 34_527_000, "gflops": 65.522, "frames_per_second": 137.05}
BUSI = {"iou_p10": 0.58376, "iou_p90": 0.70626}


def rows_of(*values, **facts):
    count = len(values)
    return ScoreTable(
        case=np.arange(count),
        metric=np.full(count, "iou"),
        label=np.full(count, "lesion"),
        value=np.array(values, dtype=np.float64),
        status=np.full(count, "present"),
        attributes={},
        cases=count,
        facts=facts,
    )


def test_the_published_u_net_on_busi():
    assert u_score_of(0.65575, 34.527e6, 65.522, 137.05, 0.58376, 0.70626) == pytest.approx(19.26, abs=0.005)
    assert u_score(rows_of(0.65, 0.6615, **UNET, **BUSI)) == pytest.approx(19.26, abs=0.005)


def test_the_weights_of_a_third_written_as_0_33_cancel():
    accuracy = (0.65575 - 0.58376) / (0.70626 - 0.58376)
    lightness = (4.32 - math.log(34.527)) / (4.32 - 0.39)
    thrift = 0.05  # (4.20 - ln 65.522) / 3.32 = 0.0054, floored
    speed = 1.0  # (137.05 - 24.28) / 97.35 = 1.16, clipped
    efficiency = 0.99 / (0.33 / lightness + 0.33 / thrift + 0.33 / speed)
    expected = 100 / (0.5 / accuracy + 0.5 / efficiency)
    found = u_score_of(0.65575, 34.527e6, 65.522, 137.05, 0.58376, 0.70626)
    assert found == pytest.approx(expected, rel=1e-12)
    assert round(found, 2) == 19.26
    # With weights that sum to 1 only in name, 1 / (0.33 / ...), it would be 19.42.
    assert round(100 / (0.5 / accuracy + 0.5 * 0.99 / efficiency), 2) == 19.42


def test_the_ends_of_the_scale():
    small = math.exp(0.39) * 1e6
    assert u_score_of(0.9, small, math.exp(0.88), 121.63, 0.5, 0.7) == pytest.approx(100)
    assert u_score_of(0.1, 1e9, 1e4, 1, 0.5, 0.7) == pytest.approx(5)
    # Half way on every scale: 0.5 throughout.
    middle = (math.exp((0.39 + 4.32) / 2) * 1e6, math.exp((0.88 + 4.20) / 2), (24.28 + 121.63) / 2)
    assert u_score_of(0.6, *middle, 0.5, 0.7) == pytest.approx(50)


@pytest.mark.parametrize("missing", [*UNET, *BUSI])
def test_a_missing_fact_leaves_it_undefined(missing):
    facts = {name: value for name, value in (UNET | BUSI).items() if name != missing}
    assert math.isnan(u_score(rows_of(0.6, **facts)))
    assert math.isnan(u_score(rows_of(0.6, **facts, **{missing: None})))
    assert math.isnan(u_score(rows_of(0.6, **facts, **{missing: math.nan})))


def test_facts_that_cannot_be_and_no_iou_leave_it_undefined():
    assert math.isnan(u_score(rows_of(math.nan, **UNET, **BUSI)))
    assert math.isnan(u_score(rows_of(0.6, **UNET, iou_p10=0.7, iou_p90=0.7)))
    assert math.isnan(u_score(rows_of(0.6, **UNET | {"parameters": 0}, **BUSI)))
    with pytest.raises(ValueError, match="above 0, got 0 and 1"):
        u_score_of(0.6, 0, 1, 1, 0.5, 0.7)
    with pytest.raises(ValueError, match="90th percentile"):
        u_score_of(0.6, 1e6, 1, 1, 0.7, 0.5)


@given(
    st.floats(0, 1), st.floats(1e3, 1e10), st.floats(1e-3, 1e5), st.floats(0.1, 1e4), st.sampled_from([1.01, 2.0, 10.0])
)
@settings(deadline=None, max_examples=30)
def test_it_stays_in_its_bounds_and_never_rewards_a_cost(iou, parameters, gflops, fps, factor):
    score = u_score_of(iou, parameters, gflops, fps, 0.5, 0.7)
    assert 5 - 1e-9 <= score <= 100 + 1e-9
    assert u_score_of(iou, parameters * factor, gflops, fps, 0.5, 0.7) <= score + 1e-9
    assert u_score_of(iou, parameters, gflops * factor, fps, 0.5, 0.7) <= score + 1e-9
    assert u_score_of(iou, parameters, gflops, fps * factor, 0.5, 0.7) >= score - 1e-9
