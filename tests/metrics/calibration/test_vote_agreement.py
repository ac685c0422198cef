"""Confidence by votes: by hand, beside scipy's entropy, and where nothing or too little was answered."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, parse
from medimg_eval.metrics.calibration import vote_confidence

ANSWERS = st.lists(st.integers(-1, 3), min_size=1, max_size=8)


def rows(votes, options=4, right=0):
    """Rows of votes[case][repeat]: numbers of answers, -1 for none; `right` is the right one."""
    made = []
    for case, given_answers in enumerate(votes):
        for repeat, answer in enumerate(given_answers):
            made += [
                (case, repeat, "predicted_class", float(answer)),
                (case, repeat, "offered_options", float(options)),
                (case, repeat, "accuracy", float(answer == right)),
            ]
    case, repeat, metric, value = (np.array(column) for column in zip(*made, strict=True))
    text = np.full(len(made), "")
    return ScoreTable(case, metric, text, value, text, {}, len(votes), {}, repeat=repeat)


def value(name, *args, **settings_of_rows):
    found, parameter = parse(name)
    return found.function(rows(*args, **settings_of_rows), *(() if parameter is None else (parameter,)))


def test_by_hand():
    # Half and half of 4 options: 1 - log 2 / log 4 = 1/2; all alike: 1. Right are 5 + 10 of 20.
    votes = [[0] * 5 + [1] * 5, [0] * 10]
    assert value("vote_agreement@plain", votes) == pytest.approx((0.5 + 1) / 2)
    assert value("vote_shift@plain", votes) == pytest.approx(0.75 - 0.75)
    # The correction takes (2 - 1) / 20 of the first entropy's log 2.
    corrected = 1 - (math.log(2) + 1 / 20) / math.log(4)
    assert value("vote_agreement", votes) == pytest.approx((corrected + 1) / 2)
    assert value("vote_shift", votes) == pytest.approx((corrected + 1) / 2 - 0.75)


def test_a_model_that_always_says_the_same_wrong_thing_is_wholly_too_sure():
    assert value("vote_shift@plain", [[2] * 10] * 3) == 1


def test_ten_votes_of_a_guesser_look_an_eighth_sure():
    # The expectation that the definitions state of four options and ten votes.
    votes = np.random.default_rng(0).integers(0, 4, (20_000, 10)).tolist()
    assert value("vote_agreement@plain", votes) == pytest.approx(0.122, abs=0.002)


@settings(max_examples=60, deadline=None)
@given(st.lists(ANSWERS, min_size=1, max_size=5))
def test_it_is_scipys_entropy_of_the_shares_of_all_trials(votes):
    expected = []
    for given_answers in votes:
        counts = [count for answer, count in Counter(given_answers).items() if answer >= 0]
        if counts:
            shares = np.array(counts) / len(given_answers)
            plain = -(shares * np.log(shares)).sum()
            if sum(counts) == len(given_answers):
                assert plain == pytest.approx(entropy(counts))
                ours = value("vote_agreement", [given_answers])
                assert ours == pytest.approx(vote_confidence(counts, 4))
            expected.append(1 - plain / math.log(4))
    found = value("vote_agreement@plain", votes)
    assert np.isnan(found) if not expected else found == pytest.approx(np.mean(expected))
    assert not expected or -1 <= value("vote_shift", votes) <= 1


def test_the_order_of_repeats_and_the_names_of_answers_do_not_matter():
    votes = [[0, 1, 1, 2], [3, 3, 0, 0]]
    renamed = [[0, 7, 7, 9], [5, 5, 0, 0]]
    for name in ("vote_agreement", "vote_agreement@plain", "vote_shift"):
        assert value(name, votes) == pytest.approx(value(name, [list(reversed(one)) for one in votes]))
        assert value(name, votes) == pytest.approx(value(name, renamed))


def test_edges():
    assert value("vote_agreement", [[0]]) == 1  # asked once
    assert np.isnan(value("vote_agreement", [[-1, -1]]))  # never answered
    assert value("vote_shift@plain", [[-1, -1], [0, 0]]) == 0  # of the case that was
    assert value("vote_agreement@plain", [[0, 1]], options=2) == 0
    assert np.isnan(value("vote_agreement", [[0, 0]], options=math.nan))  # no choice
    with pytest.raises(UsageError, match="expected no parameter or 'plain'"):
        parse("vote_shift@corrected")
    found, _ = parse("vote_shift@plain")
    assert found.remark(rows([[0, 0, 1]]), "plain") == (
        "Confidence by votes is 1 - entropy / log of the number of options, of 3 answers a case."
    )
