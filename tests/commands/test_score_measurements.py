"""`score measurements=`, and structured reports of a product in the place of tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from medimg_eval.commands.cli import start
from medimg_eval.results import load_runs
from tests.helpers.printed import said
from tests.helpers.structured_reports import write_report

CASES = "abcdef"
NOTHING = [(None, None, [], [])]
"""Nothing was found."""


def scores(metric):
    (run,) = load_runs([Path("runs")])
    rows = run.scores[run.scores["metric"] == metric]
    return {(row.case, row.label): round(row.value, 6) for row in rows.itertuples()}


def write_table(name, rows):
    Path(name).write_text("\n".join(rows) + "\n")


def test_a_table_of_numbers_is_scored_in_one_line(folder, capsys):
    write_table("right.csv", ["case,patient,volume,note", *(f"{c},{c},{n},x" for n, c in enumerate(CASES))])
    write_table("mine.csv", ["case,vol", *(f"{c},{n + 0.5}" for n, c in enumerate(CASES))])
    words = ["score", "measurements=mine.csv", "references=right.csv", "metrics=[absolute_error]"]
    assert start([*words, "columns.volume=vol"]) == 0
    assert set(scores("absolute_error").values()) == {0.5}
    assert start(words) == 1
    assert "has no column 'volume'" in said(capsys)[1]


@pytest.fixture
def reports(folder):
    hd = pytest.importorskip("highdicom")
    from pydicom.sr.codedict import codes

    assessment = hd.sr.CodedConcept("A1", "99TEST", "Assessment")
    values = [hd.sr.CodedConcept(word[0], "99TEST", word) for word in ("Benign", "Malignant")]
    for number, case in enumerate(CASES):
        numbers = [
            (codes.SCT.Volume, 10.0 * number, codes.UCUM.CubicMillimeter),
            (codes.DCM.ProbabilityOfCancer, 10 * number, codes.UCUM.Percent),
        ]
        groups = [(codes.SCT.Mass, codes.SCT.Liver, numbers, [(assessment, values[number > 2])])]
        write_report(folder / "sent" / f"report{number}.dcm", case, groups if number else NOTHING)
    return folder


def test_a_products_measurements_are_scored_from_what_it_sends(reports, capsys):
    """Cases are called by accession numbers, which the references have and files do not."""
    write_table("right.csv", ["case,volume", *(f"ACC-{c},{10 * n + 1}" for n, c in enumerate(CASES) if n)])
    words = ["score", "measurements={product: sent}", "references=right.csv", "metrics=[absolute_error]"]
    assert start([*words, 'columns={volume: "Mass (Liver): Volume [mm3]"}']) == 0
    assert scores("absolute_error") == {(f"ACC-{c}", "volume"): 1.0 for c in CASES[1:]}
    out, logged = said(capsys)
    assert "6 structured reports read" in logged
    assert "1 measurements of product belong to no case and are left out: ACC-a" in out
    table = Path("runs/reports_read/measurements-product.csv").read_text().splitlines()
    assert table[0] == "case,Mass,Assessment,Mass (Liver): Volume [mm3],Mass (Liver): Probability of cancer"
    assert table[2] == "ACC-b,0.1,Benign,10.0,0.1"
    assert table[1] == "ACC-a,0,,,"


def test_a_products_findings_are_scored_as_classes(reports):
    write_table("right.csv", ["case,Mass", *(f"ACC-{c},{int(n > 2)}" for n, c in enumerate(CASES))])
    assert start(["score", "classes={product: sent}", "references=right.csv", "metrics=[auroc@macro]"]) == 0
    (run,) = load_runs([Path("runs")])
    rows = run.scores[run.scores["metric"] == "probability"]
    assert dict(zip(rows["case"], rows["value"], strict=True))["ACC-f"] == pytest.approx(0.5)


def test_a_products_assessment_is_a_named_class(reports):
    write_table(
        "right.csv",
        ["case,label", *(f"ACC-{c},{'Malignant' if n > 2 else 'Benign'}" for n, c in enumerate(CASES) if n)],
    )
    words = ["score", "classes={product: sent}", "references=right.csv", "metrics=[top1_accuracy]"]
    assert start([*words, "columns.prediction=Assessment"]) == 0
    (run,) = load_runs([Path("runs")])
    assert run.failed_cases == 0


def test_reports_that_cannot_be_taken(reports, capsys):
    assert start(["score", "classes=sent"]) == 2
    assert "need references=" in said(capsys)[1]
    write_table("right.csv", ["case,Mass", "a,1"])
    Path("empty").mkdir()
    assert start(["score", "classes=empty", "references=right.csv"]) == 1
    assert "holds no structured report" in said(capsys)[1]
    write_report(Path("sent/again.dcm"), "b", NOTHING)
    write_table("right.csv", ["case,Mass", "ACC-b,1", "ACC-c,0"])
    assert start(["score", "classes=sent", "references=right.csv"]) == 1
    assert "1 cases have several structured reports: ACC-b" in said(capsys)[1]
