"""Kappas of grades, balanced accuracy, top-k, aggregation and predictive values, against scikit-learn and by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import metrics as theirs

from medimg_eval.errors import UsageError
from medimg_eval.metrics import ScoreTable, parse
from medimg_eval.metrics.classification import CLASSES, EXCLUSIVE, NAMES, Classified


def rows_of(truth, probability, exclusive=True, **attributes):
    """Rows of `probability`: of classes that exclude each other (case,) truth, else (case, class)."""
    cases, width = np.shape(probability)
    names = [f"g{at}" for at in range(width)]
    present = np.eye(width, dtype=bool)[truth] if exclusive else np.asarray(truth, bool)
    case = np.repeat(np.arange(cases), width)
    return ScoreTable(
        case,
        np.full(cases * width, "probability"),
        np.tile(names, cases),
        np.ravel(probability).astype(float),
        np.where(present, "present", "absent").ravel(),
        {name: np.asarray(values)[case] for name, values in attributes.items()},
        cases,
        {NAMES: names, CLASSES: EXCLUSIVE if exclusive else "each"},
    )


def value(name, rows, times=None):
    found, parameter = parse(name)
    given = () if parameter is None else (parameter,)
    if times is None:
        return found.function(rows, *given)
    judge = found.weighed(rows, *given)
    return float(judge(np.asarray(times, float)[None])[0])


def said(grades, width):
    return np.eye(width)[grades]


def test_the_kappa_of_the_definitions():
    rows = rows_of([0, 2, 2, 3, 3, 4, 0], said([0, 1, 2, 3, 4, 4, 2], 5))
    assert value("quadratic_kappa", rows) == pytest.approx(0.785714, abs=1e-6)
    # Truth 0, 1 and said 0, 0 of three grades: distances 0 + 1; by chance (1 x 0 + 1 x 1) x 2 / 2 = 1.
    assert value("linear_kappa", rows_of([0, 1], said([0, 0], 3))) == 0
    assert np.isnan(value("quadratic_kappa", rows_of([1, 1], said([1, 1], 3))))


GRADES = arrays(np.int64, (2, 9), elements=st.integers(0, 3))


@settings(deadline=None, max_examples=25)
@given(GRADES)
def test_kappas_and_balanced_accuracy_are_scikit_learns(pair):
    truth, grade = pair
    rows = rows_of(truth, said(grade, 4))
    for weights in ("linear", "quadratic"):
        found = value(f"{weights}_kappa", rows)
        if np.ptp(np.concatenate(pair)) == 0:
            assert np.isnan(found)
            continue
        assert found == pytest.approx(theirs.cohen_kappa_score(truth, grade, weights=weights, labels=range(4)))
        assert value(f"{weights}_kappa", rows_of(grade, said(truth, 4))) == pytest.approx(found)  # symmetric
        assert value(f"{weights}_kappa", rows_of(3 - truth, said(3 - grade, 4))) == pytest.approx(found)
    recalls = [np.mean(grade[truth == at] == at) for at in np.unique(truth)]
    assert value("balanced_accuracy", rows) == pytest.approx(np.mean(recalls))


@settings(deadline=None, max_examples=25)
@given(
    arrays(np.float64, (8, 4), elements=st.integers(0, 20).map(float)), arrays(np.int64, 8, elements=st.integers(0, 3))
)
def test_the_k_most_probable_are_scikit_learns_and_grow_with_k(scores, truth):
    shares = [
        np.mean([value for row, at in zip(scores, truth, strict=True) for value in top_k(row, at, k)])
        for k in range(1, 5)
    ]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    apart = scores + np.arange(4) * 1e-3  # no two are equally probable
    for k in (1, 2, 3):
        ours = np.mean([value for row, at in zip(apart, truth, strict=True) for value in top_k(row, at, k)])
        assert ours == pytest.approx(theirs.top_k_accuracy_score(truth, apart, k=k, labels=range(4)))


def top_k(row, at, k):
    names = [f"g{number}" for number in range(len(row))]
    pair = Classified(
        {name: float(number == at) for number, name in enumerate(names)}, dict(zip(names, row, strict=True)), True
    )
    return parse("top_k_accuracy@1")[0].function(pair, k).values()


def test_ties_at_the_last_place_count_in_part():
    assert list(top_k([0.4, 0.3, 0.3, 0.0], 2, 2)) == [0.5]
    assert list(top_k([0.25] * 4, 0, 1)) == [0.25]


def test_balanced_accuracy_of_classes_that_may_all_be_present():
    truth, probability = [[1, 0], [1, 1], [0, 1], [0, 0]], [[0.9, 0.1], [0.2, 0.8], [0.1, 0.3], [0.6, 0.2]]
    rows = rows_of(truth, probability, exclusive=False)
    # g0: recall 1/2, specificity 1/2; g1: recall 1/2, specificity 1.
    assert value("balanced_accuracy", rows) == pytest.approx((0.5 + 0.75) / 2)
    assert value("balanced_accuracy", rows) == value("class_balanced_accuracy@macro", rows)


def test_patients_are_the_mean_the_largest_or_the_majority_of_their_images():
    # Patient a (ill): 0.9, 0.2, 0.2; b (well): 0.4, 0.4, 0.4; c (ill): 0.6, 0.6, 0.1.
    probability = np.array([[0.9, 0.2, 0.2, 0.4, 0.4, 0.4, 0.6, 0.6, 0.1]]).T
    truth = np.array([[1, 1, 1, 0, 0, 0, 1, 1, 1]]).T
    patients = np.repeat(["a", "b", "c"], 3)
    rows = rows_of(truth, probability, exclusive=False, patient=patients)
    # Means .433, .4, .433; largest .9, .4, .6; votes 1/3, 0, 2/3.
    assert value("aggregated@mean-patient:auroc@g0", rows) == 1
    assert value("aggregated@mean-patient:class_sensitivity@g0", rows) == 0
    assert value("aggregated@max-patient:class_sensitivity@g0", rows) == 1
    assert value("aggregated@vote-patient:class_sensitivity@g0", rows) == 0.5
    # Second largest .2, .4, .6: of a one image says so, of c two; third largest .2, .4, .1; no fourth.
    assert value("aggregated@max1-patient:class_sensitivity@g0", rows) == 1
    assert value("aggregated@max2-patient:class_sensitivity@g0", rows) == 0.5
    assert value("aggregated@max3-patient:auroc@g0", rows) == 0
    assert value("aggregated@max4-patient:auroc@g0", rows) == 0.5
    # A patient that is drawn twice counts twice; one that is not drawn, not at all.
    times = np.array([2, 1, 0])[np.searchsorted(["a", "b", "c"], patients)]
    assert value("aggregated@vote-patient:class_sensitivity@g0", rows, times) == 0
    assert np.isnan(value("aggregated@mean-study:auroc@g0", rows))


def test_images_of_a_patient_that_disagree_on_one_class_have_no_mean():
    rows = rows_of([0, 1, 1], said([0, 1, 1], 2), patient=["a", "a", "b"])
    with pytest.raises(ValueError, match=r"1 groups by 'patient' hold cases of several classes, such as 'a'"):
        value("aggregated@mean-patient:balanced_accuracy", rows)
    alike = replace(rows, attributes={"patient": np.repeat(["a", "c", "b"], 2)})
    assert value("aggregated@mean-patient:balanced_accuracy", alike) == 1


def test_predictive_values_are_those_of_the_stated_prevalence():
    # Sensitivity 3/4 and specificity 9/10: at 1 % the PPV is .0075 / (.0075 + .099), the NPV .891 / (.891 + .0025).
    probability = np.array([[0.9, 0.9, 0.9, 0.1, *[0.9], *[0.1] * 9]]).T
    rows = rows_of(np.array([[1] * 4 + [0] * 10]).T, probability, exclusive=False)
    assert value("ppv_at_prevalence@0.01", rows) == pytest.approx(0.0075 / 0.1065)
    assert value("npv_at_prevalence@0.01:g0", rows) == pytest.approx(0.891 / 0.8935)
    # At the prevalence of the test set it is the plain one.
    assert value(f"ppv_at_prevalence@{4 / 14}", rows) == pytest.approx(value("ppv@g0", rows))


def test_parameters_that_cannot_be_meant_are_refused():
    for name, complaint in (
        ("aggregated@median-patient:auroc@macro", r"needs a rule \(mean, max, vote, max3\)"),
        ("aggregated@mean-patient", "needs a rule"),
        ("aggregated@max0-patient:auroc@macro", "needs a rule"),
        ("aggregated@mean-patient:dice", "not computed from probabilities"),
        ("ppv_at_prevalence@5", "between 0 and 1"),
        ("npv_at_prevalence@edema", "between 0 and 1"),
    ):
        with pytest.raises(UsageError, match=complaint):
            parse(name)
