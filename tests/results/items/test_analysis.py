import math
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.commands.cli import start
from medimg_eval.errors import UsageError, UserError
from medimg_eval.results import load_runs, load_scores
from medimg_eval.results.items.analysis import analyse_items, write_items
from medimg_eval.results.items.response_matrix import cronbach_alpha, item_correlations, negative_bound

HEAD = "case,model,metric,value,patient,set,rotation\n"


@pytest.fixture
def scores(tmp_path):
    """Writes rows of (case, model, metric, value[, patient[, set, rotation]]) and reads them as runs."""

    def read(rows, **how):
        file = tmp_path / "scores.csv"
        lines = [",".join(map(str, [*row, *[""] * (7 - len(row))])) for row in rows]
        file.write_text(HEAD + "\n".join(lines) + "\n")
        return load_scores(file, **how)

    return read


def graded(table, *, metric="accuracy", given=()):
    """The rows of rights and wrongs by model, as a string of digits each; `given` the same of answers."""
    rows = [(f"q{item}", model, metric, digit) for model, digits in table.items() for item, digit in enumerate(digits)]
    for model, digits in dict(given).items():
        rows += [
            (f"q{item}", model, "predicted_class", -1 if digit == "-" else digit) for item, digit in enumerate(digits)
        ]
    return rows


FIVE = {"A": "111110", "B": "111100", "C": "111001", "D": "110001", "E": "100001"}


def test_difficulty_and_discrimination_are_those_worked_out_by_hand(scores):
    found = analyse_items(scores(graded(FIVE)), shown=5).items.set_index("item")

    assert found["difficulty"].tolist() == [1.0, 0.8, 0.6, 0.4, 0.2, 0.6]
    # The last item is 0 0 1 1 1, and the others of each model are 5 4 3 2 1: deviations -.6 -.6 .4 .4 .4 by 2 1 0 -1 -2
    # give -3, over the root of 1.2 * 10.
    assert found.loc["q5", "discrimination"] == pytest.approx(-3 / math.sqrt(12))
    # Totals are 5 4 4 3 2: deviations 1.4 .4 .4 -.6 -1.6 give -1.8, over the root of 1.2 * 5.2.
    assert found.loc["q5", "point_biserial"] == pytest.approx(-1.8 / math.sqrt(1.2 * 5.2))
    assert math.isnan(found.loc["q0", "discrimination"])
    assert (found["passed_by"] + found["failed_by"] == 5).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_correlations_are_pearsons_and_alpha_that_of_its_definition(seed):
    rng = np.random.default_rng(seed)
    values = (rng.random((8, 6)) < 0.5).astype(float)
    values[0, 0], values[1, 0] = 0, 1

    rest, whole = item_correlations(values)

    for item in range(6):
        others = np.delete(values, item, axis=1).sum(axis=1)
        for found, beside in ((rest, others), (whole, values.sum(axis=1))):
            if values[:, item].std() > 0 and beside.std() > 0:
                assert found[item] == pytest.approx(np.corrcoef(values[:, item], beside)[0, 1])
            else:
                assert math.isnan(found[item])
    table = np.cov(values.T)
    if values.sum(axis=1).std() > 0:
        assert cronbach_alpha(values) == pytest.approx(6 / 5 * (1 - np.trace(table) / table.sum()))


def test_alpha_of_parallel_items_is_one_and_of_few_models_none():
    assert cronbach_alpha(np.repeat([[0.0], [1.0], [0.0], [1.0], [1.0]], 4, axis=1)) == pytest.approx(1)
    assert math.isnan(cronbach_alpha(np.eye(4)))
    assert math.isnan(cronbach_alpha(np.ones((6, 4))))


def test_bound_of_a_correlation_is_that_of_fishers_z():
    # arctanh(-0.8) = -1.0986; 1.9600 / sqrt(12 - 3) = 0.6533; tanh(-0.4453) = -0.4180
    bound = negative_bound(np.array([-0.8, -0.8, np.nan]), np.array([12.0, 3.0, 12.0]), 0.95)

    assert bound[0] == pytest.approx(-0.4180, abs=1e-4)
    assert np.isnan(bound[1:]).all()


