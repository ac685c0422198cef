"""Permutation of patients, McNemar's test and sizes of effects, by hand, by enumeration and against others."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from medimg_eval.results.statistics.effect_sizes import effects
from medimg_eval.results.statistics.hypothesis_tests import mcnemar, sign_flip

some_differences = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4)), min_size=1, max_size=12)


def by_enumeration(differences, patients):
    """All patterns of one sign per patient, the slow way."""
    names = sorted(set(patients))
    seen = sum(differences)
    totals = []
    for signs in itertools.product([1, -1], repeat=len(names)):
        sign = dict(zip(names, signs, strict=True))
        totals.append(sum(sign[who] * value for value, who in zip(differences, patients, strict=True)))
    totals = np.array(totals, dtype=float)
    tests = (totals >= seen - 1e-9, totals <= seen + 1e-9, np.abs(totals) >= abs(seen) - 1e-9)
    return [float(test.mean()) for test in tests]


def test_flipped_signs_by_hand():
    # Of three patients 1 of 8 patterns is as large, and 2 of 8 are as far from 0.
    assert sign_flip([0.1, 0.2, 0.3], ["a", "b", "c"]) == (0.125, 1.0, 0.25, True)
    # The same values of two patients: 1 of 4 patterns, since b keeps both of its values together.
    assert sign_flip([0.1, 0.2, 0.3], ["a", "b", "b"]) == (0.25, 1.0, 0.5, True)


@given(some_differences)
@settings(deadline=None, max_examples=30)
def test_flipped_signs_by_enumeration(pairs):
    differences, patients = [0.1 * value for value, _ in pairs], [who for _, who in pairs]
    assert sign_flip(differences, patients)[:3] == pytest.approx(by_enumeration(differences, patients))


def test_single_pairs_are_scipys_permutation_test():
    rng = np.random.default_rng(1)
    one, two = rng.normal(0.1, 1, 12), rng.normal(0, 1, 12)
    for place, side in enumerate(("greater", "less", "two-sided")):
        found = scipy.stats.permutation_test(
            (one, two), lambda a, b: np.mean(a - b), permutation_type="samples", alternative=side
        )
        assert sign_flip(one - two, np.arange(12))[place] == pytest.approx(found.pvalue)


def test_random_patterns_agree_with_all_of_them():
    rng = np.random.default_rng(0)
    values, patients = rng.normal(0.25, 1, 40), np.repeat(np.arange(20), 2)
    sums = np.add.reduceat(values, np.arange(0, 40, 2))
    totals = np.zeros(1)
    for size in sums:
        totals = np.concatenate([totals + size, totals - size])
    exact = float((np.abs(totals) >= abs(sums.sum()) - 1e-9).mean())
    found = sign_flip(values, patients)
    assert not found.exact
    assert found.two_sided == pytest.approx(exact, abs=4 * math.sqrt(exact / 10_000))
    # p is never 0, and depends on the seed alone, not on the order of rows or on names.
    assert sign_flip(np.ones(30), np.arange(30)).greater == 1 / 10_001
    order = rng.permutation(40)
    assert sign_flip(values[order], np.array(list("abcdefghijklmnopqrst"))[patients][order]) == found
    assert sign_flip(values, patients, seed=1) != found


def test_few_sizes_of_differences_are_drawn_by_kind():
    # 60 right or wrong answers of 60 patients: the exact test is binomial.
    values = np.array([1.0] * 38 + [-1.0] * 22 + [0.0] * 40)
    found = sign_flip(values, np.arange(100), draws=20_000)
    assert found.greater == pytest.approx(scipy.stats.binomtest(38, 60, alternative="greater").pvalue, abs=0.005)
    assert found.two_sided == pytest.approx(scipy.stats.binomtest(38, 60).pvalue, abs=0.006)


def test_nothing_to_flip():
    assert sign_flip([0.0, 0.0], ["a", "b"]) == (1.0, 1.0, 1.0, True)
    assert sign_flip([0.3, -0.3], ["a", "a"]).two_sided == 1.0
    assert sign_flip([0.3], ["a"]) == (0.5, 1.0, 1.0, True)
    assert math.isnan(sign_flip([], []).two_sided)


def test_mcnemar_by_hand():
    # Six cases only the first has right, one only the second: with 7 fair coins P(7) + P(6) / 2 = (1 + 3.5) / 128.
    first, second = [1] * 6 + [0] + [1, 0], [0] * 6 + [1] + [1, 0]
    found = mcnemar(first, second)
    assert found.greater == pytest.approx(4.5 / 128)
    assert found.two_sided == pytest.approx(9 / 128)
    assert found.less == pytest.approx(1 - 4.5 / 128)
    assert mcnemar([1, 0], [1, 0]) == (1.0, 1.0, 1.0, True)
    assert mcnemar([1, 0], [0, 1]).two_sided == pytest.approx(0.75)  # 1 less half of the chance of a draw
    assert math.isnan(mcnemar([], []).two_sided)
    with pytest.raises(ValueError, match=r"1 \(right\) or 0 \(wrong\)"):
        mcnemar([0.25], [1.0])


@pytest.mark.parametrize(("more", "fewer"), [(9, 2), (30, 12), (5, 0), (7, 6)])
def test_mcnemars_mid_p_is_that_of_statsmodels_less_half_of_what_was_seen(more, fewer):
    found = mcnemar([1] * more + [0] * fewer + [1, 0], [0] * more + [1] * fewer + [1, 0])
    exact = statsmodels_mcnemar([[1, more], [fewer, 1]], exact=True).pvalue
    assert found.two_sided == pytest.approx(exact - scipy.stats.binom.pmf(fewer, more + fewer, 0.5))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=12))
@settings(deadline=None, max_examples=20)
def test_the_two_sides_of_mcnemars_test_add_up(pairs):
    first, second = [one for one, _ in pairs], [two for _, two in pairs]
    found, turned = mcnemar(first, second), mcnemar(second, first)
    if pairs and any(one != two for one, two in pairs):
        assert found.greater + found.less == pytest.approx(1)
        # Flipping signs counts all of what was seen, mid-p half of it.
        assert found.greater <= sign_flip(np.subtract(first, second, dtype=float), np.arange(len(pairs))).greater
    if pairs:
        assert (found.greater, found.two_sided) == pytest.approx((turned.less, turned.two_sided))


def test_sizes_of_effects_by_hand():
    # Differences .1 .3 -.1 .1 have mean .1 and SD sqrt(.08 / 3); ranks of sizes 2 4 2 2, so (8 - 2) / 10.
    found = effects([0.1, 0.3, -0.1, 0.1], list("abcd"), resamples=200)
    assert found.mean.value == pytest.approx(0.1)
    assert found.d_z.value == pytest.approx(0.1 / math.sqrt(0.08 / 3))
    assert found.rank_biserial.value == pytest.approx(0.6)
    assert found.superiority.value == 0.75
    assert effects([0.0, 0.2], list("ab"), resamples=50).superiority.value == 0.75


def test_sizes_of_effects_on_every_resample_are_those_of_its_values():
    rng = np.random.default_rng(3)
    values, patients = np.round(rng.normal(0.3, 1, 30), 1), rng.integers(0, 9, 30)
    found = effects(values, patients, resamples=300, seed=5)
    names = np.unique(patients)
    drawn = np.random.default_rng(5).integers(len(names), size=(300, len(names)))
    slow = []
    for some in drawn:
        chosen = np.concatenate([values[patients == names[place]] for place in some])
        ranks = scipy.stats.rankdata(np.abs(chosen[chosen != 0]))
        signs = np.sign(chosen[chosen != 0])
        slow.append(
            [
                chosen.mean(),
                chosen.mean() / chosen.std(ddof=1),
                (signs * ranks).sum() / ranks.sum(),
                (chosen > 0).mean() + (chosen == 0).mean() / 2,
            ]
        )
    low, high = np.quantile(slow, [0.025, 0.975], axis=0)
    estimates = (found.mean, found.d_z, found.rank_biserial, found.superiority)
    assert [one.low for one in estimates] == pytest.approx(low.tolist())
    assert [one.high for one in estimates] == pytest.approx(high.tolist())
    least, most = np.quantile(np.array(slow)[:, 0], [0.05, 0.95])
    assert (found.least, found.most) == pytest.approx((least, most))


def test_effects_of_nothing_of_one_patient_and_of_equal_values():
    assert math.isnan(effects([], []).mean.value)
    one = effects([0.2, 0.4, 0.3, 0.3], list("abcd"))  # an interval needs 5 patients
    assert one.mean.value == pytest.approx(0.3)
    assert math.isnan(one.mean.low)
    assert math.isnan(one.least)
    equal = effects([0.0] * 5, range(5), resamples=50)
    assert equal.mean == (0.0, 0.0, 0.0)
    assert math.isnan(equal.d_z.value)
    assert (equal.rank_biserial.value, equal.superiority.value) == (0.0, 0.5)
    constant = effects([0.1] * 5, range(5), resamples=50)
    assert math.isnan(constant.d_z.value)
    assert constant.rank_biserial.value == 1.0


@given(st.lists(st.floats(-1, 1), min_size=5, max_size=15))
@settings(deadline=None, max_examples=15)
def test_effects_of_the_reverse_difference_are_reversed(values):
    found, turned = (effects(sign * np.array(values), range(len(values)), resamples=20) for sign in (1, -1))
    assert turned.mean.value == pytest.approx(-found.mean.value)
    assert turned.rank_biserial.value == pytest.approx(-found.rank_biserial.value)
    assert turned.superiority.value == pytest.approx(1 - found.superiority.value)
    assert -1 <= found.rank_biserial.low <= found.rank_biserial.high <= 1
