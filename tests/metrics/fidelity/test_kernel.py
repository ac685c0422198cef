"""Kernel distances: against sums over all pairs and against peers, and what their intervals are worth."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics.fidelity import (
    SetError,
    cmmd,
    cmmd_published,
    frechet_distance,
    kernel_distance,
    kernel_distance_subsets,
    mmd_rbf,
)
from medimg_eval.metrics.fidelity import kernel as _fidelity_kernels
from tests.metrics.fidelity.test_frechet import normal, pair


def cubic(one, other):
    return (one @ other.T / one.shape[1] + 1) ** 3


def rbf(width):
    def kernel(one, other):
        return np.exp(-((one[:, None] - other[None]) ** 2).sum(-1) / (2 * width**2))

    return kernel


def all_pairs(real, made, kernel=cubic, patients=None, prompts=None):
    """The unbiased statistic by its definition, groups left out of the sums within a set."""
    total = -2 * kernel(real, made).mean()
    for rows, given_groups in ((real, patients), (made, prompts)):
        groups = np.arange(len(rows)) if given_groups is None else given_groups
        apart = groups[:, None] != groups[None]
        total += kernel(rows, rows)[apart].mean()
    return total


@pytest.mark.parametrize(("n", "d", "right"), [(120, 16, 0.630663298521839), (30, 48, 2.51179033525418)])
def test_all_pairs_are_one_subset_of_torch_fidelity(n, d, right):
    assert kernel_distance(*pair(n, n, d)).value == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize(
    ("n", "m", "d", "right", "spread"),
    [
        (120, 120, 16, 0.5690141212887212, 0.23897523331003265),
        (30, 30, 48, 2.4051973122285912, 0.27977570850098504),
        (90, 150, 12, 0.4979773739392114, 0.2141450998700596),
    ],
)
def test_subsets_are_those_of_torch_fidelity(n, m, d, right, spread):
    found = kernel_distance_subsets(*pair(n, m, d), subsets=10, size=20, seed=2020)
    assert found.value == pytest.approx(right, rel=1e-12)
    assert found.details["sd_of_subsets"] == pytest.approx(spread, rel=1e-12)


@given(n=st.integers(2, 40), m=st.integers(2, 40), d=st.integers(1, 9), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_sums_over_blocks_are_sums_over_all_pairs(n, m, d, seed):
    rng = np.random.default_rng(seed)
    real, made = rng.standard_normal((n, d)), rng.standard_normal((m, d)) + 0.2
    patients, prompts = np.arange(n) // 2, rng.integers(0, 3, m)
    assert kernel_distance(real, made, floor=False).value == pytest.approx(all_pairs(real, made), rel=1e-10, abs=1e-12)
    if n > 2 and len(np.unique(prompts)) > 1:
        found = kernel_distance(real, made, patients=patients, prompts=prompts, floor=False).value
        assert found == pytest.approx(all_pairs(real, made, cubic, patients, prompts), rel=1e-10, abs=1e-12)


def test_blocks_of_any_size_give_the_same(monkeypatch):
    real, made = pair(70, 50, 5)
    patients = np.arange(70) // 3
    whole = kernel_distance(real, made, patients=patients)
    monkeypatch.setattr(_fidelity_kernels, "BLOCK", 13)
    pieces = kernel_distance(real, made, patients=patients)
    assert pieces.value == pytest.approx(whole.value, rel=1e-12)
    assert pieces.standard_error == pytest.approx(whole.standard_error, rel=1e-9)


def test_identical_sets_are_below_0_and_keep_their_sign():
    rows = normal(200, 8)
    found = kernel_distance(rows, rows.copy())
    assert found.value < -0.001
    assert found.flagged("shared_rows")


def test_spread_is_seen_where_a_linear_kernel_sees_next_to_nothing():
    # MONAI's MMDMetric has a linear kernel by default: the same mean and five times the spread is 0 to it.
    real, made = normal(300, 16, 1), 5 * normal(300, 16, 2)
    found = kernel_distance(real, made, floor=False)
    assert found.value > 20 * found.standard_error / 3
    assert abs(kernel_distance(real, made, degree=1, floor=False).value) < 0.02 * found.value
    assert frechet_distance(real, made, floor=False).value > 100


def test_subsets_of_all_rows_are_refused_as_they_are_all_the_same_set():
    with pytest.raises(
        SetError, match="subsets of 2 to 39 rows, of 40 real and 50 generated ones, got 100 subsets of 40"
    ):
        kernel_distance_subsets(*pair(40, 50, 3), size=40)
    with pytest.raises(SetError, match="got 0 subsets"):
        kernel_distance_subsets(*pair(40, 50, 3), subsets=0)


def test_subsets_are_seeded_and_their_spread_is_called_no_error():
    real, made = pair(60, 60, 4)
    np.random.seed(1)  # noqa: NPY002 - torchmetrics draws from the global generator, so that its values move
    one = kernel_distance_subsets(real, made)
    np.random.seed(2)  # noqa: NPY002
    assert kernel_distance_subsets(real, made) == one
    assert one.metric == "kernel_distance_subsets, 100 of 30"
    whole = kernel_distance(real, made).standard_error
    assert one.standard_error == pytest.approx(math.hypot(whole, one.details["sd_of_subsets"] / 10))
    assert one.low < one.value < one.high
    assert math.isnan(kernel_distance_subsets(real, made, interval=False).standard_error)
    assert one.flagged("sd_of_subsets")
    assert one.details["sd_of_subsets"] > 0


def test_its_expectation_does_not_move_with_n_while_the_frechet_distance_does():
    kernels, frechets = {}, {}
    for n in (20, 160):
        sets = [(normal(n, 16, seed), normal(n, 16, seed + 500)) for seed in range(60)]
        kernels[n] = np.array([kernel_distance(*one, floor=False, interval=False).value for one in sets])
        frechets[n] = np.mean([frechet_distance(*one, floor=False, interval=False).value for one in sets[:10]])
    assert all(abs(values.mean()) < 4 * values.std() / math.sqrt(60) for values in kernels.values())
    assert frechets[20] > 5 * frechets[160]


def test_values_may_be_compared_across_n():
    assert not kernel_distance(*pair(20, 20, 3)).depends_on_n
    assert cmmd_published(*pair(20, 20, 3)).depends_on_n


def test_large_sets_are_compared_in_parts(monkeypatch):
    real, made = normal(300, 4, 1), normal(260, 4, 2) + 0.2
    whole = kernel_distance(real, made, floor=False)
    monkeypatch.setattr(_fidelity_kernels, "WHOLE", 200)
    monkeypatch.setattr(_fidelity_kernels, "PART", 100)
    patients = np.arange(300) // 2
    parts = kernel_distance(real, made, floor=False, patients=patients)
    assert any(flag.startswith("parts: the mean over 3") for flag in parts.flags)
    assert parts.value == pytest.approx(whole.value, abs=3 * whole.standard_error)
    assert parts.standard_error == pytest.approx(whole.standard_error, rel=0.5)


def test_patients_are_not_compared_with_themselves_and_widen_the_interval():
    rng = np.random.default_rng(0)
    patients = np.repeat(np.arange(40), 5)
    real = rng.standard_normal((40, 6))[patients] + 0.1 * rng.standard_normal((200, 6))
    made = rng.standard_normal((200, 6))
    plain, grouped = kernel_distance(real, made), kernel_distance(real, made, patients=patients)
    assert grouped.value < plain.value
    assert grouped.standard_error > 1.3 * plain.standard_error
    with pytest.raises(SetError, match="at least two patients, got 200 of one"):
        kernel_distance(real, made, patients=np.zeros(200))


def test_the_rbf_distance_takes_the_median_of_the_real_set():
    real, made = pair(40, 30, 4)
    found = mmd_rbf(real, made)
    gaps = np.sqrt(((real[:, None] - real[None]) ** 2).sum(-1)[np.triu_indices(40, 1)])
    assert found.details["bandwidth"] == pytest.approx(np.median(gaps), rel=1e-3)
    assert found.value == pytest.approx(all_pairs(real, made, rbf(found.details["bandwidth"])), rel=1e-9)
    assert mmd_rbf(real, made, bandwidth=2.0).value == pytest.approx(all_pairs(real, made, rbf(2.0)), rel=1e-10)
    for width in (0, -1, math.nan):
        with pytest.raises(SetError, match="bandwidth above 0"):
            mmd_rbf(real, made, bandwidth=width)


def test_cmmd_is_unbiased_and_its_published_form_is_not():
    real, made = pair(30, 30, 48)
    unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in (real, made)]
    assert cmmd(real, made).value == pytest.approx(1000 * all_pairs(*unit, rbf(10.0)), rel=1e-8)
    assert cmmd_published(real, made).value == pytest.approx(4.72343676601783, rel=1e-9)
    same = [(normal(30, 16, seed), normal(30, 16, seed + 99)) for seed in range(40)]
    published = np.array([cmmd_published(*one, floor=False).value for one in same])
    ours = np.array([cmmd(*one, floor=False, interval=False).value for one in same])
    assert published.min() > 0.2
    assert abs(ours.mean()) < 4 * ours.std() / math.sqrt(40)


def test_cmmd_refuses_rows_without_direction_and_scales_the_holdout_too():
    real, made = pair(30, 30, 4)
    made[3] = 0
    with pytest.raises(SetError, match="Row 3 of the generated set is zero"):
        cmmd(real, made)
    with pytest.raises(SetError, match="Row 3 of the hold-out set is zero"):
        cmmd(real, real + 1, holdout=made)
    found = cmmd(real * 100, pair(30, 30, 4)[1], holdout=pair(60, 60, 4)[0][30:] * 7)
    assert abs(found.floor) < 20


@pytest.mark.parametrize("size", [2, 3, 4])
def test_two_to_four_rows_have_a_value_and_an_error(size):
    found = kernel_distance(normal(size, 3, 1), normal(size, 3, 2))
    assert math.isfinite(found.value)
    assert found.standard_error >= 0
