"""`score reports=FILE`: a table of references and predictions, scored in one line."""

from __future__ import annotations

import csv
import json
import math
import shlex
from pathlib import Path

import pandas as pd
import pytest

from medimg_eval.commands.cli import start
from medimg_eval.data.layouts.report_sets.tables import ReportTable
from medimg_eval.data.tables import read_table
from medimg_eval.errors import CaseError, SplitError, UsageError, UserError
from medimg_eval.models.precomputed.texts import PrecomputedReports
from medimg_eval.question import Decoding
from medimg_eval.results import load_runs
from tests.helpers.printed import said

HEADER = ("id", "reference", "prediction", "subject", "view")
ROWS = [
    ("a", "No effusion.\nThe heart is normal.", "No effusion. The heart is normal."),
    ("b", "Mild edema.", "There is mild edema."),
    ("c", "A nodule of 3.5 cm.", "Clear lungs."),
]


def write(path, rows=ROWS, header=("id", "reference", "prediction")):
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def scores(folder, metric):
    (run,) = load_runs([one.parent for one in Path(folder).glob("runs/reports/*/manifest.json")])
    rows = run.scores[run.scores["metric"] == metric]
    return dict(zip(rows["case"], rows["value"], strict=True))


def test_a_table_is_scored_in_one_line_with_intervals_and_what_decides_them(folder, capsys):
    write("mine.csv")
    assert start(["score", "reports=mine.csv", "metrics=[rouge_l,unanswered]"]) == 0
    out, _ = said(capsys)
    assert "mine" in out
    assert "0.556 [n too small]" in out
    assert "n = 3 reports" in out
    assert scores(folder, "rouge_l") == {"a": 1.0, "b": pytest.approx(2 / 3), "c": 0.0}


def test_the_same_command_again_asks_nothing_and_gives_the_same_numbers(folder, capsys):
    write("mine.csv")
    assert start(["score", "reports=mine.csv", "metrics=[rouge_l]"]) == 0
    first, _ = said(capsys)
    assert start(["score", "reports=mine.csv", "metrics=[rouge_l]"]) == 0
    again, _ = said(capsys)
    assert again == first


def test_order_of_rows_and_kind_of_file_do_not_matter(folder, capsys):
    rows = [dict(zip(("id", "reference", "prediction"), row, strict=True)) for row in ROWS]
    write("a.csv", ROWS[::-1])
    Path("b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    Path("c.json").write_text(json.dumps(rows), encoding="utf-8")
    pd.DataFrame(rows).to_parquet("d.parquet")
    assert start(["score", "reports=[a.csv,b.jsonl,c.json,d.parquet]", "metrics=[rouge_l]"]) == 0
    out, _ = said(capsys)
    assert out.count("0.556 [n too small]") == 4
    assert "not comparable" not in out.replace("different cases", "")


def test_subjects_are_what_intervals_resample_and_views_divide_tables(folder, capsys):
    write("s.csv", [(*row, "p1" if row[0] < "c" else "p2", "PA") for row in ROWS],
          ("study_id", "truth", "written", "subject", "view"))  # fmt: skip
    columns = "columns={id: study_id, reference: truth, prediction: written}"
    assert start(["score", "reports=s.csv", columns, "metrics=[rouge_l]"]) == 0
    out, _ = said(capsys)
    assert "3 reports of 2 patients" in out
    (run,) = load_runs([one.parent for one in folder.glob("runs/reports/*/manifest.json")])
    assert set(run.scores["patient"]) == {"p1", "p2"}
    assert json.loads(run.scores["attributes"].iloc[0])["view"] == "PA"


def test_odd_rows_fail_by_name_and_all_others_are_scored(folder, capsys):
    Path("odd.csv").write_text(
        "id,reference,prediction\n"
        "a,Clear lungs.,Clear lungs.\n"
        "blank,Clear lungs.,\n"
        "lost,,Clear lungs.\n"
        "wide,Clear lungs.,Clear, lungs.\n"
        "a,Other.,Thing.\n"
        "a,Clear lungs.,Clear lungs.\n"
        ",Clear lungs.,Clear lungs.\n",
        encoding="utf-8",
    )
    assert start(["score", "reports=odd.csv", "metrics=[rouge_l,unanswered]"]) == 1
    out, err = said(capsys)
    assert "0.500 [0.013, 0.987]" in out
    for message in (
        "line 4: the reference is empty; leave the row out",
        "line 5: has not as many fields (4) as the header's 3; quote fields",
        "line 6: id 'a' stands on an earlier row with other texts",
        "line 8: the id is empty",
    ):
        assert message in err
    found = scores(folder, "rouge_l")
    assert (found["a"], found["blank"]) == (1.0, 0.0)


def test_a_text_of_ten_thousand_words_is_scored_in_time(folder, capsys):
    long = " ".join(f"word{n % 97}" for n in range(10_000))
    write("long.csv", [("a", long, long), ("b", long, "Short.")])
    assert start(["score", "reports=long.csv"]) == 0
    assert scores(folder, "rouge_l") == {"a": 1.0, "b": 0.0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reports=mine.csv", "columns.reference=truth"], "has no column 'truth'"),
        (["reports=lost.csv"], "no such table; did you mean 'mine.csv'?"),
        (["reports=mine.csv", "columns.ref=x"], "got 'ref'; did you mean 'reference'?"),
        (["reports=mine.csv", "attributes=[sex]"], "has no column 'sex' to divide by"),
        (["reports=mine.csv", "surface=voxel"], "surface= is not for reports="),
        (["reports=mine.csv", "metrics=[dice]"], "'dice' does not judge answers"),
        (["reports=mine.csv", "run=runs"], "name what to score"),
        ([], "name what to score"),
    ],
)
def test_what_cannot_be_meant_is_said_before_anything_is_scored(folder, capsys, words, message):
    write("mine.csv")
    assert start(["score", *words]) > 0
    assert message in said(capsys)[1]
    assert not (folder / "runs").exists()


