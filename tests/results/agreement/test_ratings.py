"""Readers' ratings of models: means by hand, intervals over cases and readers, agreement, files that are refused."""

import csv
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medimg_eval.commands.cli import start
from medimg_eval.errors import UserError
from medimg_eval.metrics.agreement import intraclass_correlation, krippendorff_alpha
from medimg_eval.results import rating_table, read_ratings
from medimg_eval.results.agreement.ratings import Rating


def write(path, rows, columns=("case", "reader", "model", "score")):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([columns, *rows])
    return path


def rows_of(table):
    return table.frame().set_index(["criterion", "model"])


def test_means_and_agreement_by_hand(tmp_path):
    rows = [("c1", "r", "X", 4), ("c1", "s", "X", 2), ("c2", "r", "X", 5), ("c2", "s", "X", 5), ("c1", "r", "Y", 1)]
    key = write(tmp_path / "key.csv", [("X", "ours"), ("Y", "theirs")], ("code", "model"))
    table = rows_of(rating_table(read_ratings(write(tmp_path / "r.csv", rows), key), "study"))
    assert table.loc[("", "ours"), "mean"] == 4
    assert table.loc[("", "theirs"), ["mean", "ratings", "readers"]].tolist() == [1, 1, 1]
    answers = np.array([[4, 2], [5, 5], [1, math.nan], [math.nan, math.nan]])
    assert table["icc"].tolist() == pytest.approx([intraclass_correlation(answers)] * 2)
    assert table["alpha"].tolist() == pytest.approx([krippendorff_alpha(answers.T, "interval")] * 2)
    assert table["low"].isna().all()  # fewer than five cases


def test_calibration_is_left_out_items_are_answers_and_repeats_are_one_rating(tmp_path):
    columns = ("case", "item", "reader", "model", "score", "criterion", "repeat", "calibration")
    rows = [
        ("c", "1", "r", "m", 1, "style", "", ""), ("c", "1", "r", "m", 3, "style", "2", ""),
        ("c", "2", "r", "m", 5, "style", "", "no"), ("d", "", "r", "m", 9, "style", "", "yes"),
        ("c", "1", "r", "m", 4, "facts", "", ""),
    ]  # fmt: skip
    sheet = rating_table(read_ratings(write(tmp_path / "r.csv", rows, columns)), "study")
    table = rows_of(sheet)
    assert table.loc[("style", "m"), ["mean", "cases"]].tolist() == [3.5, 2]
    assert table.loc[("facts", "m"), "mean"] == 4
    assert any("gave the same to 0.0 %, apart by 2.000" in note for note in sheet.layout().footnotes)


def test_intervals_are_those_of_two_way_resampling():
    random = np.random.default_rng(0)
    scores = random.integers(1, 6, (12, 4)).astype(float)
    ratings = [Rating(f"c{c}", f"r{r}", "m", "", scores[c, r], "") for c in range(12) for r in range(4)]
    table = rows_of(rating_table(ratings, "study", resamples=20_000))
    again = np.random.default_rng(7)
    means = [scores[np.ix_(again.integers(0, 12, 12), again.integers(0, 4, 4))].mean() for _ in range(20_000)]
    assert table.loc[("", "m"), ["low", "high"]].tolist() == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.03)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=30))
def test_a_mean_lies_within_its_interval_and_among_its_scores(given_rows):
    unique = {(case, reader): score for case, reader, score in given_rows}
    ratings = [Rating(str(case), str(reader), "m", "", score, "") for (case, reader), score in unique.items()]
    row = rows_of(rating_table(ratings, "study", resamples=50)).loc[("", "m")]
    assert min(unique.values()) <= row["mean"] <= max(unique.values())
    if not math.isnan(row["low"]):
        assert min(unique.values()) <= row["low"] <= row["high"] <= max(unique.values())


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([("c", "r", "m", 1)] * 2, None, "got row 2 too"),
        ([("c", "r", "m", "good")], None, "expected a number as score, got 'good'"),
        ([("c", "r", "m", "nan")], None, "expected a number"),
        ([("c", "", "m", 1)], None, "row 2 is invalid"),
        ([("c", "r", "m")], ("case", "reader", "model"), "got none score"),
        ([], None, "got none"),
    ],
)
def test_files_that_cannot_be_meant_are_refused(rows, columns, message, tmp_path):
    file = write(tmp_path / "r.csv", rows, *([columns] if columns else []))
    with pytest.raises(UserError, match=message):
        read_ratings(file)


def test_codes_without_a_key_and_files_that_are_not_there_are_named(tmp_path):
    file = write(tmp_path / "r.csv", [("c", "r", "Z", 1)])
    key = write(tmp_path / "key.csv", [("X", "ours")], ("code", "model"))
    with pytest.raises(UserError, match="no code 'Z'; it holds X"):
        read_ratings(file, key)
    with pytest.raises(UserError, match="cannot be read"):
        read_ratings(tmp_path / "none.csv")


def test_the_command_reads_a_sheet_of_excel_to_its_table(tmp_path, capsys):
    rows = [
        {"case": str(case), "reader": reader, "model": model, "score": 1 + (case + len(model)) % 5}
        for case in range(8)
        for reader in "rs"
        for model in ("a", "bb")
    ]
    pd.DataFrame(rows).to_excel(tmp_path / "ratings.xlsx", index=False)
    assert start(["agree", f"ratings={tmp_path}/ratings.xlsx", f"out={tmp_path}/out", "resamples=50"]) == 0
    told = capsys.readouterr().out
    assert "ICC(2,1)" in told
    assert "1.000" in told  # both readers say the same
    assert (tmp_path / "out" / "agree.csv").read_text().count("\n") == 3
