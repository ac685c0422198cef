"""P-values where models do not differ: as often below a level as it says, also of patients with several cases."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from medimg_eval.results.statistics.hypothesis_tests import correlated_areas, mcnemar, sign_flip

pytestmark = pytest.mark.slow

LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75)


def shares(p):
    return np.array([(np.asarray(p) <= level).mean() for level in LEVELS])


def within(p, *, over=True):
    """Whether as many p-values lie below each level as it says, give or take four standard errors."""
    error = 4 * np.sqrt(np.array(LEVELS) * (1 - np.array(LEVELS)) / len(p))
    found = shares(p) - LEVELS
    return bool((found <= error).all() and (not over or (found >= -error).all()))


def clustered(rng, patients, cases, spread=1.0):
    """Differences of which a patient's share a part, skewed but symmetric under exchange of the models."""
    shared = spread * rng.standard_t(4, (patients, 1)) * rng.choice([1.0, 3.0], (patients, 1))
    return (shared + rng.normal(size=(patients, cases))).ravel(), np.repeat(np.arange(patients), cases)


def test_flipped_signs_of_patients_are_uniform_where_those_of_cases_are_not():
    rng = np.random.default_rng(0)
    samples = [clustered(rng, 13, 6) for _ in range(1_000)]
    by_patient = [sign_flip(values, who).two_sided for values, who in samples]
    one_sided = [sign_flip(values, who).greater for values, who in samples]
    assert within(by_patient)
    assert within(one_sided)
    assert scipy.stats.kstest(by_patient, "uniform").pvalue > 0.01
    by_case = [sign_flip(values, np.arange(len(values)), draws=499).two_sided for values, _ in samples[:400]]
    assert shares(by_case)[1] > 0.3  # instead of 0.05
    signed_rank = [scipy.stats.wilcoxon(values).pvalue for values, _ in samples[:200]]
    assert shares(signed_rank)[1] > 0.3


def test_random_patterns_are_uniform_too():
    rng = np.random.default_rng(1)
    p = [sign_flip(*clustered(rng, 25, 2), draws=999, seed=seed).two_sided for seed in range(800)]
    assert within(p)
    assert min(p) >= 1 / 1_000


def test_unequal_patients_with_right_or_wrong_answers_are_not_found_too_often():
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 9, 14)
    who = np.repeat(np.arange(14), sizes)
    by_patient, by_case = [], []
    for _ in range(600):
        # Which model is right in a case goes with the patient, either model as often.
        favoured = np.repeat(rng.random(14) < 0.5, sizes)
        first = rng.random(len(who)) < np.where(favoured, 0.9, 0.4)
        second = rng.random(len(who)) < np.where(favoured, 0.4, 0.9)
        by_patient.append(sign_flip(first.astype(float) - second, who).two_sided)
        by_case.append(mcnemar(first, second).two_sided)
    assert within(by_patient, over=False)  # of few possible outcomes, p may only be too large
    assert shares(by_case)[1] > 0.15


def test_delongs_test_by_patients_keeps_its_level_where_that_by_cases_does_not():
    rng = np.random.default_rng(3)
    patients, images = 60, 5
    who = np.repeat(np.arange(patients), images)
    by_patient, by_case = [], []
    for _ in range(700):
        truth = np.repeat(rng.random(patients) < 0.5, images)  # of one patient all images are
        own = np.repeat(rng.normal(size=(2, patients)), images, axis=1)
        scores = truth + own + 0.5 * rng.normal(size=(2, patients * images))
        by_patient.append(correlated_areas(scores, truth, who).difference(0, 1).p.two_sided)
        by_case.append(correlated_areas(scores, truth, np.arange(len(who))).difference(0, 1).p.two_sided)
    assert abs(shares(by_patient)[1] - 0.05) < 0.03
    assert abs(shares(by_patient)[4] - 0.5) < 0.08
    assert shares(by_case)[1] > 0.2
