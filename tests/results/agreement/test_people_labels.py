"""Labels against people's: by hand, by scikit-learn, by MOSAIC's own evaluation, and at the edges."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score, f1_score, precision_score, recall_score

from medimg_eval.errors import UserError
from medimg_eval.results.agreement import Compared, LabelValues, agreement_with_people
from tests.helpers.authors import load_functions, require_clone

VALUES = LabelValues(["1", "2", "0", "-1"], positive=["1"], uncertain=["0"], blank=["-1"])


def sheet(people, labels, values=VALUES, patients=None, **more):
    patients = [str(place) for place in range(len(people))] if patients is None else patients
    found = agreement_with_people(
        people,
        labels,
        values,
        patients=patients,
        compared=Compared("people", "model", "r.csv", ["Cost."]),
        **{"resamples": 200, **more},
    )
    return found, found.frame().set_index(["label", "statistic"])


def drawn(seed, size, unread=0.0):
    """Values of people, and a model's that are theirs in two of three."""
    rng = np.random.default_rng(seed)
    people = rng.choice(VALUES.every, size)
    model = np.where(rng.random(size) < 0.67, people, rng.choice(VALUES.every, size))
    return people, np.where(rng.random(size) < unread, "", model)


def test_numbers_by_hand():
    people = [{"Edema": value} for value in ("1", "1", "2", "0", "-1", "-1")]
    labels = [{"Edema": value} for value in ("1", "2", "2", "1", "-1", "")]
    _, frame = sheet(people, labels)
    value = frame["value"]["Edema"]
    assert value["agreement"] == pytest.approx(3 / 6)
    # By chance, of 1 2 0 -1 and unread: people 2 1 1 2 0 of 6, the model 2 2 0 1 1.
    assert value["kappa"] == pytest.approx((3 / 6 - 8 / 36) / (1 - 8 / 36))
    assert (value["sensitivity"], value["ppv"]) == (0.5, 0.5)
    assert value["f1"] == pytest.approx(2 * 1 / (2 + 2))
    assert value["f1_plus"] == pytest.approx(2 * 2 / (3 + 2))
    # Of 1, 2 and 0, which people gave 2, 1 and 1 times: F1 1/2, 2/3 and 0.
    assert value["weighted_f1"] == pytest.approx((2 * 1 / 2 + 1 * 2 / 3 + 0) / 4)
    assert frame["value"]["mean"]["f1"] == value["f1"]


def test_numbers_are_scikit_learns():
    people, model = drawn(0, 300, unread=0.1)
    _, frame = sheet([{"A": one} for one in people], [{"A": one} for one in model])
    value, model = frame["value"]["A"], np.where(model == "", "unread", model)
    assert value["kappa"] == pytest.approx(cohen_kappa_score(people, model))
    assert value["sensitivity"] == pytest.approx(recall_score(people == "1", model == "1"))
    assert value["ppv"] == pytest.approx(precision_score(people == "1", model == "1"))
    assert value["f1"] == pytest.approx(f1_score(people == "1", model == "1"))
    sides = (np.isin(one, ("1", "0")) for one in (people, model))
    assert value["f1_plus"] == pytest.approx(f1_score(*sides))
    assert value["weighted_f1"] == pytest.approx(f1_score(people, model, average="weighted", labels=["0", "1", "2"]))


def test_a_patient_is_drawn_whole_and_intervals_hold_the_value():
    people, model = drawn(1, 60)
    rows = ([{"A": one} for one in people], [{"A": one} for one in model])
    _, single = sheet(*rows)
    # Each report four times: of the same patients as much is known as before, of reports it would seem more.
    fourfold = [side * 4 for side in rows]
    patients = [str(place) for place in range(60)] * 4
    _, clustered = sheet(*fourfold, patients=patients)
    _, naive = sheet(*fourfold)
    width = {
        name: (one["high"] - one["low"])["A"]["agreement"]
        for name, one in {"single": single, "clustered": clustered, "naive": naive}.items()
    }
    assert width["clustered"] == pytest.approx(width["single"])
    assert width["naive"] < 0.7 * width["clustered"]
    held = clustered.dropna()
    assert ((held["low"] <= held["value"]) & (held["value"] <= held["high"])).all()


def test_what_people_left_out_is_not_judged_and_what_is_undefined_stays_open():
    people = [{"A": "1"}, {"A": "2", "B": "-1"}, {"B": "-1"}]
    labels = [{"A": "1", "B": "1"}, {"A": "2", "B": "-1"}, {"A": "1", "B": "-1"}]
    found, frame = sheet(people, labels)
    assert frame["value"]["A"]["agreement"] == 1
    assert frame["value"]["B"]["agreement"] == 1
    assert np.isnan(frame["value"]["B"][["kappa", "sensitivity", "f1", "weighted_f1"]]).all()
    assert frame["value"]["mean"]["f1"] == frame["value"]["A"]["f1"] == 1
    assert frame["low"].isna().all()  # of three patients there is no interval
    assert [span.text for cell in found.layout().lines[0].cells[:2] for span in cell] == ["2", "1 + 0"]
    assert [span.text for cell in found.layout().lines[1].cells[:2] for span in cell] == ["2", "0 + 0"]
    with pytest.raises(UserError, match="people labelled none"):
        sheet([{}], [{"A": "1"}])


def test_grades_have_agreement_kappa_and_weighted_f1():
    grades = LabelValues(["none", "mild", "severe"])
    _, frame = sheet([{"S": "mild"}, {"S": "none"}], [{"S": "mild"}, {"S": "severe"}], grades)
    assert list(frame.loc["S"].index) == ["agreement", "kappa", "weighted_f1"]
    assert frame["value"]["S"]["weighted_f1"] == 0.5


@pytest.mark.slow
def test_f1_is_that_of_mosaics_own_evaluation():
    clone = require_clone("aliswh/mosaic")
    names = ("one_cls_f1_score", "weighted_by_support_f1_score", "get_F1_scores")
    theirs = load_functions(clone / "mosaic/core/evals.py", *names, f1_score=f1_score, np=np, pd=pd)["get_F1_scores"]
    columns = {name: drawn(seed, 200) for seed, name in enumerate(("A", "B", "C"))}
    columns["D"] = (np.full(200, "-1"), columns["A"][1])  # which people never state
    truth, read = (pd.DataFrame({name: sides[place] for name, sides in columns.items()}) for place in (0, 1))
    scores, _, weighted = theirs(truth.astype(int), read.astype(int))
    _, frame = sheet(truth.to_dict("records"), read.to_dict("records"), resamples=20)
    for name in columns:
        assert frame["value"][name]["weighted_f1"] == pytest.approx(weighted[name][0], nan_ok=True)
        if name != "D":
            assert frame["value"][name]["f1"] == pytest.approx(scores[name][1])
    assert frame["value"]["mean"]["weighted_f1"] == pytest.approx(np.nanmean(weighted))
