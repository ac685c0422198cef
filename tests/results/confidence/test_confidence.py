"""Calibration, scaling and conformal coverage of runs: by hand, by simulation, and as the command prints them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError
from medimg_eval.results import load_scores
from medimg_eval.results.confidence import ConformalSettings, cover_runs, pair_runs, scale_runs, vote_runs
from medimg_eval.results.confidence.conformal_problems import problems_of

QUICK = ConformalSettings(splits=20, resamples=200)


def table(tmp_path, name, rows):
    """Writes scores of one model; rows are (case, patient, label, metric, value, status, sex)."""
    frame = pd.DataFrame(rows, columns=["case", "patient", "label", "metric", "value", "status", "sex"])
    file = tmp_path / f"{name}.csv"
    frame.assign(model="net", task="skin").to_csv(file, index=False)
    return file


def classes(prefix, number, seed, sharpened=2.0):
    """Rows of probabilities of four classes that exclude each other, too sure by a temperature."""
    rng = np.random.default_rng(seed)
    rows = []
    for case in range(number):
        honest = rng.dirichlet(np.ones(4))
        truth, said = rng.choice(4, p=honest), honest**sharpened / (honest**sharpened).sum()
        for place in range(4):
            status = "present" if place == truth else "absent"
            key = f"{prefix}{case}", f"{prefix}p{case}", f"c{place}", "probability", said[place], status
            rows.append((*key, "fm"[case % 2]))
    return rows


@pytest.fixture
def two(tmp_path):
    """A run on test cases and one on validation cases."""
    files = (
        table(tmp_path, name, classes(name, number, seed)) for name, number, seed in (("t", 400, 0), ("v", 400, 1))
    )
    return [load_scores(file)[0] for file in files]


def test_a_temperature_is_found_again_and_probabilities_still_add_up(two):
    test, validation = two
    tempered, platt = scale_runs(test, validation)
    assert tempered.model.startswith("net, temperature ")
    assert float(tempered.model.split()[-1]) == pytest.approx(2.0, abs=0.35)
    for run in (tempered, platt):
        assert run.scores.groupby("case")["value"].sum().to_numpy() == pytest.approx(1)
        assert (run.scores["status"] == test.scores["status"]).all()
    assert test.scores["value"].max() > 0.99  # the run itself stays as it is


def test_coverage_after_a_validation_run_is_as_asked(two):
    (sheet,) = cover_runs(pair_runs(two[:1], two[1:]), replace(QUICK, by="sex"))
    frame = sheet.frame().set_index("group")
    assert frame.loc["all cases", "n"] == 400
    assert frame.loc["all cases", "calibration"] == 400
    assert frame.loc["all cases", "coverage"] == pytest.approx(0.9, abs=0.05)
    by_group = frame.loc[["f", "m"], "coverage"].mean()
    assert by_group == pytest.approx(frame.loc["all cases", "coverage"])
    assert frame.loc["all cases", "low"] < 0.9 < frame.loc["all cases", "high"]


def test_of_several_repeats_the_first_is_judged(two):
    test, validation = two
    again = test.scores.assign(value=0.25)
    many = replace(test, scores=pd.concat([test.scores.assign(repeat=0), again.assign(repeat=1)]))
    expected, found = (cover_runs(pair_runs([run], [validation]), QUICK)[0].frame() for run in (test, many))
    assert found["coverage"].tolist() == expected["coverage"].tolist()
    assert found["n"].tolist() == [400]
    # Of folds each case was judged once, in the repeat that is its fold.
    folds = test.scores.assign(repeat=test.scores["case"].str[1:].astype(int) % 5)
    found = cover_runs(pair_runs([replace(test, scores=folds)], [validation]), QUICK)[0].frame()
    assert found["coverage"].tolist() == expected["coverage"].tolist()


@pytest.mark.parametrize("method", ["lac", "aps", "raps"])
def test_coverage_of_random_halves_is_as_asked(two, method):
    (sheet,) = cover_runs(pair_runs(two[:1], []), replace(QUICK, method=method))
    (row,) = sheet.frame().to_dict("records")
    assert 0.88 <= row["coverage"] <= (0.93 if method == "lac" else 1)
    assert row["n"] == 200
    assert 1 <= row["size"] <= 4


def test_a_group_has_a_quantile_of_its_own(tmp_path):
    # The model errs by 1 in women and by 10 in men.
    rng = np.random.default_rng(0)
    rows = []
    for case in range(200):
        truth, sex = 50.0, "fm"[case % 2]
        said = truth + rng.choice([-1, 1]) * (1 if sex == "f" else 10)
        rows += [(f"{case}", f"{case}", "angle", "measured", said, "present", sex)]
        rows += [(f"{case}", f"{case}", "angle", "measured_reference", truth, "present", sex)]
    runs = load_scores(table(tmp_path, "angles", rows))
    shared, own = (
        cover_runs(pair_runs(runs, []), replace(QUICK, by="sex", per_group=chosen))[0].frame().set_index("group")
        for chosen in (False, True)
    )
    assert shared["size"].tolist() == pytest.approx([20, 20, 20])
    assert own.loc["f", "size"] == pytest.approx(2)
    assert own.loc["m", "size"] == pytest.approx(20)
    assert own["coverage"].tolist() == pytest.approx([1, 1, 1])


def test_too_few_calibration_cases_say_nothing(tmp_path):
    rows = [row for case in range(10) for row in classes(str(case), 1, case)]
    (sheet,) = cover_runs(pair_runs(load_scores(table(tmp_path, "few", rows)), []), QUICK)
    (row,) = sheet.frame().to_dict("records")
    assert (row["coverage"], row["size"], row["all"]) == (1, 4, 1)


def test_classes_that_do_not_exclude_others_are_judged_one_by_one(tmp_path):
    rows = []
    rng = np.random.default_rng(0)
    for case in range(60):
        for label in ("edema", "mass"):
            p = rng.random()
            rows.append(
                (f"{case}", f"{case}", label, "probability", p, "present" if rng.random() < p else "absent", "f")
            )
    problems = list(problems_of(load_scores(table(tmp_path, "many", rows))[0], ""))
    assert [problem.title for problem in problems] == ["edema", "mass"]
    assert problems[0].most.tolist() == [2] * 60


def test_the_threshold_of_a_mask_holds_back_what_it_misses(tmp_path):
    # Each case misses its own share at 0.5, half of it at 0.3, and nothing at 0.1.
    rows = []
    for case in range(40):
        share = case / 100
        for step, missed in ((0.1, 0.0), (0.3, share / 2), (0.5, share)):
            rows.append((f"{case}", f"{case}", "liver", f"missed_share@{step}", missed, "present", "f"))
    runs = load_scores(table(tmp_path, "masks", rows))
    # Mean shares are 0, 0.0975 and 0.195; with (n / (n + 1)) R + 1 / (n + 1) of 20, 0.15 allows the second as a rule.
    (sheet,) = cover_runs(pair_runs(runs, []), replace(QUICK, alpha=0.15))
    (row,) = sheet.frame().to_dict("records")
    assert 0.1 < row["size"] <= 0.3
    assert row["coverage"] < 0.15
    (sheet,) = cover_runs(pair_runs(runs, []), replace(QUICK, alpha=0.01))
    assert np.isnan(sheet.frame()["size"]).all()  # 1 / 21 alone is more
    assert sheet.frame()["empty"].tolist() == [1]


def test_majority_answers_have_their_share_of_votes_as_confidence(tmp_path):
    rows = []
    for repeat, (answer, right) in enumerate([(7, 1.0), (7, 1.0), (3, 0.0), (7, 1.0)]):
        rows += [("q", "q", "choice", name, value, "present", "f", repeat) for name, value in (
            ("accuracy", right), ("predicted_class", answer))]  # fmt: skip
    run = load_scores(table(tmp_path, "once", [row[:7] for row in rows[:2]]))[0]
    frame = pd.DataFrame(rows, columns=["case", "patient", "label", "metric", "value", "status", "sex", "repeat"])
    many = replace(run, scores=frame.assign(run="", task="skin", model="net", attributes="{}").drop(columns="sex"))
    (vote,) = vote_runs([run, many])
    assert vote.model == "net, votes of 4"
    assert vote.scores[["metric", "value", "status"]].to_numpy().tolist() == [["confidence", 0.75, "right"]]


def test_coverage_falls_under_a_condition_that_was_not_calibrated_on(two):
    test, validation = two
    # Under noise the model says as much as before of classes that are drawn at random.
    rng = np.random.default_rng(0)
    noisy = test.scores.assign(repeat=0, condition="noise-3")
    draw = pd.Series(rng.integers(0, 4, 400), index=noisy["case"].unique())
    present = noisy["label"].str[1:].astype(int) == noisy["case"].map(draw)
    noisy["status"] = np.where(present, "present", "absent")
    run = replace(test, varied=noisy)
    for pairs in (pair_runs([run], [validation]), pair_runs([run], [])):
        (sheet,) = cover_runs(pairs, QUICK)
        frame = sheet.frame().set_index("group")
        assert frame.loc["all cases", "coverage"] == pytest.approx(0.9, abs=0.05)
        # Sets are as large as before, and hold a class at random as often as they are large.
        assert frame.loc["noise-3", "size"] == pytest.approx(frame.loc["all cases", "size"], abs=0.1)
        assert frame.loc["noise-3", "coverage"] == pytest.approx(frame.loc["noise-3", "size"] / 4, abs=0.05)
        assert any("Under noise-3: calibrated on cases as published" in note for note in sheet.layout().footnotes)
    same = replace(test, varied=test.scores.assign(repeat=0, condition="grey"))
    frame = cover_runs(pair_runs([same], []), QUICK)[0].frame().set_index("group")
    # The same cases under another name: halves stay apart by patients.
    assert frame.loc["grey", "coverage"] == pytest.approx(frame.loc["all cases", "coverage"], abs=0.01)


def test_what_cannot_be_fitted_on_is_refused(two):
    test, validation = two
    with pytest.raises(UsageError, match=r"expected other patients than those of .*, got 400 of both"):
        pair_runs([test], [test])
    with pytest.raises(UsageError, match=r"expected one run of net on skin, got 0 of net on brain"):
        pair_runs([test], [replace(validation, task="brain")])
    for wrong in ({"alpha": 0}, {"method": "lca"}, {"splits": 0}, {"per_group": True}, {"by": "sx"}):
        with pytest.raises(UsageError):
            cover_runs([(test, None)], replace(QUICK, **wrong))


def test_the_command_prints_both_and_writes_them(tmp_path, capsys):
    test, validation = (table(tmp_path, name, classes(name, 60, seed)) for seed, name in enumerate("tv"))
    words = [f"scores={test}", f"validation={validation}", "resamples=50", f"out={tmp_path}/out"]
    assert start(["confidence", *words, "metrics=[brier_score,augrc]"]) == 0
    printed = capsys.readouterr().out
    assert "temperature" in printed
    assert "Conformal" in (tmp_path / "out" / "conformal.md").read_text()
    assert {file.suffix for file in (tmp_path / "out").iterdir()} == {".md", ".tex", ".csv", ".html", ".xlsx"}
    assert start(["confidence", f"scores={test}", "alpha=2"]) == 2