def test_few_models_have_classical_statistics_only_and_say_so(scores):
    analysis = analyse_items(scores(graded(FIVE)))

    assert analysis.items["slope"].isna().all()
    assert "ability" not in analysis.models
    notes = " ".join(analysis.sheets[0].content.footnotes)
    assert "5 models are too few for item response theory (at least 10)" in notes


def many(models=12, items=40, *, mislabelled=3, seed=0):
    rng = np.random.default_rng(seed)
    ability, place = np.linspace(-1.2, 1.8, models), rng.normal(0, 1, items)
    right = rng.random((models, items)) < 1 / (1 + np.exp(-1.3 * (ability[:, None] - place)))
    right[:, mislabelled] = ability < 0
    return right.astype(int), np.where(right, 0, rng.integers(1, 4, right.shape))


def test_a_mislabelled_item_is_found_with_its_reasons(scores):
    right, answers = many()
    answers[right[:, 3] == 0, 3] = 2
    names = [f"M{place:02d}" for place in range(12)]
    rows = graded(
        {name: "".join(map(str, row)) for name, row in zip(names, right, strict=True)},
        given={name: "".join(map(str, row)) for name, row in zip(names, answers, strict=True)},
    )

    analysis = analyse_items(scores(rows))

    first = analysis.items.sort_values("weight", ascending=False).iloc[0]
    assert first["item"] == "q3"
    assert first["flags"] == "strong fail alike; negative"
    assert "the 4 strongest models gave the same wrong answer; 5 of 8 weaker ones have credit" in first["reasons"]
    assert "interval below 0" in first["reasons"]
    assert first["slope"] < 0.2
    assert math.isnan(first["place"])
    assert analysis.sheets[1].content.lines[0].names == ["q3"]
    notes = " ".join(analysis.sheets[0].content.footnotes)
    assert "would by chance alone" in notes
    assert "Of 12 models slopes hardly differ from their prior" in notes
    assert analysis.models["ability"].corr(analysis.models["mean"], method="spearman") > 0.95


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ("777", "all 3 models gave the same wrong answer"),
        ("778", "all 3 models are wrong, not all by one answer"),
        ("---", "all 3 models are wrong, not all by one answer"),
        ("", "all 3 models are wrong"),
    ],
)
def test_what_all_models_fail_is_told_with_how(scores, answers, why):
    table = {"A": "110", "B": "100", "C": "010"}
    beside = {name: f"11{answer}" for name, answer in zip("ABC", answers, strict=False)}

    found = analyse_items(scores(graded(table, given=beside))).items.set_index("item")

    assert found.loc["q2", "reasons"] == why
    assert found.loc["q0", "flags"] == ""


def test_missing_values_are_left_out_of_every_statistic(scores):
    rows = [row for row in graded(FIVE | {"F": "110100"}) if row[:2] != ("q4", "A")]

    analysis = analyse_items(scores(rows))
    found = analysis.items.set_index("item")

    assert found.loc["q4", ["models", "difficulty", "failed_by"]].tolist() == [5, 0.0, 5]
    assert any("1 of 36 values are missing" in note for note in analysis.sheets[0].content.footnotes)
    assert analysis.models.set_index("model").loc["A", "items"] == 5


def test_of_a_metric_that_is_better_low_right_is_zero(scores):
    rows = graded({"A": "100", "B": "110", "C": "111"}, metric="unanswered")

    found = analyse_items(scores(rows), "unanswered")

    assert found.items["difficulty"].tolist() == pytest.approx([0, 1 / 3, 2 / 3])
    assert found.items.loc[0, "reasons"] == "all 3 models are wrong"
    assert found.models["model"].tolist() == ["A", "B", "C"]


