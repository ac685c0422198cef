"""Calibration and abstention: by hand, beside scikit-learn and statsmodels, and by walking through every order."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from calibration_rows import classes, made, rows, value
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as theirs

import medimg_eval
from medimg_eval.errors import UsageError
from medimg_eval.metrics import available, parse
from medimg_eval.metrics.answers.reply import AnsweredQuestion
from medimg_eval.metrics.calibration.reliability import murphy
from medimg_eval.metrics.calibration.statements import confidence, vote_confidence
from medimg_eval.results.figures.reliability_diagram import equal_mass
from medimg_eval.tasks.questions.confidence import confidence_of, status_of, with_confidence, written_confidence

PAGE = Path(medimg_eval.__file__).parents[1] / "docs" / "definitions" / "calibration.md"
NAMES = (
    "ece_mass@4", "ece_width@4", "calibration_shift", "brier_score", "log_loss", "calibration_slope",
    "calibration_intercept", "aurc", "eaurc", "risk_at_coverage@0.8", "coverage_at_risk@0.2", "confidence_auroc",
    "ece_debiased@4", "ace_adaptive@4", "augrc",
)  # fmt: skip


def remark(name, given_rows):
    found, parameter = parse(name)
    return found.remark(given_rows, *(() if parameter is None else (parameter,)))


def test_hand_worked_calibration_errors():
    given_rows = rows([0.1, 0.4, 0.6, 0.9], [False, True, True, True])
    # Two bins of two: |1 - 0.5| / 2 = 0.25 and |2 - 1.5| / 2 = 0.25.
    assert value("ece_mass@2", given_rows) == pytest.approx(0.25)
    assert value("ece_width@2", given_rows) == pytest.approx(0.25)
    # Four of equal width: 0.1; 0.6; 0.4; 0.1, over four statements.
    assert value("ece_width@4", given_rows) == pytest.approx(1.2 / 4)
    assert value("calibration_shift", given_rows) == pytest.approx(0.5 - 0.75)
    assert value("brier_score", given_rows) == pytest.approx((0.01 + 0.36 + 0.16 + 0.01) / 4)


def test_equal_confidences_share_a_bin_whatever_their_order():
    sure, right = np.array([0.5] * 6 + [0.9, 0.2]), np.array([1, 0, 0, 1, 0, 0, 1, 0], bool)
    found = {value("ece_mass@3", rows(sure[order], right[order])) for order in map(list, _orders(8))}
    assert len({round(one, 12) for one in found}) == 1
    # 0.2 lies in the first third, the middle of the six at 1/2 in the second, 0.9 in the last.
    assert found.pop() == pytest.approx((0.2 + abs(2 - 3.0) + 0.1) / 8)


def _orders(number, times=20):
    rng = np.random.default_rng(0)
    return [rng.permutation(number) for _ in range(times)]


def test_bins_of_equal_numbers_are_those_of_a_sorted_list_cut_evenly():
    sure, right = made(digits=9)
    order = np.argsort(sure)
    parts = np.array_split(order, 15)
    by_hand = sum(abs(right[part].sum() - sure[part].sum()) for part in parts) / len(sure)
    assert value("ece_mass@15", rows(sure, right)) == pytest.approx(by_hand)


def test_bins_of_equal_width_are_those_of_a_plain_loop():
    sure, right = made()
    total = 0.0
    for low in range(10):
        inside = [(p, y) for p, y in zip(sure, right, strict=True) if min(round(p * 100) // 10, 9) == low]
        if inside:
            total += abs(sum(y for _, y in inside) - sum(p for p, _ in inside))
    assert value("ece_width@10", rows(sure, right)) == pytest.approx(total / len(sure))


def test_scores_agree_with_scikit_learn():
    sure, right = made()
    given_rows = rows(sure, right)
    assert value("brier_score", given_rows) == pytest.approx(theirs.brier_score_loss(right, sure))
    assert value("log_loss", given_rows) == pytest.approx(theirs.log_loss(right, np.clip(sure, 1e-7, 1 - 1e-7)))
    assert value("confidence_auroc", given_rows) == pytest.approx(theirs.roc_auc_score(right, sure))


def test_the_slope_and_the_intercept_are_those_of_statsmodels():
    models = pytest.importorskip("statsmodels.api")
    sure, right = made(digits=6)
    odds = np.log(sure / (1 - sure))
    fitted = models.Logit(right, models.add_constant(odds)).fit(disp=0)
    assert value("calibration_slope", rows(sure, right)) == pytest.approx(fitted.params[1], rel=1e-6)
    moved = models.GLM(right, np.ones_like(odds), family=models.families.Binomial(), offset=odds).fit()
    assert value("calibration_intercept", rows(sure, right)) == pytest.approx(moved.params[0], rel=1e-6)


def test_confidences_at_both_ends_have_an_intercept():
    given_rows = rows([1, 1, 1, 0], [True, True, False, False])
    # sum of 3 expit(16.1 + a) + expit(-16.1 + a) = 2 at expit(16.1 + a) = 2/3, up to 1e-13.
    assert value("calibration_intercept", given_rows) == pytest.approx(math.log(2) + math.log(1e-7 / (1 - 1e-7)))


@pytest.mark.parametrize(
    ("sure", "right"), [([0.2, 0.9], [True, True]), ([0.2, 0.9], [False, True]), ([0.7] * 4, [True, False] * 2)]
)
def test_there_is_no_slope_where_there_is_no_estimate(sure, right):
    assert math.isnan(value("calibration_slope", rows(sure, right)))


def test_a_hand_worked_curve_of_risk():
    given_rows = rows([0.9, 0.8, 0.7, 0.6], [True, False, True, False])
    # Risks 0, 1/2, 1/3, 2/4; at best 0, 0, 1/3, 1/2.
    assert value("aurc", given_rows) == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    assert value("eaurc", given_rows) == pytest.approx((1 / 2) / 4)
    assert value("risk_at_coverage@0.5", given_rows) == pytest.approx(1 / 2)
    assert value("risk_at_coverage@0.6", given_rows) == pytest.approx(1 / 3)  # three of four
    assert value("coverage_at_risk@0.4", given_rows) == pytest.approx(3 / 4)
    assert value("coverage_at_risk@0.05", given_rows) == pytest.approx(1 / 4)
    assert value("coverage_at_risk@0", rows([0.9, 0.8], [False, True])) == 0


def test_ties_count_as_the_mean_over_their_orders():
    sure, right = [0.9, 0.5, 0.5, 0.5, 0.1], [False, True, False, True, True]
    every = [[0, *middle, 4] for middle in itertools.permutations([1, 2, 3])]
    areas = [np.mean([np.mean([not right[place] for place in order[: k + 1]]) for k in range(5)]) for order in every]
    assert value("aurc", rows(sure, right)) == pytest.approx(np.mean(areas))
    second = [np.mean([not right[place] for place in order[:2]]) for order in every]
    assert value("risk_at_coverage@0.4", rows(sure, right)) == pytest.approx(np.mean(second))


def test_the_least_area_is_that_of_wrong_answers_last():
    sure, right = made(60)
    best = rows(np.where(right, 0.9, 0.1) + np.linspace(0, 0.01, 60), right)
    assert value("eaurc", best) == pytest.approx(0, abs=1e-12)
    assert value("aurc", rows(sure, right)) - value("eaurc", rows(sure, right)) == pytest.approx(value("aurc", best))


def test_the_parts_of_a_brier_score_add_up():
    sure, right = made(digits=1)
    place = np.round(sure * 10).astype(int)
    reliability, resolution, uncertainty, left = murphy(sure, right.astype(float), place)
    assert left == pytest.approx(0, abs=1e-12)  # every bin holds one confidence
    assert reliability - resolution + uncertainty == pytest.approx(value("brier_score", rows(sure, right)))
    by_hand = sum((place == one).mean() * (right[place == one].mean() - one / 10) ** 2 for one in np.unique(place))
    assert reliability == pytest.approx(by_hand)
    assert "Brier score = reliability" in remark("brier_score", rows(sure, right))


def test_the_note_says_what_luck_alone_would_make():
    rng = np.random.default_rng(3)
    sure = rng.random(400)
    simulated = np.mean([value("ece_mass@15", rows(sure, rng.random(400) < sure)) for _ in range(200)])
    told = remark("ece_mass@15", rows(sure, sure > 0.5))
    assert told.startswith("ECE (equal mass)@15: confidences that mean exactly what they say would reach about ")
    assert float(told.split()[-2]) == pytest.approx(simulated, abs=0.003)


def test_top_classes_stand_for_classes_that_exclude_each_other():
    truth, said = [[1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.4, 0.2, 0.4]]
    given_rows = classes(truth, said, classes="exclusive")
    # Tops 0.7 right, 0.5 wrong, 0.4 right in one of two.
    assert value("ece_width@1", given_rows) == pytest.approx(abs(1.5 - 1.6) / 3)
    assert value("calibration_shift", given_rows) == pytest.approx(0.1 / 3)
    assert value("log_loss", given_rows) == pytest.approx(-(math.log(0.7) + math.log(0.3) + math.log(0.4)) / 3)
    assert value("log_loss", given_rows) == pytest.approx(theirs.log_loss([0, 1, 2], said))
    assert value("aurc", given_rows) == pytest.approx((0 + 1 / 2 + 1.5 / 3) / 3)


def test_classes_that_do_not_exclude_others_are_decided_one_by_one():
    given_rows = classes([[1, 0], [0, 0]], [[0.8, 0.4], [0.3, 0.6]])
    # Decisions: 0.8 right, 0.6 right, 0.7 right, 0.6 wrong.
    assert value("calibration_shift", given_rows) == pytest.approx((0.8 + 0.6 + 0.7 + 0.6) / 4 - 3 / 4)
    assert value("risk_at_coverage@1", given_rows) == pytest.approx(1 / 4)
    assert value("confidence_auroc", given_rows) == pytest.approx(2.5 / 3)
    # But their probabilities, not their decisions, are what a calibration error is of.
    assert value("ece_width@1", given_rows) == pytest.approx(abs(1 - 2.1) / 4)


@pytest.mark.parametrize("name", NAMES)
def test_without_rows_there_is_no_value(name):
    assert math.isnan(value(name, rows([], [])))
    assert math.isnan(value(name, rows([math.nan], [True])))


@pytest.mark.parametrize("name", NAMES)
def test_counted_twice_is_the_same_as_standing_there_twice(name):
    sure, right = made(40, seed=5)
    found, parameter = parse(name)
    arguments = () if parameter is None else (parameter,)
    times = np.random.default_rng(1).integers(0, 3, 40).astype(float)
    drawn = np.repeat(np.arange(40), times.astype(int))
    if found.weighed is not None:
        quick = found.weighed(rows(sure, right), *arguments)(times[None])[0]
    else:
        quick = found.total(times @ found.pieces(rows(sure, right), *arguments), *arguments)
    assert quick == pytest.approx(value(name, rows(sure[drawn], right[drawn])), rel=1e-7)


@pytest.mark.parametrize(
    "name",
    ["ece_mass@0", "ece_width@1.5", "ece_debiased@0", "ace_adaptive@2.5", "risk_at_coverage@0", "coverage_at_risk@1"],
)
def test_a_parameter_that_cannot_be_meant_is_refused(name):
    with pytest.raises(UsageError):
        value(name, rows([0.5, 0.6], [True, False]))


@given(st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=2, max_size=30))
@settings(deadline=None, max_examples=30)
def test_values_stay_in_their_range_and_are_blind_to_order(pairs):
    sure, right = np.array([p / 10 for p, _ in pairs]), np.array([y for _, y in pairs])
    back = rows(sure[::-1], right[::-1])
    for name in NAMES:
        here = value(name, rows(sure, right))
        assert here == pytest.approx(value(name, back), abs=1e-6, rel=1e-6, nan_ok=True)
        if not name.startswith(("calibration", "log")):
            assert math.isnan(here) or -1e-12 <= here <= 1 + 1e-12
    errors = value("ece_mass@4", rows(sure, right)), value("ece_width@4", rows(sure, right))
    assert min(errors) >= abs(value("calibration_shift", rows(sure, right))) - 1e-12
    assert value("eaurc", rows(sure, right)) <= value("aurc", rows(sure, right)) + 1e-12


def test_no_slope_is_told_where_right_and_wrong_answers_meet_at_one_confidence_only():
    # Near 0 and 1 the likelihood is so flat that Newton's method stops, though there is no maximum.
    parted = rows([1e-4] * 5 + [0.5] * 2 + [0.9999] * 5, [0] * 5 + [0, 1] + [1] * 5)
    assert math.isnan(value("calibration_slope", parted))
    assert math.isnan(value("calibration_slope", rows([0.0] * 5 + [0.5] * 2 + [1.0] * 5, [0] * 6 + [1] * 6)))


def test_the_slope_of_confidences_that_hardly_differ_is_that_of_statsmodels():
    rng = np.random.default_rng(0)
    sure = 0.5 + 0.01 * rng.standard_normal(200)
    odds = np.log(sure / (1 - sure))
    right = rng.random(200) < 1 / (1 + np.exp(-60 * odds))
    models = pytest.importorskip("statsmodels.api")
    fitted = models.Logit(right.astype(float), models.add_constant(odds)).fit(disp=0)
    assert value("calibration_slope", rows(sure, right)) == pytest.approx(fitted.params[1], rel=1e-6)


def test_bins_of_equal_mass_are_those_that_reliability_diagrams_show():
    rng = np.random.default_rng(3)
    sure, right = rng.integers(0, 8, 50) / 8, rng.random(50) < 0.5
    place = equal_mass(sure, 6)
    drawn = sum(abs((right[place == one] - sure[place == one]).sum()) for one in range(6)) / 50
    assert value("ece_mass@6", rows(sure, right)) == pytest.approx(drawn)


def test_votes_of_a_guesser_are_not_taken_for_confidence():
    assert vote_confidence([10], 4) == 1.0
    # Six, three and one of ten: H = 0.8979, + 2 / 20.
    assert vote_confidence([6, 3, 1, 0], 4) == pytest.approx(1 - (0.897946 + 0.1) / math.log(4), abs=1e-6)
    rng = np.random.default_rng(0)
    guesses = rng.multinomial(10, [0.25] * 4, size=2000)
    corrected = np.mean([vote_confidence(list(votes), 4) for votes in guesses])
    assert corrected < 0.08  # without the correction 0.12; what is left comes from those below 0
    for votes, options in (([], 2), ([1], 1), ([1, 1, 1], 2)):
        with pytest.raises(ValueError, match="Expected votes"):
            vote_confidence(votes, options)


@pytest.mark.parametrize(
    ("text", "sure"),
    [
        ("B. Confidence: 85%", 0.85), ("confidence is 0.7", 0.7), ("Confidence (0-1): no idea", None),
        ("Confidence: 8/10", 0.8), ("I am 90 % sure that it is B", 0.9), ("Confidence: 85", 0.85),
        ("confidence 20%\nConfidence: 60/100", 0.6), ("Confidence: 400", None), ("B", None), ("", None),
        ("I am 9/10 sure", 0.9), ("85 percent certain", 0.85), ("Confidence: 4 out of 5", 0.8), ("Confidence: .9", 0.9),
        ("Confidence: 0,9", 0.9), ("Confidence (0-100): 85", 0.85), ("Confidence score (out of 10): 8", 0.8),
        ("Confident (90%)", 0.9), ('{"confidence": 0.8}', 0.8), ("Confidence: 1/3", None), ("Confidence: -3", None),
        ("Confidence: 80-90%", None), ("Confidence: 80 to 90%", None), ("confidence: 1e-3", None),
    ],
)  # fmt: skip
def test_confidences_are_read_from_texts(text, sure):
    assert written_confidence(text) == (None if sure is None else pytest.approx(sure))


@pytest.mark.parametrize(
    "text",
    [
        "I am not confident about the 2 nodules", "I am not 90% sure", "less than 50% sure", "Confidence: <50%",
        "The 95% confidence interval is 1.2 to 3", "I cannot say with confidence; 3 lesions", "Confident: B. 2 nodules",
    ],
)  # fmt: skip
def test_numbers_beside_the_word_confidence_that_are_none_are_not_read(text):
    assert written_confidence(text) is None
    assert written_confidence(f"Confidence: 70%. {text}") == 0.7


def test_log_likelihoods_become_confidences_and_other_numbers_do_not():
    class Likely:
        log_likelihoods = True

    numbers = {"A": math.log(0.2), "B": math.log(0.6)}
    [reply] = with_confidence(Likely(), [numbers])
    assert reply.confidence == pytest.approx(0.75)
    assert reply.preferences == numbers
    assert with_confidence(object(), [numbers]) == [numbers]
    odd = [{"A": math.nan}, "text", None]
    assert with_confidence(Likely(), odd) == odd
    assert confidence_of({"confidence": 0.5, "texts": ["Confidence: 10%"]}) == 0.5
    assert confidence_of({"texts": ["Confidence: 10%"]}) == pytest.approx(0.1)


def test_what_was_not_answered_has_no_confidence():
    sure = AnsweredQuestion("choice", "B", "B", options={"A": "x", "B": "y"}, confidence=0.8)
    assert confidence(sure) == 0.8
    assert status_of("confidence", sure) == "right"
    assert status_of("accuracy", sure) == "right"
    wrong = AnsweredQuestion(
        "choice", "", "A", options={"A": "x", "B": "y"}, preferences={"A": 0, "B": 1}, confidence=0.7
    )
    assert (confidence(wrong), status_of("confidence", wrong)) == (0.7, "wrong")
    silent = AnsweredQuestion("choice", "", "B", options={"A": "x", "B": "y"}, confidence=0.8)
    torn = AnsweredQuestion(
        "choice", "", "B", options={"A": "x", "B": "y"}, preferences={"A": 0, "B": 0}, confidence=0.5
    )
    assert all(math.isnan(confidence(pair)) for pair in (silent, torn, AnsweredQuestion("choice", "B", "B")))


def test_the_note_counts_answers_without_a_confidence():
    assert remark("aurc", rows([0.5, 0.6], [True, False], cases=3)).startswith("Confidences: 2 of 3 answers")
    assert remark("aurc", rows([0.5, 0.6], [True, False])) == ""


def test_the_page_has_a_row_for_each():
    page = PAGE.read_text(encoding="utf-8")
    for name, found in available().items():
        if found.function.__module__.startswith("medimg_eval.metrics.calibration."):
            row = next(line for line in page.splitlines() if line.startswith((f"| `{name}`", f"| `{name}@")))
            assert found.definition.split(":")[0].rstrip(".") in row
