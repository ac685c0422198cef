"""Unknown inputs: by hand, beside scikit-learn, SciPy and pytorch-ood, and by counting resamples out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.spatial.distance import mahalanobis as of_scipy
from scipy.special import logsumexp
from sklearn import metrics as theirs

from medimg_eval.metrics.unknowns import (
    MEASURES,
    detect_unknown,
    detection_values,
    energy,
    entropy,
    joint_energy,
    mahalanobis,
    max_probability,
    nearest_neighbour,
)


def drawn(known=60, unknown=40, seed=0, digits=1):
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(0, 1, known), digits), np.round(rng.normal(1, 1, unknown), digits)


def test_six_scores_by_hand():
    found = detect_unknown([0.1, 0.2, 0.6, 0.3], [0.5, 0.9])
    # From the top: unknown .9, known .6, unknown .5, then three known.
    assert found.auroc == pytest.approx(7 / 8)
    assert found.aupr_unknown == pytest.approx(0.5 * 1 + 0.5 * (1 / 2 + 2 / 3) / 2)
    # From below: known .1, .2, .3, then unknown .5, known .6, unknown .9.
    assert found.aupr_known == pytest.approx(0.75 + 0.25 * (3 / 4 + 4 / 5) / 2)
    assert found.fpr95 == pytest.approx(1 / 4)
    assert found.detection_error == pytest.approx((0 + 1 / 4) / 2)


def test_areas_are_those_of_scikit_learn():
    known, unknown = drawn()
    scores, truth = np.concatenate([known, unknown]), np.repeat([0, 1], [60, 40])
    found = detect_unknown(known, unknown)
    assert found.auroc == pytest.approx(theirs.roc_auc_score(truth, scores))
    for positive, sign, area in ((1, 1, found.aupr_unknown), (0, -1, found.aupr_known)):
        precision, recall, _ = theirs.precision_recall_curve(truth == positive, sign * scores)
        assert area == pytest.approx(theirs.auc(recall, precision))
    false, right, _ = theirs.roc_curve(truth, scores, drop_intermediate=False)
    assert found.fpr95 == pytest.approx(false[np.argmax(right >= 0.95)])
    assert found.detection_error == pytest.approx(((1 - right + false) / 2).min())


def test_pytorch_ood_has_the_same_values():
    module = pytest.importorskip("pytorch_ood.metrics", reason="pytorch-ood is not installed")
    torch = pytest.importorskip("torch")
    known, unknown = drawn(seed=4)
    metrics = module.OODMetrics()
    metrics.update(torch.tensor(np.concatenate([known, unknown])), torch.tensor(np.repeat([0, -1], [60, 40])))
    expected, found = metrics.compute(), detect_unknown(known, unknown)
    assert float(expected["AUROC"]) == pytest.approx(found.auroc, abs=1e-6)
    assert float(expected["AUPR-OUT"]) == pytest.approx(found.aupr_unknown, abs=1e-6)
    assert float(expected["AUPR-IN"]) == pytest.approx(found.aupr_known, abs=1e-6)
    assert float(expected["FPR95TPR"]) == pytest.approx(found.fpr95, abs=1e-6)


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
)
@settings(max_examples=50, deadline=None)
def test_values_stay_in_their_range_and_sides_can_be_swapped(known, unknown):
    found = detect_unknown(known, unknown)
    assert all(0 <= value <= 1 for value in found)
    assert found.detection_error <= 0.5
    turned = detect_unknown([-value for value in unknown], [-value for value in known])
    assert turned.auroc == pytest.approx(found.auroc)
    assert (turned.aupr_unknown, turned.aupr_known) == pytest.approx((found.aupr_known, found.aupr_unknown))


def test_counted_twice_is_the_same_as_standing_there_twice():
    known, unknown = drawn(20, 20, seed=2)
    scores, flags = np.concatenate([known, unknown]), np.repeat([False, True], 20)
    times = np.random.default_rng(1).integers(0, 3, (3, 40)).astype(float)
    for weights, values in zip(times, detection_values(scores, flags, times), strict=True):
        rows = np.repeat(np.arange(40), weights.astype(int))
        expected = detect_unknown(scores[rows][~flags[rows]], scores[rows][flags[rows]])
        assert values == pytest.approx(expected)


def test_edges_of_detection():
    assert detect_unknown([0, 0], [1]) == (1, 1, 1, 0, 0)
    assert detect_unknown([1, 1], [1]).auroc == 0.5
    missing = detection_values(np.array([0.0, 1.0]), np.array([False, True]), np.array([[1.0, 0.0]]))
    assert np.isnan(missing).all()
    assert len(MEASURES) == missing.shape[1]
    for known, unknown in (([], [1]), ([1], []), ([math.nan], [1])):
        with pytest.raises(ValueError, match="scores is invalid"):
            detect_unknown(known, unknown)


def test_scores_of_outputs():
    said = [[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]]
    assert max_probability(said) == pytest.approx([0.3, 0.0])
    assert entropy(said)[1] == 0
    assert entropy([[0.5, 0.5]]) == pytest.approx(math.log(2))
    logits = np.array([[1.0, 2.0, -3.0]])
    assert energy(logits, 2.0) == pytest.approx(-2 * logsumexp(logits / 2, axis=1))
    # A logit of 2 and one of -1, as probabilities.
    expected = -(np.log1p(np.exp(2)) + np.log1p(np.exp(-1)))
    assert joint_energy([[1 / (1 + np.exp(-2)), 1 / (1 + np.exp(1))]]) == pytest.approx([expected])


def test_scores_of_features():
    rng = np.random.default_rng(0)
    known, judged = rng.normal(size=(80, 3)) @ np.diag([1, 5, 0.2]), rng.normal(size=(7, 3))
    inverse = np.linalg.inv(np.cov(known.T, bias=True))
    expected = [of_scipy(row, known.mean(axis=0), inverse) ** 2 for row in judged]
    assert mahalanobis(judged, known) == pytest.approx(expected, rel=1e-3)
    classes = ["a"] * 40 + ["b"] * 40
    shifted = known + np.repeat([[0.0], [9.0]], 40, axis=0)
    near = mahalanobis(np.stack([shifted[:40].mean(axis=0), shifted[40:].mean(axis=0)]), shifted, classes)
    assert near == pytest.approx([0, 0], abs=1e-9)
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (judged, known)]
    assert nearest_neighbour(judged, known, 5) == pytest.approx(np.sort(cdist(*unit), axis=1)[:, 4])
    assert nearest_neighbour(known[:1], known, 1) == pytest.approx([0], abs=1e-7)


def test_features_that_do_not_match_are_refused():
    for wrong in (np.zeros((2, 3)), np.zeros((1, 2)), np.zeros(2)):
        with pytest.raises(ValueError, match="features is invalid"):
            mahalanobis(np.zeros((2, 2)), wrong)
    with pytest.raises(ValueError, match="classes is invalid"):
        mahalanobis(np.zeros((2, 2)), np.zeros((3, 2)), ["a"])
    with pytest.raises(ValueError, match="neighbours is invalid"):
        nearest_neighbour(np.zeros((2, 2)), np.zeros((3, 2)), 4)