@pytest.mark.parametrize(("metric", "sign"), [("dice", 1), ("hd95", -1)])
def test_measurements_have_a_mean_and_the_items_that_all_do_worst_on(scores, metric, sign):
    rng = np.random.default_rng(0)
    values = rng.uniform(0.5, 0.9, (3, 30)) * 10
    values[:, 4] = 0.1 if sign > 0 else 30
    values = values / 10 if sign > 0 else values
    rows = [(f"c{item:02d}", f"M{model}", metric, values[model, item]) for model in range(3) for item in range(30)]

    analysis = analyse_items(scores(rows), metric)

    assert analysis.items.loc[analysis.items["flags"] == "all low", "item"].tolist() == ["c04"]
    assert analysis.items["difficulty"].tolist() == pytest.approx(values.mean(axis=0).tolist())
    assert "discrimination" not in analysis.items
    assert "measurements" in " ".join(analysis.sheets[0].content.footnotes)


def blind_rows(seeing, blind, chance=0.25):
    rows = graded({"Ours": seeing, "Other": seeing[::-1], "Ours (blind)": blind})
    return rows + [(f"q{item}", "Chance", "accuracy", chance) for item in range(len(seeing))]


def test_a_blind_model_above_chance_and_near_the_seeing_one_is_a_hint(scores):
    analysis = analyse_items(scores(blind_rows("1" * 28 + "0" * 12, "1" * 26 + "0" * 14)), resamples=500)

    (row,) = analysis.blind.to_dict("records")
    assert (row["model"], row["n"], row["seeing"], row["blind"], row["chance"]) == ("Ours", 40, 0.7, 0.65, 0.25)
    assert row["gain"] == pytest.approx(0.05)
    assert row["blind_low"] == pytest.approx(0.4951, abs=1e-3), "Wilson's interval of 26 of 40"
    assert row["hint"] == "above chance without images and images are not shown to help"
    assert analysis.models["model"].tolist() == ["Other", "Ours"], "neither chance nor the blind one is a respondent"
    assert analysis.items["blind_right"].mean() == pytest.approx(0.65)
    assert any("never proof" in note for note in analysis.sheets[-1].content.footnotes)


def test_a_blind_model_at_chance_is_none(scores):
    analysis = analyse_items(scores(blind_rows("1" * 30 + "0" * 10, "0" * 30 + "1" * 10)), resamples=500)

    (row,) = analysis.blind.to_dict("records")
    assert row["hint"] == ""
    assert row["gain_low"] > 0


def test_condition_no_image_of_a_run_hints_as_a_run_of_its_own_does(write_run):
    rows = {"ours": "1" * 28 + "0" * 12, "other": "0" * 12 + "1" * 28}
    folders = []
    for name, rights in rows.items():
        asked = [("", rights), ("no_image", "1" * 26 + "0" * 14)] if name == "ours" else [("", rights)]
        told = [
            (f"q{item:02}", f"p{item}", "all", "accuracy", float(right), key)
            for key, of_condition in asked
            for item, right in enumerate(of_condition)
        ]
        folders.append(write_run(name, told, chance={"accuracy": 0.25}, metrics=["accuracy"], cases=40))
        frame = pd.read_parquet(folders[-1] / "scores.parquet")
        frame.assign(condition=frame["status"], repeat=0, status="present").to_parquet(folders[-1] / "scores.parquet")

    analysis = analyse_items(load_runs(folders), resamples=500)

    (row,) = analysis.blind.to_dict("records")
    assert (row["model"], row["n"], row["seeing"], row["blind"], row["chance"]) == ("Ours", 40, 0.7, 0.65, 0.25)
    assert row["hint"] == "above chance without images and images are not shown to help"
    assert analysis.models["model"].tolist() == ["Other", "Ours"]


def rotated(first, others, answers):
    """A model's rights in the published order and in three others, and its answers, by question."""
    rows = []
    for number, (own, rest, answer) in enumerate(zip(first, others, answers, strict=True)):
        for turn in range(4):
            about = (f"p{number}", f"s{number}", turn)
            case = f"s{number}.{turn}"
            rows += [(case, "A", "accuracy", own if turn == 0 else rest, *about)]
            rows += [(case, "A", "predicted_class", answer if turn else 5, *about)]
            rows += [(case, "B", "accuracy", (number + turn) % 2, *about)]
    return rows


