"""`score answers=FILE`: tables of answers to questions, scored in one line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from medimg_eval.commands.cli import start
from medimg_eval.results import load_runs
from tests.helpers.printed import said


def write(name, header, *rows):
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows([header.split(","), *rows])


def scores(metric, model="mine"):
    runs = load_runs([one.parent for one in Path().glob("runs/answers/*/manifest.json")])
    (run,) = (one for one in runs if one.model == model)
    rows = run.scores[run.scores["metric"] == metric]
    return dict(zip(rows["case"], rows["value"], strict=True))


OPEN = [
    ("a", "yes", "Yes, there is."),
    ("b", "no", "There is."),
    ("c", "left lung", "The left lung."),
    ("d", "CT", "MR"),
    ("e", "no", "No."),
]


def test_yes_no_and_open_answers_stand_in_one_table(folder, capsys):
    write("mine.csv", "id,reference,prediction", *OPEN)
    assert start(["score", "answers=mine.csv"]) == 0
    out, _ = said(capsys)
    assert "n = 5 questions" in out
    assert "greedy" not in out  # nobody knows
    assert {key: value for key, value in scores("accuracy").items() if key in "ae"} == {"a": 1.0, "e": 1.0}
    assert {key: scores("exact_match")[key] for key in "cd"} == {"c": 1.0, "d": 0.0}


def test_options_stand_in_columns_or_in_one(folder):
    rows = [("1", "Which?", "liver", "spleen", "B", "It is the spleen."), ("2", "Which?", "CT", "MR", "CT", "B")]
    write("columns.csv", "id,question,A,B,reference,prediction", *rows)
    lines = [
        {"id": one, "question": asked, "options": [a, b], "reference": right, "prediction": said}
        for one, asked, a, b, right, said in rows
    ]
    Path("lists.jsonl").write_text("\n".join(map(json.dumps, lines)))
    Path("letters.jsonl").write_text(
        "\n".join(json.dumps({**line, "options": dict(zip("AB", line["options"], strict=True))}) for line in lines)
    )
    assert start(["score", "answers=[columns.csv,lists.jsonl,letters.jsonl]"]) == 0
    for model in ("columns", "lists", "letters"):
        assert scores("accuracy", model) == {"1": 1.0, "2": 0.0}


def test_letters_alone_are_choices(folder):
    write("mine.csv", "id,reference,prediction", ("1", "B", "The answer is (B)."), ("2", "D", "A"))
    assert start(["score", "answers=mine.csv"]) == 0
    assert scores("accuracy") == {"1": 1.0, "2": 0.0}


def test_models_of_the_same_questions_are_compared(folder, capsys):
    write("a.csv", "id,reference,prediction", *OPEN)
    write("b.csv", "id,reference,prediction", *((one, right, "no") for one, right, _ in OPEN))
    assert start(["score", "answers={ours: a.csv, theirs: b.csv}"]) == 0
    out, _ = said(capsys)
    assert "Mean rank" in out
    assert "not comparable" not in out


def test_what_is_right_may_stand_elsewhere_with_patients_and_groups(folder, capsys):
    write(
        "key.csv",
        "qid,answer,patient,site",
        *((one, right, f"p{one < 'c'}", "xy"[one < "c"]) for one, right, _ in OPEN),
    )
    write("mine.csv", "qid,text", *((one, text) for one, _, text in OPEN if one != "e"), ("z", "yes"))
    columns = "columns={id: qid, reference: answer, prediction: text}"
    assert start(["score", "answers=mine.csv", "references=key.csv", columns, "by=site"]) == 1
    out, err = said(capsys)
    assert "1 answers of mine belong to no case and are left out: z" in out
    assert "1 cases have no answers of mine and count at the worst value" in out
    assert "in 2 groups (of one patient, image or set)" in out
    assert "│ y" in out
    assert "has no row for case 'e'" in err


def test_a_record_that_is_wrong_fails_by_name(folder, capsys):
    write("mine.csv", "id,reference,prediction", *OPEN, ("f", "", "yes"))
    assert start(["score", "answers=mine.csv"]) == 1
    assert "the answer 'reference' is empty" in said(capsys)[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["answers=nowhere.csv"], "nowhere.csv: no such table"),
        (["answers=bare.csv"], "bare.csv: has no column 'prediction'"),
        (["answers=mine.csv", "columns.text=x"], "got 'text'"),
        (["answers=mine.csv", "references=bare.csv"], "answers of mine: no case is one of the references"),
    ],
)
def test_bad_input_is_one_sentence_that_names_the_mend(folder, capsys, words, message):
    write("mine.csv", "id,reference,prediction", *OPEN)
    write("bare.csv", "id,reference", ("z", "yes"))
    assert start(["score", *words]) != 0
    assert message in said(capsys)[1]
