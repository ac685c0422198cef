"""Metrics of registrations: Jacobians of maps whose answer is known, folds, points, warped labels, there and back."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics import available, parse
from medimg_eval.metrics.registration import (
    RegistrationPair,
    inverse_errors,
    jacobian_determinants,
    registration_scores,
    sample_field,
    warp_labels,
    worst_registration_scores,
)
from medimg_eval.metrics.registry import ScoreTable


def affine_field(matrix, shape):
    """The displacement of index -> matrix @ index."""
    return np.tensordot(np.asarray(matrix, float) - np.eye(len(shape)), np.indices(shape, float), 1)


def score(pair, name):
    return registration_scores(pair, [name])[0].value


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-0.4, 0.4), min_size=9, max_size=9), st.integers(2, 40))
def test_the_determinant_of_an_affine_map_is_that_of_its_matrix_everywhere(numbers, layers):
    matrix = np.eye(3) + np.reshape(numbers, (3, 3))
    found = jacobian_determinants(affine_field(matrix, (layers, 3, 4)))
    assert found.shape == (layers, 3, 4)
    np.testing.assert_allclose(found, np.linalg.det(matrix), atol=1e-9)


def test_determinants_are_those_of_the_whole_grid_though_it_is_cut_into_layers():
    field = np.random.default_rng(0).normal(size=(3, 37, 5, 6))
    slopes = [[np.gradient(part, axis=axis) for axis in range(3)] for part in field]
    whole = np.moveaxis(np.array(slopes), (0, 1), (-2, -1)) + np.eye(3)
    np.testing.assert_allclose(jacobian_determinants(field), np.linalg.det(whole), atol=1e-12)


def test_pictures_have_determinants_too_and_other_shapes_are_refused():
    assert np.allclose(jacobian_determinants(affine_field([[2, 0], [0, 3]], (4, 5))), 6)
    with pytest.raises(ValueError, match=r"two or three axes, got \(2, 4, 4, 4\)"):
        jacobian_determinants(np.zeros((2, 4, 4, 4)))


def test_an_identity_does_not_bend():
    pair = RegistrationPair(np.zeros((3, 6, 6, 6)))
    assert [score(pair, name) for name in ("negative_jacobians", "sdlogj", "sdlogj_learn2reg")] == [0, 0, 0]


def test_a_fold_is_counted_where_it_is_and_only_in_the_region():
    field = np.zeros((3, 10, 4, 4))
    field[0, 5] = -4  # layer 4 has slope (-4 - 0) / 2 = -2, so 1 - 2 < 0; layer 6 has +2
    assert score(RegistrationPair(field), "negative_jacobians") == pytest.approx(10.0)
    region = np.zeros((10, 4, 4), bool)
    region[6:] = True
    assert score(RegistrationPair(field, region), "negative_jacobians") == 0
    assert math.isnan(score(RegistrationPair(field, np.zeros_like(region)), "negative_jacobians"))


def test_sdlogj_is_of_logarithms_and_learn2regs_adds_three():
    field = np.zeros((2, 8, 8))
    field[1] = np.where(np.arange(8) < 4, 0, np.arange(8) - 3)[None] * 1.0  # slope 0, then 0.5, then 1
    determinants = jacobian_determinants(field)
    assert sorted(set(determinants.ravel())) == [1, 1.5, 2]
    assert score(RegistrationPair(field), "sdlogj") == pytest.approx(np.log(determinants).std())
    inner = determinants[2:-2, 2:-2]
    assert score(RegistrationPair(field), "sdlogj_learn2reg") == pytest.approx(np.log(inner + 3).std())
    assert score(RegistrationPair(-2 * field), "sdlogj") > 5  # folds are dear


def test_points_are_measured_where_they_are_placed():
    pair = RegistrationPair(np.zeros((3, 2, 2, 2)), moved=np.array([[0, 0, 0], [3, 4, 0.0]]), points=np.zeros((2, 3)))
    assert (score(pair, "tre"), score(pair, "tre_largest")) == (2.5, 5.0)
    assert math.isnan(score(RegistrationPair(np.zeros((3, 2, 2, 2))), "tre"))


def test_labels_are_pulled_back_from_the_moving_image():
    moving = np.zeros((6, 4), int)
    moving[3] = 7
    shift = np.zeros((2, 6, 4))
    shift[0] = 2  # row i of the fixed image lies at row i + 2 of the moving one
    warped = warp_labels(moving, shift)
    assert (warped[1] == 7).all()
    assert (warped == 7).sum() == 4
    assert (warped[4:] == 0).all()  # beyond the moving image


def test_a_field_is_read_between_voxels():
    field = np.arange(5.0)[None, :, None].repeat(3, axis=2)
    assert sample_field(field, [[1.5], [1.0]]).tolist() == [[1.5]]
    assert sample_field(field, [[7.0], [1.0]]).tolist() == [[0.0]]


@settings(max_examples=20, deadline=None)
@given(st.integers(-2, 2), st.integers(-2, 2))
def test_a_shift_and_its_inverse_return_every_point_that_stays_inside(rows, columns):
    there = np.stack([np.full((7, 8), rows), np.full((7, 8), columns)])
    found = inverse_errors(there, -there)
    inside = ~np.isnan(found[0])
    assert inside.sum() == (7 - abs(rows)) * (8 - abs(columns))
    assert not found[:, inside].any()


def test_the_worst_is_the_diagonal_where_a_distance_has_no_bound():
    worst = {row.metric: row.value for row in worst_registration_scores(["tre", "negative_jacobians"], 12.0)}
    assert worst["tre"] == 12
    assert math.isnan(worst["negative_jacobians"])


def test_the_worst_three_tenths_are_of_cases():
    def rows(case, value):
        held = np.array(case), np.full(len(case), "m"), np.full(len(case), "a"), np.array(value, float)
        return ScoreTable(*held, np.full(len(case), "present"), {}, len(set(case)), {})

    tre, dice = parse("tre_30")[0].function, parse("dice_30")[0].function
    assert tre(rows(range(11), range(11))) == pytest.approx(7.0)
    # Cases have 0.2, 0.5 and 0.9; a label that a case lacks does not count.
    assert dice(rows([0, 0, 1, 2, 2], [0.1, 0.3, 0.5, 0.9, math.nan])) == pytest.approx(
        np.quantile([0.2, 0.5, 0.9], 0.3)
    )


def test_every_metric_of_transforms_says_where_it_comes_from():
    assert all(found.source for found in available().values() if found.kind == "registration")