def test_an_empty_table_and_a_split_that_is_not_there_are_refused(folder):
    Path("none.csv").write_text("id,reference,prediction\n", encoding="utf-8")
    with pytest.raises(UserError, match="holds no report"):
        ReportTable(root="none.csv").cases("test")
    with pytest.raises(SplitError, match="one split, test"):
        ReportTable(root=write("mine.csv")).cases("train")


def test_several_references_come_from_a_list_and_a_row_that_is_wrong_says_so_when_it_is_read(folder):
    rows = [{"id": 1, "reference": ["A.", "B."], "prediction": "A."}, {"id": 2, "reference": [" "], "prediction": "B"}]
    Path("two.json").write_text(json.dumps(rows), encoding="utf-8")
    good, bad = ReportTable(root="two.json").cases("test")
    assert good.target.read().value == ("A.", "B.")
    with pytest.raises(CaseError, match="the reference is empty"):
        bad.target.read()


def test_lines_that_are_not_understood_can_be_collected(folder):
    Path("x.jsonl").write_text('{"id": 1}\n{"id": \n', encoding="utf-8")
    strays = []
    assert len(read_table(Path("x.jsonl"), strays=strays)) == 1
    assert "line 2: is no JSON" in str(strays[0])
    with pytest.raises(UserError, match="line 2"):
        read_table(Path("x.jsonl"))


def test_given_texts_answer_by_case_and_say_what_they_lack(folder):
    from medimg_eval.case import Prompt

    made = PrecomputedReports(write("mine.csv"))
    made.check_ready()
    assert made.generate([Prompt("b", ())], Decoding()) == ["There is mild edema."]
    with pytest.raises(CaseError, match="no row for case 'z'"):
        made.generate([Prompt("z", ())], Decoding())
    with pytest.raises(UserError, match="has no column 'text'"):
        PrecomputedReports("mine.csv", prediction="text").check_ready()
    with pytest.raises(CaseError, match="'a' stands there with several texts"):
        PrecomputedReports(write("twice.csv", [*ROWS, ("a", "x", "y")])).generate([Prompt("a", ())], Decoding())
    with pytest.raises(UserError, match="cannot be read as a table"):
        PrecomputedReports("lost.csv").check_ready()


def test_a_column_that_is_not_one_of_ours_is_refused():
    with pytest.raises(UsageError, match="role is invalid"):
        ReportTable(root="x.csv", columns={"text": "a"})


