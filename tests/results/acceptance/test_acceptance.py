"""Criteria on bounds: verdicts, their order, what is refused, and that a changed plan is seen."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from medimg_eval.errors import DeviationError, UsageError, UserError
from medimg_eval.results import load_runs
from medimg_eval.results.acceptance import (
    Analysis,
    deviations,
    judge,
    judge_runs,
    make_plan,
    needs,
    read_endpoints,
    read_plan,
    sign,
    verdict_sheet,
    verify,
    verify_all,
    write_plan,
)
from medimg_eval.results.statistics import mean_interval

VALUES = np.linspace(0.8, 1.0, 20)  # mean 0.9
FAST = Analysis(resamples=500)
DATA = {"fingerprint": "f00d", "cases": 20, "patients": 20, "resampled": "patients"}
TASK = {"name": "organs", "data": DATA, "definitions": {"dice": "as usual"}, "labels": {"labels": {"1": "liver"}}}
LIKE_PLANNED = {
    "started": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
    "metrics": ["dice"],
    "signatures": {"dice": "as usual"},
    "task_config": {"_target_": "x.Task", "labels": {"1": "liver"}},
}


def rows(values=VALUES, metric="dice", label="liver", status="present"):
    return [(f"c{i:02d}", f"p{i:02d}", label, metric, float(value), status) for i, value in enumerate(values)]


@pytest.fixture
def made(write_run):
    def make(name="product", values=VALUES, **manifest):
        return load_runs([write_run(name, rows(values), **{**LIKE_PLANNED, **manifest})])[0]

    return make


def test_the_bound_decides_and_not_the_mean(made):
    run = made()
    low = mean_interval(VALUES, np.arange(20), resamples=500).low
    assert 0.86 < low < 0.9
    for bound, verdict in ((low - 1e-6, "met"), (low + 1e-6, "not met"), (0.9, "not met")):
        (found,) = judge(run, read_endpoints({"dice": {"lower": bound}}), FAST)
        assert found.verdict == verdict
        assert found.low == pytest.approx(low)
    sheet = verdict_sheet(run, [found])
    assert sheet.frame()["verdict"].tolist() == ["not met"]


def test_values_without_an_interval_are_not_met(made):
    (found,) = judge(made(values=VALUES[:3]), read_endpoints({"dice": {"lower": 0.1}}), FAST)
    assert (found.verdict, found.reason) == ("not met", "3 patients are too few for an interval")
    (found,) = judge(made("same", np.ones(9)), read_endpoints({"dice": {"lower": 0.1}}), FAST)
    assert found.verdict == "not met"
    assert "all values are equal" in found.reason


def test_labels_groups_and_differences_to_another_model(write_run):
    sex = {f"c{i:02d}": {"sex": "fm"[i % 2]} for i in range(20)}
    both = rows() + rows(VALUES - 0.5, label="tumour")
    other = rows(VALUES - 0.02) + rows(VALUES - 0.5, label="tumour")
    product, rival = load_runs([write_run("product", both, sex), write_run("rival", other, sex)])
    asked = [
        {"metric": "dice", "lower": 0.86, "label": "liver"},
        {"metric": "dice", "lower": 0.3, "where": {"sex": "m"}},
        {"metric": "dice", "lower": -0.01, "baseline": "Rival"},
    ]
    found = judge(product, read_endpoints(asked), FAST, [product, rival])
    assert [one.met for one in found] == [True, True, False]
    assert found[1].n == 10
    # Over both labels the mean difference is 0.01 throughout, so that there is no spread to take an interval of.
    assert found[2].value == pytest.approx(0.01)
    with pytest.raises(UsageError, match="has label 'spleen'"):
        judge(product, read_endpoints([{"metric": "dice", "lower": 0, "label": "spleen"}]), FAST)
    with pytest.raises(UsageError, match="no case has sex 'x'"):
        judge(product, read_endpoints([{"metric": "dice", "lower": 0, "where": {"sex": "x"}}]), FAST)
    with pytest.raises(UsageError, match="no other run is of model 'Nobody'"):
        judge(product, read_endpoints([{"metric": "dice", "lower": 0, "baseline": "Nobody"}]), FAST, [product])
    # A difference that varies: a margin of 0.05 is shown, one of 0 is not.
    noisy = rows(VALUES + np.tile([0.03, -0.03], 10))
    rival = load_runs([write_run("noisy", noisy)])[0]
    single = load_runs([write_run("single", rows())])[0]
    for margin, met in ((-0.05, True), (0.0, False)):
        asked = read_endpoints([{"metric": "dice", "lower": margin, "baseline": "Noisy"}])
        assert judge(single, asked, FAST, [single, rival])[0].met is met


@pytest.fixture
def three(write_run):
    """Of three metrics whose intervals have half widths of about 0.026: the 95 % bounds are near 0.874."""
    names = ("dice", "iou", "recall")
    return load_runs([write_run("product", [row for name in names for row in rows(metric=name)])])[0]


@pytest.mark.parametrize(
    ("order", "bounds", "verdicts"),
    [
        ("all", (0.87, 0.95, 0.87), ["met", "not met", "met"]),
        ("sequence", (0.87, 0.95, 0.87), ["met", "not met", "not judged"]),
        # The bound at 95 % is 0.874, at 97.5 % 0.871, at 98.3 % 0.870.
        ("bonferroni", (0.85, 0.873, 0.85), ["met", "not met", "met"]),
        ("holm", (0.85, 0.873, 0.85), ["met", "met", "met"]),
        ("holm", (0.85, 0.95, 0.873), ["met", "not met", "not met"]),
    ],
)
def test_several_endpoints_are_judged_in_their_order(three, order, bounds, verdicts):
    names = ("dice", "iou", "recall")
    asked = read_endpoints({name: {"lower": bound} for name, bound in zip(names, bounds, strict=True)})
    found = judge(three, asked, Analysis(resamples=4_000, order=order))
    assert [one.verdict for one in found] == verdicts


def test_secondary_endpoints_wait_and_decide_nothing(three):
    asked = {"dice": {"lower": 0.95}, "iou": {"lower": 0.5, "secondary": True}}
    assert [one.verdict for one in judge(three, read_endpoints(asked), FAST)] == ["not met", "not judged"]
    asked = {"iou": {"lower": 0.99, "secondary": True}, "dice": {"lower": 0.5}}
    (judgement,) = judge_runs([three], accept=asked)
    assert [one.verdict for one in judgement.verdicts] == ["not met", "met"]
    assert judgement.accepted
    with pytest.raises(UsageError, match="all endpoints are secondary"):
        judge(three, read_endpoints({"iou": {"lower": 0.9, "secondary": True}}), FAST)


@pytest.mark.parametrize(
    ("accept", "told"),
    [
        ({"dice": 0.85}, "expected a bound, such as dice"),
        ({"dice": {}}, "has no bound"),
        ({"dice": {"lowr": 1}}, "has no key 'lowr'; did you mean 'lower'"),
        ({"dice": {"lower": "high"}}, "expected a number"),
        ({"dice": {"upper": 0.9}}, "of dice higher is better, so its lower bound must be given"),
        ({"hd95": {"lower": 5}}, "of hd95 lower is better, so its upper bound must be given"),
        ({"dice": {"lower": 0.5, "where": "sex"}}, "expected an attribute and its value"),
        (["dice"], "names no metric"),
        ("dice", "expected such as"),
    ],
)
def test_criteria_that_cannot_be_meant_are_refused(accept, told):
    with pytest.raises(UsageError, match=told):
        read_endpoints(accept)


def test_names_of_papers_are_understood():
    assert read_endpoints({"DSC": {"lower": 0.5}})[0].metric == "dice"


@pytest.fixture
def plan(tmp_path):
    fixed = make_plan(TASK, read_endpoints({"dice": {"lower": 0.85}}), FAST, title="Trial", product="Product")
    write_plan(fixed, tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_a_run_that_is_as_planned_is_judged(plan, made):
    (judgement,) = judge_runs([made()], plan=plan)
    assert judgement.accepted
    assert judgement.to_json()["accepted"] is True
    assert any("not signed" in note for note in judgement.notes)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"data_fingerprint": "beef"}, "the data are others: their fingerprint is beef, planned was f00d"),
        ({"cases": 19, "predicted": 19}, "19 cases were judged, planned were 20"),
        ({"predicted": 18}, "2 of 20 cases have no answer"),
        ({"failed_cases": 1}, "1 cases failed"),
        ({"partial": "the first 20 of 30 cases"}, "the run is partial"),
        ({"resampled": "cases"}, "intervals resample cases"),
        ({"task": "brain"}, "the task is 'brain'"),
        ({"model": "Other"}, "the model is 'Other', planned was 'Product'"),
        ({"signatures": {"dice": "otherwise"}}, "dice is computed by 'otherwise', planned was 'as usual'"),
        ({"metrics": ["iou"]}, "the run was not scored by dice"),
        ({"task_config": {"labels": {"1": "spleen"}}}, r"labels are \{'1': 'spleen'\}"),
        ({"started": "2020-01-01T00:00:00+00:00"}, "before the plan was fixed"),
    ],
)
def test_each_deviation_is_named_and_the_run_refused(plan, made, change, told):
    (judgement,) = judge_runs([made(**change)], plan=plan)
    assert judgement.refused
    assert not judgement.accepted
    assert judgement.verdicts == ()
    (sentence,) = judgement.deviations
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(sentence)


def test_another_criterion_beside_the_plan_is_a_deviation(plan, made):
    run = made()
    assert not judge_runs([run], plan=plan, accept={"dice": {"lower": 0.85}})[0].refused
    (judgement,) = judge_runs([run], plan=plan, accept={"dice": {"lower": 0.8}})
    assert "accept= asks for" in judgement.deviations[0]


def test_the_criteria_of_a_task_hold_where_nothing_else_is_said(made):
    run = made(task_config={"acceptance": {"dice": {"lower": 0.95}}})
    assert not judge_runs([run])[0].accepted
    assert judge_runs([run], accept={"dice": {"lower": 0.5}})[0].accepted
    assert judge_runs([made("plain", task_config={})]) == []


def test_a_changed_plan_is_seen(plan, made):
    held = json.loads(plan.read_text())
    held["content"]["accept"][0]["lower"] = 0.5
    plan.write_text(json.dumps(held))
    with pytest.raises(DeviationError, match="was changed after it was written"):
        judge_runs([made()], plan=plan)
    plan.write_text("{}")
    with pytest.raises(UserError, match="is no plan"):
        read_plan(plan)


def test_a_shared_secret_signs(plan, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery staple\n")
    fixed = read_plan(plan)
    signature = sign(fixed.hash, secret, by="Jane Doe", meaning="approval")
    assert "signed by Jane Doe (approval)" in verify(fixed.hash, signature, secret)
    assert "not checked" in verify(fixed.hash, signature)
    secret.write_text("another secret of enough length")
    with pytest.raises(DeviationError, match="not by the secret"):
        verify(fixed.hash, signature, secret)
    secret.write_text("short")
    with pytest.raises(UserError, match="at least 16"):
        sign(fixed.hash, secret, by="Jane Doe")


@pytest.fixture
def keys(tmp_path):
    """A private and a public key of one pair, and another pair."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    pairs = []
    for number in range(2):
        key = Ed25519PrivateKey.generate()
        private, public = tmp_path / f"key{number}.pem", tmp_path / f"pub{number}.pem"
        private.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
        public.write_bytes(key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo))
        pairs.append((private, public))
    return pairs


