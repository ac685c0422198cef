"""Temperature and Platt scaling: known temperatures found again, and beside scikit-learn's."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from medimg_eval.metrics.calibration import Platt, fit_platt, fit_temperature, temper_probabilities


def test_a_temperature_by_hand():
    # Odds 9 to 1 at a temperature of 2 are 3 to 1; a softmax of two classes is the same.
    assert temper_probabilities([0.9, 0.1], 2.0) == pytest.approx([0.75, 0.25])
    assert temper_probabilities([[0.9, 0.1]], 2.0)[0] == pytest.approx([0.75, 0.25])
    assert temper_probabilities([[0.6, 0.3, 0.1]], 1.0)[0] == pytest.approx([0.6, 0.3, 0.1])
    assert temper_probabilities([[1.0, 0.0]], 1.0)[0] == pytest.approx([1.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_that_was_applied_is_found_again(temperature):
    rng = np.random.default_rng(0)
    honest = rng.dirichlet(np.ones(4), 4000)
    truth = np.minimum((honest.cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1), 3)
    assert fit_temperature(temper_probabilities(honest, 1 / temperature), truth) == pytest.approx(temperature, rel=0.1)
    sure = rng.random(4000)
    right = rng.random(4000) < sure
    assert fit_temperature(temper_probabilities(sure, 1 / temperature), right) == pytest.approx(temperature, rel=0.1)


def test_platt_is_an_unpenalised_logistic_regression_of_smoothed_truth():
    rng = np.random.default_rng(1)
    sure = rng.random(300)
    right = rng.random(300) < sure**2
    odds = np.log(sure / (1 - sure))[:, None]
    yes, no = right.sum(), (~right).sum()
    wanted = np.where(right, (yes + 1) / (yes + 2), 1 / (no + 2))
    # Each statement stands there twice, true and false, with the weights of its smoothed truth.
    theirs = LogisticRegression(C=1e12, tol=1e-10, max_iter=1000).fit(
        np.vstack([odds, odds]), np.repeat([1, 0], 300), sample_weight=np.concatenate([wanted, 1 - wanted])
    )
    fitted = fit_platt(sure, right)
    assert fitted.slope == pytest.approx(theirs.coef_[0, 0], rel=1e-3)
    assert fitted.intercept == pytest.approx(theirs.intercept_[0], rel=1e-3)


def test_platt_has_an_answer_where_all_are_true_or_sides_are_separated():
    for sure, right in (([0.7, 0.8], [True, True]), ([0.2, 0.9], [False, True])):
        scaled = fit_platt(sure, right).apply(sure)
        assert np.isfinite(scaled).all()
        assert ((scaled > 0.5) == right).all()
    assert Platt(1.0, 0.0).apply([0.3]) == pytest.approx([0.3])


def test_order_is_kept_by_either():
    sure = np.linspace(0.05, 0.95, 10)
    assert (np.diff(temper_probabilities(sure, 3.0)) > 0).all()
    assert (np.diff(Platt(0.5, math.log(2)).apply(sure)) > 0).all()


def test_nothing_to_fit_on_is_refused():
    for fit in (fit_temperature, fit_platt):
        with pytest.raises(ValueError, match="expected"):
            fit([], [])
