"""Attacks scored from given numbers: rates at a fixed false-positive rate, beside what chance has."""

import math

import numpy as np
import pytest
from scipy import stats

from medimg_eval.metrics.privacy import SetError, lira_scores, mia_tpr_at_fpr, reid_rate


def test_losses_of_members_are_found_below_the_threshold():
    others = np.arange(1, 101.0)
    members = np.array([0.5, 0.9, 1.0, 1.5, 1.99, 2.0, 50])
    found = mia_tpr_at_fpr(members, others, fpr=0.01)
    assert found.details["threshold"] == 2
    assert found.details["fpr"] == 0.01
    assert found.value == 5 / 7
    assert (found.low, found.high) == pytest.approx(
        (stats.beta.ppf(0.025, 5, 3), stats.beta.ppf(0.975, 6, 2)), rel=1e-9
    )
    assert found.floor == 0.01


def test_the_false_positive_rate_is_never_exceeded_by_ties():
    found = mia_tpr_at_fpr(np.zeros(60), np.zeros(200), fpr=0.1)
    assert (found.value, found.details["fpr"], found.details["auc"]) == (0, 0, 0.5)
    assert (found.low, found.high) == (0, pytest.approx(1 - 0.025 ** (1 / 60)))
    every = mia_tpr_at_fpr(np.full(60, -9.0), np.arange(200.0))
    assert (every.value, every.high, every.details["auc"]) == (1, 1, 1)


def test_an_attack_that_knows_nothing_finds_as_many_as_it_accuses():
    rng = np.random.default_rng(0)
    found = mia_tpr_at_fpr(rng.standard_normal(3000), rng.standard_normal(3000), fpr=0.05)
    assert found.low < 0.05 < found.high
    assert found.details["auc"] == pytest.approx(0.5, abs=0.03)


def test_scores_may_point_either_way():
    rng = np.random.default_rng(1)
    members, others = rng.normal(-1, 1, 500), rng.normal(0, 1, 500)
    one, other = mia_tpr_at_fpr(members, others), mia_tpr_at_fpr(-members, -others, higher_is_member=True)
    assert (one.value, one.details["auc"]) == (other.value, other.details["auc"])
    assert one.details["threshold"] == -other.details["threshold"]


def test_patients_are_the_unit_of_the_interval():
    rng = np.random.default_rng(2)
    members = np.repeat(rng.normal(-1, 1, 50), 10)
    others = rng.normal(0, 1, 500)
    alone = mia_tpr_at_fpr(members, others, fpr=0.1)
    grouped = mia_tpr_at_fpr(members, others, fpr=0.1, patients=np.repeat(np.arange(50), 10))
    assert grouped.value == alone.value
    assert grouped.high - grouped.low > 2 * (alone.high - alone.low)
    with pytest.raises(SetError, match="one group per score, 500"):
        mia_tpr_at_fpr(members, others, patients=np.arange(5))


@pytest.mark.parametrize(
    ("members", "others", "fpr", "said"),
    [
        ([0.0], np.zeros(99), 0.01, "at least 100 non-members for a rate of 0.01, got 99"),
        ([0.0], np.zeros(999), 0.001, "at least 1000 non-members"),
        ([0.0], np.zeros(100), 0, r"in \(0, 1\), got 0"),
        ([], np.zeros(100), 0.1, r"member scores .* got \(0,\)"),
        ([np.nan, 1], np.zeros(100), 0.1, "1 of 2 member scores are NaN or infinite, the first in row 0"),
        (np.zeros((2, 2)), np.zeros(100), 0.1, r"got \(2, 2\)"),
    ],
)
def test_attacks_that_cannot_be_scored_are_refused(members, others, fpr, said):
    with pytest.raises(SetError, match=said):
        mia_tpr_at_fpr(members, others, fpr=fpr)


def test_rates_that_are_whole_numbers_of_samples_are_reached():
    found = mia_tpr_at_fpr(np.zeros(10), np.arange(1, 301.0), fpr=0.01)
    assert found.details["fpr"] == pytest.approx(3 / 300)


