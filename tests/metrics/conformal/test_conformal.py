"""Conformal sets, quantiles and thresholds: by hand, by plain loops, beside MAPIE, and by simulated coverage."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.metrics.conformal import (
    Regularisation,
    choose_regularisation,
    choose_threshold,
    conformal_quantile,
    coverage_interval,
    fewest_cases,
    group_quantiles,
    label_scores,
    label_sets,
    risk_bound,
    true_label_scores,
)

NINE = [0.05, 0.1, 0.12, 0.2, 0.25, 0.3, 0.4, 0.55, 0.7]


def simulated(number, classes=5, seed=0):
    """Probabilities that mean what they say, and classes drawn by them."""
    rng = np.random.default_rng(seed)
    said = rng.dirichlet(np.full(classes, 0.6), number)
    truth = (said.cumsum(axis=1) < rng.random((number, 1))).sum(axis=1)
    return said, np.minimum(truth, classes - 1)


@pytest.mark.parametrize(("alpha", "quantile"), [(0.1, 0.7), (0.2, 0.55), (0.05, math.inf), (0.5, 0.25)])
def test_quantiles_of_nine_scores(alpha, quantile):
    assert conformal_quantile(NINE, alpha) == quantile


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.3])
def test_as_few_cases_as_are_said_give_a_finite_quantile(alpha):
    fewest = fewest_cases(alpha)
    assert conformal_quantile(np.arange(fewest), alpha) == fewest - 1
    assert conformal_quantile(np.arange(fewest - 1), alpha) == math.inf


def test_edge_cases_of_quantiles():
    assert conformal_quantile([], 0.1) == math.inf
    assert conformal_quantile([math.nan] * 20, 0.1) == math.inf  # no answer conforms to nothing
    assert conformal_quantile([0.3] * 20, 0.1) == 0.3
    with pytest.raises(ValueError, match="alpha is invalid: expected a share"):
        conformal_quantile(NINE, 1.0)


def test_groups_have_quantiles_of_their_own():
    found = group_quantiles([*NINE, 5.0], ["f"] * 9 + ["m"], 0.2)
    assert found == {"f": 0.55, "m": math.inf}


def test_scores_of_labels_by_hand():
    said = [[0.2, 0.5, 0.3]]
    assert label_scores(said, "lac")[0] == pytest.approx([0.8, 0.5, 0.7])
    assert label_scores(said, "aps")[0] == pytest.approx([1.0, 0.5, 0.8])
    # Ranks 3, 1, 2: a penalty of 0.1 for each behind the first.
    assert label_scores(said, "raps", Regularisation(0.1, 1))[0] == pytest.approx([1.2, 0.5, 0.9])
    assert true_label_scores(said, [2], "aps") == pytest.approx([0.8])
    assert true_label_scores(said, [2], "aps", uniform=0.5) == pytest.approx([0.65])
    assert true_label_scores(said, [2], "lac", uniform=0.5) == pytest.approx([0.7])


@pytest.mark.parametrize(
    ("method", "quantile", "inside"),
    [
        ("lac", 0.6, [False, True, False]),
        ("lac", 0.4, [False, False, False]),  # LAC may say nothing
        ("aps", 0.4, [False, True, False]),  # APS takes the first that reaches the quantile
        ("aps", 0.6, [False, True, True]),
        ("aps", 0.8, [False, True, True]),
        ("aps", math.inf, [True, True, True]),
        ("lac", math.inf, [True, True, True]),
    ],
)
def test_sets_by_hand(method, quantile, inside):
    assert label_sets([[0.2, 0.5, 0.3]], quantile, method)[0].tolist() == inside


def test_a_quantile_for_each_case():
    assert label_sets([[0.6, 0.4]] * 2, np.array([0.5, 0.7]), "lac").tolist() == [[True, False], [True, True]]


@given(st.integers(0, 1000), st.sampled_from(["lac", "aps", "raps"]), st.floats(0.05, 0.9))
@settings(max_examples=40, deadline=None)
def test_sets_grow_with_the_quantile_and_hold_what_conforms(seed, method, quantile):
    said, _ = simulated(6, seed=seed)
    penalty = Regularisation(0.05, 2)
    small, large = (label_sets(said, end, method, penalty) for end in (quantile, quantile + 0.1))
    assert (small <= large).all()
    assert (label_scores(said, method, penalty) <= quantile).astype(int).max(initial=0) <= 1
    assert (small >= (label_scores(said, method, penalty) <= quantile)).all()
    assert method == "lac" or small.any(axis=1).all()


def test_calibration_cases_themselves_are_held_as_often_as_asked():
    said, truth = simulated(200)
    for method in ("lac", "aps", "raps"):
        quantile = conformal_quantile(true_label_scores(said, truth, method), 0.1)
        held = label_sets(said, quantile, method)[np.arange(200), truth]
        assert held.mean() >= 0.9


def test_regularised_sets_are_smaller_where_tails_are_long():
    # The truth is among the first three, on which the model lays 0.1 to 1 in all; the rest is noise.
    rng = np.random.default_rng(3)
    noise = rng.uniform(0, 0.9, (600, 1))
    said = np.hstack([rng.dirichlet([9, 4, 2], 600) * (1 - noise), rng.dirichlet(np.ones(37), 600) * noise])
    truth = rng.choice(3, 600, p=[0.6, 0.25, 0.15])
    chosen = choose_regularisation(said[:200], truth[:200], 0.1)
    sizes = {}
    for method in ("aps", "raps"):
        quantile = conformal_quantile(true_label_scores(said[200:], truth[200:], method, chosen), 0.1)
        sizes[method] = label_sets(said[200:], quantile, method, chosen).sum(axis=1).mean()
    assert sizes["raps"] < sizes["aps"]


def test_coverage_spreads_as_the_beta_binomial_says():
    # n = 9, alpha 0.1: the largest of nine uniform scores is the quantile, so coverage is Beta(9, 1).
    low, high = coverage_interval(9, 100_000, 0.1)
    assert low == pytest.approx(0.025 ** (1 / 9), abs=1e-3)
    assert high == pytest.approx(0.975 ** (1 / 9), abs=1e-3)
    assert coverage_interval(8, 100, 0.1) == (1.0, 1.0)


def test_a_threshold_of_expected_loss_by_hand():
    steps, losses = [0.1, 0.3, 0.5], [[0.0, 0.0, 0.5], [0.0, 0.1, 0.6], [0.0, 0.2, 0.7]]
    assert risk_bound(losses) == pytest.approx([1 / 4, 1.3 / 4, 2.8 / 4])
    assert choose_threshold(steps, losses, 0.35) == 0.3
    assert math.isnan(choose_threshold(steps, losses, 0.2))
    # A loss that falls again is not believed: 0.9 at 0.3 stays at 0.5; nor is none.
    assert choose_threshold(steps, [[0.0, 0.9, 0.0]] * 9, 0.2) == 0.1
    assert math.isnan(choose_threshold(steps, [[math.nan] * 3] * 9, 0.2))
    with pytest.raises(ValueError, match="ascending"):
        choose_threshold([0.3, 0.1], [[0.0, 0.0]], 0.1)


@pytest.mark.parametrize("given_values", [[0.2, 0.8], [[0.5]], [[1.5, -0.5]], [[math.nan, 1.0]]])
def test_what_are_no_probabilities_is_refused(given_values):
    with pytest.raises(ValueError, match="probabilities is invalid"):
        label_scores(given_values)


class _Given:
    """A fitted classifier for MAPIE that says the probabilities it is handed."""

    def __init__(self, classes):
        self.classes_ = np.arange(classes)

    def fit(self, *_):
        return self

    def predict_proba(self, said):
        return said

    def predict(self, said):
        return said.argmax(axis=1)

    def __sklearn_is_fitted__(self):
        return True


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_mapie_has_the_same_sets(method):
    mapie = pytest.importorskip("mapie.classification", reason="MAPIE is not installed")
    said, truth = simulated(300, seed=5)
    theirs = mapie.SplitConformalClassifier(
        _Given(5), confidence_level=0.9, conformity_score=method, prefit=True, random_state=0
    )
    theirs.conformalize(said[:100], truth[:100])
    more = {} if method == "lac" else {"conformity_score_params": {"include_last_label": True}}
    _, expected = theirs.predict_set(said[100:], **more)
    uniform = np.random.RandomState(0).uniform(size=100)  # as MAPIE draws it
    quantile = conformal_quantile(true_label_scores(said[:100], truth[:100], method, uniform=uniform), 0.1)
    assert (label_sets(said[100:], quantile, method) == expected[:, :, 0]).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lac", "aps", "raps", "interval"])
def test_coverage_of_simulated_cases_is_within_its_binomial_interval(method):
    rng = np.random.default_rng(7)
    held = cases = 0
    for trial in range(2000):
        if method == "interval":
            scores = np.abs(rng.standard_normal(150))
            inside = scores[50:] <= conformal_quantile(scores[:50], 0.1)
        else:
            said, truth = simulated(150, seed=trial)
            uniform = rng.random(50)
            quantile = conformal_quantile(true_label_scores(said[:50], truth[:50], method, uniform=uniform), 0.1)
            inside = label_sets(said[50:], quantile, method)[np.arange(100), truth[50:]]
        held, cases = held + inside.sum(), cases + inside.size
    expected = math.ceil(51 * 0.9) / 51  # the finite-sample term included
    # Trials are independent, cases of one trial share a quantile: the beta-binomial variance of a trial, over trials.
    shape, rest = math.ceil(51 * 0.9), 51 - math.ceil(51 * 0.9)
    variance = expected * (1 - expected) / 100 + shape * rest / (51**2 * 52)
    margin = 4 * math.sqrt(variance / 2000)
    assert held / cases > expected - margin
    if method in ("lac", "interval"):
        assert held / cases < expected + margin
