"""Precision, recall, density and coverage, and the exact neighbours they rest on, against all pairs."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics import get
from medimg_eval.metrics.fidelity import (
    SetError,
    coverage,
    density,
    precision,
    precision_recall_density_coverage,
    recall,
)
from medimg_eval.metrics.fidelity import nearest_neighbours as _fidelity_near
from medimg_eval.metrics.fidelity import prdc as _fidelity_manifold
from medimg_eval.metrics.fidelity.nearest_neighbours import near, prepare_feature_sets
from medimg_eval.metrics.generation.image_sets import ImageSet, ImageSets
from tests.metrics.fidelity.test_frechet import normal, pair


def lengths(one, other):
    return np.sqrt(((one[:, None].astype(float) - other[None]) ** 2).sum(-1))


def by_all_pairs(real, made, k):
    """Naeem's definitions, word for word."""
    wide, theirs = (np.sort(lengths(one, one), axis=1)[:, k] for one in (real, made))
    across = lengths(real, made)
    return [
        (across < wide[:, None]).any(axis=0).mean(),
        (across < theirs[None]).any(axis=1).mean(),
        (across < wide[:, None]).sum(axis=0).mean() / k,
        (across < wide[:, None]).any(axis=1).mean(),
    ]


def values(real, made, k=5, **options):
    return [one.value for one in precision_recall_density_coverage(real, made, k=k, **options)]


@pytest.mark.parametrize(
    ("n", "d", "k", "right"),
    [
        (120, 16, 5, [0.48333333333333334, 0.9833333333333333, 0.19, 0.625]),
        (120, 16, 3, [0.4, 0.9833333333333333, 0.20833333333333331, 0.4666666666666667]),
        (30, 48, 5, [0.23333333333333334, 0.9666666666666667, 0.04666666666666667, 0.23333333333333334]),
    ],
)
def test_values_are_those_of_prdc(n, d, k, right):
    assert values(*pair(n, n, d), k=k) == pytest.approx(right, abs=1e-12)


@given(n=st.integers(6, 60), d=st.integers(1, 8), k=st.integers(1, 5), seed=st.integers(0, 99), grid=st.booleans())
@settings(deadline=None, max_examples=30)
def test_values_are_those_of_all_pairs_also_on_a_grid_full_of_ties(n, d, k, seed, grid):
    rng = np.random.default_rng(seed)
    real, made = rng.standard_normal((n, d)), rng.standard_normal((n, d)) * 1.2
    if grid:
        real, made = np.round(real * 2), np.round(made * 2)
    assert values(real, made, k=k, floor=False) == pytest.approx(by_all_pairs(real, made, k), abs=1e-12)


def test_single_precision_never_decides(monkeypatch):
    # A mean far from 0 leaves float32 products without a digit; the strip falls back to double precision.
    real, made = (one + 3e5 for one in pair(90, 90, 12))
    right = by_all_pairs(real, made, 5)
    assert values(real, made) == pytest.approx(right, abs=1e-12)
    far = np.r_[np.full((1, 12), 1e8), real[1:]]
    assert values(far, made) == pytest.approx(by_all_pairs(far, made, 5), abs=1e-12)
    monkeypatch.setattr(_fidelity_manifold, "CROWDED", 0)
    monkeypatch.setattr(_fidelity_near, "CROWDED", 0)
    assert values(real, made) == pytest.approx(right, abs=1e-12)


def test_strips_of_any_size_give_the_same(monkeypatch):
    real, made = pair(70, 70, 6)
    right = values(real, made)
    monkeypatch.setattr(_fidelity_manifold, "STRIP", 11)
    monkeypatch.setattr(_fidelity_near, "STRIP", 7)
    assert values(real, made) == right


def test_equal_sets_have_1_and_what_lies_on_the_edge_is_outside():
    rows = normal(60, 4)
    assert values(rows, rows.copy()) == pytest.approx([1, 1, 1, 1])
    line = np.arange(8.0)[:, None]
    found = values(line, line + 0.5, k=1)
    assert found == pytest.approx(by_all_pairs(line, line + 0.5, 1))
    assert values(line, line + 1, k=1, floor=False)[0] == pytest.approx(7 / 8)


def test_a_generated_set_of_one_repeated_point_is_judged_and_flagged():
    real = normal(80, 5)
    found = precision_recall_density_coverage(real, np.repeat(real[:1], 80, axis=0))
    assert found.precision.value == 1
    assert found.coverage.value < 0.3
    assert found.recall.value == 0
    assert any("all 80 generated rows are the same" in flag for flag in found.precision.flags)


