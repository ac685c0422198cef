"""Summaries of sweeps against worked numbers, medmnistc's evaluator and enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, parse
from medimg_eval.metrics.classification.alexnet_errors import ALEXNET, CLEAN
from medimg_eval.metrics.classification.corruption_errors import _balanced_error, _relative_error

LEVELS = ["", "blur-1", "blur-2", "blur-3", "blur-4", "blur-5"]
SWEEP = [0.90, 0.88, 0.86, 0.82, 0.75, 0.60]


def table(values, conditions=LEVELS, metric="accuracy", labels=("",), statuses=("",), facts=None):
    """Rows of values[case][condition], or values[case][condition][label], one status for each label of a case."""
    values = np.asarray(values, float).reshape(len(values), len(conditions), len(labels))
    case, place, label = np.indices(values.shape).reshape(3, -1)
    status = np.broadcast_to(np.asarray(statuses)[..., None, :], values.shape).ravel()
    return ScoreTable(
        case,
        np.full(values.size, metric),
        np.array(labels)[label],
        values.ravel(),
        status,
        {},
        len(values),
        facts or {},
        condition=np.array(conditions)[place],
    )


def value(name, rows):
    metric, parameter = parse(name)
    return metric.function(rows, parameter)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("severity_slope@blur", -0.0551429),  # numpy.polyfit(range(6), SWEEP, 1)
        ("rood_mean@blur", 0.8547068),
        ("rood_degradation@blur", 0.0713744),
        ("relative_drop@blur", 1 - 0.868889),
        ("relative_drop@blur-5", 1 / 3),
        ("severities_held@blur", 3),  # 0.75 is the first below 0.81
    ],
)
def test_a_sweep_of_one_case(name, expected):
    assert value(name, table([SWEEP])) == pytest.approx(expected, abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=6, max_size=6), min_size=1, max_size=5))
def test_slopes_are_those_of_a_polynomial_and_of_the_means(values):
    slope = value("severity_slope@blur", table(values))
    assert slope == pytest.approx(np.polyfit(range(6), np.mean(values, axis=0), 1)[0], abs=1e-9)
    assert value("severity_slope@blur", table([[3.0] * 6])) == 0
    weights = (2 / 3) ** np.arange(1, 6)
    lost = np.mean(values, axis=0)[0] - np.mean(values, axis=0)[1:]
    assert value("rood_degradation@blur", table(values)) == pytest.approx(lost @ weights / weights.sum(), abs=1e-9)


def test_less_is_better_of_a_distance():
    rows = table([[2.0, 2.0, 2.1, 2.3, 4.0, 8.0]], metric="hd95")
    assert value("rood_degradation@blur", rows) > 0
    assert value("relative_drop@blur-5", rows) == pytest.approx(3)
    assert value("severities_held@blur", rows) == 2


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ([1, 1, 1, 1, 1, 1], 5),
        ([1, 0, 1, 1, 1, 1], 0),
        ([1, 1, np.nan, 0, 0, 0], np.nan),  # it may have broken at severity 2
        ([1, 0, np.nan, 0, 0, 0], 0),
        ([0, 0, 0, 1, 0, 0], np.nan),  # nothing to lose
        ([np.nan, 1, 1, 1, 1, 1], np.nan),
    ],
)
def test_severities_held_at_the_edges(values, held):
    np.testing.assert_equal(value("severities_held@blur", table([values])), held)


def test_answers_that_turn():
    rows = table([[1, 0], [0, 0], [0, 1], [1, 1]], ["", "grey"])
    assert value("right_to_wrong@grey", rows) == 0.25
    assert value("wrong_to_right@grey", rows) == 0.25
    with pytest.raises(ValueError, match="Expected values from 0 to 1"):
        value("right_to_wrong@grey", table([[2, 0]], ["", "grey"], metric="hd95"))


def test_another_wrong_answer_is_a_flip_and_none_is_left_out():
    rows = table([[17, 18], [17, 17], [-1, 17], [40, -1]], ["", "grey"], metric="predicted_class")
    assert value("answer_flips@grey", rows) == 0.5
    probabilities = [[[0.8, 0.2], [0.4, 0.6]], [[0.8, 0.2], [0.9, 0.1]]]
    of_classes = table(
        probabilities, ["", "grey"], "probability", ("a", "b"), ("present", "absent"), {"classes": "exclusive"}
    )
    assert value("answer_flips@grey", of_classes) == 0.5
    several = table([[[0.8, 0.2], [0.7, 0.6]]], ["", "grey"], "probability", ("a", "b"), ("present", "absent"))
    assert value("answer_flips@grey", several) == 1
    assert np.isnan(value("answer_flips@noise", several))


def test_alexnet_beside_itself_is_1_and_a_coin_on_oct_is_1_403():
    for errors in ALEXNET.values():
        corrupted = np.array([[error] for name, error in errors.items() if name != CLEAN])
        assert _balanced_error(corrupted, errors[CLEAN], corrupted, errors[CLEAN]) == pytest.approx(1)
        assert _relative_error(corrupted, errors[CLEAN], corrupted, errors[CLEAN]) == pytest.approx(1)
    names = [name for name in ALEXNET["oct"] if name != CLEAN]
    keys = ["", *(f"{name}-{severity}" for name in names for severity in range(1, 6))]
    classes, truth = ("a", "b"), np.array([["present", "absent"], ["absent", "present"]])
    always = np.broadcast_to([0.9, 0.1], (2, len(keys), 2))  # right of one class of two
    rows = table(always, keys, "probability", classes, truth, {"classes": "exclusive"})
    assert value("medmnistc_be@oct", rows) == pytest.approx(1.4030, abs=1e-4)
    assert np.isnan(value("medmnistc_be@oct", rows.where(rows.condition != keys[-1])))
    with pytest.raises(UsageError, match="has no baselines of a set"):
        value("medmnistc_be@brain", rows)


def test_errors_equal_those_of_medmnistc(tmp_path):
    evaluator = pytest.importorskip("medmnistc.eval").Evaluator
    rng = np.random.default_rng(0)
    names = {name: {"jpeg": "jpeg_compression"}.get(name, name) for name in ALEXNET["oct"] if name != CLEAN}
    truth = rng.integers(0, 4, 40)
    scores = rng.dirichlet(np.ones(4), (40, 1 + 5 * len(names)))
    theirs = evaluator("octmnist", truth[:, None].tolist(), list(names.values()), str(tmp_path), "ours", "multi-class")
    theirs.evaluate_clean(scores[:, 0])
    for place, name in enumerate(names.values()):
        theirs.evaluate(np.concatenate(scores[:, 1 + 5 * place : 6 + 5 * place].swapaxes(0, 1)), name)
    theirs.output_log = {}
    theirs.populate_summary()
    said = theirs.output_log["metrics"]
    keys = ["", *(f"{name}-{severity}" for name in names for severity in range(1, 6))]
    status = np.where(np.eye(4, dtype=bool)[truth], "present", "absent")
    rows = table(scores, keys, "probability", tuple("abcd"), status, {"classes": "exclusive"})
    assert value("medmnistc_be@oct", rows) == pytest.approx(said["be"], abs=1e-9)
    assert value("medmnistc_rbe@oct", rows) == pytest.approx(said["rbe"], abs=1e-9)


def test_baselines_are_medmnistcs():
    theirs = pytest.importorskip("medmnistc.utils.baselines").BASELINES
    names = {"jpeg": "jpeg_compression", "gamma_up": "gamma_corr_up", "gamma_down": "gamma_corr_down"}
    for name, errors in ALEXNET.items():
        expected = {"clean": theirs[f"{name}mnist"]["clean_score"], **theirs[f"{name}mnist"]["raw_scores"]}
        assert {names.get(key, key): error for key, error in errors.items()} == expected