def shadows(seed, models=40, samples=300):
    """A target's losses, those of shadow models, and who was trained on what: easy and hard samples, members lower."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(0, 2, samples)
    inside = rng.random((models, samples)).argsort(axis=0) < models // 2
    member = rng.random(samples) < 0.5
    losses = hard + 0.4 * rng.standard_normal((models, samples)) - inside
    return hard + 0.4 * rng.standard_normal(samples) - member, losses, inside, member


@pytest.mark.parametrize("models", [40, 8])
def test_likelihood_ratios_find_members_that_a_loss_threshold_does_not(models):
    target, losses, inside, member = shadows(0, models)
    by_loss = mia_tpr_at_fpr(target[member], target[~member], fpr=0.02)
    scores = lira_scores(target, losses, inside)
    by_ratio = mia_tpr_at_fpr(scores[member], scores[~member], fpr=0.02, higher_is_member=True)
    assert by_loss.details["auc"] < 0.75
    assert by_ratio.details["auc"] > 0.9
    assert by_ratio.value > by_loss.high


def test_likelihood_ratios_are_those_of_normal_densities():
    target, losses, inside, _ = shadows(1, 40, 30)
    found = lira_scores(target, losses, inside)
    for at in range(30):
        one, other = losses[inside[:, at], at], losses[~inside[:, at], at]
        right = stats.norm.logpdf(target[at], one.mean(), one.std(ddof=1)) - stats.norm.logpdf(
            target[at], other.mean(), other.std(ddof=1)
        )
        assert found[at] == pytest.approx(right, rel=1e-9)


def test_without_trained_shadows_the_attack_is_offline():
    target, losses, inside, member = shadows(2)
    losses = losses + inside
    scores = lira_scores(target, losses, np.zeros_like(inside))
    np.testing.assert_allclose(scores, (losses.mean(0) - target) / losses.std(0, ddof=1))
    assert mia_tpr_at_fpr(scores[member], scores[~member], higher_is_member=True).details["auc"] > 0.9


def test_shadow_models_that_cannot_do_are_refused():
    target, losses, inside, _ = shadows(3, 6, 5)
    with pytest.raises(SetError, match=r"\(model, 5\), got \(6, 4\)"):
        lira_scores(target, losses[:, :4], inside[:, :4])
    with pytest.raises(SetError, match="int64"):
        lira_scores(target, losses, inside.astype(int))
    one = np.zeros_like(inside)
    one[0, 1:] = True
    with pytest.raises(SetError, match="two shadow models trained on it for each sample, got 0 for sample 0"):
        lira_scores(target, losses, one)
    with pytest.raises(SetError, match="not trained on it for each sample, got 0"):
        lira_scores(target, losses, np.ones_like(inside))
    with pytest.raises(SetError, match="1 losses of shadow models are NaN"):
        lira_scores(target, np.where(np.arange(30).reshape(6, 5) == 3, np.nan, losses), inside)
    with pytest.raises(SetError, match="do not vary"):
        lira_scores(target, np.ones((20, 5)), np.zeros((20, 5), dtype=bool))


def test_the_reidentification_rate_stands_beside_that_of_new_patients():
    rng = np.random.default_rng(0)
    pairs = rng.random(1000)
    # The best of 50 scores: half of all new patients pass a threshold of 1 % by chance alone.
    best = rng.random((200, 50)).max(1)
    copies = np.where(np.arange(100) < 30, 1.5, rng.random((100, 50)).max(1))
    found = reid_rate(copies, best, pairs, same=np.linspace(0, 2, 101), fpr=0.01, extractor="siamese")
    assert found.details["fpr"] == 0.01
    assert found.floor == pytest.approx((best > found.details["threshold"]).mean())
    assert found.floor > 0.2
    assert found.value > found.floor + 0.1
    assert found.details["auc"] > 0.55
    assert found.details["tpr"] == pytest.approx(0.5, abs=0.02)
    chance = reid_rate(rng.random((300, 50)).max(1), best, pairs)
    assert abs(chance.value - chance.floor) < 0.12
    assert math.isfinite(chance.low)


def test_the_reidentification_rate_needs_pairs_enough_for_its_threshold():
    with pytest.raises(SetError, match="at least 1000 pairs of different patients for a rate of 0.001, got 900"):
        reid_rate(np.ones(5), np.ones(5), np.zeros(900), fpr=0.001)
    with pytest.raises(SetError, match="hold-out scores"):
        reid_rate(np.ones(5), np.zeros(0), np.zeros(900))
    found = reid_rate(np.ones(5), np.ones(60), np.zeros(900), prompts=[0, 0, 1, 1, 2])
    assert found.flags == ("small_n: 60 hold-out and 5 generated scores",)
    assert found.value == 1
