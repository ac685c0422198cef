"""DeLong's covariance by hand, by its slow definition, by patients, and by resampling."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.results.statistics.hypothesis_tests import correlated_areas


def slow(scores, truth):
    """DeLong's estimate as the paper defines it: placements by counting pairs, then their covariances."""
    scores, truth = np.asarray(scores, dtype=float), np.asarray(truth, dtype=bool)
    kernel = [(row[truth][:, None] > row[~truth]) + 0.5 * (row[truth][:, None] == row[~truth]) for row in scores]
    above, below = np.array([one.mean(axis=1) for one in kernel]), np.array([one.mean(axis=0) for one in kernel])
    covariance = np.cov(above) / above.shape[1] + np.cov(below) / below.shape[1]
    return above.mean(axis=1), np.atleast_2d(covariance)


def obuchowski(scores, truth, patients):
    """Her variance of the difference of two areas, written out patient by patient."""
    scores, truth, patients = (np.asarray(one) for one in (scores, truth, patients))
    parts = []
    for row in scores:
        yes, no = row[truth], row[~truth]
        parts.append(
            {
                "x": np.array([np.mean((one > no) + 0.5 * (one == no)) for one in yes]),
                "y": np.array([np.mean((yes > one) + 0.5 * (yes == one)) for one in no]),
            }
        )
    area = [part["x"].mean() for part in parts]
    names = sorted(set(patients.tolist()))
    sums = np.zeros((2, 2, len(names)))
    for model, part in enumerate(parts):
        for place, name in enumerate(names):
            of_yes, of_no = patients[truth] == name, patients[~truth] == name
            sums[model, 0, place] = part["x"][of_yes].sum() - of_yes.sum() * area[model]
            sums[model, 1, place] = part["y"][of_no].sum() - of_no.sum() * area[model]
    positives, negatives = truth.sum(), (~truth).sum()
    with_, without = len(set(patients[truth].tolist())), len(set(patients[~truth].tolist()))
    number = len(names)
    covariance = np.zeros((2, 2))
    for one in range(2):
        for two in range(2):
            s10 = with_ / ((with_ - 1) * positives) * (sums[one, 0] * sums[two, 0]).sum()
            s01 = without / ((without - 1) * negatives) * (sums[one, 1] * sums[two, 1]).sum()
            s11 = number / (number - 1) * (sums[one, 0] * sums[two, 1]).sum()
            s11_turned = number / (number - 1) * (sums[two, 0] * sums[one, 1]).sum()
            covariance[one, two] = s10 / positives + s01 / negatives + (s11 + s11_turned) / (positives * negatives)
    return covariance


def test_by_hand():
    # Positives .35 .8, negatives .1 .4: placements of positives 1/2 and 1, of negatives 1 and 1/2.
    found = correlated_areas([[0.1, 0.4, 0.35, 0.8]], [False, False, True, True], list("abcd"))
    assert found.areas.tolist() == [0.75]
    # Both have variance 1/8, over 2 cases each: 1/16 + 1/16.
    assert found.covariance.tolist() == [[pytest.approx(0.125)]]


def test_the_definition_and_scikit_learn_with_ties():
    rng = np.random.default_rng(0)
    truth = rng.random(120) < 0.4
    scores = np.round(np.stack([truth * strength + rng.normal(size=120) for strength in (0.3, 1.0, 2.0)]), 1)
    found = correlated_areas(scores, truth, np.arange(120))
    areas, covariance = slow(scores, truth)
    assert found.areas.tolist() == pytest.approx(areas.tolist())
    assert found.areas.tolist() == pytest.approx([sklearn.metrics.roc_auc_score(truth, row) for row in scores])
    assert found.covariance.ravel().tolist() == pytest.approx(covariance.ravel().tolist())
    gap = found.difference(2, 0)
    variance = covariance[0, 0] + covariance[2, 2] - 2 * covariance[0, 2]
    assert gap.error == pytest.approx(math.sqrt(variance))
    z = (areas[2] - areas[0]) / math.sqrt(variance)
    assert gap.p.two_sided == pytest.approx(math.erfc(z / math.sqrt(2)))
    assert gap.p.greater + gap.p.less == pytest.approx(1)


