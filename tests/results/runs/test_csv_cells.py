"""CSV and XLSX that hold texts of others: no formula, no direction mark, no number changed."""

import csv
import io

import openpyxl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medimg_eval.results import build_table, to_csv, write_all
from medimg_eval.results.runs.csv_cells import frame_to_csv
from medimg_eval.results.runs.external import load_scores
from medimg_eval.trust import guarded, unguarded

ATTACKS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "'=1", "＝1", "-", "=", "\n=1"]


@pytest.mark.parametrize("text", ATTACKS)
def test_what_would_be_a_formula_is_a_text(text):
    assert guarded(text) == f"'{text}"
    assert unguarded(guarded(text)) == text


@pytest.mark.parametrize(
    "text", ["-0.5", "+1", "-1e-3", "-inf", "nan", "UNet", "a=b", "it's", "'quoted'", "", "left-right"]
)
def test_numbers_and_plain_texts_stay(text):
    assert guarded(text) == text
    assert unguarded(text) == text


@pytest.mark.parametrize("mark", "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
def test_marks_of_direction_are_shown(mark):
    assert guarded(f"U{mark}Net") == f"U\\u{ord(mark):04x}Net"
    assert guarded(f"{mark}=1")[0] == "\\"


@given(st.text(alphabet="'=+-@ \t\r\n01a.＝"))
def test_every_text_comes_back(text):
    assert unguarded(guarded(text)) == text


def test_a_frame_keeps_its_numbers_and_its_gaps():
    frame = pd.DataFrame(
        {"=model": ["=1", "UNet"], "mean": [-0.5, float("nan")], "count": [-1, 2], "note": [None, "-0.5"]}
    )
    (head, *rows) = csv.reader(io.StringIO(frame_to_csv(frame)))
    assert head == ["'=model", "mean", "count", "note"]
    assert rows == [["'=1", "-0.5", "-1", ""], ["UNet", "", "2", "-0.5"]]


def test_a_hostile_name_of_a_model_opens_nothing_in_any_file(tmp_path):
    name = "=cmd|' /C calc'!A0"
    source = tmp_path / "scores.csv"
    with source.open("w", newline="") as stream:
        rows = [[f"c{case}", name, "dice", 0.5 + case / 100] for case in range(4)]
        csv.writer(stream).writerows([["case", "model", "metric", "value"], *rows])
    table = build_table(load_scores(source))
    for row in csv.reader(io.StringIO(to_csv(table))):
        assert not any(cell.startswith("=") for cell in row)
    write_all(table, tmp_path)
    for sheet in openpyxl.load_workbook(tmp_path / "table.xlsx"):
        assert not [cell for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]


def test_what_was_guarded_is_read_as_it_was(tmp_path):
    frame = pd.DataFrame({"case": ["-a", "b"], "model": ["=m", "=m"], "metric": ["dice", "dice"], "value": [-0.5, 1.0]})
    (tmp_path / "scores.csv").write_text(frame_to_csv(frame))
    (run,) = load_scores(tmp_path / "scores.csv")
    assert run.model == "=m"
    assert run.scores["case"].tolist() == ["-a", "b"]
    assert run.scores["value"].tolist() == [-0.5, 1.0]