def test_cells_that_say_that_a_text_is_missing_and_records_that_lack_a_field(folder, capsys):
    rows = (
        {"id": "a", "reference": "Clear lungs.", "prediction": "Clear lungs.", "subject": "s"},
        {"id": "b", "reference": "Clear lungs.", "prediction": "nan", "subject": "s"},
        {"id": "c", "reference": "NaN", "prediction": "NaN", "subject": "t"},
        {"id": "d", "reference": "Clear lungs.", "prediction": None},
        {"id": "e", "reference": "Clear lungs.", "subject": "t"},
        {"id": "f", "prediction": "Clear lungs.", "subject": "t"},
        {"id": "g", "reference": ["Clear lungs.", None, ""], "prediction": "Clear lungs.", "subject": "t"},
        {"id": "h", "reference": {"findings": "Clear."}, "prediction": "Clear.", "subject": "t"},
        {"id": "i", "reference": "Clear.", "prediction": ["Clear."], "subject": "t"},
    )
    Path("odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert start(["score", "reports=odd.jsonl", "metrics=[rouge_l]"]) == 1
    _, err = said(capsys)
    for message in (
        "2 times, such as c (score): odd.jsonl, line 3: the reference is empty",
        "line 8: column 'reference' holds an object, not a text",
        "line 9: column 'prediction' holds a list, not a text",
    ):
        assert message in err
    (summary,) = folder.glob("runs/reports/*/summary.json")
    assert "line 6: the reference is empty" in summary.read_text()  # of one cause with line 3
    found = {case: value for case, value in scores(folder, "rouge_l").items() if not math.isnan(value)}
    assert found == {"a": 1.0, "b": 0.0, "d": 0.0, "e": 0.0, "g": 1.0}
    cases = {case.id: case for case in ReportTable(root="odd.jsonl").cases("test")}
    assert cases["g"].target.read().value == ("Clear lungs.",)


def test_a_row_that_contradicts_an_earlier_one_stays_with_its_subject(folder):
    write("twice.csv", [(*ROWS[0], "s", "PA"), ("a", "Other.", "Text.", "s", "PA")], header=HEADER)
    first, second = ReportTable(root="twice.csv").cases("test")
    assert (second.patient, second.attributes) == (first.patient, first.attributes) == ("s", {"view": "PA"})


def test_a_report_with_several_references_is_left_out_where_labels_are_compared_and_nowhere_else(folder, capsys):
    rows = [
        {"id": "a", "reference": ["Edema.", "Mild edema."], "prediction": "Edema."},
        {"id": "b", "reference": "Edema.", "prediction": "Edema."},
    ]
    Path("two.json").write_text(json.dumps(rows), encoding="utf-8")
    assert start(["score", "reports=two.json", "metrics=[rouge_l,rule_labeler_f1@micro-all]"]) == 1
    out, err = said(capsys)
    assert "a (rule_labeler_states): rule_labeler compares with one reference, and there are 2; give one" in err
    assert "rule_labeler_states raised an error on 1 of 2 cases" in out
    assert "cases failed" not in out


def test_missing_weights_are_said_by_the_metrics_that_were_asked_for_before_torch_is_imported(folder, capsys):
    write("mine.csv")
    assert start(["score", "reports=mine.csv", "metrics=[chexbert_f1@micro-all,chexbert_similarity]"]) == 1
    _, err = said(capsys)
    assert "chexbert_f1@micro-all: annotator 'chexbert' lacks its weights: chexbert.pth" in err
    assert "chexbert_similarity: annotator 'chexbert_similarity' lacks its weights" in err
    assert not (folder / "runs").exists()


def test_reports_of_a_table_are_not_sent_to_a_judge_elsewhere_unasked(folder, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    write("mine.csv")
    judge = ["model@judge=openai_compatible", "judge.model=m", "judge.base_url=https://judge.invalid/v1"]
    assert start(["score", "reports=mine.csv", "metrics=[green_prompt]", *judge]) > 0
    err = said(capsys)[1]
    assert "questions, answers to judge.invalid; if their terms allow that, add may_leave=yes" in err
    again = ["score", "reports=mine.csv", "metrics=[green_prompt]", *judge, "may_leave=yes"]
    assert err.endswith(f"python -m medimg_eval {shlex.join(again)}")
    assert not (folder / "runs").exists()


def test_many_reports_are_judged_in_several_processes_with_the_same_scores(folder, capsys, monkeypatch):
    rows = [(f"{name}{n}", reference, written) for n in range(3) for name, reference, written in ROWS]
    write("one.csv", rows)
    write("two.csv", [*rows, ("lost", "", "Edema.")])
    metrics = "metrics=[rouge_l,cider_d,rule_labeler_example_f1@14+]"
    assert start(["score", "reports=one.csv", metrics, "runs=one"]) == 0
    monkeypatch.setattr("medimg_eval.evaluation.score.TRIED", 1)
    monkeypatch.setattr("medimg_eval.evaluation.score.WORTH_PROCESSES", -1.0)
    monkeypatch.setattr("medimg_eval.evaluation.score.scoring_workers", lambda *_, **__: 2)
    assert start(["score", "reports=one.csv", metrics, "runs=two"]) == 0
    one, two = (
        load_runs([one.parent for one in folder.glob(f"{name}/reports/*/manifest.json")]) for name in ("one", "two")
    )
    columns = ["case", "label", "metric", "value", "status"]
    assert one[0].scores[columns].equals(two[0].scores[columns])
    assert start(["score", "reports=two.csv", metrics, "runs=two"]) == 1
    assert "the reference is empty" in said(capsys)[1]


def test_several_models_are_compared_and_clinical_labels_are_there_by_default(folder, capsys):
    write("mine.csv", ROWS)
    write("other.csv", [(*row[:2], "Clear lungs.") for row in ROWS])
    assert start(["score", "reports={ours: mine.csv, theirs: other.csv}"]) == 0
    out, _ = said(capsys)
    assert "rule CE F1 (micro-14)" in out
    assert "Mean rank" in out
    write("third.csv", [(row[0], "Other.", row[2]) for row in ROWS])
    assert start(["score", "reports=[mine.csv,third.csv]", "metrics=[rouge_l]"]) == 0
    assert "no comparison: the cases of the models differ" in said(capsys)[0]