def test_a_model_that_is_right_in_the_published_order_alone_is_a_hint(scores):
    analysis = analyse_items(scores(rotated("1" * 20, "0" * 12 + "1" * 8, [6] * 12 + [5] * 8)), resamples=500)

    ours, other = analysis.order.to_dict("records")
    assert (ours["sets"], ours["original"], ours["others"]) == (20, 1.0, pytest.approx(0.4))
    assert (ours["gain"], ours["changed"], ours["answered"]) == (pytest.approx(0.6), pytest.approx(0.6), 20)
    assert ours["changed_low"] == pytest.approx(0.3866, abs=1e-3), "Wilson's interval of 12 of 20"
    assert ours["hint"] == "better in the published order"
    assert other["hint"] == ""
    assert math.isnan(other["changed"]), "its answers are not known"


def test_answers_that_were_not_given_say_nothing_of_the_order(scores):
    analysis = analyse_items(scores(rotated("1" * 8, "1" * 8, [-1] * 2 + [5] * 6)), resamples=200)

    assert analysis.order.loc[0, ["answered", "changed"]].tolist() == [6, 0.0]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"A": "101"}, "here are 1; add runs"),
        ({"A": "1", "B": "0"}, "one item"),
        ({"A": "111", "B": "111"}, "every value of accuracy is 1"),
        ({"A": "101", "A (blind)": "100"}, "here are 1; add runs"),
    ],
)
def test_what_cannot_be_analysed_is_refused_with_its_reason(scores, table, said):
    with pytest.raises(UserError, match=said):
        analyse_items(scores(graded(table)))


@pytest.mark.parametrize(
    ("metric", "how", "said"),
    [
        ("acuracy", {}, "No finished run has scores of 'acuracy'.*accuracy"),
        ("macro_accuracy@x", {}, "no value of its own for each case"),
        ("accuracy", {"shown": 0}, "expected shown"),
        ("accuracy", {"level": 1}, "expected level"),
        ("accuracy", {"resamples": 0}, "expected resamples"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(scores, metric, how, said):
    with pytest.raises(UsageError, match=said):
        analyse_items(scores(graded(FIVE)), metric, **how)


def test_a_metric_of_ones_own_needs_a_direction(scores):
    rows = graded({"A": "101", "B": "100"}, metric="mine")

    with pytest.raises(UsageError, match="has no direction"):
        analyse_items(scores(rows), "mine")
    assert len(analyse_items(scores(rows, direction={"mine": "higher"}), "mine").items) == 3


def test_unfinished_runs_are_left_out_and_named(write_run):
    from medimg_eval.results import load_runs

    rows = [(f"q{item}", f"p{item}", "all", "accuracy", item % 2, "right") for item in range(4)]
    folders = [write_run("one", rows), write_run("two", rows[:3]), write_run("three", rows, status="interrupted")]

    analysis = analyse_items(load_runs(folders))

    assert analysis.models["model"].tolist() == ["One", "Two"]
    notes = analysis.sheets[0].content.footnotes
    assert "Three on Organs: its run is not finished, and is left out." in notes


def test_the_command_prints_and_writes_what_it_found(monkeypatch, capfd, tmp_path):
    right, _ = many()
    table = {f"M{place:02d}": "".join(map(str, row)) for place, row in enumerate(right)}
    lines = [",".join(map(str, row)) for row in graded(table)]
    (tmp_path / "mine.csv").write_text("case,model,metric,value\n" + "\n".join(lines) + "\n")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["medimg_eval"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert start(["items", "scores=mine.csv", "out=found", "shown=2", "resamples=100"]) == 0

    assert "What models tell of the items" in (tmp_path / "found" / "items.html").read_text()
    assert "strongest models" in capfd.readouterr().out
    items = pd.read_csv(tmp_path / "found" / "items.csv")
    assert len(items) == 40
    assert {path.name for path in (tmp_path / "found").iterdir()} == {
        *(f"items.{suffix}" for suffix in ("md", "tex", "csv", "html")),
        "items_models.csv",
    }


def test_files_are_written_for_hints_that_there_are(scores, tmp_path):
    analysis = analyse_items(scores(blind_rows("1100" * 5, "1010" * 5)), resamples=50)

    files = write_items(analysis, tmp_path / "out")

    assert {file.name for file in files} >= {"items_blind.csv", "items_models.csv"}
    assert "items_order.csv" not in {file.name for file in files}