def test_an_ed25519_key_signs_and_every_change_shows(plan, keys, made):
    (private, public), (other, stranger) = keys
    fixed = read_plan(plan)
    signature = sign(fixed.hash, private, by="Jane Doe")
    assert f"checked with {public}" in verify(fixed.hash, signature, public)
    assert "unchanged since" in verify(fixed.hash, signature)
    with pytest.raises(DeviationError, match="was not signed by the key"):
        verify(fixed.hash, signature, stranger)
    for change in ({"by": "John Doe"}, {"signed": "2020-01-01T00:00:00+00:00"}, {"meaning": "approval"}):
        with pytest.raises(DeviationError, match="does not fit"):
            verify(fixed.hash, {**signature, **change}, public)
    with pytest.raises(DeviationError, match="does not fit"):
        verify("sha256:0", signature, public)
    write_plan(fixed.signed(signature), plan)
    (judgement,) = judge_runs([made()], plan=plan, keys=[public])
    assert judgement.accepted
    assert any("Signed by Jane Doe" in note for note in judgement.notes)
    # Keys must all have signed; a plan whose signatures were taken away is not signed by anyone's.
    both = read_plan(plan).signed(sign(fixed.hash, other, by="Ed Itor", meaning="review"))
    assert len(verify_all(both.hash, both.signatures, [public, stranger])) == 2
    assert len(verify_all(both.hash, both.signatures, [public])) == 2
    with pytest.raises(DeviationError, match="was not signed by the key .*; it was signed by Jane Doe"):
        verify_all(fixed.hash, [signature], [public, stranger])
    with pytest.raises(DeviationError, match="it was signed by nobody"):
        verify_all(fixed.hash, [], [public])
    later = fixed.signed({**signature, "signed": "2999-01-01T00:00:00+00:00"})
    assert any("before the plan was fixed at 2999" in one for one in deviations(later, made("again")))