def test_nan_is_refused_where_torch_fidelity_and_piq_give_a_number():
    real, made = pair(60, 60, 4)
    made[7, 2] = np.nan
    with pytest.raises(SetError, match=r"1 of 60 rows of the generated set .*\(rows 7\)"):
        precision(real, made)


def test_k_must_be_less_than_n():
    with pytest.raises(SetError, match="at least 6 rows in each set, got 5 in the generated set"):
        coverage(normal(9, 2), normal(5, 2, 1))
    with pytest.raises(SetError, match="k to be at least 1, got 0"):
        coverage(normal(9, 2), normal(5, 2, 1), k=0)


@pytest.mark.parametrize(("n", "m"), [(40, 90), (90, 40), (7, 30)])
@pytest.mark.parametrize("k", [1, 5])
def test_uncut_sets_have_the_values_of_all_pairs_and_say_that_they_are_unequal(n, m, k):
    rng = np.random.default_rng(n)
    real, made = rng.standard_normal((n, 4)), rng.standard_normal((m, 4)) * 1.2
    found = precision_recall_density_coverage(real, made, k=k, cut=False, floor=False)
    assert [one.value for one in found] == pytest.approx(by_all_pairs(real, made, k), abs=1e-12)
    assert all(f"unequal: {n} real and {m} generated" in " ".join(one.flags) for one in found)
    assert all(math.isnan(one.low) or one.low <= one.value <= one.high for one in found)
    assert values(real, made, k=k) != [one.value for one in found]


def test_the_coverage_expected_of_uncut_sets_is_that_of_draws_of_one_distribution():
    rng = np.random.default_rng(0)
    drawn = [
        precision_recall_density_coverage(*(rng.standard_normal((n, 2)) for n in (30, 80)), k=3, cut=False, floor=False)
        for _ in range(60)
    ]
    expected = drawn[0].coverage.details["expected"]
    assert expected == pytest.approx(1 - (29 * 28 * 27) / (109 * 108 * 107))
    assert np.mean([one.coverage.value for one in drawn]) == pytest.approx(
        expected, abs=0.02
    )  # of equal sizes it is 0.89


def test_unequal_sets_are_cut_to_one_size_by_the_seed_and_say_so():
    real, made = normal(100, 4, 1), normal(60, 4, 2)
    one, again = coverage(real, made), coverage(real, made)
    assert one == again
    assert (one.n_real, one.n_generated) == (60, 60)
    assert "subsampled: 60 of 100 real and 60 of 60 generated rows were compared" in one.flags
    assert coverage(real, made, seed=1).value != one.value or recall(real, made, seed=1) != recall(real, made)


def test_expected_coverage_is_what_equal_distributions_have():
    found = [coverage(normal(100, 8, seed), normal(100, 8, seed + 100), floor=False) for seed in range(40)]
    shares = np.array([one.value for one in found])
    assert found[0].details["expected"] == pytest.approx(1 - np.prod([(100 - i) / (200 - i) for i in range(1, 6)]))
    assert abs(shares.mean() - found[0].details["expected"]) < 4 * shares.std() / np.sqrt(40)


