"""Probabilities: by hand, and against MONAI and scikit-learn."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from monai.losses import DiceLoss
from monai.metrics import CalibrationErrorMetric
from sklearn.metrics import brier_score_loss, log_loss

from medimg_eval.errors import UsageError
from medimg_eval.metrics import LabelPair, available
from medimg_eval.metrics.segmentation import probability_maps as calibration
from medimg_eval.metrics.segmentation.overlap import dice
from medimg_eval.metrics.segmentation.probability_maps import (
    ProbabilityPair,
    ace,
    brier,
    ece,
    mce,
    nll,
    probability_scores,
    soft_dice,
)

BINNED = (ece, ace, mce)
PLAIN = (soft_dice, brier, nll)

answers = st.integers(1, 30).flatmap(
    lambda n: st.tuples(hnp.arrays(bool, n), hnp.arrays(np.float64, n, elements=st.floats(0, 1)))
)


def pair_of(y, p):
    return ProbabilityPair(np.array(y, bool), np.array(p, float))


def softmax(shape, seed):
    """A label map of 0, 1, 2 and probabilities of each that know something of it."""
    random = np.random.default_rng(seed)
    reference = random.integers(0, 3, shape)
    logits = random.standard_normal((3, *shape)) + (np.arange(3).reshape(3, *[1] * len(shape)) == reference)
    weights = np.exp(1.5 * logits)
    return reference, weights / weights.sum(axis=0)


def test_values_worked_out_by_hand():
    pair = pair_of([1, 1, 0, 0, 1], [0.9, 0.4, 0.3, 0.1, 1.0])
    assert soft_dice(pair) == pytest.approx(2 * 2.3 / (2.7 + 3))
    assert brier(pair) == pytest.approx((0.01 + 0.36 + 0.09 + 0.01 + 0) / 5)
    assert nll(pair) == pytest.approx(-(math.log(0.9) + math.log(0.4) + math.log(0.7) + math.log(0.9)) / 5)
    # Two bins: 0.4, 0.3, 0.1 with one of three true; 0.9 and 1 with both true.
    low, high = abs(1 / 3 - 0.8 / 3), abs(1 - 0.95)
    assert ece(pair, 2) == pytest.approx((3 * low + 2 * high) / 5)
    assert ace(pair, 2) == pytest.approx((low + high) / 2)
    assert mce(pair, 2) == pytest.approx(max(low, high))
    # One bin: 3 of 5 true, 2.7 of 5 expected.
    assert [function(pair, 1) for function in BINNED] == pytest.approx([0.06] * 3)


@pytest.mark.parametrize("bins", [2, 3, 7, 10, 20, 100])
def test_a_bin_holds_its_lower_edge_and_the_last_one_its_upper(bins):
    # One voxel at each edge and one at 1: the last bin has two, each other one.
    p = [*(edge / bins for edge in range(bins)), 1.0]
    pair = pair_of([False] * len(p), p)
    errors = [*p[:-2], (p[-2] + 1) / 2]
    assert ace(pair, bins) == pytest.approx(np.mean(errors))
    assert ece(pair, bins) == pytest.approx(np.mean(p))
    assert mce(pair, bins) == pytest.approx(max(errors))


def test_monai_puts_edges_into_the_bin_below():
    # Its documentation says [l, r), its code (l, r]: at 0.5 the two voxels share the lower bin, or not.
    y, p = [1, 0], [0.5, 0.25]
    assert ece(pair_of(y, p), 2) == pytest.approx((0.5 + 0.25) / 2)
    metric = CalibrationErrorMetric(num_bins=2, calibration_reduction="expected")
    metric(torch.tensor([[p]]), torch.tensor([[y]]).float())
    assert metric.aggregate().item() == pytest.approx(abs(0.5 - 0.375))


def test_a_perfect_answer_and_the_worst_one():
    y = np.array([True, False, True])
    perfect, worst = ProbabilityPair(y, y.astype(np.float32)), ProbabilityPair(y, (~y).astype(np.float32))
    names = available("probability")
    for function in PLAIN:
        assert function(perfect) == pytest.approx(names[function.__name__].best, abs=1e-12)
        assert function(worst) == pytest.approx(names[function.__name__].worst)
    for function in BINNED:
        assert function(perfect, 20) == names[function.__name__].best
        assert function(worst, 20) == names[function.__name__].worst
    assert nll(worst) == pytest.approx(16.118, abs=1e-3)


def test_status():
    for y, p, status in (
        ([1, 0], [0.5, 0], "present"),
        ([1, 0], [0.49, 0], "missed"),
        ([0, 0], [0.5, 0], "hallucinated"),
        ([0, 0], [0.49, 0], "absent"),
        ([], [], "absent"),
    ):
        assert pair_of(y, p).status == status


def test_empty_references_and_empty_images():
    absent, invented = pair_of([0, 0], [0.2, 0.4]), pair_of([0, 0], [0.2, 0.6])
    assert math.isnan(soft_dice(absent))
    assert soft_dice(invented) == 0
    # The probabilities of a label that is not there can be right or wrong all the same.
    assert brier(absent) == pytest.approx(0.1)
    assert ece(absent, 1) == pytest.approx(0.3)
    nothing = pair_of([], [])
    assert np.isnan([*(function(nothing) for function in PLAIN), *(function(nothing, 5) for function in BINNED)]).all()


@pytest.mark.parametrize(("kind", "slack"), [(np.float16, 2e-3), (np.float32, 1e-6)])
def test_narrow_floats_are_summed_wide(kind, slack):
    reference, probabilities = softmax((64, 64), 5)
    wide = ProbabilityPair(reference == 1, probabilities[1])
    narrow = ProbabilityPair(reference == 1, probabilities[1].astype(kind))
    for function in PLAIN:
        assert function(narrow) == pytest.approx(function(wide), rel=slack)


def test_chunks_change_nothing(monkeypatch):
    reference, probabilities = softmax((20, 31), 6)
    pair = ProbabilityPair(reference == 1, probabilities[1])
    before = [*(function(pair) for function in PLAIN), *(function(pair, 20) for function in BINNED)]
    monkeypatch.setattr(calibration, "CHUNK", 7)
    after = [*(function(pair) for function in PLAIN), *(function(pair, 20) for function in BINNED)]
    assert after == pytest.approx(before, rel=1e-12)


@pytest.mark.parametrize("shape", [(30, 40), (12, 14, 10)])
@pytest.mark.parametrize("seed", range(2))
def test_values_equal_monai_and_scikit_learn(shape, seed):
    reference, probabilities = softmax(shape, seed)
    truth = torch.from_numpy((np.arange(3).reshape(3, *[1] * len(shape)) == reference).astype(np.float32))[None]
    answer = torch.from_numpy(probabilities.astype(np.float32))[None]
    for channel in range(3):
        pair = ProbabilityPair(reference == channel, probabilities[channel])
        flat = (reference == channel).ravel(), probabilities[channel].ravel()
        assert brier(pair) == pytest.approx(brier_score_loss(*flat), rel=1e-12)
        assert nll(pair) == pytest.approx(log_loss(*flat), rel=1e-9)
        part = slice(channel, channel + 1)
        loss = DiceLoss(smooth_nr=0, smooth_dr=0)(answer[:, part], truth[:, part])
        assert soft_dice(pair) == pytest.approx(1 - loss.item(), rel=1e-5)
        for function, reduction in ((ece, "expected"), (ace, "average"), (mce, "maximum")):
            for bins in (20, 7):
                metric = CalibrationErrorMetric(num_bins=bins, calibration_reduction=reduction)
                metric(answer[:, part], truth[:, part])
                assert function(pair, bins) == pytest.approx(metric.aggregate().item(), rel=1e-4, abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(answers, st.integers(1, 25))
def test_bounds_order_and_symmetry(answer, bins):
    y, p = answer
    pair, other = ProbabilityPair(y, p), ProbabilityPair(~y, 1 - p)
    assert 0 <= brier(pair) <= 1
    assert 0 <= nll(pair) <= 16.2
    assert 0 <= ece(pair, bins) <= mce(pair, bins) + 1e-12 <= 1 + 2e-12
    assert ace(pair, bins) <= mce(pair, bins) + 1e-12
    # What is said of the label is said of its absence.
    assert brier(pair) == pytest.approx(brier(other))
    assert nll(pair) == pytest.approx(nll(other), rel=1e-6, abs=1e-6)
    # A bin's error is a mean of differences, so one bin cannot be worse than many.
    assert ece(pair, 1) <= ece(pair, bins) + 1e-12
    # The mean absolute error bounds it, and the Brier score bounds that.
    assert ece(pair, bins) <= np.abs(y - p).mean() + 1e-12
    assert np.abs(y - p).mean() ** 2 <= brier(pair) + 1e-12
    if pair.status == "present":
        assert 0 <= soft_dice(pair) <= 1
        mask = p >= 0.5
        hard = soft_dice(ProbabilityPair(y, mask.astype(float)))
        assert hard == pytest.approx(dice(LabelPair(y[None], mask[None], (1, 1))))


@pytest.mark.parametrize("bins", ["0", "2.5"])
@pytest.mark.parametrize("name", ["ece", "ace", "mce"])
def test_bins_that_cannot_be_counted_are_refused(name, bins):
    with pytest.raises(UsageError, match=f"number of bins .* whole number above 0, got {bins}"):
        scores(metrics=[f"{name}@{bins}"])


# --- probability_scores ---


def scores(**changes):
    reference, probabilities = softmax((6, 7), 0)
    arguments = {
        "reference": reference,
        "probabilities": probabilities,
        "labels": {1: "liver", 2: "cyst"},
        "channels": [0, 1, 2],
        "metrics": ["brier", "ece@20"],
    } | changes
    return probability_scores(arguments.pop("reference"), arguments.pop("probabilities"), **arguments)


def test_scores_are_those_of_the_pairs():
    reference, probabilities = softmax((6, 7), 0)
    found = scores()
    assert [row[:2] for row in found] == [(n, m) for n in ("liver", "cyst") for m in ("brier", "ece@20")]
    assert all(type(row.value) is float and row.status == "present" for row in found)
    for label, rows in ((1, found[:2]), (2, found[2:])):
        pair = ProbabilityPair(reference == label, probabilities[label])
        assert [row.value for row in rows] == [brier(pair), ece(pair, 20)]


def test_channels_in_any_order():
    _, probabilities = softmax((6, 7), 0)
    expected = scores()
    assert scores(probabilities=probabilities[::-1], channels=[2, 1, 0]) == expected
    assert scores(probabilities=probabilities[::-1], channels={1: 1, 2: 0}) == expected
    # A model with a sigmoid may have no channel for the background.
    assert scores(probabilities=probabilities[1:], channels=[1, 2]) == expected


def test_ignored_voxels_count_nowhere():
    reference, probabilities = softmax((6, 7), 0)
    marked, spoiled = reference.copy(), probabilities.copy()
    marked[:3], spoiled[:, :3] = 255, 1.0
    expected = scores(reference=reference[3:], probabilities=probabilities[:, 3:])
    found = scores(reference=marked, probabilities=spoiled, ignore=255)
    assert [row.value for row in found] == pytest.approx([row.value for row in expected])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reference": np.zeros((6, 7))}, "`reference` to be an integer label map, got dtype float64"),
        ({"reference": np.zeros((6, 8), int)}, r"`probabilities` to be channels of the reference's shape \(6, 8\)"),
        ({"probabilities": np.ones((3, 6, 7), int)}, "`probability` to be floats, got dtype int64"),
        ({"probabilities": np.full((3, 6, 7), 4.5)}, r"of 'liver' to lie in \[0, 1\], got 4.5 to 4.5; logits"),
        ({"probabilities": np.full((3, 6, 7), np.nan)}, r"of 'liver' to lie in \[0, 1\], got nan to nan"),
        ({"channels": [0, 1]}, "`channels` to name a label of each of 3 channels"),
        ({"channels": [0, 1, 1]}, "`channels` to name a label of each of 3 channels"),
        ({"channels": {1: 1, 2: 3}}, r"the channel of label 2 \(cyst\) to be 0 to 2, got 3"),
        ({"metrics": ["brier", "brier"]}, "`metrics` to name each metric once"),
    ],
)
def test_what_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        scores(**change)


def test_what_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="'dice' judges mask, not probabilities"):
        scores(metrics=["dice"])
    with pytest.raises(UsageError, match=r"none for label 2 \(cyst\); the channels are for \[0, 1, 5\]"):
        scores(channels=[0, 1, 5])
    with pytest.raises(UsageError, match=r"'ece' needs a parameter \(number of bins\)"):
        scores(metrics=["ece"])


def test_a_pair_checks_what_it_is_given():
    with pytest.raises(ValueError, match="`reference` to be a boolean mask, got dtype int64"):
        ProbabilityPair(np.zeros(3, int), np.zeros(3))
    with pytest.raises(ValueError, match=r"`probability` to have the reference's shape \(3,\), got \(4,\)"):
        ProbabilityPair(np.zeros(3, bool), np.zeros(4))
    # A rounding of float32 beyond 1 is forgiven, and taken for 1.
    assert brier(ProbabilityPair(np.ones(1, bool), np.array([1 + 1e-7]))) == 0


def test_every_metric_of_probabilities_is_documented():
    rows = (Path(__file__).parents[3] / "docs" / "definitions" / "segmentation.md").read_text()
    for name, found in available("probability").items():
        assert f"| `{name}` | {found.definition.removesuffix('.')}" in rows.replace("\\|", "|")
