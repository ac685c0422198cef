"""The three-sample test of data copying, against scipy's Mann-Whitney test, on copies, and in simulations."""

import numpy as np
import pytest
from scipy import stats

from medimg_eval.metrics.privacy import SetError, copying_test


def draw(seed, n=120, d=6, copied=0):
    rng = np.random.default_rng(seed)
    train, holdout, made = (rng.standard_normal((n, d)) for _ in range(3))
    made[:copied] = train[:copied] + 0.05 * rng.standard_normal((copied, d))
    return train, holdout, made


def least(rows, train):
    return np.sqrt(((rows[:, None] - train[None]) ** 2).sum(-1)).min(axis=1)


def test_in_one_cell_it_is_the_test_of_mann_and_whitney():
    train, holdout, made = draw(0, copied=20)
    made, holdout = np.round(made, 1), np.round(holdout, 1)
    found = copying_test(train, holdout, made, cells=1)
    one, other = least(made, train), least(holdout, train)
    u = stats.mannwhitneyu(one, other).statistic
    assert found.value == pytest.approx((u - 120 * 120 / 2) / np.sqrt(120 * 120 * 241 / 12))
    assert found.low < found.value < found.high


def test_copies_are_seen_in_their_cell_alone_and_distance_goes_the_other_way():
    centres = np.repeat(np.eye(3) * 30, 60, axis=0)
    rng = np.random.default_rng(0)
    train, holdout, made = (centres + rng.standard_normal((180, 3)) for _ in range(3))
    honest = copying_test(train, holdout, made)
    assert honest.details["cells"] == 3
    assert abs(honest.value) < 3
    copied = made.copy()
    copied[:60] = train[:60] + 1e-3
    # One cell of three is full of copies: the mean over cells is a third of its score.
    full = np.sqrt(12 * 60 * 60 / 121) * -0.5
    others = copying_test(train, holdout, made[60:], cells=3)
    assert copying_test(train, holdout, copied).value < full / 3 + 2
    assert others.flagged("left_out")
    assert copying_test(train, holdout, made + 5).value > 3


def test_seeds_of_one_prompt_are_one_draw_and_the_same_seed_gives_the_same():
    train, holdout, made = draw(1)
    many = np.repeat(made[:40], 3, axis=0)
    alone, together = (
        copying_test(train, holdout, many),
        copying_test(train, holdout, many, prompts=np.arange(120) // 3),
    )
    assert together.value == alone.value
    assert together.standard_error > 1.1 * alone.standard_error
    assert copying_test(train, holdout, made) == copying_test(train, holdout, made)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"cells": 0}, "1 to 120 cells, got 0"), ({"cells": 121}, "got 121"), ({"cells": 60}, "fewer than 60 cells")],
)
def test_what_cannot_be_tested_is_refused(change, words):
    with pytest.raises(SetError, match=words):
        copying_test(*draw(2), **change)


def test_equal_rows_make_one_cell():
    rows = np.ones((40, 2))
    assert copying_test(rows, rows, rows, cells=3).value == 0


@pytest.mark.slow
@pytest.mark.parametrize("copied", [0, 15])
def test_its_score_is_standard_and_its_interval_holds_in_simulations(copied):
    found = [copying_test(*draw(seed, copied=copied)) for seed in range(150)]
    values = np.array([one.value for one in found])
    if not copied:
        assert abs(values.mean()) < 0.4
    truth = values.mean()
    assert np.mean([one.low <= truth <= one.high for one in found]) >= 0.85