def test_patients_with_several_images_as_obuchowski_has_it():
    rng = np.random.default_rng(2)
    patients = np.repeat(np.arange(30), 3)
    truth = rng.random(90) < np.repeat(rng.random(30), 3)
    scores = np.stack([truth * 0.8 + np.repeat(rng.normal(size=30), 3) + rng.normal(size=90) for _ in range(2)])
    found = correlated_areas(scores, truth, patients)
    assert found.covariance.ravel().tolist() == pytest.approx(obuchowski(scores, truth, patients).ravel().tolist())
    alone = correlated_areas(scores, truth, np.arange(90))
    assert alone.covariance.ravel().tolist() == pytest.approx(slow(scores, truth)[1].ravel().tolist())
    assert np.diag(found.covariance).min() > np.diag(alone.covariance).max()


def test_the_mean_over_labels_and_its_error_by_resampling():
    rng = np.random.default_rng(5)
    cases = 150
    truth = rng.random((3, cases)) < np.array([[0.2], [0.4], [0.6]])
    hard = rng.normal(size=cases)
    scores = np.stack([truth * 1.0 + hard + rng.normal(size=(3, cases)) for _ in range(2)])
    flat = (scores.reshape(2, -1), truth.ravel(), np.tile(np.arange(cases), 3), np.repeat(list("xyz"), cases))
    found = correlated_areas(*flat)
    by_label = [sklearn.metrics.roc_auc_score(truth[place], scores[0, place]) for place in range(3)]
    assert found.areas[0] == pytest.approx(np.mean(by_label))
    assert found.labels == 3
    gaps = []
    for _ in range(400):
        chosen = rng.integers(0, cases, cases)
        some = correlated_areas(
            scores[:, :, chosen].reshape(2, -1), truth[:, chosen].ravel(), np.tile(np.arange(cases), 3), flat[3]
        )
        gaps.append(some.areas[0] - some.areas[1])
    assert found.difference(0, 1).error == pytest.approx(np.std(gaps), rel=0.15)


def test_nothing_to_tell_apart():
    truth = [True, True, False, False]
    same = correlated_areas([[0.1, 0.4, 0.35, 0.8]] * 2, truth, list("abcd")).difference(0, 1)
    assert (same.value, same.error, same.p.two_sided) == (0.0, 0.0, 1.0)
    # One always right and one always wrong: no spread, so no test.
    split = correlated_areas([[0.9, 0.8, 0.1, 0.2], [0.1, 0.2, 0.9, 0.8]], truth, list("abcd")).difference(0, 1)
    assert split.value == 1.0
    assert math.isnan(split.p.two_sided)
    only = correlated_areas([[0.1, 0.9]], [True, True], ["a", "b"])
    assert math.isnan(only.areas[0])
    assert only.labels == 0
    assert math.isnan(correlated_areas(np.zeros((2, 0)), [], []).difference(0, 1).p.two_sided)
    # One positive: an area, but no variance.
    single = correlated_areas([[0.9, 0.1, 0.2], [0.3, 0.5, 0.2]], [True, False, False], list("abc")).difference(0, 1)
    assert single.value == 0.5
    assert math.isnan(single.p.two_sided)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 4)), min_size=4, max_size=25))
@settings(deadline=None, max_examples=25)
def test_a_monotone_change_of_scores_changes_nothing(rows):
    truth = [row[0] for row in rows]
    scores = np.array([[row[1] for row in rows], [row[2] for row in rows]], dtype=float)
    one, two = (correlated_areas(some, truth, np.arange(len(rows))) for some in (scores, np.exp(scores) * 3))
    assert one.areas.tolist() == pytest.approx(two.areas.tolist(), nan_ok=True)
    assert one.covariance.ravel().tolist() == pytest.approx(two.covariance.ravel().tolist(), nan_ok=True)