def test_needs_of_a_pilot_and_of_what_is_stated(made):
    run = made()
    asked = read_endpoints({"dice": {"lower": 0.85}})
    (need,) = needs(asked, FAST, power=0.8, expect={}, pilot=[run])
    assert need.design.expected == pytest.approx(0.9)
    assert need.design.sd == pytest.approx(VALUES.std(ddof=1))
    assert need.cautious > need.units
    (stated,) = needs(asked, FAST, power=0.8, expect={"dice": {"expected": 0.9, "sd": float(VALUES.std(ddof=1))}})
    assert stated.units == need.units
    (worst,) = needs(asked, FAST, power=0.8, expect={"DSC": {"expected": 0.9, "range": [0, 1]}})
    assert worst.units > 10 * need.units
    with pytest.raises(UsageError, match="no number of cases would show it"):
        needs(read_endpoints({"dice": {"lower": 0.95}}), FAST, power=0.8, expect={}, pilot=[run])
    with pytest.raises(UsageError, match="sd= is missing"):
        needs(asked, FAST, power=0.8, expect={"dice": {"expected": 0.9}})
    with pytest.raises(UsageError, match="got 'iou'"):
        needs(asked, FAST, power=0.8, expect={"iou": {"expected": 0.9}})


def test_cases_of_one_patient_are_no_further_evidence(write_run):
    alone = load_runs([write_run("alone", rows())])[0]
    twice = [(f"{case}-{k}", patient, *rest) for case, patient, *rest in rows() for k in "ab"]
    again = load_runs([write_run("again", twice)])[0]
    asked = read_endpoints({"dice": {"lower": 0.85}})
    found = [needs(asked, FAST, power=0.8, expect={}, pilot=[run])[0] for run in (alone, again)]
    assert found[0].units == found[1].units
    assert [one.cases for one in found] == [1, 2]


def test_endpoints_that_must_all_be_met_are_planned_for_together(three):
    asked = read_endpoints({"dice": {"lower": 0.85}, "iou": {"lower": 0.85}})
    both = needs(asked, Analysis(order="all"), power=0.8, expect={}, pilot=[three])
    assert {one.power for one in both} == {0.9}
    each = needs(asked, Analysis(order="holm"), power=0.8, expect={}, pilot=[three])
    assert {one.design.level for one in each} == {0.975}
