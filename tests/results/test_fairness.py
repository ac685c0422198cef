"""How unequal groups are: by hand, beside FairSeg's scores and plain loops, and by simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import medimg_eval
from medimg_eval.errors import UsageError, UserError
from medimg_eval.metrics import get
from medimg_eval.results import load_scores, to_latex, to_markdown, write_comparison
from medimg_eval.results.fairness import judge_fairness
from medimg_eval.results.runs.subsets import Part
from medimg_eval.results.statistics.disparities import (
    DisparitySettings,
    disparity,
    divide,
    equity,
    gap_bounds,
    largest,
    odds,
    ratio,
    ratio_bounds,
    spread,
    worst,
)
from medimg_eval.results.statistics.summaries import rows_of
from medimg_eval.results.table.cells import Settings, make_cell

QUICK = DisparitySettings(resamples=400)


def run_of(tmp_path, rows, columns="case,patient,model,metric,value,sex", name="s.csv", **better):
    """A run from lines of a CSV."""
    file = tmp_path / name
    lines = [",".join(map(str, row)) for row in rows]
    file.write_text("\n".join([columns, *lines]), encoding="utf-8")
    return load_scores(file, direction=better or None)[0]


def plain(tmp_path, groups, metric="dice", **better):
    """A run with a patient for each case: group -> values."""
    cases = [(sex, value) for sex, values in groups.items() for value in values]
    rows = [(f"c{at}", f"p{at}", "A", metric, value, sex) for at, (sex, value) in enumerate(cases)]
    return run_of(tmp_path, rows, **better)


@pytest.fixture
def three(tmp_path):
    """Means 0.8 of F, 0.6 of M and 0.4 of X, which has only four cases."""
    return plain(tmp_path, {"F": [0.9, 0.7] * 6, "M": [0.7, 0.5] * 6, "X": [0.4] * 4})


def test_a_hand_worked_disparity(three):
    found = disparity(three, "dice", "sex", QUICK)
    assert found.whole == pytest.approx((12 * 0.8 + 12 * 0.6 + 4 * 0.4) / 28)
    assert found.n == {"F": 12, "M": 12, "X": 4}
    assert found.by_group == pytest.approx({"F": 0.8, "M": 0.6})
    assert found.small(10) == ["X"]
    assert (found.worst, found.worst_value.value) == ("M", pytest.approx(0.6))
    assert found.gap.value == pytest.approx(0.2)
    assert found.ratio.value == pytest.approx(0.75)
    assert found.equity.value == pytest.approx(found.whole / (1 + abs(0.8 - found.whole) + abs(0.6 - found.whole)))
    assert found.gap.low < 0.2 < found.gap.high
    assert found.worst_value.low < 0.6 < found.worst_value.high
    assert found.p < 0.01
    assert found.bias <= 1e-3


def test_small_groups_count_where_they_are_asked_for(three):
    found = disparity(three, "dice", "sex", replace(QUICK, min_group_size=1))
    assert (found.worst, found.gap.value) == ("X", pytest.approx(0.4))
    assert found.ratio.value == pytest.approx(0.5)
    # Over all groups it is FairSeg's score.
    assert found.equity.value == pytest.approx(get("es_dice").function(rows_of(Part.whole(three), ("dice",)), "sex"))


def test_a_group_of_few_patients_has_no_intervals_however_many_its_cases(tmp_path):
    # Every resample that holds the one patient of M has the same value of it, which says nothing of other patients.
    rows = [(f"c{at}", f"p{at}", "A", "dice", 0.5 + at / 100, "F") for at in range(20)]
    rows += [(f"d{at}", "q", "A", "dice", 0.3, "M") for at in range(12)]
    found = disparity(run_of(tmp_path, rows), "dice", "sex", QUICK)
    assert (found.worst, found.worst_value.value) == ("M", pytest.approx(0.3))
    for bounded in (found.worst_value, found.gap, found.ratio, found.equity):
        assert math.isnan(bounded.low)
        assert math.isnan(bounded.high)


def test_groups_of_a_summary_count_the_cases_that_tables_count(tmp_path):
    # Twelve cases of M, of which eight have a probability: the table's n is 12, and so is that of the gap.
    states = ("present", "absent")
    rows = [(f"{sex}{at}", "A", "probability", at / 12, sex, states[at % 3 > 0]) for sex in "FM" for at in range(12)]
    rows = [row for row in rows if row[4] == "F" or row[3] < 0.65]
    rows += [(f"M{at}", "A", "iou", 0.5, "M", "present") for at in range(12)]
    run = run_of(tmp_path, rows, columns="case,model,metric,value,sex,status")
    found = disparity(run, "auroc@macro", "sex", QUICK)
    assert found.n == {"F": 12, "M": 12}
    cell = make_cell(Part.whole(run).groups("sex")["M"], "auroc@macro", Settings(100, 0.95, 0))
    assert (cell.n, cell.mean) == (12, pytest.approx(found.by_group["M"]))


def test_a_metric_that_goes_beyond_its_worst_value_is_not_scaled_as_a_share(tmp_path):
    # A failed case has an NRMSE of 1, which is no upper end: 1.2 + 0.2 + 0.2, not 1 - (1 - 1.2) / 1.4.
    error = plain(tmp_path, {"F": [0.9, 1.1] * 6, "M": [1.3, 1.5] * 6}, metric="nrmse")
    assert disparity(error, "nrmse", "sex", QUICK).equity.value == pytest.approx(1.6)


def test_lower_is_better_turns_it_round(tmp_path):
    error = plain(tmp_path, {"F": [2.0, 4.0] * 6, "M": [5.0, 7.0] * 6}, metric="hd95")
    found = disparity(error, "hd95", "sex", QUICK)
    assert (found.worst, found.worst_value.value) == ("M", pytest.approx(6))
    assert found.ratio.value == pytest.approx(2)
    # Distances in mm: the value plus D, 4.5 + 1.5 + 1.5.
    assert found.equity.value == pytest.approx(7.5)
    shares = plain(tmp_path, {"F": [0.1] * 10, "M": [0.3] * 10}, metric="error", error="lower")
    mirrored = plain(tmp_path, {"F": [0.9] * 10, "M": [0.7] * 10}, metric="hits", hits="higher")
    low, high = (disparity(run, run.metrics[0], "sex", QUICK).equity.value for run in (shares, mirrored))
    assert low == pytest.approx(1 - high)


def test_a_metric_without_a_direction_has_a_gap_and_no_worst_group(tmp_path):
    found = disparity(plain(tmp_path, {"F": [1] * 10, "M": [3] * 10}, metric="length"), "length", "sex", QUICK)
    assert (found.worst, found.gap.value) == ("", 2)
    assert math.isnan(found.equity.value)


def test_equal_groups_are_no_disparity(tmp_path):
    found = disparity(plain(tmp_path, {"F": [0.5] * 10, "M": [0.5] * 10}), "dice", "sex", QUICK)
    assert found.gap == (0, 0, 0)
    assert found.p == 1
    assert found.ratio.value == 1
    assert found.equity.value == pytest.approx(0.5)


def test_one_group_or_few_cases_say_nothing(tmp_path):
    one = disparity(plain(tmp_path, {"F": [0.5] * 12}), "dice", "sex", QUICK)
    assert math.isnan(one.gap.value)
    assert math.isnan(one.p)
    few = disparity(plain(tmp_path, {"F": [0.5], "M": [0.7]}), "dice", "sex", replace(QUICK, min_group_size=1))
    assert few.gap.value == pytest.approx(0.2)
    assert math.isnan(few.gap.low)


def test_undefined_values_and_unknown_groups_are_in_no_group(tmp_path):
    run = plain(tmp_path, {"F": [0.5] * 10 + ["nan"], "M": [0.7] * 10, "": [0.1] * 10})
    found = disparity(run, "dice", "sex", QUICK)
    assert found.n == {"F": 10, "M": 10}
    assert found.whole == pytest.approx(13 / 30)


def test_a_case_counts_with_the_mean_over_its_labels(tmp_path):
    rows = [(f"c{at}", "A", "dice", value, label, "FM"[at % 2]) for at in range(20) for label, value in
            (("a", 0.9), ("b", 0.5 if at % 2 else 0.7))]  # fmt: skip
    run = run_of(tmp_path, rows, "case,model,metric,value,label,sex")
    assert disparity(run, "dice", "sex", QUICK).by_group == pytest.approx({"F": 0.8, "M": 0.7})


def test_resamples_draw_whole_patients_of_all_groups_at_once(tmp_path):
    rng = np.random.default_rng(0)
    rows = [(f"c{at}", f"p{at // 3}", "A", "dice", round(rng.random(), 3), "FM"[(at // 6) % 2]) for at in range(60)]
    found = divide(run_of(tmp_path, rows), "dice", "sex", QUICK)
    drawn = np.random.default_rng(0).integers(0, 20, size=(400, 20))
    by_patient = pd.DataFrame(rows, columns=list("cpamvs")).groupby("p")
    groups = {name: (group["s"].iloc[0], group["v"].to_numpy()) for name, group in by_patient}
    names = sorted(groups)
    picked = [groups[names[place]] for place in drawn[0]]
    by_hand = [np.concatenate([values for sex, values in picked if sex == one]).mean() for one in "FM"]
    assert found.drawn[0] == pytest.approx(by_hand)
    assert found.drawn_whole[0] == pytest.approx(np.concatenate([values for _, values in picked]).mean())


def test_patients_in_several_groups_are_tested_by_the_bootstrap(tmp_path):
    rng = np.random.default_rng(1)
    rows = [(f"c{at}", f"p{at // 2}", "A", "dice", round(0.5 + 0.3 * (at % 2) + 0.05 * rng.normal(), 3), "FM"[at % 2])
            for at in range(60)]  # fmt: skip
    found = disparity(run_of(tmp_path, rows), "dice", "sex", QUICK)
    assert found.torn
    assert found.p == pytest.approx(1 / 401)
    assert found.luck < 0.05


def test_the_permutation_test_agrees_with_analysis_of_variance(tmp_path):
    rng = np.random.default_rng(5)
    groups = {
        name: np.round(rng.normal(mean, 0.1, 25), 4).tolist()
        for name, mean in zip("FMX", (0.5, 0.52, 0.57), strict=False)
    }
    found = disparity(plain(tmp_path, groups), "dice", "sex", DisparitySettings(resamples=2000))
    assert found.p == pytest.approx(scipy.stats.f_oneway(*groups.values()).pvalue, abs=0.02)


def test_summaries_are_divided_and_tested_too(tmp_path):
    rng = np.random.default_rng(2)
    rows = []
    for at in range(80):
        truth, sex = at % 2, "FM"[(at // 2) % 2]
        said = truth if sex == "F" else rng.random()
        rows.append((f"c{at}", f"p{at}", "A", "probability", round(float(said), 4), ["absent", "present"][truth], sex))
    run = run_of(tmp_path, rows, "case,patient,model,metric,value,status,sex")
    found = disparity(run, "auroc@macro", "sex", QUICK)
    men = [(float(row[4]), row[5] == "present") for row in rows if row[6] == "M"]
    by_hand = np.mean([(p > n) + (p == n) / 2 for p, y in men if y for n, z in men if not z])
    assert found.by_group == pytest.approx({"F": 1.0, "M": by_hand})
    assert found.p < 0.01
    called = disparity(run, "ece_mass@3", "sex", QUICK)  # resampled by weights
    summed = disparity(run, "brier_score", "sex", QUICK)  # resampled by sums
    assert called.gap.value > 0
    assert summed.by_group["F"] == 0
    brier = np.mean([(p - y) ** 2 for p, y in men])
    assert summed.gap.value == pytest.approx(brier)
    assert summed.worst == "M"


def test_equalised_odds_are_those_of_a_plain_count(tmp_path):
    rng = np.random.default_rng(3)
    rows = [(f"c{at}", "A", "probability", round(float(rng.random()), 3), ("absent", "present")[int(rng.integers(2))],
             "FMX"[at % 3]) for at in range(120)]  # fmt: skip
    found = odds(run_of(tmp_path, rows, "case,model,metric,value,status,sex"), "sex", QUICK)
    rate = {
        (sex, truth): np.mean([row[3] > 0.5 for row in rows if row[5] == sex and row[4] == truth])
        for sex in "FMX"
        for truth in ("present", "absent")
    }
    true, false = (np.ptp([rate[sex, truth] for sex in "FMX"]) for truth in ("present", "absent"))
    assert found["true positives"].value == pytest.approx(true)
    assert found["false positives"].value == pytest.approx(false)
    assert found["either"].value == pytest.approx(max(true, false))
    assert found["either"].high >= found["true positives"].high
    assert 0 <= found["either"].low <= found["either"].value


def test_the_bounds_of_the_largest_are_hand_worked():
    drawn = np.stack([np.arange(101.0), np.arange(101.0) + 10], axis=1)
    # 2.5 % of the second shared by two, 97.5 % of the second.
    assert largest([drawn], 2, 0.95) == pytest.approx((11.25, 107.5))
    ones = np.full((10, 2), [0.5, 0.8])
    assert gap_bounds([ones], 0.95) == pytest.approx((0.3, 0.3))
    assert ratio_bounds(ones, 0.95, better=True) == pytest.approx((0.625, 0.625))
    assert ratio_bounds(ones, 0.95, better=False) == pytest.approx((1.6, 1.6))
    assert all(map(math.isnan, ratio_bounds(ones - 0.5, 0.95, better=True)))


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6), st.floats(0.01, 1))
@settings(deadline=None, max_examples=30)
def test_properties_of_the_numbers(values, overall):
    groups, whole = np.array([values]), np.array([overall])
    assert 0 <= spread(groups)[0] <= 1
    assert 0 < ratio(groups, True)[0] <= 1 <= ratio(groups, False)[0]
    assert ratio(groups, True)[0] == pytest.approx(1 / ratio(groups, False)[0])
    assert worst(groups, True)[0] <= worst(groups, False)[0]
    for bounded in (True, False):
        assert equity(whole, groups, better=True, bounded=bounded)[0] <= overall + 1e-12
        assert equity(whole, groups, better=False, bounded=bounded)[0] >= overall - 1e-12
    same = equity(1000 * whole, 1000 * groups, better=True, bounded=False)
    assert same == pytest.approx(1000 * equity(whole, groups, better=True, bounded=False))


def test_groups_are_crossed_and_binned(tmp_path):
    rows = [(f"c{at}", "A", "dice", 0.5, "FM"[at % 2], ("39", "40", "61.5", "old", "-1")[at % 5], "" if at else "x")
            for at in range(20)]  # fmt: skip
    part = Part.whole(run_of(tmp_path, rows, "case,model,metric,value,sex,age,site"))
    ages = part.groups("age", {"age": [40, 60]})
    assert {name: len(group.scores) for name, group in ages.items()} == {
        "< 40": 4,
        "40 to < 60": 4,
        ">= 60": 4,
        "unknown": 8,
    }
    crossed = part.groups("sex*age", {"age": [40, 60]})
    assert list(crossed) == [f"{sex}, {age}" for sex in "FM" for age in ("< 40", "40 to < 60", ">= 60")] + ["unknown"]
    assert part.groups("sex*nothing") == {}
    assert list(part.groups("site")) == ["x", "unknown"]


@pytest.fixture
def judged(tmp_path):
    rng = np.random.default_rng(4)
    rows = [
        (f"c{at}", f"p{at // 2}", model, "dice", round(0.7 + 0.05 * rng.normal() - 0.2 * (at < 30) * (model == "B"), 3),
         "FM"[at >= 30], ("x", "y", "z")[at // 28])
        for model in "AB" for at in range(60)
    ]  # fmt: skip
    return [*_runs(tmp_path, rows, "case,patient,model,metric,value,sex,site")]


def _runs(tmp_path, rows, columns):
    file = tmp_path / "both.csv"
    file.write_text("\n".join([columns, *(",".join(map(str, row)) for row in rows)]), encoding="utf-8")
    return load_scores(file)


def test_sheets_show_groups_and_disparities(judged, tmp_path):
    found = judge_fairness(judged, by=["sex", "site", "sex*site"], how=QUICK)
    groups, gaps = found.sheets
    assert [line.names for line in groups.content.lines][:4] == [
        ["A", "sex", "all cases"], ["A", "sex", "F"], ["A", "sex", "M"], ["A", "site", "all cases"],
    ]  # fmt: skip
    text = to_markdown(groups)
    assert r"| A | site | z | 0." in text
    assert r"4\*" in text
    assert "fewer than 10 cases, which count in no worst group" in text
    frame = found.frame()
    of_b = frame[(frame["model"] == "B") & (frame["attribute"] == "sex")].set_index("quantity")
    assert of_b.loc["worst group", "group"] == "F"
    assert of_b.loc["gap", "value"] == pytest.approx(0.2, abs=0.04)
    assert of_b.loc["corrected p", "value"] >= of_b.loc["p", "value"]
    assert of_b.loc["corrected p", "value"] < 0.05
    assert "Too small to be compared, by site: z." in gaps.content.footnotes
    assert any("several groups" in note for note in gaps.content.footnotes) is False
    assert r"\begin{tabular}" in to_latex(gaps)
    files = write_comparison(found, tmp_path / "out", stem="fairness")
    assert {file.name for file in files} == {"fairness.md", "fairness.tex", "fairness.csv", "fairness.html"}


def test_what_cannot_be_meant_is_refused(judged):
    for options, said in (
        ({"by": ["sx"]}, "No case has an attribute 'sx'; did you mean 'sex'"),
        ({"by": ["sex*age"]}, "No case has an attribute 'age'"),
        ({"by": []}, "by names no attribute"),
        ({"by": ["label"]}, "by=label compares labels"),
        ({"by": ["sex"], "how": DisparitySettings(bins={"age": [1]})}, "bins names 'age', which by does not"),
        ({"by": ["sex"], "how": DisparitySettings(bins={"sex": [2, 1]})}, "expected ascending numbers"),
        ({"by": ["sex"], "how": DisparitySettings(min_group_size=0)}, "min_group_size must be a whole number"),
        ({"by": ["sex"], "metrics": ["dise"]}, "No run has scores of 'dise'"),
    ):
        with pytest.raises(UsageError, match=said.replace("*", r"\*")):
            judge_fairness(judged, **options)
    with pytest.raises(UserError, match="No finished run"):
        judge_fairness([replace(judged[0], status="running")], by=["sex"])


def test_the_command_says_it_of_a_csv(program, tmp_path):
    rows = [(f"c{at}", f"p{at}", "A", "dice", 0.5 + 0.2 * (at % 2), "FM"[at % 2], 20 + at) for at in range(40)]
    file = tmp_path / "mine.csv"
    lines = ["case,patient,model,metric,value,sex,age", *(",".join(map(str, row)) for row in rows)]
    file.write_text("\n".join(lines), encoding="utf-8")
    out = program(
        "fairness", f"scores={file}", "by=[sex,sex*age]", "bins={age: [40]}", "resamples=200", f"out={tmp_path}/o"
    )
    assert out.returncode == 0, out.stderr
    assert "Disparities" in (tmp_path / "o" / "fairness.html").read_text()
    frame = pd.read_csv(tmp_path / "o" / "fairness.csv")
    assert frame.loc[(frame["quantity"] == "gap") & (frame["attribute"] == "sex"), "value"].iloc[0] == pytest.approx(
        0.2
    )
    assert "F, < 40" in set(frame["group"])


@pytest.mark.long
@pytest.mark.slow
def test_intervals_and_p_values_hold_where_groups_are_alike_and_where_they_are_not(tmp_path):
    base = plain(tmp_path, {name: [0.5] * 24 for name in "FMX"})
    rng = np.random.default_rng(7)
    truth = {"alike": [0.5, 0.5, 0.5], "apart": [0.45, 0.5, 0.62]}
    how = DisparitySettings(resamples=300)
    for name, means in truth.items():
        covered, p = np.zeros(3), []
        for _ in range(100):
            # Two cases of each patient, who are alike.
            values = np.repeat(means, 24) + np.repeat(0.08 * rng.normal(size=36), 2) + 0.03 * rng.normal(size=72)
            cases = [int(case[1:]) for case in base.scores["case"]]
            frame = base.scores.assign(value=values[cases], patient=[f"p{case // 2:02}" for case in cases])
            found = disparity(replace(base, scores=frame), "dice", "sex", how)
            gap, far, least = found.gap, found.worst_value, found.ratio
            covered += [
                gap.low <= np.ptp(means) <= gap.high,
                far.low <= min(means) <= far.high,
                least.low <= min(means) / max(means) <= least.high,
            ]
            p.append(found.p)
        assert (covered / 100 >= 0.91).all(), (name, covered / 100)
        if name == "alike":
            assert scipy.stats.kstest(p, "uniform").pvalue > 0.01
        else:
            assert np.mean(np.array(p) < 0.05) > 0.9


def test_the_page_says_what_the_command_takes():
    root = Path(medimg_eval.__file__).parents[1]
    page = (root / "docs" / "publish" / "fairness.md").read_text(encoding="utf-8")
    keys = [line.split(":")[0] for line in (root / "configs" / "fairness.yaml").read_text().splitlines() if ":" in line]
    for key in keys:
        if not key.startswith(("#", " ", "defaults")):
            assert f"`{key}" in page, key
    assert "fewer than 10" in page
