"""Preferences in pairs: hand-worked numbers, scikit-learn's logistic regression, and what the order of a pair does."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics.agreement import bradley_terry, elo_scale, rate_at_equal_length
from medimg_eval.results import preference_table, read_preferences

COLUMNS = "case,left,right,verdict,judge,words_left,words_right"


@pytest.fixture
def votes(tmp_path):
    def write(*rows, columns="case,left,right,verdict,judge"):
        file = tmp_path / "votes.csv"
        file.write_text("\n".join([columns, *rows]) + "\n")
        return file

    return write


def numbers(file, **options):
    frame = preference_table(read_preferences(file), "Reports", resamples=20, **options).frame()
    return frame.set_index(["judge", "model", "statistic"])["value"]


def test_seven_wins_to_three_are_147_points(votes):
    rows = [f"c{n},a,b,{'left' if n < 7 else 'right'},me" for n in range(10)]
    found = numbers(votes(*rows), anchor="b")
    assert found["me", "a", "win_rate"] == pytest.approx(0.7)
    assert found["me", "a", "strength"] - found["me", "b", "strength"] == pytest.approx(math.log(7 / 3))
    assert found["me", "a", "elo"] == pytest.approx(1147.2, abs=0.05)
    assert found["me", "b", "elo"] == 1000


def test_of_both_orders_a_verdict_that_changes_is_a_tie(votes):
    rows = ["c0,a,b,left,m", "c0,b,a,right,m", "c1,a,b,left,m", "c1,b,a,left,m", "c2,a,b,tie,m", "c3,a,b,invalid,m"]
    found = numbers(votes(*rows))
    assert found["m", "a", "win_rate"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert (found["m", "a", "wins"], found["m", "a", "ties"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    notes = " ".join(preference_table(read_preferences(votes(*rows)), "x", resamples=20).layout().footnotes)
    assert "m: 3 pairs; the answer shown first wins 75.0 % of what is no tie" in notes  # 3 of 4
    assert "the order changes 50.0 % of verdicts; 1 votes that are no verdict left out" in notes


def test_judges_are_not_pooled(votes):
    found = numbers(votes("c0,a,b,left,x", "c0,a,b,right,y"))
    assert (found["x", "a", "win_rate"], found["y", "a", "win_rate"]) == (1, 0)
    assert math.isnan(found["x", "a", "strength"])  # b never won


def wins_of(*shares):
    won = np.zeros((3, 3))
    for (i, j), (i_wins, j_wins) in zip(((0, 1), (0, 2), (1, 2)), shares, strict=True):
        won[i, j], won[j, i] = i_wins, j_wins
    return won


counts = st.tuples(st.integers(1, 30), st.integers(1, 30))


@given(counts, counts, counts)
@settings(max_examples=25, deadline=None)
def test_strengths_are_those_of_a_logistic_regression(first, second, third):
    won = wins_of(first, second, third)
    rows, outcomes, weights = [], [], []
    for i in range(3):
        for j in range(3):
            if won[i, j]:
                difference = np.eye(3)[i] - np.eye(3)[j]
                rows += [difference, -difference]
                outcomes += [1, 0]
                weights += [won[i, j]] * 2
    fitted = LogisticRegression(C=1e8, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(rows, outcomes, weights)
    np.testing.assert_allclose(bradley_terry(won), fitted.coef_[0] - fitted.coef_[0].mean(), atol=2e-4)


@given(counts, counts, counts)
@settings(max_examples=25, deadline=None)
def test_strengths_turn_with_the_models_and_with_who_won(first, second, third):
    won = wins_of(first, second, third)
    strength = bradley_terry(won)
    assert strength.sum() == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(bradley_terry(won[::-1, ::-1]), strength[::-1], atol=1e-7)
    np.testing.assert_allclose(bradley_terry(won.T), -strength, atol=1e-7)
    np.testing.assert_allclose(bradley_terry(2 * won), strength, atol=1e-7)
    assert elo_scale(strength).mean() == pytest.approx(1000)


@pytest.mark.parametrize(
    "won", [np.zeros((2, 2)), [[0, 3], [0, 0]], wins_of((2, 2), (0, 0), (0, 0)), [[0]], np.zeros((0, 0))]
)
def test_what_was_not_compared_has_no_strength(won):
    assert np.isnan(bradley_terry(won)).all()


def test_the_rate_at_equal_length_takes_length_out():
    draw = np.random.default_rng(0)
    ratio = np.exp(draw.normal(0.5, 0.6, 4000))
    won = draw.random(4000) < 1 / (1 + np.exp(-(0.2 + 1.5 * np.log(ratio))))
    fitted = LogisticRegression(C=1e8, tol=1e-10).fit(np.log(ratio)[:, None], won)
    found = rate_at_equal_length(won, ratio)
    assert found == pytest.approx(1 / (1 + math.exp(-fitted.intercept_[0])), abs=1e-4)
    assert abs(found - 1 / (1 + math.exp(-0.2))) < 0.03 < won.mean() - found
    assert math.isnan(rate_at_equal_length([], []))
    assert rate_at_equal_length([1, 0.5], [1, 1]) == 0.75
    assert math.isnan(rate_at_equal_length([1, 1, 0, 0], [2, 3, 0.5, 0.2]))  # length decides all
    assert math.isnan(rate_at_equal_length([1, 0], [2, 2]))


def test_lengths_are_read_where_they_are_known(votes):
    rows = [f"c{n},a,b,{verdict},m,{left},10" for n, (verdict, left) in enumerate(
        [("left", 20), ("left", 30), ("right", 20), ("right", 5), ("left", 5), ("right", 10)])]  # fmt: skip
    found = numbers(votes(*rows, columns=COLUMNS))
    assert 0 < found["m", "a", "at_equal_length"] < 0.5
    assert found["m", "a", "at_equal_length"] + found["m", "b", "at_equal_length"] == pytest.approx(1)


def test_a_file_that_cannot_be_meant_is_refused(votes, tmp_path):
    for rows, columns, message in [
        (["c0,a,b"], "case,left,right", "none verdict"),
        (["c0,a,b,perhaps,m"], "case,left,right,verdict,judge", "row 2 is invalid: expected a verdict of left"),
        (["c0,a,a,left,m"], "case,left,right,verdict,judge", "two models"),
        (["c0,a,b,left,m", "c0,a,b,right,m"], "case,left,right,verdict,judge", "row 3 .* got row 2 too"),
        (["c0,a,b,left,m,long,3"], COLUMNS, "numbers of words"),
    ]:
        with pytest.raises(UserError, match=message):
            read_preferences(votes(*rows, columns=columns))
    with pytest.raises(UserError, match="cannot be read"):
        read_preferences(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="anchor"):
        preference_table(read_preferences(votes("c0,a,b,left,m")), "x", anchor="c")


@pytest.mark.slow
def test_the_command_prints_and_writes_the_table(votes, tmp_path, capsys):
    file = votes(*[f"c{n},a,b,{'left' if n % 3 else 'right'},m" for n in range(12)])
    assert start(["agree", f"preferences={file}", f"out={tmp_path / 'out'}", "resamples=50"]) == 0
    assert "0.667 [" in capsys.readouterr().out
    assert (tmp_path / "out" / "agree.csv").is_file()
