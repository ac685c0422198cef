"""Which test a comparison makes, by patients, of right answers and of summaries; margins; a CSV of scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import compare, load_runs, load_scores
from medimg_eval.results.comparison.pairwise import CompareSettings
from medimg_eval.results.statistics.effect_sizes import detectable_difference, effects
from medimg_eval.results.statistics.hypothesis_tests import benjamini_hochberg, correlated_areas, mcnemar, sign_flip

NAN = float("nan")


def rows_of(values, metric="dice", label="a", per_patient=1, status="present"):
    return [
        (f"c{i:03}", f"p{i // per_patient:03}", label, metric, value, status)
        for i, value in enumerate(values)
        if value is not None
    ]


def two_runs(write_run, one, two, **options):
    return load_runs(
        [
            write_run("a", rows_of(one, **options), model="A"),
            write_run("b", rows_of(two, **options), model="B"),
        ]
    )


def noted(comparison):
    return " ".join(comparison.sheets[0].content.footnotes)


@pytest.fixture
def pairs():
    rng = np.random.default_rng(0)
    return np.round(rng.uniform(0.5, 0.9, 24), 3), np.round(rng.uniform(0.45, 0.9, 24), 3)


def test_values_of_patients_with_one_case_are_tested_by_wilcoxon(write_run, pairs):
    frame = compare(two_runs(write_run, *pairs), "dice", baseline="B").frame()
    assert frame["test"].tolist() == ["wilcoxon"]
    assert frame["p"][0] == scipy.stats.wilcoxon(np.round(pairs[0] - pairs[1], 12)).pvalue


def test_values_of_patients_with_several_cases_are_tested_by_patients(write_run, pairs):
    comparison = compare(two_runs(write_run, *pairs, per_patient=2), "dice", baseline="B")
    row = comparison.frame().iloc[0]
    difference, patients = pairs[0] - pairs[1], np.arange(24) // 2
    assert (row["test"], row["n"], row["patients"]) == ("permutation", 24, 12)
    assert row["p"] == sign_flip(difference, patients).two_sided
    size = effects(difference, patients)
    assert row[["mean_difference", "low", "high"]].tolist() == pytest.approx(list(size.mean))
    assert row[["d_z", "d_z_low", "d_z_high"]].tolist() == pytest.approx(list(size.d_z))
    assert row[["superiority", "superiority_low", "superiority_high"]].tolist() == pytest.approx(list(size.superiority))
    assert row["rank_biserial"] == pytest.approx(size.rank_biserial.value)
    assert row["detectable"] == pytest.approx(detectable_difference(difference, patients))
    assert "all differences of a patient change their sign together" in noted(comparison)
    assert "finds with 80 % power" in noted(comparison)


def test_both_directions_of_a_pair_mirror_each_other(write_run, pairs):
    frame = compare(two_runs(write_run, *pairs, per_patient=3), "dice").frame()
    one, two = frame.iloc[0], frame.iloc[1]
    assert one["mean_difference"] == -two["mean_difference"]
    assert (one["low"], one["high"]) == (-two["high"], -two["low"])
    assert one["superiority"] == pytest.approx(1 - two["superiority"])
    assert (one["superiority_low"], one["superiority_high"]) == pytest.approx(
        (1 - two["superiority_high"], 1 - two["superiority_low"])
    )
    found = sign_flip(pairs[0] - pairs[1], np.arange(24) // 3)
    assert {one["p"], two["p"]} == {found.greater, found.less}


def test_right_and_wrong_answers_are_tested_by_mcnemar(write_run):
    first, second = [1.0] * 14 + [0.0] * 6, [1.0] * 6 + [0.0] * 12 + [1.0] * 2
    runs = two_runs(write_run, first, second, metric="accuracy", status="right")
    comparison = compare(runs, "accuracy")
    frame = comparison.frame()
    assert frame["test"].tolist() == ["mcnemar", "mcnemar"]
    assert frame["p"].tolist() == [mcnemar(first, second).greater, mcnemar(first, second).less]
    assert comparison.sheets[0].content.stubs == ["Model", "Mean"]
    assert "one-sided McNemar test (mid-p)" in noted(comparison)
    # Credit for a part of an answer is no longer right or wrong.
    with pytest.raises(UsageError, match="test=mcnemar is for values of 1 .* accuracy on Organs has others"):
        compare(two_runs_again(write_run, [0.25, *first[1:]], second), "accuracy", how=CompareSettings(test="mcnemar"))


def two_runs_again(write_run, one, two):
    return load_runs(
        [
            write_run("a2", rows_of(one, "accuracy", status="right"), model="A"),
            write_run("b2", rows_of(two, "accuracy", status="right"), model="B"),
        ]
    )


def test_right_and_wrong_answers_of_patients_are_flipped_together(write_run):
    first, second = [1.0] * 14 + [0.0] * 6, [1.0] * 6 + [0.0] * 12 + [1.0] * 2
    runs = two_runs(write_run, first, second, metric="accuracy", status="right", per_patient=4)
    comparison = compare(runs, "accuracy", baseline="B")
    assert comparison.frame()["p"][0] == sign_flip(np.subtract(first, second), np.arange(20) // 4).two_sided
    assert "McNemar test on the cases that both have a value for, in which all differences of a patient" in noted(
        comparison
    )
    # Five patients: 2 of 32 patterns are the least there can be.
    assert "with 5 patients no p-value of this test can be below 0.062 before correction." in noted(comparison)


def test_non_inferiority_looks_at_the_worse_side(write_run):
    rng = np.random.default_rng(1)
    base = rng.uniform(1, 3, 60)
    slightly = base + rng.normal(0.1, 0.1, 60)  # of a distance: a little worse
    runs = two_runs(write_run, slightly, base, metric="hd95")
    frame = compare(runs, "hd95", baseline="B", how=CompareSettings(margin=0.2)).frame()
    size = effects(slightly - base, np.arange(60))
    assert frame["bound"][0] == pytest.approx(-size.most)
    assert frame["bound"][0] == pytest.approx(-0.12, abs=0.03)
    assert frame["non_inferior"].tolist() == [True]
    comparison = compare(runs, "hd95", baseline="B", how=CompareSettings(margin=0.05))
    assert comparison.frame()["non_inferior"].tolist() == [False]
    assert "0 of 1 models are non-inferior at a margin of 0.05: the one-sided 95 % lower bound" in noted(comparison)
    assert comparison.sheets[0].content.lines[0].cells[0][-1].text == "not shown non-inferior"
    # The other way round the better one is no worse by any margin.
    frame = compare(runs, "hd95", how=CompareSettings(margin=0.05)).frame().set_index("model")
    assert frame["non_inferior"].to_dict() == {"A": False, "B": True}
    assert compare(runs, "hd95").frame()["non_inferior"].isna().all()


def test_benjamini_and_hochberg_on_request(write_run, pairs):
    runs = two_runs(write_run, *pairs)
    comparison = compare(runs, "dice", how=CompareSettings(correction="bh"))
    frame = comparison.frame()
    assert frame["corrected_p"].tolist() == pytest.approx(benjamini_hochberg(frame["p"]).tolist())
    assert "corrected by Benjamini and Hochberg over all 2 ordered pairs" in noted(comparison)


def probabilities(rng, truth, strength):
    return np.clip(0.3 + strength * truth + rng.normal(0, 0.25, truth.shape), 0, 1)


def classified(scores, truth, per_patient=1, labels=("cyst", "mass")):
    found = []
    for place, label in enumerate(labels):
        for i, (value, present) in enumerate(zip(scores[place], truth[place], strict=True)):
            status = "present" if present else "absent"
            found.append((f"c{i:03}", f"p{i // per_patient:03}", label, "probability", float(value), status))
    return found


@pytest.fixture
def classifiers(write_run):
    rng = np.random.default_rng(4)
    truth = rng.random((2, 90)) < 0.4
    scores = [probabilities(rng, truth, strength) for strength in (0.35, 0.15)]

    def made(**options):
        folders = [
            write_run(f"{name}{options}", classified(some, truth, **options), model=name)
            for name, some in zip("AB", scores, strict=True)
        ]
        return load_runs(folders)

    return made, scores, truth


@pytest.mark.parametrize("per_patient", [1, 3])
def test_areas_under_roc_curves_are_tested_by_delong(classifiers, per_patient):
    made, scores, truth = classifiers
    runs = made(per_patient=per_patient)
    comparison = compare(runs, "auroc@macro", baseline="B")
    row = comparison.frame().iloc[0]
    flat = np.stack([some.ravel() for some in scores])
    patients, labels = np.tile(np.arange(90) // per_patient, 2), np.repeat(["cyst", "mass"], 90)
    gap = correlated_areas(flat, truth.ravel(), patients, labels).difference(0, 1)
    assert (row["test"], row["n"], row["patients"]) == ("delong", 90, 90 // per_patient)
    assert row["mean_difference"] == pytest.approx(gap.value)
    assert row["p"] == pytest.approx(gap.p.two_sided)
    assert row["low"] == pytest.approx(gap.value - 1.959964 * gap.error, rel=1e-5)
    assert ("(Obuchowski)" in noted(comparison)) == (per_patient > 1)
    # The permutation of patients and the bootstrap find much the same.
    other = compare(runs, "auroc@macro", baseline="B", how=CompareSettings(test="permutation"))
    found = other.frame().iloc[0]
    assert found["test"] == "permutation"
    assert found["mean_difference"] == pytest.approx(gap.value)
    assert found["p"] < 0.01
    assert (found["low"], found["high"]) == pytest.approx((row["low"], row["high"]), abs=0.02)
    assert found["detectable"] == pytest.approx(row["detectable"], rel=0.2)


def test_areas_of_labels_and_of_one_class(classifiers):
    made, scores, truth = classifiers
    frame = compare(made(), "auroc@macro", by="label", baseline="B").frame()
    gaps = [
        correlated_areas([some[place] for some in scores], truth[place], np.arange(90)).difference(0, 1)
        for place in range(2)
    ]
    assert frame["label"].tolist() == ["cyst", "mass"]
    assert frame["p"].tolist() == pytest.approx([gap.p.two_sided for gap in gaps])
    alone = compare(made(per_patient=2), "auroc@cyst", baseline="B")
    assert alone.frame()["mean_difference"][0] == pytest.approx(gaps[0].value)
    assert alone.frame()["test"][0] == "delong"
    # Pooled rows are no mean of areas.
    assert compare(made(per_patient=5), "auroc@micro", baseline="B").frame()["test"][0] == "permutation"


def test_runs_that_disagree_on_the_truth_are_not_compared(write_run, classifiers):
    _, scores, truth = classifiers
    turned = truth.copy()
    turned[0, 0] = not turned[0, 0]
    runs = load_runs(
        [
            write_run("x", classified(scores[0], truth), model="A"),
            write_run("y", classified(scores[1], turned), model="B"),
        ]
    )
    with pytest.raises(UserError, match="judged by different truths of 'cyst' in case 'c000'"):
        compare(runs, "auroc@macro")


def test_a_summary_of_values_is_swapped_per_patient(write_run):
    rng = np.random.default_rng(0)
    sexes = {f"c{i:03}": {"sex": "FM"[i % 2]} for i in range(30)}
    base = rng.uniform(0.4, 0.9, 30)
    folders = [
        write_run("a", rows_of(base + 0.05, per_patient=2), sexes, model="A"),
        write_run("b", rows_of(base - 0.05 * rng.random(30), per_patient=2), sexes, model="B"),
    ]
    comparison = compare(load_runs(folders), "es_dice@sex", how=CompareSettings(resamples=200))
    frame = comparison.frame()
    assert frame["test"].tolist() == ["permutation"] * 2
    assert frame["patients"].tolist() == [15, 15]
    # Only with no patient swapped is the difference as large, and 200 draws never leave all of 15 in place.
    assert frame["p"].tolist() == pytest.approx([1 / 201, 1.0])
    assert 0 < frame["low"][0] < frame["mean_difference"][0] < frame["high"][0]
    assert comparison.sheets[0].content.stubs == ["Model", "Value"]
    assert "the two models' answers to a patient are swapped (200 random patterns, seed 0)" in noted(comparison)


def test_too_few_random_patterns_for_many_models_are_said(write_run):
    rng = np.random.default_rng(0)
    folders = [write_run(name, rows_of(rng.random(40), per_patient=2), model=name.upper()) for name in "abcd"]
    runs = load_runs(folders)
    said = noted(compare(runs, "dice", how=CompareSettings(resamples=100)))
    assert "with 100 random patterns no p-value can be below 0.0099 before correction, and none of 12 tests" in said
    assert "random patterns no p-value" not in noted(compare(runs, "dice"))
    assert "random patterns no p-value" not in noted(
        compare(runs, "dice", how=CompareSettings(resamples=100, correction="bh"))
    )


def test_a_summary_that_rests_on_facts_of_a_model_is_resampled_instead(write_run):
    facts = {"parameters": 3e7, "gflops": 60.0, "frames_per_second": 100.0, "iou_p10": 0.5, "iou_p90": 0.8}
    rng = np.random.default_rng(0)
    base = rng.uniform(0.5, 0.8, 20)
    folders = [
        write_run("a", rows_of(base, "iou"), model="A", facts=facts),
        write_run("b", rows_of(base, "iou"), model="B", facts=facts | {"parameters": 9e7}),
    ]
    comparison = compare(load_runs(folders), "u_score", baseline="B", how=CompareSettings(resamples=100))
    row = comparison.frame().iloc[0]
    assert row["test"] == "bootstrap"
    assert row["p"] == pytest.approx(2 / 101)  # the lighter of two equal models is better in every resample
    assert "which cannot be swapped" in noted(comparison)


def test_tests_that_do_not_fit_are_refused(write_run, pairs, classifiers):
    runs = two_runs(write_run, *pairs)
    with pytest.raises(UsageError, match="test=delong is for areas under ROC curves, and dice has values of cases"):
        compare(runs, "dice", how=CompareSettings(test="delong"))
    with pytest.raises(UsageError, match="test is invalid: expected one of .*auto.*; did you mean 'wilcoxon'"):
        compare(runs, "dice", how=CompareSettings(test="wilcox"))
    with pytest.raises(UsageError, match="correction must be holm or bh, got 'bonferroni'"):
        compare(runs, "dice", how=CompareSettings(correction="bonferroni"))
    with pytest.raises(UsageError, match="margin must be a number above 0, in the metric's unit, got -0.1"):
        compare(runs, "dice", how=CompareSettings(margin=-0.1))
    with pytest.raises(UsageError, match="resamples must be a whole number"):
        compare(runs, "dice", how=CompareSettings(resamples=0))
    for setting in ({"test": "permutation"}, {"correction": "bh"}, {"margin": 0.1}):
        with pytest.raises(UsageError, match=f"leave out {next(iter(setting))}="):
            compare(runs, "dice", by="sex", how=CompareSettings(**setting))
    summaries = classifiers[0]()
    with pytest.raises(UsageError, match="auroc@macro is one value for a whole run; take test=permutation"):
        compare(summaries, "auroc@macro", how=CompareSettings(test="wilcoxon"))
    with pytest.raises(UsageError, match="the table command with by=sex"):
        compare(summaries, "auroc@macro", by="sex")
    with pytest.raises(UsageError, match="No finished run has scores of probability, which auroc@macro"):
        compare(runs, "auroc@macro")
    with pytest.raises(UsageError, match="frechet_distance judges all answers as one set"):
        compare(runs, "frechet_distance")


def test_scores_from_a_csv_get_all_of_it(tmp_path):
    file = tmp_path / "scores.csv"
    lines = ["case,patient,model,metric,value"]
    rng = np.random.default_rng(0)
    for i in range(20):
        base = rng.uniform(1, 2)
        lines += [f"c{i},p{i // 2},A,my_error,{base}", f"c{i},p{i // 2},B,my_error,{base + 0.3 + rng.random()}"]
    file.write_text("\n".join(lines), encoding="utf-8")
    comparison = compare(load_scores(file, direction={"my_error": "lower"}), "my_error", baseline="B")
    row = comparison.frame().iloc[0]
    assert (row["test"], row["p"], row["superiority"]) == ("permutation", 2 / 1024, 1.0)
    assert comparison.sheets[0].content.lines[0].cells[0][0].style == "best"


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        ([0.9], [0.8], "with 1 patient no p-value of this test can be below 0.500"),
        ([0.9, 0.8], [0.9, 0.8], "up to 2 cases without a difference"),
    ],
)
@pytest.mark.parametrize("test", ["auto", "permutation"])
def test_small_and_equal_data_are_said(write_run, one, two, said, test):
    comparison = compare(two_runs(write_run, one, two), "dice", how=CompareSettings(test=test, margin=0.01))
    assert said in noted(comparison)
    assert not comparison.frame()["significant"].any()
    if one[-1] is None:
        assert math.isnan(comparison.frame()["p"][0])
        assert comparison.frame()["non_inferior"].isna().all()
