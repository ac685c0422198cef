"""`label`: from reports to a table that tasks read, resumed, with its cost and agreement with people."""

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import medimg_eval as me
from medimg_eval.commands.cli import start
from medimg_eval.data.layouts import Table
from medimg_eval.data.targets import ClassColumns
from medimg_eval.errors import LeaveError, UsageError, UserError
from tests.helpers.printed import said
from tests.helpers.report_reader import ReadsReports

REPORTS = [
    ("a1", "p1", "Edema again. No fracture."),
    ("a2", "p1", "A fracture, and no edema."),
    ("b1", "p2", "Clear lungs."),
    ("b2", "p2", ""),
    ("c1", "p3", "Edema with a fracture."),
]
SCHEME = """\
findings: [Edema, Fracture]
values: {1: stated, 2: denied, 0: left open, -1: not mentioned}
states: {positive: 1, negative: 2, uncertain: 0, blank: -1}
"""
QUESTIONS = """\
ask: each
rewrites: [Write it anew without comparisons.]
findings: {Edema: "Is there an edema?", Fracture: "Is there a fracture?"}
values: {"yes": stated, "no": denied or not mentioned, uncertain: left open}
states: {positive: "yes", negative: "no", uncertain: uncertain}
sets: {lungs: [Edema], bones: [Fracture]}
"""
YES_NO = {"s": "yes", "d": "no", "n": "no"}
READER = "tests.helpers.report_reader.ReadsReports"


