"""What the values and intervals of set metrics are worth, by simulation: bias, and how often 95 % is 95 %."""

import numpy as np
import pytest

from medimg_eval.metrics.fidelity import (
    frechet_distance,
    frechet_distance_inf,
    kernel_distance,
    kernel_distance_subsets,
    precision_recall_density_coverage,
    vendi_score,
)

D, REPEATS = 16, 120
SPREAD = np.arange(1, D + 1.0) ** -0.5


def draws(metric, n, shift, scale, repeats=REPEATS):
    """Value, low and high of repeated draws from two normal distributions, (repeat, 3)."""
    found = []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        real, made = rng.standard_normal((n, D)) * SPREAD, rng.standard_normal((n, D)) * SPREAD * scale + shift
        one = metric(real, made, floor=False)
        found.append((one.value, one.low, one.high))
    return np.array(found)


def covered(found, truth):
    return ((found[:, 1] <= truth) & (truth <= found[:, 2])).mean()


def right(shift, scale):
    return D * shift**2 + (SPREAD**2).sum() * (scale - 1) ** 2


@pytest.mark.long
@pytest.mark.slow
def test_bias_and_coverage_of_intervals_by_simulation():
    shifted = {"shift": 0.15, "scale": 1.0}
    # The kernel distance: no bias at equality at any n; its interval is wide at equality and close under a shift.
    for n in (40, 160):
        equal = draws(kernel_distance, n, 0.0, 1.0)
        assert abs(equal[:, 0].mean()) < 3.5 * equal[:, 0].std() / np.sqrt(REPEATS)
        assert covered(equal, 0.0) >= 0.95
    truth = draws(kernel_distance, 400, **shifted)[:, 0].mean()
    for n in (40, 160):
        apart = draws(kernel_distance, n, **shifted)
        assert abs(apart[:, 0].mean() - truth) < 0.15 * truth
        assert 0.86 <= covered(apart, truth) <= 1
    # The Fréchet distance: biased upwards, less so with n; its interval is that of its expectation at this n.
    for shift, scale in ((0.0, 1.0), (0.15, 1.0), (0.0, 1.2)):
        bias = []
        for n in (12, 40, 160):
            found = draws(frechet_distance, n, shift, scale, 80)
            bias.append(found[:, 0].mean() - right(shift, scale))
            assert 0.86 <= covered(found, found[:, 0].mean()) <= 1
        assert bias[0] > 2 * bias[1] > 4 * bias[2] > 0
        # Extrapolated it has next to none, and an interval of the true distance.
        far = draws(frechet_distance_inf, 160, shift, scale, 60)
        assert abs(far[:, 0].mean() - right(shift, scale)) < 0.5 * bias[2]
        assert 0.85 <= covered(far, right(shift, scale)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 64])
@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (0.1, 1.2), (0.0, 0.7)])
def test_intervals_of_neighbourhoods_hold_what_new_draws_of_both_sets_give(d, shift, scale):
    spread, found = np.arange(1, d + 1.0) ** -0.5, []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        real, made = rng.standard_normal((60, d)) * spread, rng.standard_normal((60, d)) * spread * scale + shift
        four = precision_recall_density_coverage(real, made, floor=False)
        found.append([(one.value, one.low, one.high) for one in four])
    values, low, high = np.moveaxis(np.array(found), 2, 0)
    truth = values.mean(axis=0)
    assert (((low <= truth) & (truth <= high)).mean(axis=0) >= 0.83).all()


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "seeds"), [(40, 8, 1), (100, 64, 1), (100, 16, 4)])
def test_intervals_of_diversity_hold_its_expectation_at_this_n(n, d, seeds):
    spread, found = np.arange(1, d + 1.0) ** -1, []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        rows = np.repeat(rng.standard_normal((n // seeds, d)), seeds, axis=0) + 0.5 * rng.standard_normal((n, d))
        one = vendi_score(rows * spread, rows * spread, prompts=np.arange(n) // seeds)
        found.append((one.value, one.low, one.high))
    found = np.array(found)
    assert 0.8 <= covered(found, found[:, 0].mean()) <= 1


@pytest.mark.slow
def test_intervals_of_subsets_hold_the_true_distance():
    truth = draws(kernel_distance, 400, 0.15, 1.0, 40)[:, 0].mean()
    found = draws(lambda *sets, **options: kernel_distance_subsets(*sets, subsets=10, **options), 60, 0.15, 1.0, 80)
    assert 0.84 <= covered(found, truth) <= 1
