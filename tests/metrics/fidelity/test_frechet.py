"""The Fréchet distances: against 40-digit arithmetic, closed forms and peers, and at the edges."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics.fidelity import (
    SetError,
    frechet_distance,
    frechet_distance_inf,
    frechet_distance_of_moments,
    intra_prompt_ms_ssim,
    radiomics_frechet_distance,
    vendi_score,
)
from tests.conftest import environment

PLAIN = {"floor": False, "interval": False}


def wave(rows, d, phase=0.0):
    """Features that need no random numbers, so that other programs could be given the same."""
    at = np.arange(rows * d, dtype=np.float64).reshape(rows, d)
    return np.sin(at * at * 0.37 + phase) + np.cos(at * 1.7 + phase * at % 3)


def pair(n, m, d):
    return wave(n, d), wave(m, d, 0.5) * 1.2 + 0.1


def normal(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def by_roots(real, made):
    """The distance by the root of a d x d matrix, from symmetric eigenvectors: another route altogether."""
    one, other = np.cov(real.T), np.cov(made.T)
    values, vectors = np.linalg.eigh(one)
    root = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    middle = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ other @ root), 0)).sum()
    return ((real.mean(0) - made.mean(0)) ** 2).sum() + np.trace(one) + np.trace(other) - 2 * middle


@pytest.mark.parametrize(
    ("n", "m", "d", "right"),
    [
        (30, 30, 48, 49.767468212995493834),
        (40, 40, 12, 4.4846801838512345952),
        (20, 35, 24, 18.069570761498493209),
    ],
)
def test_values_are_those_of_40_digit_arithmetic(n, m, d, right):
    assert frechet_distance(*pair(n, m, d), **PLAIN).value == pytest.approx(right, rel=1e-13)


@pytest.mark.parametrize(("n", "m", "d", "right"), [(120, 120, 16, 4.94922174569275), (90, 150, 12, 3.99252365306284)])
def test_values_are_those_of_torch_fidelity_and_clean_fid(n, m, d, right):
    assert frechet_distance(*pair(n, m, d), **PLAIN).value == pytest.approx(right, rel=1e-10)


def test_peers_are_a_little_wrong_below_d_rows_and_piq_everywhere():
    value = frechet_distance(*pair(30, 30, 48), **PLAIN).value
    torch_fidelity, piq = 49.7674675599905, 49.769289652498585
    assert value == pytest.approx(torch_fidelity, rel=1e-7)
    assert value != pytest.approx(torch_fidelity, rel=1e-9)
    assert value != pytest.approx(piq, rel=1e-5)


def test_identical_sets_have_0_where_piq_has_24e_5_or_more():
    for n, d in ((120, 16), (30, 48), (90, 12)):
        rows = wave(n, d)
        found = frechet_distance(rows, rows.copy())
        assert abs(found.value) < 1e-12
        assert found.flagged("shared_rows")


def test_shift_and_spread_have_their_closed_form_exactly():
    rows = normal(300, 20)
    value = frechet_distance(rows, rows * 1.5 + 2, **PLAIN)
    covariance = np.cov(rows.T)
    mean = ((rows.mean(0) * 0.5 + 2) ** 2).sum()
    assert value.value == pytest.approx(mean + 0.25 * np.trace(covariance), rel=1e-12)
    assert value.details["mean_part"] == pytest.approx(mean, rel=1e-12)


def test_moments_have_the_closed_form_of_normal_distributions():
    d, mean = 7, np.full(7, 0.3)
    value = frechet_distance_of_moments(np.zeros(d), np.eye(d), mean, 4 * np.eye(d))
    assert value == pytest.approx(mean @ mean + d * (1 - 2) ** 2, rel=1e-13)


def test_moments_give_what_features_give_also_where_a_covariance_is_singular():
    for n, d in ((200, 10), (8, 20)):
        real, made = pair(n, n, d)
        moments = (real.mean(0), np.cov(real.T), made.mean(0), np.cov(made.T))
        assert frechet_distance_of_moments(*moments) == pytest.approx(
            frechet_distance(real, made, **PLAIN).value, rel=1e-6
        )


def test_moments_that_do_not_fit_are_refused():
    with pytest.raises(SetError, match=r"got \(3,\), \(3, 3\), \(2,\)"):
        frechet_distance_of_moments(np.zeros(3), np.eye(3), np.zeros(2), np.eye(2))
    with pytest.raises(SetError, match="finite"):
        frechet_distance_of_moments(np.zeros(2), np.full((2, 2), np.nan), np.zeros(2), np.eye(2))


@pytest.mark.parametrize("decay", [0, 1, 2, 4])
@pytest.mark.parametrize("n", [40, 70, 400])
def test_flat_and_steep_spectra_give_what_roots_give(decay, n):
    spread = np.arange(1, 61.0) ** (-decay / 2)
    turn = np.linalg.qr(normal(60, 60, 9))[0]
    real, made = (normal(n, 60, seed) * spread @ turn for seed in (1, 2))
    made = made * 1.1 + 0.05
    value = frechet_distance(real, made, **PLAIN).value
    triangles = [np.linalg.qr(one - one.mean(0))[1] / math.sqrt(n - 1) for one in (real, made)]
    outside = ((real.mean(0) - made.mean(0)) ** 2).sum() + sum((one**2).sum() for one in triangles)
    middle = np.linalg.svd(triangles[0] @ triangles[1].T, compute_uv=False).sum()
    assert value == pytest.approx(outside - 2 * middle, rel=1e-11)
    assert value == pytest.approx(by_roots(real, made), rel=1e-5)


def test_singular_covariances_of_many_rows_lose_nothing():
    # Features that repeat each other, constants, and rows of one point: covariances without an inverse.
    real, made = normal(500, 8, 1), normal(500, 8, 2) + 0.2
    plain = frechet_distance(real, made, **PLAIN).value
    turn = np.linalg.qr(normal(30, 30, 3))[0][:8]
    assert frechet_distance(real @ turn, made @ turn, **PLAIN).value == pytest.approx(plain, rel=1e-12)
    wide = frechet_distance(np.c_[real, np.full(500, 3.0)], np.c_[made, np.full(500, 3.0)], **PLAIN)
    assert wide.value == pytest.approx(plain, rel=1e-12)
    assert wide.flagged("degenerate")
    point = frechet_distance(real, np.ones((500, 8)))
    assert point.value == pytest.approx(((real.mean(0) - 1) ** 2).sum() + np.trace(np.cov(real.T)), rel=1e-12)
    assert any("all 500 generated rows are the same" in flag for flag in point.flags)


@given(
    n=st.integers(2, 30), m=st.integers(2, 30), d=st.integers(1, 12), seed=st.integers(0, 99), scale=st.floats(0.1, 10)
)
@settings(deadline=None, max_examples=30)
def test_it_is_symmetric_not_negative_and_blind_to_order_turns_and_shifts(n, m, d, seed, scale):
    rng = np.random.default_rng(seed)
    real, made = rng.standard_normal((n, d)), rng.standard_normal((m, d)) * scale
    value = frechet_distance(real, made, **PLAIN).value
    near = {"rel": 1e-9, "abs": 1e-10}
    assert value > -1e-10
    assert frechet_distance(made, real, **PLAIN).value == pytest.approx(value, **near)
    assert frechet_distance(rng.permutation(real), made, **PLAIN).value == pytest.approx(value, **near)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    assert frechet_distance(real @ turn + 1, made @ turn + 1, **PLAIN).value == pytest.approx(value, **near)
    assert frechet_distance(real * 3, made * 3, **PLAIN).value == pytest.approx(9 * value, **near)


def test_integers_and_short_floats_are_taken_as_they_are():
    real, made = (np.round(wave(60, 5, phase) * 20) for phase in (0, 0.5))
    right = frechet_distance(real, made, **PLAIN).value
    for kind in (np.int16, np.float16, np.float32):
        assert frechet_distance(real.astype(kind), made.astype(kind), **PLAIN).value == pytest.approx(right, rel=1e-12)


def test_a_large_mean_costs_no_digits():
    real, made = pair(200, 200, 8)
    value = frechet_distance(real, made, **PLAIN).value
    assert frechet_distance(real + 2.0**20, made + 2.0**20, **PLAIN).value == pytest.approx(value, rel=1e-8)


def test_few_rows_are_flagged_and_the_floor_shows_what_they_do():
    found = frechet_distance(normal(80, 64, 1), normal(40, 64, 2))
    assert found.flagged("rank_deficient")
    assert found.flagged("small_n")
    assert (found.floor_n, found.depends_on_n) == (40, True)
    assert found.floor == pytest.approx(found.value, rel=0.3)
    assert not found.flagged("floor_n")


def test_a_floor_of_fewer_rows_says_so_and_a_holdout_set_helps():
    real, made = normal(100, 8, 1), normal(100, 8, 2)
    halved = frechet_distance(real, made)
    assert halved.floor_n == 50
    assert "floor_n: the floor is of 50 rows a side, the value of 100" in halved.flags
    spared = frechet_distance(real, made, holdout=normal(150, 8, 3))
    assert (spared.floor_n, spared.flagged("floor_n")) == (100, False)
    assert math.isnan(frechet_distance(normal(3, 2), normal(3, 2, 1)).floor)


def test_halves_of_the_floor_share_no_patient():
    # All images of a patient are the same: halves that shared a patient would be alike.
    patients = np.repeat(np.arange(20), 10)
    real = normal(20, 6)[patients]
    found = frechet_distance(real, normal(200, 6, 1), patients=patients)
    split = frechet_distance(real, normal(200, 6, 1))
    assert found.floor > 5 * split.floor
    assert found.standard_error > 1.5 * split.standard_error


def test_the_interval_is_that_of_a_jackknife():
    real, made = normal(150, 6, 1), normal(150, 6, 2) * 1.3 + 0.2
    found = frechet_distance(real, made, floor=False)
    variance = 0.0
    for side in (0, 1):
        left = []
        for row in range(150):
            sets = [real, made]
            sets[side] = np.delete(sets[side], row, axis=0)
            left.append(by_roots(*sets))
        variance += np.var(left) * 149
    assert found.standard_error == pytest.approx(math.sqrt(variance), rel=0.05)
    assert found.low < found.value < found.high
    assert "bias" in found.interval


def test_the_interval_exists_below_d_rows_and_for_unequal_sets():
    for n, m, d in ((30, 30, 48), (30, 200, 48), (200, 30, 48), (2, 2, 3)):
        found = frechet_distance(normal(n, d, 1), normal(m, d, 2) + 0.3, floor=False)
        assert 0 < found.standard_error < found.value


@pytest.mark.parametrize(
    ("real", "made", "said"),
    [
        (np.ones((1, 3)), np.ones((4, 3)), "at least 2 rows in each set, got 1 in the real set"),
        (np.ones((4, 3)), np.ones((0, 3)), "got 0 in the generated set"),
        (np.ones((4, 3)), np.ones((4, 2)), "got 3 in the real set and 2 in the generated set"),
        (np.ones(4), np.ones((4, 2)), r"float64 of \(4,\)"),
        (np.ones((4, 0)), np.ones((4, 0)), r"float64 of \(4, 0\)"),
        (np.ones((4, 2), dtype=complex), np.ones((4, 2)), "complex128"),
        (np.full((4, 2), "a"), np.ones((4, 2)), "<U1"),
        (np.r_[normal(9, 2), [[np.nan, 1]]], np.ones((4, 2)), r"1 of 10 rows of the real set .*\(rows 9\)"),
        (normal(9, 2), np.full((7, 2), np.inf), r"7 of 7 rows of the generated .*\(rows 0, 1, 2, 3, 4, ...\)"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_numbers(real, made, said):
    with pytest.raises(SetError, match=said) as error:
        frechet_distance(real, made)
    assert isinstance(error.value, ValueError)
    assert isinstance(error.value, UsageError)


def test_rows_that_are_not_finite_are_dropped_only_when_asked_and_counted():
    real, made = normal(60, 4, 1), normal(70, 4, 2)
    spoilt = real.copy()
    spoilt[[3, 5], 1] = np.nan, np.inf
    found = frechet_distance(spoilt, made, nan="drop", patients=np.arange(60))
    assert found.n_real == 58
    assert "dropped_rows: 2 real and 0 generated rows were not finite" in found.flags
    assert found.value == frechet_distance(np.delete(real, [3, 5], axis=0), made).value


def test_options_that_do_not_exist_or_do_not_fit_are_named():
    rows = normal(9, 2)
    with pytest.raises(TypeError, match="'patient'; did you mean 'patients'"):
        frechet_distance(rows, rows, patient=np.zeros(9))
    with pytest.raises(SetError, match="one label per row in `patients`, 9"):
        frechet_distance(rows, rows, patients=np.zeros(8))
    with pytest.raises(SetError, match="'error' or 'drop'"):
        frechet_distance(rows, rows, nan="ignore")


def test_the_extractor_and_the_counts_stand_in_the_result():
    found = frechet_distance(normal(60, 3), normal(55, 3, 1), extractor="rad-dino 1a2b")
    assert (found.extractor, found.n_real, found.n_generated, found.d) == ("rad-dino 1a2b", 60, 55, 3)


def test_repeated_rows_are_counted():
    real, made = normal(60, 3), normal(60, 3, 1)
    made[:4] = made[10]
    made[20] = real[7]
    flags = frechet_distance(real, made, **PLAIN).flags
    assert "repeated_rows: 4 of 60 generated rows repeat another" in flags
    assert "shared_rows: 1 of 60 generated rows are rows of the real set" in flags


def test_rows_that_agree_in_some_features_only_are_not_the_same():
    real, made = normal(60, 300), normal(60, 300, 1)
    made[:, ::4] = real[:, ::4]
    made[5] = real[9]
    assert "shared_rows: 1 of 60 generated rows are rows of the real set" in frechet_distance(real, made, **PLAIN).flags


def test_minus_zero_is_zero_when_rows_are_compared():
    real = normal(60, 3)
    real[0] = 0.0
    made = normal(60, 3, 1)
    made[0] = -0.0
    assert frechet_distance(real, made, **PLAIN).flagged("shared_rows")


def test_extrapolation_takes_the_bias_of_small_sets_away():
    plain, far = [], []
    for seed in range(6):
        real, made = normal(90, 24, seed), normal(90, 24, seed + 50)
        plain.append(frechet_distance(real, made, **PLAIN).value)
        far.append(frechet_distance_inf(real, made, floor=False).value)
    assert np.mean(plain) > 2
    assert abs(np.mean(far)) < 0.5 * np.mean(plain)


def test_extrapolation_is_refused_below_one_and_a_half_rows_per_feature():
    with pytest.raises(SetError, match="at least 1.5 rows per feature, 36 for d = 24, got 35 real and 90"):
        frechet_distance_inf(normal(35, 24), normal(90, 24))


def test_extrapolation_is_seeded_and_keeps_patients_together():
    real, made = normal(120, 6, 1), normal(120, 6, 2)
    one, again, other = (frechet_distance_inf(real, made, seed=seed) for seed in (0, 0, 1))
    assert one == again
    assert one.value != other.value
    assert one.details["at_n"] == pytest.approx(frechet_distance(real, made, **PLAIN).value, rel=1e-12)
    assert one.floor_n == 60
    grouped = frechet_distance_inf(real, made, patients=np.arange(120) // 4)
    assert grouped.value != one.value


def test_vendi_counts_directions():
    real = np.eye(4)
    assert vendi_score(real, np.eye(4)).value == pytest.approx(4)
    assert vendi_score(real, np.ones((4, 4))).value == pytest.approx(1)
    two = np.r_[np.eye(4)[[0, 0]], np.eye(4)[[1, 1]]] * 3
    found = vendi_score(real, two)
    assert (found.value, found.details["real"]) == (pytest.approx(2), pytest.approx(4))
    assert vendi_score(real, two, order=2).value == pytest.approx(2)
    three = np.r_[two[:3], two[:1]]
    assert vendi_score(real, three, order=math.inf).value == pytest.approx(4 / 3)


@given(n=st.integers(2, 20), d=st.integers(1, 12), seed=st.integers(0, 50))
@settings(deadline=None, max_examples=20)
def test_vendi_is_the_same_by_rows_and_by_features(n, d, seed):
    rows = np.random.default_rng(seed).standard_normal((n, d)) + 0.1
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    shares = np.linalg.eigvalsh(unit @ unit.T) / n
    shares = shares[shares > 1e-15]
    value = vendi_score(rows, rows).value
    assert value == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-9)
    assert 1 - 1e-9 <= value <= min(n, d) + 1e-9


@pytest.mark.parametrize("order", [1.0, 2.0, math.inf])
@pytest.mark.parametrize(("n", "d"), [(400, 3), (60, 80)])
def test_the_interval_of_vendi_is_that_of_weighing_rows_a_little_more(n, d, order):
    rows = np.random.default_rng(0).standard_normal((n, d)) / np.arange(1, d + 1) + 0.3
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def entropy(weights):
        shares = np.linalg.eigvalsh((unit * weights[:, None]).T @ unit / weights.sum())
        shares = shares[shares > 1e-14]
        if order == 1:
            return -(shares * np.log(shares)).sum()
        return -np.log(shares.max()) if math.isinf(order) else np.log((shares**order).sum()) / (1 - order)

    step = 1e-5
    slopes = [(entropy(1 + step * row) - entropy(1 - step * row)) / (2 * step) for row in np.eye(n)]
    error = np.sqrt(np.square(slopes).sum() * n / (n - 1))
    found = vendi_score(rows, rows, order=order)
    assert math.log(found.high / found.value) == pytest.approx(1.959964 * error, rel=1e-4)
    assert found.low * found.high == pytest.approx(found.value**2)


def test_vendi_has_no_interval_where_nearly_every_row_points_its_own_way():
    found = vendi_score(normal(60, 500, 0), normal(60, 500, 1))
    assert found.value > 50
    assert math.isnan(found.low)
    assert found.flagged("no_interval")
    assert not vendi_score(normal(60, 3, 0), normal(60, 3, 1), interval=False).flagged("no_interval")


def test_vendi_refuses_rows_without_direction_and_orders_without_meaning():
    with pytest.raises(SetError, match="Row 2 of the generated set is zero"):
        vendi_score(np.eye(4), np.diag([1.0, 1, 0, 1]))
    with pytest.raises(SetError, match="above 0, got 0"):
        vendi_score(np.eye(4), np.eye(4), order=0)


def test_radiomics_features_are_scaled_by_the_real_set_and_bad_ones_are_listed():
    real, made = normal(90, 4, 1), normal(80, 4, 2) + 0.3
    right = frechet_distance(
        (real - real.mean(0)) / real.std(0, ddof=1), (made - real.mean(0)) / real.std(0, ddof=1), **PLAIN
    ).value
    wide_real = np.c_[real * [1, 10, 100, 1000], np.full(90, 2.0), np.ones(90)]
    wide_made = np.c_[made * [1, 10, 100, 1000], np.ones(80), np.full(80, np.nan)]
    names = ("a", "b", "c", "d", "still", "lost")
    found = radiomics_frechet_distance(wide_real, wide_made, names=names, holdout=wide_real[:50])
    assert found.value == pytest.approx(right, rel=1e-10)
    assert found.d == 4
    assert "dropped_features: 1 of 6 are not finite: lost" in found.flags
    assert "dropped_features: 1 of 6 are constant in the real set: still" in found.flags
    logged = [radiomics_frechet_distance(real, made, log_form=form) for form in ("d2", "d")]
    assert logged[0].value == pytest.approx(math.log(right), rel=1e-9)
    assert logged[1].value == pytest.approx(math.log(right) / 2, rel=1e-9)
    assert logged[0].low < logged[0].value < logged[0].high


def test_radiomics_tables_without_a_feature_are_refused():
    with pytest.raises(SetError, match="None of 2 features"):
        radiomics_frechet_distance(np.ones((5, 2)), normal(5, 2))
    with pytest.raises(SetError, match="'none', 'd2' or 'd'"):
        radiomics_frechet_distance(normal(5, 2), normal(5, 2), log_form="log")
    with pytest.raises(SetError, match="2 names of features, got 1"):
        radiomics_frechet_distance(normal(5, 2), normal(5, 2), names=["a"])


def test_images_of_one_prompt_are_compared_with_each_other_only():
    images = np.random.default_rng(0).random((5, 176, 176))
    images[1] = images[0]
    found = intra_prompt_ms_ssim(images, ["a", "a", "b", "b", "c"], data_range=1.0)
    pair_b = intra_prompt_ms_ssim(images[2:4], [0, 0], data_range=1.0).value
    assert found.value == pytest.approx((1 + pair_b) / 2)
    assert found.details["prompts"] == 2
    assert found.flagged("left_out")
    with pytest.raises(SetError, match="5 prompts with one"):
        intra_prompt_ms_ssim(images, np.arange(5), data_range=1.0)


def test_importing_set_metrics_brings_no_torch_and_no_scipy_stats():
    code = (
        "import sys, medimg_eval.metrics.fidelity, medimg_eval.metrics.privacy; "
        "sys.exit(bool({'torch', 'scipy.stats', 'pandas', 'sklearn'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())