def write(folder, reports=REPORTS, text=SCHEME):
    (folder / "scheme.yaml").write_text(text)
    rows = [["accession", "subject", "text"], *reports]
    with (folder / "reports.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return folder


def words(folder, *more):
    return [
        *("label", f"reports={folder}/reports.csv", "column=text", "patient=subject", f"scheme={folder}/scheme.yaml"),
        *(f"+model._target_={READER}", "+model.name=reader", f"+model.log={folder}/log", f"out={folder}/out", *more),
    ]


def rows(file):
    with Path(file).open(newline="") as stream:
        return list(csv.DictReader(stream))


def table(folder, target):
    return Table(root=folder / "out", table="labels.csv", id="id", image="{id}.png", patient="patient", target=target)


def asked(folder):
    return len((folder / "log").read_text().splitlines())


def test_labels_are_a_table_that_a_task_reads_and_the_second_start_asks_nothing(tmp_path, capsys):
    write(tmp_path)
    assert start(words(tmp_path)) == 0
    found = {row["id"]: (row["patient"], row["Edema"], row["Fracture"]) for row in rows(tmp_path / "out/labels.csv")}
    assert found == {
        "a1": ("p1", "1", "0"),
        "a2": ("p1", "0", "1"),
        "b1": ("p2", "", ""),
        "b2": ("p2", "", ""),
        "c1": ("p3", "1", "1"),
    }
    assert pq.read_table(tmp_path / "out/labels.parquet").to_pylist() == rows(tmp_path / "out/labels.csv")
    assert asked(tmp_path) == 4  # nobody is asked about a blank report
    out, _ = said(capsys)
    assert "4 replies were asked for now" in out
    assert "tokens written 28 (5.6 a report); 2.00 s (0.400 a report)" in out
    before = (tmp_path / "out/replies.csv").read_bytes()
    assert start(words(tmp_path)) == 0
    assert asked(tmp_path) == 4
    assert (tmp_path / "out/replies.csv").read_bytes() == before
    assert "0 replies were asked for now" in said(capsys)[0]
    layout = table(tmp_path, ClassColumns(["Edema", "Fracture"], blank="zeros"))
    assert {case.id: case.patient for case in layout.cases("all")} == {row[0]: row[1] for row in REPORTS}
    assert {case.id: dict(case.target.read().values) for case in layout.cases("all")}["a2"] == {
        "Edema": 0,
        "Fracture": 1,
    }


def test_replies_tell_what_each_cost_and_what_was_read_in_it(tmp_path):
    write(tmp_path, text=QUESTIONS)
    values = [f"+model.values.{key}={value!r}" for key, value in YES_NO.items()]
    assert start(words(tmp_path, *values, "write=[labels,replies,rate]", "limit=2")) == 0
    found = rows(tmp_path / "out/replies.csv")
    assert [(row["id"], row["topic"]) for row in found[:3]] == [
        ("a1", "rewrite 1"),
        ("a1", "Edema"),
        ("a1", "Fracture"),
    ]
    assert found[0]["reply"] == "Edema. No fracture."
    assert (found[1]["output_tokens"], found[1]["seconds"], found[1]["cost"]) == ("7", "0.5", "")
    assert json.loads(found[1]["values"]) == {"Edema": "yes"}
    assert json.loads((tmp_path / "out/rate.json").read_text()) == {
        "a1": {"qa_results": {"lungs": [{"Is there an edema?": "Yes"}], "bones": [{"Is there a fracture?": "No"}]}},
        "a2": {"qa_results": {"lungs": [{"Is there an edema?": "No"}], "bones": [{"Is there a fracture?": "Yes"}]}},
    }


def test_labels_are_compared_with_peoples(tmp_path, capsys):
    write(tmp_path)
    (tmp_path / "people.csv").write_text("accession,Edema,Fracture\na1,1,0\na2,0,0\nc1,-1,1.0\nz,,\n")
    assert start(words(tmp_path, f"human={tmp_path}/people.csv", "resamples=50")) == 0
    out, _ = said(capsys)
    assert "reader against people" in out
    assert "Cost of reader on 5 reports" in out
    table = (tmp_path / "out/agreement.csv").read_text()
    assert "Edema" in table
    assert (tmp_path / "out/agreement.md").is_file()
    found = me.label(
        tmp_path / "reports.csv",
        ReadsReports(),
        tmp_path / "scheme.yaml",
        human=tmp_path / "people.csv",
        column="text",
        out=tmp_path / "again",
    )
    frame = found.agreement.frame().set_index(["label", "statistic"])["value"]
    assert frame["Edema"]["agreement"] == pytest.approx(2 / 3)
    assert frame["Edema"]["ppv"] == 0.5
    assert frame["Fracture"]["sensitivity"] == 1


def test_what_cannot_be_read_is_counted_and_not_taken_for_absent(tmp_path, capsys):
    write(tmp_path)
    assert start(words(tmp_path, "+model.spoil.Clear='cannot say'")) == 0
    found = {row["id"]: row["Edema"] for row in rows(tmp_path / "out/labels.csv")}
    assert found["b1"] == "unread"
    assert "2 labels could not be read" in said(capsys)[0]
    layout = table(tmp_path, ClassColumns(["Edema"]))
    with pytest.raises(UserError, match="holds 'unread', expected one of"):
        [case.target.read() for case in layout.cases("all")]


def test_a_report_that_the_model_refuses_fails_alone_and_is_asked_again(tmp_path, capsys):
    write(tmp_path)
    assert start(words(tmp_path, "+model.refuse=Clear")) == 1
    _, err = said(capsys)
    assert "1 of 5 reports were not labelled: b1: the model takes no Clear" in err
    assert {row["id"]: row["Edema"] for row in rows(tmp_path / "out/labels.csv")}["c1"] == "1"
    assert json.loads((tmp_path / "out/labels.json").read_text())["failed"] == {"b1": "the model takes no Clear"}
    before = asked(tmp_path)
    start(words(tmp_path, "+model.refuse=Clear"))
    assert asked(tmp_path) == before


class Elsewhere(ReadsReports):
    """Sends reports to a server."""

    remote = True
    base_url = "https://labels.example.org/v1"


def test_reports_do_not_leave_unasked_and_what_is_wrong_is_said_first(tmp_path):
    write(tmp_path)
    given = {"column": "text", "out": tmp_path / "out"}
    with pytest.raises(LeaveError, match="would send reports to labels.example.org"):
        me.label(tmp_path / "reports.csv", Elsewhere(), tmp_path / "scheme.yaml", **given)
    with pytest.raises(UsageError, match="cannot write"):
        me.label(tmp_path / "reports.csv", object(), tmp_path / "scheme.yaml", **given)
    with pytest.raises(UsageError, match="no column 'report'"):
        me.label(tmp_path / "reports.csv", ReadsReports(), tmp_path / "scheme.yaml", out=tmp_path / "out")
    (tmp_path / "people.csv").write_text("accession,Edema\na1,2\n")
    with pytest.raises(UserError, match="line 2: column 'Edema' holds '2', expected one of '', '-1', '0', '1'"):
        me.label(
            tmp_path / "reports.csv", ReadsReports(), tmp_path / "scheme.yaml", human=tmp_path / "people.csv", **given
        )
    (tmp_path / "people.csv").write_text("accession,Edema\nz,1\n")
    with pytest.raises(UserError, match="none of the reports"):
        me.label(
            tmp_path / "reports.csv", ReadsReports(), tmp_path / "scheme.yaml", human=tmp_path / "people.csv", **given
        )
    write(tmp_path, [*REPORTS, REPORTS[0]])
    with pytest.raises(UserError, match="line 7: column 'accession' names 'a1'"):
        me.label(tmp_path / "reports.csv", ReadsReports(), tmp_path / "scheme.yaml", **given)
    write(tmp_path, [("a", "p", " ")])
    with pytest.raises(UserError, match="holds no report"):
        me.label(tmp_path / "reports.csv", ReadsReports(), tmp_path / "scheme.yaml", **given)
