"""`score classes=FILE`: tables of probabilities or of named classes, scored in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from sklearn.metrics import roc_auc_score

from medimg_eval.commands.cli import start
from medimg_eval.results import load_runs
from tests.helpers.printed import said

TRUTH = [1, 0, 1, 0, 1, 0, 0, 1]
SAID = [0.9, 0.2, 0.6, 0.7, 0.4, 0.1, 0.3, 0.8]


def write(name, header, *columns):
    rows = zip(*columns, strict=True)
    Path(name).write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


CASES = [f"c{number}" for number in range(8)]


def scores(metric):
    """By model: (case, label) -> value."""
    found = {}
    for run in load_runs([one.parent for one in Path().glob("runs/classes/*/manifest.json")]):
        rows = run.scores[run.scores["metric"] == metric]
        found[run.model] = dict(zip(zip(rows["case"], rows["label"], strict=True), rows["value"], strict=True))
    return found


def test_one_table_of_labels_and_probabilities(folder, capsys):
    write("mine.csv", "case,label,probability", CASES, TRUTH, SAID)
    assert start(["score", "classes=mine.csv"]) == 0
    assert f"{roc_auc_score(TRUTH, SAID):.3f} [" in said(capsys)[0]


def test_models_of_the_same_labels_are_compared(folder, capsys):
    write("right.csv", "case,label", CASES, TRUTH)
    write("a.csv", "case,probability", CASES, SAID)
    write("b.csv", "case,probability", CASES, SAID[::-1])
    assert start(["score", "classes={ours: a.csv, theirs: b.csv}", "references=right.csv"]) == 0
    out, _ = said(capsys)
    assert "DeLong" in out
    assert "Mean rank" in out


def test_findings_have_a_column_each(folder, capsys):
    write("right.csv", "case,edema,nodule,site", CASES, TRUTH, TRUTH[::-1], "xxxxyyyy")
    write("mine.csv", "case,nodule,edema,comment", CASES, SAID, SAID, ["fine"] * 8)
    assert start(["score", "classes=mine.csv", "references=right.csv", "by=site", "metrics=[auroc@edema]"]) == 0
    out, _ = said(capsys)
    assert "2 classes, each present or absent" in out
    assert "│ y" in out
    assert f"{roc_auc_score(TRUTH, SAID):.3f}" in out


def test_classes_that_exclude_each_other(folder, capsys):
    kinds = ["mel", "nv", "mel", "nv", "mel", "nv", "nv", "mel"]
    write("right.csv", "case,label", CASES, kinds)
    write("mine.csv", "case,mel,nv,bcc", CASES, SAID, [round(0.9 - value, 2) for value in SAID], [0.1] * 8)
    assert start(["score", "classes=mine.csv", "references=right.csv"]) == 0
    out, _ = said(capsys)
    assert "3 classes, of which exactly one is present" in out
    assert scores("top1_accuracy")["mine"]["c3", "nv"] == 0.0


def test_named_classes_are_enough(folder, capsys):
    kinds = ["mel", "nv", "mel", "nv", "mel", "nv", "nv", "mel"]
    write("right.csv", "case,label", CASES, kinds)
    write("mine.csv", "case,prediction", CASES, ["mel"] * 8)
    assert start(["score", "classes=mine.csv", "references=right.csv"]) == 0
    out, _ = said(capsys)
    assert "0.500" in out
    assert "AUROC" not in out
    write("mine.csv", "case,label", CASES[:7], [*["mel"] * 6, "melanoma"])
    assert start(["score", "classes=mine.csv", "references=right.csv"]) == 1
    out, err = said(capsys)
    assert "1 cases have no classes of mine and count at the worst value" in out
    assert "column 'label' names no class: 'melanoma'" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["classes=nowhere.csv"], "nowhere.csv: no such table"),
        (["classes=mine.csv"], "mine.csv: has neither a column 'label' nor"),
        (["classes=mine.csv", "references=right.csv"], "mine.csv: has no column of probabilities of 'mel'"),
        (["classes=other.csv", "references=right.csv"], "classes of other: no case is one of the references"),
        (["classes=mine.csv", "references=right.csv", "columns.case=study"], "has no column 'study'"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_mend(folder, capsys, words, message):
    write("right.csv", "case,label", CASES, ["mel", "nv"] * 4)
    write("mine.csv", "case,note", CASES, ["x"] * 8)
    write("other.csv", "case,prediction", ["z"], ["mel"])
    assert start(["score", *words]) != 0
    assert message in said(capsys)[1]
