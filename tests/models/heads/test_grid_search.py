"""Settings are chosen on other cases, and patients are never parted."""

import math

import numpy as np
import pytest

from medimg_eval.errors import UsageError, UserError
from medimg_eval.models.heads import Lessons, Targets, make_head, search
from medimg_eval.models.heads.grid_search import CRITERIA, folds_of


def lessons(count, seed):
    random = np.random.default_rng(seed)
    codes = np.arange(count) % 2
    shown = random.standard_normal((count, 6))
    shown[:, 0] += 1.5 * codes
    targets = Targets("exclusive", ("a", "b"), np.eye(2)[codes])
    return Lessons(shown, targets, [f"p{place // 2}" for place in range(count)])


def test_the_best_on_cases_to_validate_on_is_kept_as_it_was_fitted():
    fit, validation = lessons(60, 0), lessons(200, 1)
    head, trials = search(make_head("logistic"), {"C": [1e-2, 1, 1e4]}, fit, validation)
    assert [trial.settings["C"] for trial in trials] == [1e-2, 1, 1e4]
    assert max(trials, key=lambda trial: trial.value).settings["C"] == head.C
    for trial in trials:
        alone = make_head({"name": "logistic", **trial.settings}).fit(fit.features, fit.targets)
        shares = alone.predict(validation.features)[np.arange(200), validation.targets.codes]
        assert trial.value == pytest.approx(np.log(np.clip(shares, 1e-15, 1)).mean(), abs=1e-6)


def test_without_cases_to_validate_on_folds_by_patient_choose_and_all_are_fitted_on():
    fit = lessons(60, 0)
    head, trials = search(make_head("knn"), {"k": [1, 15]}, fit, None, criterion="balanced_accuracy", folds=3)
    assert head.k == 15
    assert trials[1].value > trials[0].value
    assert len(head.arrays["known"]) == 60


def test_a_patient_lies_in_one_fold_and_classes_are_shared_out():
    groups = [f"p{place // 3}" for place in range(60)]
    targets = Targets("exclusive", ("a", "b"), np.eye(2)[((np.arange(60) // 3) % 4 == 0).astype(int)])
    folds = folds_of(groups, targets, 4)
    assert all(len({folds[i] for i in range(60) if groups[i] == name}) == 1 for name in set(groups))
    assert np.bincount(folds).tolist() == [15] * 4
    present = [targets.codes[folds == fold].mean() for fold in range(4)]
    assert max(present) - min(present) <= 0.21
    with pytest.raises(UserError, match="20 patients to fit on, too few for 21 folds"):
        folds_of(groups, targets, 21)


def test_criteria_are_the_fields():
    shares = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.6, 0.4]])
    targets = Targets("exclusive", ("a", "b"), np.eye(2)[[0, 0, 1, 1]])
    assert CRITERIA["auroc"](shares, targets) == 0.5 + 0.25  # 3 of 4 pairs
    assert CRITERIA["balanced_accuracy"](shares, targets) == 0.5
    assert CRITERIA["loss"](shares, targets) == pytest.approx(np.log([0.9, 0.4, 0.7, 0.4]).mean())
    numbers = Targets("numbers", ("n",), np.array([[1.0], [2], [3], [np.nan]]))
    said = np.array([[1.0], [2], [4], [9]])
    assert CRITERIA["loss"](said, numbers) == pytest.approx(1 - (1 / 3) / (2 / 3))
    assert CRITERIA["pearson"](said, numbers) == pytest.approx(np.corrcoef([1, 2, 4], [1, 2, 3])[0, 1])
    times = Targets("survival", ("time", "event"), np.array([[1.0, 1], [2, 1], [2, 0], [3, 0], [4, 1], [4, 1], [5, 0]]))
    risk = np.array([[5.0], [4], [4], [4], [2], [3], [1]])
    # 13 concordant, 1 discordant and 2 tied pairs are of other events; here every pair is counted by hand:
    # the event at 1 before six, at 2 before five (two tied), each at 4 before one.
    assert CRITERIA["c_index"](risk, times) == pytest.approx((6 + 3 + 1 + 2) / 13)
    assert math.isnan(CRITERIA["auroc"](shares[:2], targets.take(np.array([0, 1]))))


def test_a_grid_of_what_is_no_list_is_refused():
    with pytest.raises(UsageError, match="model.grid.C to be a list"):
        search(make_head("logistic"), {"C": "0.1"}, lessons(8, 0), None)
    with pytest.raises(UsageError, match="no setting 'c'"):
        search(make_head("logistic"), {"c": [1]}, lessons(8, 0), lessons(8, 1))
