"""Concordance, AUC over time, Brier scores and curves, beside numbers worked out elsewhere and plain loops."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import medimg_eval
from medimg_eval.metrics import ScoreTable, available, get, parse
from medimg_eval.metrics.registry import canonical
from medimg_eval.metrics.survival import (
    CENSORED,
    EVENT,
    FAILED,
    HORIZONS,
    at_horizon,
    brier_score,
    censoring_curve,
    dynamic_auc,
    harrell,
    integrated_brier_score,
    kaplan_meier,
    log_rank,
    sybil_concordance,
    uno,
    yearly_auroc,
)
from medimg_eval.metrics.survival.concordance import Pairs
from tests.helpers.authors import load_functions, require_clone

PAGE = Path(medimg_eval.__file__).parents[1] / "docs" / "definitions" / "survival.md"

# Seven cases by hand: 16 pairs, of which 13 agree, one does not and two are tied.
TIMES = [1, 2, 2, 3, 4, 4, 5]
EVENTS = [1, 1, 0, 1, 1, 0, 0]
RISKS = [5, 4, 4, 4, 2, 3, 1]

followed = st.lists(
    st.tuples(st.integers(1, 8), st.booleans(), st.integers(0, 4), st.integers(0, 10)), min_size=1, max_size=25
)


def arrays(cases):
    times, events, risks, survival = map(np.array, zip(*cases, strict=True))
    return times.astype(float), events.astype(bool), risks.astype(float), survival / 10


def pair_by_pair(times, events, risks, weights=None):
    """Concordant, discordant and tied, by two loops."""
    found = [0.0, 0.0, 0.0]
    for first in range(len(times)):
        for other in range(len(times)):
            later = times[other] > times[first] or (times[other] == times[first] and not events[other])
            if events[first] and later:
                failed = math.isnan(risks[first]) or math.isnan(risks[other])
                which = 1 if failed or risks[first] < risks[other] else 2 if risks[first] == risks[other] else 0
                found[which] += 1 if weights is None else weights[first]
    return found


def left_uncensored(times, events, when):
    """G by its definition: events at a time come before what is censored then."""
    share = 1.0
    for step in sorted(set(times.tolist())):
        if step <= when:
            here = times == step
            at_risk = (times >= step).sum() - (here & events).sum()
            share *= 1 - (here & ~events).sum() / at_risk if at_risk else 1
    return share


def table(times, events, risks=None, survival=None, horizons=()):
    ends = [EVENT if event else CENSORED for event in events]
    rows = [(case, "follow_up", "risk", times[case], ends[case]) for case in range(len(times))]
    for name, label, values in [("predicted_risk", "risk", risks)] + [
        ("predicted_survival", at_horizon(time), values) for time, values in (survival or {}).items()
    ]:
        rows += [
            (case, name, label, value, FAILED if math.isnan(value) else EVENT)
            for case, value in enumerate(() if values is None else values)
        ]
    case, metric, label, value, status = map(np.array, zip(*rows, strict=True))
    return ScoreTable(case, metric, label, value.astype(float), status, {}, len(times), {HORIZONS: list(horizons)})


def value(name, rows):
    found, parameter = parse(name)
    return found.function(rows) if parameter is None else found.function(rows, parameter)


# Pairs


def sybil_by_loops(times, events, risks, years, reached):
    """The rule of pillar/metrics/survival.py, pair by pair: weights and risks are those of the later time."""
    right = every = 0.0
    for i, j in itertools.permutations(range(len(times)), 2):
        if events[i] and (times[i] < times[j] or (times[i] == times[j] and not events[j])):
            weight = 1 / reached[times[j]] ** 2
            place = min(np.searchsorted(years, times[j]), len(years) - 1)
            mine, other = risks[i, place], risks[j, place]
            wrong = math.isnan(mine) or math.isnan(other)
            right += 0 if wrong else weight * ((mine > other) + 0.5 * (mine == other))
            every += weight
    return right / every if every else math.nan


def test_sybils_concordance_weighs_the_later_time_and_takes_the_risk_of_its_year():
    times, events = np.array([1.0, 2.0, 3.0, 3.0]), np.array([True, False, True, False])
    risks = np.array([[0.2, 0.5, 0.9], [0.3, 0.4, 0.5], [0.1, 0.2, 0.9], [0.0, 0.0, 0.1]])
    # G is 1, 2/3 and 0 at 1, 2 and 3: what ends at 3 has no weight, as nobody is left; 0.5 > 0.4 in the second year.
    assert sybil_concordance(times, events, risks, [1, 2, 3]) == 1
    given = sybil_concordance(times, events, risks, [1, 2, 3], reached=[1, 0.5, 0.25])
    # 4 for the pair at 2; at 3 weight 16: 0.9 ties 0.9, and 0.9 is above 0.1 twice.
    assert given == pytest.approx((4 + 16 * 2.5) / (4 + 16 * 3))
    assert math.isnan(sybil_concordance([1, 2], [False, False], np.ones((2, 1)), [1]))
    assert math.isnan(sybil_concordance([], [], np.ones((0, 1)), [1]))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_sybils_concordance_is_that_of_two_loops_and_repeats_count_as_weights(size, seed):
    random = np.random.default_rng(seed)
    times, events = random.integers(1, 7, size).astype(float), random.random(size) < 0.5
    risks = random.integers(0, 4, (size, 6)).astype(float)
    risks[random.random(size) < 0.1] = math.nan
    reached = dict(zip(range(1, 7), np.linspace(1, 0.4, 6), strict=True))
    seen = [reached[int(time)] for time in np.unique(times)]
    found = sybil_concordance(times, events, risks, range(1, 7), reached=seen)
    np.testing.assert_allclose(found, sybil_by_loops(times, events, risks, range(1, 7), reached))
    drawn = random.integers(0, size, size)
    counts = np.bincount(drawn, minlength=size)
    weighed = sybil_concordance(times, events, risks, range(1, 7), counts[None], seen)
    again = sybil_by_loops(times[drawn], events[drawn], risks[drawn], range(1, 7), reached)
    np.testing.assert_allclose(weighed[0], again)


@pytest.mark.slow
def test_sybils_concordance_is_that_of_pillars_own_program():
    source = require_clone("YalaLab/pillar-finetune") / "pillar/metrics/survival.py"
    tree = pytest.importorskip("lifelines.utils.btree")._BTree
    names = ("concordance_index", "_concordance_ratio", "_concordance_summary_statistics", "_handle_pairs")
    theirs = load_functions(source, *names, np=np, _BTree=tree)["concordance_index"]
    random = np.random.default_rng(0)
    for _ in range(5):
        times, events = random.integers(0, 6, 300), random.random(300) < 0.3
        # In sixty-fourths, of which 1 - risk, as they compare it, has the same ties.
        risks = np.cumsum(random.integers(0, 11, (300, 6)), axis=1) / 64
        reached = {str(year): value for year, value in enumerate(np.linspace(0.95, 0.35, 6))}
        found = sybil_concordance(times + 1, events, risks, range(1, 7), reached=list(reached.values()))
        assert found == pytest.approx(theirs(times, risks, events, reached))


def test_concordance_by_hand():
    found = harrell(TIMES, EVENTS, RISKS)
    assert (found.concordant, found.discordant, found.tied, found.value) == (13, 1, 2, 0.875)
    # Risks are compared to the last bit.
    assert harrell([1, 2], [1, 1], [1 + 1e-9, 1]).value == 1
    # Two events at one time are no pair; an event and who is censored then are.
    assert math.isnan(harrell([1, 1], [1, 1], [1, 2]).value)
    assert harrell([1, 1], [1, 0], [1, 2]).value == 0
    assert math.isnan(harrell([], [], []).value)
    assert math.isnan(harrell([1, 2], [0, 0], [1, 2]).value)


def test_a_case_that_failed_is_in_every_pair_on_the_wrong_side():
    found = harrell([1, 2, 3], [1, 1, 1], [3, math.nan, 1])
    assert (found.concordant, found.discordant, found.tied) == (1, 2, 0)


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(ValueError, match="as many events and risks as times"):
        Pairs([1, 2], [1], [1, 2])
    with pytest.raises(ValueError, match="finite times"):
        Pairs([1, math.nan], [1, 0], [1, 2])


@settings(max_examples=60, deadline=None)
@given(followed, st.integers(0, 10**6))
def test_pairs_are_those_of_two_loops(cases, seed):
    times, events, risks, _ = arrays(cases)
    random = np.random.default_rng(seed)
    risks[random.random(len(risks)) < 0.1] = math.nan
    assert list(harrell(times, events, risks)[1:]) == pair_by_pair(times, events, risks)
    left = [left_uncensored(times, events, time) for time in np.where(events, times, 0)]
    weights = [share and share**-2.0 for share in left]
    expected = pair_by_pair(times, events, risks, weights)
    found = uno(times, events, risks)
    np.testing.assert_allclose(found[1:], expected, rtol=1e-9, atol=1e-9)
    # A case that counts twice is two cases.
    times_each = random.integers(0, 4, (3, len(times)))
    weighed = Pairs(times, events, risks).count(times_each)
    for row, counted in enumerate(times_each):
        again = np.repeat(np.arange(len(times)), counted)
        alone = harrell(times[again], events[again], risks[again])
        np.testing.assert_array_equal([each[row] for each in weighed], alone)


@settings(max_examples=30, deadline=None)
@given(followed)
def test_the_index_depends_on_order_alone_and_turns_with_it(cases):
    times, events, risks, _ = arrays(cases)
    index = harrell(times, events, risks).value
    np.testing.assert_equal(harrell(times * 7, events, np.exp(risks)).value, index)
    np.testing.assert_allclose(harrell(times, events, -risks).value, 1 - index, atol=1e-12)
    assert math.isnan(index) or 0 <= index <= 1


def test_uno_is_harrell_where_nobody_is_censored_and_tau_ends_it():
    random = np.random.default_rng(0)
    times, risks = random.permutation(20) + 1.0, random.normal(size=20)
    everybody = np.ones(20, bool)
    assert uno(times, everybody, risks).value == harrell(times, everybody, risks).value
    early = everybody & (times < 8)
    concordant, *others = pair_by_pair(times, early, risks)
    assert uno(times, everybody, risks, tau=8).value == pytest.approx(concordant / (concordant + sum(others)))


# By a time


@settings(max_examples=60, deadline=None)
@given(followed, st.integers(0, 9))
def test_auc_and_brier_are_their_definitions(cases, tenths):
    times, events, risks, survival = arrays(cases)
    horizon = tenths + 0.5
    reached = np.array([left_uncensored(times, events, time) for time in times])
    at = left_uncensored(times, events, horizon)
    died, alive = events & (times <= horizon), times > horizon
    won = pairs = plain = known = 0.0
    for first in np.flatnonzero(died):
        for other in np.flatnonzero(alive):
            win = (risks[first] > risks[other]) + (risks[first] == risks[other]) / 2
            weight = 1 / reached[first] if reached[first] else 0
            won, pairs = won + win * weight, pairs + weight
            plain, known = plain + win, known + 1
    expected = won / pairs if pairs else math.nan
    np.testing.assert_allclose(dynamic_auc(times, events, risks, horizon), expected)
    np.testing.assert_allclose(yearly_auroc(times, events, risks, horizon), plain / known if known else math.nan)
    parts = [survival[case] ** 2 / reached[case] for case in np.flatnonzero(died & (reached > 0))]
    parts += [(1 - survival[case]) ** 2 / at for case in np.flatnonzero(alive)]
    error = sum(parts) / len(times) if parts else math.nan
    np.testing.assert_allclose(brier_score(times, events, survival, horizon), error)


def test_who_was_followed_up_to_the_horizon_is_a_negative_of_the_year():
    assert yearly_auroc([1, 2], [1, 0], [1, 0], 2) == 1
    assert math.isnan(dynamic_auc([1, 2], [1, 0], [1, 0], 2))


def test_failures_are_wrong_at_every_time():
    assert dynamic_auc([1, 3], [1, 1], [math.nan, 0], 2) == 0
    assert dynamic_auc([1, 3], [1, 1], [0, math.nan], 2) == 0


def test_integrated_brier_by_hand():
    assert integrated_brier_score([1, 2, 4], [0.1, 0.3, 0.2]) == pytest.approx((0.2 + 0.5) / 3)
    with pytest.raises(ValueError, match="at least two horizons"):
        integrated_brier_score([1], [0.1])


# Curves


def test_kaplan_meier_by_hand():
    curve = kaplan_meier(TIMES, EVENTS)
    np.testing.assert_allclose(curve.survival, np.cumprod([6 / 7, 5 / 6, 3 / 4, 2 / 3, 1]))
    assert curve.at([0.5, 1, 1.9, 99]).tolist() == pytest.approx([1, 6 / 7, 6 / 7, curve.survival[-1]])
    assert curve.median() == 4
    assert math.isnan(kaplan_meier([1, 2], [0, 1]).median()) is False
    assert math.isnan(kaplan_meier([1, 2], [1, 0]).at([2])[0]) is False
    assert kaplan_meier([], []).at([1]) == [1]
    # Who is censored at 2 was at risk of the event then, but who had the event was not of censoring.
    np.testing.assert_allclose(censoring_curve([2, 2, 3], [1, 0, 0]).survival, [0.5, 0])


@settings(max_examples=30, deadline=None)
@given(followed)
def test_survival_falls_and_censoring_is_its_mirror(cases):
    times, events, _, _ = arrays(cases)
    curve = kaplan_meier(times, events)
    assert (np.diff(curve.survival) <= 0).all()
    assert ((curve.survival >= 0) & (curve.survival <= 1)).all()
    # Where no time is shared, both together are how many are left.
    apart = times + np.arange(len(times)) / 100
    both = kaplan_meier(apart, events).survival * censoring_curve(apart, events).survival
    np.testing.assert_allclose(both, 1 - np.arange(1, len(times) + 1) / len(times), atol=1e-12)


def test_log_rank_by_hand():
    # One event a group: at 1 of two at risk each expects 1/2, at 2 there is one group left.
    found = log_rank([1, 2], [1, 1], ["a", "b"])
    assert (found.statistic, found.degrees) == (pytest.approx(1), 1)
    assert found.p == pytest.approx(0.317311, abs=1e-6)
    assert math.isnan(log_rank([1, 2], [1, 1], ["a", "a"]).statistic)
    times, events = [1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 1, 0]
    several, renamed = (log_rank(times, events, list(groups)) for groups in ("aabbcc", "ccaabb"))
    assert several.degrees == 2
    assert several.statistic == pytest.approx(renamed.statistic)


# Numbers of a run


def test_a_run_has_the_values_of_its_cases():
    random = np.random.default_rng(1)
    times, events = random.integers(1, 30, 60).astype(float), random.random(60) < 0.6
    risks = random.normal(size=60) - times / 10
    survival = {time: random.random(60) for time in (10.0, 20.0)}
    rows = table(times, events, risks, survival, (10, 20))
    assert value("c_index", rows) == harrell(times, events, risks).value
    assert value("uno_c_index", rows) == uno(times, events, risks).value
    assert value("uno_c_index@15", rows) == uno(times, events, risks, 15).value
    assert value("dynamic_auc@10", rows) == dynamic_auc(times, events, risks, 10)
    assert value("yearly_auroc@10", rows) == yearly_auroc(times, events, 1 - survival[10.0], 10)
    briers = [brier_score(times, events, survival[time], time) for time in (10.0, 20.0)]
    assert [value(f"survival_brier@{time}", rows) for time in (10, 20)] == briers
    assert value("integrated_brier", rows) == pytest.approx(np.mean(briers))
    observed = 1 - kaplan_meier(times, events).at([10])[0]
    assert value("expected_to_observed@10", rows) == pytest.approx((1 - survival[10.0]).mean() / observed)
    falls = -np.diff([1, *kaplan_meier(times, events).at([10, 20])])
    aucs = [dynamic_auc(times, events, risks, time) for time in (10, 20)]
    assert value("mean_dynamic_auc", rows) == pytest.approx(np.average(aucs, weights=falls))


def test_resamples_are_those_of_the_cases_drawn():
    random = np.random.default_rng(2)
    times, events = random.integers(1, 9, 25).astype(float), random.random(25) < 0.6
    risks, survival = random.normal(size=25), {4.0: random.random(25), 6.0: random.random(25)}
    rows = table(times, events, risks, survival, (4, 6))
    counted = random.multinomial(25, np.ones(25) / 25, size=4)
    names = ["c_index", "uno_c_index", "sybil_c_index", "dynamic_auc@4", "mean_dynamic_auc", "yearly_auroc@4"]
    for name in [*names, "survival_brier@4", "integrated_brier", "expected_to_observed@4", "hazard_ratio"]:
        found, parameter = parse(name)
        arguments = () if parameter is None else (parameter,)
        values = found.weighed(rows, *arguments)(counted[:, rows.case])
        for row, each in enumerate(counted):
            again = np.repeat(np.arange(25), each)
            held = {time: chances[again] for time, chances in survival.items()}
            drawn = table(times[again], events[again], risks[again], held, (4, 6))
            assert values[row] == pytest.approx(value(name, drawn), nan_ok=True), name


def test_hazard_ratio_by_hand_and_where_there_is_none():
    # The partial likelihood is largest where its derivative is 0.
    times, events, risks = [1, 2, 3], [1, 1, 1], np.array([0.0, 1.0, -1.0])

    def score(slope):
        at_risk = [risks, risks[1:], risks[2:]]
        return sum(first[0] - np.average(first, weights=np.exp(slope * first)) for first in at_risk)

    found = math.log(value("hazard_ratio", table(times, events, risks)))
    assert score(found) == pytest.approx(0, abs=1e-8)
    assert math.isnan(value("hazard_ratio", table([1, 2, 3], [1, 1, 1], [3, 2, 1])))  # separated
    assert math.isnan(value("hazard_ratio", table([1, 2, 3], [1, 1, 1], [1, 1, 1])))


def test_failures_and_lacking_survival():
    rows = table([1, 2, 3], [1, 1, 0], [3, math.nan, 1], {2.0: [0.1, math.nan, 0.9]}, (2,))
    assert value("c_index", rows) == pytest.approx(1 / 3)
    assert "1 without a prediction" in get("c_index").remark(rows)
    assert value("survival_brier@2", rows) == pytest.approx((0.01 + 1 + 0.01) / 3)
    without = table([1, 2, 3], [1, 1, 0], [3, 2, 1])
    for name in ("survival_brier@2", "integrated_brier", "mean_dynamic_auc", "expected_to_observed@2"):
        assert math.isnan(value(name, without))
    assert math.isnan(value("c_index", table([5], [1], [1])))


def test_names_people_type():
    assert canonical("C-index") == "c_index"
    assert canonical("concordance index") == "c_index"


def test_every_metric_is_on_its_page():
    text = PAGE.read_text()
    ours = [name for name, found in available().items() if found.kind == "survival" or "follow_up" in found.needs]
    assert len(ours) == 13
    assert not [name for name in ours if f"`{name}" not in text]