def test_each_has_its_interval_floor_and_direction_of_drift():
    real, made = normal(120, 8, 1), normal(120, 8, 2) * 1.1
    found = precision_recall_density_coverage(real, made, prompts=np.arange(120) // 2)
    assert [one.depends_on_n for one in found] == [True, True, False, False]
    assert [one.metric for one in found] == ["precision, k=5", "recall, k=5", "density, k=5", "coverage, k=5"]
    for one in found:
        assert one.low <= one.value <= one.high
        assert one.floor_n == 60
        assert "spread of both sets" in one.interval
    assert all(0 <= one.low <= one.high <= 1 for one in (found.precision, found.recall, found.coverage))
    assert density(real, made).value == found.density.value


@given(n=st.integers(1, 80), m=st.integers(4, 300), d=st.integers(1, 6), k=st.integers(1, 4), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_neighbours_are_those_of_all_pairs(n, m, d, k, seed):
    rng = np.random.default_rng(seed)
    real, made = np.round(rng.standard_normal((m, d)) * 3), np.round(rng.standard_normal((n, d)) * 3)
    found = near(*prepare_feature_sets(made, real), k)
    gaps = lengths(made, real)
    order = np.lexsort((np.broadcast_to(np.arange(m), gaps.shape), gaps), axis=1)[:, :k]
    np.testing.assert_array_equal(found.places, order)


def test_near_copies_have_their_exact_distance_where_products_are_off_several_times():
    rng = np.random.default_rng(0)
    real = rng.standard_normal((300, 256)).astype(np.float32)
    made = real[:40].astype(np.float64) + 1e-4 * rng.standard_normal((40, 256))
    queries, gallery = prepare_feature_sets(made, real)
    found = near(queries, gallery, 1)
    right = np.linalg.norm(made - real[:40], axis=1)
    np.testing.assert_array_equal(found.places[:, 0], np.arange(40))
    np.testing.assert_allclose(np.sqrt(found.squares[:, 0]) / queries.scale, right, rtol=1e-12)
    one, other = made.astype(np.float32), real[:40]
    products = (one**2).sum(1) + (other**2).sum(1) - 2 * (one * other).sum(1)
    assert np.abs(np.sqrt(np.maximum(products, 0)) / right - 1).max() > 0.5


def test_values_of_any_size_neither_overflow_nor_vanish():
    real, made = pair(60, 60, 5)
    right = values(real, made)
    for scale in (1e-200, 1e-30, 1e30, 1e200):
        assert values(real * scale, made * scale, floor=False) == right


@given(n=st.integers(8, 30), d=st.integers(1, 4), k=st.integers(1, 4), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=15)
def test_standard_errors_are_those_of_leaving_out_rows_one_by_one(n, d, k, seed):
    rng = np.random.default_rng(seed)
    real, made = rng.standard_normal((n, d)), rng.standard_normal((n, d)) * 1.2
    found = precision_recall_density_coverage(real, made, k=k, floor=False)
    wide, theirs = (np.sort(lengths(one, one), axis=1)[:, k] for one in (real, made))
    inside, across = lengths(real, made) < wide[:, None], lengths(real, made) < theirs[None]

    def error(own, without):
        return np.sqrt(own.var(ddof=1) / n + np.var(without, ddof=1) * n)

    rest = [np.arange(n) != one for one in range(n)]
    right = [
        error(inside.any(axis=0), [inside[left].any(axis=0).mean() for left in rest]),
        error(across.any(axis=1), [across[:, left].any(axis=1).mean() for left in rest]),
        None,
        error(inside.any(axis=1), [inside[:, left].any(axis=1).mean() for left in rest]),
    ]
    for one, wanted in zip(found, right, strict=True):
        if wanted is not None:
            assert one.standard_error == pytest.approx(wanted, abs=1e-12)
    if math.isfinite(found.density.standard_error):
        # Here neighbourhoods are found anew without the row, and k stays.
        again = [by_all_pairs(real[left], made, k)[2] * 1.0 for left in rest]
        wanted = error(inside.sum(axis=0) / k, again)
        assert found.density.standard_error == pytest.approx(wanted, abs=1e-12)


def test_a_density_of_next_to_nothing_has_no_interval():
    real, made = normal(60, 8, 1), normal(60, 8, 2) + 50
    found = precision_recall_density_coverage(real, made, floor=False)
    assert found.density.value == 0
    assert math.isnan(found.density.low)
    assert found.density.flagged("no_interval")
    assert found.coverage.high == pytest.approx(1.96**2 / (60 + 1.96**2), abs=1e-3)  # Wilson's of 0 in 60


def test_no_matrix_of_all_pairs_is_held(monkeypatch):
    widest = 0

    def watched(queries, gallery, chosen, *, double=False):
        nonlocal widest
        found = estimates(queries, gallery, chosen, double=double)
        widest = max(widest, found[0].size)
        return found

    estimates = _fidelity_near.estimates
    monkeypatch.setattr(_fidelity_near, "estimates", watched)
    monkeypatch.setattr(_fidelity_manifold, "estimates", watched)
    precision(normal(900, 3, 1), normal(900, 3, 2), floor=False)
    assert 0 < widest <= _fidelity_near.STRIP * 900


def test_metric_names_give_the_values_of_cut_and_of_uncut_sets():
    rng = np.random.default_rng(3)
    rows = {"reference": rng.standard_normal((30, 4)), "generated": rng.standard_normal((50, 4))}
    owners = {name: np.arange(len(some)).astype(str) for name, some in rows.items()}
    sets = ImageSets({name: ImageSet(some, owners[name], owners[name]) for name, some in rows.items()})
    uncut = by_all_pairs(rows["reference"], rows["generated"], 5)
    names = ("improved_precision", "improved_recall", "density", "coverage")
    for name, expected in zip(names, uncut, strict=True):
        assert get(f"{name}_uncut@pixels").function(sets).value == pytest.approx(expected, abs=1e-12)
        cut = get(f"{name}@pixels").function(sets)
        assert (cut.n_real, cut.n_generated) == (30, 30)
