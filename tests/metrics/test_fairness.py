"""Equity-scaled scores against hand computations and a naive one."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics import ScoreTable, available, get, parse, title

es_dice, es_iou = (get(name).function for name in ("es_dice", "es_iou"))
es_dice_sd, es_iou_sd = (get(name).function for name in ("es_dice_sd", "es_iou_sd"))


def rows_of(*entries, metric="dice", **facts):
    """Rows from (case, group, value) or (case, group, value, label)."""
    case, group, value, label = zip(*[(*entry, "a")[:4] for entry in entries], strict=True)
    return ScoreTable(
        case=np.array(case, dtype=np.int64),
        metric=np.full(len(case), metric),
        label=np.array(label),
        value=np.array(value, dtype=np.float64),
        status=np.full(len(case), "present"),
        attributes={"race": np.array(group)},
        cases=len(set(case)),
        facts=facts,
    )


def test_a_hand_worked_score():
    rows = rows_of((0, "x", 0.9), (1, "x", 0.7), (2, "y", 0.6), (3, "z", 0.6))
    # overall 0.7; groups 0.8, 0.6, 0.6: distances 0.1 + 0.1 + 0.1
    assert es_dice(rows, "race") == pytest.approx(0.7 / 1.3)
    # standard deviation of 0.8, 0.6, 0.6 with n - 1: sqrt((0.01778 + 2 * 0.00444) / 2)
    assert es_dice_sd(rows, "race") == pytest.approx(0.7 / (1 + math.sqrt(0.04 / 3)))
    assert statistics.stdev([0.8, 0.6, 0.6]) == pytest.approx(math.sqrt(0.04 / 3))


@pytest.mark.parametrize("unknown", ["", "-1"])
def test_an_unknown_group_counts_in_the_overall_mean_only(unknown):
    rows = rows_of((0, "x", 0.8), (1, "y", 0.6), (2, unknown, 0.1))
    # overall 0.5; distances 0.3 and 0.1
    assert es_dice(rows, "race") == pytest.approx(0.5 / 1.4)
    assert es_dice_sd(rows, "race") == pytest.approx(0.5 / (1 + math.sqrt(0.02)))


def test_a_case_counts_with_the_mean_over_its_labels():
    rows = rows_of((0, "x", 1.0, "cup"), (0, "x", 0.6, "rim"), (1, "y", 0.6, "cup"), (1, "y", math.nan, "rim"))
    assert es_dice(rows, "race") == pytest.approx(0.7 / 1.2)


def test_the_scores_of_iou_read_iou():
    rows = rows_of((0, "x", 0.8), (1, "y", 0.6), metric="iou")
    assert es_iou(rows, "race") == pytest.approx(0.7 / 1.2)
    assert es_iou_sd(rows, "race") == pytest.approx(0.7 / (1 + math.sqrt(0.02)))
    assert math.isnan(es_dice(rows, "race"))


@pytest.mark.parametrize(
    "rows",
    [
        rows_of((0, "x", 0.8), (1, "x", 0.6)),
        rows_of((0, "x", 0.8), (1, "-1", 0.6)),
        rows_of((0, "x", 0.8), (1, "y", math.nan)),
        rows_of((0, "x", math.nan), (1, "y", math.nan)),
    ],
)
def test_fewer_than_two_groups_are_undefined(rows):
    assert math.isnan(es_dice(rows, "race"))
    assert math.isnan(es_dice_sd(rows, "race"))
    assert math.isnan(es_dice(rows, "no such attribute"))


entries = st.lists(
    st.tuples(st.sampled_from(["x", "y", "z", "-1"]), st.floats(0, 1, allow_subnormal=False)), min_size=1, max_size=12
)


@given(entries)
@settings(deadline=None, max_examples=30)
def test_it_equals_a_naive_computation_and_stays_below_the_mean(drawn):
    rows = rows_of(*((case, group, value) for case, (group, value) in enumerate(drawn)))
    overall = statistics.fmean(value for _, value in drawn)
    names = sorted({group for group, _ in drawn} - {"-1"})
    means = [statistics.fmean(value for group, value in drawn if group == name) for name in names]
    found, found_sd = es_dice(rows, "race"), es_dice_sd(rows, "race")
    if len(means) < 2:
        assert math.isnan(found)
        assert math.isnan(found_sd)
        return
    assert found == pytest.approx(overall / (1 + sum(abs(mean - overall) for mean in means)))
    assert found_sd == pytest.approx(overall / (1 + statistics.stdev(means)))
    assert 0 <= found <= overall + 1e-12
    assert 0 <= found_sd <= overall + 1e-12
    shuffled = rows.where(np.random.default_rng(0).permutation(len(drawn)))
    assert es_dice(shuffled, "race") == pytest.approx(found)


def test_names_and_titles():
    assert parse("es_dice@race") == (get("es_dice"), "race")
    assert title("es_dice_sd@race") == "ES-Dice (SD) (race)"
    assert get("es_iou").needs == ("iou",)
    assert {"es_dice", "es_dice_sd", "es_iou", "es_iou_sd", "u_score"} <= set(available("run"))
