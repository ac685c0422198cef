"""Heads on vectors beside the figures of scikit-learn and scikit-survival."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss, r2_score, roc_auc_score

from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.heads import Targets, load_head, make_head
from medimg_eval.models.heads.cox import _Risks
from medimg_eval.models.heads.neighbours import nearest_rows, unit
from medimg_eval.models.heads.scaling import scaled, scaling_of

X, Y = load_breast_cancer(return_X_y=True)
TEST = np.arange(len(X)) % 3 == 0
CLASSES = Targets("exclusive", ("malignant", "benign"), np.eye(2)[Y[~TEST]])
NUMBERS = Targets("numbers", tuple("abcdefghij"), X[~TEST, 20:])


def fitted(name, **options):
    return make_head({"name": name, **options}).fit(X[~TEST], CLASSES)


def exclusive(codes, classes=3):
    return Targets("exclusive", tuple(map(str, range(classes))), np.eye(classes)[codes])


def test_the_linear_probe_of_the_wisconsin_table_is_that_of_scikit_learn():
    # 569 x 30, every third row is test: LogisticRegression(lbfgs, tol=1e-8) on scaled features.
    known = {
        0.01: (0.990305, 0.927632, 0.189211),
        1: (0.992844, 0.980263, 0.086209),
        100: (0.980321, 0.960526, 0.373272),
    }
    heads = make_head("logistic").fit_path(X[~TEST], CLASSES, None, [{"C": c} for c in (100, 0.01, 1)])
    for head in heads:
        shares = head.predict(X[TEST])
        auroc, accuracy, loss = known[head.C]
        assert head.facts["converged"]
        assert head.facts["C"] == head.C
        assert roc_auc_score(Y[TEST], shares[:, 1]) == pytest.approx(auroc, abs=1e-4 if head.C == 100 else 1e-6)
        assert balanced_accuracy_score(Y[TEST], shares.argmax(1)) == pytest.approx(accuracy, abs=1e-6)
        # At C = 100 the minimum lies 2e-6 beyond where that tolerance stops.
        assert log_loss(Y[TEST], shares[:, 1]) == pytest.approx(loss, abs=3e-6)


@pytest.mark.parametrize("balanced", [False, True])
def test_several_classes_and_weights_reach_the_minimum_of_scikit_learn(balanced):
    random = np.random.default_rng(0)
    codes = random.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
    shown = random.standard_normal((300, 6)) + 5 + codes[:, None] * 0.4
    ours = make_head({"name": "logistic", "C": 0.7, "balanced": balanced, "scale": "none"}).fit(
        shown, exclusive(codes, 4)
    )
    peer = LogisticRegression(C=0.7, tol=1e-10, max_iter=5000, class_weight="balanced" if balanced else None)
    np.testing.assert_allclose(ours.predict(shown), peer.fit(shown, codes).predict_proba(shown), atol=1e-5)


def test_classes_that_do_not_exclude_each_other_are_fitted_on_what_is_known_of_each():
    random = np.random.default_rng(1)
    shown = random.standard_normal((120, 5))
    truth = (shown[:, :2] + random.standard_normal((120, 2)) > 0).astype(float)
    truth[:30, 0] = np.nan
    ours = make_head({"name": "logistic", "scale": "none"}).fit(shown, Targets("classes", ("a", "b"), truth))
    peer = LogisticRegression(tol=1e-10, max_iter=5000)
    for place, begin in ((0, 30), (1, 0)):
        theirs = peer.fit(shown[begin:], truth[begin:, place]).predict_proba(shown)[:, 1]
        np.testing.assert_allclose(ours.predict(shown)[:, place], theirs, atol=1e-6)


def test_float32_comes_to_the_objective_of_float64():
    random = np.random.default_rng(2)
    codes = random.integers(0, 3, 400)
    shown = (random.standard_normal((400, 20)) + np.eye(3, 20)[codes]).astype(np.float32)
    grid = [{"C": c, "tolerance": 1e-7} for c in (0.01, 1.0)]
    exact = make_head("logistic").fit_path(shown, exclusive(codes), None, grid)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("medimg_eval.models.heads.logistic.SMALL", 0)
        single = make_head("logistic").fit_path(shown, exclusive(codes), None, grid)
    for one, other in zip(exact, single, strict=True):
        assert other.facts["converged"]
        assert other.facts["objective"] == pytest.approx(one.facts["objective"], rel=1e-6)


def test_neighbours_vote_as_scikit_learns_do():
    # On scaled features: cosine, k = 1 and 5; with temperature 0.07.
    for options, accuracy in (({"k": 1}, 0.947368), ({"k": 5}, 0.958333)):
        shares = fitted("knn", centre="standard", temperature=None, **options).predict(X[TEST])
        assert balanced_accuracy_score(Y[TEST], shares.argmax(1)) == pytest.approx(accuracy, abs=1e-6)
    shares = fitted("knn", centre="standard", k=5).predict(X[TEST])
    assert roc_auc_score(Y[TEST], shares[:, 1]) == pytest.approx(0.979109, abs=1e-6)


@given(st.integers(1, 7), st.integers(8, 700), st.sampled_from(["float32", "bfloat16"]), st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_the_nearest_rows_are_those_of_a_sort_and_of_equal_ones_the_earlier(k, known, precision, seed):
    random = np.random.default_rng(seed)
    base = unit(random.integers(-2, 3, (known, 3)).astype(np.float64) + 0.01)  # many are equal
    if precision == "bfloat16":
        base = unit(random.standard_normal((known, 16)).astype(np.float32))
    shown = base[:5]
    places, cosines = nearest_rows(base, shown, k, precision=precision)
    alike = (shown @ base.T).astype(np.float64)
    if precision == "float32":
        alike = np.round(alike, 12)
        cosines = np.round(cosines, 12)
    wanted = np.argsort(-alike, axis=1, kind="stable")[:, :k]
    np.testing.assert_allclose(cosines, np.take_along_axis(alike, wanted, 1), atol=1e-6)
    assert all(len(set(row)) == k for row in places.tolist())


def test_prototypes_are_the_means_of_centred_vectors_of_length_one():
    shown = np.array([[3.0, 0], [1, 0], [0, 2], [0, 4]])
    head = make_head("prototypes").fit(shown, exclusive(np.array([0, 0, 1, 1]), 2))
    # Centred by (1, 1.5): (2, -1.5), (0, -1.5), (-1, 0.5), (-1, 2.5), each brought to length 1.
    first = np.array([0.8, -0.6 - 1]) / 2
    np.testing.assert_allclose(head.arrays["prototypes"][0], first)
    assert head.predict(np.array([[9.0, 0], [0, 9]])).argmax(1).tolist() == [0, 1]


def test_ridge_after_a_pca_is_that_of_hest():
    # Columns 0-19 to columns 20-29, PCA(8), alpha 100 / (8 x 10); HEST's solver stops early.
    known = [0.9803, 0.9155, 0.9809, 0.9691, 0.8648, 0.8995, 0.9041, 0.9325, 0.8537, 0.8950]
    shown = X[:, :20]
    for options, mean, r2 in (
        ({"intercept": False, "solver": "lsqr"}, 0.919540, -9.4615),
        ({"intercept": True}, 0.919559, 0.8226),
    ):
        head = make_head({"name": "ridge", "alpha": "hest", "components": 8, **options}).fit(shown[~TEST], NUMBERS)
        assert head.facts["alpha"] == 1.25
        said = head.predict(shown[TEST])
        each = [np.corrcoef(one, other)[0, 1] for one, other in zip(said.T, X[TEST, 20:].T, strict=True)]
        assert np.mean(each) == pytest.approx(mean, abs=1e-6)
        assert each == pytest.approx(known, abs=3e-4 if options["intercept"] else 6e-5)
        assert np.median(r2_score(X[TEST, 20:], said, multioutput="raw_values")) == pytest.approx(r2, abs=6e-5)


@pytest.mark.parametrize("intercept", [False, True])
def test_ridge_for_every_alpha_is_scikit_learns(intercept):
    from sklearn.linear_model import Ridge

    shown = X[~TEST, :20] / X[~TEST, :20].std(0)
    heads = make_head({"name": "ridge", "scale": "none", "intercept": intercept}).fit_path(
        shown, NUMBERS, None, [{"alpha": 0.5}, {"alpha": 200.0}]
    )
    for head in heads:
        peer = Ridge(alpha=head.alpha, fit_intercept=intercept).fit(shown, NUMBERS.values)
        np.testing.assert_allclose(head.predict(shown), peer.predict(shown), rtol=1e-6, atol=1e-6)


def test_the_ensemble_is_the_mean_of_classifiers_of_several_seeds():
    from sklearn.linear_model import SGDClassifier

    head = fitted("sgd_ensemble", members=2)
    shown = (X - X[~TEST].mean(0)) / X[~TEST].std(0)
    options = {"loss": "log_loss", "learning_rate": "adaptive", "eta0": 1e-4}
    members = [SGDClassifier(**options, random_state=seed).fit(shown[~TEST], Y[~TEST]) for seed in (0, 1)]
    wanted = np.mean([member.predict_proba(shown[TEST]) for member in members], 0)
    np.testing.assert_allclose(head.predict(X[TEST]), wanted, atol=1e-9)


def test_unis_penalty_is_half_the_norm():
    head = fitted("norm_penalised", max_iter=30)
    shown, weight, bias = X[~TEST], head.arrays["weight"], head.arrays["bias"]
    logits = shown @ weight.T + bias
    loss = np.mean(
        np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1) - logits[np.arange(379), Y[~TEST]]
    )
    assert head.facts["C"] == 30 * 2 / 100
    assert head.facts["objective"] == pytest.approx(loss + np.linalg.norm(weight) / 2 / 0.6, rel=1e-9)


def test_coxs_loss_is_the_one_worked_out_by_hand():
    # 0.880986 + 1.145911 + 0, over four cases.
    risks = _Risks.of(np.array([[1.0, 1], [2, 1], [2, 0], [3, 1]]))
    assert risks.loss(np.array([1, 0.2, -0.5, 0.7])) * 4 == pytest.approx(2.026897, abs=1e-6)


def survival(cases=150, seed=0):
    random = np.random.default_rng(seed)
    shown = random.standard_normal((cases, 8))
    times = np.ceil(10 * random.exponential(np.exp(-shown[:, 0] - 0.5 * shown[:, 1]))) + 1  # with ties
    return shown, Targets("survival", ("time", "event"), np.stack([times, random.random(cases) < 0.7], 1).astype(float))


def test_the_derivatives_of_coxs_loss_are_those_of_differences():
    shown, targets = survival(30)
    risks, risk = _Risks.of(targets.values), shown[:, 0]
    first, second = risks.derivatives(risk)
    for place in (0, 7, 29):
        step = np.zeros(30)
        step[place] = 1e-4
        up, at, down = (risks.loss(risk + way * step) * 30 for way in (1, 0, -1))
        assert (up - down) / 2e-4 == pytest.approx(first[place], abs=1e-6)
        assert (up - 2 * at + down) / 1e-8 == pytest.approx(second[place], abs=1e-4)


def test_a_lasso_leaves_weights_out_and_no_small_step_lowers_the_objective():
    shown, targets = survival()
    head = make_head({"name": "cox", "alpha": 0.08, "l1_ratio": 0.9}).fit(shown, targets)
    weight = head.arrays["weight"]
    assert head.facts["converged"]
    assert 0 < (weight == 0).sum() < 8
    assert weight[0] > weight[1] > 0
    standard = scaled(shown, *scaling_of(shown, "standard"))
    risks, random = _Risks.of(targets.values), np.random.default_rng(0)
    for _ in range(20):
        other = weight + 1e-4 * random.standard_normal(8)
        assert risks.loss(standard @ other) + head.penalty(other) >= head.facts["objective"] - 1e-12
    survived = head.survival(head.predict(shown), [0.5, 5, 1e9])
    assert (survived[:, 0] == 1).all()
    assert (np.diff(survived, axis=1) <= 0).all()


def test_cox_with_an_elastic_net_is_scikit_survivals():
    linear_model = pytest.importorskip("sksurv.linear_model")
    shown, targets = survival()
    truth = np.array([(bool(e), t) for t, e in targets.values], dtype=[("event", bool), ("time", float)])
    for alpha, share in ((0.02, 0.5), (0.1, 0.9)):
        peer = linear_model.CoxnetSurvivalAnalysis(alphas=[alpha], l1_ratio=share, tol=1e-12, max_iter=100000)
        head = make_head({"name": "cox", "alpha": alpha, "l1_ratio": share, "scale": "none"}).fit(shown, targets)
        np.testing.assert_allclose(head.arrays["weight"], peer.fit(shown, truth).coef_[:, 0], atol=1e-5)


@pytest.mark.parametrize("name", ["logistic", "knn", "prototypes", "sgd_ensemble", "norm_penalised"])
def test_a_saved_head_predicts_the_same_and_is_no_pickle(name, tmp_path):
    options = {"members": 2} if name == "sgd_ensemble" else {"max_iter": 20} if name == "norm_penalised" else {}
    head = fitted(name, **options)
    head.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"head.safetensors", "head.json"}
    again = load_head(tmp_path)
    np.testing.assert_array_equal(again.predict(X[TEST]), head.predict(X[TEST]))
    assert again.settings() == head.settings()
    np.testing.assert_array_equal(fitted(name, **options).predict(X[TEST]), head.predict(X[TEST]))


def test_what_cannot_be_learned_is_named():
    with pytest.raises(UserError, match="do not teach class 2"):
        make_head("logistic").fit(X[:4], exclusive(np.array([0, 1, 0, 1])))
    holed = X[:4].copy()
    holed[2, 5] = np.nan
    with pytest.raises(UserError, match="1 of 4 vectors are NaN or infinite, the first in row 2"):
        make_head("logistic").fit(holed, CLASSES)
    with pytest.raises(UserError, match="length 29, expected 30"):
        fitted("logistic").predict(X[:, :29])
    with pytest.raises(UserError, match="none of the cases to fit on has the event"):
        make_head("cox").fit(X[:2], Targets("survival", ("time", "event"), np.array([[1.0, 0], [2, 0]])))
    with pytest.raises(UsageError, match="got 'logistik'.*logistic"):
        make_head("logistik")
    with pytest.raises(UsageError, match="head.C"):
        make_head({"name": "logistic", "C": 0})
    with pytest.raises(UserError, match="holds no head of `fit`"):
        load_head(Path("nowhere"))


def test_a_constant_feature_is_left_as_it_is():
    mean, deviation = scaling_of(np.full((5, 2), [0.1, 7.0]), "standard")
    assert mean == pytest.approx([0.1, 7])
    assert deviation.tolist() == [1, 1]
