import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.results.items.irt import FEWEST_ITEMS, FEWEST_MODELS, fit_two_parameters


def simulated(models, items, seed, *, slopes=None):
    rng = np.random.default_rng(seed)
    slope = np.exp(rng.normal(0, 0.3, items)) if slopes is None else slopes
    place, ability = rng.normal(0, 1, items), rng.normal(0, 1, models)
    chance = 1 / (1 + np.exp(-slope * (ability[:, None] - place)))
    return slope, place, ability, (rng.random((models, items)) < chance).astype(float)


def test_parameters_of_many_respondents_are_recovered():
    slope, place, ability, right = simulated(1000, 40, 1)

    fitted = fit_two_parameters(right)

    assert fitted.settled
    assert np.sqrt(np.mean((fitted.slope - slope) ** 2)) < 0.13
    assert np.sqrt(np.mean((fitted.place - place) ** 2)) < 0.13
    assert np.corrcoef(fitted.ability, ability)[0, 1] > 0.93
    error = np.sqrt(np.mean((fitted.ability - ability) ** 2))
    assert error == pytest.approx(np.sqrt(np.mean(fitted.uncertainty**2)), abs=0.05)


GIRTH = """0.9874 -1.1975; 1.3652 -0.5904; 1.1109 0.0045; 0.6905 -0.9902; 1.1973 0.0000; 1.1439 0.1151; 0.8996 0.1286;
1.2433 -0.5256"""
"""Slope and place of the first items of the simulation above, by girth's `twopl_mml` (0.8.0), which has no priors."""


def test_estimates_agree_with_those_of_girth():
    theirs = np.array([[float(part) for part in one.split()] for one in GIRTH.split(";")])

    fitted = fit_two_parameters(simulated(1000, 40, 1)[3])

    np.testing.assert_allclose(fitted.slope[:8], theirs[:, 0], atol=0.05)
    np.testing.assert_allclose(fitted.place[:8], theirs[:, 1], atol=0.04)


def test_thousands_of_items_and_few_models_come_to_rest_and_keep_the_order():
    _, place, _, right = simulated(12, 2000, 3)

    fitted = fit_two_parameters(right)

    assert fitted.settled
    assert (np.argsort(fitted.ability) == np.argsort(right.mean(axis=1))).mean() > 0.7
    told = ~np.isnan(fitted.place)
    assert np.corrcoef(fitted.place[told], place[told])[0, 1] > 0.65
    assert np.abs(fitted.slope[told]).max() < 4, "priors keep slopes from running away"


def test_an_item_that_better_models_fail_has_a_negative_slope_and_no_place():
    slope = np.ones(60)
    slope[7] = -2.0

    fitted = fit_two_parameters(simulated(60, 60, 4, slopes=slope)[3])

    assert fitted.slope[7] < 0
    assert np.isnan(fitted.place[7])
    assert (np.delete(fitted.slope, 7) > 0).all()


def test_items_that_all_pass_or_fail_have_no_parameters_and_change_none():
    right = simulated(15, 30, 5)[3]
    more = np.column_stack([right, np.ones(15), np.zeros(15), np.full(15, np.nan)])

    alone, beside = fit_two_parameters(right), fit_two_parameters(more)

    np.testing.assert_allclose(beside.slope[:30], alone.slope, atol=5e-3)
    assert np.isnan(beside.slope[30:]).all()
    assert np.isnan(beside.place[30:]).all()


def test_missing_answers_are_left_out_and_not_taken_for_wrong():
    _, place, _, right = simulated(400, 30, 6)
    rng = np.random.default_rng(0)
    right[rng.random(right.shape) < 0.3] = np.nan

    fitted = fit_two_parameters(right)

    assert np.sqrt(np.mean((fitted.place - place) ** 2)) < 0.3


def test_too_little_to_estimate_from_is_refused_or_empty():
    with pytest.raises(ValueError, match=f"at least {FEWEST_MODELS} models"):
        fit_two_parameters(np.zeros((FEWEST_MODELS - 1, 20)))
    with pytest.raises(ValueError, match="between 0 and 1"):
        fit_two_parameters(np.full((12, 20), 2.0))
    fitted = fit_two_parameters(simulated(12, FEWEST_ITEMS - 1, 1)[3])
    assert fitted.steps == 0
    assert np.isnan(fitted.slope).all()


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000))
def test_the_order_of_models_and_items_does_not_matter(seed):
    right = simulated(11, 25, seed)[3]
    rng = np.random.default_rng(seed)
    models, items = rng.permutation(11), rng.permutation(25)

    one, other = fit_two_parameters(right), fit_two_parameters(right[models][:, items])

    np.testing.assert_allclose(other.slope, one.slope[items], atol=1e-6)
    np.testing.assert_allclose(other.ability, one.ability[models], atol=1e-6)
